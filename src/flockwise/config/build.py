"""From a configuration to everything a run needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flockwise.config.methods import build_method
from flockwise.config.objectives import build_problem, tuned_tradeoff
from flockwise.config.planning import ANY_TRADEOFF, facts_of
from flockwise.config.samples import Samples, load_samples
from flockwise.config.schema import Config
from flockwise.config.sections import Method as MethodSection
from flockwise.config.sections import PlannedMethod, SimulatedMethod
from flockwise.data import Population
from flockwise.engine.conditions import Conditions
from flockwise.engine.run import Method, Progress, simulate
from flockwise.method import Local
from flockwise.objective import Problem
from flockwise.planner import Plan, plan_run
from flockwise.planner.plan import Progress as Planning
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
    samples: Samples
    stops: dict[str, Any]
    plan: Plan | None = None

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
            threads=engine.threads,
            seed=self.config.seed,
            test=self.test,
            conditions=_conditions(self.config),
            resume=resume,
            progress=progress,
            should_stop=should_stop,
            **self.stops,
        )


def build(config: Config, *, planning: Planning | None = None) -> Experiment:
    """Load the data, build the graph, choose μ and the method if asked to, and put the problem together.

    planning: called with the trials done and to do while a plan is made.
    """
    samples = load_samples(config.data, config.seed, config.objective.feature_bound)
    if isinstance(config.method, PlannedMethod):
        return _planned(config, samples, planning)
    tradeoff, choice, words = config.objective.tradeoff, None, ""
    if tradeoff == "auto":
        choice, words = tuned_tradeoff(config, samples)
        tradeoff = choice.best
    assert not isinstance(tradeoff, str)
    problem = build_problem(config, samples, tradeoff)
    return Experiment(
        config=config,
        problem=problem,
        method=build_method(config, problem),
        test=samples.test,
        choice=choice,
        choice_description=words,
        samples=samples,
        stops=_stops(config.method),
    )


def _planned(config: Config, samples: Samples, planning: Planning | None) -> Experiment:
    """With the method that the plan chose; local models where it advises against all of them."""
    problem = build_problem(config, samples, ANY_TRADEOFF)
    plan = plan_run(facts_of(config, problem), planning)
    chosen = plan.chosen
    return Experiment(
        config=config,
        problem=problem if chosen is None else chosen.problem(problem),
        method=Local() if chosen is None else chosen.seeded(config.seed),
        test=samples.test,
        choice=None,
        choice_description="",
        samples=samples,
        stops={} if chosen is None else chosen.stops,
        plan=plan,
    )


def _stops(section: MethodSection) -> dict[str, Any]:
    if not isinstance(section, SimulatedMethod):
        return {}
    return section.model_dump(include={"updates", "ticks", "time", "tolerance", "record_every"})


def _conditions(config: Config) -> Conditions:
    engine = config.engine
    return Conditions(
        delay=engine.delay,
        delay_kind=engine.delay_kind,
        loss=engine.loss,
        offline_share=engine.offline_share,
        offline_length=engine.offline_length,
    )
