"""The phases of an agent: what people are told that it does, and which change is possible."""

import socket
from pathlib import Path

import numpy as np
import pytest

from flockwise import Logistic, Objective, SimilarityGraph
from flockwise.deploy.folder import NoBudget, OwnBudget
from flockwise.errors import NetworkError
from flockwise.net.time import SECOND
from flockwise.runtime import testing, watchdog
from flockwise.runtime.metrics import AgentStatus
from flockwise.runtime.phases import ALLOWED, MEANING, Phase, check_change, phase_of, table

BUDGET = OwnBudget(epsilon=1.0, delta=1e-5, updates=3, clip=1.0)


def pair(privacy):
    """Two agents, alice and bob, on a network in memory; not started."""
    objective = Objective(Logistic(), tradeoff=1.0, max_samples=10, feature_bound=1.0)
    label = "none" if isinstance(privacy, NoBudget) else "dp"
    settings = testing.NetworkSettings(objective, privacy=label)
    samples = testing.Samples(np.array([[0.9, 0.1], [-0.8, 0.2]]), np.array([1.0, -1.0]))
    graph = SimilarityGraph.from_edges(2, np.array([(0, 1)]), np.array([1.0]))
    own = None if isinstance(privacy, NoBudget) else privacy
    definitions = testing.define_agents(settings, graph, dict.fromkeys(["alice", "bob"], samples), own)
    network, time = testing.MemoryNetwork(), testing.ManualTime()
    agents = [
        testing.Participant(
            definition,
            testing.AgentMemory(name).resources(network, time, testing.SimulatedNoise(seed=0, agent=number)),
        )
        for number, (name, definition) in enumerate(definitions.items())
    ]
    return agents, network, time


def test_the_documentation_prints_the_table_of_phases():
    assert table() in Path("docs/network.md").read_text(encoding="utf-8")


def test_every_phase_is_explained_and_can_be_reached():
    assert set(MEANING) == set(ALLOWED) == set(Phase)
    reached = {Phase.STARTING}
    while (more := set().union(*(ALLOWED[phase] for phase in reached))) - reached:
        reached |= more
    assert reached == set(Phase)


def test_a_private_agent_waits_learns_and_is_done():
    agents, network, time = pair(BUDGET)
    alice = agents[0]
    testing.start_agents([alice], network, time)
    assert phase_of(alice.node, time.now()) is Phase.WAITING  # nobody is connected
    testing.start_agents(agents[1:], network, time)
    testing.run_for(1, agents, network, time)
    assert phase_of(alice.node, time.now()) is Phase.LEARNING
    testing.run_for(60, agents, network, time)
    assert phase_of(alice.node, time.now()) is Phase.DONE
    assert alice.node.releases == 3


def test_an_agent_says_whom_it_waits_for():
    agents, network, time = pair(BUDGET)
    alice = agents[0]
    testing.start_agents([alice], network, time)
    alice.node.on_presence("bob", True)  # and no greeting comes
    assert alice.node.role.awaited(time.now()) == ["bob"]
    assert phase_of(alice.node, time.now()) is Phase.WAITING
    assert alice.node.role.awaited(time.now() + 10 * SECOND) == ["bob"], "nobody has greeted it"
    testing.start_agents(agents[1:], network, time)
    testing.run_for(1, agents, network, time)
    assert alice.node.role.awaited(time.now()) == []


def test_an_agent_whose_neighbors_are_all_down_names_them():
    agents, network, time = pair(BUDGET)
    testing.start_agents(agents[:1], network, time)
    assert phase_of(agents[0].node, time.now()) is Phase.WAITING
    assert agents[0].node.role.awaited(time.now()) == ["bob"]


def test_an_agent_without_privacy_learns_until_its_disk_fails():
    agents, network, time = pair(NoBudget())
    testing.start_agents(agents, network, time)
    testing.run_for(10, agents, network, time)
    node = agents[0].node
    assert phase_of(node, time.now()) is Phase.LEARNING
    node.fall_silent("store")
    assert phase_of(node, time.now()) is Phase.SILENT


def test_a_change_that_no_agent_makes_is_refused_by_name():
    check_change("alice", Phase.LEARNING, Phase.WAITING)
    check_change("alice", Phase.DONE, Phase.DONE)
    with pytest.raises(NetworkError, match="agent 'alice': went from 'silent' to 'learning'"):
        check_change("alice", Phase.SILENT, Phase.LEARNING)


@pytest.mark.parametrize(
    ("phase", "rounds", "is_spent"),
    [(Phase.DONE, None, True), (Phase.DONE, 9, False), (Phase.LEARNING, None, False)],
)
def test_a_budget_is_spent_when_an_agent_that_descends_is_done(phase, rounds, is_spent):
    assert AgentStatus("alice", epsilon_total=1.0, phase=phase, rounds=rounds).is_spent == is_spent


def test_systemd_hears_that_a_process_is_ready_and_alive(tmp_path, monkeypatch):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        monkeypatch.setenv(watchdog.SOCKET, address)
        watchdog.say_ready()
        watchdog.say_alive()
        assert [listening.recv(64), listening.recv(64)] == [b"READY=1", b"WATCHDOG=1"]
    watchdog.say_alive()  # nobody listens any more, and nothing happens
