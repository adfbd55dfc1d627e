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
from flockwise.net.names import check_host, split_address
from flockwise.net.transport import Listener, Place, TrafficCounts
from flockwise.net.zenoh.access import (
    MOST_LINKS,
    MOST_STRANGE_LINKS,
    MOST_STRANGERS,
    KeyExpressions,
    NeighborHost,
    TlsFiles,
    address_in,
    session_settings,
)
from flockwise.net.zenoh.door import Door, Openness
from flockwise.net.zenoh.inbox import Inbox
from flockwise.net.zenoh.presence import Presence
from flockwise.net.zenoh.session import Session

try:
    import zenoh
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

# How many messages of one sender may wait for the loop: more than a neighbor sends while a busy host is
# late, and a bound on the memory that it can take.
SHARE: Final = 64
# What follows the network, the host and the kind in a key.
NAMES_IN_KEY: Final = {"model": 1, "to": 2, "alive": 2}

Kind: TypeAlias = Literal["model", "greeting", "up", "down"]


class Arrival(NamedTuple):
    """A message, or a change of presence of an agent of this host, which has one receiver.

    receiver: None for all agents that listen to the sender.
    """

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
        self._remote = Presence(self._remote_changed)
        self._session: Session | None = None
        self._certificate = b""
        self._door: Door | None = None
        self._watching: asyncio.Task[None] | None = None
        self._incoming: dict[str, str] = {}  # the hosts that have connected, by the addresses they came from
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changing = asyncio.Lock()
        self._counting = threading.Lock()

    def learn(self, places: Iterable[Place]) -> None:
        """Where agents are, according to a roster; `refresh` puts it into effect."""
        for place in places:
            check_host(place.host)
            self._places[place.name] = place

    def listen_at(self, address: str) -> None:
        """This host is reached elsewhere from now on; `refresh` puts it into effect."""
        self._listen = address

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
            if other in self._remote:
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
        """Open a session, or a new one if agents have other neighbors now, or the host another certificate.

        Returns whether it did.
        """
        async with self._changing:
            hosts = self._neighbor_hosts()
            self._neighboring = frozenset(hosts)
            wanted = session_settings(self._keys, self._listen, self._files, hosts, self._max_bytes)
            certificate = self._files.certificate.read_bytes()
            is_same = certificate == self._certificate
            if self._session is not None and self._session.settings == wanted and is_same:
                self._session.announce(self._attached)
                self._remote.forget_the_silent()
                return False
            await self._close_session()
            self._loop = asyncio.get_running_loop()
            self._remote.begin()
            inbox = Inbox(asyncio.get_running_loop(), self._deliver_from_outside, share=SHARE)
            session = Session(wanted, self._keys, inbox, self._receiver(inbox), self._link_changed)
            try:
                await asyncio.to_thread(session.open, tuple(self._attached))
            except zenoh.ZError as error:
                raise NetworkError(
                    f"host {self.host!r} cannot listen at {self._listen!r}: {error}"
                ) from error
            session.listen(self._attached)
            self._session, self._certificate = session, certificate
            addresses = [host.address for host in hosts.values()]
            self._door = Door(self._listen, addresses, lambda: self._incoming, self._log)
            self._watching = asyncio.create_task(self._watch(self._door))
            return True

    async def close(self) -> None:
        """Leave the network."""
        async with self._changing:
            await self._close_session()
            # What still waits for agents of this host is lost.
            self._attached.clear()
            self._audience.clear()

    @property
    def door(self) -> str:
        """Whom the port lets in now."""
        return Openness.OPEN.value if self._door is None else self._door.openness.value

    def dropped(self, agent: str) -> Counter[str]:
        """Messages for this agent that were dropped here, by reason."""
        with self._counting:
            return Counter(self._dropped[agent])

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        session.stop_listening()
        if self._watching is not None and self._door is not None:
            self._watching.cancel()
            self._door.close()
        await asyncio.to_thread(session.close)
        self._remote.clear()
        self._incoming.clear()

    async def _watch(self, door: Door) -> None:
        while True:
            await asyncio.sleep(door.look())

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
        self.traffic.messages_in += 1
        self.traffic.bytes_in += len(arrival.data)
        if arrival.sender in self._places:
            self._remote.heard(arrival.sender)
        self._deliver(arrival)

    def _remote_changed(self, agent: str, is_up: bool) -> None:
        """An agent of another host has come or gone."""
        for name in self._audience.get(agent, ()):
            attached = self._attached.get(name)
            if attached is not None:
                attached.listener.on_presence(agent, is_up)

    def _link_ended(self, host: str) -> None:
        self._remote.forget(place.name for place in self._places.values() if place.host == host)

    def _deliver(self, arrival: Arrival) -> None:
        """In the loop, to its receivers. Everything is looked up again, for agents come and go."""
        kind, sender, receiver, data = arrival
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
                    self._remote.note(sender, names[1], sample.kind == is_put)
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
        """Called in zenoh's threads."""
        host, word, link = event.link.auth_identifier, "link lost", event.link
        is_new = event.kind == zenoh.SampleKind.PUT
        if is_new:
            word = "link" if host in self._neighboring else "stranger"
            self.strangers += word == "stranger"
        self._log(word, host=host, address=link.dst)
        if self._loop is None or host is None:
            return
        if not is_new:
            self._loop.call_soon_threadsafe(self._link_ended, host)
        if split_address(address_in(link.src))[1] == split_address(self._listen)[1]:
            self._loop.call_soon_threadsafe(self._note_incoming, host, address_in(link.dst), is_new)

    def _note_incoming(self, host: str, address: str, is_new: bool) -> None:
        """A host with more links than it needs would take the places of others: it is shown out."""
        if not is_new:
            self._incoming.pop(address, None)
            return
        self._incoming[address] = host
        hosts = list(self._incoming.values())
        if host in self._neighboring:
            is_too_much = hosts.count(host) > MOST_LINKS
        else:
            strangers = sum(other not in self._neighboring for other in hosts)
            is_too_much = hosts.count(host) > MOST_STRANGE_LINKS or strangers > MOST_STRANGERS
        if is_too_much and self._door is not None:
            self._door.show_out(address)
