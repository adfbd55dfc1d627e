"""Private coordinate descent tuned as the paper tunes it: on other instances, for each dimension and ε.

    printed    the noise of Theorem 1 with L₀ = 1, nothing clipped, the last iterate: no guarantee
    laplace    Laplace noise with every gradient clipped in L1: the guarantee of Theorem 1 holds
    gaussian   normal noise with every gradient clipped in L2: a guarantee, and tighter accounting
    zeros      the same from zero models, with the whole budget for updates

The others start from released models that are propagated; that release alone costs ε = .05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np

from experiments.printed import descend_as_printed, private_start
from experiments.published import DELTA
from experiments.ratings_rule import climb
from experiments.synthetic import PAPER_GRAPH, Instance, instance
from experiments.warm import warm_start
from flockwise.engine.simulate import simulate
from flockwise.method import CoordinateDescent, PrivateUpdates
from flockwise.privacy.budget import Budget
from flockwise.results.trajectory import Trajectory
from flockwise.solve import solve_local_models, solve_optimum

Kind: TypeAlias = Literal["printed", "laplace", "gaussian", "zeros"]

KINDS: tuple[Kind, ...] = ("printed", "zeros", "gaussian", "laplace")
START_EPSILON = 0.05
# Mechanism and accountant of those with a guarantee.
NOISES = {"laplace": ("laplace", "theorem1"), "gaussian": ("gaussian", "gdp"), "zeros": ("gaussian", "gdp")}
CHOICES: Mapping[str, tuple[float, ...]] = {
    "updates": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048),
    "clip": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
}
PRINTED_UPDATES = (1, 2, 4, 8, 16, 32, 64)
# By number of points: the ends of figure 3.
SIZES = {"10 to 20": (10, 20), "91 to 100": (91, 100)}
# The trade-offs are tuned on instances of as many test points.
TUNING_TEST = 400


@dataclass(frozen=True)
class Tuning:
    """Updates of each agent, and the bound on one sample's gradient, in the norm of the noise."""

    updates: int = 8
    clip: float = 1.0

    @property
    def at_the_edge(self) -> list[str]:
        """What was chosen at an end of its grid."""
        return [name for name, grid in CHOICES.items() if getattr(self, name) in (grid[0], grid[-1])]


def problem_pair(dimension: int, seed: int, test: int, tradeoff: float) -> tuple[Instance, Instance]:
    """One draw of the task with steps from the data, and with steps from a public bound."""
    drawn = dimension, seed, test, tradeoff, PAPER_GRAPH
    return instance(*drawn), instance(*drawn, public=True)


def tune_printed(
    dimension: int, tradeoff: float, epsilons: Sequence[float], seeds: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """By ε, the number of updates that is best on these instances."""
    pairs = [problem_pair(dimension, seed, TUNING_TEST, tradeoff) for seed in seeds]
    starts = [
        private_start(public.problem, START_EPSILON, DELTA, seed)
        for (_, public), seed in zip(pairs, seeds, strict=True)
    ]

    def accuracy(budget: Budget, updates: int) -> float:
        found = [
            exact.accuracy(descend_as_printed(exact.problem, start, budget, updates, seed))
            for (exact, _), start, seed in zip(pairs, starts, seeds, strict=True)
        ]
        return float(np.mean(found))

    chosen = {}
    for epsilon in epsilons:
        budget = Budget(epsilon - START_EPSILON, DELTA)
        # All of them: with so much noise a climb would end where it begins.
        best = max(PRINTED_UPDATES, key=lambda updates: accuracy(budget, updates))
        is_edge = best in (PRINTED_UPDATES[0], PRINTED_UPDATES[-1])
        chosen[str(epsilon)] = {"updates": best, "edge": ["updates"] if is_edge else []}
    return chosen


def tune(dimension: int, tradeoff: float, epsilon: float, kind: Kind, seeds: Sequence[int]) -> dict[str, Any]:
    """The settings of a run with a guarantee that are best on these instances."""
    publics = [problem_pair(dimension, seed, TUNING_TEST, tradeoff)[1] for seed in seeds]

    @cache
    def error(settings: Tuning) -> float:
        found = [
            public.accuracy(run_with_guarantee(public, epsilon, kind, settings, seed).models)
            for public, seed in zip(publics, seeds, strict=True)
        ]
        return -float(np.mean(found))

    # The other setting once more, from where the one before ended.
    best = climb(climb(Tuning(), CHOICES, error), CHOICES, error)
    return {**asdict(best), "edge": best.at_the_edge}


def run_with_guarantee(drawn: Instance, epsilon: float, kind: str, settings: Tuning, seed: int) -> Trajectory:
    """Start and updates within one plan; it shows averages, and keeps the last models in its state."""
    mechanism, accountant = NOISES[kind]
    budget, updates = Budget(epsilon, DELTA), int(settings.updates)
    privacy = PrivateUpdates(budget, updates, settings.clip, mechanism, accountant)
    start: Any = "zeros" if kind == "zeros" else warm_start(privacy, START_EPSILON)
    method = CoordinateDescent(start, privacy)
    return simulate(drawn.problem, method, seed=seed, record_every=None, threads=1)


def measure_printed(
    dimension: int, tradeoff: float, updates: Sequence[tuple[float, int]], seed: int, test: int
) -> dict[str, Any]:
    """Of purely local models, of the optimum of Eq. (2), and as printed with so many updates at each ε."""
    exact, public = problem_pair(dimension, seed, test, tradeoff)
    start = private_start(public.problem, START_EPSILON, DELTA, seed)
    scores = {
        "local": exact.accuracies(solve_local_models(exact.problem)),
        "collaborative": exact.accuracies(solve_optimum(exact.problem, tolerance=1e-5).models),
    }
    for epsilon, count in updates:
        budget = Budget(epsilon - START_EPSILON, DELTA)
        models = descend_as_printed(exact.problem, start, budget, count, seed)
        scores[f"printed {epsilon} last"] = exact.accuracies(models)
    return _summed_up(exact, scores, [])


def measure(
    dimension: int, tradeoff: float, settings: Sequence[tuple[str, int, float]], seed: int, test: int
) -> dict[str, Any]:
    """Of the runs with a guarantee, by "kind ε model"."""
    exact, public = problem_pair(dimension, seed, test, tradeoff)
    scores, guarantees = {}, []
    for name, updates, clip in settings:
        kind, _, epsilon = name.partition(" ")
        tail = run_with_guarantee(public, float(epsilon), kind, Tuning(updates, clip), seed)
        scores[f"{name} tail"] = exact.accuracies(np.asarray(tail.models))
        scores[f"{name} last"] = exact.accuracies(tail.state["models"])
        assert tail.own_models is not None
        assert tail.guarantee is not None
        scores[f"{name} own"] = exact.accuracies(np.asarray(tail.own_models))
        guarantees.append(tail.guarantee.explain())
    return _summed_up(exact, scores, guarantees)


def _summed_up(exact: Instance, scores: Mapping[str, Any], guarantees: Sequence[str]) -> dict[str, Any]:
    """Means over all agents, and over those with few and with many points."""
    counts = exact.problem.population.sample_counts
    return {
        "accuracy": {name: float(values.mean()) for name, values in scores.items()},
        "sizes": {
            name: {size: _within(values, counts, *ends) for size, ends in SIZES.items()}
            for name, values in scores.items()
        },
        "guarantees": list(guarantees),
    }


def _within(values: Any, counts: Any, low: int, high: int) -> float | None:
    """The mean over the agents of this size; an instance may have none."""
    inside = values[(counts >= low) & (counts <= high)]
    return float(inside.mean()) if inside.size else None
