"""What must hold after every event of a schedule, whatever the faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from flockwise.agent import Message
from flockwise.net.intake import AcceptedGreeting, Intake, NeighborKey
from flockwise.net.node import PATIENCE, STEADY
from flockwise.net.wire import ModelBody, open_signed
from flockwise.privacy.messages import Relay, decode, encode


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Life:
    """What the watch knows of one life of an agent, from start to death."""

    spends: bool  # whether what it sends costs something; an agent without samples has nothing to lose
    is_on_disk: Callable[[int, bytes], bool]  # whether its disk has this release
    accepted: dict[str, int] = field(default_factory=dict)
    # Whether a neighbor has shown it a model under its own signature that its disk does not know.
    is_exposed: bool = False
    up: dict[str, int] = field(default_factory=dict)  # neighbors that it was told are up, and when
    greeted_by: dict[str, int] = field(default_factory=dict)  # since then, and when first
    silent_for: dict[str, int] = field(default_factory=dict)  # how long each was up without a greeting

    def on_presence(self, neighbor: str, is_up: bool, now: int) -> None:
        since, greeted = self.up.pop(neighbor, None), self.greeted_by.pop(neighbor, None)
        if since is not None:
            self._count(neighbor, since, now if greeted is None else greeted)
        if greeted is not None and now - greeted >= STEADY:
            self.silent_for.pop(neighbor, None)
        if is_up:
            self.up[neighbor] = now

    def on_greeting(self, neighbor: str, now: int) -> None:
        if neighbor in self.up:
            self.greeted_by.setdefault(neighbor, now)

    def is_silent(self, neighbor: str, now: int) -> bool:
        """Whether it may still answer: all its silences together are shorter than an agent waits."""
        waited = self.silent_for.get(neighbor, 0) + now - self.up[neighbor]
        return neighbor not in self.greeted_by and waited < PATIENCE

    def _count(self, neighbor: str, since: int, until: int) -> None:
        self.silent_for[neighbor] = self.silent_for.get(neighbor, 0) + until - since


class Watch:
    """Sees every message that leaves and every one that is accepted."""

    def __init__(self, privacy: str, dimension: int, n_events: int) -> None:
        self._privacy = privacy
        self._start = encode(0, np.zeros(dimension))
        self._n_events = n_events
        self.payloads: dict[str, dict[int, set[bytes]]] = defaultdict(lambda: defaultdict(set))
        self._seen: set[tuple[str, bytes]] = set()
        # Agents that run on an old copy of their disk and cannot know it yet: the one thing that no agent can
        # prevent. What they send in that state is their owner's fault.
        self.misled: set[str] = set()

    def on_sent(
        self, sender: str, data: bytes, was_written: Callable[[int, bytes], bool], life: Life
    ) -> None:
        """A model leaves: it was charged and written before, once and for all."""
        if (sender, data) in self._seen:
            return
        body = open_signed(data, len(data)).body
        self._require(
            isinstance(body, ModelBody) and body.sender == sender, f"{sender} sent no model of its own"
        )
        assert isinstance(body, ModelBody)
        number, payload = body.number, body.payload
        self._require(body.privacy == self._privacy, f"{sender} sent {number} under the label {body.privacy}")
        self._require(np.isfinite(decode(payload)[1]).all(), f"{sender} sent {number}, which is not finite")
        if number == 0:
            self._require(payload == self._start, f"{sender} started from no public model")
        else:
            self._require(was_written(number, payload), f"{sender} sent {number} before it was on disk")
        if life.spends:
            # After the last release comes their mean, which costs nothing.
            self._require(number <= self._n_events + 1, f"{sender} sent {number} of {self._n_events} events")
            self._require(not life.is_exposed, f"{sender} released {number} on an old copy of its ledger")
        self.payloads[sender][number].add(payload)
        self._require(
            len(self.payloads[sender][number]) == 1 or sender in self.misled,
            f"{sender} sent two payloads under number {number}",
        )
        self._seen.add((sender, data))

    def on_accepted(self, sender: str, message: Message, life: Life) -> None:
        """A model is taken in: the sender did send it, and it is newer than the last one."""
        payloads = self.payloads[sender].get(message.number, set())
        payload = encode(message.number, np.asarray(message.model))
        self._require(payload in payloads, f"a model {message.number} was accepted that {sender} never sent")
        last = life.accepted.get(sender, -1)
        self._require(message.number > last, f"{message.number} of {sender} was accepted after {last}")
        life.accepted[sender] = message.number

    def on_model(self, agent: str, model: np.ndarray) -> None:
        self._require(bool(np.isfinite(model).all()), f"the model of {agent} is not finite")

    def on_spent(self, agent: str, number: int, life: Life, now: int) -> None:
        """An event was charged: for someone, and after all who could know better were asked."""
        self._require(number <= self._n_events, f"{agent} spent {number} of {self._n_events} events")
        self._require(len(life.up) > 0, f"{agent} spent an event while none of its neighbors was up")
        answered = life.greeted_by.keys() & life.up.keys()
        self._require(len(answered) > 0, f"{agent} spent an event before any neighbor answered")
        silent = [name for name in life.up if life.is_silent(name, now)]
        self._require(not silent, f"{agent} spent an event before {silent} could answer")

    def _require(self, holds: bool | np.bool_, otherwise: str) -> None:
        if not holds:
            raise Broken(otherwise)


def watch_intake(intake: Intake, watch: Watch, life: Life, now: Callable[[], int]) -> None:
    """Report what it lets in."""
    message, greeting, set_neighbors = intake.message, intake.greeting, intake.set_neighbors

    def watched_message(claimed_sender: str, data: bytes) -> Message | Relay | None:
        accepted = message(claimed_sender, data)
        if accepted is not None:
            assert isinstance(accepted, Message)
            watch.on_accepted(claimed_sender, accepted, life)
        return accepted

    def watched_greeting(claimed_sender: str, data: bytes) -> AcceptedGreeting | None:
        accepted = greeting(claimed_sender, data)
        if accepted is not None:
            if accepted.agrees:
                life.on_greeting(claimed_sender, now())
            if accepted.yours is not None and accepted.yours.number > 0:
                payload = open_signed(accepted.yours.data, len(accepted.yours.data)).body.payload
                life.is_exposed |= not life.is_on_disk(accepted.yours.number, payload)
            if accepted.mine is not None:
                assert isinstance(accepted.mine, Message)
                watch.on_accepted(claimed_sender, accepted.mine, life)
        return accepted

    def watched_neighbors(neighbors: Mapping[str, NeighborKey]) -> None:
        set_neighbors(neighbors)  # who left and came back begins anew
        life.accepted = {name: number for name, number in life.accepted.items() if name in neighbors}

    intake.message, intake.greeting = watched_message, watched_greeting
    intake.set_neighbors = watched_neighbors
