"""Models remember where they came from; nothing that NumPy does makes what is private look released."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import replace
from functools import partial
from itertools import product

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


SLICES = [
    lambda models: models[1:],
    lambda models: models[0],
    lambda models: models[:, :1],
    lambda models: models[None, ..., ::-1],
]
KEEP = [
    *SLICES,
    lambda models: np.mean(models, axis=0),
    lambda models: np.concatenate([models, models], 1),
    lambda models: np.mean(np.stack((models, models)), axis=0),
]
OTHERS = [
    lambda models: models.copy(),
    lambda models: copy.deepcopy(models),
    lambda models: models[[0, 2]],
    lambda models: models[VALUES > 2],
    lambda models: models[np.argmax(models) :],
    lambda models: models.T,
    lambda models: models.astype(np.float32),
    lambda models: 2 * models,
    lambda models: -models,
    lambda models: models + models,
    lambda models: models[:2] @ models[1:],
    lambda models: models + VALUES[0, 0],
    lambda models: models.mean(axis=0),
    lambda models: models.std(axis=0),
    lambda models: np.eye(3) @ models,
    lambda models: np.round(models, 1),
    lambda models: models.round(1),
    lambda models: models.mean(axis=0, out=np.empty(2)),
    lambda models: np.mean(models, axis=0, out=np.empty(2)),
    lambda models: np.add(models, models, out=np.empty((3, 2))),
    lambda models: np.split(models, 3)[0],
    lambda models: np.linalg.svd(models).S,
    lambda models: np.modf(models)[1],
    lambda models: divmod(models, 2)[0],
    lambda models: np.where(VALUES > 2, models, models),
    lambda models: np.add(models, models, where=True),
    lambda models: np.mean(models, axis=0, where=VALUES > 2),
    lambda models: np.add.reduce(models, initial=3.0),
    lambda models: np.full_like(models, 3.0),
    lambda models: np.insert(models, 0, [1.0, 2.0], axis=0),
    lambda models: np.concatenate([models, VALUES]),
]


@pytest.mark.parametrize("make", KEEP)
@pytest.mark.parametrize("origin", FROM_BEST_TO_WORST, ids=lambda origin: origin.status)
def test_slices_means_and_several_together_keep_the_origin(make, origin):
    assert origin_of(make(tracked(VALUES, origin))) is origin


@pytest.mark.parametrize("make", OTHERS)
def test_all_else_is_of_unknown_origin_at_best(make):
    found = [origin_of(make(tracked(VALUES, origin))) for origin in FROM_BEST_TO_WORST]
    assert [one and one.status for one in found] == [None, "unknown", "unknown", "private"]
    assert found[1] is not None
    assert found[1].spent == RELEASED.spent
    assert found[3] is PRIVATE


def test_what_is_computed_can_be_written_to():
    """Others' code works on arrays that it computes: here, NumPy's comparison of two."""
    np.testing.assert_allclose(tracked(VALUES, RELEASED), tracked(VALUES, RELEASED))
    made = tracked(VALUES, RELEASED) - tracked(VALUES, PUBLIC)
    made += 1
    assert (made == 1).all()


def test_numbers_lists_and_plain_arrays_know_no_origin():
    models = tracked(VALUES, PRIVATE)
    for made in (models[0, 0], models.sum(), models.tolist(), np.asarray(models), np.array(models)):
        assert origin_of(made) is None
    for made in (np.mean([models, models], axis=0), np.concatenate(deque([models, models]))):
        assert origin_of(made) is None


def parts_of(made):
    """The arrays in what NumPy returned."""
    if isinstance(made, np.ndarray):
        yield made
    elif isinstance(made, list | tuple):
        for one in made:
            yield from parts_of(one)


def numpy_functions():
    """Those that take arrays, and the ufuncs with their methods; without those for files and documents."""
    for module in (np, np.linalg, np.fft, np.emath):
        for name, function in list(vars(module).items()):
            if isinstance(function, np.ufunc):
                yield from ((f"{name}.{way}", getattr(function, way)) for way in UFUNC_WAYS)
            if hasattr(function, "_implementation") and not name.startswith(("save", "load", "from")):
                yield name, function


UFUNC_WAYS = ["__call__", "reduce", "accumulate", "reduceat", "outer", "at"]


def array_methods():
    """Those of the models, and those of a copy, which may write to it."""
    for name in dir(np.ndarray):
        method = getattr(np.ndarray, name)
        if callable(method) and name not in METHODS_OUTSIDE:
            yield name, method
            yield name, partial(on_a_copy, method)


def on_a_copy(method, models, *more):
    copied = models.copy()
    return [method(copied, *more), copied]


# They write files, or make the object itself.
METHODS_OUTSIDE = ["dump", "tofile", "__new__", "__init__", "__init_subclass__", "__class__", "__setstate__"]

# These methods return plain arrays: the values, or places in them.
WITHOUT_ORIGIN = ["__array__", "nonzero", "searchsorted"]
# Of an array, NumPy asks these for the origin of its rows, and the rows of a vector are numbers.
OF_ROWS = ["stack", "hstack", "vstack", "dstack", "column_stack", "poly", "roots"]


def know_their_origin(name, given, found):
    """Whether results must: NumPy asks all arguments of methods and ufuncs, and the first of functions."""
    if found is array_methods:
        return name not in WITHOUT_ORIGIN
    asked = given if "." in name else given[:1]
    return name not in OF_ROWS and any(isinstance(one, TrackedModels) for one in asked)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("found", [numpy_functions, array_methods])
def test_nothing_in_numpy_makes_own_models_released(found):
    """Every function, method and way of a ufunc, with own models among its first arguments, in any form."""
    released, own = tracked(VALUES.copy(), RELEASED), own_models(VALUES + 10)
    first = own[0].argsort()
    several = [released, own, own[0], own[0, 0], 0, (released, own), own > VALUES, first]
    calls = [given for count in (1, 2, 3) for given in product(several, repeat=count)]
    done = set()
    for name, function in found():
        for given in calls:
            try:
                made = list(parts_of(function(*given)))
            except Exception:
                continue
            done.add(name)
            for array in made:
                origin = origin_of(array)
                assert origin is not None or not know_their_origin(name, given, found), (name, given)
                if array is not released and origin is not None and origin.is_covered:
                    assert all(one is released or isinstance(one, int) for one in given), (name, given)
                    assert not array.flags.writeable, name
        assert (released == VALUES).all(), name
        assert origin_of(released) is RELEASED
    expected = {
        numpy_functions: {"insert", "dot", "where", "append", "choose", "add.__call__", "maximum.outer"},
        array_methods: {"dot", "__getitem__", "__setitem__", "put", "fill", "take", "__iadd__", "clip"},
    }
    assert done >= expected[found]


@pytest.mark.parametrize("origin", FROM_BEST_TO_WORST, ids=lambda origin: origin.status)
def test_what_is_computed_with_an_array_of_unknown_origin_is_unknown_at_best(origin):
    models, other = tracked(VALUES, origin), np.ones_like(VALUES)
    for made in (models + other, other - models, np.maximum(models, other)):
        found = origin_of(made)
        assert ("unknown" if found is None else found.status) == max(
            "unknown", origin.status, key=[one.status for one in FROM_BEST_TO_WORST].index
        )


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
    lambda models, values: np.add.at(models, (0, 1), values[0, 0]),
    lambda models, values: np.add(models[0], values[0], out=models[0]),
    lambda models, values: np.take(values, [0, 1, 2], axis=0, out=models),
]


@pytest.mark.parametrize("write", WAYS_TO_WRITE)
@pytest.mark.parametrize("values", [own_models(VALUES), VALUES], ids=["own", "untracked"])
def test_no_way_of_writing_leaves_models_released(write, values):
    """What is covered cannot be written to; a copy can, and is not covered."""
    for origin in (RELEASED, PUBLIC):
        models = tracked(VALUES.copy(), origin)
        with pytest.raises(ValueError, match="read-only"):
            write(models, values)
        np.testing.assert_array_equal(models, VALUES)
        copied = models.copy()
        write(copied, values)
        for one in (copied, copied[1:], copied.copy()):
            found = origin_of(one)
            assert found is None or not found.is_covered
            assert origin.spent == (found and found.spent)


def adds(models, values):
    models += values


def adds_to_a_row(models, values):
    models[0] += values[0]


WAYS_TO_WRITE_OWN_MODELS = [
    adds,
    adds_to_a_row,
    writes_through_a_slice,
    lambda models, values: models.__setitem__(slice(None), values),
    lambda models, values: models.__setitem__(slice(None), [values[0], values[1], values[2]]),
    lambda models, values: models.__setitem__(values > 12, 0.0),
    lambda models, values: models.__setitem__(..., values.round(1)),
    lambda models, values: np.add(VALUES, values, out=models),
    lambda models, values: np.modf(values, out=(models, np.empty((3, 2)))),
    lambda models, values: np.add.at(models, 0, values[0]),
    lambda models, values: np.mean(values, axis=0, out=models[0]),
    lambda models, values: values.mean(axis=0, out=models[0]),
    lambda models, values: np.take(values, [0, 1, 2], 0, models),
    lambda models, values: np.copyto(dst=models, src=values),
    lambda models, values: np.copyto(models[1:], values[1:]),
    lambda models, values: np.putmask(models, VALUES > 2, values),
    lambda models, values: np.put(models, [0, 1], values),
]


@pytest.mark.parametrize("write", WAYS_TO_WRITE_OWN_MODELS)
@pytest.mark.parametrize("origin", [RELEASED, PUBLIC], ids=lambda origin: origin.status)
def test_a_copy_that_own_models_are_written_into_is_private(write, origin):
    copied, same = tracked(VALUES, origin).copy(), np.ones((3, 2))
    for made in (copied, copied[1:], copied.copy()):
        assert (found := origin_of(made)) is None or found.status == "unknown"
    values = own_models(VALUES + 10)
    write(copied, values)
    for made in (copied, copied[1:], copied.copy()):
        found = origin_of(made)
        assert found is not None
        assert (found.status, found.spent) == ("private", origin.spent)
    same += values
    assert origin_of(same) == origin_of(values), "a plain array becomes one that knows where it came from"


@pytest.mark.parametrize("make", [lambda models: models, np.asarray, *KEEP])
def test_nobody_can_make_released_models_writable(make):
    models = make(tracked(VALUES.copy(), RELEASED))
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        models.flags.writeable = True
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        models.setflags(write=True)


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
    for made in (first + second, np.maximum(first, second), first + second - first):
        found = origin_of(made)
        assert found is not None
        assert (found.status, found.spent) == ("unknown", ((6.0, 6.0), (1e-6, 1e-5)))
    for made in (np.stack([first, second]), np.concatenate([first, second, first[1:]])):
        found = origin_of(made)
        assert found is not None
        assert (found.status, found.spent) == ("released", ((6.0, 6.0), (1e-6, 1e-5)))
        assert found.declared == ("others",)
        assert found.what == "models released by cd, mixed with models released by lowpass"
        budgets = [Budget(1.0, 1e-5)]
        after = Guarantee.of(budgets, mechanism="Gaussian noise", accountant="gdp", origins=[found])
        assert after.epsilon == (7.0, 7.0)
        assert after.declared == ("others",)


def test_what_is_mixed_remembers_that_a_part_was_drawn_by_a_simulation():
    made = Guarantee.of(Budget(1.0, 1e-5), mechanism="Gaussian noise", accountant="gdp")
    simulated, secure = (run_models(VALUES, "cd", one) for one in (made, replace(made, simulated=False)))
    for made, expected in ((secure + secure, False), (secure + simulated, True)):
        origin = origin_of(made)
        assert origin is not None
        assert origin.simulated is expected


def test_two_equal_releases_are_two_releases():
    again = Origin(RELEASED.what, RELEASED.status, RELEASED.spent)
    total = origin_of(np.stack([tracked(VALUES, RELEASED), tracked(VALUES, again)]))
    assert total is not None
    assert total.spent == ((2.0, 2.0), (0.0, 0.0))


@pytest.mark.parametrize("first", FROM_BEST_TO_WORST, ids=lambda origin: origin.status)
@pytest.mark.parametrize("second", FROM_BEST_TO_WORST, ids=lambda origin: origin.status)
def test_several_have_the_origin_that_can_be_used_for_least(first, second):
    worse = max(first, second, key=FROM_BEST_TO_WORST.index)
    both = np.concatenate([tracked(VALUES, first), tracked(VALUES, second)])
    assert isinstance(both, TrackedModels)
    assert both.origin is not None
    assert both.origin.status == worse.status
    assert both.origin.spent == (RELEASED.spent if RELEASED in (first, second) else None)
    np.testing.assert_array_equal(both[3:], VALUES)


def test_a_public_array_with_one_that_nobody_keeps_track_of_has_no_origin():
    assert origin_of(tracked(VALUES, PUBLIC) + tracked(VALUES, None)) is None


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
    spent = ((0.5, 1.0), (1e-5, 1e-5))
    assert origins == [
        Origin("models released by cd", "released", spent, simulated=True),
        Origin("models released by cd, whose guarantee leaves gaps", "unknown", spent, simulated=True),
        Origin("models of cd, made of private data without noise", "private"),
    ]


def test_a_guarantee_covers_what_is_public_or_was_paid_for():
    assert [origin.is_covered for origin in FROM_BEST_TO_WORST] == [True, True, False, False]
    assert UNKNOWN.words == "models from a friend, of unknown origin"
    assert PRIVATE.words == "own models"
