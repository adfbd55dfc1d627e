"""Agents in the memory of one process: for tests of programs that use them, and for our own.

    network, time = MemoryNetwork(), ManualTime()
    agents = [
        make_participant(one, AgentMemory(name).resources(network, time, SimulatedNoise(0, number)))
        for number, (name, one) in enumerate(define_agents(settings, graph, samples).items())
    ]
    start_agents(agents, network, time)
    run_for(60, agents, network, time)

They are made of the same parts as agents on disk (flockwise.net.participant). Time stands still until it is
moved, packets wait until they are delivered, and `AgentMemory` keeps what a disk would keep, so an agent can
be made again from it. Nothing here is for real data: keys follow from names, and noise from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Final

from flockwise.data.samples import Samples
from flockwise.graph import SimilarityGraph
from flockwise.net.folder import NoPrivacy, OwnBudget
from flockwise.net.memory import AgentMemory, ManualTime, MemoryJournal, MemoryNetwork, MemoryStore, Packet
from flockwise.net.participant import AgentDefinition, Participant, make_participant
from flockwise.net.roster import Place, neighborhoods
from flockwise.net.settings import NetworkSettings
from flockwise.net.signing import SigningKey, public_key_of
from flockwise.net.time import SECOND, Time
from flockwise.net.transport import Switchboard
from flockwise.privacy.ledger import MemoryLedger
from flockwise.privacy.noise import SimulatedNoise

__all__ = [
    "AgentMemory",
    "ManualTime",
    "MemoryJournal",
    "MemoryLedger",
    "MemoryNetwork",
    "MemoryStore",
    "NetworkSettings",
    "OwnBudget",
    "Packet",
    "Samples",
    "SimulatedNoise",
    "define_agents",
    "key_for_tests",
    "make_participant",
    "run_for",
    "start_agents",
    "step",
]

# Where agents in memory are said to be: nobody ever connects to it.
ADDRESS: Final = "127.0.0.1:7447"


def define_agents(
    settings: NetworkSettings,
    graph: SimilarityGraph,
    samples: Mapping[str, Samples],
    privacy: NoPrivacy | OwnBudget | None = None,
    *,
    network: str = "test",
    version: int = 1,
    tick_rate: float = 1.0,
) -> dict[str, AgentDefinition]:
    """All agents of a network, by name. samples: of each agent, in the order of the graph."""
    keys = {name: key_for_tests(name) for name in samples}
    places = [Place(name, name, ADDRESS, public_key_of(key)) for name, key in keys.items()]
    n_features = next(iter(samples.values())).features.shape[1]
    slices = neighborhoods(
        network,
        version,
        graph,
        places,
        dimension=settings.objective.loss.outputs * n_features,
        tick_rate=tick_rate,
        settings=settings.to_json(),
    )
    own = NoPrivacy() if privacy is None else privacy
    return {one.agent: AgentDefinition(one, own, samples[one.agent], keys[one.agent]) for one in slices}


def key_for_tests(name: str) -> SigningKey:
    """The same for the same name, so anybody can have it."""
    return SigningKey.from_private_bytes(random.Random(name).randbytes(32))


def start_agents(participants: Collection[Participant], network: Switchboard, time: Time) -> None:
    """Start them, and then plug all of them in."""
    for one in participants:
        one.node.start(time.now())
    for one in participants:
        network.attach(one.node.name, one.node, [link.name for link in one.neighborhood.neighbors])


def run_for(
    seconds: float, participants: Collection[Participant], network: MemoryNetwork, time: ManualTime
) -> None:
    """Let time pass: agents tick when they are due, and what they send arrives at once."""
    end = time.now() + round(seconds * SECOND)
    network.deliver_all()
    while step(participants, time, until=end):
        network.deliver_all()
    time.move_to(end)


def step(participants: Collection[Participant], time: ManualTime, until: int | None = None) -> bool:
    """Move the time to when the next agent is due, and tick all that are due then.

    False if none is, or none before `until`.
    """
    due = min((wake for one in participants if (wake := one.node.next_wake()) is not None), default=None)
    if due is None or (until is not None and due > until):
        return False
    time.move_to(max(due, time.now()))
    for one in participants:
        wake = one.node.next_wake()
        if wake is not None and wake <= time.now():
            one.node.tick(time.now())
    return True
