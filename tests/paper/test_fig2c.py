"""Figure 2 (c): what its quick run must show, and the pieces that it is measured with."""

from __future__ import annotations

import numpy as np
import pytest
from experiments import fig2c, published
from experiments.result import Result
from experiments.scale import Scale
from experiments.sparse_models import solve_sparse_models
from experiments.synthetic import network
from experiments.workbook import Workbook

from flockwise.report.theme import Picture, inline_svg
from flockwise.solve import solve_local_models

TUNING_SEED = 1_000_000


class TestNetwork:
    def test_targets_are_always_right_and_their_opposites_never(self):
        drawn = network(20, 5, TUNING_SEED)
        found = drawn.accuracies([drawn.task.targets, -drawn.task.targets], 200)
        assert found.tolist() == [[1.0] * 20, [0.0] * 20]

    def test_rotation_turns_features_and_targets_alike(self):
        straight, turned = (network(20, 5, TUNING_SEED, rotated=rotated) for rotated in (False, True))
        rotation = turned.task.rotation
        assert rotation is not None
        assert turned.task.train.features == pytest.approx(straight.task.train.features @ rotation.T)
        assert turned.task.targets == pytest.approx(straight.task.targets @ rotation.T)
        models = np.random.default_rng(0).normal(size=(20, 5))
        found = turned.accuracies([turned.task.targets, models @ rotation.T], 500)
        assert found[0].min() >= 0.998  # up to rounding at a boundary
        assert found[1] == pytest.approx(straight.accuracies([models], 500)[0], abs=0.002)

    def test_random_edges_move_so_many_and_keep_the_weights(self):
        right, wrong = (
            network(60, 3, TUNING_SEED, random_edges=share).problem.neighbors for share in (0.0, 0.3)
        )
        assert wrong.n_edges == right.n_edges
        assert np.sort(wrong.weights).tolist() == np.sort(right.weights).tolist()
        common = ((right.to_scipy().toarray() > 0) & (wrong.to_scipy().toarray() > 0)).sum() / 2
        assert common == pytest.approx(0.7 * right.n_edges, abs=1)


@pytest.fixture(scope="module")
def drawn():
    return network(30, 20, TUNING_SEED)


class TestSparseModels:
    def test_they_meet_the_optimality_conditions(self, drawn):
        """|gradient| ≤ λ everywhere, and = λ against the sign of every coordinate that is not 0."""
        factor = 0.2
        models = solve_sparse_models(drawn.problem, factor, iterations=3000)
        population = drawn.problem.population
        for agent in range(30):
            rows = slice(population.offsets[agent], population.offsets[agent + 1])
            signed = population.features[rows] * population.targets[rows, None]
            gradient = -(signed / (1 + np.exp(signed @ models[agent]))[:, None]).mean(axis=0)
            penalty = factor * np.sqrt(np.log(2 * 20) / len(signed))
            used = models[agent] != 0
            assert np.abs(gradient).max() <= penalty + 1e-5
            assert gradient[used] == pytest.approx(-penalty * np.sign(models[agent][used]), abs=1e-5)

    @pytest.mark.paper
    def test_they_profit_from_zeros(self, drawn):
        models = [solve_sparse_models(drawn.problem), solve_local_models(drawn.problem)]
        sparse, local = drawn.accuracies(models, 500).mean(axis=1)
        assert sparse > local + 0.05


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return fig2c.run(Scale(quick=True), Workbook(tmp_path_factory.mktemp("fig2c"), "fig2c"))


@pytest.mark.paper
class TestQuickRun:
    def test_it_can_be_written_read_drawn_and_told(self, result):
        again = Result.from_document(result.document())
        assert again.document() == result.document()
        assert inline_svg(Picture("fig2c", fig2c.TITLE, fig2c.CAPTION, fig2c.picture(again))).startswith(
            "<svg"
        )
        assert "nan" not in fig2c.story(again)

    def test_there_is_one_local_row_per_dimension(self, result):
        for what in ("local", "local_l1", "collaborative"):
            assert [row.dimension for row in result.where(what=what)] == [2, 20, 100]

    def test_every_private_row_says_who_loses(self, result):
        private = result.where(what="private")
        assert {row.variant for row in private} == {"honest", "published"}
        for row in private:
            assert 0 <= row.more["losing"] <= 1
            local = result.find(what="local", dimension=row.dimension)
            assert row.more["gain"] == pytest.approx(row.ours - local.ours, abs=1e-5)
            labelled = row.more.get("guarantee") == "not differentially private"
            assert labelled == (row.variant == "published")
        assert all("differential privacy" in words for words in result.guarantees)

    def test_published_values_stand_beside_ours(self, result):
        row = result.find(what="private", variant="honest", model="own", epsilon=0.55, dimension=100)
        assert row.paper == published.FIG2C[0.55][100]
        assert result.find(what="local", dimension=20).paper is None

    def test_sound_descent_is_near_chance_and_one_smoothed_release_gains(self, result):
        for dimension in (20, 100):
            sound = result.where(what="private_cd", model="released", dimension=dimension)
            assert all(row.ours < 0.6 for row in sound)
            best = result.find(
                what="private", variant="honest", model="own", epsilon=1.05, dimension=dimension
            )
            assert best.more["gain"] > 0.05

    def test_nothing_reported_was_tuned_on(self, result):
        assert max(result.seeds) < 1_000_000
