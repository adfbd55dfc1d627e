"""What agents of a schedule are made of, and mistakes in it that the watch has to notice."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.network.faults.disks import Disk, DiskLedger, MemoryDisk
from tests.network.faults.watch import WatchedIntake

from flockwise.agent import Agent
from flockwise.net.intake import _Duplicate
from flockwise.net.node import Node
from flockwise.net.outbox import GateOutbox, PlainOutbox
from flockwise.net.store import Sent
from flockwise.privacy.entries import Account, Row
from flockwise.privacy.ledger import Book
from flockwise.privacy.messages import encode


class Parts:
    """No mistake: the parts as they are."""

    intake = WatchedIntake
    gate_outbox = GateOutbox
    plain_outbox = PlainOutbox
    node = Node

    def ledger(self, disk: Disk) -> Book:
        return disk.open_ledger()

    def change_agent(self, agent: Agent) -> None:
        """As it is."""

    def after_call(self, disk: Disk) -> None:
        """Nothing is left to do."""


class ChargeAfterSend(Parts):
    """Sends first and writes the charge when it is done."""

    class LateLedger(DiskLedger):
        def __init__(self, disk: MemoryDisk) -> None:
            super().__init__(disk)
            self.late: list[tuple[Row, Account]] = []

        def _store_entry(self, row: Row, after: Account) -> None:
            self.late.append((row, after))

        def catch_up(self) -> None:
            while self.late:
                super()._store_entry(*self.late.pop(0))

    def __init__(self) -> None:
        self._ledgers: dict[int, ChargeAfterSend.LateLedger] = {}

    def ledger(self, disk: Disk) -> Book:
        assert isinstance(disk, MemoryDisk)
        self._ledgers[id(disk)] = ledger = self.LateLedger(disk)
        return ledger

    def after_call(self, disk: Disk) -> None:
        if id(disk) in self._ledgers:
            self._ledgers[id(disk)].catch_up()


class SaveAfterSend(Parts):
    """Without privacy: writes its message down when it makes the next one."""

    class plain_outbox(PlainOutbox):
        late: Sent | None = None

        def _keep(self, sent: Sent, model: Any) -> None:
            if self.late is not None:
                self._store.save_sent(self.late)
            self.late = sent
            self._last, self._model = sent, model


class NoSequenceCheck(Parts):
    """Takes any message that is signed, however old."""

    class intake(WatchedIntake):
        def _check_number(self, number: Any, track: Any, peer: Any, opened: Any, data: Any) -> None:
            if data == track.data:
                raise _Duplicate
            self._check_signature(opened, peer.key.public_key)
            track.last = min(track.last, number - 1)


class NoSignatureCheck(Parts):
    """Believes whatever name a message bears."""

    class intake(WatchedIntake):
        def _check_signature(self, opened: Any, public_key: bytes) -> None:
            """Never looks."""


class MissingRenormalisation(Parts):
    """Takes the model of a neighbor that it has never heard from for zero."""

    def change_agent(self, agent: Agent) -> None:
        def shrunken_mean() -> np.ndarray:
            weights = np.array([neighbor.weight for neighbor in agent.neighbors.values()])
            models = [
                np.zeros_like(agent.model) if neighbor.model is None else neighbor.model
                for neighbor in agent.neighbors.values()
            ]
            return weights @ np.stack(models) / weights.sum() if models else agent.model

        agent._neighbor_mean = shrunken_mean


class RedrawAfterRestart(Parts):
    """Keeps the charge but not the bytes, and makes them anew when it starts again."""

    class gate_outbox(GateOutbox):
        def __init__(self, signer: Any, gate: Any, ledger: Any, updates: Any) -> None:
            super().__init__(signer, gate, ledger, updates)
            release = gate.last_release()
            if release is not None:
                again = release.vector + 0.1
                self._last = signer.signed(release.number, encode(release.number, again))


class LastWordTooSoon(Parts):
    """Sends the mean of its releases before it has made all of them."""

    class gate_outbox(GateOutbox):
        def __init__(self, signer: Any, gate: Any, ledger: Any, updates: Any) -> None:
            super().__init__(signer, gate, ledger, updates // 2)


class AcceptBeingBehind(Parts):
    """Goes on with a ledger that its neighbors know to be old."""

    class gate_outbox(GateOutbox):
        def knows(self, echo: Sent) -> bool:
            return True


class DoesNotAsk(Parts):
    """Releases without waiting for what its neighbors know of it."""

    class node(Node):
        def _may_release(self, now: int) -> bool:
            return self.obstacle is None and bool(self.neighbors_up)


class ReleasesForNobody(Parts):
    """Spends its budget although nobody listens."""

    class node(Node):
        def _may_release(self, now: int) -> bool:
            return self.obstacle is None and (not self.neighbors_up or super()._may_release(now))


class GreetsOnce(Parts):
    """Never shows its last message again."""

    class node(Node):
        def _greeting_due(self, tie: Any) -> int | None:
            return None if tie.has_greeted else super()._greeting_due(tie)


class KeepsWhoLeft(Parts):
    """Goes on with the models of neighbors that are no longer in its roster."""

    class node(Node):
        def set_neighbors(self, neighbors: Any, version: int) -> None:
            left = {name: n for name, n in self.agent.neighbors.items() if name not in neighbors}
            super().set_neighbors(neighbors, version)
            self.agent.neighbors.update(left)


BUGS: dict[str, type[Parts]] = {
    "charge after send": ChargeAfterSend,
    "save after send": SaveAfterSend,
    "no sequence check": NoSequenceCheck,
    "no signature check": NoSignatureCheck,
    "missing renormalisation": MissingRenormalisation,
    "redraw after restart": RedrawAfterRestart,
    "last word too soon": LastWordTooSoon,
    "accept being behind": AcceptBeingBehind,
    "does not ask": DoesNotAsk,
    "releases for nobody": ReleasesForNobody,
    "greets once": GreetsOnce,
    "keeps who left": KeepsWhoLeft,
}
