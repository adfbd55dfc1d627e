"""One function makes every agent: on a disk or in memory, and whatever it may spend."""

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.network.conversations import PROTOCOLS
from tests.network.world import FolderWorld, MemoryWorld, make_folders, named

from flockwise.data import Samples
from flockwise.deploy.folder import AgentFolder, NoBudget, OwnBudget
from flockwise.deploy.settings import NetworkSettings, promise
from flockwise.errors import NetworkError, PrivacyError
from flockwise.graph import complete_graph
from flockwise.objective import Objective
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.noise import SecureNoise
from flockwise.privacy.origin import Origin
from flockwise.privacy.tracked import worst_of
from flockwise.release import PointMean
from flockwise.runtime.participant import AgentDefinition, Participant
from flockwise.runtime.testing import AgentMemory, ManualTime, MemoryNetwork, SimulatedNoise, define_agents

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "network.md"
SAMPLES = [Samples(np.array([[0.5, 0.5], [0.1, -0.7]]), np.array([1.0, -1.0]))] * 2
PLAIN = NetworkSettings(Objective(max_samples=8, feature_bound=1.0))
PRIVATE = replace(PLAIN, privacy="dp")
BUDGET = OwnBudget(epsilon=1.0, delta=1e-3, updates=3, clip=1.0)
BATCHES = OwnBudget(epsilon=1.0, delta=1e-3, updates=3, clip=1.0, growth="batches")


def defined(settings, privacy=None):
    return define_agents(settings, complete_graph(2), named(SAMPLES), privacy)


def test_the_same_agent_in_memory_and_on_disk_sends_the_same_bytes(tmp_path):
    paths = make_folders(tmp_path / "net", PLAIN, complete_graph(2), SAMPLES)
    folders = [AgentFolder.read(path) for path in paths]
    definitions = {
        one.name: AgentDefinition(one.neighborhood, NoBudget(), one.samples(), one.signing_key())
        for one in folders
    }
    sent = []
    for world in (MemoryWorld(definitions), FolderWorld(paths)):
        with world:
            # What agents make of their start alone does not depend on when they wake.
            first = world[0].node.agent.on_tick(0)
            sent.append([world[0].node._outbox.ready(message) for message in first])
    assert sent[0] == sent[1]


@pytest.mark.parametrize("budget", [BUDGET, BATCHES])
def test_simulated_noise_is_refused_on_a_ledger_on_disk(tmp_path, budget):
    Ledger.create(tmp_path, "agent0").close()
    with Ledger.open(tmp_path, "agent0") as ledger:
        memory: Any = AgentMemory("agent0")
        memory.open = lambda place: ledger
        resources = memory.resources(MemoryNetwork(), ManualTime(), SimulatedNoise(0, 0))
        with pytest.raises(PrivacyError, match="use SecureNoise"):
            Participant(defined(PRIVATE, budget)["agent0"], resources)
        assert ledger.plan is None


def test_an_agent_says_whether_its_noise_is_simulated():
    definitions = defined(PRIVATE, BUDGET)
    simulated = MemoryWorld(definitions).make("agent0").guarantee
    secure = MemoryWorld(definitions, noise=lambda number: SecureNoise()).make("agent0").guarantee
    assert "This is a simulation" in simulated
    assert "secure" not in simulated.splitlines()[2]
    assert "This is a simulation" not in secure
    assert "secure discrete Gaussian noise" in secure


def test_an_agent_adds_up_what_its_network_was_made_of():
    graph = Origin("the graph, built from models released by cd", "released", ((5.0, 5.0), (1e-4, 1e-4)))
    features = Origin("features of unknown origin", "unknown")
    settings = replace(PRIVATE, origins=(graph, features))
    said = MemoryWorld(defined(settings, BUDGET)).make("agent0").guarantee  # from what a roster says
    assert "ε = 6, δ = 0.0011" in said
    assert "The total includes what was released before: the graph" in said
    assert "drawn by a simulation" not in said
    assert "NOT covered" in said
    assert "features of unknown origin" in said.partition("NOT covered")[2]


def test_no_roster_has_a_seed_that_draws_noise_again():
    graph = Origin(
        "the graph", "released", ((5.0, 5.0), (1e-4, 1e-4)), simulated=True, seeds=frozenset([271828])
    )
    settings = replace(PRIVATE, origins=(worst_of([graph, Origin("features", "unknown")]),))
    assert "271828" not in json.dumps(settings.to_json()) + pickle.dumps(settings).decode("latin1")
    world = MemoryWorld(defined(settings, BUDGET), noise=lambda number: SecureNoise())
    said = world.make("agent0").guarantee
    assert "drawn by a simulation: its noise can be drawn again from its seed" in said


class OtherMean(PointMean):
    """A statistic of another package."""


def test_an_agent_says_by_whose_word_its_sensitivity_holds():
    settings = replace(PRIVATE, statistic=OtherMean(), protocol=PROTOCOLS["release_once"])
    said = promise(settings, [OwnBudget(epsilon=1.0, delta=1e-3, updates=1)])
    assert "Sensitivity as declared by tests" in said
    assert "declared" not in promise(replace(settings, statistic=PointMean()), [BUDGET])


@pytest.mark.parametrize("budget", [BUDGET, BATCHES])
def test_an_agent_in_memory_goes_on_after_a_restart(budget):
    world = MemoryWorld(defined(PRIVATE, budget))
    world.start()
    world.run(2.5)
    world[0].add_data(np.array([[0.3, 0.3]]), np.array([1.0]))
    before = world[0].node.sent
    world.kill()
    world.start()
    assert world[0].node.sent == before
    assert len(world[0].samples.targets) == 3
    world.run(20)
    n_budgets = 2 if budget is BATCHES else 1
    assert [ledger.consumed for ledger in world.memory(0).ledgers] == [3] * n_budgets


@pytest.mark.parametrize(("settings", "privacy"), [(PRIVATE, NoBudget()), (PLAIN, BUDGET)])
def test_an_agent_and_its_network_have_to_agree_on_privacy(settings, privacy):
    with pytest.raises(NetworkError, match="private for all of its agents or for none"):
        defined(settings, privacy)


def test_an_agent_needs_as_many_features_as_the_network():
    fine = defined(PLAIN)["agent0"]
    wide = Samples(np.ones((2, 3)) / 2, np.array([1.0, -1.0]))
    with pytest.raises(NetworkError, match="its 3 features have 3 coordinates, and those of the network 2"):
        replace(fine, samples=wide)


def test_a_budget_for_gradients_says_what_one_of_them_is_clipped_to():
    with pytest.raises(NetworkError, match="clip: missing"):
        defined(PRIVATE, OwnBudget(epsilon=1.0, delta=1e-3, updates=3))


def test_the_example_for_own_tests_runs():
    (code,) = re.findall(r"```python\n(import numpy.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert names["labels"].tolist() == [-1.0]
    assert min(one.node.agent.updates for one in names["agents"]) > 10
