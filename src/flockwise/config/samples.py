"""From sections to data: samples, the graph over their agents, and the agents' budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flockwise.arrays import Floats
from flockwise.config.misfits import needs_delta
from flockwise.config.parts import arguments, objective_of
from flockwise.config.schema import Config
from flockwise.config.sections import (
    EDGES,
    DataSection,
    FolderData,
    MovieLensData,
    SyntheticData,
    TableData,
)
from flockwise.data import (
    MovieLens,
    Population,
    linear_classification,
    load_movielens,
    open_population,
    ratings_task,
    read_population,
)
from flockwise.data.tables import check_present, read_table, rows_by_agent
from flockwise.errors import ConfigError, DataError, GraphError, PrivacyError
from flockwise.graph import GRAPHS, GraphSource, SimilarityGraph, read_edges
from flockwise.graph.tabular import named_vectors
from flockwise.objective import Problem
from flockwise.privacy.accounting import ACCOUNTANTS, default_accountant
from flockwise.privacy.budget import Budget, default_delta
from flockwise.privacy.mechanisms import USUAL_MECHANISM
from flockwise.solve import resolve_l2, solve_local_models


@dataclass(frozen=True, eq=False)
class TaskSamples:
    """One population to learn from and one to judge by; the rest only where the source has it."""

    train: Population
    test: Population | None
    description: str
    targets: Floats | None = None
    profiles: Floats | None = None
    profile_names: tuple[str, ...] = ()
    rating_matrix: Any = None


def load_samples(section: DataSection, seed: int) -> TaskSamples:
    """Read or generate the samples and hold some out for testing."""
    match section:
        case SyntheticData():
            return _synthetic(section, seed)
        case MovieLensData():
            return _ratings(load_movielens(section.folder), section, seed)
        case FolderData():
            columns = section.model_dump(exclude={"source"})
            words = f"The .parquet files of {section.source.name}/, nothing held out for testing"
            return TaskSamples(open_population(section.source, **columns), None, words)
        case _:
            return _table(section, seed)


def validation_samples(section: DataSection, samples: TaskSamples, share: float, seed: int) -> TaskSamples:
    """The training samples split once more, to choose settings by.

    Nothing else may have been learned from the part held out, so movie features, centers and
    the matrix of ratings are made anew without it.
    """
    # Another seed than that of the test split, so the two draws are independent.
    other_seed = (seed + 1) % 2**64
    if isinstance(section, MovieLensData):
        movielens = load_movielens(section.folder)
        train, _ = movielens.split(section.test_share, seed)
        inner = section.model_copy(update={"test_share": share})
        return _ratings(replace(movielens, ratings=train), inner, other_seed)
    fit, held_out = samples.train.split(share, other_seed)
    return replace(samples, train=fit, test=held_out)


def _synthetic(section: SyntheticData, seed: int) -> TaskSamples:
    parameters = section.model_dump(exclude={"source", "agents", "dimension"})
    task = linear_classification(section.agents, section.dimension, seed=seed, **parameters)
    test = task.test if section.test_samples else None
    words = f"The synthetic task, seed {seed}"
    return TaskSamples(task.train, test, words, targets=task.targets, profiles=task.profiles)


def _ratings(movielens: MovieLens, section: MovieLensData, seed: int) -> TaskSamples:
    parameters = section.model_dump(exclude={"source", "folder", "dtype"})
    task = ratings_task(movielens, seed=seed, **parameters)
    return TaskSamples(
        train=task.train.astype(section.dtype),
        test=task.test.astype(section.dtype),
        description=task.description,
        profiles=task.user_profiles,
        profile_names=task.profile_names,
        rating_matrix=task.rating_matrix,
    )


def _table(section: TableData, seed: int) -> TaskSamples:
    everything = read_population(
        section.source,
        agent=section.agent,
        target=section.target,
        features=section.features,
        dtype=section.dtype,
    )
    if section.intercept:
        everything = everything.with_intercept()
    file = section.source.name
    if not section.test_share:
        return TaskSamples(everything, None, f"{file}, nothing held out for testing")
    train, test = everything.split(section.test_share, seed)
    return TaskSamples(train, test, f"{file}, {section.test_share:.0%} of each agent's samples for testing")


def problem_of(config: Config, train: Population, graph: SimilarityGraph | None, tradeoff: float) -> Problem:
    """The problem as configured, with penalties chosen on the samples where the file leaves them open."""
    population = train if config.stays_in_files else train.in_memory
    problem = Problem(population, graph, objective_of(config, tradeoff))
    return resolve_l2(problem, is_private=config.is_private)


def build_graph(config: Config, samples: TaskSamples) -> SimilarityGraph | None:
    """The graph over the agents of the training samples; None where there is no [graph]."""
    section, train = config.graph, samples.train
    if section is None:
        return None
    if section.kind == EDGES:
        source = GraphSource("edges", section.file.name, private=section.private)
        columns: Any = tuple(section.columns)
        about: Any = {"columns": columns, "source": source, "folder": section.folder}
        return read_edges(section.file, train.agent_names, **about)
    kind = GRAPHS[section.kind]
    graph = kind(**arguments(kind, dict(section)))
    if not hasattr(graph, "of_vectors"):
        return graph.of_agents(train.n_agents, config.seed)
    if section.origin == "profiles" and section.file is not None:
        return _of_profiles(config, graph, samples, section.file)
    return graph.of_vectors(_vectors(config, samples), GraphSource(section.origin), train.given_names)


def _vectors(config: Config, samples: TaskSamples) -> Any:
    """One row per agent; [graph] and [data] are known to fit."""
    origin = config.graph.origin
    if origin == "models":
        return solve_local_models(problem_of(config, samples.train, None, 1.0))
    return {
        "targets": samples.targets,
        "ratings": samples.rating_matrix,
        "profiles": samples.profiles,
    }[origin]


def _of_profiles(config: Config, graph: Any, samples: TaskSamples, file: Path) -> SimilarityGraph:
    section = config.graph
    agent = section.agent or (
        config.data.agent if isinstance(config.data, TableData | FolderData) else "agent"
    )
    try:
        table = read_table(file, text_columns=[agent])
        vectors, names, source = named_vectors(table, section.columns, agent, samples.train.agent_names)
        return graph.of_vectors(
            vectors, replace(source, description=f"{file.name}, {source.description}"), names
        )
    except (DataError, GraphError) as error:
        raise ConfigError(f"{file}: {error}") from None


def budgets_of(section: Any, problem: Problem) -> Budget | tuple[Budget, ...]:
    """(ε, δ): one for all agents, or one each in the order of the agents."""
    if section.budgets is None:
        assert section.epsilon is not None
        return Budget(section.epsilon, _common_delta(section, problem))
    names = problem.population.agent_names
    try:
        budgets = _read_budgets(section.budgets, names)
        _check_deltas(section, budgets, names)
    except DataError as error:
        raise ConfigError(f"{section.budgets}: {error}") from None
    return budgets


def _common_delta(section: Any, problem: Problem) -> float:
    if section.delta is not None:
        return section.delta
    delta = default_delta(problem.sample_cap)
    mechanism = getattr(section, "mechanism", USUAL_MECHANISM)
    accountant = getattr(section, "accountant", None) or default_accountant(mechanism, delta)
    # A sum of ε is pure: a δ would only make its guarantee sound worse.
    return 0.0 if ACCOUNTANTS[accountant].adds_epsilons else delta


def _read_budgets(file: Path, names: tuple[str, ...]) -> tuple[Budget, ...]:
    table = read_table(file, text_columns=["agent"])
    check_present(table, ("agent", "epsilon", "delta"))
    if table.num_rows == 0:
        raise DataError("the table has no rows; give every agent one")
    ordered, _ = rows_by_agent(table, "agent", names)
    cells = zip(names, ordered["epsilon"].to_pylist(), ordered["delta"].to_pylist(), strict=True)
    return tuple(_budget(name, epsilon, delta) for name, epsilon, delta in cells)


def _budget(name: str, epsilon: Any, delta: Any) -> Budget:
    try:
        return Budget(_number(name, "epsilon", epsilon), _number(name, "delta", delta))
    except PrivacyError as error:
        raise DataError(f"agent {name!r}: {error}") from None


def _number(name: str, column: str, cell: Any) -> float:
    # A column with one word in it comes as text throughout: the numbers among it are none the worse.
    try:
        if cell is None or isinstance(cell, bool):
            raise ValueError
        return float(cell)
    except (TypeError, ValueError):
        found = "a missing value" if cell is None else repr(cell)
        raise DataError(f"agent {name!r}, column {column!r}: got {found}; write a number") from None


def _check_deltas(section: Any, budgets: Sequence[Budget], names: Sequence[str]) -> None:
    why = needs_delta(section)
    for name, budget in zip(names, budgets, strict=True):
        if budget.delta == 0 and why is not None:
            raise DataError(f"agent {name!r}: got delta = 0; {why}")
