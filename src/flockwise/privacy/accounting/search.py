"""Roots of monotone functions, ending on the side where a budget is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np


def root_on_safe_side(
    excess: Callable[[float], float], safe: float, unsafe: float, precision: float
) -> float:
    """A point next to the root at which excess ≤ 0, where excess(safe) ≤ 0 < excess(unsafe).

    Neither is negative.
    precision: the relative distance to the root, at most.
    """
    # Slow to import, and of no use to someone who only reads a plan.
    from scipy.optimize import brentq

    low, high = sorted((safe, unsafe))
    tolerance = np.float64(max(precision, 1e-15))
    root = cast(float, brentq(excess, low, high, xtol=precision * max(low, 1e-300), rtol=tolerance))
    step = precision * root
    # Brent's method may end on either side, and rounding may make the function uneven at the last digits.
    while excess(root) > 0:
        root = max(root - step, safe) if safe < unsafe else min(root + step, safe)
        step *= 2
    return root
