"""Conversations between neighbors: each round an agent sends one vector and gets its neighbors'.

A conversation is a generator that never sees samples. It yields what the agent says to all its neighbors
(`Say`) and is resumed with what they said in the same round. It may also ask for a release of the agent's
samples (`ReleaseRequest`): whoever drives the conversation holds samples and gate, and answers with what was
released. It knows nothing of networks, clocks or time-outs, nor of how many agents there are. `Talk` goes
through one round by round; `TalkingAgent` adds an inbox and decides when. Both do the same whenever they
hear the same, so what was heard is all that has to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from flockwise.arrays import Floats
from flockwise.errors import NetworkError, PrivacyError, SimulationError
from flockwise.privacy.messages import Relay
from flockwise.registry import Registry

Vector: TypeAlias = Floats
# A stage of the protocol, and a round of it.
Tag: TypeAlias = tuple[str, int]


class Say(NamedTuple):
    """One round: what to send, in which stage of the protocol; answered with `Heard`."""

    stage: str
    vector: Vector


class ReleaseRequest(NamedTuple):
    """One release of the agent's samples, at a public point if the statistic depends on one.

    Answered with the released vector, which is public from then on.
    """

    statistic: Any
    at: Vector | None = None


class SumRequest(NamedTuple):
    """One sum over all agents, which nobody can open but as a whole.

    kind: what is added up. at: public values that it depends on. Answered with `OpenedSum`, or with None if
    too many agents were absent.
    """

    kind: str
    at: Any = None


# What neighbors sent, by their number; one that was not heard in time is missing.
Heard: TypeAlias = Mapping[int, Vector]
Result = TypeVar("Result")
Conversation: TypeAlias = Generator[Say | ReleaseRequest | SumRequest, Any, Result]
# What real agents talk about after one release, by name: a roster carries the name and its settings. A part
# has `largest_relay(dimension)`, how many coordinates a relay has at most, and `converse(number, public,
# weights)`, one agent's side: its number, its release, and the weights of its edges by neighbors' numbers.
PROTOCOLS: Registry[type[Any]] = Registry("protocol", NetworkError)
# What answers a request for a release.
Releases: TypeAlias = Callable[[ReleaseRequest], Vector]


@dataclass(frozen=True)
class Public:
    """The public values of an agent: its release, s² of one coordinate, and the part of it that is noise.

    signal_power: ‖t‖² of what is released if it is known beforehand; the same for all agents.
    """

    vector: Floats
    variance: float
    noise_variance: float
    signal_power: float | None


class Direction(NamedTuple):
    """The end of a conversation about two classes: where an agent's separator is expected to point.

    quality: the correlation that it is expected to have with the truth.
    """

    vector: Vector
    quality: float


def no_release(request: ReleaseRequest) -> Vector:
    """For agents that release nothing while they talk."""
    raise PrivacyError("this conversation asked for a release, and the agent has no gate for it")


class Talk(Generic[Result]):
    """One agent's side of a conversation, round by round; when it is over, there is an outcome.

    waiting: the round whose relays it needs next; None before the start and after the end.
    """

    def __init__(
        self, number: int, conversation: Conversation[Result], release: Releases = no_release
    ) -> None:
        self.number = number
        self.outcome: Result | None = None
        self.is_over = False
        self.waiting: Tag | None = None
        self._conversation = conversation
        self._release = release
        self._rounds: dict[str, int] = {}

    def start(self) -> Relay | None:
        """The first message; None if there is nothing to say at all."""
        return self._go_on(None)

    def turn(self, heard: Heard) -> Relay | None:
        """End the round with what was heard in it; what to say next, None at the end."""
        return self._go_on(heard)

    def has_said(self, tag: Tag) -> bool:
        stage, number = tag
        return number < self._rounds.get(stage, 0)

    def _go_on(self, answer: Any) -> Relay | None:
        """Up to the next message, with all releases that are asked for before it."""
        try:
            step = self._conversation.send(answer)
            while isinstance(step, ReleaseRequest):
                step = self._conversation.send(self._release(step))
        except StopIteration as end:
            self.waiting, self.outcome, self.is_over = None, end.value, True
            return None
        return self._said(step)

    def _said(self, say: Say | SumRequest) -> Relay:
        """Rounds are counted within a stage, so no two relays of an agent have the same tag."""
        if isinstance(say, SumRequest):
            raise SimulationError("neighbors cannot add up over all agents; give the rule `sums`")
        number = self._rounds.get(say.stage, 0)
        self._rounds[say.stage] = number + 1
        self.waiting = (say.stage, number)
        return Relay(self.number, say.stage, number, say.vector)


class TalkingAgent(Generic[Result]):
    """One agent without input or output: it is told what arrives and when it waited too long.

    It does a round when it holds that round from every neighbor, or after a time-out without the
    missing ones. Each method returns the relays to send to all neighbors.
    """

    def __init__(
        self,
        number: int,
        neighbors: Iterable[int],
        conversation: Conversation[Result],
        release: Releases = no_release,
    ) -> None:
        self.number = number
        self._neighbors = frozenset(neighbors)
        if not self._neighbors:
            raise SimulationError(f"agent {number} has no neighbor; it learns alone")
        self._talk = Talk(number, conversation, release)
        self._inbox: dict[Tag, dict[int, Vector]] = {}

    @property
    def outcome(self) -> Result | None:
        return self._talk.outcome

    @property
    def is_over(self) -> bool:
        return self._talk.is_over

    def start(self) -> list[Relay]:
        """The first message."""
        first = self._talk.start()
        return [] if first is None else [first, *self._go_on()]

    def on_relay(self, relay: Relay) -> list[Relay]:
        """Keep what arrived, and do the rounds that are now complete; what comes too late is left aside."""
        if relay.sender not in self._neighbors:
            raise SimulationError(f"agent {self.number} got a relay from {relay.sender}, not a neighbor")
        self._inbox.setdefault((relay.stage, relay.round), {})[relay.sender] = relay.vector
        return self._go_on()

    def on_timeout(self) -> list[Relay]:
        """Do the present round with those who were heard."""
        return [*self._round(), *self._go_on()]

    def _go_on(self) -> list[Relay]:
        relays: list[Relay] = []
        while (tag := self._talk.waiting) and len(self._inbox.get(tag, {})) == len(self._neighbors):
            relays += self._round()
        return relays

    def _round(self) -> list[Relay]:
        if self._talk.waiting is None:
            return []
        relay = self._talk.turn(self._inbox.pop(self._talk.waiting, {}))
        if relay is None:
            self._inbox.clear()
        return [] if relay is None else [relay]
