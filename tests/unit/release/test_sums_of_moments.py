"""What agents add to sums: by plain NumPy loops, and never moved further by one sample than is stated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from flockwise.objective import Logistic, Objective, Quadratic
from flockwise.protocol.prior import Around, Spread
from flockwise.release.moments import TargetScale, moment_size, moment_sum, unit_features
from flockwise.release.spread import (
    mean_clip,
    pair_weights,
    sample_clip,
    spread_part,
    spread_rows,
    spread_size,
)

BOUND = 2.0
OBJECTIVE = Objective(Quadratic(), feature_bound=BOUND, target_range=(-1.0, 3.0))


def agent(random, count, dimension=3, stretch=1.0):
    """Some samples lie beyond their bounds."""
    return stretch * random.normal(size=(count, dimension)), stretch * random.normal(1, 2, count)


def bounded(features, targets, has_intercept=False):
    return unit_features(features, BOUND), TargetScale(OBJECTIVE, has_intercept)(targets)


def joined(first, rest) -> tuple[Any, Any]:
    return np.concatenate([first[0], rest[0]]), np.concatenate([first[1], rest[1]])


def frobenius(upper, size):
    """Of the symmetric matrix whose upper triangle this is: entries off the diagonal count twice."""
    twice = np.where(np.eye(size, dtype=bool), 1, 2)[np.triu_indices(size)]
    return math.sqrt(float((twice * np.asarray(upper, float) ** 2).sum()))


class TestBounds:
    def test_features_and_targets_are_bounded_whatever_they_were(self):
        random = np.random.default_rng(0)
        for stretch in (0.1, 1.0, 1e6, 1e200):
            features, targets = bounded(*agent(random, 50, stretch=stretch))
            assert np.linalg.norm(features, axis=1).max() <= 1
            assert np.abs(targets).max() <= 1

    def test_targets_are_centered_only_where_an_intercept_can_take_it(self):
        inside = np.array([-1.0, 1.0, 3.0])
        np.testing.assert_allclose(TargetScale(OBJECTIVE, True)(inside), [-1, 0, 1])
        np.testing.assert_allclose(TargetScale(OBJECTIVE, False)(inside), [-1 / 3, 1 / 3, 1])
        labels = TargetScale(Objective(Logistic(), feature_bound=1.0), True)
        np.testing.assert_array_equal(labels(np.array([-1.0, 1.0])), [-1, 1])


class TestMoments:
    def test_they_are_those_of_a_plain_loop(self):
        features, targets = bounded(*agent(np.random.default_rng(1), 40))
        weights = np.random.default_rng(2).uniform(0.2, 1, 40)
        expected = np.zeros((4, 4))
        for x, y, weight in zip(features, targets, weights, strict=True):
            v = np.append(x, math.sqrt(0.5) * y) / math.sqrt(x @ x + 0.5)
            expected += weight * np.outer(v, v)
        size = moment_size(3)
        found = moment_sum(features, targets, weights) * size.step
        # Each of 40 products of two numbers up to 1 is rounded by at most two steps of 2^-16.
        np.testing.assert_allclose(found, expected[np.triu_indices(4)], atol=40 * 2.0**-15)

    def test_parts_add_up_to_the_sum_of_all_to_the_last_digit(self):
        random = np.random.default_rng(3)
        agents = [bounded(*agent(random, count)) for count in (0, 1, 7, 30)]
        weights = [random.uniform(0.1, 1, len(targets)) for _, targets in agents]
        parts = [moment_sum(*one, weight) for one, weight in zip(agents, weights, strict=True)]
        whole = moment_sum(
            np.concatenate([features for features, _ in agents]),
            np.concatenate([targets for _, targets in agents]),
            np.concatenate(weights),
        )
        np.testing.assert_array_equal(np.sum(parts, axis=0), whole)

    def test_no_sample_moves_them_further_than_is_stated(self):
        """A search over pairs of samples, in and far beyond their bounds; the bound is attained."""
        random, size, largest = np.random.default_rng(4), moment_size(3), 0.0
        for trial in range(3000):
            one, other = (agent(random, 1, stretch=10.0 ** random.integers(-2, 4)) for _ in range(2))
            weight = np.array([random.choice([1.0, 0.3])])
            moved = moment_sum(*bounded(*one), weight) - moment_sum(*bounded(*other), weight)
            assert frobenius(moved, 4) <= weight[0] * size.sensitivity, trial
            largest = max(largest, frobenius(moved, 4))
        assert largest > 0.9 * size.sensitivity
        # v and w at a right angle: x and x/2, with targets at opposite ends.
        x = np.array([[1.0, 0, 0]])
        moved = moment_sum(x, np.array([1.0]), np.ones(1)) - moment_sum(x / 2, np.array([-1.0]), np.ones(1))
        assert frobenius(moved, 4) == pytest.approx(size.sensitivity, rel=1e-4)

    def test_the_noise_is_scaled_as_the_norm_counts(self):
        """Dividing by the scales turns the Frobenius norm into a plain one."""
        size, upper = moment_size(3), np.random.default_rng(5).normal(size=10)
        assert np.linalg.norm(upper / size.scales) == pytest.approx(frobenius(upper, 4))


def around(dimension, directions, seed=0):
    random = np.random.default_rng(seed)
    return Around(random.normal(size=dimension), random.normal(size=(dimension, directions)) * 2, 0.2)


KINDS = pytest.mark.parametrize(("kind", "directions"), [("number", 1), ("number", 3), ("matrix", 3)])


class TestSpread:
    @KINDS
    @pytest.mark.parametrize("two_classes", [False, True])
    def test_it_is_the_mean_product_of_two_different_samples(self, kind, directions, two_classes):
        """By a double loop, where nothing is clipped."""
        random, look = np.random.default_rng(6), around(3, directions)
        look = look._replace(basis=0.1 * look.basis)
        features, targets = bounded(*agent(random, 8))
        if two_classes:
            targets = np.sign(targets)
        scores = features @ look.mean
        # The probability of a class less its mean: y/2 + ½ − expit(score).
        residuals = (targets + 1) / 2 - expit(scores) if two_classes else (targets - scores) / math.sqrt(0.2)
        u = features @ look.basis * residuals[:, None]
        assert np.linalg.norm(u, axis=1).max() < sample_clip(directions)
        products: Any = sum(np.outer(u[j], u[k]) for j in range(8) for k in range(8) if j != k) / (8 * 7)
        expected = np.trace(products)[None] if kind == "number" else products[np.triu_indices(3)]
        counts = np.array([8.0])
        weight = 0.7 * pair_weights(kind, directions, counts)[0]
        part = spread_part(kind, spread_rows(look, features, targets, two_classes), 0.7)
        np.testing.assert_allclose(
            part * spread_size(kind, 3, 0.7).step,
            weight * expected,
            atol=1e-3 * np.abs(weight * expected).max(),
        )

    @KINDS
    def test_no_sample_moves_it_further_than_is_stated(self, kind, directions):
        """A search: agents of 2 to 60 samples who all pull the same way, one of whom turns around."""
        random, largest = np.random.default_rng(7), 0.0
        least_weight = 0.05
        for trial in range(600):
            look = around(3, directions, trial)
            count, weight = int(random.choice([2, 3, 10, 60])), float(random.choice([1.0, least_weight]))
            one = agent(random, 1, stretch=10.0 ** random.integers(-1, 4))
            other = -one[0] * random.choice([1, 0.3]), one[1]
            rest = [np.repeat(values, count - 1, axis=0) * random.uniform(0.1, 2) for values in one]
            parts = [
                spread_part(
                    kind,
                    spread_rows(look, *bounded(*joined(first, rest)), False),
                    weight,
                )
                for first in (one, other)
            ]
            size = spread_size(kind, 3, least_weight)
            moved = np.linalg.norm((parts[0] - parts[1]) / size.scales)
            assert moved <= weight * size.sensitivity, trial
            largest = max(largest, moved / weight / size.sensitivity)
        assert largest > 0.6, "the search comes near"

    def test_its_expectation_is_the_spread_of_the_agents(self):
        """30,000 agents of two samples with intercepts of variance .09 around a common model."""
        random, look = np.random.default_rng(8), Around(np.zeros(1), np.ones((1, 1)), 1.0)
        intercepts = random.normal(0, 0.3, 30_000)
        totals, ones = 0.0, np.ones((2, 1))
        weight = pair_weights("number", 1, np.array([2.0]))[0]
        for own in intercepts:
            targets = own + random.normal(0, 0.5, 2)
            totals += spread_part("number", spread_rows(look, ones, targets, False), 1.0)[0]
        found = totals * spread_size("number", 1, 1.0).step / weight / len(intercepts)
        # The standard deviation of a product of two residuals of variance .34 is about .35.
        assert found == pytest.approx(0.09, abs=4 * 0.35 / math.sqrt(30_000))

    @pytest.mark.parametrize("count", [0, 1])
    def test_an_agent_with_less_than_two_samples_adds_nothing(self, count):
        features, targets = bounded(*agent(np.random.default_rng(9), count))
        cases: list[tuple[Spread, int, int]] = [("number", 2, 1), ("matrix", 3, 6)]
        for kind, directions, numbers in cases:
            rows = spread_rows(around(3, directions), features, targets, False)
            np.testing.assert_array_equal(spread_part(kind, rows, 1.0), np.zeros(numbers))
            assert pair_weights(kind, directions, np.array([count])) == [0]

    def test_rows_do_not_depend_on_their_company(self):
        """So sums over all agents at once are those of the agents, to the last digit."""
        features, targets = bounded(*agent(np.random.default_rng(10), 200, 40))
        look = around(40, 40)
        together = spread_rows(look, features, targets, False)
        alone = [spread_rows(look, features[k : k + 3], targets[k : k + 3], False) for k in range(0, 200, 3)]
        np.testing.assert_array_equal(together, np.concatenate(alone))

    def test_the_mean_is_clipped_where_the_largest_expected_spread_would_lead_it(self):
        assert mean_clip(1, np.array([1e12]))[0] == pytest.approx(2 * math.sqrt(0.4))
