"""What every registered statistic has to keep: its sensitivity, its noise, one release per agent and seed.

The tests walk the registry, so a new statistic is tested here without another line.
"""

import numpy as np
import pytest
from tests.support import LOSSES, random_problem, random_targets

from flockwise import STATISTICS, Budget, Objective, Plan
from flockwise.data import Samples
from flockwise.errors import PrivacyError
from flockwise.registry import part_from_json, part_to_json

BUDGET = Budget(1.0, 1e-5)
every_statistic = pytest.mark.parametrize("kind", list(STATISTICS), ids=lambda kind: kind.name)


def objective_for(statistic):
    """The first loss that it can be released under, with all public bounds."""
    objectives = (Objective(loss, l2=2.0, feature_bound=2.0, max_samples=8) for loss in LOSSES)
    return next(one for one in objectives if not list(statistic.misfits(one)))


def problem_for(statistic, seed=0):
    objective = objective_for(statistic)
    return random_problem(seed, loss=objective.loss, l2=2.0, feature_bound=2.0)


def samples_of(random, loss, count):
    return Samples(3 * random.normal(size=(count, 3)), random_targets(random, loss, count))


def gate_value(statistic, samples, objective):
    try:
        return statistic.of(samples, objective)
    except PrivacyError as error:
        if "it is for simulations" not in str(error):
            raise
        pytest.skip(str(error))


@every_statistic
def test_replacing_one_sample_moves_a_statistic_by_at_most_its_sensitivity(kind):
    statistic, random = kind(), np.random.default_rng(1)
    objective, plan = objective_for(statistic), Plan.fitting(BUDGET, statistic.mechanism, 1)
    for count in (1, 2, 7):
        ours = samples_of(random, objective.loss, count)
        theirs = Samples(ours.features.copy(), ours.targets.copy())
        theirs.features[-1] *= -5
        values = [gate_value(statistic, samples, objective) for samples in (ours, theirs)]
        events = [value.event(plan, 1) for value in values]
        one, other = (value.bounded(event, None) for value, event in zip(values, events, strict=True))
        moved = np.linalg.norm(one - other, ord=1 if events[0].norm == "l1" else 2)
        assert 0 < moved <= events[0].sensitivity * (1 + 1e-9)
        assert events[0].sensitivity == events[1].sensitivity


@every_statistic
def test_agents_without_samples_release_nothing_and_all_others_noise(kind):
    statistic = kind()
    problem = problem_for(statistic)
    released = statistic.release(problem, BUDGET, 3)
    is_silent = problem.population.sample_counts == 0
    assert is_silent.any()
    assert (released.vectors[is_silent] == 0).all()
    assert np.isinf(released.noise_variances[is_silent]).all()
    assert (released.noise_variances[~is_silent] > 0).all()
    assert np.isfinite(released.vectors).all()


@every_statistic
def test_one_seed_is_one_release_and_another_seed_has_other_noise(kind):
    statistic = kind()
    problem = problem_for(statistic)
    first, again, other = (statistic.release(problem, BUDGET, seed).vectors for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    has_samples = problem.population.sample_counts > 0
    assert (first[has_samples] != other[has_samples]).any(axis=1).all()


@every_statistic
def test_a_larger_budget_means_less_noise(kind):
    statistic = kind()
    problem = problem_for(statistic)
    tight, generous = (
        statistic.release(problem, Budget(epsilon, 1e-5), 3).noise_variances for epsilon in (1.0, 5.0)
    )
    has_samples = problem.population.sample_counts > 0
    assert (generous[has_samples] < tight[has_samples]).all()


@every_statistic
def test_a_statistic_is_read_back_from_what_was_written(kind):
    assert part_from_json(STATISTICS, part_to_json(kind())) == kind()
