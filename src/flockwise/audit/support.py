"""The attack on floating-point noise: which outputs could not have come from one of the two data sets?

A sampler that computes with floating-point numbers turns random words into noise, and so gives only some
of all numbers. An attacker who knows the sampler asks of every output which noise either data set
would need, and whether any word gives it (Mironov, CCS 2012; Jin et al., IEEE S&P 2022). An output that
is impossible on one data set reveals the other, whatever ε is claimed. The integer noise of real agents
(flockwise.privacy.noise) can be any integer on either data set, so the attack finds nothing.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flockwise.audit.bounds import Attack
from flockwise.audit.gate import CLIP, Floats, NoiseFree, NoiseSource, audited_events, released, secure
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.plan import Plan

# NumPy's uniform numbers are multiples of 2⁻⁵³.
NUMPY_STEP: Final = 2.0**-53
# Those of flockwise.randomness are (word + ½)/2³² for a word of 32 bits.
PHILOX_WORDS: Final = 2.0**32
# How far from the word that the noise implies another may be that rounds to the same output.
NEARBY_WORDS: Final = range(-6, 7)
# What rounding may do to the number of a 32-bit word, generously: noise that no word gives passes by chance
# in 1 case of 500.
WORD_TOLERANCE: Final = 1e-3


def numpy_laplace_misfits(outputs: Floats, center: Floats, scale: float) -> Floats:
    """Against numpy.random.Generator.laplace, whose logarithm skips numbers in the tails."""
    fits = [
        [_numpy_laplace_gives(x, c, scale) for x, c in zip(row, center.tolist(), strict=True)]
        for row in outputs.tolist()
    ]
    return np.logical_not(fits).sum(axis=1).astype(np.float64)


def _numpy_laplace_gives(output: float, center: float, scale: float) -> bool:
    implied = round(_laplace_fraction((output - center) / scale) / NUMPY_STEP)
    return any(
        center + _numpy_laplace(word * NUMPY_STEP, scale) == output
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


def philox_laplace_misfits(outputs: Floats, center: Floats, scale: float) -> Floats:
    """Against draw_laplaces of flockwise.randomness.noise."""
    fractions = np.vectorize(_laplace_fraction)((outputs - center) / scale)
    return (~_is_of_a_word(fractions)).sum(axis=1).astype(np.float64)


def philox_gaussian_misfits(outputs: Floats, center: Floats, scale: float) -> Floats:
    """Against draw_normals of flockwise.randomness.noise: Box and Muller make two coordinates of two words.

    Coordinates k and p/2 + k belong together, for a number of coordinates p that four divides.
    """
    cosines, sines = np.split((outputs - center) / scale, 2, axis=1)
    lengths = np.exp(-(cosines**2 + sines**2) / 2)
    turns = np.arctan2(sines, cosines) / (2 * np.pi) % 1.0
    return (~(_is_of_a_word(lengths) & _is_of_a_word(turns))).sum(axis=1).astype(np.float64)


def _is_of_a_word(fractions: Floats) -> NDArray[np.bool_]:
    words = fractions * PHILOX_WORDS - 0.5
    return np.abs(words - np.rint(words)) <= WORD_TOLERANCE


@dataclass(frozen=True, eq=False)
class SupportAttack(Attack):
    """A real agent, with a ledger on disk. Each of its releases is a run and claims the budget by itself.

    The score counts what is impossible on the first data set, less what is impossible on the second.

    samplers: count outputs that a known sampler cannot give. NumPy's normal numbers are left out: they come
    of 256 overlapping sets of words, nearly every number.
    """

    mechanism: str
    pair: tuple[Floats, Floats]
    samplers: tuple[Callable[[Floats, Floats, float], Floats], ...]
    noise: NoiseSource = secure

    def ratios(self, which: int, runs: int, seed: int) -> NDArray[np.float64]:
        plan = Plan.fitting(self.budget, self.mechanism, 1, on_grid=True)
        with tempfile.TemporaryDirectory() as folder, Ledger.create(folder, "audited") as ledger:
            gate = Gate(_repeated(plan, runs), ledger, self.noise(seed, which))
            rows = Rows.of(self.pair[which], CLIP)
            output = np.array([gate.release(rows).vector for _ in range(runs)])
        first, second = (self._misfits(plan, output, samples) for samples in self.pair)
        return first - second

    def _misfits(self, plan: Plan, output: Floats, samples: Floats) -> Floats:
        center = released(plan, samples, NoiseFree())[0]
        # In steps of the grid, as the noise was drawn: a power of two, so no digit changes.
        (event,) = audited_events(plan)
        grid = event.grid or 1.0
        steps = output / grid, center / grid, event.scale / grid
        return np.sum([misfits(*steps) for misfits in self.samplers], axis=0)


def _repeated(plan: Plan, runs: int) -> Plan:
    """The one release of a plan many times over, with a budget for all of them."""
    multipliers = plan.multipliers * runs
    total = Budget(1e9, plan.budget.delta)
    return Plan(total, plan.mechanism, plan.accountant, multipliers, plan.on_grid)
