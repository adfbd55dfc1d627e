"""A host runs its agents on their own clocks, and the trouble of one is not the trouble of the others."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.network.hosts import NETWORK, free_ports, until
from tests.network.signers import BOUND, Signer

from flockwise.errors import NetworkError
from flockwise.graph import SimilarityGraph
from flockwise.net import logs
from flockwise.net.host import Host, Resident
from flockwise.net.intake import Intake
from flockwise.net.learner import Settings, make_agent
from flockwise.net.logs import EventLog
from flockwise.net.memory import MemoryNetwork
from flockwise.net.metrics import AgentStatus, HostStatus, MetricsServer, Traffic
from flockwise.net.node import Node
from flockwise.net.outbox import PlainOutbox
from flockwise.net.outbox import Signer as OutboxSigner
from flockwise.net.roster import Place, neighborhoods
from flockwise.net.setup import Member, create_network
from flockwise.net.store import MemoryStore
from flockwise.net.task import Task
from flockwise.net.time import PoissonClock, RealTime
from flockwise.objective import Quadratic

NAMES = ("anna", "ben", "carl")
RATE = 50.0
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Settings(Quadratic(), tradeoff=1.0, max_samples=4, feature_bound=1.0)
POINTS = np.array([[0.5, 0.5], [0.1, -0.7], [-0.3, 0.2], [0.6, 0.0]])
TARGETS = np.array([1.0, -0.5, 0.3, 2.0])


class MemoryLink(MemoryNetwork):
    """Delivers in the loop, as a real link does."""

    def __init__(self):
        super().__init__(self._deliver_soon)
        self.traffic, self.strangers = Traffic(), 0
        self.refreshes, self.is_closed, self.known = 0, False, set()

    def _deliver_soon(self, letter):
        asyncio.get_running_loop().call_soon(self.deliver, letter)

    def dropped(self, agent):
        return Counter(stolen_name=2) if agent == "anna" else Counter()

    def learn(self, places):
        self.known |= {place.name for place in places}

    async def refresh(self):
        self.refreshes += 1
        return True

    async def close(self):
        self.is_closed = True


def rosters(edges, version=1):
    """Everyone's slice of a graph of three."""
    places = [Place(name, "north", "127.0.0.1:7447", Signer(name).public_key) for name in NAMES]
    graph = SimilarityGraph.from_edges(3, np.array(edges), np.ones(len(edges)))
    slices = neighborhoods(NETWORK, version, graph, places, dimension=2, tick_rate=RATE, settings={})
    return {own.agent: own for own in slices}


PATH, TRIANGLE = [(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)]


def resident(roster, link, store=None):
    store = MemoryStore() if store is None else store
    name, now, clock = roster.agent, RealTime(), PoissonClock(roster.tick_rate)
    problem = SETTINGS.problem(POINTS, TARGETS)
    weights = {other.name: other.weight for other in roster.neighbors}
    signer = Signer(name)
    outbox = PlainOutbox(OutboxSigner(NETWORK, name, "none", signer.key), store, np.zeros(2))
    intake = Intake(
        name, NETWORK, 2, ["none"], roster.keys(), BOUND, public_key=signer.public_key, clock=now.now
    )
    node = Node(make_agent(name, problem, weights, clock), clock, intake, outbox, store, link, now, version=1)
    return Resident(node, roster, close=store.close)


@pytest.fixture
def make_host(tmp_path):
    """Makes a host of three agents whose log is closed after the test: the host, and its nodes by name."""
    log = EventLog.to_file(tmp_path / "log.jsonl")

    def make(edges=PATH, *, stores=None, **options):
        link, disks = MemoryLink(), stores or {}
        residents = [resident(roster, link, disks.get(name)) for name, roster in rosters(edges).items()]
        status_file = tmp_path / "status.json"
        host = Host(NETWORK, "north", residents, link, log=log, status_file=status_file, **options)
        return host, {one.node.name: one.node for one in residents}

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
    assert [event["event"] for event in events(tmp_path)] == ["start", "listening", "stop"]


def test_the_clock_of_a_host_is_on_time(tmp_path, make_host):
    """3 agents at 50 updates a second for 2 s: 300 updates, a Poisson number; beyond 5 sd one run in 10⁶."""

    async def main():
        host, nodes = make_host()
        async with host:
            await asyncio.sleep(0.2)
            before, start = sum(node.agent.updates for node in nodes.values()), time.monotonic()
            await asyncio.sleep(2)
            return sum(n.agent.updates for n in nodes.values()) - before, time.monotonic() - start

    updates, seconds = run(main)
    expected = 3 * RATE * seconds
    # A busy machine may make it late, but never early.
    assert 0.5 * expected < updates < expected + 5 * expected**0.5


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


class FullDisk(MemoryStore):
    is_full = False

    def save_sent(self, sent):
        if self.is_full:
            raise NetworkError("the disk is full")
        super().save_sent(sent)


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


def test_a_newer_roster_is_put_into_effect_and_an_older_one_is_not(tmp_path, make_host):
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
    monkeypatch.setattr("flockwise.net.host.ROSTER_PERIOD", 0.02)
    offered = [rosters(PATH)]

    async def main():
        host, nodes = make_host(PATH, newer_rosters=lambda: offered[-1])
        async with host:
            await until(lambda: nodes["anna"].neighbors_up == ["ben"])
            offered.append(rosters(TRIANGLE, version=2))
            await until(lambda: len(nodes["anna"].neighbors_up) == 2)

    run(main)


def test_an_agent_that_was_changed_from_outside_is_looked_at(make_host):
    async def main():
        host, nodes = make_host()
        for node in nodes.values():
            node._clock = PoissonClock(1e-6)  # it would not wake again in this test
        async with host:
            before = nodes["anna"].agent.updates
            nodes["anna"].agent.next_tick = RealTime().now()
            host.look_at("anna")
            await until(lambda: nodes["anna"].agent.updates > before, seconds=0.9)

    run(main)


def test_what_an_agent_holds_is_given_back_even_if_closing_another_fails(tmp_path, make_host):
    async def main():
        host, _ = make_host()
        closed = []

        def fail():
            raise sqlite3.OperationalError("disk I/O error")

        for one in host.residents:
            one.close = fail if one.node.name == "anna" else lambda name=one.node.name: closed.append(name)
        async with host:
            pass
        return closed

    assert run(main) == ["ben", "carl"]


def test_a_link_that_could_not_be_opened_again_is_tried_again(tmp_path, make_host, monkeypatch):
    monkeypatch.setattr("flockwise.net.host.ROSTER_PERIOD", 0.02)
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
    assert names.count("roster not in effect") == 3


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
    def test_what_might_tell_of_the_data_cannot_be_logged(self, fields):
        with pytest.raises(NetworkError, match="not one that may be logged"):
            EventLog.to_nowhere()("update", **fields)

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
            AgentStatus("anna", 7, 6, 0.5, 1.0, 3, {"replayed": 2}, 1.5),
            AgentStatus("ben", 1, 1, None, None, 0, {}, None, "ledger"),
        ),
        {"bytes_in": 10},
        refused=4,
        strangers=5,
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
        assert values['flockwise_silenced{agent="ben"}'] == "1.0"
        assert 'flockwise_epsilon_spent{agent="ben"}' not in values
        assert values["flockwise_refused_connections_total"] == "4.0"
        assert values["flockwise_stranger_links_total"] == "5.0"

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


class Processes:
    """Agents of a folder, each in a process of its own; whatever a test starts here ends with it."""

    def __init__(self, folder):
        self.folder = folder
        self.running = {}

    def start(self, name):
        self.running[name] = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys; from pathlib import Path; "
                "from flockwise.net.run import run_folder; run_folder(Path(sys.argv[1]))",
                str(self.home(name)),
            ],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        )

    def home(self, name):
        return self.folder / "agents" / name

    def end(self, name, number=signal.SIGTERM):
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(30)

    def host(self, name):
        """What the host wrote last; nothing before it did."""
        try:
            status = json.loads((self.home(name) / "state" / "status.json").read_text())
        except FileNotFoundError:
            return None
        return status if name in self.running and status["pid"] == self.running[name].pid else None

    def agent(self, name):
        host = self.host(name)
        return None if host is None else host["agents"][0]

    def wait(self, name, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            agent = self.agent(name)
            if agent is not None and condition(agent):
                return agent
            time.sleep(0.05)
        raise AssertionError(f"{name}: it did not happen in time; last seen: {self.agent(name)}")


@contextmanager
def processes(tmp_path, names=NAMES, tick_rate=5.0, updates=None):
    random = np.random.default_rng(0)
    members = [
        Member(
            name, random.uniform(-0.5, 0.5, (5, 3)), np.array([1.0, -1, 1, -1, 1]), None, f"127.0.0.1:{port}"
        )
        for name, port in zip(names, free_ports(len(names)), strict=True)
    ]
    edges = np.array([(i, i + 1) for i in range(len(names) - 1)])
    graph = SimilarityGraph.from_edges(len(names), edges, np.ones(len(edges)))
    task = Task("logistic", 1.0, 10, "none", feature_bound=1.0, updates=updates)
    create_network(tmp_path / "net", NETWORK, members, graph, task, dimension=3, tick_rate=tick_rate)
    started = Processes(tmp_path / "net")
    try:
        yield started
    finally:
        for process in started.running.values():
            process.kill()
            process.wait()


@pytest.mark.network
class TestProcesses:
    """Real processes that are told to stop, killed, stopped in their tracks and started again."""

    def test_a_killed_agent_is_missed_and_goes_on_where_it_was(self, tmp_path):
        with processes(tmp_path) as agents:
            for name in NAMES:
                agents.start(name)
            agents.wait("ben", lambda ben: ben["neighbors_up"] == 2 and ben["releases"] >= 5)
            known = agents.wait("carl", lambda carl: carl["releases"] >= 5)["releases"]
            agents.end("carl", signal.SIGKILL)
            before = agents.wait("ben", lambda ben: ben["neighbors_up"] == 1)
            agents.wait("ben", lambda ben: ben["releases"] > before["releases"])
            agents.start("carl")
            agents.wait("ben", lambda ben: ben["neighbors_up"] == 2)
            assert agents.wait("carl", lambda carl: carl["neighbors_up"] == 1)["releases"] >= known
            # Nothing of what ben sent or got was refused: numbers went on where they were.
            assert agents.wait("ben", lambda ben: True)["dropped"] == {}
            assert [agents.end(name) for name in NAMES] == [0, 0, 0]

    def test_a_late_joiner_gets_the_last_message_at_once(self, tmp_path):
        """The others make two updates and then never wake again: only greetings can carry their models."""
        with processes(tmp_path, tick_rate=20.0, updates=2) as agents:
            agents.start("anna")
            agents.start("carl")
            for name in ("anna", "carl"):
                agents.wait(name, lambda agent: agent["updates"] == 2)
            agents.start("ben")
            agents.wait("ben", lambda ben: ben["neighbors_up"] == 2)
            assert agents.end("ben") == 0
            with sqlite3.connect(agents.home("ben") / "state" / "state.sqlite") as store:
                received = dict(store.execute("SELECT sender, data FROM received"))
            store.close()
            assert set(received) == {"anna", "carl"}

    def test_an_agent_that_hangs_is_given_up_and_welcomed_back(self, tmp_path):
        with processes(tmp_path) as agents:
            for name in NAMES:
                agents.start(name)
            agents.wait("ben", lambda ben: ben["neighbors_up"] == 2)
            agents.running["carl"].send_signal(signal.SIGSTOP)
            agents.wait("ben", lambda ben: ben["neighbors_up"] == 1)
            agents.running["carl"].send_signal(signal.SIGCONT)
            agents.wait("ben", lambda ben: ben["neighbors_up"] == 2)

    def test_what_an_unexpected_error_says_is_written_nowhere(self, tmp_path):
        """It may have been computed from the data; its kind and its place are enough to find it."""
        secret = "gradient = 0.123456"
        code = (
            "import asyncio, sys\n"
            "from flockwise.cli import main\n"
            "from flockwise.net.host import Host\n"
            f"def fail(): raise ZeroDivisionError({secret!r})\n"
            "async def run(self):\n"
            "    asyncio.get_running_loop().call_soon(fail)\n"
            "    await asyncio.sleep(0.1)\n"
            "    fail()\n"
            "Host.run = run\n"
            "main()"
        )
        with processes(tmp_path, ("anna", "ben")) as agents:
            done = subprocess.run(
                [sys.executable, "-c", code, "agent", "run", str(agents.home("anna"))],
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                capture_output=True,
                text=True,
                timeout=60,
            )
            log = (agents.home("anna") / "state" / "events.log").read_text()
        assert done.returncode == 1
        assert "ZeroDivisionError at <string>:4" in done.stderr
        (event,) = [json.loads(line) for line in log.splitlines() if "unexpected error" in line]
        assert (event["error"], event["place"]) == ("ZeroDivisionError", "<string>:4")
        assert secret not in done.stdout + done.stderr + log
