"""Rosters: an agent's neighbors as the network's authority signed them, one slice of the graph per agent.

No agent sees the whole graph. Each gets its own neighborhood, with names, addresses, public keys and
weights. All slices of a version are cut from one graph, so both ends of an edge hold the same weight. A slice
is text, below its signature, so people can read it too.

A newer version replaces an older one. An older one that is put back, by mistake or by an enemy, is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from flockwise.checks import Count, Positive, check_fields
from flockwise.deploy.credentials import Subject, Trust
from flockwise.errors import IdentityError, MissingExtra, NetworkError
from flockwise.net.intake import NeighborKey
from flockwise.net.names import check_name, split_address
from flockwise.net.signing import holds
from flockwise.net.transport import Place

if TYPE_CHECKING:
    from flockwise.deploy.identity import Authority
    from flockwise.graph import SimilarityGraph

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

FORMAT: Final = b"flockwise roster 1"
MAX_BYTES: Final = 2**24
# There is one text for each signature, of 64 bytes.
SIGNATURE: Final = re.compile(rb"[0-9a-f]{128}")


@dataclass(frozen=True)
class Link(Place):
    """A neighbor: its place, its number among all agents, and the weight of the edge."""

    index: int
    weight: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.weight < math.inf:
            raise NetworkError(f"neighbor {self.name!r}: weight={self.weight!r} must be positive and finite")


@dataclass(frozen=True)
class Later:
    """Public settings and edges from a time on, in seconds since 1970."""

    starts_at: Positive
    settings_version: Count
    neighbors: tuple[Link, ...]
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_fields(self, NetworkError)
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))


@dataclass(frozen=True)
class SignedNeighborhood:
    """One agent's slice of the network.

    index: the agent's number among all agents, used for public random numbers.
    tick_rate: updates per second of every agent, on average.
    settings: public, and the same for all agents.
    is_removed: whether the authority has thrown the agent out; then it has no neighbors.
    settings_version: of settings and edges, as they were last changed for all agents at one time.
    later: takes the place of settings and neighbors when its time comes.
    """

    network: str
    version: Count
    index: int
    place: Place
    dimension: Count
    tick_rate: Positive
    neighbors: tuple[Link, ...]
    settings: Mapping[str, Any]
    is_removed: bool = False
    settings_version: Count = 1
    later: Later | None = None

    def __post_init__(self) -> None:
        check_fields(self, NetworkError)
        check_name(self.network, "network")
        names = [link.name for link in self.neighbors]
        if len({self.agent, *names}) != len(names) + 1:
            raise NetworkError(f"agent {self.agent!r}: its neighbors must be others, each once, got {names}")
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    @property
    def agent(self) -> str:
        return self.place.name

    def at(self, now: float) -> SignedNeighborhood:
        """The slice that is in force at a time, in seconds since 1970."""
        later = self.later
        if later is None or now < later.starts_at:
            return self
        return replace(
            self,
            neighbors=later.neighbors,
            settings=later.settings,
            settings_version=later.settings_version,
            later=None,
        )

    def keys(self) -> dict[str, NeighborKey]:
        """The neighbors' keys, for the intake."""
        return {link.name: NeighborKey(link.public_key, link.weight, link.index) for link in self.neighbors}

    def successor(self, offered: SignedNeighborhood) -> SignedNeighborhood:
        """The slice for the time from now on: the one offered, if it is newer or the same."""
        for (field, mine), other in zip(self._lasting().items(), offered._lasting().values(), strict=True):
            if mine != other:
                raise IdentityError(
                    f"agent {self.agent!r}: the roster offered has {field}={other!r} instead of {mine!r}, "
                    "which never changes; get the slice that was made for this agent"
                )
        if offered.version < self.version:
            raise IdentityError(
                f"agent {self.agent!r}: the roster offered has version {offered.version}, and {self.version} "
                "is in force; an older one is never put back"
            )
        if offered.version == self.version and offered != self:
            raise IdentityError(
                f"agent {self.agent!r}: there are two different rosters of version {self.version}; the "
                "authority must give a changed one a higher version"
            )
        return offered

    def _lasting(self) -> dict[str, str | int]:
        """What never changes. With another key, neighbors would not know the agent's old messages."""
        return {
            "network": self.network,
            "agent": self.agent,
            "public_key": self.place.public_key.hex(),
            "index": self.index,
            "dimension": self.dimension,
        }


def neighborhoods(
    network: str,
    version: int,
    graph: SimilarityGraph,
    places: Sequence[Place],
    *,
    dimension: int,
    tick_rate: float,
    settings: Mapping[str, Any],
    settings_version: int = 1,
    removed: Collection[str] = (),
) -> list[SignedNeighborhood]:
    """One slice per agent, all cut from one graph; `places` are in the order of its agents.

    removed: agents that were thrown out; the graph has no edges of theirs any more.
    """
    if len(places) != graph.n_agents:
        raise NetworkError(f"the graph has {graph.n_agents} agents, and there are {len(places)} places")
    if len({place.name for place in places}) != len(places):
        raise NetworkError("two agents have the same name; rename one of them")
    addresses = {place.host: place.address for place in places}
    for place in places:
        if addresses[place.host] != place.address:
            raise NetworkError(
                f"host {place.host!r} has two addresses, {place.address!r} and {addresses[place.host]!r}; "
                "agents of one host share its address"
            )

    def links(agent: int) -> tuple[Link, ...]:
        others, weights = graph.neighbors_of(agent)
        return tuple(
            Link(**vars(places[other]), index=other, weight=weight)
            for other, weight in zip(others.tolist(), weights.tolist(), strict=True)
        )

    return [
        SignedNeighborhood(
            network,
            version,
            agent,
            place,
            dimension,
            tick_rate,
            links(agent),
            settings,
            is_removed=place.name in removed,
            settings_version=settings_version,
        )
        for agent, place in enumerate(places)
    ]


def sign_neighborhood(neighborhood: SignedNeighborhood, authority: Authority) -> bytes:
    """The slice as text, below the authority's signature."""
    if neighborhood.network != authority.network:
        raise IdentityError(
            f"the roster is of network {neighborhood.network!r}, and the authority of {authority.network!r}"
        )
    body = msgspec.json.format(msgspec.json.encode(neighborhood, enc_hook=dict), indent=1) + b"\n"
    return b"\n".join([FORMAT, authority.sign(_content(body)).hex().encode(), body])


def read_neighborhood(data: bytes, agent: str, trust: Trust) -> SignedNeighborhood:
    """The slice of this agent, if the authority of its network signed exactly these bytes."""
    first, line, body = (*data[:MAX_BYTES].split(b"\n", 2), b"", b"")[:3]
    if first != FORMAT:
        raise IdentityError(
            f"agent {agent!r}: a roster begins with {FORMAT.decode()!r}, and this one with {first[:40]!r}; "
            "get it again, or install the version of Flockwise that reads it"
        )
    is_signed = SIGNATURE.fullmatch(line) is not None
    if not is_signed or not holds(trust.roster_key, _content(body), bytes.fromhex(line.decode())):
        raise IdentityError(
            f"agent {agent!r}: the roster was not signed by the authority of network {trust.network!r}, or "
            "was changed since; get it again from the people who run the network"
        )
    try:
        neighborhood = msgspec.json.decode(body, type=SignedNeighborhood)
    except (ValueError, NetworkError) as error:
        raise IdentityError(f"agent {agent!r}: the roster is signed, but cannot be used: {error}") from error
    if (neighborhood.agent, neighborhood.network) != (agent, trust.network):
        raise IdentityError(
            f"agent {agent!r} of network {trust.network!r}: the roster is that of agent "
            f"{neighborhood.agent!r} of {neighborhood.network!r}; every agent has one of its own"
        )
    return neighborhood


def check_belongs(
    neighborhood: SignedNeighborhood, subject: Subject, public_keys: Mapping[str, bytes]
) -> None:
    """Refuse to run an agent on another host, or with another key, than others expect."""
    place = neighborhood.place
    expected = (neighborhood.network, place.host, split_address(place.address)[0], place.public_key)
    found = (subject.network, subject.host, subject.address, public_keys.get(place.name))
    for what, named, held in zip(("network", "host", "address", "public key"), expected, found, strict=True):
        if named != held:
            raise IdentityError(
                f"agent {place.name!r}: the roster names another {what} than the certificate and keys of "
                "this host; get the roster that belongs to them, or enroll the host again"
            )


def _content(body: bytes) -> bytes:
    """The bytes that the authority signs. They begin like nothing else that it may sign."""
    return FORMAT + b"\n" + body
