"""Where something that a run takes as given came from, and what that means for a guarantee."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, TypeAlias

Span: TypeAlias = tuple[float, float]
Spans: TypeAlias = tuple[Span, Span]
Status: TypeAlias = Literal["public", "private", "unknown", "released"]
# From the one that can be used for anything to the one that can be used for least.
STATUSES: Final[tuple[Status, ...]] = ("public", "released", "unknown", "private")


def worse(one: Status, other: Status) -> Status:
    """The one that allows less."""
    return one if STATUSES.index(one) > STATUSES.index(other) else other


@dataclass(frozen=True)
class Adversary:
    """Somebody who learns almost nothing, as the subject of a sentence, and the assumptions about them."""

    words: str
    assumptions: tuple[str, ...] = ()


EVERYONE_ELSE: Final = Adversary("Whoever sees every message of an agent, all others colluding,")


def weakest(adversaries: Iterable[Adversary]) -> Adversary:
    """Against whom several guarantees hold together: somebody who may do no more than any of them allows."""
    known = tuple(dict.fromkeys(adversaries))
    limited = [one.words for one in known if one.words != EVERYONE_ELSE.words]
    first, *others = dict.fromkeys(limited or [EVERYONE_ELSE.words])
    assumed = dict.fromkeys(words for one in known for words in one.assumptions)
    more = (f"nobody knows more of another run than {one[:1].lower()}{one[1:].rstrip(',')}" for one in others)
    return Adversary(first, (*assumed, *more))


@dataclass(frozen=True)
class Origin:
    """A thing that a run takes as given, and what it was made from.

    status: "public" says nothing about anybody's samples. "private" was computed from them without noise;
    "unknown" might have been: no guarantee covers either. "released" was paid for.
    spent: the least and the largest ε, and the least and the largest δ, over agents; a guarantee adds it up.
    declared: whose word the sensitivity of what was released is. parts: what it was mixed from, if several.
    simulated: whether a simulation drew its noise, which its seed draws again. seeds: those seeds; a run that
    builds on it needs another one.
    against: from whom what was released is kept. if_all_collude: the least and the largest ε against
    everybody else together, where that is more.
    """

    what: str
    status: Status
    spent: Spans | None = None
    declared: tuple[str, ...] = ()
    parts: tuple[Origin, ...] = field(default=(), compare=False, repr=False)
    simulated: bool = False
    seeds: frozenset[int] = field(default=frozenset(), compare=False, repr=False)
    against: Adversary = EVERYONE_ELSE
    if_all_collude: Span | None = None

    @property
    def is_covered(self) -> bool:
        """Whether a guarantee can hold beside it."""
        return self.status in ("public", "released")

    @property
    def words(self) -> str:
        unknown = self.status == "unknown" and self.spent is None
        return f"{self.what}, of unknown origin" if unknown else self.what

    def to_json(self) -> dict[str, Any]:
        """As it stands in files of models, and in rosters, which have no seeds."""
        return {
            "what": self.what,
            "status": self.status,
            "spent": self.spent,
            "declared": self.declared,
            "simulated": self.simulated,
            "seeds": sorted(self.seeds),
            "against": self.against.words,
            "assumes": self.against.assumptions,
            "if_all_collude": self.if_all_collude,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        spent, left = document["spent"], document["if_all_collude"]
        return cls(
            document["what"],
            document["status"],
            spent and (tuple(spent[0]), tuple(spent[1])),
            tuple(document["declared"]),
            simulated=document["simulated"],
            seeds=frozenset(document["seeds"]),
            against=Adversary(document["against"], tuple(document["assumes"])),
            if_all_collude=left and tuple(left),
        )
