"""Twins: like the real network in all that is public, and generated otherwise."""

import numpy as np
import pytest
from tests.support import LOSSES, named

from flockwise import Huber
from flockwise.graph.randomized import random_graph
from flockwise.planner.field import SmoothField
from flockwise.planner.twins import SHARES, TWINS_PER_SHARE, plausible_shares, twins


def made(facts):
    return list(twins(facts, SmoothField(facts.graph), SHARES))


def test_twins_have_the_public_facts_and_differ(facts):
    known = facts()
    found = made(known)
    assert [twin.share for twin in found] == [share for share in SHARES for _ in range(TWINS_PER_SHARE)]
    for twin in found:
        assert twin.problem.population.sample_counts.tolist() == known.sample_counts.tolist()
        assert twin.problem.graph is known.graph
        assert twin.problem.sample_cap == known.objective.max_samples
    assert len({twin.problem.fingerprint for twin in found}) == len(found)
    assert [twin.problem.fingerprint for twin in made(known)] == [twin.problem.fingerprint for twin in found]


def test_features_stay_within_the_bound(facts):
    for twin in made(facts(feature_bound=3.0)):
        lengths = np.linalg.norm(twin.problem.population.features, axis=1)
        assert 1.5 <= lengths.min() < lengths.max() <= 3.0


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_every_loss_accepts_the_targets_of_its_twins(facts, loss):
    for twin in made(facts(loss=loss, feature_bound=1.0)):
        assert loss.valid_targets(twin.problem.population.targets).all()
        assert np.ptp(twin.test.targets) > 0


def test_numbers_are_as_large_as_was_said(facts):
    """A model explains one half of the variance: 2·scale², known here to about 2 %."""
    twin = made(facts(loss=Huber(5.0), feature_bound=1.0))[0]
    assert twin.test.targets.std() == pytest.approx(5 * np.sqrt(2), rel=0.1)


def test_a_graph_of_random_edges_is_not_trusted(facts, ring):
    def shares(graph):
        known = facts(graph)
        return plausible_shares(known, SmoothField(known.graph))

    assert shares(ring(40, 3)) == SHARES
    assert shares(random_graph(40, 6, 0)) == (0.0,)
    assert shares(ring(40, 3, source="random")) == (0.0,)
