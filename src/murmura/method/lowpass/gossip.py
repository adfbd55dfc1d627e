"""Gossip between neighbors, as conversations: each round an agent sends one vector and gets its neighbors'.

A conversation is a generator. It yields what the agent sends to all its neighbors and is resumed with
what they sent in the same round; it knows nothing of networks, clocks or time-outs, nor of how many
agents there are. Nothing here can receive a population.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]

# Agents agree when their means are this close, relative to the largest entry.
TOLERANCE: Final = 1e-8
# What the agents' differences are damped to, far enough below for a mean much smaller than what it is of.
DAMPING: Final = 1e-11
FIRST_ROUNDS: Final = 16
ROUND_GROWTH: Final = 1.25
MOST_ROUNDS: Final = 1 << 20


class Sending(NamedTuple):
    """One round: what to send, in which stage of the protocol."""

    stage: str
    vector: Vector


class Mixed(NamedTuple):
    """A mean over all agents, and the number of rounds that it took them to agree."""

    mean: Vector
    rounds: int


# What neighbors sent, by their number; one that was not heard in time is missing.
Heard: TypeAlias = Mapping[int, Vector]
Result = TypeVar("Result")
Conversation: TypeAlias = Generator[Sending, Heard, Result]


@dataclass(frozen=True)
class Neighborhood:
    """What an agent knows of the graph: its own ties, and a public bound on the hops between two agents."""

    weights: Mapping[int, float]
    reach: int

    @property
    def degree(self) -> float:
        return sum(self.weights.values())

    def hop(self, stage: str, vector: Vector) -> Conversation[Vector]:
        """One row of P·x, P = W·D⁻¹: everyone sends x/D, and adds what it gets times its weights.

        Of neighbors not heard the weights go to the others; with nobody heard the own vector stays.
        """
        heard = yield Sending(stage, vector / self.degree)
        present = sum(self.weights[other] for other in heard)
        if present == 0:
            return vector
        total = sum(
            (self.weights[other] * sent for other, sent in sorted(heard.items())), np.zeros(len(vector))
        )
        return total * (self.degree / present)

    def largest(self, stage: str, vector: Vector) -> Conversation[Vector]:
        """The largest of everyone's entries, exactly, after as many rounds as two agents are hops apart."""
        for _ in range(self.reach):
            heard = yield Sending(stage, vector)
            vector = np.max([vector, *heard.values()], axis=0)
        return vector

    def mean(self, stage: str, sums: Vector, rounds: int = FIRST_ROUNDS) -> Conversation[Mixed]:
        """Push-sum: Σ_j sums_j[:-1] / Σ_j sums_j[-1] over all agents, to the last bit the same for all.

        Rounds grow until the largest and the smallest estimate agree; everyone takes their middle.
        """
        while True:
            mixed = yield from self._mixed(f"{stage}/{rounds}", sums, rounds)
            # Before weight has come from everywhere, an agent has nothing to divide by.
            estimate = mixed[:-1] / mixed[-1] if mixed[-1] > 0 else np.full(len(sums) - 1, np.inf)
            extremes = yield from self.largest(
                f"{stage}/{rounds}/agree", np.concatenate([estimate, -estimate])
            )
            highest, lowest = extremes[: len(estimate)], -extremes[len(estimate) :]
            if _agree(lowest, highest) or rounds >= MOST_ROUNDS:
                return Mixed((lowest + highest) / 2, rounds)
            rounds = math.ceil(ROUND_GROWTH * rounds)

    def _mixed(self, stage: str, vector: Vector, rounds: int) -> Conversation[Vector]:
        """T_rounds((2P + (1 − c)I)/(1 + c))·x: Chebyshev's acceleration of push-sum.

        It keeps the eigenvalue 1 and damps all from −1 to c to DAMPING of it, where c is what so many
        rounds can reach. The common factor cancels in push-sum's quotient.
        """
        growth = math.cosh(math.acosh(1 / DAMPING) / rounds)
        bound = (3 - growth) / (1 + growth)

        def moved(now: Vector) -> Conversation[Vector]:
            hopped = yield from self.hop(stage, now)
            return (2 * hopped + (1 - bound) * now) / (1 + bound)

        before, now = vector, (yield from moved(vector))
        for _ in range(rounds - 1):
            before, now = now, 2 * (yield from moved(now)) - before
        return now


def _agree(lowest: Vector, highest: Vector) -> bool:
    if not np.isfinite([lowest, highest]).all():
        return False
    scale = np.maximum(np.abs(lowest), np.abs(highest)).max(initial=0.0)
    return bool((highest - lowest <= TOLERANCE * scale).all())
