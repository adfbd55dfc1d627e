"""What all of them do: logistic models of agents on a ring, round after round. Needs NumPy alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

LEARNING_RATE = 0.5
ENOUGH_SECONDS = 0.5


@dataclass(frozen=True)
class Job:
    """`rounds` updates an agent are timed, after a first round that is not.

    Where these take too little time, as many more are timed; the loss is that after the first `rounds`.
    """

    agents: int
    samples: int
    features: int
    neighbors: int
    rounds: int
    seed: int = 0

    # Kept: a process that serves many agents makes it once.
    @cache  # noqa: B019
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Features of shape (agents, samples, features) and targets −1 or 1, in float32."""
        random = np.random.default_rng(self.seed)
        models = random.normal(size=self.features) + 0.3 * random.normal(size=(self.agents, self.features))
        features = random.uniform(-1, 1, (self.agents, self.samples, self.features))
        scores = np.einsum("imp,ip->im", features, models)
        targets = np.where(random.random(scores.shape) < 1 / (1 + np.exp(-scores)), 1, -1)
        return features.astype(np.float32), targets.astype(np.float32)

    def ring(self) -> np.ndarray:
        """The neighbors of each agent: the nearest ones on both sides."""
        half = np.arange(1, self.neighbors // 2 + 1)
        steps = np.concatenate([-half[::-1], half])
        return (np.arange(self.agents)[:, None] + steps) % self.agents

    def loss(self, models: np.ndarray) -> float:
        """The mean logistic loss on the agents' own samples; log 2 before the first update."""
        features, targets = self.data()
        models = np.broadcast_to(models, (self.agents, self.features))
        return float(np.logaddexp(0, -targets * np.einsum("imp,ip->im", features, models)).mean())


class Moment(NamedTuple):
    """The end of a round: updates done by then, the time, and the processor time used by then."""

    updates: int
    seconds: float
    processor_seconds: float


@dataclass
class Rounds:
    """When rounds ended. used: processor time so far, of all processes that do the job."""

    used: Callable[[], float] = time.process_time
    ends: list[Moment] = field(default_factory=list)

    def ended(self, updates: int) -> None:
        self.ends.append(Moment(updates, time.perf_counter(), self.used()))

    @property
    def are_enough(self) -> bool:
        """Whether they have taken long enough, in processor time."""
        return self.ends[-1].processor_seconds - self.ends[0].processor_seconds >= ENOUGH_SECONDS


def gradient(features: np.ndarray, targets: np.ndarray, model: np.ndarray) -> np.ndarray:
    """Of the mean logistic loss, for software that leaves the model to its user."""
    slopes = -targets / (1 + np.exp(targets * (features @ model)))
    return slopes @ features / len(targets)


def report(work: Callable[[Job], tuple[Rounds, np.ndarray]], *packages: str) -> None:
    """Do the job of the command line; its last line says what the rounds after the first took."""
    job = Job(**json.loads(sys.argv[1]))
    rounds, models = work(job)
    first, last = rounds.ends[0], rounds.ends[-1]
    result: dict[str, Any] = {
        "updates": last.updates - first.updates,
        "seconds": last.seconds - first.seconds,
        "processor_seconds": last.processor_seconds - first.processor_seconds,
        "loss": job.loss(models),
        "versions": {package: version(package) for package in packages},
    }
    print(json.dumps(result))
