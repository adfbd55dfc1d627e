"""Conversations by agents in one process: delivers relays, counts them, and can lose some. The oracle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from flockwise.method.rules import Outcome, Rounds, Traffic
from flockwise.privacy.messages import Relay
from flockwise.protocol.conversation import TalkingAgent

Loses = Callable[[Relay, int], bool]


def never(relay: Relay, receiver: int) -> bool:
    """No relay is lost."""
    return False


def run_rounds(rule: Rounds, *, loses: Loses = never) -> Outcome:
    """The conversation with all agents that have neighbors, until each has its outcome."""
    numbers = rule.ids.tolist()
    agents, neighbors = {}, {}
    for position, number in enumerate(numbers):
        edges = {numbers[other]: weight for other, weight in rule.edges.around(position).items()}
        if edges:
            talk = rule.converse(position, number, edges)
            agents[number] = TalkingAgent(number, edges, talk, rule.release(position))
            neighbors[number] = list(edges)
    traffic = converse(neighbors, agents, loses=loses)
    found = {position: agents[number].outcome for position, number in enumerate(numbers) if number in agents}
    return rule.collect(found, traffic)


def converse(
    neighbors: Mapping[int, list[int]], agents: Mapping[int, TalkingAgent[Any]], *, loses: Loses = never
) -> Traffic:
    """Until each agent has its outcome; what was sent.

    loses: whether a relay is lost on its way to a receiver. When nothing is on its way any more, all
    agents that wait have a time-out.
    """
    traffic, post = Traffic.none(), deque[tuple[int, Relay]]()

    def send(relays: list[Relay]) -> None:
        for relay in relays:
            receivers = neighbors[relay.sender]
            traffic.add(relay.stage.split("/")[0], len(receivers), len(relay.vector))
            post.extend((other, relay) for other in receivers if not loses(relay, other))

    for agent in agents.values():
        send(agent.start())
    while not all(agent.is_over for agent in agents.values()):
        while post:
            receiver, relay = post.popleft()
            send(agents[receiver].on_relay(relay))
        for agent in agents.values():
            send(agent.on_timeout())
    return traffic
