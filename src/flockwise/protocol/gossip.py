"""Gossip between neighbors, as conversations (flockwise.protocol.conversation): hops, means, largest values.

Nothing here can receive a population.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from flockwise.protocol.conversation import Conversation, Heard, Say, Vector

TOLERANCE: Final = 1e-8
# The agents' differences are damped to this. A mean may be much smaller than the values that it is of.
DAMPING: Final = 1e-11
# With more rounds than this they are damped further. If a few of very many agents have most of a sum, each
# agent's part of it is so small that DAMPING of the sum still shows there, however many rounds there are.
EASY_ROUNDS: Final = 64
FIRST_ROUNDS: Final = 16
ROUND_GROWTH: Final = 1.25
MOST_ROUNDS: Final = 1 << 20
# Of public noise, to find out how many rounds it takes: a few, lest one is smooth along the graph by chance.
PROBE_COLUMNS: Final = 4
# The stages in which agents find out whether they agree: the only ones where infinity is an answer.
AGREEING: Final = "/agree"


@dataclass(frozen=True)
class Neighborhood:
    """The part of the graph that an agent knows: its own edges."""

    weights: Mapping[int, float]

    @property
    def degree(self) -> float:
        return sum(self.weights.values())

    def hop(self, stage: str, vector: Vector) -> Conversation[Vector]:
        """One row of P·x, P = W·D⁻¹: everyone sends x/D, and adds what it gets times its weights.

        Of neighbors not heard the weights go to the others; with nobody heard the own vector stays.
        """
        total, present = sum_heard(self.weights, (yield Say(stage, vector / self.degree)), len(vector))
        return vector if present == 0 else total * (self.degree / present)


def sum_heard(weights: Mapping[int, float], heard: Heard, size: int) -> tuple[Vector, float]:
    """What came, times the weights of its senders, added up; and the weights of those who were heard."""
    # In the order of the senders' numbers, whatever that of arrival: sums round.
    senders = sorted(heard)
    total = sum((weights[sender] * heard[sender] for sender in senders), np.zeros(size))
    return total, sum(weights[sender] for sender in senders)


class Gossip:
    """Means and largest values over all agents.

    All edges count alike in it: means need no resemblance, and weak edges would make them slow.
    reach: a bound on the hops between two agents.
    """

    def __init__(self, neighbors: Iterable[int], reach: int) -> None:
        self._neighborhood = Neighborhood(dict.fromkeys(neighbors, 1.0))
        self._reach = reach

    def largest(self, stage: str, vector: Vector) -> Conversation[Vector]:
        """The largest of everyone's entries, exactly, after as many rounds as two agents are hops apart."""
        for _ in range(self._reach):
            heard = yield Say(stage, vector)
            vector = np.max([vector, *heard.values()], axis=0)
        return vector

    def rounds_to_agree(self, stage: str, sums: Vector) -> Conversation[int]:
        """After how many rounds everyone has the same mean: a number of the graph, whatever is mixed."""
        rounds = FIRST_ROUNDS
        while True:
            lowest, highest = yield from self._extremes(f"{stage}/{rounds}", sums, rounds)
            if agree(lowest, highest) or rounds >= MOST_ROUNDS:
                return rounds
            rounds = more_rounds(rounds)

    def mean(self, stage: str, sums: Vector, rounds: int) -> Conversation[Vector]:
        """Push-sum: Σ_j sums_j[:-1] / Σ_j sums_j[-1] over all agents, to the last bit the same for all.

        Everyone takes the middle of the largest and the smallest estimate.
        """
        lowest, highest = yield from self._extremes(stage, sums, rounds)
        return (lowest + highest) / 2

    def _extremes(self, stage: str, sums: Vector, rounds: int) -> Conversation[tuple[Vector, Vector]]:
        """The smallest and the largest of everyone's means after so many rounds."""
        mixed = yield from self._mixed(stage, sums, rounds)
        mean = push_sum_mean(mixed)
        extremes = yield from self.largest(stage + AGREEING, np.concatenate([mean, -mean]))
        return -extremes[len(mean) :], extremes[: len(mean)]

    def _mixed(self, stage: str, vector: Vector, rounds: int) -> Conversation[Vector]:
        """T_rounds((2P + (1 − c)I)/(1 + c))·x: Chebyshev's acceleration of push-sum.

        It keeps the eigenvalue 1 and damps all from −1 to c to `damping` of it, where c is what so many
        rounds can reach. The common factor cancels in push-sum's quotient.
        """
        bound = damped_up_to(rounds)

        def moved(now: Vector) -> Conversation[Vector]:
            hopped = yield from self._neighborhood.hop(stage, now)
            return (2 * hopped + (1 - bound) * now) / (1 + bound)

        before, now = vector, (yield from moved(vector))
        for _ in range(rounds - 1):
            before, now = now, 2 * (yield from moved(now)) - before
        return now


def more_rounds(rounds: int) -> int:
    """How many to try after so many were too few."""
    return math.ceil(ROUND_GROWTH * rounds)


def damping(rounds: int) -> float:
    """The share of the agents' differences that is left after so many rounds."""
    return DAMPING * min(1.0, EASY_ROUNDS / rounds) ** 3


def damped_up_to(rounds: int) -> float:
    """c: of the eigenvalues, so many rounds damp all from −1 to c to `damping`."""
    growth = math.cosh(math.acosh(1 / damping(rounds)) / rounds)
    return (3 - growth) / (1 + growth)


def push_sum_mean(sums: Vector) -> Vector:
    """The quotients; infinite before weight has come from everywhere, when there is nothing to divide by."""
    return sums[:-1] / sums[-1] if sums[-1] > 0 else np.full(len(sums) - 1, np.inf)


def may_be_infinite(stage: str) -> bool:
    """Whether an agent may say in this stage that it has no mean yet."""
    return stage.endswith(AGREEING)


def agree(lowest: Vector, highest: Vector) -> bool:
    """Whether means are close to each other, relative to the largest entry; so they are if nobody has any."""
    if np.isposinf(lowest).all():
        return True
    if not np.isfinite([lowest, highest]).all():
        return False
    scale = np.maximum(np.abs(lowest), np.abs(highest)).max(initial=0.0)
    return bool((highest - lowest <= TOLERANCE * scale).all())
