"""`flockwise network` as people use it: real processes, real sockets, real certificates."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.network.processes import command, wait_for

from flockwise.deploy.network_plan import NetworkPlan
from flockwise.deploy.setup import free_addresses, host_together
from flockwise.privacy.ledger import read_statement
from flockwise.runtime import supervisor
from flockwise.runtime.overview import agents_in
from flockwise.runtime.supervisor import STATUS_EVERY

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "network.toml"
STATUS_KEYS = {
    "name",
    "updates",
    "releases",
    "epsilon_spent",
    "epsilon_total",
    "neighbors_up",
    "dropped",
    "last_release_age_s",
}


def flockwise(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


def small_network(folder: Path, *, updates: int = 400, tick_rate: float = 4.0) -> Path:
    """The example with fewer agents that wake more often and have more to say."""
    config = folder / "network.toml"
    text = EXAMPLE.read_text()
    for old, new in (
        ("agents = 20", "agents = 6"),
        ("threshold = 0.01", 'threshold = "connected"'),
        ("updates = 10", f"updates = {updates}"),
        ("tick_rate = 0.5", f"tick_rate = {tick_rate}"),
    ):
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)
    flockwise("network", "init", config, "--out", folder / "net")
    return folder / "net"


@contextmanager
def running(folder: Path, processes: int):
    up = command("network", "up", folder, "--processes", processes)
    with subprocess.Popen(up, stderr=subprocess.PIPE, text=True) as supervisor:
        try:
            yield supervisor
        finally:
            supervisor.terminate()
            supervisor.wait(60)


def status(folder: Path) -> dict[str, dict]:
    return {agent["name"]: agent for agent in agents_in(folder)}


def host_pids(folder: Path) -> dict[str, int]:
    return {
        file.parents[1].name: json.loads(file.read_text())["pid"]
        for file in (folder / "hosts").glob("*/state/status.json")
    }


def assert_within_budget(folder: Path) -> int:
    """Every ledger is intact and has no more entries than its plan has events; how many there are in all."""
    total = 0
    for agent in sorted((folder / "agents").iterdir()):
        statement = read_statement(agent / "state")
        assert not statement.problems
        total += len(statement.rows)
    flockwise("ledger", "show", folder / "agents", "--json", folder / "ledgers.json")
    for ledger in json.loads((folder / "ledgers.json").read_text())["ledgers"]:
        assert ledger["intact"]
        assert ledger["epsilon_spent"] <= ledger["epsilon"]
    return total


def test_from_nothing_to_a_private_network_and_back(tmp_path):
    folder = small_network(tmp_path)
    with running(folder, 2):
        agents = wait_for(lambda: all(a["releases"] >= 3 for a in status(folder).values()) and status(folder))
        assert len(agents) == 6
        for agent in agents.values():
            assert agent.keys() >= STATUS_KEYS
            assert 0 < agent["epsilon_spent"] <= agent["epsilon_total"] == 1.0
            assert sum(agent["dropped"].values()) == 0
        shown = json.loads(flockwise("network", "status", folder, "--json").stdout)
        assert [agent["name"] for agent in shown["agents"]] == list(agents)
        assert shown["connections"] == {"refused": 0, "strangers": 0}
        assert "ε = 1, δ = 1e-05) differential privacy" in shown["guarantee"]
        assert shown["guarantee"] in flockwise("network", "status", folder).stdout
        errors = list((folder / "hosts").glob("*/state/errors.log"))
        assert [file.stat().st_mode & 0o077 for file in errors] == [0, 0]
        refused = flockwise("network", "up", folder, check=False)
        assert refused.returncode == 1
        assert "running already" in refused.stderr
        flockwise("network", "down", folder)
    released = assert_within_budget(folder)
    assert released >= 18
    wait_for(lambda: all(agent["state"] == "down" for agent in status(folder).values()))
    assert flockwise("network", "down", folder, check=False).returncode == 1


def test_a_killed_gateway_comes_back_and_goes_on_where_it_was(tmp_path):
    folder = small_network(tmp_path)
    with running(folder, 2):
        wait_for(lambda: all(a["releases"] >= 2 for a in status(folder).values()))
        pids, before = host_pids(folder), status(folder)
        os.kill(pids["gateway1"], signal.SIGKILL)
        wait_for(lambda: host_pids(folder)["gateway1"] != pids["gateway1"])
        after = wait_for(
            lambda: (
                all(a["releases"] > before[n]["releases"] for n, a in status(folder).items())
                and status(folder)
            )
        )
        # Numbers went on: a neighbor that saw one again, or one with other bytes, would have counted it.
        for agent in after.values():
            assert not agent["dropped"].keys() & {"equivocation", "replayed", "bad_signature"}
            assert agent["obstacle"] is None
    assert_within_budget(folder)


def test_agents_stop_when_their_supervisor_is_killed(tmp_path):
    """Nobody would see what they spend, and another supervisor might start them a second time."""
    folder = small_network(tmp_path)
    up = command("network", "up", folder, "--processes", 2)
    with subprocess.Popen(up, stderr=subprocess.PIPE, text=True) as supervisor:
        wait_for(lambda: all(a["releases"] >= 1 for a in status(folder).values()))
        supervisor.kill()
    pids = host_pids(folder)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()), 20)
    with running(folder, 1):
        wait_for(lambda: all(a["neighbors_up"] for a in status(folder).values()))
    assert_within_budget(folder)


def test_a_hung_process_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "STATUS_EVERY", 0.5)
    folder = small_network(tmp_path)
    (host, *_) = host_together(folder, 2)
    child = supervisor._Child(host)
    try:
        wait_for(lambda: child.is_up)
        assert never(lambda: child.hangs, seconds=8)
        os.kill(child.process.pid, signal.SIGSTOP)
        wait_for(lambda: child.hangs, 20)
    finally:
        child.process.kill()
        child.end(10)


def never(condition, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return False
        time.sleep(0.2)
    return True


def test_a_port_that_is_taken_is_an_error_and_never_up(tmp_path):
    folder = small_network(tmp_path)
    with ExitStack() as taken:
        for address in NetworkPlan.read(folder).addresses:
            host, port = address.rsplit(":", 1)
            taken.enter_context(socket.create_server((host, int(port))))
        failed = flockwise("network", "up", folder, "--processes", 0, check=False)
    assert failed.returncode == 1
    assert "no process is up; agent" in failed.stderr
    assert "cannot listen at '127.0.0.1:" in failed.stderr
    assert "Up" not in failed.stderr


def test_an_agent_whose_port_is_taken_is_said_and_comes_up_once_it_is_free(tmp_path):
    folder = small_network(tmp_path)
    host, port = NetworkPlan.read(folder).addresses[0].rsplit(":", 1)
    up = command("network", "up", folder, "--processes", 0)
    with subprocess.Popen(up, stderr=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stderr
        with socket.create_server((host, int(port))):
            said = ""
            while "Watch it" not in said:
                said += supervisor.stderr.readline()
            assert status(folder)["agent0"]["state"] == "down"
        wait_for(lambda: status(folder)["agent0"]["releases"])
        flockwise("network", "down", folder)
    assert "agent0 is not up, and is tried again: its process ended at once:" in said
    assert "Up, but for 1 of 6." in said


def test_when_the_budget_is_spent_agents_fall_silent_and_stay(tmp_path):
    folder = small_network(tmp_path, updates=3)
    with running(folder, 2) as supervisor:
        wait_for(lambda: all(a["state"] == "budget spent" for a in status(folder).values()))
        time.sleep(STATUS_EVERY + 2)
        flockwise("network", "down", folder)
        assert supervisor.stderr
        assert "6 of 6 agents send nothing more" in supervisor.stderr.read()
    assert assert_within_budget(folder) == 18
    with running(folder, 1):
        wait_for(
            lambda: all(a["state"] == "budget spent" and a["neighbors_up"] for a in status(folder).values())
        )
        time.sleep(3)
        assert all(agent["releases"] == 3 for agent in status(folder).values())
    assert assert_within_budget(folder) == 18


def test_one_agent_per_process(tmp_path):
    folder = small_network(tmp_path)
    with running(folder, 0):
        wait_for(lambda: all(a["releases"] >= 1 for a in status(folder).values()))
    assert_within_budget(folder)


def test_an_agent_joins_a_running_network(tmp_path):
    folder = small_network(tmp_path)
    device, reply = tmp_path / "device", tmp_path / "reply"
    (address,) = free_addresses("127.0.0.1", 1)
    flockwise("agent", "request", device, "--network", "example", "--name", "eve", "--address", address)
    with running(folder, 2):
        wait_for(lambda: all(a["releases"] >= 1 for a in status(folder).values()))
        edges = ["--neighbor", "agent0=1.0", "--neighbor", "agent3=0.5"]
        request = device / "request.json"
        flockwise("network", "enroll", folder, request, "--address", address, *edges, "--reply", reply)
        samples = folder / "agents" / "agent1" / "data.npz"
        budget = ["--epsilon", "1", "--delta", "1e-5", "--updates", "5", "--clip", "0.4"]
        flockwise("agent", "accept", device, reply, "--data", samples, *budget)
        with subprocess.Popen(command("agent", "run", device), stderr=subprocess.PIPE, text=True) as joined:
            try:
                file = device / "state" / "status.json"
                wait_for(
                    lambda: file.is_file() and json.loads(file.read_text())["agents"][0]["releases"] >= 1
                )
                assert json.loads(file.read_text())["agents"][0]["neighbors_up"] == 2
                # Its owner asks it meanwhile.
                flockwise("agent", "predict", device, samples, "--out", tmp_path / "labels.csv")
                flockwise("agent", "export", device, "--out", tmp_path / "model.parquet")
                refused = flockwise("agent", "move-out", device, "--to", tmp_path / "eve.zip", check=False)
                assert "running already" in refused.stderr
            finally:
                joined.terminate()
                _, said = joined.communicate(timeout=30)
        assert "Private agents without a freshness file: 1. A restore" in said
        assert len(read_statement(device / "state").rows) >= 1
        labels = (tmp_path / "labels.csv").read_text().split()[1:]
        assert len(labels) == len(np.load(samples)["targets"])
        assert set(map(float, labels)) <= {-1.0, 1.0}
