"""The low-pass filter: a polynomial of P = W·D⁻¹ that lets pass what varies slowly along the graph.

One hop multiplies by P, which needs nothing but the neighbors' vectors. Chebyshev's recursion
T_q = 2P·T_(q−1) − T_(q−2) turns hops into polynomials; Jackson's weights sum them to a peak at the
eigenvalue 1, of a width of about π/degree, that is nowhere negative (Weiße et al. 2006, "The kernel
polynomial method"). Agents filter what they know times its precision, and the precision itself: as in
push-sum gossip, the quotient is a mean in which each counts as much as it is precise.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

# Nobody smooths over more hops than this.
LONGEST: Final = 2048


def _degrees() -> tuple[int, ...]:
    """2, 3, 4, 6, 8, 11, 16, …: each about √2 times the one before."""
    steps = int(2 * np.log2(LONGEST / 2))
    return tuple(round(2 * 2 ** (step / 2)) for step in range(steps + 1))


DEGREES: Final = _degrees()

# Degrees are judged together when the hops have doubled: after 8, 16, 32, …
FIRST_DEGREES: Final = 5
DEGREES_AT_ONCE: Final = 2


def next_degrees(judged: int) -> tuple[int, ...]:
    """The degrees to judge next, when so many have been judged."""
    return DEGREES[judged : judged + (DEGREES_AT_ONCE if judged else FIRST_DEGREES)]


def hops_to_judge(count: int) -> int:
    """How many hops are done to judge the first so many degrees."""
    judged = 0
    while judged < count:
        judged += len(next_degrees(judged))
    return DEGREES[judged - 1]


def jackson_weights(degree: int) -> NDArray[np.float64]:
    """c_0 … c_degree of Σ c_q T_q, summing to 1: Jackson's kernel at the eigenvalue 1."""
    size = degree + 2
    order = np.arange(degree + 1)
    angle = np.pi / size
    damping = ((size - order) * np.cos(angle * order) + np.sin(angle * order) / np.tan(angle)) / size
    weights = np.where(order == 0, damping, 2 * damping)
    return weights / weights.sum()
