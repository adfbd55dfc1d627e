"""What every registered statistic has to keep, and what one from another package is attacked with.

The tests walk the registry: a new statistic is tested here without a line.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from flockwise.audit import audit_one
from flockwise.audit.gate import along_axis
from flockwise.audit.methods import ReleaseOnceAttack
from flockwise.data import Population, Samples
from flockwise.engine import simulate
from flockwise.errors import PrivacyError
from flockwise.graph import SimilarityGraph
from flockwise.method import ReleaseOnce
from flockwise.objective import CappedLogistic, Huber, Objective, Problem
from flockwise.privacy import MECHANISMS, Budget, Plan
from flockwise.privacy.gate import Bounded
from flockwise.release import STATISTICS, PointMean
from flockwise.release.mean import unit_rows
from flockwise.release.statistic import Misfit, release_once

BUDGET = Budget(1.0, 0.01)
BOUND, DIMENSION, SAMPLES = 1.5, 3, 5
OBJECTIVES = [Objective(loss, l2=0.5, feature_bound=BOUND) for loss in (CappedLogistic(), Huber())]
# One statistic has no value that a gate could be given: its noise is in what is minimized.
AT_A_GATE = [kind for kind in STATISTICS if kind.name != "objective"]
every_statistic = pytest.mark.parametrize("kind", list(STATISTICS), ids=STATISTICS.names)
at_a_gate = pytest.mark.parametrize("kind", AT_A_GATE, ids=[kind.name for kind in AT_A_GATE])


def fitting(statistic) -> Objective:
    """The first objective under which it can be released."""
    return next(one for one in OBJECTIVES if not any(statistic.misfits(one)))


def samples_of(random, objective, reach=3.0) -> Samples:
    """Within the bound and far beyond it."""
    lengths = 10 ** random.uniform(-reach, reach, (SAMPLES, 1))
    features = lengths * random.normal(size=(SAMPLES, DIMENSION))
    if objective.loss.metric == "accuracy":
        return Samples(features, random.choice([-1.0, 1.0], SAMPLES))
    return Samples(features, 10 ** random.uniform(-reach, reach, SAMPLES) * random.normal(size=SAMPLES))


def replaced(samples, other) -> Samples:
    """The first sample is that of another data set."""
    features, targets = samples.features.copy(), samples.targets.copy()
    features[0], targets[0] = other.features[0], other.targets[0]
    return Samples(features, targets)


def noise_free(statistic, samples, objective):
    """The event of a gate, and the value to which it adds its noise."""
    value = statistic.of(samples, objective)
    event = value.event(Plan.fitting(BUDGET, statistic.mechanism, 1), 1)
    return event, value.bounded(event, None)


def problem_of(samples, objective) -> Problem:
    """Of one agent."""
    population = Population.packed(samples.features, samples.targets, np.array([0, SAMPLES]))
    return Problem(population, SimilarityGraph.from_edges(1, np.empty((0, 2), np.int64)), objective)


def check_sensitivity(statistic) -> None:
    """No replaced sample moves the value by more than is stated, in the norm of the noise."""
    objective, random = fitting(statistic), np.random.default_rng(1)
    order = 1 if MECHANISMS[statistic.mechanism].norm == "l1" else 2
    moved = []
    for _ in range(40):
        samples, other = (samples_of(random, objective) for _ in range(2))
        event, first = noise_free(statistic, samples, objective)
        _, second = noise_free(statistic, replaced(samples, other), objective)
        moved.append(float(np.linalg.norm(first - second, order)) / event.sensitivity)
    # And the opposite of one sample, with the same target and with another.
    samples = Samples(
        np.vstack([100 * np.eye(DIMENSION)[:1], np.zeros((SAMPLES - 1, DIMENSION))]), np.ones(SAMPLES)
    )
    for sign, target in ((-1, 1.0), (1, -1.0)):
        other = Samples(sign * samples.features, np.full(SAMPLES, target))
        event, first = noise_free(statistic, samples, objective)
        _, second = noise_free(statistic, replaced(samples, other), objective)
        moved.append(float(np.linalg.norm(first - second, order)) / event.sensitivity)
    assert max(moved) <= 1 + 1e-9


def audited(statistic, runs=5_000):
    attack = ReleaseOnceAttack("a statistic", BUDGET, runs, statistic, along_axis(DIMENSION))
    return audit_one(attack, n_rows=len(STATISTICS))


@every_statistic
def test_a_statistic_is_a_dataclass_whose_fields_have_defaults(kind):
    statistic = kind()
    assert is_dataclass(statistic)
    assert kind.name in STATISTICS
    assert kind.mechanism in MECHANISMS
    assert kind.words
    assert fitting(statistic) in OBJECTIVES


@every_statistic
def test_what_does_not_fit_is_said_and_refused(kind):
    """Under any objective: misfits are said one by one, and a run is refused for the first."""
    random = np.random.default_rng(0)
    for objective in (*OBJECTIVES, Objective(), Objective(Huber())):
        misfits = list(kind().misfits(objective))
        assert all(isinstance(misfit, Misfit) for misfit in misfits)
        if misfits:
            with pytest.raises(PrivacyError, match=misfits[0].place):
                simulate(
                    problem_of(samples_of(random, objective), objective),
                    ReleaseOnce(BUDGET, kind()),
                    updates=1,
                )


@at_a_gate
def test_one_replaced_sample_moves_it_by_at_most_its_sensitivity(kind):
    check_sensitivity(kind())


@at_a_gate
def test_all_agents_at_once_release_what_each_gate_would(kind):
    """The same seed draws the same noise, so differences are those of the values without it."""
    objective, random = fitting(kind()), np.random.default_rng(2)
    first, second = (samples_of(random, objective, reach=0.5) for _ in range(2))
    at_once = [
        ReleaseOnce(BUDGET, kind()).release(problem_of(samples, objective), 3) for samples in (first, second)
    ]
    event, here = noise_free(kind(), first, objective)
    _, there = noise_free(kind(), second, objective)
    np.testing.assert_allclose(at_once[0].vectors[0] - at_once[1].vectors[0], here - there, atol=1e-9)
    assert at_once[0].noise_variances[0] == pytest.approx(event.noise_std**2, rel=1e-9)


@every_statistic
def test_no_attack_measures_more_than_its_budget(kind):
    """At the confidence of the audit: an honest statistic at its limit fails for 1 seed of 1000."""
    assert audited(kind()).holds


# Statistics that lie, as another package might.


@dataclass(frozen=True)
class Lying(PointMean):
    """States a sensitivity of `stated`/m for the mean of its rows."""

    stated: float = 2.0
    name: ClassVar[str] = "lying"

    def of(self, samples, objective, at=None) -> Any:
        rows = self._rows(*samples)
        return Bounded(rows.mean(axis=0), self.stated / len(rows))

    def release(self, problem, budgets, seed):
        population, counts = problem.population, problem.population.sample_counts
        vectors = np.array([self._rows(*population.samples(i)).mean(axis=0) for i in range(problem.n_agents)])
        return release_once(self, vectors, counts, self.stated / counts, budgets, seed)

    def _rows(self, features, targets):
        return unit_rows(features, targets)


class ForgetsToClip(Lying):
    """Averages y·x, which is as long as a sample is."""

    def _rows(self, features, targets):
        return 10 * targets[:, None] * features


def test_the_same_statistic_with_its_true_sensitivity_passes():
    check_sensitivity(Lying(stated=2.0))
    assert audited(Lying(stated=2.0)).holds


@pytest.mark.parametrize("liar", [Lying(stated=0.5), ForgetsToClip()], ids=["factor", "clip"])
def test_a_statistic_with_a_wrong_sensitivity_is_caught(liar):
    with pytest.raises(AssertionError):
        check_sensitivity(liar)
    row = audited(liar)
    assert row.lower_bound > row.claimed_epsilon
