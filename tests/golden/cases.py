"""Small runs of every method on both engines, whose results are kept in golden.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from flockwise.data import Population
from flockwise.engine import Conditions, simulate
from flockwise.graph import SimilarityGraph
from flockwise.method import (
    CoordinateDescent,
    Global,
    GossipADMM,
    Local,
    LocalDP,
    LowPass,
    ModelPropagation,
    PrivateUpdates,
    ReleaseOnce,
    WarmStart,
)
from flockwise.objective import CappedLogistic, Huber, Logistic, Objective, Problem, Quadratic, Softmax
from flockwise.privacy.budget import Budget
from flockwise.release import ObjectivePerturbation, OutputPerturbation, PointMean

SEEDS = (0, 7)
LOSSES = (Logistic(), CappedLogistic(), Softmax(3), Quadratic(), Huber(0.7))
BUDGET = Budget(2.0, 1e-5)
BOUND = 1.5


class Case(NamedTuple):
    """One run: `run(engine, seed)` returns a trajectory."""

    name: str
    engines: tuple[str, ...]
    run: Callable[[str, int], Any]


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


def _run(problem: Problem, method: Any, **options: Any) -> Callable[[str, int], Any]:
    return lambda engine, seed: simulate(
        problem, method, engine=engine, seed=seed, test=problem.population, record_every=2.0, **options
    )


def _solved(problem: Problem, method: Any) -> Callable[[str, int], Any]:
    return lambda engine, seed: simulate(problem, method, engine=engine, seed=seed, test=problem.population)


def _private(
    mechanism: Any, accountant: str, budget: Budget = BUDGET, costs: Any = "uniform"
) -> PrivateUpdates:
    return PrivateUpdates(budget, 6, 0.5, mechanism, accountant, costs)


def cases() -> Iterator[Case]:
    for loss in LOSSES:
        name = type(loss).__name__.lower()
        yield Case(f"cd/{name}", BOTH, _run(problem_for(loss), CoordinateDescent(), updates=6))
        private = problem_for(loss, private=True)
        method = CoordinateDescent(privacy=_private("gaussian", "gdp"))
        yield Case(f"private-cd/{name}", BOTH, _run(private, method))
    logistic, private = problem_for(Logistic()), problem_for(Logistic(), private=True)
    yield Case("cd/local-start", BOTH, _run(logistic, CoordinateDescent("local"), updates=6))
    yield Case(
        "cd/float32", BOTH, _run(problem_for(Logistic(), dtype=np.float32), CoordinateDescent(), updates=6)
    )
    weather = Conditions(delay=0.4, delay_kind="exponential", loss=0.2, offline_share=0.3, offline_length=2.0)
    yield Case("cd/conditions", BOTH, _run(logistic, CoordinateDescent(), updates=6, conditions=weather))
    yield Case("cd/ticks", BOTH, _run(logistic, CoordinateDescent(), ticks=37))
    yield Case("propagation", BOTH, _run(logistic, ModelPropagation(), updates=6))
    yield Case("admm", BOTH, _run(logistic, GossipADMM(penalty=0.3), updates=4))
    for mechanism, accountant in (("laplace", "pld"), ("laplace", "theorem1"), ("knorm", "basic")):
        method = CoordinateDescent(privacy=_private(mechanism, accountant))
        yield Case(f"private-cd/{mechanism}-{accountant}", BOTH, _run(private, method))
    late = CoordinateDescent(privacy=_private("gaussian", "zcdp", costs=(1.0, 1.2, 1.5, 1.9, 2.5, 3.0)))
    yield Case("private-cd/late", BOTH, _run(private, late))

    def warm(engine: str, seed: int) -> Any:
        start = WarmStart(OutputPerturbation(l2=0.5), cost=2.0)
        return _run(private, CoordinateDescent(start, _private("gaussian", "gdp")))(engine, seed)

    yield Case("private-cd/warm", BOTH, warm)
    for statistic in (PointMean(), OutputPerturbation(l2=0.5), ObjectivePerturbation(l2=2.0)):
        method = ReleaseOnce(BUDGET, statistic)
        yield Case(f"release-once/{statistic.name}", BOTH, _run(private, method, updates=6))
    yield Case("lowpass/mean", ("cpu",), _solved(private, ReleaseOnce(BUDGET, smoother=LowPass())))
    quadratic = problem_for(Quadratic(), private=True)
    wide = OutputPerturbation(width=1.0, l2=0.5)
    yield Case("lowpass/output", ("cpu",), _solved(quadratic, ReleaseOnce(BUDGET, wide, LowPass())))
    yield Case("local-dp", ("cpu",), _solved(private, LocalDP(BUDGET)))
    yield Case("local", ("cpu",), _solved(logistic, Local()))
    yield Case("global", ("cpu",), _solved(logistic, Global()))
