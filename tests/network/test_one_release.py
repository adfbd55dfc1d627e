"""Agents that release once, in their folders: real ledgers, secure noise and journals on disk."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.network.conversations import ring_with_chords

from flockwise import linear_classification
from flockwise.cli.members import members_of
from flockwise.config import Config, build
from flockwise.errors import ConfigError, NetworkError
from flockwise.method.conversation import TalkingAgent
from flockwise.method.finish import finish_along_directions
from flockwise.method.lowpass.network import converse
from flockwise.net.folder import AgentFolder, OwnBudget, write_points
from flockwise.net.memory import MemoryNetwork
from flockwise.net.one_release import CLIP, conversation_about, public_side
from flockwise.net.resident import open_resident
from flockwise.net.setup import Member, create_network, free_addresses
from flockwise.net.signing import Verifier
from flockwise.net.task import Task
from flockwise.net.time import SECOND, ManualTime
from flockwise.objective.solitary import solve_local_models
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.mechanisms import Gaussian
from flockwise.privacy.real_noise import real_event
from flockwise.results.own import OwnModels

N_AGENTS = 6
DIMENSION = 3
EMPTY = 4  # has no points
BUDGET = OwnBudget(epsilon=2.0, delta=1e-3, updates=1, clip=CLIP)
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "network-lowpass.toml"


class Home:
    """A network on disk whose agents meet in memory."""

    def __init__(self, folder: Path, method, budget=BUDGET) -> None:
        self.folder, self.time, self.network = folder, ManualTime(), MemoryNetwork()
        self.verifier = Verifier()
        drawn = linear_classification(N_AGENTS, DIMENSION, seed=1, test_samples=1)
        self.points = [drawn.train.samples(agent) for agent in range(N_AGENTS)]
        features, targets = self.points[EMPTY]
        self.points[EMPTY] = features[:0], targets[:0]
        self.graph = ring_with_chords(N_AGENTS, 1)
        self.task = Task("logistic", 1.0, 100, "dp", method=method)
        addresses = free_addresses("127.0.0.1", N_AGENTS)
        members = [
            Member(f"agent{agent}", *points, budget, addresses[agent])
            for agent, points in enumerate(self.points)
        ]
        create_network(folder, "home", members, self.graph, self.task, dimension=DIMENSION, tick_rate=1.0)
        self.residents = {}

    def open(self, *agents):
        for agent in agents or range(N_AGENTS):
            folder = AgentFolder.read(self.path(agent))
            self.residents[agent] = open_resident(folder, self.network, self.time, self.verifier)
            self.residents[agent].node.start(self.time.now())
        for agent in agents or range(N_AGENTS):
            neighbors = [f"agent{other}" for other in self.graph.neighbors_of(agent)[0].tolist()]
            self.network.attach(f"agent{agent}", self.residents[agent].node, neighbors)

    def close(self, *agents):
        for agent in agents or sorted(self.residents):
            self.network.detach(f"agent{agent}")
            resident = self.residents.pop(agent)
            resident.node.stop()
            resident.close()

    def path(self, agent):
        return self.folder / "agents" / f"agent{agent}"

    def node(self, agent) -> Any:
        return self.residents[agent].node

    def run(self, until):
        for _ in range(500):
            if until():
                return
            self.network.deliver_all()
            nodes = [resident.node for resident in self.residents.values()]
            wakes = [wake for node in nodes if (wake := node.next_wake()) is not None]
            self.time.move_to(max(self.time.now(), min(wakes)))
            for node in nodes:
                node.tick(self.time.now())
        raise AssertionError("it did not end")

    def run_to_the_end(self):
        self.run(lambda: all(resident.node.is_over for resident in self.residents.values()))

    def expected(self):
        """By the simulated protocol, from what the ledgers say was released; all residents closed."""
        agents = {}
        for agent in range(N_AGENTS):
            neighbors, weights = self.graph.neighbors_of(agent)
            ties = dict(zip(neighbors.tolist(), weights.tolist(), strict=True))
            public = public_side(None, DIMENSION)
            if agent != EMPTY:
                with Ledger.open(self.path(agent) / "state", f"agent{agent}") as ledger:
                    assert ledger.consumed == 1
                    public = public_side(ledger, DIMENSION)
            talk = conversation_about(self.task, agent, public, ties)
            agents[agent] = TalkingAgent(agent, ties, talk)
        converse(self.graph, agents)
        return {number: agent.outcome for number, agent in agents.items()}


def own_problem(home, agent):
    return home.task.learning().problem(*home.points[agent])


@pytest.mark.parametrize("method", ["lowpass", "release_once"])
def test_from_folders_to_own_models(tmp_path, method):
    """Before the end an agent learns alone, afterwards along what it was told; on disk all the while."""
    home = Home(tmp_path / "net", method)
    home.open()
    for agent, resident in home.residents.items():
        alone = solve_local_models(own_problem(home, agent))[0]
        np.testing.assert_allclose(resident.own.model(), alone, atol=1e-6)
    home.run_to_the_end()
    models = {agent: resident.own.model() for agent, resident in home.residents.items()}
    released = {agent: home.node(agent).agent.model for agent in home.residents}
    home.close()
    expected = home.expected()
    home.open()
    assert any(outcome is not None for outcome in expected.values())
    for agent, resident in home.residents.items():
        node, outcome = home.node(agent), expected[agent]
        assert (node.is_over, node.releases) == (True, 0 if agent == EMPTY else 1)
        np.testing.assert_array_equal(node.agent.model, released[agent])
        assert isinstance(resident.own.model(), OwnModels)
        np.testing.assert_array_equal(resident.own.model(), models[agent])
        if outcome is None:
            assert node.direction is None
            continue
        np.testing.assert_allclose(node.direction.vector, outcome.vector, atol=1e-9)
        along = finish_along_directions(
            own_problem(home, agent), outcome.vector[None], np.array([outcome.quality])
        )[0]
        np.testing.assert_allclose(models[agent], along, atol=1e-6)
    home.close()


def test_the_release_has_the_noise_of_real_agents(tmp_path):
    home = Home(tmp_path / "net", "lowpass")
    home.open()
    home.run_to_the_end()
    home.close()
    real = real_event(BUDGET.budget, Gaussian(1.0, 1.0), [1.0])
    assert real is not None
    multiplier = real.multiplier
    with Ledger.open(home.path(0) / "state", "agent0") as ledger:
        event, public = ledger.entries[0].event, public_side(ledger, DIMENSION)
    samples = len(home.points[0][1])
    assert event.sensitivity == pytest.approx(2 / samples)
    assert event.multiplier == pytest.approx(multiplier, rel=1e-6)
    assert public.noise_variance == pytest.approx((2 * multiplier / samples) ** 2, rel=1e-6)
    assert public.variance - public.noise_variance == pytest.approx(1 / (samples * DIMENSION))


def test_points_that_come_before_the_release_are_in_it_and_later_ones_are_not(tmp_path):
    home = Home(tmp_path / "net", "lowpass")
    more = np.array([[0.5, -0.5, 0.1]]), np.array([1.0])
    home.open()
    home.residents[0].own.add_data(*more)
    home.run_to_the_end()
    gate = home.residents[0].gate
    assert gate.consumed == 1
    assert gate._ledger.entries[0].event.sensitivity == pytest.approx(2 / (len(home.points[0][1]) + 1))
    before, direction = home.residents[0].own.model(), home.node(0).direction
    sent = home.node(0).sent
    home.residents[0].own.add_data(np.tile(more[0], (30, 1)), np.full(30, -1.0))
    assert np.abs(home.residents[0].own.model() - before).max() > 1e-3
    home.time.move_to(home.time.now() + 100 * SECOND)
    home.node(0).tick(home.time.now())
    assert (gate.consumed, home.node(0).sent, home.node(0).direction) == (1, sent, direction)
    home.close()


@pytest.mark.parametrize("method", ["lowpass", "release_once"])
def test_other_points_after_the_release_change_no_relay(tmp_path, method):
    """They change while the agent is down, in the middle of the conversation: what it says does not."""
    home = Home(tmp_path / "net", method)
    home.open()
    home.run(lambda: all(home.node(agent).releases == 1 for agent in home.residents if agent != EMPTY))
    for _ in range(300):
        home.network.deliver(home.network._queue.popleft())
    assert not home.node(2).is_over
    assert home.node(2).rounds > 5
    home.close(2)
    features, targets = home.points[2]
    write_points(home.path(2) / "data.npz", -3 * features + 1, -targets)
    home.open(2)
    home.run_to_the_end()
    found = {agent: home.node(agent).direction for agent in home.residents}
    assert not any(home.node(agent).intake.dropped for agent in home.residents)
    home.close()
    for agent, outcome in home.expected().items():
        if outcome is not None:
            np.testing.assert_allclose(found[agent].vector, outcome.vector, atol=1e-9)


def test_a_ledger_that_is_behind_takes_no_part(tmp_path):
    """A neighbor has its release, and its own disk does not: it neither releases again nor talks."""
    home = Home(tmp_path / "net", "lowpass")
    old = {path: path.read_bytes() for path in (home.path(1) / "state").iterdir()}
    home.open()
    home.run(lambda: home.node(1).releases == 1 and not home.network._queue)
    home.close(1)
    for path in (home.path(1) / "state").iterdir():
        path.unlink()
    for path, data in old.items():
        path.write_bytes(data)
    home.open(1)
    home.network.deliver_all()
    assert home.node(1).obstacle == "behind"
    home.time.move_to(home.time.now() + 100 * SECOND)
    home.node(1).tick(home.time.now())
    assert (home.node(1).releases, home.node(1).rounds) == (0, 0)
    np.testing.assert_allclose(
        home.residents[1].own.model(), solve_local_models(own_problem(home, 1))[0], atol=1e-6
    )
    home.close()


def test_a_budget_for_more_than_one_release_is_refused(tmp_path):
    budget = OwnBudget(epsilon=1.0, delta=1e-3, updates=3, clip=CLIP)
    home = Home(tmp_path / "net", "lowpass", budget)
    with pytest.raises(NetworkError, match="updates = 1"):
        home.open(0)


# From a configuration.


def configured(method, **objective):
    """The example with fewer agents."""
    config = tomllib.loads(EXAMPLE.read_text())
    config["data"] |= {"agents": 6, "test_samples": 10}
    config["network"] |= {"round_timeout": 7.0}
    config["objective"] |= objective
    return build(Config.model_validate(config | {"method": method}))


@pytest.mark.parametrize("method", ["lowpass", "release_once"])
def test_a_configuration_makes_members_of_one_release(method):
    members, task = members_of(configured({"name": method}))
    assert (task.method, task.round_timeout, task.privacy) == (method, 7.0, "dp")
    assert Task.from_settings(task.to_settings(), "it") == task
    for member in members:
        assert member.privacy is not None
        assert (member.privacy.epsilon, member.privacy.updates, member.privacy.clip) == (1.0, 1, 1.0)


def test_what_real_agents_do_not_release_is_said():
    local = {"name": "release_once", "kind": "output"}
    with pytest.raises(ConfigError, match=r"method\.kind.*'output'.*kind = \"mean\""):
        members_of(configured(local, l2=0.1, feature_bound=4.0))
