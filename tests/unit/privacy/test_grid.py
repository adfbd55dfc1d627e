"""Clipping and rounding keep every bound as computed, not only on paper."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flockwise.errors import PrivacyError
from flockwise.privacy.grid import (
    check_grid,
    clip_rows,
    grid_for,
    round_to_grid,
    rounded_sensitivity,
    sum_on_grid,
)

finite_floats = st.floats(allow_nan=False, allow_infinity=False)
rows = st.tuples(st.integers(1, 4), st.integers(1, 6)).flatmap(
    lambda shape: arrays(float, shape, elements=finite_floats)
)
bounds = st.floats(1e-100, 1e100)
norms = st.sampled_from(["l1", "l2"])


def exact_length(row, norm):
    """L1 norm, or the square of the L2 norm, without any rounding."""
    exact = [Fraction(float(value)) for value in row]
    return sum(map(abs, exact)) if norm == "l1" else sum(value * value for value in exact)


def exact_bound(bound, norm):
    return Fraction(bound) if norm == "l1" else Fraction(bound) ** 2


@given(rows, bounds, norms)
def test_no_clipped_row_is_longer_than_the_bound_in_exact_arithmetic(points, bound, norm):
    for row in clip_rows(points, bound, norm):
        assert exact_length(row, norm) <= exact_bound(bound, norm)


@given(rows, bounds, norms)
def test_short_rows_stay_and_long_ones_keep_their_direction(points, bound, norm):
    clipped = clip_rows(points, bound, norm)
    for before, after in zip(points, clipped, strict=True):
        length = exact_length(before, norm)
        if length <= exact_bound(bound, norm) * Fraction(999_999, 1_000_000):
            np.testing.assert_array_equal(after, before)
        elif length > exact_bound(bound, norm):
            assert exact_length(after, norm) >= exact_bound(bound, norm) * Fraction(999_999, 1_000_000)
            np.testing.assert_allclose(
                after / np.abs(after).max(), before / np.abs(before).max(), rtol=0, atol=1e-12
            )


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_clipping_takes_away_no_more_than_rounding(norm):
    points = np.random.default_rng(1).normal(size=(200, 100)) * 50
    order = 1 if norm == "l1" else 2
    np.testing.assert_allclose(np.linalg.norm(clip_rows(points, 3.0, norm), order, axis=1), 3.0, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_without_being_shown(bad):
    points = np.array([[1234.5, 0.0], [bad, 987.6]])
    for refuse in (lambda: clip_rows(points, 1.0, "l2"), lambda: round_to_grid(points[1], 0.5)):
        with pytest.raises(PrivacyError, match="must be finite") as caught:
            refuse()
        shown = str(caught.value)
        assert not any(text in shown for text in ("1234", "987", "nan", "inf,", "-inf"))


@given(rows, bounds, norms)
def test_replacing_a_row_moves_the_sum_by_at_most_the_sensitivity_in_steps(points, bound, norm):
    """Two data sets that differ in one row, in exact arithmetic: ‖sum − sum'‖ ≤ 2·bound/(m·grid)."""
    samples = len(points)
    grid = grid_for(2 * bound / samples, samples)
    other = points.copy()
    other[0] = -points[-1][::-1]
    moved = sum_on_grid(points, bound, norm, grid) - sum_on_grid(other, bound, norm, grid)
    steps = Fraction(2) * Fraction(bound) / (samples * Fraction(grid))
    limit = steps if norm == "l1" else steps**2
    exact = [int(value) for value in moved]
    assert (sum(map(abs, exact)) if norm == "l1" else sum(value * value for value in exact)) <= limit


def test_opposite_points_reach_the_sensitivity():
    """The bound of the test above is tight: noise could not be smaller."""
    grid = grid_for(1.0, 2)
    one, other = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[-1.0, 0.0], [0.0, 1.0]])
    moved = np.linalg.norm(sum_on_grid(one, 1.0, "l2", grid) - sum_on_grid(other, 1.0, "l2", grid)) * grid
    assert 1.0 - 1e-5 < moved <= 1.0


def test_the_grid_costs_no_accuracy():
    """The mean on the grid is within 2⁻²⁰ of the sensitivity of the true one."""
    points = np.random.default_rng(0).normal(size=(37, 20))
    sensitivity = 2 * 2.5 / 37
    grid = grid_for(sensitivity, 37)
    mean = sum_on_grid(points, 2.5, "l2", grid) * grid
    np.testing.assert_allclose(
        mean, clip_rows(points, 2.5, "l2").mean(axis=0), atol=sensitivity * 2**-20, rtol=0
    )


@given(arrays(float, 5, elements=st.floats(-100, 100)), arrays(float, 5, elements=st.floats(-1, 1)), norms)
def test_rounding_adds_at_most_what_is_added_to_the_sensitivity(vector, move, norm):
    order = 1 if norm == "l1" else 2
    sensitivity = max(float(np.linalg.norm(move, order)), 1e-3)
    grid = 0.25
    rounded = round_to_grid(vector + move, grid) - round_to_grid(vector, grid)
    assert np.linalg.norm(rounded * grid, order) <= rounded_sensitivity(sensitivity, 5, grid, norm) * (
        1 + 1e-12
    )


def test_rounding_can_add_that_much():
    grid = 1.0
    rounded = round_to_grid([0.5 + 2**-20] * 4, grid) - round_to_grid([0.5 - 2**-20] * 4, grid)
    moved = 2**-19 * 4
    assert rounded.tolist() == [1, 1, 1, 1]
    assert rounded_sensitivity(moved, 4, grid, "l1") - moved == 4
    assert rounded_sensitivity(moved, 4, grid, "l2") - moved == 2


def test_a_vector_beyond_the_integers_ends_there():
    assert round_to_grid([1e300, -1e300, 3.0], 1.0).tolist() == [2**61, -(2**61), 3]


def test_a_sum_that_could_overflow_is_refused_from_public_values_alone():
    with pytest.raises(PrivacyError, match=r"overflow.*grid_for"):
        sum_on_grid(np.zeros((3, 2)), 1e10, "l2", 2.0**-40)


@pytest.mark.parametrize("scale", [1e-30, 0.3, 1.0, 7e20])
@pytest.mark.parametrize("size", [1, 3, 100_000])
def test_grids_are_powers_of_two_that_fit(scale, size):
    grid = grid_for(scale, size)
    check_grid(grid)
    assert grid * size / scale * (1 + 1e-12) >= 2.0**-21
    assert grid * size / scale <= 2.0**-20 * (1 + 1e-12)
    for norm in ("l1", "l2"):
        added = rounded_sensitivity(scale, size, grid, norm) / scale - 1
        assert added <= 2.0**-20 * (1 + 1e-9)


@pytest.mark.parametrize("grid", [0.3, 0.0, -0.5, np.inf, np.nan, 2.0**-1000, 1])
def test_other_steps_are_refused(grid):
    with pytest.raises(PrivacyError, match="power of two"):
        check_grid(grid)


@pytest.mark.parametrize("bound", [0.0, -1.0, np.inf, np.nan])
def test_a_bound_has_to_bound(bound):
    with pytest.raises(PrivacyError, match="bound must be positive"):
        clip_rows(np.ones((1, 1)), bound, "l2")


@pytest.mark.parametrize("points", [np.ones(3), np.ones((0, 3)), np.ones((3, 0)), np.ones((1, 1, 1))])
def test_samples_that_are_not_a_matrix_of_rows_are_refused(points):
    with pytest.raises(PrivacyError, match=r"points must (have 2 dimension|not be empty)"):
        clip_rows(points, 1.0, "l1")
