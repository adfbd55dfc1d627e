"""The low-pass filter: a polynomial of a hop, which lets pass what varies slowly along the graph.

One hop multiplies by P = W·D⁻¹, which needs nothing but the neighbors' vectors. Chebyshev's recursion
T_q = 2P·T_(q−1) − T_(q−2) turns hops into polynomials. Their sum here is a step: with an eigenvalue of P
written cos θ, it keeps θ below CUTOFF/degree and drops what is beyond, within a width of about π/degree.
Jackson's damping makes it a convolution of the step with a positive kernel, so it is nowhere negative
(Weiße et al. 2006, "The kernel polynomial method"). Agents filter what they know times its precision, and the
precision itself: as in push-sum gossip, the quotient is a mean in which each counts as much as it is precise.

W is not that of the graph: both agents' degrees are divided out of each edge first. Then slow patterns follow
how agents resemble each other and not how densely they lie (Coifman and Lafon 2006, "Diffusion maps", α = 1).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

# Chosen on generated instances of the paper's task with seeds from one million on; from 3 to 6 alike.
CUTOFF: Final = 4.0
# Nobody smooths over more hops than this.
LONGEST: Final = 2048


def _degrees() -> tuple[int, ...]:
    """4, 6, 8, 11, 16, …: each about √2 times the one before; fewer than 4 hops make no step."""
    steps = int(2 * np.log2(LONGEST / 4))
    return tuple(round(4 * 2 ** (step / 2)) for step in range(steps + 1))


DEGREES: Final = _degrees()

# Degrees are judged together when the hops have doubled: after 8, 16, 32, …
FIRST_DEGREES: Final = 3
DEGREES_AT_ONCE: Final = 2


def next_degrees(judged: int) -> tuple[int, ...]:
    """The degrees to judge next, when so many have been judged."""
    return DEGREES[judged : judged + (DEGREES_AT_ONCE if judged else FIRST_DEGREES)]


def batches(hops: int) -> list[tuple[int, ...]]:
    """The degrees that are judged together, in order, up to so many hops."""
    found: list[tuple[int, ...]] = []
    while (judged := sum(len(degrees) for degrees in found)) < len(DEGREES) and next_degrees(judged)[
        -1
    ] <= hops:
        found.append(next_degrees(judged))
    return found


def hops_to_judge(count: int) -> int:
    """How many hops are done to judge the first so many degrees."""
    judged = 0
    while judged < count:
        judged += len(next_degrees(judged))
    return DEGREES[judged - 1]


def step_weights(degree: int) -> NDArray[np.float64]:
    """c_0 … c_degree of Σ c_q T_q, summing to 1: a step at the angle CUTOFF/degree, damped by Jackson."""
    size = degree + 2
    order = np.arange(degree + 1)
    angle = np.pi / size
    damping = ((size - order) * np.cos(angle * order) + np.sin(angle * order) / np.tan(angle)) / size
    # sin(qθ)/(qθ), which at q = 0 is 1: the step's own coefficients, up to a factor.
    step = np.sinc(order * CUTOFF / degree / np.pi)
    weights = np.where(order == 0, 1.0, 2.0) * damping * step
    return weights / weights.sum()
