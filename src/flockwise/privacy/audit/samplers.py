"""Floating-point samplers turned around: is there a random word from which they give this noise?

Each function takes outputs in rows, the vector that the noise would have been added to, and the scale of
the noise, and counts for every row where the answer is no.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

# NumPy's uniform numbers are multiples of 2⁻⁵³.
NUMPY_STEP: Final = 2.0**-53
# Those of flockwise.randomness are (word + ½)/2³² for a word of 32 bits.
PHILOX_WORDS: Final = 2.0**32
# How far from the word that the noise implies another may be that rounds to the same output.
NEARBY_WORDS: Final = range(-6, 7)
# What rounding may do to the number of a 32-bit word, generously: noise that no word gives passes by chance
# in 1 case of 500.
WORD_TOLERANCE: Final = 1e-3

Floats = NDArray[np.float64]


def numpy_laplace_misfits(outputs: Floats, centre: Floats, scale: float) -> Floats:
    """Against numpy.random.Generator.laplace, whose logarithm skips numbers in the tails."""
    fits = [
        [_numpy_laplace_gives(x, c, scale) for x, c in zip(row, centre.tolist(), strict=True)]
        for row in outputs.tolist()
    ]
    return np.logical_not(fits).sum(axis=1).astype(np.float64)


def _numpy_laplace_gives(output: float, centre: float, scale: float) -> bool:
    implied = round(_laplace_fraction((output - centre) / scale) / NUMPY_STEP)
    return any(
        centre + _numpy_laplace(word * NUMPY_STEP, scale) == output
        for word in (implied + step for step in NEARBY_WORDS)
        if 0 < word * NUMPY_STEP < 1
    )


def _numpy_laplace(fraction: float, scale: float) -> float:
    """The same arithmetic as NumPy's, digit by digit."""
    if fraction >= 0.5:
        return -scale * math.log(2.0 - fraction - fraction)
    return scale * math.log(fraction + fraction)


def _laplace_fraction(noise: float) -> float:
    """The share of standard Laplace noise that is smaller."""
    return 0.5 * math.exp(noise) if noise < 0 else 1 - 0.5 * math.exp(-noise)


def philox_laplace_misfits(outputs: Floats, centre: Floats, scale: float) -> Floats:
    """Against draw_laplaces of flockwise.randomness.noise."""
    fractions = np.vectorize(_laplace_fraction)((outputs - centre) / scale)
    return (~_is_of_a_word(fractions)).sum(axis=1).astype(np.float64)


def philox_gaussian_misfits(outputs: Floats, centre: Floats, scale: float) -> Floats:
    """Against draw_normals of flockwise.randomness.noise: Box and Muller make two coordinates of two words.

    Coordinates k and p/2 + k belong together, for a number of coordinates p that four divides.
    """
    cosines, sines = np.split((outputs - centre) / scale, 2, axis=1)
    lengths = np.exp(-(cosines**2 + sines**2) / 2)
    turns = np.arctan2(sines, cosines) / (2 * np.pi) % 1.0
    return (~(_is_of_a_word(lengths) & _is_of_a_word(turns))).sum(axis=1).astype(np.float64)


def _is_of_a_word(fractions: Floats) -> NDArray[np.bool_]:
    words = fractions * PHILOX_WORDS - 0.5
    return np.abs(words - np.rint(words)) <= WORD_TOLERANCE
