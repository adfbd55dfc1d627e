"""Sums over several rows in vector registers, against NumPy in float64."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from flockwise.engine.cpu import lanes
from flockwise.engine.cpu.kernels import ROWS_AT_ONCE, add_rows, score_rows

ROOT = Path(__file__).resolve().parents[3]


@njit
def scores_of(features, start, stop, model, scores):
    score_rows(features, start, stop, model, scores, 0, 0)


@njit
def add_up(features, start, stop, slopes, gradient):
    add_rows(features, start, stop, slopes, gradient, 0, 0)


def check(dtype, size, rows, seed):
    """Both passes over `rows` rows in the middle of an array whose other rows are not numbers."""
    random = np.random.default_rng(seed)
    features = np.full((rows + 2, size), np.nan, dtype)
    features[1:-1] = random.standard_normal((rows, size))
    model = random.standard_normal(size).astype(dtype)
    room = np.full(ROWS_AT_ONCE + 1, np.nan, dtype)
    scores_of(features, 1, rows + 1, model, room)
    own = features[1:-1].astype(np.float64)
    # Rounding errors of a sum in any order: a few last digits of its largest terms each.
    tolerance = 4 * size * np.finfo(dtype).eps * np.abs(own).max() * np.abs(model).max()
    np.testing.assert_allclose(room[:rows], own @ model.astype(np.float64), rtol=0, atol=tolerance)
    assert np.isnan(room[-1]), "written beyond the room for scores"

    slopes = np.zeros(ROWS_AT_ONCE, dtype)
    slopes[:rows] = random.standard_normal(rows)
    before = random.standard_normal(size + 1).astype(dtype)
    gradient = before.copy()
    add_up(features, 1, rows + 1, slopes, gradient[:size])
    wanted = before[:size] + slopes[:rows].astype(np.float64) @ own
    tolerance = 4 * (rows + 1) * np.finfo(dtype).eps * (np.abs(own).max() * np.abs(slopes).max() + 4)
    np.testing.assert_allclose(gradient[:size], wanted, rtol=0, atol=tolerance)
    assert gradient[size] == before[size], "written beyond the gradient"


@given(
    st.sampled_from([np.float32, np.float64]),
    st.integers(1, 140),
    st.integers(1, ROWS_AT_ONCE),
    st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_rows_are_scored_and_added_up_and_nothing_else_is_read(dtype, size, rows, seed):
    check(dtype, size, rows, seed)


def every_size():
    for dtype in (np.float32, np.float64):
        for size in (1, 2, 3, 4, 5, 8, 15, 16, 17, 100):
            for rows in (1, 7, 8, 9, 16):
                check(dtype, size, rows, seed=size * rows)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_processors_with_shorter_or_longer_vectors_find_the_same(width):
    # The width is set in the module before the kernels import it.
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location({lanes.__name__!r}, {lanes.__file__!r})\n"
        "changed = sys.modules[spec.name] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(changed)\n"
        f"changed.VECTOR_BYTES = {width}\n"
        "from tests.unit.objective.test_lanes import every_size\n"
        "from flockwise.engine.cpu import kernels\n"
        f"assert kernels.VECTOR_BYTES == {width}\n"
        "every_size()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_width_is_one_that_the_compiler_knows():
    assert lanes.VECTOR_BYTES in (16, 32, 64)
