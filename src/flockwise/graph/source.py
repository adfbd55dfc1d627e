"""What a similarity graph was built from, and whether that was private."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

SourceKind: TypeAlias = Literal[
    "profiles", "models", "targets", "ratings", "vectors", "edges", "matrix", "random"
]

# Vectors of unstated origin are taken as private: a graph is called public only by someone who knows.
PRIVATE_KINDS: frozenset[SourceKind] = frozenset({"models", "targets", "ratings", "vectors"})


@dataclass(frozen=True)
class GraphSource:
    """What a graph was built from; models, targets, ratings and unlabelled vectors are always private.

    `private=True` marks any other kind as private too, for instance an edge list made from
    medical records. The opposite cannot be declared.
    """

    kind: SourceKind
    description: str = ""
    private: bool = False

    def __post_init__(self) -> None:
        if self.kind in PRIVATE_KINDS:
            object.__setattr__(self, "private", True)

    def describe(self) -> str:
        """One or two sentences for people."""
        how = f" ({self.description})" if self.description else ""
        if self.private:
            return (
                f"Built from {self.kind}{how}. It is derived from private data: its edges tell something "
                "about that data, and a privacy guarantee of the messages does not cover them."
            )
        return f"Built from {self.kind}{how}, taken as public."


def as_source(source: GraphSource | SourceKind, description: str = "") -> GraphSource:
    """A full source from a kind alone; the description given by the user wins over the builder's."""
    if isinstance(source, str):
        return GraphSource(source, description)
    return source if source.description else replace(source, description=description)
