"""gossipy: a node merges the model that a neighbor pushed, and takes a step on all its samples."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# ruff: noqa: E402

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import torch

# Its data sets need torchvision, which it does not ask for, and this job does not use them.
sys.modules["torchvision"] = ModuleType("torchvision")

from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork
from gossipy.model.handler import TorchModelHandler
from gossipy.model.nn import LogisticRegression
from gossipy.node import GossipNode
from gossipy.simul import GossipSimulator, SimulationReport

from benchmarks.peer_jobs.job import LEARNING_RATE, Job, Rounds, report

# Points of time in a round, at one of which a node sends its model.
STEPS = 10


class Messages(SimulationReport):
    """How many models were sent by the end of each round: each one makes an update at once."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = Rounds()

    def update_timestep(self, t: int) -> None:
        if (t + 1) % STEPS == 0:
            self.rounds.ended(self._sent_messages)


class Data:
    """The parts of a data dispatcher that a simulator asks for: there is nothing to test on."""

    def __init__(self, job: Job) -> None:
        features, targets = job.data()
        self.parts = [
            ((torch.from_numpy(x), torch.from_numpy((y[:, None] + 1) / 2)), None)
            for x, y in zip(features, targets, strict=True)
        ]

    def __getitem__(self, agent: int):
        return self.parts[agent]

    def has_test(self) -> bool:
        return False


def work(job: Job) -> tuple[Rounds, np.ndarray]:
    torch.set_num_threads(1)
    topology = np.zeros((job.agents, job.agents), np.int64)
    np.put_along_axis(topology, job.ring(), 1, axis=1)
    data, model = Data(job), LogisticRegression(job.features, 1)
    torch.nn.init.zeros_(model.model.weight)
    torch.nn.init.zeros_(model.model.bias)
    handler = TorchModelHandler(
        net=model,
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": LEARNING_RATE},
        criterion=torch.nn.BCEWithLogitsLoss(),
        local_epochs=1,
        batch_size=0,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    network = StaticP2PNetwork(job.agents, topology)
    nodes = GossipNode.generate(data, network, handler, STEPS, sync=True)
    simulator = GossipSimulator(nodes, data, STEPS, AntiEntropyProtocol.PUSH)
    messages = Messages()
    simulator.add_receiver(messages)
    simulator.init_nodes()
    simulator.start(1 + job.rounds)
    weights = [nodes[i].model_handler.model.model.weight for i in range(job.agents)]
    return messages.rounds, torch.cat(weights).detach().numpy()


if __name__ == "__main__":
    report(work, "gossipy-dfl", "torch", "numpy")
