"""Mistakes in the parts of an agent that the watch has to notice."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.network.faults.disks import Disk, DiskLedger, MemoryDisk

from flockwise.net.intake import _Duplicate
from flockwise.net.node import Node
from flockwise.net.wire import Sent, open_signed
from flockwise.privacy.ledger import Account, LedgerBase, LedgerRow
from flockwise.privacy.messages import decode


class NoBug:
    """Agents as the product makes them."""

    def open_ledger(self, disk: Disk) -> LedgerBase:
        return disk.open_ledger()

    def change(self, node: Node) -> None:
        """Put the mistake into a node that has just been made, or into its parts."""

    def after_call(self, disk: Disk) -> None:
        """Do what is left to do after a call into the node."""


class ChargeAfterSend(NoBug):
    """Sends first and writes the charge when it is done."""

    class LateLedger(DiskLedger):
        def __init__(self, disk: MemoryDisk) -> None:
            super().__init__(disk)
            self.late: list[tuple[LedgerRow, Account]] = []

        def _store_entry(self, row: LedgerRow, after: Account) -> None:
            self.late.append((row, after))

        def catch_up(self) -> None:
            while self.late:
                super()._store_entry(*self.late.pop(0))

    def __init__(self) -> None:
        self._ledgers: dict[int, ChargeAfterSend.LateLedger] = {}

    def open_ledger(self, disk: Disk) -> LedgerBase:
        assert isinstance(disk, MemoryDisk)
        self._ledgers[id(disk)] = ledger = self.LateLedger(disk)
        return ledger

    def after_call(self, disk: Disk) -> None:
        if id(disk) in self._ledgers:
            self._ledgers[id(disk)].catch_up()


class SaveAfterSend(NoBug):
    """Without privacy: writes its message down when it makes the next one."""

    def change(self, node: Node) -> None:
        outbox, late = node._outbox, list[Sent]()
        if outbox.spends:
            return

        def keep(sent: Sent) -> None:
            while late:
                outbox._store.save_sent(late.pop())
            late.append(sent)
            outbox.last = sent

        outbox._keep = keep


class NoSequenceCheck(NoBug):
    """Takes any message that is signed, however old."""

    def change(self, node: Node) -> None:
        intake = node.intake

        def check_number(number: Any, track: Any, peer: Any, opened: Any, data: Any) -> None:
            if data == track.data:
                raise _Duplicate
            intake._check_signature(opened, peer.key.public_key)
            track.last = min(track.last, number - 1)

        intake._check_number = check_number


class NoSignatureCheck(NoBug):
    """Believes whatever name a message bears."""

    def change(self, node: Node) -> None:
        node.intake._check_signature = lambda opened, public_key: None


class MissingRenormalization(NoBug):
    """Takes the model of a neighbor that it has never heard from for zero."""

    def change(self, node: Node) -> None:
        agent: Any = node.agent

        def shrunken_mean() -> np.ndarray:
            weights = np.array([neighbor.weight for neighbor in agent.neighbors.values()])
            models = [
                np.zeros_like(agent.model) if neighbor.model is None else neighbor.model
                for neighbor in agent.neighbors.values()
            ]
            return weights @ np.stack(models) / weights.sum() if models else agent.model

        agent._neighbor_mean = shrunken_mean


class RedrawAfterRestart(NoBug):
    """Keeps the charge but not the bytes, and makes them anew when it starts again."""

    def change(self, node: Node) -> None:
        outbox: Any = node._outbox
        number, released = decode(open_signed(node.sent.data, len(node.sent.data)).body.payload)
        if outbox.spends and number > 0:
            outbox.last = outbox._signer.model(number, released + 0.1)


class LastWordTooSoon(NoBug):
    """Sends the mean of its releases before it has made all of them."""

    def change(self, node: Node) -> None:
        outbox = node._outbox
        if outbox._averaged is not None:
            outbox._averaged = range(outbox._averaged.start // 2, outbox._averaged.stop // 2)
            outbox.conclude()


class AcceptBeingBehind(NoBug):
    """Goes on with a ledger that its neighbors know to be old."""

    def change(self, node: Node) -> None:
        if node._outbox.spends:
            node._outbox.knows = lambda echo: True


class DoesNotAsk(NoBug):
    """Releases without waiting for what its neighbors know of it."""

    def change(self, node: Node) -> None:
        node.may_release = lambda now: node.obstacle is None and bool(node.neighbors_up)


class ReleasesForNobody(NoBug):
    """Spends its budget although nobody listens."""

    def change(self, node: Node) -> None:
        may_release = node.may_release
        node.may_release = lambda now: node.obstacle is None and (not node.neighbors_up or may_release(now))


class GreetsOnce(NoBug):
    """Never shows its last message again."""

    def change(self, node: Node) -> None:
        greeting_due = node._greeting_due
        node._greeting_due = lambda contact: None if contact.has_greeted else greeting_due(contact)


class KeepsWhoLeft(NoBug):
    """Goes on with the models of neighbors that are no longer in its roster."""

    def change(self, node: Node) -> None:
        set_neighbors = node.set_neighbors

        def keep_who_left(neighbors: Any, version: int) -> None:
            left = {name: n for name, n in node.agent.neighbors.items() if name not in neighbors}
            set_neighbors(neighbors, version)
            node.agent.neighbors.update(left)

        node.set_neighbors = keep_who_left


BUGS: dict[str, type[NoBug]] = {
    "charge after send": ChargeAfterSend,
    "save after send": SaveAfterSend,
    "no sequence check": NoSequenceCheck,
    "no signature check": NoSignatureCheck,
    "missing renormalization": MissingRenormalization,
    "redraw after restart": RedrawAfterRestart,
    "last word too soon": LastWordTooSoon,
    "accept being behind": AcceptBeingBehind,
    "does not ask": DoesNotAsk,
    "releases for nobody": ReleasesForNobody,
    "greets once": GreetsOnce,
    "keeps who left": KeepsWhoLeft,
}
