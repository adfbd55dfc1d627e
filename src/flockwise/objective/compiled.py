"""How compiled code calls a loss: the methods of the loss's own class, as they are written.

The sigmoid is written out as arithmetic alone. A call of the library's exp handles one number at a time;
without calls and branches the compiler computes the slopes of many samples at once.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload, register_jitable
from numpy.typing import NDArray

from flockwise.objective.losses import sample_slopes, sample_value, sigmoid

# A kernel calls these functions; the overloads beneath compile the methods of the loss's own class.


def loss_value(loss: Any, score: float, target: float) -> float:
    return loss.value(score, target)


def loss_slope(loss: Any, score: float, target: float) -> float:
    return loss.slope(score, target)


def loss_value_of_scores(loss: Any, scores: NDArray[Any], target: float) -> float:
    return loss.value_of_scores(scores, target)


def loss_slopes(loss: Any, scores: NDArray[Any], target: float, out: NDArray[Any]) -> None:
    loss.slopes(scores, target, out)


def _method_of(loss_type: types.Type, name: str) -> Any:
    """The method of the loss's class as something numba can call: a copy without annotations."""
    function = getattr(getattr(loss_type, "instance_class", None), name)
    return register_jitable(FunctionType(function.__code__, function.__globals__, name))


@overload(loss_value)
def _compile_value(loss, score, target):
    method = _method_of(loss, "value")
    return lambda loss, score, target: method(loss, score, target)


@overload(loss_slope)
def _compile_slope(loss, score, target):
    method = _method_of(loss, "slope")
    return lambda loss, score, target: method(loss, score, target)


@overload(loss_value_of_scores)
def _compile_value_of_scores(loss, scores, target):
    method = _method_of(loss, "value_of_scores")
    return lambda loss, scores, target: method(loss, scores, target)


@overload(loss_slopes)
def _compile_slopes(loss, scores, target, out):
    method = _method_of(loss, "slopes")
    return lambda loss, scores, target, out: method(loss, scores, target, out)


@overload(sample_value)
def _compile_sample_value(loss, scores, target):
    if hasattr(loss.instance_class, "value"):
        return lambda loss, scores, target: loss_value(loss, scores[0], target)
    return lambda loss, scores, target: loss_value_of_scores(loss, scores, target)


@overload(sample_slopes)
def _compile_sample_slopes(loss, scores, target, out):
    if hasattr(loss.instance_class, "slope"):

        def one_slope(loss, scores, target, out):
            out[0] = loss_slope(loss, scores[0], target)

        return one_slope
    return lambda loss, scores, target, out: loss_slopes(loss, scores, target, out)


class _Format(NamedTuple):
    """A floating-point type: its widths in bits, and how far and how finely exp is computed in it."""

    kind: type
    bits: int
    mantissa: int
    largest: float
    terms: int


_FORMATS = {
    types.float32: _Format(np.float32, 32, 23, 87.0, 7),
    types.float64: _Format(np.float64, 64, 52, 708.0, 12),
}


@intrinsic
def _power_of_two(typing_context, shifted):
    """2ᵏ from a number whose last bits are the integer k: they move to where the exponent is stored."""

    def generate(context, builder, signature, arguments):
        form = _FORMATS[signature.args[0]]
        word = ir.IntType(form.bits)
        exponent = builder.shl(builder.bitcast(arguments[0], word), word(form.mantissa))
        one = word(int(form.kind(1).view(f"i{form.bits // 8}")))
        return builder.bitcast(builder.add(exponent, one), arguments[0].type)

    return shifted(shifted), generate


# No reordering: adding and taking away `shift` is what rounds. A check for division by zero would branch.
@overload(sigmoid, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
def _compile_sigmoid(x):
    if x not in _FORMATS:
        return None
    form = _FORMATS[x]
    kind, one, largest = form.kind, form.kind(1), form.kind(form.largest)
    # Numbers of this size have no digits after the point.
    shift = kind(1.5 * 2**form.mantissa)
    log2, per_log2 = kind(math.log(2)), kind(1 / math.log(2))
    highest, *rest = (kind(1 / math.factorial(k)) for k in range(form.terms, -1, -1))
    lower = tuple(rest)

    def compiled(x):
        # exp(−x) = 2ᵏ·exp(remainder) with |remainder| ≤ log(2)/2, where the power series is short.
        exponent = min(max(-x, -largest), largest)
        shifted = exponent * per_log2 + shift
        remainder = exponent - (shifted - shift) * log2
        series = highest
        for coefficient in lower:
            series = series * remainder + coefficient
        return one / (one + series * _power_of_two(shifted))  # pyright: ignore[reportCallIssue]

    return compiled
