"""Rows of numbers, one per agent, and whose they are: by a frame's index, an export, or a run's models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flockwise.data.checks import quoted
from flockwise.data.labels import names_of, unless_numbered
from flockwise.errors import DataError
from flockwise.privacy.exported import exported_origin


class NamedRows(NamedTuple):
    """numbers: as they came, or a frame's. agent_names, columns: None if nobody says them."""

    numbers: Any
    agent_names: tuple[str, ...] | None
    columns: tuple[str, ...] | None = None

    def in_order(self, agent_names: Sequence[str]) -> NamedRows:
        """With these agents in this order; as they are if they have no names."""
        if self.agent_names is None or self.agent_names == tuple(agent_names):
            return self
        position = {name: place for place, name in enumerate(self.agent_names)}
        for name in agent_names:
            if name not in position:
                raise DataError(f"agent {name!r} has no row: the rows are of {quoted(self.agent_names)}")
        if len(agent_names) < len(position):
            stranger = next(name for name in self.agent_names if name not in set(agent_names))
            raise DataError(f"agent {stranger!r} has a row and is not among {quoted(agent_names)}; drop it")
        order = [position[name] for name in agent_names]
        return NamedRows(np.asarray(self.numbers)[order], tuple(agent_names), self.columns)


def named_rows(rows: Any, agent_names: Iterable[str | int] | None = None) -> NamedRows:
    """Numbers and names of a frame or an array. agent_names: what the caller says of their order."""
    is_frame = hasattr(rows, "__arrow_c_stream__")
    found = (
        _of_frame(rows) if is_frame else NamedRows(rows, unless_numbered(getattr(rows, "agent_names", None)))
    )
    if agent_names is None:
        return found
    given = names_of(agent_names)
    if found.agent_names is not None and found.agent_names != given:
        raise DataError(
            f"agent_names says that the rows are of {quoted(given)}, and they are of "
            f"{quoted(found.agent_names)}; leave agent_names out, or drop the index with "
            "reset_index(drop=True)"
        )
    return found._replace(agent_names=given)


def _of_frame(frame: Any) -> NamedRows:
    # Imported here: an agent that starts from zeros needs no Arrow.
    from flockwise.data.tables import as_table, columns_of, finite_numbers, index_labels, is_text

    table = as_table(frame)
    columns, labels = columns_of(table), index_labels(table)
    is_export = exported_origin(frame) is not None
    if labels is None and is_export and is_text(table[columns[0]].type):
        labels = table[columns[0]].to_pylist()
        columns = columns[1:]
    elif "agent" in columns:
        raise DataError(
            "column 'agent' looks like the agents' names: make it the index with set_index('agent'), or give "
            "them as agent_names= and drop it"
        )
    names = unless_numbered(None if labels is None else names_of(labels))

    def owner(row: int) -> str:
        return str(row) if names is None else names[row]

    numbers: NDArray[np.float64] = np.empty((table.num_rows, len(columns)))
    for place, column in enumerate(columns):
        numbers[:, place] = finite_numbers(table[column], column, owner, np.dtype(np.float64))
    return NamedRows(numbers, names, tuple(columns))
