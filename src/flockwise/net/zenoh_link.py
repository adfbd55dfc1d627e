"""The real network of a host: one zenoh session for all its agents, in peer mode, over mutual TLS.

There is no server: a host dials the hosts of its agents' neighbors and nobody else. Agents of the same
host hear each other directly, and still through their intake. The rights in a session are fixed when it
opens, so new neighbors mean a new session; greetings make up for messages that are lost meanwhile.

Of what zenoh delivers, only the host that it came from is trusted here. The intake judges names,
signatures and contents.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from flockwise.errors import MissingExtra, NetworkError
from flockwise.net.identity import TlsFiles
from flockwise.net.inbox import Inbox
from flockwise.net.metrics import TrafficCounts
from flockwise.net.names import check_host
from flockwise.net.roster import Place
from flockwise.net.transport import Listener
from flockwise.net.zenoh_session import Session
from flockwise.net.zenoh_settings import LEASE_MS, KeyExpressions, NeighborHost, session_settings

try:
    import zenoh
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

# How many messages of one sender may wait for the loop: more than a neighbor sends while a busy host is
# late, and a bound on the memory that it can take.
SHARE: Final = 64
# A host has one session, and for a while the one before it. No more are remembered.
MOST_SESSIONS: Final = 4
# In place of a session, for an agent that is heard although no session says that it is up.
HEARD: Final = b""
ON_THE_WAY: Final = 2 * LEASE_MS / 1000  # seconds
LONGEST_SILENCE: Final = 90.0  # seconds: an agent that is up greets its neighbors three times in it
# What follows the network, the host and the kind in a key.
NAMES_IN_KEY: Final = {"model": 1, "to": 2, "alive": 2}

Kind: TypeAlias = Literal["model", "greeting", "up", "down"]


class Arrival(NamedTuple):
    """A message or a change of presence; `receiver` is None for all agents that listen to the sender."""

    kind: Kind
    sender: str
    receiver: str | None = None
    data: bytes = b""


@dataclass
class _AttachedAgent:
    listener: Listener
    neighbors: frozenset[str]


class ZenohLink:
    """A switchboard whose agents reach those of other hosts.

    listen: where this host is reached, as host:port.
    max_bytes: of the longest message that anyone may send; a longer one is cut off.
    log: called with an event and fields when connections come and go, and for strangers.
    """

    def __init__(
        self,
        network: str,
        host: str,
        listen: str,
        files: TlsFiles,
        *,
        max_bytes: int,
        log: Callable[..., None] = lambda event, **fields: None,
    ) -> None:
        self.host = check_host(host)
        self.traffic = TrafficCounts()
        # Connections of hosts that the roster does not name. They can neither send nor hear anything.
        self.strangers = 0
        self._dropped: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._keys = KeyExpressions(network, host)
        self._listen = listen
        self._files = files
        self._max_bytes = max_bytes
        self._log = log
        self._places: dict[str, Place] = {}
        self._attached: dict[str, _AttachedAgent] = {}
        self._audience: dict[str, list[str]] = {}
        self._neighboring: frozenset[str] = frozenset()  # hosts
        # Agents of other hosts that are up, each with the sessions of its host that say so, oldest first.
        self._remote_up: dict[str, dict[bytes, None]] = {}
        # By the loop's clock: when agents went down, and when those in HEARD were last heard.
        self._gone_at: dict[str, float] = {}
        self._heard_at: dict[str, float] = {}
        self._session: Session | None = None
        self._changing = asyncio.Lock()
        self._counting = threading.Lock()

    def learn(self, places: Iterable[Place]) -> None:
        """Where agents are, according to a roster; `refresh` puts it into effect."""
        for place in places:
            check_host(place.host)
            self._places[place.name] = place

    def attach(self, agent: str, listener: Listener, neighbors: Iterable[str]) -> None:
        """Let an agent hear its neighbors and be heard, on other hosts after the next `refresh`."""
        names = frozenset(neighbors)
        for name in names:
            if name not in self._places:
                raise NetworkError(f"agent {agent!r}: nothing says on which host its neighbor {name!r} runs")
        before = self._attached.get(agent)
        known = frozenset[str]() if before is None else before.neighbors
        self._attached[agent] = _AttachedAgent(listener, names)
        self._set_audience(agent, known, names)
        for other in sorted(names - known):
            if other in self._remote_up:
                self._hand_over(Arrival("up", other, agent))
            elif other in self._attached and agent in self._attached[other].neighbors:
                self._hand_over(Arrival("up", other, agent))
                self._hand_over(Arrival("up", agent, other))

    def detach(self, agent: str) -> None:
        """Take an agent out; its neighbors see it go."""
        attached = self._attached.pop(agent)
        self._set_audience(agent, attached.neighbors, frozenset())
        if self._session is not None:
            self._session.withdraw(agent)
        for other in sorted(attached.neighbors & self._attached.keys()):
            if agent in self._attached[other].neighbors:
                self._hand_over(Arrival("down", agent, other))

    def publish(self, sender: str, data: bytes) -> None:
        if sender in self._audience:
            self._hand_over(Arrival("model", sender, None, data))
        if self._session is not None and self._session.publish(sender, data):
            self._count_out(data)

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        if receiver in self._attached:
            self._hand_over(Arrival("greeting", sender, receiver, data))
        elif self._session is not None:
            self._session.send(sender, receiver, data)
            self._count_out(data)

    async def refresh(self) -> bool:
        """Open a session, or a new one if agents have other neighbors now. Returns whether it did."""
        async with self._changing:
            hosts = self._neighbor_hosts()
            self._neighboring = frozenset(hosts)
            wanted = session_settings(self._keys, self._listen, self._files, hosts, self._max_bytes)
            if self._session is not None and self._session.settings == wanted:
                self._session.announce(self._attached)
                self._forget_the_silent()
                return False
            await self._close_session()
            inbox = Inbox(asyncio.get_running_loop(), self._deliver_from_outside, share=SHARE)
            session = Session(wanted, self._keys, inbox, self._receiver(inbox), self._link_changed)
            try:
                await asyncio.to_thread(session.open, tuple(self._attached))
            except zenoh.ZError as error:
                raise NetworkError(
                    f"host {self.host!r} cannot listen at {self._listen!r}: {error}"
                ) from error
            session.listen(self._attached)
            self._session = session
            return True

    async def close(self) -> None:
        """Leave the network."""
        async with self._changing:
            await self._close_session()
            # What still waits for agents of this host is lost.
            self._attached.clear()
            self._audience.clear()

    def dropped(self, agent: str) -> Counter[str]:
        """Messages for this agent that were dropped here, by reason."""
        with self._counting:
            return Counter(self._dropped[agent])

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        session.stop_listening()
        await asyncio.to_thread(session.close)
        for agent, sessions in sorted(self._remote_up.items()):
            for name in list(sessions):
                self._deliver(Arrival("down", agent, data=name))

    def _neighbor_hosts(self) -> dict[str, NeighborHost]:
        hosts: dict[str, NeighborHost] = {}
        for agent, attached in self._attached.items():
            for neighbor in attached.neighbors:
                place = self._places[neighbor]
                if place.host == self.host:
                    continue
                known = hosts.setdefault(place.host, NeighborHost(place.address))
                if known.address != place.address:
                    raise NetworkError(
                        f"host {place.host!r} has two addresses in the rosters, {known.address!r} "
                        f"and {place.address!r}; have the authority sign rosters that agree"
                    )
                known.theirs.add(neighbor)
                known.ours.add(agent)
        return hosts

    def _set_audience(self, agent: str, before: frozenset[str], now: frozenset[str]) -> None:
        """Note which agents of this host listen to a neighbor, wherever that neighbor is."""
        for neighbor in before - now:
            self._audience[neighbor].remove(agent)
            if not self._audience[neighbor]:
                del self._audience[neighbor]
        for neighbor in now - before:
            self._audience.setdefault(neighbor, []).append(agent)

    def _hand_over(self, arrival: Arrival) -> None:
        """To an agent of this host, once the present call is done: agents do not call each other."""
        asyncio.get_running_loop().call_soon(self._deliver, arrival)

    def _count_out(self, data: bytes) -> None:
        self.traffic.messages_out += 1
        self.traffic.bytes_out += len(data)

    def _drop(self, reason: str, sender: str, receiver: str | None) -> None:
        """Called from any thread. Receivers that are made up are not counted: they could fill the memory."""
        with self._counting:
            for agent in self._receivers(sender, receiver):
                if agent in self._attached:
                    self._dropped[agent][reason] += 1

    def _receivers(self, sender: str, receiver: str | None) -> tuple[str, ...]:
        return tuple(self._audience.get(sender, ())) if receiver is None else (receiver,)

    def _deliver_from_outside(self, arrival: Arrival) -> None:
        if arrival.kind in ("model", "greeting"):
            self.traffic.messages_in += 1
            self.traffic.bytes_in += len(arrival.data)
            if arrival.sender not in self._remote_up or arrival.sender in self._heard_at:
                self._note_heard(arrival.sender)
        self._deliver(arrival)

    def _note_heard(self, agent: str) -> None:
        """An agent that is heard is up, even if zenoh says that it is down.

        zenoh does so if a host opened a new session while others could not be reached. A message that was on
        its way when the agent went down does not count.
        """
        now = asyncio.get_running_loop().time()
        if agent in self._places and now > self._gone_at.get(agent, 0.0) + ON_THE_WAY:
            self._heard_at[agent] = now
            self._deliver(Arrival("up", agent, data=HEARD))

    def _forget_the_silent(self) -> None:
        now = asyncio.get_running_loop().time()
        for agent, heard_at in list(self._heard_at.items()):
            if now > heard_at + LONGEST_SILENCE:
                self._deliver(Arrival("down", agent, data=HEARD))

    def _deliver(self, arrival: Arrival) -> None:
        """In the loop, to its receivers. Everything is looked up again, for agents come and go."""
        kind, sender, receiver, data = arrival
        is_remote = kind in ("up", "down") and receiver is None
        if is_remote and not self._is_news(sender, kind == "up", data):
            return
        for agent in self._receivers(sender, receiver):
            attached = self._attached.get(agent)
            if attached is None:
                continue
            if kind == "model":
                attached.listener.on_published(sender, data)
            elif kind == "greeting":
                attached.listener.on_greeting(sender, data)
            elif sender in attached.neighbors:
                attached.listener.on_presence(sender, kind == "up")

    def _is_news(self, agent: str, is_up: bool, session: bytes) -> bool:
        """Note that an agent of another host is up or down. Returns whether that is a change."""
        was_up = agent in self._remote_up
        sessions = self._remote_up.setdefault(agent, {})
        if is_up:
            sessions[session] = None
        else:
            sessions.pop(session, None)
        if session != HEARD or not is_up:
            self._heard_at.pop(agent, None)
            sessions.pop(HEARD, None)
        if len(sessions) > MOST_SESSIONS:
            del sessions[next(iter(sessions))]
        if not sessions:
            del self._remote_up[agent]
            self._gone_at[agent] = asyncio.get_running_loop().time()
        return bool(sessions) != was_up

    def _receiver(self, inbox: Inbox[Arrival]) -> Callable[[zenoh.Sample], None]:
        """A function for everything that comes from other hosts; zenoh's threads call it, too."""
        here, places, max_bytes = self.host, self._places, self._max_bytes
        is_put = zenoh.SampleKind.PUT

        def receive(sample: zenoh.Sample) -> None:
            key = str(sample.key_expr)
            _, _, host, kind, *names = key.split("/")
            if "*" in key or len(names) != NAMES_IN_KEY.get(kind):
                self.traffic.keys_refused += 1  # a host may publish on any key below its own name
                return
            sender = names[0] if kind == "alive" else names[-1]
            place = places.get(sender)
            if kind == "alive":
                if place is not None and place.host == host != here:
                    word = "up" if sample.kind == is_put else "down"
                    inbox.put(f"{sender} is up", Arrival(word, sender, data=names[1].encode()))
                return
            receiver = names[0] if kind == "to" else None
            if place is not None and place.host != host:
                self._drop("stolen_name", sender, receiver)
                return
            data = bytes(sample.payload)[: max_bytes + 1]
            arrival = Arrival("model" if receiver is None else "greeting", sender, receiver, data)
            if not inbox.put(self._queue_of(sender, receiver), arrival):
                self._drop("flooded", sender, receiver)

        return receive

    def _queue_of(self, sender: str, receiver: str | None) -> str:
        """Which share of the inbox a message takes: one per edge, and one for all without an edge here."""
        if receiver is None:
            return sender if sender in self._audience else ""
        attached = self._attached.get(receiver)
        return f"{sender} to {receiver}" if attached is not None and sender in attached.neighbors else ""

    def _link_changed(self, event: zenoh.LinkEvent) -> None:
        host, word = event.link.auth_identifier, "link lost"
        if event.kind == zenoh.SampleKind.PUT:
            word = "link" if host in self._neighboring else "stranger"
            self.strangers += word == "stranger"
        self._log(word, host=host, address=event.link.dst)
