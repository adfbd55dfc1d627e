"""Whether an agent's ledgers are the newest that there are: an old copy must not spend the same budget again.

There are two witnesses besides the neighbors, which show an agent what it has sent:

- The birth of the ledgers' files. It is noted at the first start, beside the state and not in it: a restore
  of the state alone leaves the note. A copy, or a restored file, is a new file.
- A freshness file on another disk, if the owner names one. It says after every release, and before that
  leaves, where the ledgers end. Only it sees that a whole disk was restored, or a file overwritten in place,
  or a whole folder from before its first start: without it such a folder is like one that never ran.

An agent whose ledgers are an old copy, or may be one, never releases again: its budget counts as spent.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from flockwise.deploy.folder import AgentFolder
from flockwise.deploy.keyfiles import write_file
from flockwise.errors import LedgerError, NetworkError
from flockwise.net.store import Store
from flockwise.privacy.ledger import NAME, Account, Statement, read_statement

BIRTHS_FILE: Final = "births.json"
# From Linux's stat.h: the call fills 256 bytes; the mask is at 0, the birth at 80.
AT_FDCWD, STATX_BTIME, STATX_SIZE, STATX_MASK, STATX_BIRTH = -100, 0x800, 256, "=I", "=qI"
BIRTH_AT: Final = 80


class End(msgspec.Struct, frozen=True):
    """Where one ledger ends: how many entries it has, and the seal of the last."""

    entries: int
    seal: str

    @classmethod
    def of(cls, account: Account) -> End:
        return cls(account.n_entries, account.seal.hex())


class _Ends(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A freshness file: the ends of the ledgers of all batches."""

    agent: str
    ledgers: list[End]


class Freshness:
    """An agent's freshness file."""

    def __init__(self, file: Path, agent: str) -> None:
        self.file = file
        self._agent = agent
        self._ends: list[End] = []

    def proves(self, ledgers: Sequence[Statement]) -> bool:
        """Whether these ledgers hold all that the file knows of. A file that is missing proves nothing."""
        known = self._read()
        if known is None:
            if any(ledger.rows for ledger in ledgers):
                raise NetworkError(
                    f"agent {self._agent!r}: its freshness file {self.file} is missing; bring it back. If "
                    "its state is surely the newest, have it written: flockwise agent vouch FOLDER"
                )
            return True
        return len(known) <= len(ledgers) and all(map(_goes_on_from, ledgers, known))

    def begin(self, ledgers: Sequence[Statement]) -> None:
        """From what these ledgers hold now."""
        self._write([End.of(ledger.account) for ledger in ledgers])

    def note(self, place: int, account: Account) -> None:
        """The ledger of this batch has one more entry. Nothing of it leaves before this returns."""
        if self._read() != self._ends:
            raise LedgerError(
                f"agent {self._agent!r}: its freshness file {self.file} is gone, or another copy of the "
                "agent writes to it; nothing was sent; see that only one copy runs, and start it again"
            )
        self._write([*self._ends[:place], End.of(account)])

    def _read(self) -> list[End] | None:
        try:
            found = msgspec.json.decode(self.file.read_bytes(), type=_Ends)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LedgerError(
                f"agent {self._agent!r}: its freshness file {self.file} cannot be used: {error}"
            ) from error
        if found.agent != self._agent:
            raise LedgerError(
                f"agent {self._agent!r}: {self.file} is the freshness file of agent {found.agent!r}; give "
                "each agent its own"
            )
        return found.ledgers

    def _write(self, ends: list[End]) -> None:
        try:
            write_file(self.file, msgspec.json.encode(_Ends(self._agent, ends)), is_secret=True)
        except OSError as error:
            raise LedgerError(
                f"agent {self._agent!r}: its freshness file {self.file} cannot be written "
                f"({error.strerror}); nothing was sent"
            ) from error
        self._ends = ends


def check_newest(folder: AgentFolder, store: Store) -> Freshness | None:
    """Ask both witnesses, before a ledger is opened. An old copy is marked in the store, for ever."""
    folders = ledger_folders(folder.state)
    if not folders:
        return None
    ledgers = [read_statement(one) for one in folders]
    births, noted = [birth_of(one / NAME) for one in folders], _noted_births(folder)
    freshness = freshness_of(folder)
    if freshness is not None:
        is_newest = freshness.proves(ledgers)
    elif noted is None:
        is_newest = not any(ledger.rows for ledger in ledgers)
    else:
        is_newest = noted == births[: len(noted)]
    if not is_newest:
        store.mark_newer_release(1 + sum(len(ledger.rows) for ledger in ledgers))
        return freshness
    if noted != births:
        note_births(folder)
    if freshness is not None:
        freshness.begin(ledgers)
    return freshness


def vouch(folder: AgentFolder) -> Path:
    """The owner says that these ledgers are the newest: write the freshness file as they are now."""
    freshness = freshness_of(folder)
    if freshness is None:
        raise NetworkError(
            f'{folder.path}: name a file in agent.toml first, as in freshness = "/mnt/flockwise/NAME.fresh"'
        )
    freshness.begin([read_statement(one) for one in ledger_folders(folder.state)])
    return freshness.file


def warning(agents: Sequence[AgentFolder]) -> str | None:
    """For the owner at the start of these agents; None if there is nothing to say."""
    unseen = [
        one for one in agents if one.settings.privacy.own_budget is not None and not one.settings.freshness
    ]
    if not unseen:
        return None
    return (
        f"Private agents without a freshness file: {len(unseen)}. A restore of their whole disk from a "
        "backup, or of a folder from before its first start, cannot be seen, and would spend the budget "
        "again: never do that, or name such a file (docs/network.md, Day two)."
    )


def freshness_of(folder: AgentFolder) -> Freshness | None:
    file = folder.settings.freshness
    return None if file is None else Freshness(folder.path / file, folder.name)


def ledger_folder(state: Path, place: int) -> Path:
    """Where the ledger of a batch is."""
    return state / f"batch{place}" if place else state


def ledger_folders(state: Path) -> list[Path]:
    """Of all batches that have a ledger."""
    found = list[Path]()
    while (ledger_folder(state, len(found)) / NAME).is_file():
        found.append(ledger_folder(state, len(found)))
    return found


def note_births(folder: AgentFolder) -> None:
    """Of the ledgers where they are now: these files are the newest."""
    births = [birth_of(one / NAME) for one in ledger_folders(folder.state)]
    try:
        write_file(folder.path / BIRTHS_FILE, msgspec.json.encode(births))
    except OSError as error:
        raise NetworkError(f"{folder.path / BIRTHS_FILE}: cannot be written ({error.strerror})") from error


def birth_of(file: Path) -> str:
    """When the file was made, which nobody can set; where the system does not say, its number on the disk."""
    # In a container the first writer of a file of the image makes a new one.
    with file.open("r+b"):
        found = file.stat()
    birth = getattr(found, "st_birthtime_ns", None) or getattr(found, "st_birthtime", None)
    birth = _birth_on_linux(file) if birth is None else birth
    return f"number {found.st_ino}" if birth is None else f"born {birth}"


def _birth_on_linux(file: Path) -> int | None:
    statx = getattr(ctypes.CDLL(None), "statx", None) if os.name == "posix" else None
    filled = ctypes.create_string_buffer(STATX_SIZE)
    if statx is None or statx(AT_FDCWD, os.fsencode(file), 0, STATX_BTIME, filled) != 0:
        return None
    if not struct.unpack_from(STATX_MASK, filled)[0] & STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from(STATX_BIRTH, filled, BIRTH_AT)
    return seconds * 10**9 + nanoseconds


def _noted_births(folder: AgentFolder) -> list[str] | None:
    try:
        return msgspec.json.decode((folder.path / BIRTHS_FILE).read_bytes(), type=list[str])
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise NetworkError(f"{folder.path / BIRTHS_FILE}: cannot be used: {error}") from error


def _goes_on_from(ledger: Statement, known: End) -> bool:
    """Whether it holds the entries that are known, and no others in their place."""
    if known.entries > len(ledger.rows):
        return False
    if known.entries == 0:
        return True
    return ledger.rows[known.entries - 1].seal.hex() == known.seal
