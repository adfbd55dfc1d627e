"""Models remember where they came from, through everything that NumPy does with them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.origin import Origin
from flockwise.privacy.tracked import TrackedModels, origin_of, own_models, run_models, tracked

PUBLIC = Origin("a published model", "public")
RELEASED = Origin("models released by cd", "released", ((1.0, 1.0), (0.0, 0.0)))
UNKNOWN = Origin("models from a friend", "unknown")
PRIVATE = Origin("own models", "private")
FROM_BEST_TO_WORST = [PUBLIC, RELEASED, UNKNOWN, PRIVATE]
VALUES = np.arange(6.0).reshape(3, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda models: models.copy(),
        lambda models: copy.deepcopy(models),
        lambda models: models[1:],
        lambda models: models[[0, 2]],
        lambda models: models.T,
        lambda models: models.astype(np.float32),
        lambda models: 2 * models,
        lambda models: -models / 3 + 1,
        lambda models: models.mean(axis=0),
        lambda models: np.eye(3) @ models,
        lambda models: np.round(models, 1),
    ],
)
def test_copies_slices_and_multiples_remember_their_origin(make):
    assert origin_of(make(tracked(VALUES, PRIVATE))) is PRIVATE


@pytest.mark.parametrize("origin", FROM_BEST_TO_WORST, ids=lambda origin: origin.status)
def test_what_is_computed_with_an_array_of_unknown_origin_is_unknown_at_best(origin):
    models, other = tracked(VALUES, origin), np.ones_like(VALUES)
    for made in (models + other, other - models, np.maximum(models, other)):
        found = origin_of(made)
        assert ("unknown" if found is None else found.status) == max(
            "unknown", origin.status, key=[one.status for one in FROM_BEST_TO_WORST].index
        )


def test_models_that_are_written_to_take_over_the_origin_of_what_is_written():
    models = tracked(VALUES.copy(), RELEASED)
    models[0] = own_models(VALUES)[0]
    assert models.origin is not None
    assert models.origin.status == "private"
    models = tracked(VALUES.copy(), RELEASED)
    np.add(models, own_models(VALUES), out=models)
    assert models.origin is not None
    assert models.origin.status == "private"
    models = tracked(VALUES.copy(), RELEASED)
    models[1] = VALUES[1]
    assert models.origin is None
    models = tracked(VALUES.copy(), RELEASED)
    models[1] = 0.0
    models *= 2
    assert models.origin is RELEASED


@pytest.mark.parametrize("first", FROM_BEST_TO_WORST, ids=lambda origin: origin.status)
@pytest.mark.parametrize("second", FROM_BEST_TO_WORST, ids=lambda origin: origin.status)
def test_a_sum_has_the_origin_that_can_be_used_for_least(first, second):
    worse = max(first, second, key=FROM_BEST_TO_WORST.index)
    total = tracked(VALUES, first) + tracked(VALUES, second)
    assert isinstance(total, TrackedModels)
    assert total.origin is worse
    np.testing.assert_array_equal(total, 2 * VALUES)
    product = tracked(VALUES.copy(), first)
    product *= tracked(VALUES, second)
    assert origin_of(product) is worse


@pytest.mark.parametrize(
    "make",
    [
        lambda one, other: np.concatenate([one, other]),
        lambda one, other: np.stack([one, other]),
        lambda one, other: np.where(VALUES > 2, one, other),
        lambda one, other: np.asarray(one),
        lambda one, other: one + tracked(VALUES, None),
    ],
)
def test_what_nobody_keeps_track_of_has_no_origin(make):
    """It is not taken for released, which would be covered by a guarantee."""
    released = tracked(VALUES, RELEASED)
    assert origin_of(make(released, released)) is None


def test_own_models_are_private():
    models = own_models(VALUES)
    origin = origin_of(models)
    assert origin is not None
    assert (origin.status, origin.is_covered) == ("private", False)
    np.testing.assert_array_equal(models, VALUES)


def test_the_models_of_a_run_are_what_its_guarantee_makes_them():
    budgets = [Budget(0.5, 1e-5), Budget(1.0, 1e-5)]
    covered = Guarantee.of(budgets, mechanism="Gaussian noise", accountant="gdp")
    partly = Guarantee.of(budgets, mechanism="Gaussian noise", accountant="gdp", origins=[UNKNOWN])
    origins = [origin_of(run_models(VALUES, "cd", made)) for made in (covered, partly, None)]
    assert origins == [
        Origin("models released by cd", "released", ((0.5, 1.0), (1e-5, 1e-5))),
        Origin("models released by cd, whose guarantee leaves gaps", "unknown", ((0.5, 1.0), (1e-5, 1e-5))),
        Origin("models of cd, made of private data without noise", "private"),
    ]


def test_a_guarantee_covers_what_is_public_or_was_paid_for():
    assert [origin.is_covered for origin in FROM_BEST_TO_WORST] == [True, True, False, False]
    assert UNKNOWN.words == "models from a friend, of unknown origin"
    assert PRIVATE.words == "own models"
