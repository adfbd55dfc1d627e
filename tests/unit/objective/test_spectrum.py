"""λ_max(XᵀX/m), against LAPACK."""

from __future__ import annotations

import numpy as np
import pytest

from flockwise.objective.spectrum import largest_eigenvalue, largest_gram_eigenvalues

ROUNDING = 1e-13


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_shape_of_data_agrees_with_singular_values(dtype):
    rng = np.random.default_rng(1)
    counts = [1, 2, 7, 8, 9, 40, 0, 3]
    offsets = np.concatenate(([0], np.cumsum(counts)))
    features = rng.standard_normal((offsets[-1], 8)).astype(dtype)
    features[offsets[5] : offsets[6]] = features[offsets[5]]  # rank one
    found = largest_gram_eigenvalues(features, offsets)
    for agent, count in enumerate(counts):
        rows = features[offsets[agent] : offsets[agent + 1]].astype(np.float64)
        expected = np.linalg.norm(rows, ord=2) ** 2 / count if count else 0.0
        assert found[agent] == pytest.approx(expected, rel=ROUNDING, abs=0)


def test_samples_that_are_all_zero_have_no_curvature():
    assert largest_gram_eigenvalues(np.zeros((4, 3)), np.array([0, 4])).tolist() == [0.0]


@pytest.mark.parametrize(
    "spectrum",
    [
        np.array([1.0, 1.0, 1.0, 1.0]),
        np.array([1.0, 1.0 + 1e-12, 1.0 - 1e-12, 0.5]),  # where a power iteration would stall below
        np.array([1e12, 1.0, 1e-12, 0.0]),
        np.array([3.0]),
    ],
)
def test_the_largest_of_close_and_of_scattered_eigenvalues_is_found(spectrum):
    basis, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((len(spectrum), len(spectrum))))
    matrix = basis @ np.diag(spectrum) @ basis.T
    assert largest_eigenvalue(matrix) == pytest.approx(spectrum.max(), rel=ROUNDING)
