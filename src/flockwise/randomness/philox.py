"""Philox4x32-10 (Salmon et al., SC 2011): random words that are a pure function of a key and a counter.

key = seed, counter = (agent, update, stream and block, lane). Nothing is shared or advanced, so
the same draw comes out in every engine, on every thread, in any order of execution.
"""

from __future__ import annotations

import numpy as np
from numba import njit

MULTIPLIER_0 = np.uint64(0xD2511F53)
MULTIPLIER_1 = np.uint64(0xCD9E8D57)
KEY_STEP_0 = np.uint64(0x9E3779B9)
KEY_STEP_1 = np.uint64(0xBB67AE85)
LOW_WORD = np.uint64(0xFFFFFFFF)
WORD = np.uint64(32)
ROUNDS = 10


# Inlined, as are the clocks: one is drawn in every update.
@njit(forceinline=True)
def philox(seed, word_0, word_1, word_2, word_3):
    """Four 32-bit words, each in a uint64, for a 64-bit seed and a counter of four 32-bit words."""
    key_0 = np.uint64(seed) & LOW_WORD
    key_1 = np.uint64(seed) >> WORD
    x_0 = np.uint64(word_0) & LOW_WORD
    x_1 = np.uint64(word_1) & LOW_WORD
    x_2 = np.uint64(word_2) & LOW_WORD
    x_3 = np.uint64(word_3) & LOW_WORD
    for _ in range(ROUNDS):
        product_0 = MULTIPLIER_0 * x_0
        product_1 = MULTIPLIER_1 * x_2
        x_0 = (product_1 >> WORD) ^ x_1 ^ key_0
        x_1 = product_1 & LOW_WORD
        x_2 = (product_0 >> WORD) ^ x_3 ^ key_1
        x_3 = product_0 & LOW_WORD
        key_0 = (key_0 + KEY_STEP_0) & LOW_WORD
        key_1 = (key_1 + KEY_STEP_1) & LOW_WORD
    return x_0, x_1, x_2, x_3
