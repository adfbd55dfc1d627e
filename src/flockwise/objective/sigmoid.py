"""1 / (1 + exp(−x)) for the losses: plain Python for the reference engine, arithmetic alone for the kernels.

A call of the library's exp handles one number at a time. Without calls and branches the compiler
computes the slopes of many samples at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload


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


def sigmoid(x: float) -> float:
    # The exponent is never positive, so that nothing overflows.
    shrunk = math.exp(-abs(x))
    return (1.0 if x > 0 else shrunk) / (1.0 + shrunk)


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
