"""What makes an agent's messages ready to leave: numbered, signed, and on disk before they are handed out.

`PlainOutbox` keeps the bytes in the agent's store. `GateOutbox` sends what a gate released, which the gate's
ledger holds already. Both begin with message 0, the public model that the agent started from, so that a
neighbor knows that it is there before its first update.

An agent with a gate has a last word: when its plan is used up it sends the mean of its later releases,
in which there is less noise than in any of them. It is worked out from what was released, so that it costs
nothing, and is numbered one above the last release.

After a restart both hand out the same bytes: signatures are deterministic, and nothing is drawn again. They
differ where neighbors hold a later message than the agent itself, which shows that its disk is an old copy.
An agent without privacy takes its own message back and goes on from there. One with a gate has spent budget
that its ledger does not know of, and must not release anything any more.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flockwise.agent import Message
from flockwise.errors import PrivacyError
from flockwise.method.private_updates import tail_start
from flockwise.net.signing import SigningKey, Verifier, public_key_of
from flockwise.net.store import Sent, Store
from flockwise.net.wire import (
    MAX_NUMBER,
    Body,
    ModelBody,
    Opened,
    PrivacyLabel,
    RelayBody,
    open_signed,
    sign,
)
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import Book
from flockwise.privacy.messages import Relay, Release, decode, encode


class Outbox(Protocol):
    """Where a node gets the bytes from that it sends."""

    spends: bool
    """Whether a message costs something, so that none is made for nobody."""

    @property
    def last(self) -> Sent:
        """What may be sent any time, again and again."""
        ...

    @property
    def updates(self) -> int:
        """How many updates its messages tell of; a last word is none."""
        ...

    @property
    def model(self) -> NDArray[Any]:
        """The model in the last message."""
        ...

    def ready(self, message: Message) -> Sent:
        """Put a new message on disk; when this returns, the bytes may leave."""
        ...

    def conclude(self) -> Sent | None:
        """The last word, when it is due; None before, and once it has been handed out."""
        ...

    def knows(self, echo: Sent) -> bool:
        """Whether a message of this agent, which a neighbor showed it, is one that its disk knows of."""
        ...

    def take_back(self, later: Sent) -> None:
        """Go on from a later message of one's own that a neighbor held."""
        ...


class Signer:
    """Signs an agent's models and relays with its key, for its network; models under its label.

    verifier: that of the process; the agent's neighbors in it need not check what was signed here.
    """

    def __init__(
        self,
        network: str,
        sender: str,
        privacy: PrivacyLabel,
        key: SigningKey,
        verifier: Verifier | None = None,
    ) -> None:
        self._network = network
        self._sender = sender
        self._privacy: PrivacyLabel = privacy
        self._key = key
        self._public_key = public_key_of(key)
        self._verifier = verifier

    def signed(self, number: int, payload: bytes) -> Sent:
        if not 0 <= number <= MAX_NUMBER:
            raise PrivacyError(f"agent {self._sender!r}: there is no message with number={number}")
        return Sent(
            number, self._data(ModelBody(self._network, self._sender, number, self._privacy, payload))
        )

    def relay(self, relay: Relay) -> bytes:
        payload = encode(relay.round, relay.vector)
        return self._data(RelayBody(self._network, self._sender, relay.stage, relay.round, payload))

    def _data(self, body: Body) -> bytes:
        data = sign(body, self._key)
        if self._verifier is not None:
            self._verifier.read_once(data, _opened).proven_by = self._public_key
        return data


class PlainOutbox:
    """The messages of an agent that protects nothing: one without privacy, or one that has no points."""

    spends = False

    def __init__(self, signer: Signer, store: Store, start: NDArray[Any]) -> None:
        self._signer = signer
        self._store = store
        sent = store.load().sent
        self._last = signer.signed(0, encode(0, np.asarray(start, np.float64))) if sent is None else sent
        self._model = _model_in(self._last.data)

    @property
    def last(self) -> Sent:
        return self._last

    @property
    def updates(self) -> int:
        return self._last.number

    @property
    def model(self) -> NDArray[Any]:
        return self._model

    def ready(self, message: Message) -> Sent:
        number = self._last.number + 1
        model = np.asarray(message.model, np.float64)
        self._keep(self._signer.signed(number, encode(number, model)), model)
        return self._last

    def conclude(self) -> None:
        """It may always have more to say."""

    def knows(self, echo: Sent) -> bool:
        return echo.number <= self._last.number

    def take_back(self, later: Sent) -> None:
        self._keep(later, _model_in(later.data))

    def _keep(self, sent: Sent, model: NDArray[Any]) -> None:
        self._store.save_sent(sent)
        self._last, self._model = sent, model


class GateOutbox:
    """The messages of an agent with a gate: what the gate released, its mean at the end, and nothing else."""

    spends = True

    def __init__(self, signer: Signer, gate: Gate, ledger: Book, updates: int | None = None) -> None:
        """ledger: the gate's own, which has the bytes of all that was released.

        updates: how many releases the agent makes; then comes its last word. None: it has none.
        """
        self._signer = signer
        self._ledger = ledger
        self._n_updates = updates
        release = gate.last_release()
        if release is not None:
            self._last = signer.signed(release.number, release.payload)
        elif gate.released is not None:
            self._last = signer.signed(0, encode(0, gate.released))
        else:
            raise PrivacyError("the gate of an agent that sends models needs a public start")
        self.conclude()

    @property
    def last(self) -> Sent:
        return self._last

    @property
    def updates(self) -> int:
        return self._ledger.consumed

    @property
    def model(self) -> NDArray[Any]:
        return _model_in(self._last.data)

    def ready(self, message: Message) -> Sent:
        release = release_in(message)
        self._last = self._signer.signed(release.number, release.payload)
        return self._last

    def conclude(self) -> Sent | None:
        spent = self._ledger.consumed
        if self._n_updates is None or spent < self._n_updates or self._last.number > spent:
            return None
        payload = last_word(self._ledger, tail_start(self._n_updates))
        if payload is None:
            return None
        self._last = self._signer.signed(spent + 1, payload)
        return self._last

    def knows(self, echo: Sent) -> bool:
        if echo.number == self._last.number:
            return echo.data == self._last.data
        if not 0 < echo.number <= self._ledger.consumed:
            return echo.number == 0
        return _payload_in(echo.data) == self._ledger.entries[echo.number - 1].payload

    def take_back(self, later: Sent) -> None:
        raise PrivacyError("an agent with a budget goes on from its ledger alone")


def release_in(message: Message) -> Release:
    """What the agent's gate released; an agent with a budget sends nothing else."""
    if message.release is None:
        raise PrivacyError(
            f"agent {message.sender!r}: message {message.number} did not come from its gate; an agent "
            "with a budget sends nothing else"
        )
    return message.release


def last_word(ledger: Book, first: int) -> bytes | None:
    """The mean of what was released after the first `first` events, as a message; None if nothing was.

    By exactly rounded sums: the same bytes from the same ledger on every machine.
    """
    payloads = [entry.payload for entry in ledger.entries[first:]]
    released = [decode(payload)[1] for payload in payloads if payload is not None]
    if not released:
        return None
    mean = [math.fsum(values) / len(released) for values in zip(*released, strict=True)]
    return encode(ledger.consumed + 1, np.array(mean))


def _model_in(data: bytes) -> NDArray[np.float64]:
    return decode(_payload_in(data))[1]


def _payload_in(data: bytes) -> bytes:
    return _opened(data).body.payload


def _opened(data: bytes) -> Opened:
    return open_signed(data, len(data))
