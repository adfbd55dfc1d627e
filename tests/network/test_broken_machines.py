"""Real agents on machines that fail them: killed, hung, with a full disk."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.network.processes import (
    SECONDS_TO_HEAR,
    STALE,
    TOLERANCE,
    Processes,
    RealNetwork,
    ring,
    supervised,
    wait_for,
)

from flockwise.deploy.folder import OwnBudget
from flockwise.deploy.setup import free_addresses
from flockwise.net.zenoh.access import LEASE_MS
from flockwise.privacy.ledger import read_statement

pytestmark = pytest.mark.network

SECONDS_HUNG = LEASE_MS / 1000 + 6
KILLINGS = 10
SECONDS_BETWEEN = 6.0
PROCESSES = Path("/proc")


@pytest.mark.skipif(not PROCESSES.is_dir(), reason="whose process a number is can be seen in /proc alone")
def test_a_fifth_is_killed_every_few_seconds_and_nothing_is_lost_or_spent_twice(tmp_path):
    """For a minute; then everyone uses up its budget to the last release, as if nothing had happened."""
    budget = OwnBudget(epsilon=1.0, delta=1e-5, updates=50, clip=1.0)
    addresses = free_addresses("127.0.0.1", 20)
    network = RealNetwork(tmp_path / "net", addresses, budget=budget, tick_rate=1.0, graph=ring(20, 2))
    chance, killed = random.Random(0), 0
    with supervised(network):
        wait_for(lambda: min(network.releases().values()) >= 1, 120, "everyone releases")
        for _ in range(KILLINGS):
            before = network.releases()
            victims = chance.sample(network.names, 4)
            killed += sum(kill(network, name) for name in victims)
            time.sleep(SECONDS_BETWEEN)
            others = [name for name in network.names if name not in victims]
            assert sum(network.releases(others).values()) > sum(before[name] for name in others)
        assert killed >= 2 * KILLINGS  # the others were still down from before
        wait_for(network.all_meet, 90, "all are up again")
        wait_for(lambda: set(network.releases().values()) == {budget.updates}, 120, "all use up their budget")
        wait_for(lambda: last_words(network) == {budget.updates + 1}, 20, "all hear everyone's last word")
        assert all(network.status(name)["obstacle"] is None for name in network.names)
    network.assert_whole()
    assert set(network.assert_within_budget().values()) == {budget.updates}


def kill(network: RealNetwork, name: str) -> bool:
    """Whether there was a process to kill: none but the agent's own, whoever has its number by now."""
    pid = network.status(name)["pid"]
    with suppress(FileNotFoundError, ProcessLookupError):
        if os.fsencode(network.path(name)) in (PROCESSES / str(pid) / "cmdline").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def last_words(network: RealNetwork) -> set[int]:
    return set(network.heard(network.names).values())


def test_a_hung_agent_is_given_up_and_taken_back(tmp_path):
    network = RealNetwork(tmp_path / "net", free_addresses("127.0.0.1", 6))
    awake = [name for name in network.names if name != "agent2"]
    with Processes(network) as agents:
        agents.start(*network.names)
        wait_for(lambda: network.gap() <= TOLERANCE, 90, "all converge")

        agents.signal("agent2", signal.SIGSTOP)
        began = time.monotonic()
        # A neighbor that starts meanwhile finds nobody at home behind a door that opens.
        agents.stop("agent1")
        network.give_other_samples("agent1")
        agents.start("agent1")
        wait_for(
            lambda: [network.status(name)["neighbors_up"] for name in awake] == [2, 1, 1, 2, 2],
            2 * SECONDS_HUNG,
            "its neighbors give it up",
        )
        heard = network.heard(awake)
        assert len(heard) == 8
        wait_for(lambda: network.hear_on(awake, heard), SECONDS_TO_HEAR, "the others go on")
        time.sleep(max(0.0, began + SECONDS_HUNG - time.monotonic()))
        assert network.gap() > STALE

        agents.signal("agent2", signal.SIGCONT)
        wait_for(network.all_meet, 60, "it is taken back")
        wait_for(lambda: network.gap() <= TOLERANCE, 60, "all converge again")
        agents.assert_running()
        agents.stop()
    network.assert_whole()
    network.assert_nobody_is_ahead()


def test_on_a_full_disk_an_agent_falls_silent_and_goes_on_when_there_is_room(tmp_path):
    budget = OwnBudget(epsilon=1.0, delta=1e-5, updates=400, clip=1.0)
    network = RealNetwork(tmp_path / "net", free_addresses("127.0.0.1", 4), budget=budget)
    state = network.path("agent0") / "state"
    others = network.names[1:]
    with small_disk(state), Processes(network) as agents:
        agents.start(*network.names)
        wait_for(lambda: min(network.releases().values()) >= 3, 60, "everyone releases")

        wait_for(
            lambda: fill(state) and network.status("agent0")["obstacle"], 30, "it says that it is silent"
        )
        assert network.status("agent0")["obstacle"] == "ledger"
        spent, before = entries_in_copy(state, tmp_path / "before"), network.releases(others)
        for _ in range(10):
            fill(state)
            time.sleep(0.5)
        filled = time.time()
        wait_for(lambda: network.status("agent0")["written_at"] > filled, 30, "there is room for telling so")
        status = network.status("agent0")
        assert status["neighbors_up"] == 2
        # Whatever it charged is on disk, and what others have from it is among that.
        assert entries_in_copy(state, tmp_path / "after") == spent
        assert status["releases"] in (spent - 1, spent)
        assert all(network.held_by(name)["agent0"].number <= spent for name in ("agent1", "agent3"))
        assert all(network.releases()[name] > number for name, number in before.items())
        agents.assert_running()

        (state / BALLAST).unlink()
        wait_for(lambda: network.status("agent0")["releases"] > spent, 120, "it finds that there is room")
        wait_for(lambda: fill(state) and network.status("agent0")["obstacle"], 60, "it is silent again")
        spent = entries_in_copy(state, tmp_path / "again")

        agents.stop("agent0")
        fill(state)
        agents.start("agent0")
        assert agents.end_of("agent0") == 1
        assert "full" in agents.errors("agent0")

        (state / BALLAST).unlink()
        agents.start("agent0")
        wait_for(lambda: network.status("agent0")["releases"] >= spent + 3, 60, "it releases again")
        assert network.status("agent0")["obstacle"] is None
        wait_for(
            lambda: all(network.held_by(n)["agent0"].number > spent for n in ("agent1", "agent3")),
            20,
            "its neighbors hear of it",
        )
        agents.stop()
        network.assert_whole()
        network.assert_within_budget()


BALLAST = "ballast"


def entries_in_copy(state: Path, copy: Path) -> int:
    """How many events a ledger has charged; to look at it where it is, SQLite needs a little room."""
    copy.mkdir()
    for file in state.glob("ledger.sqlite*"):
        shutil.copy(file, copy)
    return len(read_statement(copy).rows)


def fill(folder: Path) -> bool:
    """To the last byte, and again if something was given up since."""
    for size in (2**16, 2**12):
        with suppress(OSError), (folder / BALLAST).open("ab", buffering=0) as file:
            while file.write(bytes(size)):
                pass
    return True


@contextmanager
def small_disk(folder: Path):
    """The folder with all that is in it, on a disk of its own of 8 MB."""
    aside = folder.with_name(folder.name + ".aside")
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a disk of its own for a folder needs root and the command `mount`")
    folder.rename(aside)
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
