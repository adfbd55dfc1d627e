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
    models *= 2
    assert models.origin is RELEASED


def writes_through_a_slice(models, values):
    row = models[0]
    row[:] = values[0]


def writes_one_number(models, values):
    models[0, 1] = values[0, 1]


WAYS_TO_WRITE = [
    writes_through_a_slice,
    writes_one_number,
    lambda models, values: np.copyto(models, values),
    lambda models, values: np.copyto(dst=models, src=values),
    lambda models, values: np.copyto(models[1:], values[1:]),
    lambda models, values: np.putmask(models, VALUES > 2, values),
    lambda models, values: np.put(models, [0, 1], values),
    lambda models, values: models.fill(values[0, 0]),
    lambda models, values: np.add.at(models, 0, values[0]),
    lambda models, values: np.add(models[0], values[0], out=models[0]),
    lambda models, values: np.take(values, [0, 1, 2], axis=0, out=models),
]


@pytest.mark.parametrize("write", WAYS_TO_WRITE)
@pytest.mark.parametrize("values", [own_models(VALUES), VALUES], ids=["own", "untracked"])
def test_no_way_of_writing_leaves_models_released(write, values):
    models = tracked(VALUES.copy(), RELEASED)
    other = models[1:]
    write(models, values)
    for one in (models, models.copy(), other):
        found = origin_of(one)
        assert found is not None
        assert not found.is_covered
        assert found.spent == RELEASED.spent


@pytest.mark.parametrize("write", WAYS_TO_WRITE)
def test_the_models_of_a_run_are_read_only_and_a_copy_is_not(write):
    guarantee = Guarantee.of([Budget(1.0, 1e-5)], mechanism="Gaussian noise", accountant="gdp")
    for models in (run_models(VALUES.copy(), "cd", guarantee), own_models(VALUES.copy())):
        before = models.origin
        with pytest.raises(ValueError, match="read-only"):
            write(models, VALUES)
        assert models.origin is before
        copied = models.copy()
        copied[0] = 1.0
        assert models.origin is before


def test_what_is_mixed_of_several_releases_cost_all_of_them():
    others = Origin("models released by lowpass", "released", ((5.0, 5.0), (1e-6, 1e-5)), ("others",))
    first, second = tracked(VALUES, RELEASED), tracked(VALUES, others)
    written = first.copy()
    written[0] = second[0]
    for made in ((first + second) / 2, np.maximum(first, second), written, first + second - first):
        found = origin_of(made)
        assert found is not None
        assert (found.status, found.spent) == ("released", ((6.0, 6.0), (1e-6, 1e-5)))
        assert found.declared == ("others",)
        assert found.what == "models released by cd, mixed with models released by lowpass"
        budgets = [Budget(1.0, 1e-5)]
        after = Guarantee.of(budgets, mechanism="Gaussian noise", accountant="gdp", origins=[found])
        assert after.epsilon == (7.0, 7.0)
        assert after.declared == ("others",)


def test_two_equal_releases_are_two_releases():
    again = Origin(RELEASED.what, RELEASED.status, RELEASED.spent)
    total = origin_of(tracked(VALUES, RELEASED) + tracked(VALUES, again))
    assert total is not None
    assert total.spent == ((2.0, 2.0), (0.0, 0.0))


@pytest.mark.parametrize("first", FROM_BEST_TO_WORST, ids=lambda origin: origin.status)
@pytest.mark.parametrize("second", FROM_BEST_TO_WORST, ids=lambda origin: origin.status)
def test_a_sum_has_the_origin_that_can_be_used_for_least(first, second):
    worse = max(first, second, key=FROM_BEST_TO_WORST.index)
    total = tracked(VALUES, first) + tracked(VALUES, second)
    assert isinstance(total, TrackedModels)
    assert total.origin is not None
    assert total.origin.status == worse.status
    assert total.origin.spent == (RELEASED.spent if RELEASED in (first, second) else None)
    np.testing.assert_array_equal(total, 2 * VALUES)
    product = tracked(VALUES.copy(), first)
    product *= tracked(VALUES, second)
    assert product.origin is not None
    assert product.origin.status == worse.status


@pytest.mark.parametrize(
    "make",
    [
        lambda one, other: np.concatenate([one, other]),
        lambda one, other: np.stack([one, other]),
        lambda one, other: np.where(VALUES > 2, one, other),
        lambda one, other: np.asarray(one),
        lambda one, other: tracked(VALUES, PUBLIC) + tracked(VALUES, None),
    ],
)
def test_what_nobody_keeps_track_of_has_no_origin(make):
    """It is not taken for released, which would be covered by a guarantee."""
    released = tracked(VALUES, RELEASED)
    assert origin_of(make(released, released)) is None


def test_a_release_with_an_array_that_nobody_keeps_track_of_still_cost_what_it_cost():
    mixed = origin_of(tracked(VALUES, RELEASED) + VALUES)
    assert mixed is not None
    assert (mixed.status, mixed.spent) == ("unknown", RELEASED.spent)
    assert mixed.words == "models released by cd, mixed with an array, of unknown origin"


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
