"""LowPass between neighbors: what one agent does with its release and the relays that it gets.

An agent knows its own release, the public variance of it, and its edges. It never learns the graph or how
many agents there are. Stages, in order:

    reach     how many hops two agents can be apart;
    degree    everyone tells its neighbors its degree, which is then divided out of the edges;
    mixing    push-sum of public noise: how many rounds everyone needs to agree, a number of the graph;
    mean      push-sum of the releases and of the public noise: everyone gets the same mean;
    hop       a hop of the filter after the other, until a degree is too narrow (see `choice`);
    tally     push-sum of what everyone tallied at the degrees since the last time.

Messages are made of releases, relays and public values alone. The agent is given no population, and
this module cannot import one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from flockwise.arrays import Floats
from flockwise.protocol.choice import (
    Beliefs,
    Figures,
    Mean,
    Signal,
    SmoothingChoice,
    believe,
    choose,
    guessed_signal,
    mean_of,
    measured_signal,
    no_estimates,
    usable,
)
from flockwise.protocol.conversation import PROTOCOLS, Conversation, Direction, Public, Say, Vector
from flockwise.protocol.filter import DEGREES, next_degrees, step_weights
from flockwise.protocol.gossip import PROBE_COLUMNS, Gossip, Neighborhood
from flockwise.protocol.reach import find_reach
from flockwise.protocol.rows import (
    NOISE_COLUMNS,
    AgentRows,
    public_noise,
    quotients,
    released_powers,
    tallies,
    weighted,
)


class LowPassOutcome(NamedTuple):
    """An agent's result: one row of beliefs, the choice that all agents made, and the hops they did."""

    beliefs: Beliefs
    choice: SmoothingChoice
    hops: int


@PROTOCOLS.register
@dataclass(frozen=True)
class LowPassProtocol:
    """A graph filter over as many hops as the releases show to be worth it."""

    name: ClassVar[str] = "lowpass"

    def largest_relay(self, dimension: int) -> int:
        """When agents compare their means, from both sides."""
        return 2 * (dimension + NOISE_COLUMNS)

    def converse(
        self, number: int, public: Public, weights: Mapping[int, float]
    ) -> Conversation[Direction | None]:
        """None for an agent that keeps its local model.

        The direction is taken without what the agent's own release added to it, as in `finish_smoothed`.
        """
        beliefs = (yield from collaborate(number, public, weights)).beliefs
        if not beliefs.collaborates[0]:
            return None
        of_others = beliefs.vectors[0] - beliefs.own_weights[0] * public.vector
        return Direction(of_others, float(np.sqrt(beliefs.shares[0])))


def collaborate(number: int, public: Public, weights: Mapping[int, float]) -> Conversation[LowPassOutcome]:
    """The whole protocol, as one agent sees it."""
    gossip = Gossip(weights, (yield from find_reach(number)))
    neighborhood = yield from _evened(Neighborhood(weights))
    variances = np.array([public.variance])
    released = AgentRows(public.vector[None], public_noise(np.array([number]), variances))
    columns = weighted(released, variances)[0]
    rounds = yield from gossip.rounds_to_agree("mixing", columns[-PROBE_COLUMNS - 1 :])
    mixed = yield from gossip.mean("mean", columns, rounds)
    if np.isposinf(mixed).all():  # nobody released anything
        return LowPassOutcome(no_estimates(1, len(public.vector)), SmoothingChoice(0, 0.0, 0.0, 0.0), 0)
    means = AgentRows.of_columns(mixed[None])
    own = _Own(released.less(means), variances, means, gossip, rounds)
    signal = yield from _signal(public, own)
    hops, figures = [columns], []
    smoothed: list[AgentRows] = []
    while usable(figures, own.mean) is None:
        degrees = next_degrees(len(figures))
        yield from _hop_to(degrees[-1], hops, neighborhood)
        fresh = [quotients((step_weights(d) @ np.array(hops[: d + 1]))[None], means) for d in degrees]
        tallied = yield from own.mean_over_agents(f"tally/{degrees[0]}", fresh)
        figures += [Figures(*row) for row in tallied.tolist()]
        smoothed += fresh
    choice = choose(figures[: usable(figures, own.mean)], own.mean, signal)
    chosen = smoothed[DEGREES.index(choice.degree)]
    tallied = tallies(own.before, chosen, variances)
    return LowPassOutcome(believe(chosen.vectors, tallied, choice, own.mean, signal), choice, len(hops) - 1)


def _evened(neighborhood: Neighborhood) -> Conversation[Neighborhood]:
    """With both ends' degrees divided out of each edge; a silent neighbor is taken to have the same."""
    own = neighborhood.degree
    heard = yield Say("degree", np.array([own]))
    degrees = {other: float(heard[other][0]) if other in heard else own for other in neighborhood.weights}
    return Neighborhood({other: w / (own * degrees[other]) for other, w in neighborhood.weights.items()})


def _hop_to(degree: int, hops: list[Vector], neighborhood: Neighborhood) -> Conversation[None]:
    """Chebyshev's recursion up to a degree: T_1 = P·T_0, T_q = 2P·T_(q−1) − T_(q−2)."""
    while len(hops) <= degree:
        hopped = yield from neighborhood.hop("hop", hops[-1])
        hops.append(hopped if len(hops) == 1 else 2 * hopped - hops[-2])


class _Own:
    """Kept for the tallies: the agent's own row before smoothing, and the mean that all share."""

    def __init__(
        self, before: AgentRows, variances: Floats, means: AgentRows, gossip: Gossip, rounds: int
    ) -> None:
        self.before, self.variances, self.mean = before, variances, mean_of(means)
        self._gossip, self._rounds = gossip, rounds

    def mean_over_agents(self, stage: str, smoothed: list[AgentRows]) -> Conversation[Floats]:
        """Means of tallies over agents, weighted by precision, one row per degree."""
        rows = [tallies(self.before, after, self.variances)[0] for after in smoothed]
        units = self.mean.variance * np.array([len(self.mean.vector), len(self.mean.vector), 1, 0])
        return (yield from self.gossiped(stage, np.array(rows), np.where(units > 0, units, 1.0)))

    def gossiped(self, stage: str, rows: Floats, units: Floats) -> Conversation[Floats]:
        """In units that make all entries comparable, since gossip ends by the largest."""
        precision = 1 / self.variances
        numbers = (rows / units).ravel()
        sums = np.concatenate([precision * numbers, precision])
        mixed = yield from self._gossip.mean(stage, sums, self._rounds)
        return mixed.reshape(rows.shape) * units


def _signal(public: Public, own: _Own) -> Conversation[Signal]:
    mean: Mean = own.mean
    if public.signal_power is not None:
        return guessed_signal(public.signal_power, mean)
    powers = released_powers(own.before, own.variances, np.array([public.noise_variance]))
    units = mean.variance * np.array([len(mean.vector), 1])
    square, variance = (yield from own.gossiped("power", powers, units))[0]
    return measured_signal(float(square), float(variance), mean)
