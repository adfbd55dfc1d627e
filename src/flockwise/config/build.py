"""From a configuration to everything a run needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from flockwise.config.budgets import budgets_of
from flockwise.config.parts import method_of
from flockwise.config.planning import ANY_TRADEOFF, facts_of
from flockwise.config.problems import build_problem, tuned_tradeoff
from flockwise.config.samples import TaskSamples, load_samples
from flockwise.config.schema import Config
from flockwise.data import Population
from flockwise.engine import Conditions, simulate
from flockwise.engine.simulate import Progress, Stops
from flockwise.method import Local, Method
from flockwise.objective import Problem
from flockwise.planner import Recommendation, plan_run
from flockwise.planner.recommendation import Progress as Planning
from flockwise.results.trajectory import Trajectory
from flockwise.results.tuning import TradeoffChoice


@dataclass(frozen=True, eq=False)
class Experiment:
    """A configuration made real: the problem, the method, the test samples, and how μ was chosen.

    choice_description says what μ was judged by; it is empty where μ was given. stops: when the run ends.
    plan: how the method was chosen, where the configuration leaves that to a plan.
    """

    config: Config
    problem: Problem
    method: Method
    test: Population | None
    choice: TradeoffChoice | None
    choice_description: str
    samples: TaskSamples
    stops: dict[str, Any]
    plan: Recommendation | None = None

    @property
    def train(self) -> Population:
        return self.problem.population

    def simulate(
        self,
        *,
        resume: Trajectory | None = None,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Trajectory:
        """Run the method as configured."""
        engine = self.config.engine
        return simulate(
            self.problem,
            self.method,
            engine=engine.name,
            # A method that is computed at once has no stops, and no threads either.
            threads=engine.threads if self.stops else None,
            seed=self.config.seed,
            test=self.test,
            conditions=_conditions(engine),
            resume=resume,
            progress=progress,
            should_stop=should_stop,
            **self.stops,
        )


def build(config: Config, *, planning: Planning | None = None) -> Experiment:
    """Load the data, build the graph, choose μ and the method if asked to, and put the problem together.

    planning: called with the trials done and to do while a plan is made.
    """
    samples = load_samples(config.data, config.seed)
    if config.is_planned:
        return _planned(config, samples, planning)
    tradeoff, choice, words = config.objective.tradeoff, None, ""
    if tradeoff == "auto" and config.graph is None:
        tradeoff = ANY_TRADEOFF
    elif tradeoff == "auto":
        choice, words = tuned_tradeoff(config, samples)
        tradeoff = choice.best
    assert not isinstance(tradeoff, str)
    problem = build_problem(config, samples, tradeoff)
    budgets = budgets_of(config.privacy, problem) if config.is_private else None
    return Experiment(
        config=config,
        problem=problem,
        method=method_of(config, budgets),
        test=samples.test,
        choice=choice,
        choice_description=words,
        samples=samples,
        stops=_stops(config.method),
    )


def _planned(config: Config, samples: TaskSamples, planning: Planning | None) -> Experiment:
    """With the method that the plan chose; local models where it advises against all of them."""
    problem = build_problem(config, samples, ANY_TRADEOFF)
    plan = plan_run(facts_of(config, problem), planning)
    chosen = plan.chosen
    return Experiment(
        config=config,
        problem=problem if chosen is None else chosen.problem(problem),
        method=Local() if chosen is None else chosen.method,
        test=samples.test,
        choice=None,
        choice_description="",
        samples=samples,
        stops={} if chosen is None else dict(chosen.stops),
        plan=plan,
    )


def _stops(section: Any) -> dict[str, Any]:
    names = {field.name for field in fields(Stops)} & type(section).model_fields.keys()
    return {name: getattr(section, name) for name in sorted(names)}


def _conditions(engine: Any) -> Conditions:
    names = {field.name for field in fields(Conditions)} & type(engine).model_fields.keys()
    return Conditions(**{name: getattr(engine, name) for name in names})
