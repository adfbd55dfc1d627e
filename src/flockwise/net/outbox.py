"""What makes an agent's messages ready to leave: numbered, signed, and on disk before they are handed out.

`PlainOutbox` keeps the bytes in the agent's store. `GateOutbox` sends what gates released, which their
ledgers hold already. Both begin with message 0, the public model that the agent started from, so a neighbor
knows that it is there before its first update.

After the last update an agent with a budget sends the average of its later releases, which has less noise
than any of them. It is computed from what was released, so it costs nothing. Its number is one above that of
the last release.

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
from flockwise.method.rules import tail_start
from flockwise.net.releases import GateQueue
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
from flockwise.privacy.messages import Relay, Release, decode, encode


class Outbox(Protocol):
    """Where a node gets the bytes from that it sends."""

    spends: bool
    """True if sending uses budget; then wait until a neighbor is connected."""

    @property
    def last(self) -> Sent:
        """What may be sent any time, again and again."""
        ...

    @property
    def updates(self) -> int:
        """How many updates were sent; the average at the end is not one of them."""
        ...

    @property
    def model(self) -> NDArray[Any]:
        """The model in the last message."""
        ...

    def ready(self, message: Message) -> Sent:
        """Put a new message on disk; when this returns, the bytes may leave."""
        ...

    def conclude(self) -> Sent | None:
        """The average at the end, when it is due; None before, and once it has been handed out."""
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
    """The messages of an agent with a budget: what its gates released, and their mean at the end."""

    spends = True

    def __init__(self, signer: Signer, gates: GateQueue, updates: int | None = None) -> None:
        """updates: how many releases the agent makes before it sends their mean; None: it sends none."""
        self._signer = signer
        self._gates = gates
        self._n_updates = updates
        self._last = self._signed(gates.last_number, gates.released)
        self.conclude()

    @property
    def last(self) -> Sent:
        return self._last

    @property
    def updates(self) -> int:
        return self._gates.consumed

    @property
    def model(self) -> NDArray[Any]:
        return _model_in(self._last.data)

    def ready(self, message: Message) -> Sent:
        self._last = self._signed(self._gates.last_number, release_in(message).vector)
        return self._last

    def conclude(self) -> Sent | None:
        spent = self._gates.consumed
        if self._n_updates is None or spent < self._n_updates or self._last.number > spent:
            return None
        mean = mean_of_releases(self._gates, tail_start(self._n_updates))
        if mean is None:
            return None
        self._last = self._signed(spent + 1, mean)
        return self._last

    def knows(self, echo: Sent) -> bool:
        if echo.number == self._last.number:
            return echo.data == self._last.data
        if not 0 < echo.number <= self._gates.consumed:
            return echo.number == 0
        vector = self._gates.vectors(echo.number - 1)[0]
        return vector is not None and _payload_in(echo.data) == encode(echo.number, vector)

    def take_back(self, later: Sent) -> None:
        raise PrivacyError("an agent with a budget goes on from its ledger alone")

    def _signed(self, number: int, vector: NDArray[np.float64]) -> Sent:
        return self._signer.signed(number, encode(number, vector))


def release_in(message: Message) -> Release:
    """What the agent's gate released; an agent with a budget sends nothing else."""
    if message.release is None:
        raise PrivacyError(
            f"agent {message.sender!r}: message {message.number} did not come from its gate; an agent "
            "with a budget sends nothing else"
        )
    return message.release


def mean_of_releases(gates: GateQueue, after: int) -> NDArray[np.float64] | None:
    """The mean of what was released after the first `after` releases; None if nothing was.

    By exactly rounded sums: the same bytes from the same ledger on every machine.
    """
    released = [vector for vector in gates.vectors(after) if vector is not None]
    if not released:
        return None
    return np.array([math.fsum(values) / len(released) for values in zip(*released, strict=True)])


def _model_in(data: bytes) -> NDArray[np.float64]:
    return decode(_payload_in(data))[1]


def _payload_in(data: bytes) -> bytes:
    return _opened(data).body.payload


def _opened(data: bytes) -> Opened:
    return open_signed(data, len(data))
