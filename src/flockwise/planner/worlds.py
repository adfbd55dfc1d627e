"""Worlds that a private network could be like: what its agents have in common, and how they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Spread: TypeAlias = Literal["all", "intercept", "plane"]


@dataclass(frozen=True)
class World:
    """A law of models, samples and errors.

    common, personal: the variance of predictions that all agents share, and that each agent has for itself,
        in units of the variance that no model explains.
    spread: where personal parts lie: in all coefficients alike, in the intercept alone (without an intercept
        in one direction), or in a plane.
    along: how much of the personal part varies along the graph, if the graph has a structure.
    scales: whether features have scales from 1 to 1/10. tails: whether errors, and the lengths of personal
        parts, are heavy-tailed (t with 3 degrees of freedom).
    first: whether all settings are tried here first.
    """

    words: str
    common: float
    personal: float
    spread: Spread = "all"
    along: float = 0.0
    scales: bool = False
    tails: bool = False
    first: bool = False

    @property
    def is_clear(self) -> bool:
        """Whether models say much: of labels about 5 % are then on the wrong side."""
        return self.common == 0


# A graph with a structure may say something of what agents have for themselves, or nothing.
HALF: Final = 0.5
WORLDS: Final = (
    World("agents much alike", 0.5, 0.15, along=HALF),
    World("only intercepts differ", 0.3, 0.15, "intercept", along=HALF),
    World("agents far apart", 0.3, 0.5, along=HALF, first=True),
    World("features on different scales", 0.5, 0.15, along=HALF, scales=True),
    World("heavy tails", 0.5, 0.15, along=HALF, tails=True),
    World("no common mean", 0.0, 1.0, "plane", first=True),
    World("unrelated agents", 0.0, 1.0),
)
# Only where edges do not look random.
ALONG_GRAPH: Final = (
    World("models along the graph", 0.0, 1.0, along=1.0, first=True),
    World("models half along the graph", 0.0, 1.0, along=HALF),
)
