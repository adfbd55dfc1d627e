"""The budgets of a [privacy] section: one for all agents, or a table with one for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flockwise.config.misfits import needs_delta
from flockwise.data.labels import encode_labels
from flockwise.data.tables import check_present, read_table
from flockwise.errors import ConfigError, DataError, PrivacyError
from flockwise.objective import Problem
from flockwise.privacy.accounting import default_accountant
from flockwise.privacy.budget import Budget, default_delta

AGENT, EPSILON, DELTA = "agent", "epsilon", "delta"


def budgets_of(section: Any, problem: Problem) -> Budget | tuple[Budget, ...]:
    """(ε, δ): one for all agents, or one each in the order of the agents."""
    if section.budgets is None:
        assert section.epsilon is not None
        return Budget(section.epsilon, _common_delta(section, problem))
    names = problem.population.agent_names
    try:
        budgets = _read(section.budgets, names)
        _check_deltas(section, budgets, names)
    except DataError as error:
        raise ConfigError(f"{section.budgets}: {error}") from None
    return budgets


def _common_delta(section: Any, problem: Problem) -> float:
    if section.delta is not None:
        return section.delta
    delta = default_delta(problem.sample_cap)
    mechanism = getattr(section, "mechanism", "gaussian")
    accountant = getattr(section, "accountant", None) or default_accountant(mechanism, delta)
    # Basic composition is pure: a δ would only make its guarantee sound worse.
    return 0.0 if accountant == "basic" else delta


def _read(file: Path, names: tuple[str, ...]) -> tuple[Budget, ...]:
    table = read_table(file, text_columns=[AGENT])
    check_present(table, (AGENT, EPSILON, DELTA))
    if table.num_rows == 0:
        raise DataError("the table has no rows; give every agent one")
    codes, _ = encode_labels(table[AGENT], AGENT, names)
    rows_of = np.bincount(codes, minlength=len(names))
    if (rows_of != 1).any():
        wrong = int(np.argmax(rows_of != 1))
        raise DataError(f"agent {names[wrong]!r}: {rows_of[wrong]} rows; every agent needs exactly one")
    ordered = table.take(np.argsort(codes))
    cells = zip(names, ordered[EPSILON].to_pylist(), ordered[DELTA].to_pylist(), strict=True)
    return tuple(_budget(name, epsilon, delta) for name, epsilon, delta in cells)


def _budget(name: str, epsilon: Any, delta: Any) -> Budget:
    try:
        return Budget(_number(name, EPSILON, epsilon), _number(name, DELTA, delta))
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
