"""From a configuration to everything a run needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from murmura.config.methods import build_method
from murmura.config.objectives import build_problem, tuned_tradeoff
from murmura.config.samples import Samples, load_samples
from murmura.config.schema import Config
from murmura.config.sections import Method as MethodSection
from murmura.config.sections import SimulatedMethod
from murmura.data import Population
from murmura.engine.conditions import Conditions
from murmura.engine.run import Method, Progress, simulate
from murmura.objective import Problem
from murmura.results.trajectory import Trajectory
from murmura.results.tuning import TradeoffChoice


@dataclass(frozen=True, eq=False)
class Experiment:
    """A configuration made real: the problem, the method, the test samples, and how μ was chosen.

    choice_description says what μ was judged by; it is empty where μ was given.
    """

    config: Config
    problem: Problem
    method: Method
    test: Population | None
    choice: TradeoffChoice | None
    choice_description: str
    samples: Samples

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
            **_stops(self.config.method),
        )


def build(config: Config) -> Experiment:
    """Load the data, build the graph, choose μ if asked to, and put the problem together."""
    samples = load_samples(config.data, config.seed, config.objective.feature_bound)
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
