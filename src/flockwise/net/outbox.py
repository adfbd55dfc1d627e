"""Makes an agent's messages ready to leave: numbered, signed, and on disk before they are handed out.

What gates release is in their ledgers; the messages of an agent that protects nothing are in its store. Both
begin with message 0, the public model that the agent started from, so a neighbor knows that it is
there before its first update.

After the last update an agent with a budget sends the average of its later releases, which has less noise
than any of them. It is computed from releases, so it costs nothing. Its number is one above that of the last
release.

After a restart the outbox hands out the same bytes: signatures are deterministic, and nothing is drawn again.
Only new keys change the signature.
If neighbors hold a later message than the agent itself, its disk is an old copy. An agent that protects
nothing takes its own message back and goes on from there. One with a gate has spent budget that its ledger
does not know of, and must not release anything more.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.agent import Message
from flockwise.errors import PrivacyError
from flockwise.net.gates import GateQueue
from flockwise.net.signing import SigningKey, Verifier, public_key_of
from flockwise.net.store import Store
from flockwise.net.wire import (
    MAX_NUMBER,
    Body,
    ModelBody,
    Opened,
    PrivacyLabel,
    RelayBody,
    Sent,
    open_signed,
    sign,
)
from flockwise.privacy.messages import Relay, encode


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

    def model(self, number: int, vector: NDArray[Any]) -> Sent:
        if not 0 <= number <= MAX_NUMBER:
            raise PrivacyError(f"agent {self._sender!r}: there is no message with number={number}")
        payload = encode(number, np.asarray(vector, np.float64))
        body = ModelBody(self._network, self._sender, number, self._privacy, payload)
        return Sent(number, self._signed(body))

    def relay(self, relay: Relay) -> bytes:
        payload = encode(relay.round, relay.vector)
        return self._signed(RelayBody(self._network, self._sender, relay.stage, relay.round, payload))

    def again(self, data: bytes) -> bytes:
        """A message of before: the very same bytes, unless the key has changed since."""
        return self._signed(_opened(data).body)

    def _signed(self, body: Body) -> bytes:
        data = sign(body, self._key)
        if self._verifier is not None:
            self._verifier.read_once(data, _opened).proven_by = self._public_key
        return data


class Outbox:
    """Where a node gets the bytes from that it sends. `last` may be sent any time, again and again.

    start: the public model.
    gates: have made all that an agent with a budget ever sends; None for one that protects nothing.
    averaged: the releases whose average is sent after the last of them; None: none is sent.
    """

    def __init__(
        self,
        signer: Signer,
        store: Store,
        start: NDArray[Any],
        gates: GateQueue | None = None,
        averaged: range | None = None,
    ) -> None:
        self._signer = signer
        self._store = store
        self._gates = gates
        self._averaged = averaged
        if gates is None:
            sent = store.load().sent
            self.last = signer.model(0, start) if sent is None else Sent(sent.number, signer.again(sent.data))
        else:
            self.last = signer.model(gates.last_number, gates.released)
            self.conclude()

    @property
    def spends(self) -> bool:
        """Whether sending uses budget; then wait until a neighbor is connected."""
        return self._gates is not None

    @property
    def updates(self) -> int:
        """How many updates were sent; the average at the end is not one of them."""
        return self.last.number if self._gates is None else self._gates.consumed

    @property
    def model(self) -> NDArray[np.float64]:
        """The model in the last message."""
        return _opened(self.last.data).vector

    def ready(self, message: Message) -> Sent:
        """Put a new message on disk; when this returns, the bytes may leave."""
        if self._gates is None:
            self._keep(self._signer.model(self.last.number + 1, message.model))
        elif message.release is None:
            raise PrivacyError(
                f"agent {message.sender!r}: message {message.number} did not come from its gate; an agent "
                "with a budget sends nothing else"
            )
        else:  # it is in the ledger already
            self.last = self._signer.model(self._gates.last_number, message.release.vector)
        return self.last

    def conclude(self) -> Sent | None:
        """The average at the end, when it is due; None before, and once it has been handed out."""
        if self._gates is None or self._averaged is None:
            return None
        spent = self._gates.consumed
        if spent < self._averaged.stop or self.last.number > spent:
            return None
        released = [one for one in self._gates.vectors(self._averaged.start) if one is not None]
        if not released:
            return None
        # By exactly rounded sums: the same bytes from the same ledger on every machine.
        mean = [math.fsum(values) / len(released) for values in zip(*released, strict=True)]
        self.last = self._signer.model(spent + 1, np.array(mean))
        return self.last

    def knows(self, echo: Sent) -> bool:
        """Whether a message of this agent, which a neighbor showed it, is one that its disk knows of."""
        if self._gates is None:
            return echo.number <= self.last.number
        if echo.number == self.last.number:
            return echo.data == self.last.data
        if not 0 < echo.number <= self._gates.consumed:
            return echo.number == 0
        vector = self._gates.vectors(echo.number - 1)[0]
        payload = _opened(echo.data).body.payload
        return vector is not None and payload == encode(echo.number, vector)

    def take_back(self, later: Sent) -> None:
        """Go on from a later message of one's own that a neighbor held."""
        if self.spends:
            raise PrivacyError("an agent with a budget goes on from its ledger alone")
        self._keep(later)

    def _keep(self, sent: Sent) -> None:
        self._store.save_sent(sent)
        self.last = sent


def _opened(data: bytes) -> Opened:
    return open_signed(data, len(data))
