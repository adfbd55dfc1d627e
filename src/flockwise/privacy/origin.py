"""Where something that a run takes as given came from, and what that means for a guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Spans: TypeAlias = tuple[tuple[float, float], tuple[float, float]]
Status: TypeAlias = Literal["public", "private", "unknown", "released"]
# From the one that can be used for anything to the one that can be used for least.
STATUSES: Final[tuple[Status, ...]] = ("public", "released", "unknown", "private")


def worse(one: Status, other: Status) -> Status:
    """The one that allows less."""
    return one if STATUSES.index(one) > STATUSES.index(other) else other


@dataclass(frozen=True)
class Origin:
    """A thing that a run takes as given, and what it was made from.

    status: "public" says nothing about anybody's samples. "private" was computed from them without noise;
    "unknown" might have been: no guarantee covers either. "released" was paid for.
    spent: the least and the largest ε, and the least and the largest δ, over agents; a guarantee adds it up.
    declared: whose word the sensitivity of what was released is. parts: what it was mixed from, if several.
    seeds: those that drew its noise in simulations; a run that builds on it needs another one.
    """

    what: str
    status: Status
    spent: Spans | None = None
    declared: tuple[str, ...] = ()
    parts: tuple[Origin, ...] = field(default=(), compare=False, repr=False)
    seeds: frozenset[int] = field(default=frozenset(), compare=False, repr=False)

    @property
    def is_covered(self) -> bool:
        """Whether a guarantee can hold beside it."""
        return self.status in ("public", "released")

    @property
    def words(self) -> str:
        unknown = self.status == "unknown" and self.spent is None
        return f"{self.what}, of unknown origin" if unknown else self.what
