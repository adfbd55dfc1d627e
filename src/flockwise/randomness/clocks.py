"""Poisson clocks in integers: one function makes every waiting time, the same in every engine.

Time is a 64-bit integer that counts units of 2⁻⁴⁰ of the mean interval between two ticks of an
agent. Waiting times are drawn by von Neumann's comparison method, which needs nothing but
comparisons of random words: no logarithm, so no two machines or compilers can disagree on the
order of two ticks.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from flockwise.randomness.philox import philox

UNIT_BITS = 40
TIME_UNIT = 1 << UNIT_BITS
NEVER = np.iinfo(np.int64).max

# Streams keep draws for different purposes apart.
CLOCK, NOISE, DELAY, LOSS, CHURN, PARTNER, PUBLIC_NOISE, DATA = range(8)
BLOCK_SHIFT = np.uint64(8)
HIGH_WORD = np.uint64(32)
FRACTION_SHIFT = np.uint64(64 - UNIT_BITS)


@njit(forceinline=True)
def random_pair(seed, agent, update, stream, block, lane):
    """Two 64-bit words for this purpose, block after block."""
    purpose = np.uint64(stream) | (np.uint64(block) << BLOCK_SHIFT)
    a, b, c, d = philox(seed, agent, update, purpose, lane)
    return (a << HIGH_WORD) | b, (c << HIGH_WORD) | d


@njit(forceinline=True)
def nth_word(seed, agent, update, stream, lane, n, spare):
    """The n-th 64-bit word for this purpose and the one after it, drawn in pairs."""
    if n & 1:
        return spare, spare
    return random_pair(seed, agent, update, stream, n >> 1, lane)


@njit(forceinline=True)
def exponential(seed, agent, update, stream, lane):
    """An exponential waiting time of mean TIME_UNIT, by von Neumann's comparisons (1951).

    Draw a run u₁ > u₂ > … until it stops falling. A run of odd length accepts u₁ as the
    fraction; each run of even length adds one whole unit and starts anew.
    """
    whole = 0
    n_drawn = 0
    spare = np.uint64(0)
    while True:
        first, spare = nth_word(seed, agent, update, stream, lane, n_drawn, spare)
        n_drawn += 1
        last = first
        length = 0
        while True:
            length += 1
            word, spare = nth_word(seed, agent, update, stream, lane, n_drawn, spare)
            n_drawn += 1
            if word >= last:
                break
            last = word
        if length & 1:
            return (np.int64(whole) << UNIT_BITS) + np.int64(first >> FRACTION_SHIFT)
        whole += 1


@njit(forceinline=True)
def tick_gap(seed, agent, update):
    """The time between an agent's update number `update` and the one before it."""
    return exponential(seed, agent, update, CLOCK, 0)


@njit
def uniform_word(seed, agent, update, stream, lane):
    """One 64-bit word, for coin flips against an integer threshold."""
    return random_pair(seed, agent, update, stream, 0, lane)[0]
