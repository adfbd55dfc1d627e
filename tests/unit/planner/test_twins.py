"""Twins: like the real network in all that is public, and generated otherwise."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support import LOSSES, named

from flockwise import Huber, Quadratic
from flockwise.graph.randomized import complete_graph, random_graph
from flockwise.planner.field import SmoothField
from flockwise.planner.twins import TWINS_PER_WORLD, plausible_worlds, twins
from flockwise.planner.worlds import ALONG_GRAPH, WORLDS


def made(facts, worlds=ALONG_GRAPH + WORLDS):
    field = SmoothField(facts.graph)
    return [twin for world in worlds for twin in twins(facts, field, world)]


def world(words):
    return next(one for one in WORLDS if one.words == words)


def optimal_models(twin):
    """Least squares on very many samples: the models that the twin was drawn with, up to its noise."""
    test = twin.test
    pairs = (test.samples(agent) for agent in range(test.n_agents))
    return np.array([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in pairs])


def test_twins_have_the_public_facts_and_differ(facts):
    known = facts()
    found = made(known)
    assert len(found) == TWINS_PER_WORLD * (len(WORLDS) + len(ALONG_GRAPH))
    for twin in found:
        assert twin.problem.population.sample_counts.tolist() == known.sample_counts.tolist()
        assert twin.problem.graph is known.graph
        assert twin.problem.sample_cap == known.objective.max_samples
    assert len({twin.problem.fingerprint for twin in found}) == len(found)
    assert [twin.problem.fingerprint for twin in made(known)] == [twin.problem.fingerprint for twin in found]


def test_features_stay_within_the_bound(facts):
    for twin in made(facts(feature_bound=3.0)):
        lengths = np.linalg.norm(twin.problem.population.features, axis=1)
        assert lengths.max() <= 3.0


def test_twins_of_agents_with_an_intercept_have_one(facts):
    twin = made(replace(facts(feature_bound=3.0), has_intercept=True), WORLDS[:1])[0]
    assert twin.problem.population.has_intercept
    assert (twin.problem.population.features[:, -1] == 1).all()
    assert np.linalg.norm(twin.problem.population.features, axis=1).max() <= 3.0


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_every_loss_accepts_the_targets_of_its_twins(facts, loss):
    for twin in made(facts(loss=loss, feature_bound=1.0)):
        assert loss.valid_targets(twin.problem.population.targets).all()
        assert np.ptp(twin.test.targets) > 0


def test_numbers_are_as_large_as_was_said(facts):
    """A model explains one half of the variance: 2·scale², known here to about 2 %."""
    twin = made(facts(loss=Huber(5.0), feature_bound=1.0), (world("unrelated agents"),))[0]
    assert twin.test.targets.std() == pytest.approx(5 * np.sqrt(2), rel=0.1)


def test_only_intercepts_differ_where_that_is_said(facts):
    known = replace(facts(loss=Quadratic(), residual_scale=1.0), has_intercept=True)
    spreads = {}
    for words in ("only intercepts differ", "agents far apart"):
        models = optimal_models(made(known, (world(words),))[0])
        spreads[words] = models[:, :-1].std(axis=0).mean()
    # Least squares on 200 samples is within .12 of slopes of features in [−1, 1].
    assert spreads["only intercepts differ"] < 0.16 < 0.3 < spreads["agents far apart"]


def test_unrelated_agents_have_no_common_model(facts):
    known = facts(loss=Quadratic(), residual_scale=1.0)
    means = {
        words: np.linalg.norm(optimal_models(made(known, (world(words),))[0]).mean(axis=0))
        for words in ("unrelated agents", "agents much alike")
    }
    # Lengths of models are about 2√3, so the mean of 40 unrelated ones is about .3 long.
    assert means["unrelated agents"] < 0.8 < means["agents much alike"]


def test_a_graph_of_random_edges_is_not_trusted(facts, ring):
    def follows(graph):
        known = facts(graph)
        return any(world.along > 0 for world in plausible_worlds(known, SmoothField(known.graph)))

    assert follows(ring(40, 3))
    assert not follows(random_graph(40, 6, 0))
    assert not follows(ring(40, 3, source="random"))
    assert not follows(complete_graph(40))
