"""The network as a node sees it: best effort, at most once, in no order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


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
