"""The real network of a host: one zenoh session for all its agents, in peer mode, over mutual TLS.

There is no server: a host dials the hosts of its agents' neighbors and nobody else. Agents of the same
host hear each other without a detour, and still through their intake. What a session may do is fixed
when it opens, so that new neighbors mean a new session; whatever is lost meanwhile is made up for by the
greetings that follow.

Nothing that zenoh delivers is trusted here beyond the host that it came from. What an agent is called,
what it signed and what it says is for the intake to judge.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from flockwise.errors import MissingExtra, NetworkError
from flockwise.net.identity import TlsFiles
from flockwise.net.inbox import Inbox
from flockwise.net.metrics import Traffic
from flockwise.net.roster import Place
from flockwise.net.transport import Listener
from flockwise.net.zenoh_ear import CAPACITY, Ear
from flockwise.net.zenoh_settings import LEASE_MS, Keys, Neighborhoods, check_host, session_settings

try:
    import zenoh
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

# Of one sender, how many messages may wait for the loop: more than a neighbor sends in the time that a busy
# host may take, and a bound on the memory that it can claim.
SHARE: Final = 64
# An agent of this host is trusted, and greets all its neighbors at once.
LOCAL_SHARE: Final = 2**20
# A host has one session, and for a while the one before it; it cannot make this one remember more.
MOST_SESSIONS: Final = 4
# Stands for the session of an agent that is heard, although no session says that it is there.
HEARD: Final = b""
ON_THE_WAY: Final = 2 * LEASE_MS / 1000  # seconds
LONGEST_SILENCE: Final = 90.0  # seconds: an agent that is up greets its neighbors three times in it
# What follows the network, the host and the kind in a key.
NAMES_IN_KEY: Final = {"model": 1, "to": 2, "alive": 2}

Kind: TypeAlias = Literal["model", "greeting", "up", "down"]
# Tells the host's log what happened to its links: a word for it, and whom it concerns.
Note: TypeAlias = Callable[[str, Mapping[str, Any]], None]


class Arrival(NamedTuple):
    """Something for the agents of this host; `receiver` is None for all that listen to the sender."""

    kind: Kind
    sender: str
    receiver: str | None = None
    data: bytes = b""


@dataclass
class _Plug:
    listener: Listener
    neighbors: frozenset[str]


class ZenohLink:
    """A switchboard whose agents reach those of other hosts.

    listen: where this host is reached, as host:port.
    max_bytes: of the longest message that anyone may send; of a longer one only the beginning is looked at.
    note: told of links that come and go, and of strangers.
    """

    def __init__(
        self,
        network: str,
        host: str,
        listen: str,
        files: TlsFiles,
        *,
        max_bytes: int,
        note: Note = lambda event, about: None,
    ) -> None:
        self.host = check_host(host)
        self.traffic = Traffic()
        # Links to hosts that the roster does not name: they are heard by nobody and hear nothing.
        self.strangers = 0
        self._dropped: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._keys = Keys(network, host)
        self._listen = listen
        self._files = files
        self._max_bytes = max_bytes
        self._note = note
        self._places: dict[str, Place] = {}
        self._plugs: dict[str, _Plug] = {}
        self._audience: dict[str, list[str]] = {}
        self._neighboring: frozenset[str] = frozenset()  # hosts
        # Agents of other hosts that are there, each with the sessions of its host that say so, oldest first.
        self._remote_up: dict[str, dict[bytes, None]] = {}
        # When they went, and when those were last heard that no session says are there; by the loop's clock.
        self._gone_at: dict[str, float] = {}
        self._heard_at: dict[str, float] = {}
        self._session: _Session | None = None
        self._local: Inbox[Arrival] | None = None
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
        before = self._plugs.get(agent)
        known = frozenset[str]() if before is None else before.neighbors
        self._plugs[agent] = _Plug(listener, names)
        self._set_audience(agent, known, names)
        for other in sorted(names - known):
            if other in self._remote_up:
                self._hand_over(Arrival("up", other, agent))
            elif other in self._plugs and agent in self._plugs[other].neighbors:
                self._hand_over(Arrival("up", other, agent))
                self._hand_over(Arrival("up", agent, other))

    def detach(self, agent: str) -> None:
        """Take an agent out; its neighbors see it go."""
        plug = self._plugs.pop(agent)
        self._set_audience(agent, plug.neighbors, frozenset())
        if self._session is not None:
            self._session.withdraw(agent)
        for other in sorted(plug.neighbors & self._plugs.keys()):
            if agent in self._plugs[other].neighbors:
                self._hand_over(Arrival("down", agent, other))

    def publish(self, sender: str, data: bytes) -> None:
        if sender in self._audience:
            self._hand_over(Arrival("model", sender, None, data))
        if self._session is not None and self._session.publish(sender, data):
            self._count_out(data)

    def send(self, sender: str, receiver: str, data: bytes) -> None:
        if receiver in self._plugs:
            self._hand_over(Arrival("greeting", sender, receiver, data))
        elif self._session is not None:
            self._session.send(sender, receiver, data)
            self._count_out(data)

    async def refresh(self) -> bool:
        """Open the session, or open it anew if its agents have other neighbors now; whether it did."""
        async with self._changing:
            self._local = self._local or self._inbox(self._deliver, LOCAL_SHARE)
            neighborhoods = self._neighborhoods()
            self._neighboring = frozenset(neighborhoods.addresses)
            wanted = session_settings(self._keys, self._listen, self._files, neighborhoods, self._max_bytes)
            if self._session is not None and self._session.settings == wanted:
                self._session.announce(self._plugs)
                self._forget_the_silent()
                return False
            await self._close_session()
            inbox = self._inbox(self._deliver_from_outside, SHARE)
            session = _Session(wanted, self._keys, self._receiver(inbox), self._link_changed)
            try:
                await asyncio.to_thread(session.open)
            except zenoh.ZError as error:
                raise NetworkError(
                    f"host {self.host!r} cannot listen at {self._listen!r}: {error}"
                ) from error
            session.inbox = inbox
            try:
                await asyncio.to_thread(session.declare, tuple(self._plugs))
            except BaseException:
                await asyncio.to_thread(session.close)
                raise
            session.listen(asyncio.get_running_loop())
            session.keep(self._plugs)
            self._session = session
            return True

    async def close(self) -> None:
        """Leave the network."""
        async with self._changing:
            await self._close_session()
            if self._local is not None:
                self._local.close()
                self._local = None

    def dropped(self, agent: str) -> Counter[str]:
        """Messages for this agent that went no further than here, by reason."""
        with self._counting:
            return Counter(self._dropped[agent])

    @property
    def neighbors_up(self) -> frozenset[str]:
        """Agents of other hosts that are there."""
        return frozenset(self._remote_up)

    def _inbox(self, deliver: Callable[[Arrival], None], share: int) -> Inbox[Arrival]:
        return Inbox(asyncio.get_running_loop(), deliver, share=share)

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        session.inbox.close()
        session.stop_listening()
        await asyncio.to_thread(session.close)
        for agent, sessions in sorted(self._remote_up.items()):
            for name in list(sessions):
                self._deliver(Arrival("down", agent, data=name))

    def _neighborhoods(self) -> Neighborhoods:
        addresses: dict[str, str] = {}
        theirs: defaultdict[str, set[str]] = defaultdict(set)
        ours: defaultdict[str, set[str]] = defaultdict(set)
        for agent, plug in self._plugs.items():
            for neighbor in plug.neighbors:
                place = self._places[neighbor]
                if place.host == self.host:
                    continue
                if addresses.setdefault(place.host, place.address) != place.address:
                    raise NetworkError(
                        f"host {place.host!r} has two addresses in the rosters, {addresses[place.host]!r} "
                        f"and {place.address!r}; have the authority sign rosters that agree"
                    )
                theirs[place.host].add(neighbor)
                ours[place.host].add(agent)
        return Neighborhoods(
            addresses,
            {host: frozenset(names) for host, names in theirs.items()},
            {host: frozenset(names) for host, names in ours.items()},
        )

    def _set_audience(self, agent: str, before: frozenset[str], now: frozenset[str]) -> None:
        """Who on this host listens to whom, wherever that one is."""
        for neighbor in before - now:
            self._audience[neighbor].remove(agent)
            if not self._audience[neighbor]:
                del self._audience[neighbor]
        for neighbor in now - before:
            self._audience.setdefault(neighbor, []).append(agent)

    def _hand_over(self, arrival: Arrival) -> None:
        """To an agent of this host, once the present call is done: agents do not call each other."""
        if self._local is None:
            self._local = self._inbox(self._deliver, LOCAL_SHARE)
        if not self._local.put(arrival.sender, arrival):
            self._drop("flooded", arrival.sender, arrival.receiver)

    def _count_out(self, data: bytes) -> None:
        self.traffic.messages_out += 1
        self.traffic.bytes_out += len(data)

    def _drop(self, reason: str, sender: str, receiver: str | None) -> None:
        """Called from any thread. Names that are made up are not remembered: there is no end of them."""
        with self._counting:
            for agent in self._receivers(sender, receiver):
                if agent in self._plugs:
                    self._dropped[agent][reason] += 1

    def _receivers(self, sender: str, receiver: str | None) -> tuple[str, ...]:
        return tuple(self._audience.get(sender, ())) if receiver is None else (receiver,)

    def _deliver_from_outside(self, arrival: Arrival) -> None:
        if arrival.kind in ("model", "greeting"):
            self.traffic.messages_in += 1
            self.traffic.bytes_in += len(arrival.data)
            if arrival.sender not in self._remote_up or arrival.sender in self._heard_at:
                self._note_a_sign_of_life(arrival.sender)
        self._deliver(arrival)

    def _note_a_sign_of_life(self, agent: str) -> None:
        """Who speaks is there, also if zenoh says it went.

        It does so where a host opened its session anew while others could not be reached. What was on its
        way when an agent went is no sign of life.
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
        """In the loop: to whom it concerns. Everything is looked up anew, for agents come and go."""
        kind, sender, receiver, data = arrival
        is_remote = kind in ("up", "down") and receiver is None
        if is_remote and not self._is_news(sender, kind == "up", data):
            return
        for agent in self._receivers(sender, receiver):
            plug = self._plugs.get(agent)
            if plug is None:
                continue
            if kind == "model":
                plug.listener.on_published(sender, data)
            elif kind == "greeting":
                plug.listener.on_greeting(sender, data)
            elif sender in plug.neighbors:
                plug.listener.on_presence(sender, kind == "up")

    def _is_news(self, agent: str, is_up: bool, session: bytes) -> bool:
        """Note that an agent of another host is there, or is not; whether it was otherwise before."""
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
        """What is called with everything that comes from other hosts, also by zenoh's threads."""
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
                    arrival = Arrival(word, sender, data=names[1].encode())
                    inbox.put(f"{sender} is there", arrival)
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
        """Whose share of the inbox a message takes: one per tie, and one for all who have none here."""
        if receiver is None:
            return sender if sender in self._audience else ""
        plug = self._plugs.get(receiver)
        return f"{sender} to {receiver}" if plug is not None and sender in plug.neighbors else ""

    def _link_changed(self, event: zenoh.LinkEvent) -> None:
        host = event.link.auth_identifier
        is_known = host in self._neighboring
        is_new = event.kind == zenoh.SampleKind.PUT
        if is_new and not is_known:
            self.strangers += 1
        word = ("link" if is_known else "stranger") if is_new else "link lost"
        self._note(word, {"host": host, "address": event.link.dst})


class _Session:
    """One zenoh session and what is declared in it; lives as long as its settings do."""

    inbox: Inbox[Arrival]

    def __init__(
        self,
        settings: dict[str, Any],
        keys: Keys,
        receive: Callable[[zenoh.Sample], None],
        link_changed: Callable[[zenoh.LinkEvent], None],
    ) -> None:
        self.settings = settings
        self._name = secrets.token_hex(8)
        self._keys = keys
        self._receive = receive
        self._ear: Ear | None = None
        self._messages: list[zenoh.Subscriber[Any]] = []
        # In zenoh's own threads: the default would be one more thread for each subscription.
        self._link_changed = zenoh.handlers.Callback(link_changed, indirect=False)
        self._presence_changed = zenoh.handlers.Callback(receive, indirect=False)
        self._publishers: dict[str, zenoh.Publisher] = {}
        self._tokens: dict[str, zenoh.LivelinessToken] = {}
        # Declarations end when nobody holds them any more.
        self._held: list[Any] = []

    def open(self) -> None:
        self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(self.settings)))

    def declare(self, agents: Iterable[str]) -> None:
        """First the ears, then the voices: who sees an agent come up may greet it at once."""
        session, hold = self._session, self._held.append
        hold(session.info.declare_link_events_listener(self._link_changed, history=True))
        self._messages = [
            session.declare_subscriber(
                key, zenoh.handlers.FifoChannel(CAPACITY), allowed_origin=zenoh.Locality.REMOTE
            )
            for key in self._keys.all_messages
        ]
        alive = self._keys.all_alive
        hold(session.liveliness().declare_subscriber(alive, self._presence_changed, history=True))
        self.announce(agents)

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """To what was declared; in the loop's own thread."""
        self._ear = Ear(loop, self._messages, self._receive)

    def stop_listening(self) -> None:
        if self._ear is not None:
            self._ear.close()

    def announce(self, agents: Iterable[str]) -> None:
        """Give a voice to those who have none yet."""
        for agent in sorted(set(agents) - self._tokens.keys()):
            self._publishers[agent] = self._session.declare_publisher(
                self._keys.model(agent),
                congestion_control=zenoh.CongestionControl.DROP,
                allowed_destination=zenoh.Locality.REMOTE,
            )
            key = self._keys.alive(agent, self._name)
            self._tokens[agent] = self._session.liveliness().declare_token(key)

    def keep(self, agents: Iterable[str]) -> None:
        """Take the voice from those who left meanwhile."""
        for agent in sorted(self._tokens.keys() - set(agents)):
            self.withdraw(agent)

    def withdraw(self, agent: str) -> None:
        token, publisher = self._tokens.pop(agent, None), self._publishers.pop(agent, None)
        if token is not None:
            token.undeclare()
        if publisher is not None:
            publisher.undeclare()

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
        """A host that cannot be reached, or hangs, is not waited for: zenoh gives up after 10 seconds."""
        with suppress(zenoh.ZError):
            self._session.close()
