"""The source of a similarity graph, and whether it was private."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from flockwise.privacy.origin import Origin, Status

SourceKind: TypeAlias = Literal[
    "profiles", "models", "targets", "ratings", "vectors", "edges", "matrix", "random", "complete"
]

PRIVATE_KINDS: frozenset[SourceKind] = frozenset({"models", "targets", "ratings"})
PUBLIC_KINDS: frozenset[SourceKind] = frozenset({"profiles", "random", "complete"})


@dataclass(frozen=True)
class GraphSource:
    """The source of a graph. Models, targets and ratings are always private.

    `private=True` marks any other kind as private too, for instance an edge list made from medical records.
    `private=False` says that edges, a matrix or vectors are public; without a word their origin is unknown,
    and no guarantee covers the graph.
    """

    kind: SourceKind
    description: str = ""
    private: bool | None = None

    def __post_init__(self) -> None:
        if self.kind in PRIVATE_KINDS:
            object.__setattr__(self, "private", True)

    @property
    def status(self) -> Status:
        if self.private:
            return "private"
        if self.kind in PUBLIC_KINDS or self.private is False:
            return "public"
        return "unknown"

    @property
    def origin(self) -> Origin:
        """The graph as guarantees name it."""
        return Origin(f"the graph, built from {self.kind}", self.status)

    def describe(self) -> str:
        """One or two sentences for people."""
        how = f" ({self.description})" if self.description else ""
        built = f"Built from {self.kind}{how}"
        return {
            "private": f"{built}. It is derived from private data: its edges leak something about that data, "
            "and a privacy guarantee of the messages does not cover them.",
            "unknown": f"{built}, of unknown origin: a privacy guarantee of the messages does not cover it. "
            "Say private=False in its GraphSource if it is public.",
            "public": f"{built}, taken as public.",
        }[self.status]


def as_source(source: GraphSource | SourceKind, description: str = "") -> GraphSource:
    """A full source from a kind alone; the description given by the user wins over the builder's."""
    if isinstance(source, str):
        return GraphSource(source, description)
    return source if source.description else replace(source, description=description)
