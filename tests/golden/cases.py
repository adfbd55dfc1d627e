"""Small runs of every method on both engines, whose results are kept in golden.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from flockwise.data import Population
from flockwise.engine import Conditions, simulate
from flockwise.graph import SimilarityGraph
from flockwise.method import (
    CoordinateDescent,
    Global,
    GossipADMM,
    LearnedPrior,
    Local,
    LocalDP,
    LowPass,
    ModelPropagation,
    PrivateUpdates,
    ReleaseOnce,
    TunedLocal,
    WarmStart,
)
from flockwise.objective import CappedLogistic, Huber, Logistic, Objective, Problem, Quadratic, Softmax
from flockwise.privacy.budget import Budget
from flockwise.release import ObjectivePerturbation, OutputPerturbation, PointMean

SEEDS = (0, 7)
LOSSES = (Logistic(), CappedLogistic(), Softmax(3), Quadratic(), Huber(0.7))
BUDGET = Budget(2.0, 1e-5)
# For ten agents that add up: noise for one of them is too much for all.
ROOMY = Budget(20.0, 1e-3)
BOUND = 1.5


class Case(NamedTuple):
    """One run: `run(engine, seed)` returns a trajectory."""

    name: str
    engines: tuple[str, ...]
    problem: Problem
    method: Any
    options: dict[str, Any]

    def run(self, engine: str, seed: int) -> Any:
        return simulate(
            self.problem, self.method, engine=engine, seed=seed, test=self.problem.population, **self.options
        )


def problem_for(
    loss: Any, *, dtype: Any = np.float64, private: bool = False, l2: float | None = None
) -> Problem:
    """Ten agents with 0 to 9 samples of 3 features on a random graph, the same every time."""
    random = np.random.default_rng(42)
    counts = np.array([0, 3, 9, 1, 5, 7, 2, 8, 4, 6])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    features = random.normal(size=(offsets[-1], 3))
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True) / (0.99 * BOUND), 1.0)
    if loss.metric == "rmse":
        targets = random.normal(size=offsets[-1])
    elif loss.outputs == 1:
        targets = random.choice([-1.0, 1.0], offsets[-1])
    else:
        targets = random.integers(0, loss.outputs, offsets[-1]).astype(float)
    weights = np.triu(random.uniform(0.1, 2.0, (10, 10)), 1) * (random.random((10, 10)) < 0.4)
    edges = np.argwhere(weights > 0)
    graph = SimilarityGraph.from_edges(10, edges, weights[edges[:, 0], edges[:, 1]])
    population = Population.packed(features.astype(dtype), targets.astype(dtype), offsets)
    bound = BOUND if private else None
    return Problem(population, graph, Objective(loss, tradeoff=0.7, l2=l2, feature_bound=bound))


BOTH = ("reference", "cpu")


def _run(name: str, problem: Problem, method: Any, engines: tuple[str, ...] = BOTH, **options: Any) -> Case:
    return Case(name, engines, problem, method, {"record_every": 2.0} | options)


def _solved(name: str, problem: Problem, method: Any, engines: tuple[str, ...] = BOTH) -> Case:
    return Case(name, engines, problem, method, {})


def _private(
    mechanism: Any, accountant: str, budget: Budget = BUDGET, costs: Any = "uniform"
) -> PrivateUpdates:
    return PrivateUpdates(budget, 6, 0.5, mechanism, accountant, costs)


def cases() -> Iterator[Case]:
    for loss in LOSSES:
        name = type(loss).__name__.lower()
        yield _run(f"cd/{name}", problem_for(loss), CoordinateDescent(), updates=6)
        private = problem_for(loss, private=True)
        method = CoordinateDescent(privacy=_private("gaussian", "gdp"))
        yield _run(f"private-cd/{name}", private, method)
    logistic, private = problem_for(Logistic()), problem_for(Logistic(), private=True)
    yield _run("cd/local-start", logistic, CoordinateDescent("local"), updates=6)
    yield _run("cd/float32", problem_for(Logistic(), dtype=np.float32), CoordinateDescent(), updates=6)
    weather = Conditions(delay=0.4, delay_kind="exponential", loss=0.2, offline_share=0.3, offline_length=2.0)
    yield _run("cd/conditions", logistic, CoordinateDescent(), updates=6, conditions=weather)
    yield _run("cd/ticks", logistic, CoordinateDescent(), ticks=37)
    yield _run("cd/clipped", logistic, CoordinateDescent(neighbors="clipped"), ("reference",), updates=6)
    yield _run("propagation", logistic, ModelPropagation(), updates=6)
    yield _run("admm", logistic, GossipADMM(penalty=0.3), updates=4)
    for mechanism, accountant in (("laplace", "pld"), ("laplace", "theorem1"), ("knorm", "basic")):
        method = CoordinateDescent(privacy=_private(mechanism, accountant))
        yield _run(f"private-cd/{mechanism}-{accountant}", private, method)
    late = CoordinateDescent(privacy=_private("gaussian", "zcdp", costs=(1.0, 1.2, 1.5, 1.9, 2.5, 3.0)))
    yield _run("private-cd/late", private, late)
    # Twice the ε of one of six updates.
    start = WarmStart(l2=0.5, share=2 / (2 + 6**0.5), tradeoff=None)
    yield _run("private-cd/warm", private, CoordinateDescent(start, _private("gaussian", "gdp")))
    clipped = CoordinateDescent(privacy=_private("gaussian", "gdp"), neighbors="clipped")
    yield _run("private-cd/clipped", private, clipped, ("reference",))
    for statistic in (PointMean(), OutputPerturbation(l2=0.5), ObjectivePerturbation(l2=2.0)):
        method = ReleaseOnce(BUDGET, statistic)
        yield _run(f"release-once/{statistic.name}", private, method, updates=6)
    yield _solved("lowpass/mean", private, ReleaseOnce(BUDGET, smoother=LowPass()))
    quadratic = problem_for(Quadratic(), private=True)
    wide = OutputPerturbation(width=1.0, l2=0.5)
    yield _solved("lowpass/output", quadratic, ReleaseOnce(BUDGET, wide, LowPass()))
    yield _solved("local-dp", private, LocalDP(BUDGET))
    for spread in ("default", "number", "matrix"):
        yield _solved(f"private-learned-prior/{spread}", private, LearnedPrior(ROOMY, spread=spread))
    ranged = Problem(quadratic.population, None, replace(quadratic.objective, target_range=(-2.0, 2.0)))
    yield _solved("private-learned-prior/quadratic", ranged, LearnedPrior(ROOMY, spread="number"))
    for loss in (Logistic(), Quadratic()):
        name = type(loss).__name__.lower()
        yield _solved(f"learned-prior/{name}", problem_for(loss), LearnedPrior(), ("cpu",))
    yield _solved("local", logistic, Local(), ("cpu",))
    yield _solved("tuned-local", logistic, TunedLocal(), ("cpu",))
    yield _solved("global", logistic, Global(), ("cpu",))
