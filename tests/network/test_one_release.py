"""Agents that release once, in their folders: real ledgers, secure noise and journals on disk."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.network.conversations import PROTOCOLS, ring_with_chords, simulated_outcomes
from tests.network.world import FolderWorld, make_folders, name_of

from flockwise import linear_classification
from flockwise.cli.members import members_of
from flockwise.config import Config, build
from flockwise.data import Samples
from flockwise.deploy.folder import OwnBudget, write_samples
from flockwise.deploy.settings import NetworkSettings
from flockwise.errors import ConfigError, NetworkError
from flockwise.method import Local
from flockwise.net.signing import Verifier
from flockwise.net.time import SECOND
from flockwise.objective import Objective
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.plan import Plan
from flockwise.privacy.tracked import OWN, origin_of
from flockwise.protocol import LowPassProtocol, PropagationProtocol
from flockwise.release import PointMean
from flockwise.release.finish import finish_along_directions
from flockwise.runtime.own_model import problem_of_one
from flockwise.runtime.releases import public_side
from flockwise.solve import solve_local_models

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "network-lowpass.toml"
N_AGENTS = 6
DIMENSION = 3
EMPTY = 4  # has no samples
BUDGET = OwnBudget(epsilon=2.0, delta=1e-3, updates=1)


class Home(FolderWorld):
    """A network on disk whose agents meet in memory."""

    def __init__(self, folder: Path, method, budget=BUDGET) -> None:
        drawn = linear_classification(N_AGENTS, DIMENSION, seed=1, test_samples=1)
        self.samples = [drawn.train.samples(agent) for agent in range(N_AGENTS)]
        features, targets = self.samples[EMPTY]
        self.samples[EMPTY] = Samples(features[:0], targets[:0])
        self.graph = ring_with_chords(N_AGENTS, 1)
        self.settings = NetworkSettings(
            Objective(max_samples=100), "dp", statistic=PointMean(), protocol=PROTOCOLS[method]
        )
        paths = make_folders(folder, self.settings, self.graph, self.samples, budget, tick_rate=1.0)
        super().__init__(paths, verifier=Verifier())

    def path(self, agent):
        return self.paths[name_of(agent)]

    def node(self, agent) -> Any:
        return self[agent].node

    def run_to_the_end(self):
        self.run_until(lambda: all(node.role.is_over for node in self.nodes.values()))

    def expected(self):
        """By the simulated protocol, from what the ledgers say was released; when all agents have stopped."""

        def public_of(agent):
            if agent == EMPTY:
                return public_side(PointMean(), None, DIMENSION)
            with Ledger.open(self.path(agent) / "state", name_of(agent)) as ledger:
                assert ledger.consumed == 1
                return public_side(PointMean(), ledger, DIMENSION)

        return simulated_outcomes(self.settings, self.graph, public_of)


def own_problem(home, agent):
    return problem_of_one(home.settings.objective, home.samples[agent])


@pytest.mark.parametrize("method", ["lowpass", "release_once"])
def test_agents_from_folders_end_with_the_own_models_of_the_simulated_protocol(tmp_path, method):
    """Before the end an agent learns alone, afterwards along what it was told; on disk all the while."""
    home = Home(tmp_path / "net", method)
    home.start()
    for agent in range(N_AGENTS):
        alone = solve_local_models(own_problem(home, agent))[0]
        np.testing.assert_allclose(home[agent].own_model(), alone, atol=1e-6)
    home.run_to_the_end()
    models = {agent: home[agent].own_model() for agent in range(N_AGENTS)}
    released = {agent: node.agent.model for agent, node in home.nodes.items()}
    home.stop()
    expected = home.expected()
    home.start()
    assert any(outcome is not None for outcome in expected.values())
    for agent in range(N_AGENTS):
        node, outcome = home.node(agent), expected[agent]
        assert (node.role.is_over, node.releases) == (True, 0 if agent == EMPTY else 1)
        np.testing.assert_array_equal(node.agent.model, released[agent])
        assert origin_of(home[agent].own_model()) == OWN
        np.testing.assert_array_equal(home[agent].own_model(), models[agent])
        if outcome is None:
            assert node.role.direction is None
            continue
        np.testing.assert_allclose(node.role.direction.vector, outcome.vector, atol=1e-9)
        along = finish_along_directions(
            own_problem(home, agent), outcome.vector[None], np.array([outcome.quality])
        )[0]
        np.testing.assert_allclose(models[agent], along, atol=1e-6)
    home.stop()


def test_the_release_has_the_noise_of_real_agents(tmp_path):
    home = Home(tmp_path / "net", "lowpass")
    home.start()
    home.run_to_the_end()
    home.stop()
    (multiplier,) = Plan.fitting(BUDGET.budget, "gaussian", 1, accountant="zcdp", on_grid=True).multipliers
    with Ledger.open(home.path(0) / "state", "agent0") as ledger:
        event, public = ledger.entries[0].event, public_side(PointMean(), ledger, DIMENSION)
    samples = len(home.samples[0].targets)
    assert event.grid is not None
    assert event.sensitivity == pytest.approx(2 / samples)
    assert event.multiplier == pytest.approx(multiplier, rel=1e-6)
    assert public.noise_variance == pytest.approx((2 * multiplier / samples) ** 2, rel=1e-6)
    assert public.variance - public.noise_variance == pytest.approx(1 / (samples * DIMENSION))


def test_samples_that_come_before_the_release_are_in_it_and_later_ones_are_not(tmp_path):
    home = Home(tmp_path / "net", "lowpass")
    more = np.array([[0.5, -0.5, 0.1]]), np.array([1.0])
    home.start()
    home[0].add_data(*more)
    home.run_to_the_end()
    gates: Any = home[0].gates
    assert gates.consumed == 1
    (ledger,) = gates.ledgers
    assert ledger.entries[0].event.sensitivity == pytest.approx(2 / (len(home.samples[0].targets) + 1))
    before, direction = home[0].own_model(), home.node(0).role.direction
    sent = home.node(0).sent
    home[0].add_data(np.tile(more[0], (30, 1)), np.full(30, -1.0))
    assert np.abs(home[0].own_model() - before).max() > 1e-3
    home.time.move_to(home.time.now() + 100 * SECOND)
    home.node(0).tick(home.time.now())
    assert (gates.consumed, home.node(0).sent, home.node(0).role.direction) == (1, sent, direction)
    home.stop()


@pytest.mark.parametrize("method", ["lowpass", "release_once"])
def test_other_samples_after_the_release_change_no_relay(tmp_path, method):
    """They change while the agent is down, in the middle of the conversation: what it says does not."""
    home = Home(tmp_path / "net", method)
    home.start()
    home.run_until(lambda: all(node.releases == 1 for agent, node in home.nodes.items() if agent != EMPTY))
    home.network.deliver_all(300)
    assert not home.node(2).role.is_over
    assert home.node(2).role.rounds > 5
    home.stop(2)
    features, targets = home.samples[2]
    write_samples(home.path(2) / "data.npz", Samples(-3 * features + 1, -targets))
    home.start(2)
    home.run_to_the_end()
    found = {agent: node.role.direction for agent, node in home.nodes.items()}
    assert not any(node.intake.dropped for node in home.nodes.values())
    home.stop()
    for agent, outcome in home.expected().items():
        if outcome is not None:
            np.testing.assert_allclose(found[agent].vector, outcome.vector, atol=1e-9)


def test_an_agent_whose_ledger_is_an_old_copy_takes_no_part(tmp_path):
    """A neighbor has its release, and its own disk does not: it neither releases again nor talks."""
    home = Home(tmp_path / "net", "lowpass")
    old = {path: path.read_bytes() for path in (home.path(1) / "state").iterdir()}
    home.start()
    home.run_until(lambda: home.node(1).releases == 1 and not len(home.network.queue))
    home.stop(1)
    for path in (home.path(1) / "state").iterdir():
        path.unlink()
    for path, data in old.items():
        path.write_bytes(data)
    home.start(1)
    home.network.deliver_all()
    assert home.node(1).obstacle == "behind"
    home.time.move_to(home.time.now() + 100 * SECOND)
    home.node(1).tick(home.time.now())
    assert (home.node(1).releases, home.node(1).role.rounds) == (0, 0)
    np.testing.assert_allclose(home[1].own_model(), solve_local_models(own_problem(home, 1))[0], atol=1e-6)
    home.stop()


@pytest.mark.parametrize(
    "other",
    [{"updates": 3}, {"clip": 1.0}, {"mechanism": "laplace"}, {"growth": "batches"}],
    ids=["updates", "clip", "mechanism", "growth"],
)
def test_a_budget_that_is_not_for_one_release_of_means_is_refused(tmp_path, other):
    """A clip bounds gradients, and a mean of vectors of length 1 has none."""
    budget = OwnBudget(**({"epsilon": 1.0, "delta": 1e-3, "updates": 1} | other))
    home = Home(tmp_path / "net", "lowpass", budget)
    with pytest.raises(NetworkError, match=r"updates = 1.* without a clip"):
        home.start(0)


# From a configuration


def configured(method, **objective):
    """The example with fewer agents."""
    config = tomllib.loads(EXAMPLE.read_text())
    config["data"] |= {"agents": 6, "test_samples": 10}
    config["network"] |= {"round_timeout": 7.0}
    config["objective"] |= objective
    return build(Config.parse(config | {"method": method}))


@pytest.mark.parametrize(
    ("method", "protocol"),
    [({"name": "lowpass"}, LowPassProtocol), ({"name": "release_once", "updates": 5}, PropagationProtocol)],
    ids=["lowpass", "release_once"],
)
def test_a_configuration_makes_members_of_one_release(method, protocol):
    members, settings = members_of(configured(method))
    assert (settings.round_timeout, settings.privacy) == (7.0, "dp")
    assert isinstance(settings.protocol, protocol)
    assert NetworkSettings.from_json(settings.to_json(), "it") == settings
    for member in members:
        assert member.privacy is not None
        assert (member.privacy.epsilon, member.privacy.updates, member.privacy.clip) == (1.0, 1, None)


def test_a_plan_for_a_method_that_real_agents_do_not_run_asks_for_a_name():
    config = tomllib.loads(EXAMPLE.read_text())
    del config["method"], config["objective"]["tradeoff"]
    made = configured({"name": "lowpass"})
    planned = replace(made, method=Local(), config=Config.parse(config))
    with pytest.raises(ConfigError, match=r"\[method\]: missing, and the plan chose \"local\""):
        members_of(planned)


def test_a_configuration_with_a_statistic_that_real_agents_do_not_release_is_refused():
    local = {"name": "release_once", "kind": "output", "updates": 5}
    with pytest.raises(ConfigError, match=r"method\.kind.*\"output\".*kind = \"mean\""):
        members_of(configured(local, l2=0.1, feature_bound=4.0))
