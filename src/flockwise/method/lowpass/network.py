"""Agents of the protocol in one process: delivers relays, counts them, and can lose some."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from flockwise.graph import SimilarityGraph
from flockwise.method.conversation import Public, TalkingAgent
from flockwise.method.lowpass.central import Smoothing, nothing_smoothed
from flockwise.method.lowpass.protocol import LowPassAgent
from flockwise.method.lowpass.traffic import Traffic
from flockwise.method.released import Released
from flockwise.privacy.messages import Relay

Loses = Callable[[Relay, int], bool]


def never(relay: Relay, receiver: int) -> bool:
    """No relay is lost."""
    return False


def run_protocol(
    graph: SimilarityGraph, released: Released, signal_power: float | None, *, loses: Loses = never
) -> tuple[Smoothing, Traffic]:
    """The protocol with all agents, until each has its outcome."""
    agents = {agent.number: agent for agent in _agents(graph, released, signal_power)}
    traffic = converse(graph, agents, loses=loses)
    return _collected(graph, agents, released.vectors.shape[1]), traffic


def converse(
    graph: SimilarityGraph, agents: Mapping[int, TalkingAgent[Any]], *, loses: Loses = never
) -> Traffic:
    """Until each agent has its outcome; what was sent.

    loses: whether a relay is lost on its way to a receiver. When nothing is on its way any more, all
    agents that wait have a time-out.
    """
    traffic, post = Traffic(), deque[tuple[int, Relay]]()

    def send(relays: list[Relay]) -> None:
        for relay in relays:
            neighbors = graph.neighbors_of(relay.sender)[0].tolist()
            traffic.count(relay, len(neighbors))
            post.extend((other, relay) for other in neighbors if not loses(relay, other))

    for agent in agents.values():
        send(agent.start())
    while not all(agent.is_over for agent in agents.values()):
        while post:
            receiver, relay = post.popleft()
            send(agents[receiver].on_relay(relay))
        for agent in agents.values():
            send(agent.on_timeout())
    return traffic


def _agents(graph: SimilarityGraph, released: Released, signal_power: float | None) -> Iterator[LowPassAgent]:
    for agent in np.flatnonzero(graph.neighbor_counts).tolist():
        public = Public(
            released.vectors[agent],
            float(released.variances[agent]),
            float(released.noise_variances[agent]),
            signal_power,
        )
        neighbors, weights = graph.neighbors_of(agent)
        ties = dict(zip(neighbors.tolist(), weights.tolist(), strict=True))
        yield LowPassAgent(agent, public, ties)


def _collected(graph: SimilarityGraph, agents: dict[int, LowPassAgent], dimension: int) -> Smoothing:
    found = nothing_smoothed(graph.n_agents, dimension)
    for number, agent in agents.items():
        outcome = agent.outcome
        assert outcome is not None
        for whole, part in zip(found.beliefs, outcome.beliefs, strict=True):
            whole[number] = part[0]
        found.degrees[number], found.hops[number] = outcome.choice.degree, outcome.hops
        found.chances[number] = outcome.choice.chance
    return found
