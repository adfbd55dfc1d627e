"""How large the slope of a sample may be, so that its gradient φ'·x keeps within a bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.mechanisms import Norm

ROWS_AT_ONCE = 1 << 16


def slope_bounds(features: NDArray[Any], clip: float, norm: Norm) -> NDArray[Any]:
    """clip/‖x‖ for each row, less what rounding may add; 0 for a row of zeros, which has no gradient."""
    lengths = np.empty(len(features))
    for start in range(0, len(features), ROWS_AT_ONCE):
        rows = features[start : start + ROWS_AT_ONCE].astype(np.float64)
        lengths[start : start + ROWS_AT_ONCE] = np.linalg.norm(rows, ord=1 if norm == "l1" else 2, axis=1)
    rounding = 2 * (features.shape[1] + 8) * float(np.finfo(features.dtype).eps)
    bounds = np.zeros_like(lengths)
    np.divide(clip * (1 - rounding), lengths, out=bounds, where=lengths > 0)
    return np.minimum(bounds, np.finfo(features.dtype).max).astype(features.dtype)
