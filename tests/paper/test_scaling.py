"""What the quick run of the scaling experiment must show."""

from __future__ import annotations

import pytest
from experiments import scaling
from experiments.result import Result
from experiments.scale import Scale
from experiments.scaling import Setting
from experiments.workbook import Workbook

from flockwise.report.theme import Picture, inline_svg


def test_settings_have_different_keys_and_the_wanted_kinds():
    full = list(scaling._settings(Scale()))
    assert len({setting.key for setting in full}) == len(full)
    for agents in (100, 400, 1600, 6400):
        kinds = {setting.random_edges for setting in full if setting.agents == agents and setting.is_main}
        assert kinds == {0.0, 0.1, 0.3}
    assert all(setting.agents <= scaling.LARGEST_VARIED for setting in full if not setting.is_main)


def test_only_the_papers_network_stands_beside_the_paper():
    assert Setting(100).is_published
    assert not any(
        s.is_published for s in (Setting(400), Setting(100, random_edges=0.1), Setting(100, rotated=True))
    )


def test_the_published_gain_is_that_of_the_figure():
    assert scaling.published_gain(1.05) == pytest.approx(0.155)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return scaling.run(Scale(quick=True), Workbook(tmp_path_factory.mktemp("scaling"), "scaling"))


@pytest.mark.paper
class TestQuickRun:
    def test_it_can_be_written_read_drawn_and_told(self, result):
        again = Result.from_document(result.document())
        assert again.document() == result.document()
        picture = Picture("scaling", scaling.TITLE, scaling.CAPTION, scaling.picture(again))
        assert inline_svg(picture).startswith("<svg")
        assert "nan" not in scaling.story(again)

    def test_privacy_gets_cheaper_in_a_larger_network(self, result):
        """Instances of 100 agents differ by .013, those of 400 by .008; the difference is about .08."""
        few, many = (
            result.find(
                what="private",
                model="own",
                metric="accuracy",
                agents=agents,
                dimension=100,
                epsilon=1.05,
                edges="right",
                features="as drawn",
            ).ours
            for agents in (100, 400)
        )
        assert many > few + 0.02

    def test_baselines_are_shown_once(self, result):
        for agents in (100, 400):
            assert result.find(what="local", agents=agents, dimension=100)
        drawn = result.find(what="local_l1", agents=100, dimension=100, features="as drawn")
        turned = result.find(what="local_l1", agents=100, dimension=100, features="rotated")
        assert drawn.ours > turned.ours + 0.1

    def test_traffic_counts_the_setup(self, result):
        rows = [row for row in result.rows if "bytes" in row.more]
        assert {row.agents for row in rows} == {100, 400}
        assert all(row.more["bytes"] > row.more["bytes_of_hops"] > 0 for row in rows)

    def test_every_random_edge_row_says_what_was_gained(self, result):
        for edges in ("10% random", "30% random"):
            rows = result.where(what="private", model="own", edges=edges)
            assert len(rows) == len(scaling.EPSILONS)
            assert all(-0.1 < row.more["gain"] < 0.3 for row in rows)
