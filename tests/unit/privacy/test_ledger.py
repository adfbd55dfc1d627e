"""A ledger never forgets, never changes its mind, belongs to one process, and notices damage."""

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

import flockwise.database
from flockwise.errors import LedgerError, PrivacyError
from flockwise.privacy.ledger import NAME, Entry, Ledger, MemoryLedger, read_statement
from flockwise.privacy.mechanisms import MECHANISMS, Gaussian, KNorm, Laplace

LOG_NAME = f"{NAME}-wal"
EVENTS = (Laplace(0.1, 0.3, 2.0**-20, 5), Gaussian(1 / 3, 2.5), KNorm(1.0, 2.0, dimension=7))


def filled(folder, n_entries=5):
    """A closed ledger with some entries; the fourth event was lost."""
    with Ledger.create(folder, "anna") as ledger:
        ledger.grant("some plan")
        for number in range(1, n_entries + 1):
            payload = None if number == 4 else os.urandom(16)
            ledger.record(Entry.now(number, EVENTS[number % 3], payload))
        return ledger.entries


def change(folder, *statements):
    with closing(sqlite3.connect(folder / NAME)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.fixture(params=["durable", "memory"])
def fresh(request, tmp_path):
    if request.param == "memory":
        yield MemoryLedger("anna")
    else:
        with Ledger.create(tmp_path, "anna") as ledger:
            yield ledger


def test_both_kinds_keep_what_they_are_told(fresh):
    fresh.grant("some plan")
    entries = tuple(Entry.now(number, EVENTS[number - 1], b"x" * number) for number in (1, 2, 3))
    for entry in entries:
        fresh.record(entry)
    assert fresh.entries == entries
    assert fresh.consumed == 3
    assert (fresh.agent, fresh.plan) == ("anna", "some plan")


def test_both_kinds_take_events_in_order_and_once(fresh):
    fresh.grant("some plan")
    fresh.record(Entry.now(1, EVENTS[0], b"one"))
    for number in (0, 1, 3):
        with pytest.raises(LedgerError, match=f"event 2 is next, got number={number}"):
            fresh.record(Entry.now(number, EVENTS[0], b"other"))
    assert fresh.consumed == 1


def test_both_kinds_are_granted_one_plan_for_ever(fresh):
    with pytest.raises(LedgerError, match="nothing was granted yet"):
        fresh.record(Entry.now(1, EVENTS[0], b""))
    fresh.grant("some plan")
    fresh.grant("some plan")
    with pytest.raises(LedgerError, match="never replaced"):
        fresh.grant("a better plan")
    fresh.record(Entry.now(1, EVENTS[0], b""))
    with pytest.raises(LedgerError, match="never replaced"):
        fresh.grant("what is left of it")


def test_both_kinds_are_claimed_once(fresh):
    fresh.claim()
    with pytest.raises(LedgerError, match=r"agent 'anna': its ledger has a gate already.*open it again"):
        fresh.claim()


def test_everything_is_there_after_a_restart(tmp_path):
    entries = filled(tmp_path)
    with Ledger.open(tmp_path, "anna") as again:
        assert again.entries == entries
        assert again.plan == "some plan"
        with pytest.raises(LedgerError, match="never replaced"):
            again.grant("another")
        again.record(Entry.now(6, EVENTS[0], b"six"))
    with Ledger.open(tmp_path, "anna") as again:
        assert again.entries[:5] == entries
        assert again.entries[5].payload == b"six"


def test_commits_are_synced_to_the_disk(tmp_path):
    with Ledger.create(tmp_path, "anna") as ledger:
        ask = ledger._connection.execute
        assert ask("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert ask("PRAGMA journal_mode").fetchone() == ("wal",)


KILLED_WHILE_IT_RUNS = """
import os, signal, sys
from flockwise.privacy.ledger import Entry, Ledger
from flockwise.privacy.mechanisms import Gaussian

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

ledger = Ledger.create(sys.argv[1], "anna")
ledger.grant("some plan")
for number in (1, 2, 3):
    if sys.argv[2] == "between commit and checkpoint" and number == 3:
        Ledger._empty_log = die
    ledger.record(Entry.now(number, Gaussian(1.0, 2.5), b"sent"))
die()
"""


def killed(folder, when):
    life = subprocess.run([sys.executable, "-c", KILLED_WHILE_IT_RUNS, folder, when], check=False)
    assert life.returncode == -signal.SIGKILL


def test_after_a_crash_the_log_may_get_lost(tmp_path):
    """What was recorded may have been sent: without it the agent would spend the same budget again."""
    killed(tmp_path, "at rest")
    (tmp_path / LOG_NAME).unlink()
    with Ledger.open(tmp_path, "anna") as again:
        assert (again.consumed, again.plan) == (3, "some plan")


def test_what_is_found_in_the_log_after_a_crash_is_kept_before_it_is_sent_again(tmp_path):
    killed(tmp_path, "between commit and checkpoint")
    assert (tmp_path / LOG_NAME).stat().st_size > 0
    with Ledger.open(tmp_path, "anna") as again:
        assert again.consumed == 3
        assert (tmp_path / LOG_NAME).stat().st_size == 0


@pytest.mark.skipif(os.name != "posix", reason="elsewhere files have no such rights")
def test_nobody_but_its_owner_may_read_a_new_ledger(tmp_path):
    with Ledger.create(tmp_path, "anna"):
        assert {name: (tmp_path / name).stat().st_mode & 0o077 for name in (NAME, LOG_NAME)} == {
            NAME: 0,
            LOG_NAME: 0,
        }


def test_a_copy_of_the_file_alone_is_whole(tmp_path):
    """Also while the agent runs."""
    (tmp_path / "copy").mkdir()
    with Ledger.create(tmp_path / "anna", "anna") as ledger:
        ledger.grant("some plan")
        for number in (1, 2, 3):
            ledger.record(Entry.now(number, EVENTS[0], b"sent"))
            shutil.copy(tmp_path / "anna" / NAME, tmp_path / "copy")
            with Ledger.open(tmp_path / "copy", "anna") as copy:
                assert copy.entries == ledger.entries


def test_a_reader_that_never_ends_stops_the_agent_and_costs_nothing(tmp_path, monkeypatch):
    """What the file itself does not hold may not be sent; it is sent after the next start."""
    filled(tmp_path)
    monkeypatch.setattr(flockwise.database, "SECONDS_TO_WAIT_FOR_READERS", 0.05)
    with Ledger.open(tmp_path, "anna") as ledger, closing(sqlite3.connect(tmp_path / NAME)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM account").fetchone()
        with pytest.raises(LedgerError, match=r"reading the ledger .*nothing was sent; end that one"):
            ledger.record(Entry.now(6, EVENTS[0], b"six"))
    with Ledger.open(tmp_path, "anna") as again:
        assert again.entries[-1].payload == b"six"


def test_a_lost_ledger_is_no_new_budget(tmp_path):
    with pytest.raises(LedgerError, match=r"there is no ledger.*no budget without it"):
        Ledger.open(tmp_path, "anna")
    filled(tmp_path)
    with pytest.raises(LedgerError, match="there is a ledger already"):
        Ledger.create(tmp_path, "anna")
    (tmp_path / NAME).write_bytes(b"")
    with pytest.raises(LedgerError, match="this file has 0"):
        Ledger.open(tmp_path, "anna")


def test_a_ledger_serves_its_own_agent(tmp_path):
    filled(tmp_path)
    with pytest.raises(LedgerError, match=r"belongs to agent 'anna', not to 'bob'.*folder of its own"):
        Ledger.open(tmp_path, "bob")
    Ledger.open(tmp_path, "anna").close()


def test_a_ledger_that_cannot_be_read_is_not_kept_open(tmp_path):
    """A mechanism whose package is gone: once it is back, the ledger opens."""
    filled(tmp_path)
    kept = MECHANISMS["knorm"]
    MECHANISMS.unregister("knorm")
    try:
        with pytest.raises(PrivacyError, match=r'unknown event in the ledger: \{"mechanism": "knorm"'):
            Ledger.open(tmp_path, "anna")
    finally:
        MECHANISMS.register(kept)
    Ledger.open(tmp_path, "anna").close()


def test_a_second_opener_is_told_which_folder_and_what_to_do(tmp_path):
    filled(tmp_path)
    with Ledger.open(tmp_path, "anna"):
        with pytest.raises(LedgerError, match=r"in use by another process; stop that one first") as caught:
            Ledger.open(tmp_path, "anna")
        assert str(tmp_path) in str(caught.value)
        program = f"from flockwise.privacy.ledger import Ledger; Ledger.open({str(tmp_path)!r}, 'anna')"
        other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert other.returncode == 1
        assert "in use by another process" in other.stderr
        assert read_statement(tmp_path).problems == ()  # looking is allowed
    Ledger.open(tmp_path, "anna").close()


def test_a_ledger_stays_in_the_thread_and_process_that_opened_it(tmp_path):
    with Ledger.create(tmp_path, "anna") as ledger:
        caught = []

        def elsewhere():
            try:
                ledger.grant("some plan")
            except LedgerError as error:
                caught.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert "belongs to the process and thread" in caught[0]
        ledger._owner = (-1, ledger._owner[1])  # as a fork would see it
        with pytest.raises(LedgerError, match="belongs to the process and thread"):
            ledger.grant("some plan")


def test_what_someone_else_has_written_stops_the_ledger(tmp_path):
    filled(tmp_path)
    with Ledger.open(tmp_path, "anna") as ledger:
        change(tmp_path, "UPDATE account SET n_entries = 7")
        with pytest.raises(LedgerError, match="changed by someone else"):
            ledger.record(Entry.now(6, EVENTS[0], b""))
        with pytest.raises(LedgerError, match="closed database"):
            ledger.record(Entry.now(6, EVENTS[0], b""))
    assert len(read_statement(tmp_path).rows) == 5


def test_a_full_disk_leaves_the_ledger_as_it_was(tmp_path):
    """A limit on the size of files makes writing fail in the middle of a transaction, as a full disk does."""
    entries = filled(tmp_path)
    ledger = Ledger.open(tmp_path, "anna")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32_768, limits[1]))
    try:
        with pytest.raises(LedgerError, match=r"cannot be used: .*nothing was sent; .*is it full"):
            ledger.record(Entry.now(6, EVENTS[0], os.urandom(1_000_000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ledger.consumed == 5
    with pytest.raises(LedgerError, match="closed database"):
        ledger.record(Entry.now(6, EVENTS[0], b"small"))
    ledger.close()
    with Ledger.open(tmp_path, "anna") as again:
        assert again.entries == entries
        again.record(Entry.now(6, EVENTS[0], b"there is room again"))
    assert read_statement(tmp_path).problems == ()


def test_a_disk_that_is_full_after_the_commit_keeps_the_charge_and_sends_nothing(tmp_path):
    """The log has room for the entry, the file itself has not: it is charged, and sent after a restart."""
    filled(tmp_path)
    ledger = Ledger.open(tmp_path, "anna")
    ledger.record(Entry.now(6, EVENTS[0], os.urandom(16_000)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32_768, limits[1]))
    payload = os.urandom(12_000)
    try:
        with pytest.raises(LedgerError, match=r"cannot be used: .*nothing was sent; .*is it full"):
            ledger.record(Entry.now(7, EVENTS[0], payload))
        with pytest.raises(LedgerError, match="cannot be used"):
            Ledger.open(tmp_path, "anna")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        ledger.close()
    with Ledger.open(tmp_path, "anna") as again:
        assert again.entries[-1].payload == payload


DAMAGE = {
    "an edited event": ["UPDATE entry SET event = replace(event, '0.3', '0.4') WHERE number = 3"],
    "an edited time": ["UPDATE entry SET recorded = '2020-01-01' WHERE number = 1"],
    "edited bytes": ["UPDATE entry SET payload = x'00' WHERE number = 2"],
    "bytes for a lost event": ["UPDATE entry SET payload = x'00' WHERE number = 4"],
    "bytes as text": ["UPDATE entry SET payload = 'None' WHERE number = 4"],
    "a missing entry": ["DELETE FROM entry WHERE number = 3"],
    "a missing first entry": ["DELETE FROM entry WHERE number = 1"],
    "a missing last entry": ["DELETE FROM entry WHERE number = 5"],
    "no entries": ["DELETE FROM entry"],
    "two entries swapped": [
        "UPDATE entry SET number = 99 WHERE number = 2",
        "UPDATE entry SET number = 2 WHERE number = 3",
        "UPDATE entry SET number = 3 WHERE number = 99",
    ],
    "an entry twice": [
        "INSERT INTO entry SELECT 6, recorded, event, payload, seal FROM entry WHERE number = 5",
        "UPDATE account SET n_entries = 6",
    ],
    "a last entry taken back": [
        "DELETE FROM entry WHERE number = 5",
        "UPDATE account SET n_entries = 4",
    ],
    "another plan": ["UPDATE account SET plan = 'a better plan'"],
    "no plan": ["UPDATE account SET plan = NULL"],
    "another agent": ["UPDATE account SET agent = 'bob'"],
    "another end": ["UPDATE account SET seal = x'00'"],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_found_and_ends_all_spending(tmp_path, damage):
    filled(tmp_path)
    assert read_statement(tmp_path).problems == ()
    change(tmp_path, *damage)
    assert read_statement(tmp_path).problems
    for agent in ("anna", "bob"):
        with pytest.raises(LedgerError, match=r"damaged .*must stay silent"):
            Ledger.open(tmp_path, agent)


def test_every_flipped_byte_that_can_be_seen_is_found(tmp_path):
    """A byte of the file is flipped: either the content is as before, or the damage is reported."""
    filled(tmp_path)
    content = (tmp_path / NAME).read_bytes()
    sound = read_statement(tmp_path)
    found = 0
    for place in range(0, len(content), 61):
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        (tmp_path / NAME).write_bytes(flipped)
        try:
            statement = read_statement(tmp_path)
        except LedgerError:
            found += 1
            continue
        assert statement == sound or statement.problems, f"byte {place}"
        found += statement != sound
    assert found > 10


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / NAME).write_text("these are not the tables you are looking for " * 100)
    with pytest.raises(LedgerError, match="cannot be used"):
        Ledger.open(tmp_path, "anna")
    with pytest.raises(LedgerError, match="cannot be used"):
        read_statement(tmp_path)


def test_another_version_is_refused(tmp_path):
    filled(tmp_path)
    change(tmp_path, "PRAGMA user_version = 2")
    with pytest.raises(LedgerError, match="has version 1, this file has 2"):
        Ledger.open(tmp_path, "anna")


def test_two_accounts_are_damage(tmp_path):
    filled(tmp_path)
    change(tmp_path, "INSERT INTO account SELECT * FROM account")
    with pytest.raises(LedgerError, match="holds 2 accounts"):
        Ledger.open(tmp_path, "anna")
