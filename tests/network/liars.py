"""What lying neighbors do, with each mean of neighbors' models: `python -m tests.network.liars`.

Real agents in memory learn the paper's task. In the second half of the runs each of them has one more
neighbor, which holds a fifth of the weight around it and answers every model with its opposite: as large as
agents take (see `magnitude_bound`), as long as the objective allows a model to be, or as long as the model
itself. Accuracies are means over the agents, on test samples that they have not seen.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
from tests.network.world import MemoryWorld, named, samples_of

from flockwise.data import LinearTask, Samples, linear_classification
from flockwise.deploy.folder import OwnBudget
from flockwise.deploy.settings import NetworkSettings, magnitude_bound
from flockwise.graph import SimilarityGraph, knn_graph
from flockwise.net.signing import SigningKey, Verifier
from flockwise.net.wire import Greeting, ModelBody, PrivacyLabel, greet, open_signed, sign
from flockwise.objective import Objective, Problem
from flockwise.privacy.messages import decode, encode
from flockwise.protocol.aggregation import NEIGHBOR_MEANS, Neighbors
from flockwise.runtime.testing import MemoryNetwork, SimulatedNoise, define_agents, key_for_tests

SHARE = 0.2  # of the weight around a victim
DIMENSION = 20
TRADEOFF = 4.0
NEIGHBORS = 10
EPSILONS = (None, 4.0, 1.0)
Lie = Literal["none", "large", "allowed", "long"]
LIES: tuple[Lie, ...] = ("none", "large", "allowed", "long")


@dataclass
class Liar:
    """Answers every model of its victim with the opposite, under its own name and key."""

    name: str
    key: SigningKey
    weight: float
    label: PrivacyLabel
    network: MemoryNetwork
    size: float | None  # the largest coordinate of a lie; None: as in the model

    def on_published(self, sender: str, data: bytes) -> None:
        body = open_signed(data, len(data)).body
        assert isinstance(body, ModelBody)
        number, model = decode(body.payload)
        largest = np.abs(model).max()
        if largest > 0:
            lie = -model if self.size is None else -model * (self.size / largest)
            payload = encode(number, lie)
            self.network.publish(
                self.name, sign(ModelBody("test", self.name, number, self.label, payload), self.key)
            )

    def on_greeting(self, sender: str, data: bytes) -> None:
        """Its victim would wait for one."""

    def on_presence(self, neighbor: str, is_up: bool) -> None:
        if is_up:
            self.network.send(self.name, neighbor, greet(Greeting(self.weight, 1, None, None, True)))


@dataclass(frozen=True)
class Outcome:
    """Accuracies of released models and of own models, and the longest released model."""

    released: float
    own: float
    longest: float


def with_liars(graph: SimilarityGraph) -> SimilarityGraph:
    """One more agent beside each, and connected to nobody else."""
    n, around = graph.n_agents, graph.to_scipy().tocoo()
    upper = around.row < around.col
    edges = [*zip(around.row[upper], around.col[upper], strict=True), *((i, n + i) for i in range(n))]
    weights = [*around.data[upper], *(graph.degrees * SHARE / (1 - SHARE))]
    return SimilarityGraph.from_edges(2 * n, np.array(edges), np.array(weights))


def measure(
    task: LinearTask, neighbors: Neighbors, lie: Lie, epsilon: float | None, updates: int, k: int = NEIGHBORS
) -> Outcome:
    """One network on one task."""
    objective = Objective(tradeoff=TRADEOFF, max_samples=100, feature_bound=DIMENSION**0.5)
    problem, n = Problem(task.train, knn_graph(task.targets, k), objective), task.train.n_agents
    label: PrivacyLabel = "none" if epsilon is None else "dp"
    bound = magnitude_bound(objective, label)
    settings = NetworkSettings(objective, label, updates, neighbors, magnitude_bound=bound)
    graph, samples = problem.neighbors, samples_of(problem)
    if lie != "none":
        graph = with_liars(graph)
        samples += [Samples(np.zeros((0, DIMENSION)), np.zeros(0))] * n
    budget = None if epsilon is None else OwnBudget(epsilon=epsilon, delta=1e-5, updates=updates, clip=1.0)
    definitions = define_agents(settings, graph, named(samples), budget)
    honest = dict(list(definitions.items())[:n])
    world = MemoryWorld(honest, noise=partial(SimulatedNoise, task.seed), verifier=Verifier())
    for number, (name, definition) in enumerate(list(definitions.items())[n:]):
        weight = definition.neighborhood.neighbors[0].weight
        size = {"large": bound, "allowed": objective.largest_norm / DIMENSION**0.5}.get(lie)
        liar = Liar(name, key_for_tests(name), weight, label, world.network, size)
        world.network.attach(name, liar, [f"agent{number}"])
    with world:
        world.run(updates + 5)
        agents = [world[number] for number in range(n)]
        released = [one.node.agent.model for one in agents]
        tests = [task.test.samples(number) for number in range(n)]
        return Outcome(
            float(np.mean([accuracy(x @ model, y) for model, (x, y) in zip(released, tests, strict=True)])),
            float(np.mean([accuracy(one.predict(x), y) for one, (x, y) in zip(agents, tests, strict=True)])),
            max(float(np.linalg.norm(model)) for model in released),
        )


def accuracy(scores: np.ndarray, targets: np.ndarray) -> float:
    return float(np.mean(np.sign(scores) == targets))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.network.liars", description=__doc__)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    tasks = [linear_classification(options.agents, DIMENSION, seed=seed) for seed in range(options.seeds)]
    print(f"{'epsilon':8} {'neighbors':9} {'lies':6} released  own   longest")
    for epsilon, lie, neighbors in product(EPSILONS, LIES, NEIGHBOR_MEANS):
        found = [measure(task, neighbors, lie, epsilon, options.updates) for task in tasks]
        released, own = (np.mean([getattr(one, what) for one in found]) for what in ("released", "own"))
        longest = max(one.longest for one in found)
        budget = "none" if epsilon is None else epsilon
        print(f"{budget:<8} {neighbors:9} {lie:6} {released:.3f}     {own:.3f} {longest:.4g}", flush=True)


if __name__ == "__main__":
    main()
