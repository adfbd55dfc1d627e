"""How far to smooth, and whether to collaborate at all: from released vectors and public noise alone.

The truth t_i of an agent is split into the mean over agents and its own deviation, of power S. Smoothing
leaves of the deviations a_i = (what the filter lets pass) + (noise of variance N_i per coordinate). For
each degree two unknowns decide what a_i is worth, both as shares of S: how much of t_i the others' part
in a_i holds (agreement, c), and how long a_i is without its noise (power, q). Both are measured as means
over agents, with errors of known size, and averaged by inverse variance with a guess: that deviations
lie in about two of the slowest modes of the graph. A graph may also be useless: with a small prior
probability c is 0, and if the releases make that more likely than not, agents do not use it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.protocol.filter import DEGREES
from flockwise.protocol.rows import NOISE_COLUMNS, AgentRows

# Chosen on generated instances of the paper's task with seeds from one million on: 100 to 400 agents, 20
# and 100 features, right edges and up to all of them random. Results change little around them.
MODES_GUESS: Final = 1.5  # a filter that lets K modes pass keeps a share 1 − exp(−K/1.5) of the power
AGREEMENT_SPREAD: Final = 0.1
POWER_SPREAD: Final = 0.1
USELESS_GUESS: Final = 0.05
# A filter is too narrow when it lets less than this pass, in modes, or less than about two modes evenly:
# then what is left of the deviations is one pattern of the graph, and no longer the agents' own.
LEAST_MODES: Final = 0.25
LEAST_EVEN_MODES: Final = 1.6
# How much ‖E a_i‖² differs between agents, as a share of its mean, before a_i itself is seen.
POWER_VARIATION: Final = 0.5
# An agent keeps its local model when it expects to know less of the truth than this from the others.
LEAST_SHARE: Final = 0.01
# Standard errors by which the mean must be longer than noise to count.
MEAN_STANDS_OUT: Final = 5
SMALLEST: Final = 1e-12


class Mean(NamedTuple):
    """The precision-weighted mean of all releases, and the variance of the noise in a coordinate of it."""

    vector: Floats
    variance: float

    @property
    def noise(self) -> float:
        """What its square would be on average if it were noise alone."""
        return len(self.vector) * self.variance

    @property
    def power(self) -> float:
        """An estimate of the true mean's square: 0 unless it stands out of noise."""
        square = float(self.vector @ self.vector)
        error = math.sqrt(2 / len(self.vector) + 2 / NOISE_COLUMNS)
        return square - self.noise if square > (1 + MEAN_STANDS_OUT * error) * self.noise else 0.0


class Figures(NamedTuple):
    """Means over agents, weighted by precision, of what they tallied after smoothing by one degree."""

    agreement: float
    power: float
    noise: float
    own: float


class SmoothingChoice(NamedTuple):
    """The degree that promises most; agreement and power as shares of S, chance that the graph is useful."""

    degree: int
    agreement: float
    power: float
    chance: float

    @property
    def is_useful(self) -> bool:
        return self.chance > 0.5


class Signal(NamedTuple):
    """How large the truth is: the power of the mean over agents, and S, that of the deviations from it."""

    of_mean: float
    of_deviations: float

    def kept(self, mean: Mean) -> float:
        """The share of the released mean to believe in, by Wiener's rule."""
        return self.of_mean / (self.of_mean + mean.noise) if self.of_mean > 0 else 0.0


class Beliefs(NamedTuple):
    """What agents believe of their truths t_i, one row each.

    vectors: what they expect. own_weights: of the agent's own release in it. shares: the share ρ_i² of
    ‖t_i‖² that is in it. variances: of t_i around it, per coordinate. collaborates: False for agents that
    keep their local models.
    """

    vectors: Floats
    own_weights: Floats
    shares: Floats
    variances: Floats
    collaborates: NDArray[np.bool_]


def no_estimates(n_agents: int, dimension: int) -> Beliefs:
    """For agents that received nothing."""
    nothing, none = np.zeros((n_agents, dimension)), np.zeros(n_agents)
    return Beliefs(nothing, none, none.copy(), np.ones(n_agents), np.zeros(n_agents, bool))


def mean_of(rows: AgentRows) -> Mean:
    """From one row: the mean of the releases, and that of public noise, which tells the former's variance."""
    return Mean(rows.vectors[0], float(np.mean(rows.noise[0] ** 2)))


def guessed_signal(total: float, mean: Mean) -> Signal:
    """When the total power is known beforehand; at least a tenth of it is given to the deviations."""
    of_mean = min(mean.power, 0.9 * total)
    return Signal(of_mean, total - of_mean)


def measured_signal(square: float, variance: float, mean: Mean) -> Signal:
    """From means over agents of ‖v_i‖² less its noise, and of s_i², v_i being released less the mean.

    Under n agents' noise Σ w_i‖v_i‖² has the variance 2·p·n·Vg², and n·Vg is the mean of s_i² itself.
    The deviations are taken to be no smaller than that error: too large, they only weaken a pull.
    """
    error = math.sqrt(2 * len(mean.vector) * variance * mean.variance)
    return Signal(mean.power, max(square, error, SMALLEST))


def is_wide_enough(modes: float, next_modes: float) -> bool:
    """Whether a filter lets pass at least about two modes of the graph evenly.

    modes: K = Σ h², h being the filter's values at the graph's eigenvalues without the first. The next
    degree is √2 times larger and its h about the square, so K²/K_next counts modes that pass evenly.
    """
    return modes >= LEAST_MODES and modes**2 >= LEAST_EVEN_MODES * next_modes


def usable(figures: Sequence[Figures], mean: Mean) -> int | None:
    """How many of the degrees are wide enough, at least one; None if more hops have to show it."""
    modes = [figure.noise / mean.variance for figure in figures]
    for position, (own, following) in enumerate(pairwise(modes)):
        if not is_wide_enough(own, following):
            return max(position, 1)
    return len(modes) - 1 if len(modes) == len(DEGREES) else None


def choose(figures: Sequence[Figures], mean: Mean, signal: Signal) -> SmoothingChoice:
    """Of the degrees in order, the one whose smoothed vectors are expected to tell most of the truth."""

    def promise(position: int) -> float:
        choice = choices[position]
        noise = len(mean.vector) * figures[position].noise / signal.of_deviations
        return choice.agreement**2 / (choice.power + noise)

    choices = [judged(degree, figure, mean, signal) for degree, figure in zip(DEGREES, figures, strict=False)]
    return choices[max(range(len(choices)), key=promise)]


def judged(degree: int, figure: Figures, mean: Mean, signal: Signal) -> SmoothingChoice:
    """Agreement and power at one degree: measured and guessed, by inverse variance.

    A sum over agents of products of two noises has the variance 2·p·Vg²·Σh² when it is weighted by
    precision; the own shares, known from finitely many columns, add to that of the agreement.
    """
    dimension, total = len(mean.vector), signal.of_deviations
    modes = figure.noise / mean.variance
    error = math.sqrt(2 * dimension * modes) * mean.variance / total
    agreement_error = error * math.sqrt(1 + dimension / NOISE_COLUMNS)
    guess = 1 - math.exp(-modes / MODES_GUESS)
    measured, expected = figure.agreement / total, math.sqrt(guess) * (1 - figure.own)
    chance = _chance_of_use(measured, agreement_error, expected)
    agreement = chance * _blended(measured, agreement_error, expected, AGREEMENT_SPREAD)
    agreement = min(max(agreement, 0.0), 1.0)
    power = _blended(figure.power / total, error, guess, POWER_SPREAD)
    # A length is at least its projection.
    return SmoothingChoice(degree, agreement, max(power, agreement**2, SMALLEST), chance)


def _chance_of_use(measured: float, error: float, expected: float) -> float:
    """Probability that the agreement is not 0, by Bayes' rule."""
    spread = math.hypot(error, AGREEMENT_SPREAD)
    useful = (1 - USELESS_GUESS) * math.exp(-0.5 * ((measured - expected) / spread) ** 2) / spread
    useless = USELESS_GUESS * math.exp(-0.5 * (measured / max(error, SMALLEST)) ** 2) / max(error, SMALLEST)
    return useful / (useful + useless) if useful > 0 else 0.0


def _blended(measured: float, error: float, guess: float, spread: float) -> float:
    weight = spread**2 / (spread**2 + error**2)
    return weight * measured + (1 - weight) * guess


def believe(
    smoothed: Floats, tallied: Floats, choice: SmoothingChoice, mean: Mean, signal: Signal
) -> Beliefs:
    """What follows from an agent's smoothed deviation a_i and what it tallied of it, one row per agent.

    Were E a_i = γ_i·t_i, with γ_i² = q_i, the best linear guess of t_i were γ_i·a_i/(q_i + p·N_i/S), which
    has a share q_i/(q_i + p·N_i/S) of its power; c²/q of it points along t_i.
    """
    dimension, total = smoothed.shape[1], signal.of_deviations
    _, _, left, own = tallied.T
    noise = dimension * left / total
    power = _own_powers(np.einsum("ij,ij->i", smoothed, smoothed) / total - noise, noise, choice, dimension)
    alignment = choice.agreement / math.sqrt(choice.power) if choice.is_useful else 0.0
    factors = alignment * np.sqrt(power) / (power + noise)
    deviations = alignment**2 * power / (power + noise)
    kept, whole = signal.kept(mean), signal.of_mean + total
    shares = (kept * signal.of_mean + total * deviations) / whole
    return Beliefs(
        kept * mean.vector + factors[:, None] * smoothed,
        factors * own,
        shares,
        whole * (1 - shares) / dimension,
        shares >= LEAST_SHARE,
    )


def _own_powers(measured: Floats, noise: Floats, choice: SmoothingChoice, dimension: int) -> Floats:
    """q_i: the mean power q, and the length of the agent's own a_i as far as it stands out of its noise."""
    variances = 2 * noise**2 / dimension + 4 * choice.power * noise / dimension
    prior = (POWER_VARIATION * choice.power) ** 2
    blended = (prior * measured + variances * choice.power) / (prior + variances)
    return np.clip(blended, 0.05 * choice.power, 2 * choice.power)
