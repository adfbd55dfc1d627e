"""New rows for a trained run: columns matched by name, agents by name, and nothing guessed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.data.checks import first_nonfinite, quoted
from flockwise.data.labels import encode_labels, is_numbered
from flockwise.data.population import INTERCEPT, Population
from flockwise.data.tables import as_table, check_present, columns_of, finite_numbers, is_table
from flockwise.errors import DataError

DIGITS = re.compile(r"-?[0-9]+")


class FrameRows(NamedTuple):
    """Features in the order of the training, the position of each row's agent, and targets if any."""

    features: Floats
    agents: NDArray[np.int64]
    targets: Floats | None


class Trained(NamedTuple):
    """What new rows have to fit. has_intercept: the last feature was added and is 1 in every row."""

    agent_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    has_intercept: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        """The features that new rows have to bring."""
        return self.feature_names[:-1] if self.has_intercept else self.feature_names


def rows_of_population(population: Population, trained: Trained) -> FrameRows:
    """The samples of agents that took part, with the same features."""
    _check_features(population, trained.feature_names)
    agents = np.repeat(agent_positions(population.agent_names, trained), population.sample_counts)
    return FrameRows(population.features.astype(np.float64), agents, population.targets.astype(np.float64))


def in_order_of(train: Population, population: Population) -> Population:
    """Samples for the agents of a training population, found by name; agents that are not there have none.

    Where no agents were named on either side, they are told apart by position alone.
    """
    _check_features(population, train.feature_names)
    if population.given_names == train.given_names:
        return population
    positions = agent_positions(population.agent_names, Trained(train.agent_names, train.feature_names))
    counts = np.zeros(train.n_agents, np.int64)
    counts[positions] = population.sample_counts
    sorted_by_agent = population.select(np.argsort(positions))
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return replace(sorted_by_agent.in_memory, offsets=offsets, given_names=train.given_names)


def _check_features(population: Population, trained_on: tuple[str, ...]) -> None:
    if population.feature_names != trained_on:
        found, known = quoted(population.feature_names), quoted(trained_on)
        raise DataError(f"the features are {found}, and the run was trained on {known}")


def rows_of(data: Any, agents: Any, agent: str | None, target: str | None, trained: Trained) -> FrameRows:
    """Rows of a frame, by the names of its columns, or of an array, by position.

    agents: whose rows they are, one for all or one each. agent, target: columns of a frame that say it.
    """
    if is_table(data):
        return _rows_of_table(data, agents, agent, target, trained)
    if agent is not None or target is not None:
        raise DataError("agent= and target= name columns of a frame; give an array's agents as agents=")
    try:
        features = np.atleast_2d(np.asarray(data, np.float64))
    except (TypeError, ValueError):
        raise DataError(
            f"cannot read rows from a {type(data).__name__}; give a population, a frame or an array of "
            "numbers"
        ) from None
    if features.ndim != 2 or features.shape[1] != len(trained.feature_names):
        raise DataError(
            f"features must have {len(trained.feature_names)} columns ({quoted(trained.feature_names)}), got "
            f"shape {features.shape}"
        )
    _refuse_nonfinite(features, trained)
    return FrameRows(features, _agents_of_rows(agents, len(features), trained), None)


def agent_positions(agents: Any, trained: Trained) -> NDArray[np.int64]:
    """Where agents given by name or by position are.

    Where all names are whole numbers, an integer is a name: 1 is "1", wherever that agent is.
    """
    wanted = _whole_numbers(np.asarray(agents))
    if wanted.dtype.kind in "iu" and not _are_numbers(trained.agent_names):
        wrong = (wanted < 0) | (wanted >= len(trained.agent_names))
        if wrong.any():
            last = len(trained.agent_names) - 1
            raise DataError(f"no agent {wanted[wrong].flat[0]}; agents are 0 to {last}")
        return wanted.astype(np.int64)
    position = {name: place for place, name in enumerate(trained.agent_names)}
    names = [str(name) for name in wanted.ravel().tolist()]
    unknown = [name for name in names if name not in position]
    if unknown:
        raise DataError(f"no agent named {unknown[0]!r} in this run; it has {quoted(trained.agent_names)}")
    return np.array([position[name] for name in names], np.int64).reshape(wanted.shape)


def _whole_numbers(agents: NDArray[Any]) -> NDArray[Any]:
    """Integers as such also where they come as objects, as those of some data frames do."""
    if agents.dtype.kind != "O" or not agents.size:
        return agents
    kinds = {type(label) for label in agents.ravel().tolist()}
    return (
        agents.astype(np.int64)
        if all(kind is int or issubclass(kind, np.integer) for kind in kinds)
        else agents
    )


def _are_numbers(names: tuple[str, ...]) -> bool:
    """Whether all names are whole numbers, 007 among them, and not just the positions."""
    return not is_numbered(names) and all(map(DIGITS.fullmatch, names))


def _rows_of_table(
    data: Any, agents: Any, agent: str | None, target: str | None, trained: Trained
) -> FrameRows:
    table = as_table(data)
    others = [column for column in (agent, target) if column is not None]
    check_present(table, others)
    known = [name for name in columns_of(table) if name not in others]
    missing = [name for name in trained.needed if name not in known]
    extra = [name for name in known if name not in trained.feature_names]
    if missing:
        advice = "; add it, with 1 in every row if it was so there" if missing[0] == INTERCEPT else ""
        known = quoted(trained.feature_names)
        raise DataError(f"column {missing[0]!r} is missing; the run was trained on {known}{advice}")
    if extra:
        raise DataError(
            f"column {extra[0]!r} was not there in the training ({quoted(trained.feature_names)}); drop it, "
            "or say agent= or target= if it is one of these"
        )
    if agent is None:
        positions = _agents_of_rows(agents, table.num_rows, trained)
    elif agents is not None:
        raise DataError("give agents= or agent=, the column that names them, not both")
    else:
        codes, names = encode_labels(table[agent], agent)
        positions = agent_positions(np.array(names, dtype=object), trained)[codes]

    def numbers(name: str) -> Floats:
        def owner(row: int) -> str:
            return trained.agent_names[positions[row]]

        return finite_numbers(table[name], name, owner, np.dtype(np.float64))

    # An added intercept that is not a column is 1.
    columns = [numbers(name) if name in known else np.ones(table.num_rows) for name in trained.feature_names]
    return FrameRows(np.column_stack(columns), positions, None if target is None else numbers(target))


def _agents_of_rows(agents: Any, n_rows: int, trained: Trained) -> NDArray[np.int64]:
    if agents is None:
        raise DataError("say whose rows these are: agents= one agent or one for each row, or agent= a column")
    positions = agent_positions(agents, trained)
    if positions.shape not in ((), (1,), (n_rows,)):
        raise DataError(f"agents must be one, or one for each of the {n_rows} rows; got {positions.size}")
    return np.broadcast_to(positions, (n_rows,))


def _refuse_nonfinite(features: Floats, trained: Trained) -> None:
    place = first_nonfinite(features)
    if place is not None:
        row, column = place
        raise DataError(
            f"column {trained.feature_names[column]!r}, row {row + 1}: {features[place]} is not a finite "
            "number; fill it or drop the row"
        )
