"""What watches the processes of a network: it finds one that hangs, kills it and starts it again."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace

import msgspec
import pytest

from flockwise.errors import NetworkError
from flockwise.runtime import supervisor
from flockwise.runtime.metrics import AgentStatus, HostStatus
from flockwise.runtime.phases import Phase
from flockwise.runtime.supervisor import LOOKS_IN_VAIN, Supervisor

HANGS = "import time; time.sleep(600)"
DIES = "raise SystemExit('no samples')"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """What the processes of hosts run instead of agents, by the names of the hosts."""
    found = {"north": HANGS}
    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(supervisor, "STATUS_EVERY", 0.0)
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.01)
    start = subprocess.Popen

    def started(arguments, **options):
        host = arguments[-1].rpartition("/")[2]
        return start([sys.executable, "-c", found[host]], **options)

    monkeypatch.setattr(supervisor.subprocess, "Popen", started)
    return found


def write_status(host, written_at, pid=1, agents=()):
    state = host / "state"
    state.mkdir(parents=True, exist_ok=True)
    status = HostStatus("net", host.name, pid, written_at, agents)
    (state / "status.json").write_bytes(msgspec.json.encode(status))


def watch_until(watching, enough):
    """What it says until that is enough, or for a minute."""
    said = []

    def say(words):
        said.append(words)
        if enough(words):
            watching._stopping.set()

    timer = threading.Timer(60, watching._stopping.set)
    timer.start()
    watching.watch(say)
    timer.cancel()
    return said


def test_a_process_that_hangs_is_killed_and_started_again(tmp_path, programs):
    with Supervisor(tmp_path) as watching:
        watching.start([tmp_path / "north"])
        (child,) = watching._children
        first = child.process
        said = watch_until(watching, lambda words: "started again" in words)
        assert first.poll() is not None
        assert child.process.pid != first.pid
        assert child.process.poll() is None
    assert [words.split()[1] for words in said] == ["has", "ended"]


def test_a_process_hangs_when_its_status_stays_as_it_is_whatever_the_clock_says(tmp_path, programs):
    """After a machine slept, or its clock was set, all statuses are old: they still go on."""
    host = tmp_path / "north"
    with Supervisor(tmp_path) as watching:
        watching.start([host])
        (child,) = watching._children
        for written_at in range(3 * LOOKS_IN_VAIN):
            write_status(host, float(written_at))
            assert not child.hangs
        assert [child.hangs for _ in range(LOOKS_IN_VAIN)] == [False] * (LOOKS_IN_VAIN - 1) + [True]
        write_status(host, 1e9)
        assert not child.hangs


def test_one_process_that_ends_is_said_and_the_others_are_up(tmp_path, programs):
    programs["south"] = DIES
    with Supervisor(tmp_path) as watching:
        watching.start([tmp_path / "north", tmp_path / "south"])
        write_status(tmp_path / "north", 1.0, watching._children[0].process.pid)
        assert watching.wait_until_up() == {"south": "its process ended at once: no samples"}
        said = watch_until(watching, lambda words: "started again" in words)
    assert said[-1] == "south ended with code 1; it is started again"


def test_agents_that_were_removed_are_not_counted_when_a_budget_is_spent(tmp_path, programs):
    spent = AgentStatus("ann", epsilon_total=1.0, phase=Phase.DONE)
    agents = (spent, AgentStatus("bob", phase=Phase.REMOVED), AgentStatus("cy", phase=Phase.LEARNING))
    with Supervisor(tmp_path) as watching:
        watching.start([tmp_path / "north"])
        write_status(tmp_path / "north", 1.0, agents=agents)
        said = watch_until(watching, lambda words: "Budget" in words)
        assert said == ["Budget spent: ann. 1 of 2 agents send nothing more, and still listen."]
        agents = (replace(spent, phase=Phase.REMOVED), agents[1], replace(spent, name="cy"))
        write_status(tmp_path / "north", 2.0, agents=agents)
        watching._say_what_is_spent({"ann"}, said.append)
    assert said[1:] == ["Budget spent: cy. 1 of 1 agents send nothing more, and still listen."]


def test_it_is_an_error_if_no_process_is_up(tmp_path, programs):
    programs |= dict.fromkeys(["north", "south"], DIES)
    with Supervisor(tmp_path) as watching:
        watching.start([tmp_path / "north", tmp_path / "south"])
        with pytest.raises(NetworkError, match="no process is up; north: its process ended at once"):
            watching.wait_until_up()
