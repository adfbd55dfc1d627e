"""From a configuration to everything a run needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from murmura.config.graphs import build_graph
from murmura.config.samples import Samples, load_samples, validation_samples
from murmura.config.schema import Config
from murmura.config.sections import AdmmMethod, BaselineMethod, DescentMethod, SimulatedMethod
from murmura.config.sections import Method as MethodSection
from murmura.data import Population
from murmura.engine.conditions import Conditions
from murmura.engine.run import Method, Progress, simulate
from murmura.method import CoordinateDescent, Global, GossipADMM, Local, ModelPropagation
from murmura.objective import Problem, loss_by_name
from murmura.results.trajectory import Trajectory
from murmura.results.tuning import TradeoffChoice, choose_tradeoff

# tradeoff = "auto" tries these; the optimum is flat, so that factors of 2 are fine enough.
TRADEOFFS = tuple(2.0**power for power in range(-4, 7))
VALIDATION_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Experiment:
    """A configuration made real: the problem, the method, the test samples, and how μ was chosen."""

    config: Config
    problem: Problem
    method: Method
    test: Population | None
    choice: TradeoffChoice | None
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
    samples = load_samples(config.data, config.seed)
    choice = _choose_tradeoff(config, samples) if config.objective.tradeoff == "auto" else None
    tradeoff = choice.best if choice else config.objective.tradeoff
    assert not isinstance(tradeoff, str)
    return Experiment(
        config=config,
        problem=_problem(config, samples, tradeoff),
        method=_method(config.method),
        test=samples.test,
        choice=choice,
        samples=samples,
    )


def _problem(config: Config, samples: Samples, tradeoff: float) -> Problem:
    objective = config.objective
    loss = loss_by_name(objective.loss, classes=objective.classes or 2, width=objective.width or 1.0)
    graph = build_graph(config, samples, loss)
    return Problem(
        samples.train, graph, loss, tradeoff=tradeoff, l2=objective.l2, max_samples=objective.max_samples
    )


def _choose_tradeoff(config: Config, samples: Samples) -> TradeoffChoice:
    """On a part of the training samples held out for it; features and graphs are made without that part."""
    share = config.objective.validation_share or VALIDATION_SHARE
    inner = validation_samples(config.data, samples, share, config.seed)
    assert inner.test is not None
    return choose_tradeoff([(_problem(config, inner, TRADEOFFS[0]), inner.test)], TRADEOFFS)


def _method(section: MethodSection) -> Method:
    if isinstance(section, BaselineMethod):
        return Local() if section.name == "local" else Global()
    if isinstance(section, DescentMethod):
        return CoordinateDescent(start=section.start)
    if isinstance(section, AdmmMethod):
        return GossipADMM(penalty=section.penalty, gradient_steps=section.gradient_steps, start=section.start)
    return ModelPropagation()


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
