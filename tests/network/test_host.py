"""A host runs its agents on their own clocks, and the trouble of one is not the trouble of the others."""

import asyncio
import json
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
from tests.network.hosts import NETWORK, until
from tests.network.processes import Processes, RealNetwork
from tests.network.world import SAMPLES, FullDisk

from flockwise.deploy.settings import NetworkSettings
from flockwise.deploy.setup import free_addresses
from flockwise.errors import NetworkError
from flockwise.graph import SimilarityGraph
from flockwise.net import descriptors
from flockwise.net.time import SECOND, PoissonClock, RealTime
from flockwise.net.transport import TrafficCounts
from flockwise.objective import Objective, Quadratic
from flockwise.runtime import logs, metrics
from flockwise.runtime.host import Host
from flockwise.runtime.logs import EventLog
from flockwise.runtime.metrics import AgentStatus, HostStatus, MetricsServer
from flockwise.runtime.phases import Phase
from flockwise.runtime.testing import AgentMemory, MemoryNetwork, Participant, SimulatedNoise, define_agents

NAMES: tuple[str, ...] = ("anna", "ben", "carl")
RATE = 50.0
ROOT = Path(__file__).resolve().parents[2]


class DeliveredSoon:
    """Hands packets to the loop, as a real link does: none ever waits here."""

    def __init__(self, deliver):
        self._deliver = deliver

    def append(self, packet):
        asyncio.get_running_loop().call_soon(self._deliver, packet)

    def popleft(self):
        raise IndexError

    def __len__(self):
        return 0


class MemoryLink(MemoryNetwork):
    """A link of a host, in memory."""

    def __init__(self):
        super().__init__(DeliveredSoon(self.deliver))
        self.traffic, self.strangers, self.door = TrafficCounts(), 0, "open"
        self.refreshes, self.is_closed, self.known = 0, False, set()

    def dropped(self, agent):
        return Counter(stolen_name=2) if agent == "anna" else Counter()

    def learn(self, places):
        self.known |= {place.name for place in places}

    def listen_at(self, address):
        raise AssertionError("no agent has moved")

    async def refresh(self):
        self.refreshes += 1
        return True

    async def close(self):
        self.is_closed = True


def definitions(edges, version=1):
    """Three agents on a graph."""
    graph = SimilarityGraph.from_edges(3, np.array(edges), np.ones(len(edges)))
    settings = NetworkSettings(Objective(Quadratic(), max_samples=4, feature_bound=1.0))
    samples = dict.fromkeys(NAMES, SAMPLES)
    return define_agents(settings, graph, samples, network=NETWORK, version=version, tick_rate=RATE)


def rosters(edges, version):
    return {name: one.neighborhood for name, one in definitions(edges, version).items()}


PATH, TRIANGLE = [(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)]


@pytest.fixture
def make_host(tmp_path):
    """Makes a host of three agents whose log is closed after the test: the host, and its nodes by name."""
    log = EventLog.to_file(tmp_path / "log.jsonl")

    def make(edges=PATH, *, stores=None, **options):
        link, participants = MemoryLink(), []
        for name, definition in definitions(edges).items():
            memory = AgentMemory(name)
            memory.store = (stores or {}).get(name, memory.store)
            resources = memory.resources(link, RealTime(), SimulatedNoise(0, 0))
            participants.append(Participant(definition, resources))
        status_file = tmp_path / "status.json"
        host = Host(NETWORK, "north", participants, link, log=log, status_file=status_file, **options)
        return host, {one.node.name: one.node for one in participants}

    yield make
    log.close()


def events(tmp_path):
    return [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]


def run(main):
    return asyncio.run(main())


def test_agents_tick_hear_their_neighbors_and_are_reported(tmp_path, make_host):
    async def main():
        host, nodes = make_host()
        async with host:
            await until(lambda: all(node.agent.updates >= 5 for node in nodes.values()))
            await until(lambda: nodes["ben"].intake.last_number("carl") is not None)
            status = host.take_status()
        assert host.link.is_closed
        return status, nodes["anna"].agent.updates

    status, updates = run(main)
    anna, ben, carl = status.agents
    assert (anna.neighbors_up, ben.neighbors_up, carl.neighbors_up) == (1, 2, 1)
    assert anna.dropped == {"stolen_name": 2}  # what the link refused counts with what the intake refused
    assert anna.epsilon_spent is None
    assert anna.last_release_age_s is not None
    written = json.loads((tmp_path / "status.json").read_text())
    assert [agent["name"] for agent in written["agents"]] == list(NAMES)
    assert written["agents"][0]["updates"] == updates  # written once more at the end
    assert written["ended"]
    assert [event["event"] for event in events(tmp_path)] == ["start", "listening", "stop"]


def test_the_clock_of_a_host_is_on_time(tmp_path, make_host):
    """3 agents at 50 updates a second for 2 s: a Poisson number; beyond 5 sd one run in 10⁶.

    A busy machine may make it late. Then clocks stand still, and nodes say for how long.
    """

    async def main():
        host, nodes = make_host()

        def ticked():
            """Updates, and the time that clocks have gone on by."""
            agents = [node.agent for node in nodes.values()]
            gone = sum(agent.next_tick for agent in agents) - sum(n.skipped_time for n in nodes.values())
            return sum(agent.updates for agent in agents), gone / SECOND

        async with host:
            await until(lambda: all(node.agent.updates for node in nodes.values()))
            before, began = ticked(), time.monotonic()
            await asyncio.sleep(2)
            after, ended = ticked(), time.monotonic()
            return after[0] - before[0], after[1] - before[1], ended - began

    updates, gone, seconds = run(main)
    assert abs(updates - RATE * gone) < 5 * (RATE * gone) ** 0.5
    # Never early, but for the ticks that wait at the beginning and at the end.
    assert gone < 3 * (seconds + 1.5)


def test_an_agent_that_fails_is_taken_out_and_the_others_go_on(tmp_path, make_host):
    secret = "gradient = 0.123456"

    async def main():
        host, nodes = make_host()

        def fail(now):
            raise ZeroDivisionError(secret)

        async with host:
            await until(lambda: all(node.agent.updates >= 2 for node in nodes.values()))
            nodes["ben"].tick = fail
            await until(lambda: "agent failed" in (tmp_path / "log.jsonl").read_text())
            before = nodes["anna"].agent.updates
            await until(lambda: nodes["anna"].agent.updates > before + 5)
            await until(lambda: not nodes["anna"].neighbors_up)
            return host.take_status().agents

    anna, ben, carl = run(main)
    assert (anna.obstacle, ben.obstacle, carl.obstacle) == (None, "failed", None)
    (failure,) = [event for event in events(tmp_path) if event["event"] == "agent failed"]
    assert failure["error"] == "ZeroDivisionError"
    assert failure["agent"] == "ben"
    # What an error says may have been computed from the data.
    assert secret not in (tmp_path / "log.jsonl").read_text()


def test_a_message_that_makes_an_agent_fail_is_dropped_and_counted(tmp_path, make_host):
    """Nobody can take an agent out by what they send it, not even by way of a mistake of ours."""

    async def main():
        host, nodes = make_host()
        hear = nodes["ben"].on_published

        def fail_sometimes(sender, data):
            if sender == "anna":
                raise IndexError("no such thing")
            hear(sender, data)

        nodes["ben"].on_published = fail_sometimes
        async with host:
            await until(lambda: host.take_status().agents[1].dropped.get("error", 0) >= 3)
            before = nodes["ben"].agent.updates
            await until(lambda: nodes["ben"].agent.updates > before)
            await until(lambda: (nodes["ben"].intake.last_number("carl") or 0) >= 3)
            return host.take_status().agents[1]

    ben = run(main)
    assert ben.obstacle is None
    assert "IndexError" in (tmp_path / "log.jsonl").read_text()


def test_a_full_disk_silences_its_agent_and_no_other(tmp_path, make_host):
    async def main():
        disk = FullDisk()
        host, nodes = make_host(stores={"ben": disk})
        async with host:
            await until(lambda: all(node.agent.updates >= 2 for node in nodes.values()))
            disk.is_full = True
            await until(lambda: nodes["ben"].obstacle is not None)
            sent, before = nodes["ben"].sent.number, nodes["anna"].agent.updates
            await until(lambda: nodes["anna"].agent.updates > before + 5)
            await until(lambda: "agent silent" in (tmp_path / "log.jsonl").read_text())
            heard = nodes["ben"].intake.last_number("anna")
            assert nodes["ben"].sent.number == sent
            return host.take_status().agents[1], heard

    ben, heard = run(main)
    assert ben.obstacle == "store"
    assert heard > 2  # it still listens


def test_a_newer_roster_is_put_into_effect_and_an_older_one_is_not(tmp_path, make_host, monkeypatch):
    monkeypatch.setattr("flockwise.runtime.host.ROSTER_PERIOD", 3600.0)  # it refreshes its link as often

    async def main():
        host, nodes = make_host(PATH)
        async with host:
            await until(lambda: nodes["anna"].neighbors_up == ["ben"])
            assert await host.apply(rosters(TRIANGLE, version=2))
            await until(lambda: sorted(nodes["anna"].neighbors_up) == ["ben", "carl"])
            await until(lambda: nodes["anna"].intake.last_number("carl") is not None)
            assert not await host.apply(rosters(TRIANGLE, version=2))
            assert not await host.apply(rosters(PATH, version=1))
            assert host.link.refreshes == 2  # at the start, and for the new neighbors
            assert await host.apply(rosters(PATH, version=3))
            await until(lambda: nodes["anna"].neighbors_up == ["ben"])

    run(main)
    names = [event["event"] for event in events(tmp_path)]
    assert names.count("roster") == 2
    assert names.count("roster refused") == 3


def test_rosters_are_looked_for_while_it_runs(tmp_path, make_host, monkeypatch):
    monkeypatch.setattr("flockwise.runtime.host.ROSTER_PERIOD", 0.02)
    offered = [rosters(PATH, version=1)]

    async def main():
        host, nodes = make_host(PATH, newer_rosters=lambda: offered[-1])
        async with host:
            await until(lambda: nodes["anna"].neighbors_up == ["ben"])
            offered.append(rosters(TRIANGLE, version=2))
            await until(lambda: len(nodes["anna"].neighbors_up) == 2)

    run(main)


def test_an_agent_that_was_changed_from_outside_is_looked_at(make_host, monkeypatch):
    for gap in ("WRITING_GAP", "GREETING_GAP"):  # nor would these wake it
        monkeypatch.setattr(f"flockwise.net.node.{gap}", 3600 * SECOND)

    async def main():
        host, nodes = make_host()
        for node in nodes.values():
            node.agent._clock = PoissonClock(1e-6)  # it would not wake again in this test
        async with host:
            await until(lambda: len(nodes["ben"].greeted_by) == 2)
            await until(lambda: all(node.greeted_by for node in nodes.values()))
            before = nodes["anna"].agent.updates
            nodes["anna"].agent.next_tick = RealTime().now()
            host.look_at("anna")
            await until(lambda: nodes["anna"].agent.updates > before)

    run(main)


def test_files_of_an_agent_are_closed_even_if_closing_another_agent_fails(tmp_path, make_host):
    async def main():
        host, _ = make_host()
        closed = []

        def fail():
            raise sqlite3.OperationalError("disk I/O error")

        for one in host.participants:
            one.close = fail if one.node.name == "anna" else lambda name=one.node.name: closed.append(name)
        async with host:
            pass
        return closed

    assert run(main) == ["ben", "carl"]


def test_a_link_that_could_not_be_opened_again_is_tried_again(tmp_path, make_host, monkeypatch):
    monkeypatch.setattr("flockwise.runtime.host.ROSTER_PERIOD", 0.02)
    failures = [NetworkError("the port is taken")] * 3

    async def main():
        host, nodes = make_host(PATH)
        async with host:
            refresh = host.link.refresh

            async def fail_first():
                if failures:
                    raise failures.pop()
                return await refresh()

            host.link.refresh = fail_first
            before = host.link.refreshes
            await until(lambda: host.link.refreshes > before)
            assert all(node.obstacle is None for node in nodes.values())

    run(main)
    names = [event["event"] for event in events(tmp_path)]
    assert names.count("link not opened") == 3


def test_status_says_what_was_left_out_and_who_comes_and_goes(make_host):
    async def main():
        host, nodes = make_host()
        async with host:
            anna = nodes["anna"]
            await until(lambda: anna.greeted_by == ["ben"])
            anna.on_presence("ben", True)
            anna.on_presence("ben", False)
            anna.on_presence("ben", True)
            await until(lambda: anna.agent.updates > 0)
            anna.agent.next_tick -= 4 * SECOND
            updates = anna.agent.updates
            host.look_at("anna")
            await until(lambda: anna.agent.updates > updates)
            return host.take_status().agents[0]

    began = time.monotonic()
    status = run(main)
    took = time.monotonic() - began
    assert status.flapping == 1
    assert "flapping" not in status.dropped
    # Of 4 seconds a moment is caught up; a busy machine may leave out more by itself.
    assert 2 * RATE <= status.ticks_skipped <= (3 + took) * RATE


def test_a_change_of_phase_that_cannot_be_takes_the_agent_out(tmp_path, make_host):
    async def main():
        host, _ = make_host()
        async with host:
            host._agents["anna"].phase = Phase.SILENT  # and it is not: something in it is broken
            status = host.take_status().agents
            return [agent.phase for agent in status]

    anna, *others = run(main)
    assert anna is Phase.FAILED
    assert Phase.FAILED not in others
    assert "went from 'silent'" in (tmp_path / "log.jsonl").read_text()


def test_agents_are_opened_again_and_links_too_while_rosters_cannot_be_read(tmp_path, make_host, monkeypatch):
    monkeypatch.setattr("flockwise.runtime.host.ROSTER_PERIOD", 0.02)
    monkeypatch.setattr("flockwise.runtime.host.REOPEN_AFTER", 0)
    disk, reopened = FullDisk(), []

    def newer_rosters():
        raise OSError(5, "the disk is broken")

    def reopen(name):
        if disk.is_full:
            raise OSError(28, "no space left on device")
        reopened.append(name)
        resources = AgentMemory(name).resources(host.link, RealTime(), SimulatedNoise(0, 0))
        return Participant(definitions(PATH)[name], resources)

    async def main():
        async with host:
            await until(lambda: host.take_status().agents[0].updates > 0)
            disk.is_full = True
            await until(lambda: "agent not opened again" in (tmp_path / "log.jsonl").read_text())
            assert not reopened
            refreshes, disk.is_full = host.link.refreshes, False
            await until(lambda: reopened == ["ben"])
            await until(lambda: host.take_status().agents[1].updates > 0)
            await until(lambda: host.link.refreshes > refreshes)
            assert {one.node.obstacle for one in host.participants} == {None}

    host, _ = make_host(stores={"ben": disk}, newer_rosters=newer_rosters, reopen=reopen)
    run(main)


class TestLogs:
    def test_events_are_lines_of_json(self, tmp_path):
        log = EventLog.to_file(tmp_path / "log.jsonl")
        log("link", host="north", agents=3)
        log.close()
        (event,) = events(tmp_path)
        assert (event["event"], event["level"], event["host"], event["agents"]) == (
            "link",
            "info",
            "north",
            3,
        )

    @pytest.mark.parametrize("fields", [{"model": "x"}, {"host": 0.5}, {"loss": 1}, {"host": np.zeros(2)}])
    def test_values_that_might_leak_the_data_cannot_be_logged(self, fields):
        with pytest.raises(NetworkError, match="not one that may be logged"):
            EventLog(logging.NullHandler())("update", **fields)

    def test_strangers_cannot_fill_the_disk(self, tmp_path):
        log = EventLog.to_file(tmp_path / "log.jsonl")
        for _ in range(10_000):
            log("stranger", host="west")
        log("link", host="north")
        log.close()
        names = [event["event"] for event in events(tmp_path)]
        assert names.count("stranger") <= 2 * logs.RATE.burst
        assert names[-1] == "link"


class TestMetrics:
    STATUS = HostStatus(
        NETWORK,
        "north",
        1,
        0.0,
        (
            AgentStatus(
                "anna", 7, 6, 0.5, 1.0, 3, {"replayed": 2}, 1.5, ticks_skipped=8, late_s=0.5, flapping=9
            ),
            AgentStatus("ben", 1, 1, None, None, 0, {}, None, "ledger"),
        ),
        {"bytes_in": 10},
        refused=4,
        strangers=5,
        door="shut",
    )

    @staticmethod
    def read(port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    def test_prometheus_is_told_what_the_status_says(self):
        server = MetricsServer(lambda: self.STATUS)
        try:
            values = self.read(server.port)
        finally:
            server.close()
        assert values['flockwise_updates_total{agent="anna"}'] == "7.0"
        assert values['flockwise_epsilon_spent{agent="anna"}'] == "0.5"
        assert values['flockwise_dropped_total{agent="anna",reason="replayed"}'] == "2.0"
        assert values['flockwise_ticks_skipped_total{agent="anna"}'] == "8.0"
        assert values['flockwise_late_seconds{agent="anna"}'] == "0.5"
        assert values['flockwise_flapping_total{agent="anna"}'] == "9.0"
        assert values['flockwise_silenced{agent="ben"}'] == "1.0"
        assert 'flockwise_epsilon_spent{agent="ben"}' not in values
        assert values["flockwise_refused_connections_total"] == "4.0"
        assert values["flockwise_stranger_links_total"] == "5.0"
        assert values["flockwise_door_open"] == "0.0"

    def test_idle_connections_take_few_threads_and_metrics_are_read_again_when_they_have_gone(
        self, monkeypatch
    ):
        monkeypatch.setattr(metrics, "SECONDS_TO_ASK", 1.0)
        server = MetricsServer(lambda: self.STATUS)
        before = threading.active_count()
        try:
            with ExitStack() as idle:
                for _ in range(100):
                    idle.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
                assert threading.active_count() - before <= metrics.MOST_READERS
                # Those in front are closed after their time, although their owners hold them open.
                assert self.read_soon(server.port)
        finally:
            server.close()

    def test_readers_that_ask_byte_by_byte_have_no_more_time_than_others(self, monkeypatch):
        monkeypatch.setattr(metrics, "SECONDS_TO_ASK", 1.0)
        server, is_over = MetricsServer(lambda: self.STATUS), threading.Event()
        with ExitStack() as opened:
            opened.callback(server.close)
            slow = [
                opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
                for _ in range(metrics.MOST_READERS)
            ]
            asking = threading.Thread(target=ask_slowly, args=(slow, is_over))
            asking.start()
            opened.callback(asking.join)
            opened.callback(is_over.set)
            assert self.read_soon(server.port)

    @classmethod
    def read_soon(cls, port):
        for _ in range(100):
            try:
                return cls.read(port)
            except OSError:
                time.sleep(0.1)
        raise AssertionError("the metrics stay out of reach")

    def test_there_is_nothing_to_tell_before_the_first_status(self):
        server = MetricsServer(lambda: None)
        try:
            assert self.read(server.port) == {}
        finally:
            server.close()

    def test_a_port_that_is_taken_is_named(self):
        server = MetricsServer(lambda: None)
        try:
            with pytest.raises(NetworkError, match=f"127.0.0.1:{server.port}"):
                MetricsServer(lambda: None, server.port)
        finally:
            server.close()


def ask_slowly(connections, is_over):
    """A byte from time to time, and never the end of the question."""
    while not is_over.wait(0.1):
        for connection in connections:
            with suppress(OSError):
                connection.send(b"G")


def three_in_a_row(tmp_path, *, tick_rate=5.0, updates=None):
    graph = SimilarityGraph.from_edges(3, np.array(PATH), np.ones(2))
    addresses = free_addresses("127.0.0.1", 3)
    return RealNetwork(tmp_path / "net", addresses, graph=graph, tick_rate=tick_rate, updates=updates)


@pytest.mark.network
class TestProcesses:
    """Real processes that are told to stop, killed, stopped in their tracks and started again."""

    def test_a_killed_agent_is_missed_and_goes_on_where_it_was(self, tmp_path):
        network = three_in_a_row(tmp_path)
        with Processes(network) as agents:
            agents.start(*network.names)
            agents.wait("agent1", lambda one: one["neighbors_up"] == 2 and one["releases"] >= 5)
            known = agents.wait("agent2", lambda one: one["releases"] >= 5)["releases"]
            agents.kill("agent2")
            before = agents.wait("agent1", lambda one: one["neighbors_up"] == 1)
            agents.wait("agent1", lambda one: one["releases"] > before["releases"])
            agents.start("agent2")
            agents.wait("agent1", lambda one: one["neighbors_up"] == 2)
            assert agents.wait("agent2", lambda one: one["neighbors_up"] == 1)["releases"] >= known
            # Nothing that agent1 sent or got was refused: numbers went on where they were.
            assert agents.wait("agent1", lambda one: True)["dropped"] == {}
            agents.stop()

    def test_a_late_joiner_gets_the_last_message_at_once(self, tmp_path):
        """The others make two updates and then never wake again: only greetings can carry their models."""
        network = three_in_a_row(tmp_path, tick_rate=20.0, updates=2)
        with Processes(network) as agents:
            agents.start("agent0", "agent2")
            for name in ("agent0", "agent2"):
                agents.wait(name, lambda one: one["updates"] == 2)
            agents.start("agent1")
            agents.wait("agent1", lambda one: one["neighbors_up"] == 2)
            agents.stop("agent1")
            assert set(network.held_by("agent1")) == {"agent0", "agent2"}

    def test_an_agent_that_hangs_is_given_up_and_welcomed_back(self, tmp_path):
        network = three_in_a_row(tmp_path)
        with Processes(network) as agents:
            agents.start(*network.names)
            agents.wait("agent1", lambda one: one["neighbors_up"] == 2)
            agents.signal("agent2", signal.SIGSTOP)
            agents.wait("agent1", lambda one: one["neighbors_up"] == 1)
            agents.signal("agent2", signal.SIGCONT)
            agents.wait("agent1", lambda one: one["neighbors_up"] == 2)

    def test_the_text_of_an_unexpected_error_is_written_nowhere(self, tmp_path):
        """It may have been computed from the data; its kind and its place are enough to find it."""
        secret = "gradient = 0.123456"
        code = (
            "import asyncio, sys\n"
            "from flockwise.cli import main\n"
            "from flockwise.runtime.host import Host\n"
            f"def fail(): raise ZeroDivisionError({secret!r})\n"
            "async def run(self):\n"
            "    asyncio.get_running_loop().call_soon(fail)\n"
            "    await asyncio.sleep(0.1)\n"
            "    fail()\n"
            "Host.run = run\n"
            "main()"
        )
        home = three_in_a_row(tmp_path).path("agent0")
        done = subprocess.run(
            [sys.executable, "-c", code, "agent", "run", str(home)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        log = (home / "state" / "events.log").read_text()
        assert done.returncode == 1
        assert "ZeroDivisionError at <string>:4" in done.stderr
        (event,) = [json.loads(line) for line in log.splitlines() if "unexpected error" in line]
        assert (event["error"], event["place"]) == ("ZeroDivisionError", "<string>:4")
        assert secret not in done.stdout + done.stderr + log


def test_a_process_takes_nearly_all_descriptors_that_it_may_and_says_if_they_are_too_few(monkeypatch):
    limits, taken = [1024, 4096], []
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda what: tuple(limits))
    monkeypatch.setattr(descriptors.resource, "setrlimit", lambda what, new: taken.append(new))
    descriptors.reserve_descriptors(n_agents=20)
    assert taken == [(4096 - descriptors.KEPT_BACK, 4096)]
    with pytest.raises(NetworkError, match=r"may open 4,096 files .* for 1,000 agents; raise the limit"):
        descriptors.reserve_descriptors(n_agents=1000)
