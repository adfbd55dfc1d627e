"""A public range of real-valued targets: all that agents exchange uses targets within it."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from tests.support import PUBLIC

from flockwise import (
    Budget,
    CoordinateDescent,
    Huber,
    LocalDP,
    Logistic,
    Objective,
    OutputPerturbation,
    Population,
    PrivateUpdates,
    Problem,
    Quadratic,
    ReleaseOnce,
    SimilarityGraph,
    Softmax,
    simulate,
)
from flockwise.errors import PrivacyError
from flockwise.objective.local import LocalUpdate

RANGE = (-1.0, 1.0)
HUBER = Huber(0.5)


def problem(targets, loss: Any = HUBER, **settings):
    random = np.random.default_rng(0)
    features = random.normal(size=(len(targets), 3))
    population = Population.from_arrays(features, targets, np.arange(len(targets)) % 4)
    graph = SimilarityGraph.from_edges(4, [[0, 1], [1, 2], [2, 3]], source=PUBLIC)
    bounds = {"l2": 0.5, "feature_bound": 2.0, "max_samples": 10}
    return Problem(population, graph, Objective(loss, **(bounds | settings)))


TARGETS = np.random.default_rng(1).normal(size=24)
WILD = np.where(np.arange(24) == 5, 1e6, TARGETS)
TAMED = np.clip(WILD, *RANGE)


@pytest.mark.parametrize(
    "method",
    [
        CoordinateDescent(privacy=PrivateUpdates(Budget(1.0, 1e-5), 3, clip=0.5)),
        ReleaseOnce(Budget(1.0, 1e-5), OutputPerturbation()),
        LocalDP(Budget(1.0, 1e-5)),
        CoordinateDescent(),
    ],
    ids=["private descent", "one release", "local privacy", "descent without privacy"],
)
def test_what_agents_exchange_is_the_same_as_if_targets_had_been_in_the_range_before(method):
    stops = {} if isinstance(method, LocalDP) else {"updates": 3, "engine": "reference"}
    wild, tamed = (simulate(problem(y, target_range=RANGE), method, seed=2, **stops) for y in (WILD, TAMED))
    np.testing.assert_array_equal(wild.models, tamed.models)


def test_a_real_agent_moves_its_targets_into_the_range_too():
    given = problem(WILD, target_range=RANGE)
    for agent in range(4):
        local = LocalUpdate.of(given.objective, given.population.samples(agent)).objective
        np.testing.assert_array_equal(local.targets, given.exchanged.samples(agent).targets)
        assert np.abs(local.targets).max() <= 1.0


def test_without_a_range_and_for_classes_targets_stay_as_they_are():
    assert problem(WILD).exchanged.targets.max() == 1e6
    classes = problem(np.arange(24) % 3 * 1.0, Softmax(3), target_range=(0.5, 1.0))
    assert set(classes.exchanged.targets) == {0.0, 1.0, 2.0}


def test_local_privacy_of_real_valued_targets_needs_a_range():
    with pytest.raises(PrivacyError, match=r"objective\.target_range: missing"):
        simulate(problem(TARGETS), LocalDP(Budget(1.0, 1e-5)))


def test_an_objective_cannot_be_changed_and_goes_through_json():
    objective = Objective(Huber(0.5), tradeoff=2.0, l2=(0.1, 0.2), max_samples=9, target_range=RANGE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        objective.tradeoff = 3.0  # type: ignore[misc]
    assert Objective.from_json(json.loads(json.dumps(objective.to_json()))) == objective


@pytest.mark.parametrize(
    ("l2", "penalties"), [(None, [1 / 6] * 4), (0.3, [0.3] * 4), ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4])]
)
def test_l2_is_left_out_or_one_number_or_one_for_each_agent(l2, penalties):
    assert problem(np.sign(TARGETS), Logistic(), l2=l2).l2_penalties.tolist() == pytest.approx(penalties)


@pytest.mark.parametrize("loss", [Quadratic(), HUBER], ids=["quadratic", "huber"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_private_descent_without_a_range_moves_no_further_by_a_target_than_its_noise_is_for(loss, mechanism):
    """The same noise, and one sample's target anywhere: after one update, in the norm of the mechanism."""
    clip, order = 0.5, 1 if mechanism == "laplace" else 2
    privacy = PrivateUpdates(Budget(1.0, 1e-5), 1, clip, mechanism, models="last")
    method, tame = CoordinateDescent(privacy=privacy), problem(TARGETS, loss)
    assert tame.objective.target_range is None

    def released(targets):
        run = simulate(problem(targets, loss), method, updates=1, engine="reference", seed=3)
        assert run.guarantee is not None
        assert run.guarantee.epsilon == (1.0, 1.0)
        return np.asarray(run.models)

    ways = [np.where(np.arange(24) == 5, target, TARGETS) for target in (-1e9, 1e9)]
    moved = np.subtract(*map(released, ways))
    owner = 5 % 4
    allowed = tame.step_sizes[owner] * tame.pulls[owner] * 2 * clip / tame.population.sample_counts[owner]
    own = np.linalg.norm(moved[owner], order)
    assert 0.5 * allowed < own <= allowed * (1 + 1e-9)
