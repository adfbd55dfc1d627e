"""An agent's own side: the model that it keeps to itself, its last word, its samples, programs around it."""

from __future__ import annotations

import ast
import asyncio
import random
import re
from pathlib import Path

import numpy as np
import pytest
from tests.network.signers import NETWORK, Signer
from tests.network.world import (
    FolderWorld,
    MemoryWorld,
    make_folders,
    named,
    poisson_by,
    samples_of,
    settings_of,
)

from flockwise.agent.agent import Neighbor
from flockwise.data import Population, Samples
from flockwise.deploy.folder import AgentFolder, OwnBudget, write_samples
from flockwise.deploy.settings import NetworkSettings
from flockwise.engine import simulate
from flockwise.errors import DataError, NetworkError, PrivacyError
from flockwise.graph import SimilarityGraph, complete_graph
from flockwise.method import CoordinateDescent, PrivateUpdates
from flockwise.method.start import PublicModels
from flockwise.net.store import Sent
from flockwise.net.wire import open_signed
from flockwise.objective import Objective, Problem
from flockwise.privacy.budget import Budget
from flockwise.privacy.messages import decode
from flockwise.privacy.tracked import OWN, origin_of
from flockwise.results.metrics import agent_metrics
from flockwise.runtime.own_model import finished_model, message_noise_variance, problem_of_one
from flockwise.runtime.testing import SimulatedNoise, define_agents

BUDGET = Budget(2.0, 1e-3)
UPDATES = 6
SAMPLES = 8
CLIP = 1.0


def separable(seed, n_agents=12, dimension=3, test_samples=200):
    """Agents with as many samples each whose true separators turn slowly along a ring: train and test."""
    chance = np.random.default_rng(seed)
    angles = 0.4 * np.sin(2 * np.pi * np.arange(n_agents) / n_agents)
    truth = np.zeros((n_agents, dimension))
    truth[:, 0], truth[:, 1] = np.cos(angles), np.sin(angles)

    def drawn(count):
        features = chance.uniform(-1, 1, (n_agents, count, dimension)) / dimension**0.5
        targets = np.where(np.einsum("nkd,nd->nk", features, truth) > 0, 1.0, -1.0)
        offsets = np.arange(n_agents + 1) * count
        return Population.packed(features.reshape(-1, dimension), targets.ravel(), offsets)

    agents = np.arange(n_agents)
    edges = np.concatenate([np.column_stack([agents, (agents + hop) % n_agents]) for hop in (1, 2)])
    graph = SimilarityGraph.from_edges(n_agents, edges, np.tile([1.0, 0.5], n_agents).reshape(2, -1).ravel())
    train = drawn(SAMPLES)
    problem = Problem(train, graph, Objective(tradeoff=2.0, max_samples=SAMPLES, feature_bound=1.0))
    return problem, drawn(test_samples)


def problem_of(problem, agent):
    """Of one agent, as it sees it."""
    return problem_of_one(problem.objective, problem.population.samples(agent))


OWN_BUDGET = OwnBudget(epsilon=BUDGET.epsilon, delta=BUDGET.delta, updates=UPDATES, clip=CLIP)


def private_descent():
    """With the plan of real agents, so both have the same noise."""
    return CoordinateDescent(privacy=PrivateUpdates(BUDGET, UPDATES, CLIP))


def noise_stds(samples=SAMPLES):
    """Of the noise in one coordinate of each release of an agent with so many samples."""
    plan = OWN_BUDGET.plan(on_grid=False)
    events = [plan.event(number, 2 * CLIP / samples, 3) for number in range(1, UPDATES + 1)]
    return np.array([event.noise_std for event in events])


class Peers(MemoryWorld):
    """Private agents on a network in memory, all from one seed."""

    def __init__(self, problem, seed):
        settings, samples = settings_of(problem, "dp"), named(samples_of(problem))
        super().__init__(
            define_agents(settings, problem.neighbors, samples, OWN_BUDGET, network=NETWORK),
            noise=lambda number: SimulatedNoise(seed, number),
            make_clock=poisson_by(random.Random(seed)),
        )


# The silent finish


def test_an_agent_finishes_as_it_does_in_the_simulator():
    """Where all have as many samples, everyone's noise is like one's own, and both are the same formula."""
    problem, _ = separable(0)
    models = np.random.default_rng(1).normal(size=(problem.n_agents, problem.dimension))
    finish = private_descent().prepare(problem, 0).finish
    assert finish is not None
    expected = finish(models, None)
    for i in (0, 5):
        others, weights = problem.neighbors.neighbors_of(i)
        neighbors = [Neighbor(w, UPDATES + 1, models[j]) for j, w in zip(others, weights, strict=True)]
        alone = problem_of(problem, i)
        own = finished_model(alone, neighbors, noise_stds())
        np.testing.assert_allclose(own, expected[i], rtol=0, atol=1e-5)


def test_neighbors_that_released_nothing_have_no_part_in_an_own_model():
    problem, _ = separable(0)
    alone = problem_of(problem, 0)
    told = Neighbor(1.0, 3, np.ones(3))
    silent = [Neighbor(5.0), Neighbor(5.0, 0, np.zeros(3))]
    stds = noise_stds()
    with_silent = finished_model(alone, [told, *silent], stds)
    np.testing.assert_array_equal(with_silent, finished_model(alone, [told], stds))
    lonely = finished_model(alone, silent, stds)
    assert np.isfinite(lonely).all()
    assert not np.allclose(lonely, with_silent)


def test_noise_in_a_message_is_what_the_updates_leave_of_it():
    """Against the updates themselves, done to 40 000 coordinates; the error of a variance is about 0.7 %."""
    problem, _ = separable(0)
    alone = problem_of(problem, 0)
    stds = noise_stds()
    step_size, pull, chance = alone.step_sizes[0], alone.pulls[0], np.random.default_rng(2)
    released, noise = [], np.zeros(40_000)
    for std in stds:
        noise = (1 - step_size) * noise - step_size * pull * chance.normal(0, std, len(noise))
        released.append(noise)
    for number in range(1, UPDATES + 1):
        variance = message_noise_variance(alone, stds, number)
        assert variance == pytest.approx(released[number - 1].var(), rel=0.04)
    tail = np.mean(released[UPDATES // 2 :], axis=0)
    assert message_noise_variance(alone, stds, UPDATES + 1) == pytest.approx(tail.var(), rel=0.04)
    assert message_noise_variance(alone, stds, 0) == 0


# The last word


def test_the_message_at_the_end_is_the_mean_of_the_later_releases():
    problem, _ = separable(3)
    peers = Peers(problem, 3)
    peers.start()
    peers.run(60)
    for i, node in peers.nodes.items():
        entries = peers.memory(i).ledger.entries
        released = [decode(entry.payload)[1] for entry in entries if entry.payload is not None]
        assert len(entries) == node.releases == node.agent.updates == UPDATES
        assert node.sent.number == UPDATES + 1
        mean = np.mean(released[UPDATES // 2 :], axis=0)
        np.testing.assert_allclose(node.agent.model, mean, rtol=1e-12)
        for j in problem.neighbors.neighbors_of(i)[0]:
            held = peers.nodes[j].agent.neighbors[node.name]
            assert held.number == UPDATES + 1
            np.testing.assert_array_equal(held.model, node.agent.model)
        assert node.agent.next_tick is None
        assert not node.intake.dropped


def test_the_mean_at_the_end_is_the_same_bytes_after_a_restart():
    problem, _ = separable(4)
    peers = Peers(problem, 4)
    peers.start()
    peers.run(60)
    before = peers.nodes[0]
    peers.kill(0)
    peers.start(0)
    again = peers.nodes[0]
    assert again.sent == before.sent
    assert again.releases == again.agent.updates == UPDATES
    np.testing.assert_array_equal(again.agent.model, before.agent.model)
    assert again._outbox.knows(before.sent)
    other = open_signed(peers.nodes[1].sent.data, 10_000).body.payload
    forged = Signer("agent0").model(UPDATES + 1, [], privacy="dp", payload=other)
    assert not again._outbox.knows(Sent(UPDATES + 1, forged))


def test_a_mean_at_the_end_that_was_lost_comes_with_a_greeting():
    problem, _ = separable(5)
    peers = Peers(problem, 5)
    lost = []
    publish = peers.network.publish

    def lossy(sender, data):
        if decode(open_signed(data, len(data)).body.payload)[0] > UPDATES:
            lost.append(sender)
        else:
            publish(sender, data)

    peers.network.publish = lossy
    peers.start()
    peers.run(20)
    assert len(lost) > 0
    peers.run(60)
    for node in peers.nodes.values():
        assert [held.number for held in node.agent.neighbors.values()] == [UPDATES + 1] * 4


def test_nothing_is_released_after_the_average_at_the_end():
    problem, _ = separable(6)
    peers = Peers(problem, 6)
    peers.start()
    peers.run(60)
    sent = peers.nodes[0].sent
    peers[0].add_data(np.full((2, 3), 0.1), np.ones(2))
    peers.run(60)
    assert peers.nodes[0].sent == sent
    assert peers.memory(0).ledger.consumed == UPDATES


@pytest.mark.network
def test_own_models_are_as_good_as_in_a_simulation():
    """12 agents, 6 data sets: the mean difference in accuracy on clean samples is within 3 standard errors.

    Both draw the same noise. They differ only by their clocks and by what comes after the mean at the end.
    All seeds are fixed; were they not, it would fail by chance about once in 30 runs (t with 5 degrees).
    """
    differences, gains = [], []
    for seed in range(6):
        problem, test = separable(seed)
        simulated = simulate(problem, private_descent(), seed=seed, updates=UPDATES, test=test)
        assert simulated.own_models is not None
        peers = Peers(problem, seed)
        peers.start()
        peers.run(60)
        own = np.stack([np.asarray(one.own_model()) for one in peers.running.values()])
        ours = agent_metrics(problem.loss, test, own).mean()
        theirs = agent_metrics(problem.loss, test, np.asarray(simulated.own_models)).mean()
        released = np.stack([node.agent.model for node in peers.nodes.values()])
        differences.append(ours - theirs)
        gains.append(ours - agent_metrics(problem.loss, test, released).mean())
    error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert error < 0.04  # else the next line could hardly fail
    assert abs(np.mean(differences)) <= 3 * error
    assert np.mean(gains) > 0


# Folders


def folders(tmp_path, *, private, n_agents=2, updates=UPDATES) -> list[Path]:
    """A complete network of agents who each know all others."""
    problem, _ = separable(7, n_agents=5)
    privacy = OwnBudget(epsilon=2.0, delta=1e-3, updates=updates, clip=CLIP) if private else None
    samples = [problem.population.samples(i) for i in range(n_agents)]
    settings = NetworkSettings(problem.objective, "dp" if private else "none", updates)
    return make_folders(tmp_path / "net", settings, complete_graph(n_agents), samples, privacy)


def test_an_agent_has_a_model_of_its_own(tmp_path):
    paths = folders(tmp_path, private=True)
    with FolderWorld(paths) as world:
        world.run(30)
        one = world[0]
        assert one.gates is not None
        assert one.node.releases == one.gates.consumed == UPDATES
        model = one.own_model()
        assert origin_of(model) == OWN
        assert not np.allclose(model, one.node.agent.model)
        labels = one.predict(np.eye(3))
        np.testing.assert_array_equal(labels, np.where(model > 0, 1.0, -1.0))
        with pytest.raises(DataError, match=r"\(samples, 3\)"):
            one.predict(np.ones(3))
    with FolderWorld(paths) as again:
        np.testing.assert_array_equal(again[0].own_model(), model)


def test_an_own_model_is_in_no_file_and_no_message(tmp_path):
    paths = folders(tmp_path, private=True)
    with FolderWorld(paths) as world:
        world.run(30)
        own = world[0].own_model()
        model = np.asarray(own)
        world.run(60)
        sent = [node.sent.data for node in world.nodes.values()]
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for value in model:
        assert not any(value.tobytes() in data for data in written + sent)
    with pytest.raises(PrivacyError, match="own models"):
        PublicModels(own)


def test_added_samples_are_kept_and_learned_from(tmp_path):
    paths = folders(tmp_path, private=True)
    with FolderWorld(paths) as world:
        world.run(0.5)
        one = world[0]
        before = one.own_model()
        one.add_data(np.full((4, 3), -0.3), np.ones(4))
        after = one.own_model()
        assert not np.allclose(before, after)
        assert len(one.samples.targets) == SAMPLES + 4
    with FolderWorld(paths) as again:
        one = again[0]
        assert one.gates is not None
        assert len(one.samples.targets) == SAMPLES + 4
        again.run(60)
        assert one.node.releases == UPDATES
        assert one.gates.epsilon_spent <= 2.0
        np.testing.assert_allclose(one.gates.epsilon_spent, 2.0, rtol=1e-3)


def test_without_privacy_the_own_model_is_the_model_and_samples_bring_more_updates(tmp_path):
    paths = folders(tmp_path, private=False)
    with FolderWorld(paths) as world:
        world.run(30)
        one = world[0]
        assert one.node.agent.updates == UPDATES
        np.testing.assert_array_equal(one.own_model(), one.node.agent.model)
        one.add_data(np.full((4, 3), -0.3), np.ones(4))
        world.run(30)
        assert one.node.agent.updates == 2 * UPDATES
    with FolderWorld(paths) as again:
        again.run(30)
        assert again[0].node.agent.updates == 2 * UPDATES


# In a user's own program


def test_a_program_can_embed_an_agent(tmp_path):
    import flockwise.runtime

    paths = folders(tmp_path, private=True)

    async def program():
        async with (
            flockwise.runtime.RealAgent(paths[0]) as one,
            flockwise.runtime.RealAgent(paths[1]) as other,
        ):
            for _ in range(600):
                if one.status.releases == other.status.releases == UPDATES:
                    break
                await asyncio.sleep(0.05)
            assert one.name == "agent0"
            assert one.status.neighbors_up == 1
            assert one.status.releases == UPDATES
            assert one.released.shape == one.model.shape == (3,)
            assert set(one.predict(np.eye(3))) <= {-1.0, 1.0}
            before = one.model
            one.add_data(np.full((4, 3), -0.3), np.ones(4))
            assert not np.allclose(before, one.model)
        with pytest.raises(NetworkError, match="async with"):
            _ = one.model

    asyncio.run(program())


def test_the_program_in_the_document_runs(tmp_path, monkeypatch):
    page = (Path(__file__).resolve().parents[2] / "docs" / "network.md").read_text()
    [code] = re.findall(r"```python\n(import flockwise\.runtime.*?)```", page, flags=re.DOTALL)
    (folders(tmp_path, private=False, n_agents=4)[0].parents[1]).rename(tmp_path / "network-out")
    monkeypatch.chdir(tmp_path)
    names: dict = {"features": np.full((4, 3), -0.3), "targets": np.ones(4)}

    async def program():
        await eval(compile(code, "network.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)

    asyncio.run(program())
    assert set(names["labels"]) <= {-1.0, 1.0}
    path = tmp_path / "network-out" / "agents" / "agent3"
    with FolderWorld([path]) as again:
        np.testing.assert_array_equal(again["agent3"].samples.features[-4:], names["features"])


def test_the_folder_of_a_gateway_is_refused_as_an_agent(tmp_path):
    import flockwise.runtime
    from flockwise.deploy.setup import host_together

    folders(tmp_path, private=True)
    (gateway,) = host_together(tmp_path / "net", 1)

    async def program():
        async with flockwise.runtime.RealAgent(gateway):
            raise AssertionError("it must not start")

    with pytest.raises(NetworkError, match="gateway"):
        asyncio.run(program())


def test_the_package_has_no_other_names():
    import flockwise.runtime

    with pytest.raises(AttributeError, match="no attribute 'Agents'"):
        _ = flockwise.runtime.Agents  # pyright: ignore[reportAttributeAccessIssue]


def test_an_agent_with_a_ledger_does_not_run_without_its_gate(tmp_path):
    """Its samples are gone, but not those that were added: nothing of them may leave in the open."""
    folder = folders(tmp_path, private=True)[0]
    features, targets = AgentFolder.read(folder).samples()
    write_samples(folder / "data.npz", Samples(features[:0], targets[:0]))
    with pytest.raises(NetworkError, match="has a ledger, and no samples"):
        FolderWorld([folder]).start()
