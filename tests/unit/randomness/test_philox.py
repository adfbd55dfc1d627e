"""Philox4x32-10 against the known answers that its authors publish with Random123."""

import numpy as np
import pytest
from numba import njit

from flockwise.randomness.philox import philox

ALL_ONES = 0xFFFFFFFF
KNOWN_ANSWERS = [
    (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (2**64 - 1, (ALL_ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        0x299F31D0A4093822,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@njit
def draw(seed, a, b, c, d):
    return philox(seed, a, b, c, d)


@pytest.mark.parametrize(("seed", "counter", "answer"), KNOWN_ANSWERS)
def test_draws_equal_the_published_answers_of_philox(seed, counter, answer):
    assert tuple(int(word) for word in draw(np.uint64(seed), *counter)) == answer


def test_every_part_of_the_counter_and_the_seed_matters():
    base = draw(np.uint64(5), 1, 2, 3, 4)
    others = [(5, 9, 2, 3, 4), (5, 1, 9, 3, 4), (5, 1, 2, 9, 4), (5, 1, 2, 3, 9), (9, 1, 2, 3, 4)]
    assert all(draw(np.uint64(seed), *rest) != base for seed, *rest in others)
