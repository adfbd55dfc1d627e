"""`flockwise demo`: the main job on generated data."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import flockwise
from flockwise.cli.console import folder_for_results, progress_bar, step
from flockwise.cli.output import show_report
from flockwise.data import LinearTask, linear_classification
from flockwise.engine import simulate
from flockwise.graph import angular_graph
from flockwise.method import (
    CoordinateDescent,
    Global,
    LearnedPrior,
    Local,
    ModelPropagation,
    ReleaseOnce,
    TunedLocal,
)
from flockwise.objective import Objective, Problem
from flockwise.privacy.budget import Budget, default_delta
from flockwise.report import Comparison, Page
from flockwise.results.tuning import TradeoffChoice, choose_tradeoff

TRADEOFFS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
HELD_OUT = 0.3
VALIDATION_INSTANCES = 5
# Validation instances have seeds far from those that anyone compares: no instance is ever both.
VALIDATION_SEEDS = 1_000_000
UPDATES = 100
# In the private run, all messages after an agent's one release are post-processing, which costs nothing.
EPSILON = 1.0
PRIVATE_UPDATES = 50
RECORD_EVERY = 0.25
# Ten lines in a plane: two of them are at most 36° apart, which makes them neighbors. So there is an edge.
FEWEST_AGENTS = 10


def demo(
    out: Annotated[Path, typer.Option(help="The folder for metrics.json, report.html and the pictures.")],
    agents: Annotated[int, typer.Option(min=FEWEST_AGENTS, help="How many agents.")] = 100,
    dimension: Annotated[int, typer.Option(min=2, help="How many features each sample has.")] = 20,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Another seed is another population.")] = 0,
) -> None:
    """See agents learn alone, together, and together in private: the paper's synthetic task."""
    with folder_for_results(out) as folder:
        _run(folder, agents, dimension, seed)


def _run(folder: Path, agents: int, dimension: int, seed: int) -> None:
    with step(f"choosing the trade-off on {VALIDATION_INSTANCES} validation instances"):
        choice = _choose_tradeoff(agents, dimension, seed)
    task, problem = _instance(agents, dimension, seed)
    problem = problem.with_tradeoff(choice.best)
    comparison = _compare(task, problem, seed)
    page = Page(
        title=f"{agents} agents learn a model each",
        comparison=comparison,
        data_description=(
            "The synthetic task: every agent separates samples by a line of its own. Neighbors are agents "
            "with similar public profiles, which know each line up to some noise. 5 % of the training labels "
            "are wrong, the test labels are clean"
        ),
        settings=_settings(agents, dimension, seed),
        version=flockwise.__version__,
        choice=choice,
        choice_description=(
            f"Mean over agents and {VALIDATION_INSTANCES} validation instances, which are drawn with other "
            "seeds, on samples held out from training; the test samples have no part in it."
        ),
    )
    show_report(folder, page, seed, task.targets)


def _instance(agents: int, dimension: int, seed: int) -> tuple[LinearTask, Problem]:
    task = linear_classification(agents, dimension, seed=seed)
    graph = angular_graph(task.profiles, source="profiles")
    # Every feature lies between −1 and 1.
    return task, Problem(task.train, graph, Objective(feature_bound=math.sqrt(dimension)))


def _choose_tradeoff(agents: int, dimension: int, seed: int) -> TradeoffChoice:
    """By samples held out from training: some of their labels are wrong, as real ones are."""
    trials = []
    for number in range(VALIDATION_INSTANCES):
        task, problem = _instance(agents, dimension, seed + VALIDATION_SEEDS * (number + 1))
        kept, held_out = task.train.split(test_share=HELD_OUT, seed=seed)
        trials.append((replace(problem, population=kept), held_out))
    return choose_tradeoff(trials, TRADEOFFS, public=True)


def _compare(task: LinearTask, problem: Problem, seed: int) -> Comparison:
    options: dict[str, Any] = {"test": task.test, "seed": seed, "record_every": RECORD_EVERY}
    with step("learning alone, and one model for all"):
        runs = [simulate(problem, method, test=task.test) for method in (Local(), TunedLocal(), Global())]
    budget = Budget(EPSILON, default_delta(problem.sample_cap))
    for words, method, updates in (
        ("learning together: coordinate descent", CoordinateDescent(), UPDATES),
        ("smoothing local models: propagation", ModelPropagation(), UPDATES),
        ("learning privately: one release each, smoothed", ReleaseOnce(budget), PRIVATE_UPDATES),
    ):
        with progress_bar(words, "ticks") as progress:
            ticks = updates * problem.n_agents
            runs.append(simulate(problem, method, ticks=ticks, progress=progress, **options))
    with step("learning privately: a prior from sums over all agents"):
        runs.append(simulate(problem, LearnedPrior(budget), test=task.test, seed=seed))
    return Comparison.of(problem, *runs)


def _settings(agents: int, dimension: int, seed: int) -> dict[str, dict[str, Any]]:
    """As a configuration for `flockwise simulate` would say it."""
    return {
        "general": {"seed": seed},
        "data": {"source": "synthetic", "agents": agents, "dimension": dimension},
        "graph": {"kind": "angular", "from": "profiles", "gamma": 0.1, "threshold": 0.01},
        "objective": {"loss": "logistic", "feature_bound": math.sqrt(dimension)},
        "method": {"name": "cd", "ticks": UPDATES * agents, "record_every": RECORD_EVERY, "start": "zeros"},
        "privacy": {"kind": "none", "private rows": f"release_once and learned_prior, epsilon {EPSILON:g}"},
    }
