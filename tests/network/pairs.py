"""Agents from their folders, on a network in memory: real ledgers, real stores, secure noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flockwise.graph import SimilarityGraph
from flockwise.net.folder import AgentFolder, OwnBudget
from flockwise.net.memory import MemoryNetwork
from flockwise.net.resident import open_resident
from flockwise.net.setup import Member, create_network, free_addresses
from flockwise.net.task import Task
from flockwise.net.time import SECOND, ManualTime

NETWORK = "meadow"


def make_folders(folder: Path, points, privacy: OwnBudget | None, *, updates, max_samples=8) -> list[Path]:
    """A complete network of agents who each know all others; `points` of each."""
    addresses = free_addresses("127.0.0.1", len(points))
    members = [
        Member(f"agent{i}", features, targets, privacy, address)
        for i, ((features, targets), address) in enumerate(zip(points, addresses, strict=True))
    ]
    edges = np.argwhere(np.triu(np.ones((len(points), len(points))), 1))
    label = "none" if privacy is None else "dp"
    task = Task("logistic", 2.0, max_samples, label, feature_bound=1.0, updates=updates)
    graph = SimilarityGraph.from_edges(len(points), edges, np.ones(len(edges)))
    dimension = points[0][0].shape[1]
    create_network(folder, NETWORK, members, graph, task, dimension=dimension, tick_rate=4.0)
    return [folder / "agents" / member.name for member in members]


class Pair:
    """Two agents that run."""

    def __init__(self, paths, time=None):
        self.time, self.network = ManualTime() if time is None else time, MemoryNetwork()
        self.residents = [open_resident(AgentFolder.read(path), self.network, self.time) for path in paths]
        for resident in self.residents:
            resident.node.start(self.time.now())
        for resident in self.residents:
            others = [link.name for link in resident.neighborhood.neighbors]
            self.network.attach(resident.node.name, resident.node, others)
        self.network.deliver_all()

    def run(self, seconds):
        end = self.time.now() + round(seconds * SECOND)
        nodes = [resident.node for resident in self.residents]
        while (wakes := [w for node in nodes if (w := node.next_wake()) is not None]) and min(wakes) <= end:
            self.time.move_to(max(min(wakes), self.time.now()))
            for node in nodes:
                node.tick(self.time.now())
            self.network.deliver_all()
        self.time.move_to(end)

    def close(self):
        for resident in self.residents:
            resident.node.stop()
            resident.close()

    def die(self):
        """As a killed process does: the system gives back what it held, and nothing is written any more."""
        for resident in self.residents:
            resident.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
