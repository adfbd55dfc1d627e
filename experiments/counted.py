"""How many published values hold: each is counted once, by the one row that reproduces it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from experiments.result import NOT_COMPARABLE, REWARDS

JsonRow: TypeAlias = Mapping[str, Any]

# Rows of published values, by how much of their noise is printed.
KINDS = (
    "without privacy",
    "zero models, before any noise",
    "a private start, released in our way",
    "Figure 4, by a formula of ours",
    "noise as printed",
)
OUTCOMES = ("holds", "higher", "lower", NOT_COMPARABLE)


def of_the_paper(documents: Iterable[Mapping[str, Any]]) -> list[JsonRow]:
    """The one row of each published value."""
    return [row for document in documents for row in document["rows"] if "value" in row]


def kind_of(row: JsonRow) -> str:
    if row.get("epsilon") is None:
        return KINDS[0]
    figure, _, what = row["value"].partition(": ")
    if what.endswith("start"):
        return KINDS[1] if figure == "2a" else KINDS[2]
    return KINDS[3] if figure == "4" else KINDS[4]


def in_words(verdict: str, metric: str) -> str:
    """What it says of ours, and not of who is better: a baseline that is better is no success."""
    if verdict not in ("better", "worse"):
        return verdict
    return "higher" if (verdict == "better") == (metric in REWARDS) else "lower"


def outcomes(rows: Sequence[JsonRow]) -> list[int]:
    """How many rows have each of OUTCOMES."""
    found = [in_words(row["verdict"], row["metric"]) for row in rows]
    return [found.count(outcome) for outcome in OUTCOMES]


def counted(documents: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, list[int]]]:
    """By kind and for all: how many values there are, and how many have each outcome."""
    rows = of_the_paper(documents)
    by_kind = {kind: [row for row in rows if kind_of(row) == kind] for kind in KINDS} | {"all": rows}
    return [(kind, len(found), outcomes(found)) for kind, found in by_kind.items()]
