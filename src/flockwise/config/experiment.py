"""From a configuration to everything a run needs: the problem, its trade-off μ, the method or a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from flockwise.config.parts import method_of
from flockwise.config.samples import (
    TaskSamples,
    budgets_of,
    build_graph,
    load_samples,
    problem_of,
    validation_samples,
)
from flockwise.config.schema import Config
from flockwise.config.sections import SyntheticData
from flockwise.data import Population
from flockwise.engine import Conditions, Engine, simulate
from flockwise.engine.base import SavedRun
from flockwise.engine.simulate import Progress, Stops
from flockwise.errors import ConfigError
from flockwise.method import Local, Method, PublicFacts
from flockwise.objective import Problem
from flockwise.planner import Recommendation, recalled_plan
from flockwise.results.trajectory import Trajectory
from flockwise.results.tuning import TradeoffChoice, choose_tradeoff

# tradeoff = "auto" tries these; the optimum is flat, so factors of 2 are fine enough.
TRADEOFFS = tuple(2.0**power for power in range(-4, 7))
VALIDATION_SHARE = 0.2
TWINS = 5
# Far from the seeds that anyone compares, so no instance is ever chosen by and judged on.
TWIN_SEEDS = 1_000_000
TWIN_TEST_SAMPLES = 100
# Until a plan has chosen one; nothing that a plan may know depends on it.
ANY_TRADEOFF = 1.0


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
        engine: Engine | None = None,
        resume: SavedRun | None = None,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Trajectory:
        """Run the method as configured; engine: with settings that no configuration has."""
        section = self.config.engine
        return simulate(
            self.problem,
            self.method,
            engine=engine or section.name,
            # A method that is computed at once has no stops, and no threads either.
            threads=section.threads if self.stops else None,
            seed=self.config.seed,
            test=self.test,
            conditions=Conditions(**_fields_of(Conditions, section)),
            resume=resume,
            progress=progress,
            should_stop=should_stop,
            **self.stops,
        )


def build(config: Config, *, planning: Callable[[int, int], None] | None = None) -> Experiment:
    """Load the data, build the graph, choose μ and the method if asked to, and put the problem together.

    planning: called with the trials done and to do while a plan is made.
    """
    samples = load_samples(config.data, config.seed)
    if config.is_planned:
        return _planned(config, samples, planning)
    choice, words, tradeoff = None, "", config.objective.tradeoff
    if tradeoff == "auto" and config.graph is None:
        tradeoff = ANY_TRADEOFF
    elif tradeoff == "auto":
        choice, words = tuned_tradeoff(config, samples)
        tradeoff = ANY_TRADEOFF
    assert not isinstance(tradeoff, str)
    problem = build_problem(config, samples, tradeoff)
    if choice is not None:
        problem = choice.applied(problem)
    budgets = budgets_of(config.privacy, problem) if config.is_private else None
    return Experiment(
        config=config,
        problem=problem,
        method=method_of(config, budgets),
        test=samples.test,
        choice=choice,
        choice_description=words,
        samples=samples,
        stops=_fields_of(Stops, config.method),
    )


def _planned(config: Config, samples: TaskSamples, planning: Callable[[int, int], None] | None) -> Experiment:
    """With the method that the plan chose; local models where it advises against all of them."""
    problem = build_problem(config, samples, ANY_TRADEOFF)
    plan = recalled_plan(facts_of(config, problem), planning)
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


def _fields_of(kind: type[Any], section: Any) -> dict[str, Any]:
    """What a section says of the fields of a dataclass."""
    names = {field.name for field in fields(kind)} & type(section).model_fields.keys()
    return {name: getattr(section, name) for name in sorted(names)}


def plan_of(config: Config, progress: Callable[[int, int], None] | None = None) -> Recommendation:
    """A plan for the budgets of a configuration, whichever method it names."""
    if not config.is_private:
        raise ConfigError('privacy.kind: got "none"; a plan is for private runs: write kind = "dp"')
    samples = load_samples(config.data, config.seed)
    return recalled_plan(facts_of(config, build_problem(config, samples, ANY_TRADEOFF)), progress)


def facts_of(config: Config, problem: Problem) -> PublicFacts:
    """The public facts of a configured problem."""
    privacy, objective = config.privacy, config.objective
    given = objective.tradeoff != "auto"
    return PublicFacts.of(
        problem.with_objective(tradeoff=objective.tradeoff) if given else problem,
        budgets_of(privacy, problem),
        chooses_tradeoff=not given,
        residual_scale=_residual_scale(objective, privacy),
    )


def _residual_scale(objective: Any, privacy: Any) -> float | None:
    """Of numbers under the quadratic loss: the residual r whose gradient, 2·r·‖x‖, is clip_norm."""
    clip = getattr(privacy, "clip_norm", None)
    if clip is None or objective.feature_bound is None:
        return None
    return clip / (2 * objective.feature_bound)


def build_problem(config: Config, samples: TaskSamples, tradeoff: float) -> Problem:
    """Population, graph and objective."""
    return problem_of(config, samples.train, build_graph(config, samples), tradeoff)


def tuned_tradeoff(config: Config, samples: TaskSamples) -> tuple[TradeoffChoice, str]:
    """The best μ (and λ, with l2 = "auto"), and in words what it was judged by: never the test samples."""
    if config.is_private:
        trials = [_twin(config, number) for number in range(TWINS)]
        words = (
            f"Mean over agents and {TWINS} other instances of the task, generated with other seeds: nothing "
            "was chosen on the data of this run."
        )
    else:
        trials = [_held_out(config, samples)]
        words = (
            "Mean over agents on a part of the training samples that was held out for this choice; the test "
            "samples have no part in it."
        )
    choice = choose_tradeoff(trials, TRADEOFFS, public=config.is_private)
    return choice, f"{words} {choice.cost}"


def _twin(config: Config, number: int) -> tuple[Problem, Population]:
    """Another instance of the generated task; a private run may be tuned on it as on any public data."""
    assert isinstance(config.data, SyntheticData)
    data = config.data.model_copy(update={"test_samples": max(config.data.test_samples, TWIN_TEST_SAMPLES)})
    seed = (config.seed + TWIN_SEEDS * (number + 1)) % 2**64
    samples = load_samples(data, seed)
    assert samples.test is not None
    return build_problem(replace(config, seed=seed, data=data), samples, TRADEOFFS[0]), samples.test


def _held_out(config: Config, samples: TaskSamples) -> tuple[Problem, Population]:
    """A part of the training samples; features and graphs are made without that part."""
    share = config.objective.validation_share or VALIDATION_SHARE
    inner = validation_samples(config.data, samples, share, config.seed)
    assert inner.test is not None
    return build_problem(config, inner, TRADEOFFS[0]), inner.test
