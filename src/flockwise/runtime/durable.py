"""The agent of a folder: on its files, with secure noise."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from flockwise.deploy.folder import AgentFolder
from flockwise.errors import LedgerError, NetworkError
from flockwise.net.journal import FileJournal, Journal
from flockwise.net.signing import Verifier
from flockwise.net.store import FileStore
from flockwise.net.time import PoissonClock, Time
from flockwise.net.transport import Transport
from flockwise.privacy.ledger import NAME as LEDGER_NAME
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.noise import SecureNoise
from flockwise.runtime.newest import Freshness, check_newest, ledger_folder
from flockwise.runtime.participant import AgentDefinition, AgentResources, MakeClock, Participant


def open_participant(
    folder: AgentFolder,
    transport: Transport,
    time: Time,
    verifier: Verifier | None = None,
    make_clock: MakeClock = PoissonClock,
) -> Participant:
    """The agent as it was when it last stopped; nobody else can open it until it is closed."""
    definition = define_agent(folder)
    with ExitStack() as opened:
        store = opened.enter_context(FileStore(folder.state, folder.name))
        ledgers = BatchLedgers(folder.state, folder.name, check_newest(folder, store))
        opened.callback(ledgers.close)

        def open_journal() -> Journal:
            journal = FileJournal(folder.state)
            opened.callback(journal.close)
            return journal

        resources = AgentResources(
            store, ledgers, open_journal, SecureNoise(), transport, time, verifier, make_clock
        )
        participant = Participant(definition, resources)
        participant.close = opened.pop_all().close
        return participant


def define_agent(folder: AgentFolder) -> AgentDefinition:
    """As its folder has it. An agent with a ledger is refused if its samples are gone."""
    samples = folder.samples()
    if not len(samples.targets) and (folder.state / LEDGER_NAME).exists():
        raise NetworkError(
            f"agent {folder.name!r}: it has a ledger, and no samples in {folder.settings.data!r} any more; "
            "give them back to it, or let it leave the network"
        )
    return AgentDefinition(folder.neighborhood, folder.settings.privacy, samples, folder.signing_key())


class BatchLedgers:
    """The ledgers of an agent's batches: that of the first lies in its folder, the others below it.

    A ledger is made before its batch is known to the store. So one that is missing later has been lost, and
    the budget with it. One file is open at a time: batches may come for years.
    """

    def __init__(self, folder: Path, agent: str, freshness: Freshness | None = None) -> None:
        self._folder = folder
        self._agent = agent
        self._freshness = freshness
        self._opened: Ledger | None = None

    def make(self, place: int) -> None:
        try:
            Ledger.create(self._of(place), self._agent).close()
        except LedgerError:  # there is one, if a crash came between it and its batch
            Ledger.open(self._of(place), self._agent).close()

    def open(self, place: int) -> Ledger:
        """The one that is spent from now on; of the one before nothing but its entries is needed any more."""
        self.close()
        self._opened = Ledger.open(self._of(place), self._agent)
        if self._freshness is not None:
            self._opened.after_commit = partial(self._freshness.note, place)
        return self._opened

    def has(self, place: int) -> bool:
        return (self._of(place) / LEDGER_NAME).exists()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _of(self, place: int) -> Path:
        return ledger_folder(self._folder, place)
