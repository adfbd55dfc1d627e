"""Simulated noise of flockwise.randomness.noise in Triton: the same draws, in double precision.

A draw takes a block of coordinates of one release of `size` numbers, and gives each its standard noise.
Which word of which Philox block a coordinate gets is as in that module: the words of all blocks stand
one kind after the other.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from flockwise.errors import SimulationError
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.randomness.clocks import BLOCK_SHIFT, NOISE
from flockwise.randomness.noise import _COSINE, _LOG, _SINE, COORDINATES

_PURPOSE = tl.constexpr(NOISE)
_LANE = tl.constexpr(COORDINATES)
_BLOCK_SHIFT = tl.constexpr(int(BLOCK_SHIFT))
_LOG_SERIES = tl.constexpr(_LOG)
_SINE_SERIES = tl.constexpr(_SINE)
_COSINE_SERIES = tl.constexpr(_COSINE)
_LOG_TERMS, _TURN_TERMS = tl.constexpr(len(_LOG)), tl.constexpr(len(_SINE))
_EXPONENT_BITS = tl.constexpr(52)
_MANTISSA = tl.constexpr((1 << 52) - 1)
_HALF_EXPONENT = tl.constexpr(0x3FE0000000000000)


@triton.jit
def minus_log(number):
    """−log of numbers from 0 to 1: the exponent, and the series of atanh for what is left."""
    bits = number.to(tl.int64, bitcast=True)
    exponent = ((bits >> _EXPONENT_BITS) - 1022).to(tl.float64)
    rest = ((bits & _MANTISSA) | _HALF_EXPONENT).to(tl.float64, bitcast=True)
    is_small = rest < 0.7071067811865476
    rest = tl.where(is_small, 2 * rest, rest)
    exponent = tl.where(is_small, exponent - 1, exponent)
    ratio = (rest - 1) / (rest + 1)
    square = ratio * ratio
    series = square * 0
    for k in tl.static_range(_LOG_TERMS):
        series = series * square + _LOG_SERIES[k]
    return -(exponent * 0.6931471805599453 + ratio * series)


@triton.jit
def sine_or_cosine(turn, is_sine):
    """Of 2π·turn, for turns from 0 to 1: series around each quarter."""
    quarters = 4 * turn
    quarter = (quarters + 0.5).to(tl.int64)
    rest = quarters - quarter.to(tl.float64)
    square = rest * rest
    sine = square * 0
    cosine = square * 0
    for k in tl.static_range(_TURN_TERMS):
        sine = sine * square + _SINE_SERIES[k]
        cosine = cosine * square + _COSINE_SERIES[k]
    # A cosine is the sine of a quarter further.
    quarter = tl.where(is_sine, quarter, quarter + 1)
    value = tl.where((quarter & 1) == 1, cosine, sine * rest)
    return tl.where((quarter & 2) == 2, -value, value)


@triton.jit
def fractions(seed, number, release, block):
    """Four numbers between 0 and 1 of each of these blocks."""
    zero = (block * 0).to(tl.uint32)
    purpose = ((block << _BLOCK_SHIFT) | _PURPOSE).to(tl.uint32)
    a, b, c, d = tl.philox(
        seed, zero + number.to(tl.uint32), zero + release.to(tl.uint32), purpose, zero + _LANE
    )
    return fraction(a), fraction(b), fraction(c), fraction(d)


@triton.jit
def fraction(word):
    return (word.to(tl.float64) + 0.5) * 2.3283064365386963e-10


@triton.jit
def draw_normals(seed, number, release, coordinate, SIZE: tl.constexpr):
    """Standard normal numbers (Box and Muller): the first half of them cosines, the second half sines."""
    blocks: tl.constexpr = (SIZE + 3) // 4
    half: tl.constexpr = 2 * blocks
    is_sine = coordinate >= half
    pair = tl.where(is_sine, coordinate - half, coordinate)
    is_second = pair >= blocks
    a, b, c, d = fractions(seed, number, release, tl.where(is_second, pair - blocks, pair))
    radius = tl.sqrt(2 * minus_log(tl.where(is_second, b, a)))
    return radius * sine_or_cosine(tl.where(is_second, d, c), is_sine)


@triton.jit
def draw_laplaces(seed, number, release, coordinate, SIZE: tl.constexpr):
    """Standard Laplace numbers."""
    blocks: tl.constexpr = (SIZE + 3) // 4
    kind = coordinate // blocks
    a, b, c, d = fractions(seed, number, release, coordinate - kind * blocks)
    side = tl.where(kind < 2, tl.where(kind == 0, a, b), tl.where(kind == 2, c, d)) - 0.5
    size = minus_log(1 - 2 * tl.abs(side))
    return tl.where(side > 0, size, -size)


# By the law of a mechanism's sampler. A law of your own adds a line here.
DRAWS: dict[str | None, Any] = {"normal": draw_normals, "laplace": draw_laplaces}


def draw_of(mechanism: str) -> Any:
    """How a mechanism's standard noise is drawn."""
    law = getattr(MECHANISMS[mechanism].sampler(), "law", None)
    if law not in DRAWS:
        raise SimulationError(
            f"engine 'gpu' draws Gaussian and Laplace noise, not that of mechanism {mechanism!r}; "
            "use engine='cpu'"
        )
    return DRAWS[law]
