"""Many small positive definite systems, one after the other; compiled, since NumPy's calls cost more."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from flockwise.code_cache import compiled


@compiled(nogil=True)
def whiten(systems: NDArray[np.float64]) -> float:
    """[A | B] of each system, in place, to [U | U⁻ᵀB] with A = UᵀU; ½ log det A of all, NaN if one has no U.

    The entries below the diagonal of U keep what elimination left there.
    """
    n, p, _ = systems.shape
    height = 0.0
    for k in range(n):
        system = systems[k]
        for i in range(p):
            if not system[i, i] > 0.0:
                return np.nan
            pivot = math.sqrt(system[i, i])
            height += math.log(pivot)
            for c in range(i, system.shape[1]):
                system[i, c] /= pivot
            for j in range(i + 1, p):
                factor = system[i, j]
                for c in range(j, system.shape[1]):
                    system[j, c] -= factor * system[i, c]
    return height
