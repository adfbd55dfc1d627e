"""What an agent keeps survives, belongs to one agent and one process, and is written whole or not at all."""

import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from flockwise.data import Samples
from flockwise.errors import NetworkError
from flockwise.net.store import NAME, FileStore, Sent
from flockwise.runtime.testing import MemoryStore

BATCH = Samples(np.arange(6.0).reshape(3, 2), np.array([1.0, -1.0, 1.0]))


def fill(store):
    store.save_sent(Sent(1, b"one"))
    store.save_sent(Sent(2, b"two"))
    store.save_received({"anna": b"a1", "ben": b"b1", "carl": b"c1"})
    store.save_received({"ben": b"b2"}, ["carl", "nobody"])
    store.mark_newer_release(7)
    store.add_batch(BATCH)
    store.add_batch(Samples(BATCH.features[:1], BATCH.targets[:1]))


def check(state):
    assert state.sent == Sent(2, b"two")
    assert state.received == {"anna": b"a1", "ben": b"b2"}
    assert state.newer_release == 7
    assert [len(batch.targets) for batch in state.batches] == [3, 1]
    np.testing.assert_array_equal(state.batches[0].features, BATCH.features)
    np.testing.assert_array_equal(state.batches[0].targets, BATCH.targets)


def test_all_is_there_after_a_restart(tmp_path):
    with FileStore(tmp_path / "me", "me") as store:
        fill(store)
        check(store.load())
    with FileStore(tmp_path / "me", "me") as store:
        check(store.load())


def test_a_new_store_is_empty(tmp_path):
    with FileStore(tmp_path, "me") as store:
        state = store.load()
    assert (state.sent, state.received, state.newer_release, state.batches) == (None, {}, None, [])


def test_a_store_in_memory_does_the_same():
    store = MemoryStore()
    fill(store)
    check(store.load())
    store.load().received["eve"] = b"not through the store"
    check(store.load())


def test_a_folder_cannot_run_twice_at_once(tmp_path):
    with FileStore(tmp_path, "me"), pytest.raises(NetworkError, match="running already"):
        FileStore(tmp_path, "me")
    FileStore(tmp_path, "me").close()


def test_a_folder_cannot_run_in_two_processes(tmp_path):
    program = f"from flockwise.net.store import FileStore\nFileStore({str(tmp_path)!r}, 'me')"
    with FileStore(tmp_path, "me"):
        second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "running already" in second.stderr


def test_a_killed_process_frees_its_folder_and_keeps_what_it_saved(tmp_path):
    program = (
        "import os, signal\n"
        "from flockwise.net.store import FileStore, Sent\n"
        f"store = FileStore({str(tmp_path)!r}, 'me')\n"
        "store.save_sent(Sent(3, b'three'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    with FileStore(tmp_path, "me") as store:
        assert store.load().sent == Sent(3, b"three")


def test_the_state_of_another_agent_is_refused(tmp_path):
    FileStore(tmp_path, "anna").close()
    with pytest.raises(NetworkError, match="is that of agent 'anna', not of 'ben'"):
        FileStore(tmp_path, "ben")
    FileStore(tmp_path, "anna").close()  # the refused one let go of the lock


def test_another_version_is_refused(tmp_path):
    FileStore(tmp_path, "me").close()
    with sqlite3.connect(tmp_path / NAME) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(NetworkError, match="has version 99"):
        FileStore(tmp_path, "me")


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    (tmp_path / NAME).write_bytes(b"not a database" * 100)
    with pytest.raises(NetworkError, match="cannot be used"):
        FileStore(tmp_path, "me")


def test_a_failed_write_leaves_everything_as_it_was(tmp_path):
    with FileStore(tmp_path, "me") as store:
        fill(store)
        (pages,) = store._file._connection.execute("PRAGMA page_count").fetchone()
        store._file._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(NetworkError, match="full"):
            store.save_received({"anna": b"a2", "dora": b"d" * 100_000})
        check(store.load())
        store._file._connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
        store.save_received({"dora": b"d1"})
        assert store.load().received["dora"] == b"d1"
