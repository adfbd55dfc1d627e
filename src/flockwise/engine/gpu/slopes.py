"""Slopes φ'(s, y) of the losses in Triton, by the class of the loss. A loss of your own adds a line here.

A slope takes blocks of scores and targets that fit each other, and the loss's parameter. With several
scores the last axis of the block holds them; it may be longer than they are many.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from flockwise.errors import SimulationError
from flockwise.objective import CappedLogistic, Huber, Logistic, Loss, Quadratic, Softmax
from flockwise.objective.losses import loss_name


@triton.jit
def logistic(score, target, parameter):
    return -target / (1 + tl.exp(target * score))


@triton.jit
def capped_logistic(score, target, parameter):
    return -target * tl.minimum(1 / (1 + tl.exp(target * score)), 0.5)


@triton.jit
def quadratic(score, target, parameter):
    return 2 * (score - target)


@triton.jit
def huber(score, target, width):
    return 2 * tl.minimum(tl.maximum(score - target, -width), width)


@triton.jit
def softmax(scores, target, classes):
    column = tl.arange(0, scores.shape[1])[None, :]
    is_class = column < classes
    top = tl.max(tl.where(is_class, scores, float("-inf")), axis=1)
    power = tl.where(is_class, tl.exp(scores - top[:, None]), 0.0)
    return power / tl.sum(power, axis=1)[:, None] - (column == target.to(tl.int32)).to(scores.dtype)


SLOPES: dict[type[Any], Any] = {
    Logistic: logistic,
    CappedLogistic: capped_logistic,
    Quadratic: quadratic,
    Huber: huber,
    Softmax: softmax,
}


def slope_of(loss: Loss) -> tuple[Any, float | int]:
    """A loss's slope, and its one parameter (0 if it has none)."""
    if type(loss) not in SLOPES:
        known = ", ".join(loss_name(kind) for kind in SLOPES)
        raise SimulationError(
            f"engine 'gpu' has no slope for loss {loss_name(loss)!r}, only for {known}; use engine='cpu'"
        )
    fields: tuple[Any, ...] = tuple(loss)  # pyright: ignore[reportArgumentType]
    return SLOPES[type(loss)], fields[0] if fields else 0
