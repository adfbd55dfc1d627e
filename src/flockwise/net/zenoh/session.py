"""One zenoh session: what is declared in it, and how messages come out of it into the event loop.

If zenoh called Python with every message, the call would cost more than the message: zenoh's threads would
wait for the interpreter, and the interpreter for them. So messages gather in zenoh's queues, and the event
loop empties these: all the time on a busy host, a few times a second on an idle one.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from flockwise.errors import MissingExtra
from flockwise.net.zenoh.access import KeyExpressions
from flockwise.net.zenoh.inbox import Inbox

try:
    import zenoh
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

# So many messages may wait. Then zenoh reads no further, and senders have to wait.
CAPACITY: Final = 2**10
# So many in a row; then everything else in the loop has its turn.
AT_A_STRETCH: Final = 2**8
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.05  # seconds


class QueueReader:
    """Hands over everything that comes into zenoh's queues, in the loop, until it is closed."""

    def __init__(self, queues: Iterable[Any], take: Callable[[Any], None]) -> None:
        self._queues = list(queues)
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._pause = SHORTEST_PAUSE
        self._next = self._loop.call_soon(self._look)

    def close(self) -> None:
        self._next.cancel()

    def _look(self) -> None:
        most = AT_A_STRETCH
        try:
            most = max(self._empty(queue) for queue in self._queues)
        finally:  # go on after a message that fails
            if most == AT_A_STRETCH:
                self._pause = 0.0
            elif most:
                self._pause = SHORTEST_PAUSE
            else:
                self._pause = min(max(SHORTEST_PAUSE, 2 * self._pause), LONGEST_PAUSE)
            self._next = self._loop.call_later(self._pause, self._look)

    def _empty(self, queue: Any) -> int:
        """Returns how many there were."""
        for count in range(AT_A_STRETCH):
            item = queue.try_recv()
            if item is None:
                return count
            self._take(item)
        return AT_A_STRETCH


class Session:
    """A zenoh session with its settings, which cannot change while it is open.

    inbox: where `receive` puts messages; closed with the session.
    receive: called with all messages and signs of presence, also in zenoh's threads.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        keys: KeyExpressions,
        inbox: Inbox[Any],
        receive: Callable[[zenoh.Sample], None],
        link_changed: Callable[[zenoh.LinkEvent], None],
    ) -> None:
        self.settings = settings
        self._name = secrets.token_hex(8)
        self._keys = keys
        self.inbox = inbox
        self._receive = receive
        self._link_changed = link_changed
        self._reader: QueueReader | None = None
        self._queues: list[zenoh.Subscriber[Any]] = []
        self._publishers: dict[str, zenoh.Publisher] = {}
        self._tokens: dict[str, zenoh.LivelinessToken] = {}
        # Declarations end when nobody holds them any more.
        self._held: list[Any] = []

    def open(self, agents: Iterable[str]) -> None:
        """Blocks. Subscribers come before publishers: an agent may be greeted as soon as it is seen."""
        session = self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(self.settings)))
        try:
            # Called in zenoh's own threads: the default would be one more thread for each subscription.
            changed = zenoh.handlers.Callback(self._link_changed, indirect=False)
            present = zenoh.handlers.Callback(self._receive, indirect=False)
            self._held.append(session.info.declare_link_events_listener(changed, history=True))
            self._queues = [
                session.declare_subscriber(
                    key, zenoh.handlers.FifoChannel(CAPACITY), allowed_origin=zenoh.Locality.REMOTE
                )
                for key in self._keys.all_messages
            ]
            alive = session.liveliness().declare_subscriber(self._keys.all_alive, present, history=True)
            self._held.append(alive)
            self.announce(agents)
        except BaseException:
            self.close()
            raise

    def listen(self, agents: Iterable[str]) -> None:
        """Begin to hand over messages; agents that have left since `open` are withdrawn."""
        self._reader = QueueReader(self._queues, self._receive)
        for agent in sorted(self._tokens.keys() - set(agents)):
            self.withdraw(agent)

    def stop_listening(self) -> None:
        self.inbox.close()
        if self._reader is not None:
            self._reader.close()

    def announce(self, agents: Iterable[str]) -> None:
        """Let agents publish and be seen that could not yet."""
        for agent in sorted(set(agents) - self._tokens.keys()):
            self._publishers[agent] = self._session.declare_publisher(
                self._keys.model(agent),
                congestion_control=zenoh.CongestionControl.DROP,
                allowed_destination=zenoh.Locality.REMOTE,
            )
            key = self._keys.alive(agent, self._name)
            self._tokens[agent] = self._session.liveliness().declare_token(key)

    def withdraw(self, agent: str) -> None:
        for declared in (self._tokens.pop(agent, None), self._publishers.pop(agent, None)):
            if declared is not None:
                declared.undeclare()

    def publish(self, agent: str, data: bytes) -> bool:
        publisher = self._publishers.get(agent)
        if publisher is not None:
            publisher.put(data)
        return publisher is not None

    def send(self, agent: str, neighbor: str, data: bytes) -> None:
        self._session.put(
            self._keys.greeting(agent, neighbor), data, allowed_destination=zenoh.Locality.REMOTE
        )

    def close(self) -> None:
        """Blocks. zenoh waits at most 10 seconds for a host that cannot be reached, or hangs."""
        with suppress(zenoh.ZError):
            self._session.close()
