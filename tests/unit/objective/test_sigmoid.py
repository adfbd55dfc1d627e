"""The compiled sigmoid against the library's exponential."""

import numpy as np
import pytest
from numba import njit

import flockwise.objective.compiled  # noqa: F401 - what the kernels compile for it
from flockwise.objective.losses import sigmoid


@njit
def compiled(values, out):
    for k in range(values.shape[0]):
        out[k] = sigmoid(values[k])


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 4e-7), (np.float64, 2e-14)])
def test_the_compiled_form_equals_the_plain_one(dtype, tolerance):
    values = np.concatenate([np.linspace(-60, 60, 100_001), [0.0, 1e-30, -1e-30]]).astype(dtype)
    out = np.empty_like(values)
    compiled(values, out)
    expected = np.array([sigmoid(float(value)) for value in values])
    np.testing.assert_allclose(out, expected, rtol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes_stay_finite_and_nan_stays_nan(dtype):
    out = np.empty(5, dtype)
    compiled(np.array([-1e30, 1e30, -np.inf, np.inf, np.nan], dtype), out)
    assert np.isfinite(out[:4]).all()
    assert out[0] <= 1e-37
    assert out[1] == out[3] == 1
    assert np.isnan(out[4])
