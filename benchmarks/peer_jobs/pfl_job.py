"""pfl-research: a user of the cohort takes a step from the server's model, and these are averaged."""

# pyright: reportMissingImports=false

from __future__ import annotations

import itertools

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.peer_jobs.job import LEARNING_RATE, Job, Rounds, report


class Logistic(torch.nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(features))

    def loss(self, features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.train()
        return torch.nn.functional.softplus(-targets * (features @ self.weight)).mean()

    def metrics(self, features: torch.Tensor, targets: torch.Tensor) -> dict:
        """Asked for in the first round alone, which is not timed."""
        return {"loss": Weighted(self.loss(features, targets).item(), 1)}


class OneStep(FederatedAveraging):
    """Counts the users that were trained."""

    trained = 0

    def train_one_user(self, *arguments):
        self.trained += 1
        return super().train_one_user(*arguments)


class EndOfRound(TrainingProcessCallback):
    """When rounds ended."""

    def __init__(self, algorithm: OneStep) -> None:
        self.algorithm, self.rounds = algorithm, Rounds()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.rounds.ended(self.algorithm.trained)
        return False, Metrics()


def work(job: Job) -> tuple[Rounds, np.ndarray]:
    torch.set_num_threads(1)
    features, targets = job.data()
    users = [
        Dataset((torch.from_numpy(x), torch.from_numpy(y))) for x, y in zip(features, targets, strict=True)
    ]
    turns = itertools.cycle(range(job.agents))
    everyone = FederatedDataset(users.__getitem__, lambda: next(turns))
    module = Logistic(job.features)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    algorithm = OneStep()
    callback = EndOfRound(algorithm)
    algorithm.run(
        NNAlgorithmParams(
            central_num_iterations=1 + job.rounds,
            evaluation_frequency=2 + job.rounds,
            train_cohort_size=job.agents,
            val_cohort_size=None,
        ),
        SimulatedBackend(everyone, everyone),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=None),
        callbacks=[callback],
    )
    return callback.rounds, module.weight.detach().numpy()


if __name__ == "__main__":
    report(work, "pfl", "torch", "numpy")
