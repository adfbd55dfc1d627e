"""Runs of several methods on one problem, side by side: what the table, the pictures and the page show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.method.base import METHODS, label_of, shown_name, stated
from flockwise.method.rules import Descent
from flockwise.objective import CollaborativeObjective, Problem
from flockwise.privacy.guarantee import Guarantee
from flockwise.report.theme import looks_of
from flockwise.results.trajectory import Trajectory
from flockwise.solve import solve_optimum
from flockwise.theory import ConvergenceTheory, convergence_theory

Model: TypeAlias = Literal["released", "own"]

PRIVATE = "private"
PRIVATE_LOOK: Final = ("blue", "P")
MODEL_WORDS: dict[Model, str] = {"released": "released, seen by others", "own": "own, stays on the device"}

# Larger problems are reported without their exact minimum: it would take longer than the run.
MOST_COORDINATES = 500_000
MOST_NUMBERS = 20_000_000


@dataclass(frozen=True)
class Row:
    """One method's results; metric and metric_sd are over agents, on test samples, or NaN without any.

    A private run has two rows, with its budget: of the models that were released, and of those that the
    agents keep for themselves ("own").
    """

    method: str
    metric: float
    metric_sd: float
    objective: float
    updates: int
    vectors: int
    bytes: int
    model: Model | None = None
    epsilon: float | None = None
    delta: float | None = None

    @property
    def name(self) -> str:
        """What tables and pictures know it by."""
        return _with_model(self.method, self.model)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The runs, in the order in which they are to be shown, by name ("local", "collaborative", …)."""

    problem: Problem
    runs: Mapping[str, Trajectory]

    @staticmethod
    def of(problem: Problem, *runs: Trajectory) -> Comparison:
        """Named after what their methods do; of two runs of one method the first is kept.

        A private run goes by being private; several of them also by their methods.
        """
        n_private = sum(run.guarantee is not None for run in runs)
        named: dict[str, Trajectory] = {}
        for run in runs:
            name = shown_name(run.method)
            if run.guarantee is not None:
                name = PRIVATE if n_private == 1 else f"{PRIVATE}, {name}"
            named.setdefault(name, run)
        return Comparison(problem, named)

    def look(self, name: str, model: Model | None = None) -> tuple[str, str]:
        """The color and the marker of a run; own models have another one than those that were sent."""
        return self._looks[_with_model(name, "own" if model == "own" else None)]

    @cached_property
    def _looks(self) -> dict[str, tuple[str, str]]:
        private = [name for name, run in self.runs.items() if run.own_models is not None]
        own: dict[str, tuple[str, str]] = {name: PRIVATE_LOOK for name in self.runs if name == PRIVATE}
        for name, run in self.runs.items():
            if run.guarantee is None and (look := stated(run.method, "look")) is not None:
                own[name] = look
        return looks_of([*self.runs, *(_with_model(name, "own") for name in private)], own)

    def label(self, name: str, model: Model | None = None) -> str:
        """What tables and pictures call a run."""
        words = label_of(self.runs[name].method)
        if self.runs[name].guarantee is not None:
            words = PRIVATE if name == PRIVATE else f"{PRIVATE}, {words}"
        return words if model is None else f"{words}: {MODEL_WORDS[model]}"

    def shown_model(self, name: str) -> Literal["own"] | None:
        """Which model an agent uses itself."""
        return None if self.runs[name].own_models is None else "own"

    @property
    def metric(self) -> str:
        """accuracy or rmse."""
        return self.problem.loss.metric

    @property
    def is_tested(self) -> bool:
        return all(not math.isnan(run.final.metric) for run in self.runs.values())

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One per run, two for a private one; the objective is Eq. (2), whatever was minimized."""
        return tuple(row for name, run in self.runs.items() for row in self._rows_of(name, run))

    def _rows_of(self, name: str, run: Trajectory) -> Iterator[Row]:
        value = self._objective_value
        row = Row(
            method=name,
            metric=run.final.metric,
            metric_sd=run.final.metric_sd,
            objective=value(run.models),
            updates=int(run.updates.sum()),
            vectors=run.final.vectors,
            bytes=run.final.bytes,
        )
        if run.guarantee is None or run.own_models is None:
            yield row
            return
        row = replace(row, epsilon=max(run.guarantee.epsilon), delta=max(run.guarantee.delta))
        yield replace(row, model="released")
        scores = run.own_metrics
        yield replace(
            row,
            model="own",
            metric=float("nan") if scores is None else float(np.nanmean(scores)),
            metric_sd=float("nan") if scores is None else float(np.nanstd(scores)),
            objective=value(run.own_models),
        )

    def _objective_value(self, models: NDArray[Any]) -> float:
        """Eq. (2); without a graph there is none."""
        if self.problem.graph is None:
            return float("nan")
        return CollaborativeObjective(self.problem).value(np.asarray(models))

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """What holds for the private runs; the others guarantee nothing."""
        return {name: run.guarantee for name, run in self.runs.items() if run.guarantee is not None}

    def agent_scores(self, name: str) -> Floats | None:
        """How each agent fares with the model that it uses itself: in a private run its own."""
        run = self.runs[name]
        return run.agent_metrics if run.own_metrics is None else run.own_metrics

    @cached_property
    def simulated(self) -> dict[str, Trajectory]:
        """The runs that took time: those with something to draw."""
        return {name: run for name, run in self.runs.items() if len(run.records) > 1}

    @cached_property
    def optimum(self) -> float | None:
        """Q*, the least value of Eq. (2); None where the problem is too large or no run minimizes it."""
        if not self._minimizing or not self.problem.neighbors.n_edges:
            return None
        population = self.problem.population
        if self.problem.n_agents * self.problem.dimension > MOST_COORDINATES:
            return None
        if population.n_samples * population.n_features > MOST_NUMBERS:
            return None
        return solve_optimum(self.problem).value

    @cached_property
    def _minimizing(self) -> dict[str, Trajectory]:
        """The runs that minimize Eq. (2) and nothing else."""
        return {
            name: run
            for name, run in self.simulated.items()
            if run.guarantee is None and stated(run.method, "minimizes_eq_2")
        }

    @property
    def descent(self) -> str | None:
        """The run of coordinate descent, which Prop. 1 is about."""
        runs = self._minimizing.items()
        return next((name for name, run in runs if METHODS[run.method].rule is Descent), None)

    def gaps(self) -> dict[str, Floats]:
        """(Q − Q*)/Q* at each record of the runs that minimize Eq. (2); below rounding it is NaN."""
        if self.optimum is None:
            return {}
        gaps = {}
        for name, run in self._minimizing.items():
            gap = run.column("objective") / self.optimum - 1
            gaps[name] = np.where(gap > 1e-14, gap, np.nan)
        return gaps

    @cached_property
    def theory(self) -> ConvergenceTheory | None:
        """Prop. 1's constants, where there is a run of coordinate descent to hold against them."""
        if self.optimum is None or self.descent is None:
            return None
        return convergence_theory(self.problem)

    def gains(self) -> tuple[str, Floats] | None:
        """Which run, and by how much it is better than local for each agent (NaN without test samples)."""
        if self.alone is None or not self.collaborative or not self.is_tested:
            return None
        best = self.descent or self.collaborative[0]
        return best, self.gains_of(best)

    def gains_of(self, name: str) -> Floats:
        """By how much a run is better than local for each agent."""
        alone, together = self.alone, self.agent_scores(name)
        assert alone is not None
        assert together is not None
        return together - alone if self.metric == "accuracy" else alone - together

    @property
    def alone(self) -> Floats | None:
        """How each agent fares with the model that it learns alone: the best of several ways, on average."""
        found = [run.agent_metrics for run in self._alone.values() if run.agent_metrics is not None]
        best = max if self.metric == "accuracy" else min
        return best(found, key=lambda scores: float(np.nanmean(scores)), default=None)

    @property
    def _alone(self) -> dict[str, Trajectory]:
        return {name: run for name, run in self.runs.items() if stated(run.method, "sends_nothing")}

    @property
    def drawn(self) -> dict[str, Trajectory]:
        """The runs that pictures show: of those alone the best one."""
        alone = self.alone
        return {
            name: run
            for name, run in self.runs.items()
            if name not in self._alone or alone is None or run.agent_metrics is alone
        }

    @property
    def collaborative(self) -> list[str]:
        """The runs in which agents learn from each other."""
        return [name for name, run in self.runs.items() if not stated(run.method, "is_baseline")]

    @property
    def pooled(self) -> list[str]:
        """The baselines that need all data in one place."""
        baselines = (name for name, run in self.runs.items() if stated(run.method, "is_baseline"))
        return [name for name in baselines if not stated(self.runs[name].method, "sends_nothing")]

    def document(self, seed: int, **more: Any) -> dict[str, Any]:
        """metrics.json: NaN becomes null, since JSON knows no NaN."""
        metric = self.metric
        return {
            "agents": self.problem.n_agents,
            "dimension": self.problem.dimension,
            "seed": seed,
            "rows": [self._row_document(row) for row in self.rows],
            "guarantees": {name: found.explain() for name, found in self.guarantees.items()},
            "metric": metric,
            "tradeoff": self.problem.tradeoff,
            "optimum": self.optimum,
            **more,
        }

    def _row_document(self, row: Row) -> dict[str, Any]:
        document: dict[str, Any] = {"method": row.method}
        if row.model is not None:
            document |= {"model": row.model, "epsilon": row.epsilon, "delta": row.delta}
        return document | {
            self.metric: _number(row.metric),
            f"{self.metric}_sd": _number(row.metric_sd),
            "objective": _number(row.objective),
            "updates": row.updates,
            "vectors": row.vectors,
            "bytes": row.bytes,
        }


def _with_model(name: str, model: Model | None) -> str:
    return name if model is None else f"{name} ({model})"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
