"""The source of a similarity graph, and whether it was private."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from flockwise.errors import GraphError
from flockwise.privacy.origin import Origin, Status, worse

SourceKind: TypeAlias = Literal[
    "profiles", "models", "targets", "ratings", "vectors", "edges", "matrix", "random", "complete"
]

PRIVATE_KINDS: frozenset[SourceKind] = frozenset({"models", "targets", "ratings"})
PUBLIC_KINDS: frozenset[SourceKind] = frozenset({"profiles", "random", "complete"})
# They compare a row of numbers of each agent.
COMPARED_KINDS: frozenset[SourceKind] = frozenset({"profiles", "models", "targets", "ratings", "vectors"})
# Made without a look at who resembles whom.
WITHOUT_RESEMBLANCE: frozenset[SourceKind] = frozenset({"random", "complete"})


@dataclass(frozen=True)
class GraphSource:
    """The source of a graph. Models, targets and ratings are always private.

    `private=True` marks any other kind as private too, for instance an edge list made from medical records.
    `private=False` says that edges, a matrix or vectors are public; without a word their origin is unknown,
    and no guarantee covers the graph. made_of: the origin of the models that it was built from, where they
    know it; the graph is never more public than they are.
    """

    kind: SourceKind
    description: str = ""
    private: bool | None = None
    made_of: Origin | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(SourceKind):
            allowed = ", ".join(f'"{kind}"' for kind in get_args(SourceKind))
            raise GraphError(f"a graph has no source {self.kind!r}; say one of {allowed}")
        if self.kind in PRIVATE_KINDS:
            object.__setattr__(self, "private", True)

    @property
    def status(self) -> Status:
        if self.made_of is None:
            return self._said
        if self._said == "unknown":
            return self.made_of.status
        return worse(self._said, self.made_of.status)

    @property
    def neighbors_resemble(self) -> bool:
        """Whether an edge says that two agents resemble each other."""
        return self.kind not in WITHOUT_RESEMBLANCE

    @property
    def compares_rows(self) -> bool:
        """Whether it matters whose row of numbers is whose."""
        return self.kind in COMPARED_KINDS

    @property
    def _said(self) -> Status:
        if self.private:
            return "private"
        if self.kind in PUBLIC_KINDS or self.private is False:
            return "public"
        return "unknown"

    @property
    def origin(self) -> Origin:
        """The graph as guarantees name it."""
        made_of = self.made_of
        if made_of is None:
            return Origin(f"the graph, built from {self.kind}", self.status)
        return replace(made_of, what=f"the graph, built from {made_of.what}", status=self.status)

    def more(self, words: str) -> GraphSource:
        """With more words on how the graph was built."""
        return replace(self, description=f"{self.description}; {words}")

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
            "released": f"{built}, out of {self.origin.what.removeprefix('the graph, built from ')}.",
        }[self.status]


def as_source(
    source: GraphSource | SourceKind, description: str = "", made_of: Origin | None = None
) -> GraphSource:
    """A full source from a kind alone; the description given by the user wins over the builder's.

    made_of: the origin of what the graph is built from, if it is known. No source makes it public.
    """
    found = GraphSource(source, description) if isinstance(source, str) else source
    if made_of is not None:
        if made_of.status == "private" and found.status == "public":
            raise GraphError(
                f"the source says that the graph is public, and it is built from {made_of.what}; leave the "
                "source out, or build the graph from what is public"
            )
        found = replace(found, made_of=made_of)
    return found if found.description else replace(found, description=description)
