"""The network as a node sees it: best effort, at most once, in no order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from flockwise.net.names import check_name, split_address
from flockwise.net.signing import check_public_key


@dataclass(frozen=True)
class Place:
    """An agent: its host, as in the host's certificate, the host's address (host:port), its public key."""

    name: str
    host: str
    address: str
    public_key: bytes

    def __post_init__(self) -> None:
        check_name(self.name, "agent")
        check_name(self.host, "host")
        split_address(self.address)
        check_public_key(self.public_key, self.name)


@dataclass
class TrafficCounts:
    """Messages of this host to and from others.

    keys_refused: messages under a key that no agent publishes on.
    """

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    keys_refused: int = 0


class Transport(Protocol):
    """The way out. Messages may be lost: greetings make up for that."""

    def publish(self, sender: str, data: bytes) -> None:
        """To all agents that listen to `sender`."""
        ...

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        """A greeting, to one agent."""
        ...


class Listener(Protocol):
    """A node as the transport sees it. All calls come in one thread."""

    def on_published(self, sender: str, data: bytes) -> None: ...

    def on_greeting(self, sender: str, data: bytes) -> None: ...

    def on_presence(self, neighbor: str, is_up: bool) -> None: ...


class Switchboard(Transport, Protocol):
    """A transport that agents of this process are plugged into."""

    def attach(self, agent: str, listener: Listener, neighbors: Iterable[str]) -> None:
        """Let an agent hear its neighbors and be heard; again with others when its neighbors change."""
        ...

    def detach(self, agent: str) -> None: ...
