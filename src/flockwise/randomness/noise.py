"""Simulated noise: standard draws that are a pure function of seed, agent and number of release.

Box and Muller's transform needs logarithms, sines and cosines. They are written out as arithmetic
alone, without calls or branches, so the compiler draws several numbers at once: an update that
adds noise to 100 coordinates should not cost much more than one that does not.

FOR SIMULATION ONLY: whoever knows the seed can subtract it.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import NamedTuple, Protocol

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload, register_jitable

from flockwise.code_cache import compiled, nothing_compiles
from flockwise.randomness.clocks import BLOCK_SHIFT, NOISE
from flockwise.randomness.philox import philox

WORDS_AT_ONCE = 4
# Lanes keep apart what one release draws.
COORDINATES, RADIUS = 0, 1

_EXPONENT_BITS = 52
_HALF_EXPONENT = 0x3FE0000000000000  # of a number from ½ to 1
_MANTISSA = (1 << _EXPONENT_BITS) - 1
_LOG_TERMS = 11
_LOG = tuple(2 / (2 * k + 1) for k in range(_LOG_TERMS))[::-1]
_TURN_TERMS = 9
_SINE = tuple(
    (-1) ** k * (math.pi / 2) ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(_TURN_TERMS)
)[::-1]
_COSINE = tuple((-1) ** k * (math.pi / 2) ** (2 * k) / math.factorial(2 * k) for k in range(_TURN_TERMS))[
    ::-1
]


def padded(size: int) -> int:
    """Room that a draw of `size` numbers needs: words come four at a time."""
    return -(-size // WORDS_AT_ONCE) * WORDS_AT_ONCE


@intrinsic
def _bits_of(typing_context, number):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def _number_of(typing_context, bits):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@njit(inline="always", error_model="numpy")
def _minus_log(number):
    """−log of a number from 0 to 1: its exponent, and the series of atanh for what is left, from ½ to 1."""
    bits = _bits_of(number)  # pyright: ignore[reportCallIssue]
    exponent = (bits >> _EXPONENT_BITS) - 1022
    rest = _number_of((bits & _MANTISSA) | _HALF_EXPONENT)  # pyright: ignore[reportCallIssue]
    # From √½ to √2, where the series is short.
    is_small = rest < 0.7071067811865476
    rest = 2 * rest if is_small else rest
    exponent = exponent - 1 if is_small else exponent
    ratio = (rest - 1) / (rest + 1)
    square = ratio * ratio
    series = 0.0
    for coefficient in _LOG:
        series = series * square + coefficient
    return -(exponent * 0.6931471805599453 + ratio * series)


@njit(inline="always")
def _sine_and_cosine(turn):
    """Of 2π·turn, for a turn from 0 to 1: the series within an eighth of a turn around each quarter."""
    quarters = 4 * turn
    quarter = np.int64(quarters + 0.5)
    rest = quarters - quarter
    square = rest * rest
    sine = cosine = 0.0
    for coefficient in _SINE:
        sine = sine * square + coefficient
    for coefficient in _COSINE:
        cosine = cosine * square + coefficient
    sine *= rest
    is_odd = (quarter & 1) == 1
    first, second = (cosine if is_odd else sine), (sine if is_odd else cosine)
    return (
        -first if (quarter & 2) == 2 else first,
        -second if ((quarter + 1) & 2) == 2 else second,
    )


@njit(inline="always")
def _words(seed, agent, update, block, lane):
    return philox(seed, agent, update, np.uint64(NOISE) | (np.uint64(block) << BLOCK_SHIFT), lane)


@njit(inline="always")
def _fraction(word):
    """From 0 to 1, both excluded."""
    return (np.int64(word) + 0.5) * 2.0**-32


# A loop of its own: with the logarithms in it, it would be too much for the compiler to do several at once.
@njit
def draw_fractions(seed, agent, update, lane, out):
    """Fill `out`, whose length is `padded`, with numbers between 0 and 1."""
    blocks = out.shape[0] // WORDS_AT_ONCE
    for block in range(blocks):
        a, b, c, d = _words(seed, agent, update, block, lane)
        out[block] = _fraction(a)
        out[blocks + block] = _fraction(b)
        out[2 * blocks + block] = _fraction(c)
        out[3 * blocks + block] = _fraction(d)


@njit(error_model="numpy")
def draw_normals(seed, agent, update, out):
    """Fill `out`, whose length is `padded`, with standard normal numbers (Box and Muller, 1958)."""
    draw_fractions(seed, agent, update, COORDINATES, out)
    half = out.shape[0] // 2
    radii, turns = out[:half], out[half:]
    for k in range(half):
        radius = math.sqrt(2 * _minus_log(radii[k]))
        sine, cosine = _sine_and_cosine(turns[k])
        radii[k] = radius * cosine
        turns[k] = radius * sine


@njit(error_model="numpy")
def draw_laplaces(seed, agent, update, out):
    """Fill `out`, whose length is `padded`, with standard Laplace numbers."""
    draw_fractions(seed, agent, update, COORDINATES, out)
    for k in range(out.shape[0]):
        # Below ½ or above, and how far: two halves of the same word.
        side = out[k] - 0.5
        size = _minus_log(1 - 2 * abs(side))
        out[k] = size if side > 0 else -size


@njit(error_model="numpy")
def draw_knorm(seed, agent, update, size, out):
    """Fill out[:size] with density ∝ exp(−‖z‖₂): a uniform direction, and a radius of Gamma(size, 1)."""
    radius = 0.0
    draw_fractions(seed, agent, update, RADIUS, out)
    for k in range(size):
        radius += _minus_log(out[k])
    draw_normals(seed, agent, update, out)
    square = 0.0
    for k in range(size):
        square += out[k] * out[k]
    scale = radius / math.sqrt(square)
    for k in range(size):
        out[k] *= scale


class Sampler(Protocol):
    """Standard noise of one mechanism, as a NamedTuple whose `draw` numba compiles as it is written.

    It may name its law, for engines that draw the same numbers by code of their own: "normal" or "laplace".
    """

    def draw(self, seed: int, agent: int, number: int, size: int, out: np.ndarray) -> None:
        """Fill out[:size]; `out` has room for padded(size) numbers."""
        ...


class NormalSampler(NamedTuple):
    """Standard normal numbers."""

    law = "normal"

    def draw(self, seed, agent, number, size, out):
        draw_normals(seed, agent, number, out)


class LaplaceSampler(NamedTuple):
    """Standard Laplace numbers."""

    law = "laplace"

    def draw(self, seed, agent, number, size, out):
        draw_laplaces(seed, agent, number, out)


class KNormSampler(NamedTuple):
    """Vectors of density ∝ exp(−‖z‖₂)."""

    def draw(self, seed, agent, number, size, out):
        draw_knorm(seed, agent, number, size, out)


def draw_noise(sampler, seed, agent, number, size, out):
    """Fill out[:size] with the sampler's standard noise; `out` has room for padded(size) numbers."""
    raise nothing_compiles() or NotImplementedError("compiled code only")


@overload(draw_noise)
def _compile_draw(sampler, seed, agent, number, size, out):
    function = sampler.instance_class.draw
    draw = register_jitable(FunctionType(function.__code__, function.__globals__, "draw"))

    def compiled(sampler, seed, agent, number, size, out):
        draw(sampler, seed, agent, number, size, out[: -(-size // WORDS_AT_ONCE) * WORDS_AT_ONCE])

    return compiled


@compiled()
def _fill(sampler, seed, agent, number, size, out):
    draw_noise(sampler, seed, agent, number, size, out)


def standard_noise(sampler: Sampler, seed: int, agent: int, number: int, size: int) -> np.ndarray:
    """Standard noise for a release."""
    out = np.empty(padded(size))
    _fill(sampler, np.uint64(seed), agent, number, size, out)
    return out[:size]
