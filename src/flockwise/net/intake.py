"""The only way in: messages from the network reach an agent through here, or are dropped and counted.

Checks come in the order of their cost, so a flood or garbage costs little: size, sender, rate, schema,
names, number, and only then the signature; after it dimension and size of the numbers. Only a message that
passes all of them moves the sender's last number. Nothing here reads a clock, a file or a socket of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final, TypeAlias, TypeVar

from flockwise.agent import Message
from flockwise.errors import NetworkError
from flockwise.net.rate import Bucket, RateLimit
from flockwise.net.signing import Verifier, check_public_key
from flockwise.net.wire import (
    Greeting,
    ModelBody,
    Opened,
    PrivacyLabel,
    Reason,
    Rejected,
    RelayBody,
    Sent,
    greeting_limit,
    limit,
    open_greeting,
    open_repeat,
    open_signed,
)
from flockwise.privacy.messages import Relay
from flockwise.protocol.conversation import Tag
from flockwise.protocol.gossip import may_be_infinite

NOTHING_YET: Final = -1
# How far back accepted numbers are remembered, to tell a message that was overtaken from a repetition.
REMEMBERED: Final = 64
# A neighbor cannot fill the memory with stages that no protocol has.
MAX_STAGES: Final = 1024
# Of one stage: neighbors are about one round apart, and rounds are remembered for each neighbor.
REMEMBERED_ROUNDS: Final = 8
# No coordinate of a relay is larger: gossip multiplies what it mixes by up to 1e11 on the way, and squares of
# what is far below the root of the largest number do not overflow.
RELAY_BOUND: Final = 1e60

Accepted: TypeAlias = Message | Relay
T = TypeVar("T")


@dataclass(frozen=True)
class NeighborKey:
    """A neighbor in the roster; `index` is its number among all agents, which relays go by."""

    public_key: bytes
    weight: float
    index: int = 0


@dataclass(frozen=True)
class AcceptedGreeting:
    """A neighbor's greeting. Without agreement on weight and settings its models are refused; `mine` is None.

    mine: its last message, if that is new here.
    yours: what it last got from this agent, under the agent's own signature: so it was sent, even if the
        agent's disk does not know of it.
    is_answer: the neighbor waits for no answer.
    """

    agrees: bool
    mine: Accepted | None
    yours: Sent | None
    is_answer: bool


@dataclass(frozen=True)
class AcceptedRepeat:
    """The last relays of a neighbor in a conversation.

    relays: those that are new here. tags: of all of them, in order; none if one of them was refused.
    """

    sender: int
    waits: bool
    is_over: bool
    relays: list[Relay]
    tags: list[Tag]


class _Duplicate(Exception):
    """The very bytes that came before, sent again: this is normal."""


@dataclass(slots=True)
class _Track:
    """The numbers of one kind that came from one neighbor."""

    last: int = NOTHING_YET
    data: bytes = b""
    # Bit k: number last − k was accepted.
    window: int = 0

    def advance(self, number: int, data: bytes) -> None:
        shift = number - self.last
        self.window = 1 | (self.window << shift if shift < REMEMBERED else 0) & (1 << REMEMBERED) - 1
        self.last, self.data = number, data

    def is_late(self, number: int) -> bool:
        """Whether a number below the last one is recent, and was never accepted: it was overtaken."""
        age = self.last - number
        return age < REMEMBERED and not self.window >> age & 1


@dataclass(slots=True)
class _Rounds:
    """The last rounds of one stage that came from one neighbor: each is taken once, in any order."""

    last: int = NOTHING_YET
    digests: dict[int, bytes] = field(default_factory=dict)

    def add(self, number: int, digest: bytes) -> None:
        self.last = max(self.last, number)
        self.digests[number] = digest
        for old in [known for known in self.digests if known <= self.last - REMEMBERED_ROUNDS]:
            del self.digests[old]


@dataclass(slots=True)
class _Peer:
    """A neighbor, and its accepted messages."""

    key: NeighborKey
    bucket: Bucket
    disagreement: Reason | None = None  # by its last greeting
    model: _Track = field(default_factory=_Track)
    stages: dict[str, _Rounds] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        return self.disagreement is None


class Intake:
    """One agent's way in.

    me, public_key: the agent's own name and key; with the key it recognizes its own models in greetings.
    dimension: of a model, exactly; relay_dimension: of a relay, at most (0: there are none in this network).
    privacy: the label of the models that this agent takes.
    magnitude_bound: no coordinate of a model may be larger.
    settings_version: of the public settings; models of neighbors that follow another one are refused.
    clock: nanoseconds, for the rate limit alone.
    verifier: shared by the agents of a process.

    `accepted`, `duplicates` and `dropped` together count everything once: messages, greetings, and each of
    the messages that a greeting brings.
    """

    def __init__(
        self,
        me: str,
        network: str,
        dimension: int,
        privacy: PrivacyLabel,
        neighbors: Mapping[str, NeighborKey],
        magnitude_bound: float,
        *,
        public_key: bytes,
        clock: Callable[[], int],
        settings_version: int = 1,
        relay_dimension: int = 0,
        rate: RateLimit | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        if not 0 < magnitude_bound < math.inf:
            raise NetworkError(
                f"agent {me!r}: magnitude_bound must be positive and finite, got {magnitude_bound!r}"
            )
        self._me = me
        self._network = network
        self._dimension = dimension
        self._relay_sizes = range(1, relay_dimension + 1)
        self._privacy: PrivacyLabel = privacy
        self._bound = magnitude_bound
        self.settings_version = settings_version
        self._public_key = check_public_key(public_key, me)
        self._clock = clock
        self._rate = RateLimit() if rate is None else rate
        self._verifier = Verifier() if verifier is None else verifier
        largest = max(dimension, relay_dimension)
        self._max_bytes = limit(largest)
        self._max_greeting_bytes = greeting_limit(largest)
        self.neighbors: dict[str, NeighborKey] = {}
        self._peers: dict[str, _Peer] = {}
        self._takes_relays = True
        self.dropped: Counter[Reason] = Counter()
        self.duplicates = 0
        self.accepted = 0
        self.set_neighbors(neighbors)

    def set_neighbors(self, neighbors: Mapping[str, NeighborKey]) -> None:
        """As in the roster now. Neighbors that left are forgotten, and messages under another key, too."""
        peers = {}
        for name, key in neighbors.items():
            check_public_key(key.public_key, name)
            known = self._peers.get(name)
            if known is None or known.key.public_key != key.public_key:
                peers[name] = _Peer(key, Bucket(self._rate, self._clock()))
            else:
                # With a new weight everything is open again: the next greeting tells whether it agrees.
                if known.disagreement == "weight" and known.key.weight != key.weight:
                    known.disagreement = None
                known.key = key
                peers[name] = known
        self.neighbors, self._peers = dict(neighbors), peers

    def end_relays(self) -> None:
        """The conversation is over: forget its relays, and take no more of them, old or new."""
        self._takes_relays = False
        for peer in self._peers.values():
            peer.stages.clear()

    def last_number(self, neighbor: str) -> int | None:
        """Of the last model that was accepted from a neighbor."""
        number = self._peers[neighbor].model.last
        return None if number == NOTHING_YET else number

    def last_data(self, sender: str) -> bytes | None:
        """The bytes of that model, to be stored and to be shown to their sender in a greeting."""
        return self._peers[sender].model.data or None if sender in self._peers else None

    def message(self, claimed_sender: str, data: bytes) -> Accepted | None:
        """A model or a relay that is new and in order; None for anything else, which is counted."""
        try:
            if len(data) > self._max_bytes:
                raise Rejected("oversized")
            return self._take(claimed_sender, self._admitted(claimed_sender), data)
        except (_Duplicate, Rejected) as refusal:
            return self._count(refusal)

    def greeting(self, claimed_sender: str, data: bytes) -> AcceptedGreeting | None:
        """A greeting of a neighbor; None, and a count, if it is none. Messages in it are counted each."""
        opened = self._opened_from(claimed_sender, data, open_greeting)
        if opened is None:
            return None
        peer, greeting = opened
        # First: that an own number was sent counts, whatever else may be wrong between the two.
        yours = self._own_model_in(greeting)
        peer.disagreement = self._disagreement(greeting, peer)
        if peer.disagreement is not None:
            self.dropped[peer.disagreement] += 1
            return AcceptedGreeting(False, None, yours, greeting.is_answer)
        self.accepted += 1
        return AcceptedGreeting(
            True, self._last_model_in(greeting, claimed_sender, peer), yours, greeting.is_answer
        )

    def _disagreement(self, greeting: Greeting, peer: _Peer) -> Reason | None:
        if greeting.version != self.settings_version:
            return "wrong_settings"
        return None if greeting.weight == peer.key.weight else "weight"

    def repeat(self, claimed_sender: str, data: bytes) -> AcceptedRepeat | None:
        """A neighbor's last relays, each counted; None, and a count, for anything else."""
        opened = self._opened_from(claimed_sender, data, open_repeat)
        if opened is None:
            return None
        peer, repeat = opened
        self.accepted += 1
        relays, tags = list[Relay](), list[Tag]()
        for one in repeat.relays:
            try:
                body = self._opened(one).body
                if not isinstance(body, RelayBody):
                    raise Rejected("malformed")
                tags.append((body.stage, body.round))
                relay = self._take(claimed_sender, peer, one)
                assert isinstance(relay, Relay)
                relays.append(relay)
            except _Duplicate as refusal:
                self._count(refusal)
            except Rejected as refusal:
                self._count(refusal)
                return AcceptedRepeat(peer.key.index, repeat.waits, repeat.is_over, relays, [])
        return AcceptedRepeat(peer.key.index, repeat.waits, repeat.is_over, relays, tags)

    def _opened_from(
        self, sender: str, data: bytes, read: Callable[[bytes, int], T]
    ) -> tuple[_Peer, T] | None:
        """A message to this agent alone; None, and a count, for anything else."""
        try:
            if len(data) > self._max_greeting_bytes:
                raise Rejected("oversized")
            return self._admitted(sender), read(data, self._max_greeting_bytes)
        except Rejected as refusal:
            return self._count(refusal)

    def _count(self, refusal: _Duplicate | Rejected, harmless: Collection[Reason] = ()) -> None:
        """harmless: reasons that count as repetitions."""
        if isinstance(refusal, Rejected) and refusal.reason not in harmless:
            self.dropped[refusal.reason] += 1
        else:
            self.duplicates += 1

    def _admitted(self, sender: str) -> _Peer:
        """A neighbor that has not sent too much of late."""
        peer = self._peers.get(sender)
        if peer is None:
            raise Rejected("unknown_sender")
        if not peer.bucket.take(self._clock()):
            raise Rejected("flooded")
        return peer

    def _last_model_in(self, greeting: Greeting, sender: str, peer: _Peer) -> Accepted | None:
        """The neighbor's last message, if it is new. It may well have been overtaken by a later one."""
        if greeting.mine is None:
            return None
        try:
            return self._take(sender, peer, greeting.mine)
        except (_Duplicate, Rejected) as refusal:
            return self._count(refusal, harmless=("stale", "replayed"))

    def _own_model_in(self, greeting: Greeting) -> Sent | None:
        if greeting.yours is None:
            return None
        try:
            opened = self._opened(greeting.yours)
            self._check_names(opened, self._me)
            if not isinstance(opened.body, ModelBody):
                raise Rejected("malformed")
            self._check_signature(opened, self._public_key)
        except Rejected as refusal:
            return self._count(refusal)
        self.accepted += 1
        return Sent(opened.body.number, greeting.yours)

    def _opened(self, data: bytes) -> Opened:
        if len(data) > self._max_bytes:  # another agent may have read it, with another limit
            raise Rejected("oversized")
        return self._verifier.read_once(data, partial(open_signed, max_bytes=self._max_bytes))

    def _take(self, sender: str, peer: _Peer, data: bytes) -> Accepted:
        """All checks of a message; the last lines are reached by what has passed them."""
        opened = self._opened(data)
        self._check_names(opened, sender)
        if peer.disagreement is not None:
            raise Rejected(peer.disagreement)
        if isinstance(opened.body, ModelBody):
            return self._take_model(opened.body, peer, opened, data)
        return self._take_relay(opened.body, peer, opened, data)

    def _take_model(self, body: ModelBody, peer: _Peer, opened: Opened, data: bytes) -> Message:
        if body.privacy != self._privacy:
            raise Rejected("wrong_label")
        self._check_number(body.number, peer.model, peer, opened, data)
        self._check_coordinates(opened)
        peer.model.advance(body.number, data)
        self.accepted += 1
        return Message(body.sender, body.number, opened.vector)

    def _take_relay(self, body: RelayBody, peer: _Peer, opened: Opened, data: bytes) -> Relay:
        if not self._relay_sizes:
            raise Rejected("wrong_label")
        if not self._takes_relays:
            raise Rejected("stale")
        known = peer.stages.get(body.stage)
        if known is None:
            if len(peer.stages) >= MAX_STAGES:
                raise Rejected("flooded")
            known = _Rounds()
        if body.round <= known.last - REMEMBERED_ROUNDS:
            raise Rejected("replayed")
        digest = blake2b(data, digest_size=16).digest()
        if known.digests.get(body.round) == digest:
            raise _Duplicate
        self._check_signature(opened, peer.key.public_key)
        if body.round in known.digests:
            raise Rejected("equivocation")
        if opened.vector.size not in self._relay_sizes:
            raise Rejected("wrong_dimension")
        fault = relay_fault(body.stage, opened.largest)
        if fault is not None:
            raise Rejected(fault)
        known.add(body.round, digest)
        peer.stages[body.stage] = known
        self.accepted += 1
        return Relay(peer.key.index, body.stage, body.round, opened.vector)

    def _check_names(self, opened: Opened, sender: str) -> None:
        if opened.body.network != self._network:
            raise Rejected("wrong_network")
        if opened.body.sender != sender:
            raise Rejected("stolen_name")

    def _check_number(self, number: int, track: _Track, peer: _Peer, opened: Opened, data: bytes) -> None:
        """New, and signed. Old messages are dropped before their signatures cost anything."""
        if number < track.last:
            raise Rejected("stale" if track.is_late(number) else "replayed")
        if number == track.last and data == track.data:
            raise _Duplicate
        self._check_signature(opened, peer.key.public_key)
        if number == track.last:
            # Its owner signed two messages under one number: two copies of it are running, or it lies.
            raise Rejected("equivocation")

    def _check_signature(self, opened: Opened, public_key: bytes) -> None:
        if opened.proven_by == public_key:
            return
        if not self._verifier.holds(public_key, opened.content, opened.signed.signature):
            raise Rejected("bad_signature")
        opened.proven_by = public_key

    def _check_coordinates(self, opened: Opened) -> None:
        if opened.vector.size != self._dimension:
            raise Rejected("wrong_dimension")
        if not opened.largest <= self._bound:
            raise Rejected("too_large" if math.isfinite(opened.largest) else "not_finite")


def relay_fault(stage: str, largest: float) -> Reason | None:
    """Why a relay is refused whose largest coordinate is this, whatever its sign; None if it is not.

    NaN is never valid. Infinity is valid only in stages where it means "no mean yet".
    """
    if math.isnan(largest) or (math.isinf(largest) and not may_be_infinite(stage)):
        return "not_finite"
    return "too_large" if RELAY_BOUND < largest < math.inf else None
