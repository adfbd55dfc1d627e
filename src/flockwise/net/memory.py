"""A network in the memory of one process: what is sent waits in a queue until it is delivered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from flockwise.net.transport import Listener

Kind: TypeAlias = Literal["published", "greeting"]


@dataclass(frozen=True)
class Letter:
    """Bytes on their way from one agent to another."""

    sender: str
    receiver: str
    kind: Kind
    data: bytes


@dataclass
class _Plug:
    listener: Listener
    neighbors: frozenset[str]


class MemoryNetwork:
    """Connects all agents that are attached.

    carry: takes every letter instead of the queue, and hands to `deliver` those that arrive, when they
    do: that is where a test puts delays and losses.
    """

    def __init__(self, carry: Callable[[Letter], None] | None = None) -> None:
        self._plugs: dict[str, _Plug] = {}
        self._queue: deque[Letter] = deque()
        self._carry = self._queue.append if carry is None else carry

    def attach(self, agent: str, listener: Listener, neighbors: Iterable[str]) -> None:
        """Plug an agent in; neighbors that are in as well see each other come up."""
        before = self._plugs.get(agent)
        known = frozenset() if before is None else before.neighbors
        plug = self._plugs[agent] = _Plug(listener, frozenset(neighbors))
        for other in sorted(plug.neighbors - known):
            if self._are_linked(agent, other):
                listener.on_presence(other, True)
                self._plugs[other].listener.on_presence(agent, True)

    def detach(self, agent: str) -> None:
        """Unplug it, as if its process had died."""
        plug = self._plugs.pop(agent)
        for other in sorted(plug.neighbors & self._plugs.keys()):
            if agent in self._plugs[other].neighbors:
                self._plugs[other].listener.on_presence(agent, False)

    def publish(self, sender: str, data: bytes) -> None:
        for receiver in sorted(self._plugs):
            if sender in self._plugs[receiver].neighbors:
                self._carry(Letter(sender, receiver, "published", data))

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        self._carry(Letter(sender, receiver, "greeting", data))

    def deliver(self, letter: Letter) -> None:
        """Hand a letter over; one for an agent that is not there, or does not listen, is lost."""
        plug = self._plugs.get(letter.receiver)
        if plug is None or letter.sender not in plug.neighbors:
            return
        if letter.kind == "published":
            plug.listener.on_published(letter.sender, letter.data)
        else:
            plug.listener.on_greeting(letter.sender, letter.data)

    def deliver_all(self) -> int:
        """Deliver what waits in the queue, and what is sent in answer; how many letters it was."""
        count = 0
        while self._queue:
            self.deliver(self._queue.popleft())
            count += 1
        return count

    def _are_linked(self, agent: str, other: str) -> bool:
        plug = self._plugs.get(other)
        return plug is not None and agent in plug.neighbors
