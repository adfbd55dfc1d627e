"""The experiments on the synthetic task and the proofs, as quick runs: what they must show."""

from __future__ import annotations

import importlib

import pytest
from experiments.race import arrival_at, measure, measure_end
from experiments.result import Result
from experiments.scale import Scale
from experiments.workbook import Workbook

from flockwise.report.theme import Picture, inline_svg

pytestmark = pytest.mark.paper

NAMES = (
    "fig1",
    "fig1_paper",
    "fig2a",
    "fig2b",
    "fig2c_paper",
    "larger_box",
    "fig3",
    "fig4",
    "prop1",
    "thm2",
    "text",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce")
    modules = {name: importlib.import_module(f"experiments.{name}") for name in NAMES}
    return {name: module.run(Scale(quick=True), Workbook(folder, name)) for name, module in modules.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_result_can_be_written_read_drawn_and_told(results, name):
    module = importlib.import_module(f"experiments.{name}")
    again = Result.from_document(results[name].document())
    assert again.document() == results[name].document()
    svg = inline_svg(Picture(name, module.TITLE, module.CAPTION, module.picture(again)))
    assert svg.startswith("<svg")
    assert "nan" not in module.story(again)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_reported_was_not_tuned_on(results, name):
    assert max(results[name].seeds) < 1_000_000


@pytest.mark.parametrize("name", ["fig2a", "fig2b", "fig3"])
def test_noise_without_a_guarantee_is_labelled(results, name):
    private = results[name].where(what="private")
    assert {row.variant for row in private} == {"honest", "published"}
    for row in private:
        labelled = row.more.get("guarantee") == "not differentially private"
        assert labelled == (row.variant == "published")
    assert all("differential privacy" in words for words in results[name].guarantees)


def test_coordinate_descent_is_ahead_of_admm_in_the_papers_window(results):
    rows = results["fig1"].where(metric="accuracy", graph="medium", iterations=500)
    accuracies = {row.more.get("rho"): row.ours for row in rows}
    assert all(accuracies[None] > accuracies[penalty] + 0.03 for penalty in (0.1, 1.0))


def test_coordinate_descent_arrives_before_admm_on_the_dense_graph():
    """On one instance that is not reported, against a penalty near the best."""
    seed, test, tradeoff = 1_000_000, 200, 2.0
    final = measure_end("dense", tradeoff, seed, test)["accuracy"]
    arrivals = []
    for penalty in (None, 0.1):
        run = measure("dense", penalty, tradeoff, seed, test, final, False)
        arrived = arrival_at(run["accuracy"], final)
        assert arrived is not None
        arrivals.append(run["ticks"][arrived])
    descent, gossip = arrivals
    assert gossip > 3 * descent


@pytest.mark.parametrize("name", ["fig2a", "fig2b"])
def test_the_published_private_curves_are_not_had_honestly(results, name):
    """Released models are near chance, not at the published .67 to .81; a tenth of the noise gets there."""
    released = results[name].where(variant="honest", what="private", model="released", metric="accuracy")
    assert all(row.ours < 0.6 for row in released)
    without = results[name].where(variant="published", what="private", metric="accuracy")
    assert max(row.ours for row in without) > 0.7


def test_a_larger_box_has_the_published_curves_with_the_noise_as_printed(results):
    """p = 100 and ε = 1.05: far below the published .815 on [−1, 1]^p, and near it on [−20, 20]^p."""
    private = results["larger_box"].where(what="private", figure="2c", epsilon=1.05)
    found = {row.more["factor"]: row.as_published for row in private}
    assert found[1.0] < 0.72
    assert found[20.0] == pytest.approx(0.815, abs=0.03)
    assert all(row.more["guarantee"] == "not differentially private" for row in private)


def test_every_size_of_data_set_gains(results):
    rows = results["fig3"].rows
    local = {row.more["x"]: row.ours for row in rows if row.what == "local"}
    together = {row.more["x"]: row.ours for row in rows if row.what == "collaborative"}
    assert all(together[size] > local[size] + 0.05 for size in local)
    assert local[min(local)] < local[max(local)]


def test_local_privacy_leaves_little(results):
    rows = results["fig4"].rows
    local = {row.dimension: row.ours for row in rows if row.what == "local"}
    private = [row for row in rows if row.what.startswith("local_dp_laplace")]
    assert all(row.ours < local[row.dimension] - 0.1 for row in private)
    assert all(abs(row.ours - 0.5) < 0.05 for row in private if row.dimension == 100)


def test_noise_on_features_alone_is_labelled_and_collaboration_gains_on_it(results):
    rows = results["fig4"].where(what="noisy_features", dimension=100, epsilon=1.0)
    together = results["fig4"].find(what="noisy_features_together", dimension=100, epsilon=1.0)
    assert together.ours > rows[0].ours + 0.02
    noisy = [row for row in results["fig4"].rows if row.what.startswith("noisy_features")]
    assert all(row.more["guarantee"] == "not differentially private" for row in noisy)


def test_prop_1_holds_and_is_loose(results):
    rates = {row.what: row.ours for row in results["prop1"].where(metric="rate")}
    assert results["prop1"].claims[0].holds
    assert rates["measured"] > 5 * rates["proven"] > 5 * rates["proven_as_printed"]


def test_theorem_2_fails_as_printed_and_holds_corrected(results):
    rows = {(row.what, row.dimension): row.ours for row in results["thm2"].where(metric="share_of_bound")}
    assert rows["theorem_2", 100] > rows["theorem_2", 10] > 1 > rows["theorem_2", 1]
    assert all(rows["theorem_2_corrected", dimension] <= 1 for dimension in (1, 10, 100))
    ring = {row.what: row.ours for row in results["thm2"].where(metric="gap_over_uniform", where="ring")}
    assert ring["published_allocation"] > 1 > ring["corrected_allocation"]
