"""Growing data in an agent's own folder, with its real ledgers, stores and secure noise.

Whatever comes, and whenever its process dies, no sample pays more than the budget.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import pytest
from tests.network.paying import PaidTooMuch, costs, record
from tests.network.world import FolderWorld, make_folders

from flockwise.data import Samples
from flockwise.data.samples import joined
from flockwise.deploy.folder import AgentFolder, OwnBudget
from flockwise.deploy.settings import NetworkSettings
from flockwise.errors import LedgerError, PrivacyError
from flockwise.graph import complete_graph
from flockwise.net.store import FileStore
from flockwise.objective import Objective
from flockwise.privacy.ledger import NAME, Ledger, read_statement
from flockwise.runtime.overview import promise_in
from flockwise.runtime.releases import BatchReleases
from flockwise.runtime.testing import ManualTime

Growth: TypeAlias = Literal["one_budget", "batches"]

CLIP, UPDATES, FIRST = 0.8, 3, 4
FEW, MANY = 8, 50  # schedules
STEPS = 14
DESCRIPTORS = Path("/proc/self/fd")
LONG = 60.0  # seconds of simulated time: all releases that there can be are made


class Killed(BaseException):
    """The end of a process, wherever it is."""


def budget(growth: Growth = "one_budget", mechanism="gaussian"):
    return OwnBudget(epsilon=1.0, delta=1e-4, updates=UPDATES, clip=CLIP, growth=growth, mechanism=mechanism)


def samples(count, first, sign=1):
    """Each with a first feature of its own; those of the neighbor are negative."""
    marks = sign * (1 + first + np.arange(count)) / 1000
    targets = np.where(np.arange(count) % 2, 1.0, -1.0)
    return Samples(np.stack([marks, np.full(count, 0.5)], axis=1), targets)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """A new network of two agents by what they pay growth from, and with which noise."""

    def make(growth, mechanism):
        folder = tmp_path_factory.mktemp("networks") / "net"
        own = budget(growth, mechanism)
        objective = Objective(tradeoff=2.0, max_samples=8, feature_bound=1.0)
        settings = NetworkSettings(objective, "dp", updates=UPDATES)
        first = [samples(FIRST, 0), samples(3, 0, sign=-1)]
        return make_folders(folder, settings, complete_graph(2), first, own)

    made = {}

    def find(growth: Growth, mechanism="gaussian"):
        if (growth, mechanism) not in made:
            made[growth, mechanism] = make(growth, mechanism)
        return made[growth, mechanism]

    return find


def copied(paths, folder):
    return [shutil.copytree(path, folder / path.name) for path in paths]


def ledgers(path):
    """The entries of an agent's ledgers, in the order of its batches."""
    folders = [path / "state", *sorted((path / "state").glob("batch*"), key=lambda one: int(one.name[5:]))]
    statements = [read_statement(folder) for folder in folders]
    assert not any(statement.problems for statement in statements)
    return [[row.entry() for row in statement.rows] for statement in statements]


class Schedule:
    """What happens to the first agent of a pair, by chance; its neighbor listens."""

    def __init__(self, paths, seed):
        self.paths, self.chance = paths, random.Random(seed)
        self.time, self.count, self.arrivals = ManualTime(), FIRST, 0
        self.begin()

    def begin(self):
        self.world = FolderWorld(self.paths, time=self.time)
        self.world.start()

    @property
    def agent(self):
        return self.world[0]

    def go(self, steps):
        for _ in range(steps):
            self.chance.choice([self.tick, self.tick, self.tick, self.add, self.restart, self.die])()

    def tick(self):
        self.world.run(self.chance.choice([0.1, 0.4, 1.0]))

    def add(self):
        size = self.chance.randrange(1, 6)
        arriving = samples(size, self.count)
        self.count += size
        with pytest.MonkeyPatch.context() as patch:
            if self.chance.random() < 0.3:
                self._cut(patch)
            try:
                self.agent.add_data(*arriving)
                self.arrivals += 1
            except Killed:
                self.again()

    def _cut(self, patch):
        """The process ends before the samples are on disk, or right after."""
        is_late, write = self.chance.random() < 0.5, FileStore.add_batch

        def cut(store, batch):
            if is_late:
                write(store, batch)
                self.arrivals += 1
            raise Killed

        patch.setattr(FileStore, "add_batch", cut)

    def restart(self):
        self.world.stop()
        self.begin()

    def die(self):
        """At its next release: it is charged for, and nobody hears of it before the next schedule."""
        if self.chance.random() < 0.5:

            def killed(sender, data):
                raise Killed

            self.world.network.publish = killed
            with suppress(Killed):
                self.world.run(2.0)
        self.again()

    def again(self):
        self.world.kill()
        self.begin()

    def end(self):
        """Let it say all that it has to say, and check what both agents make of it."""
        self.world.run(LONG)
        node, neighbor = self.agent.node, self.world[1]
        assert node.obstacle is None
        assert neighbor.node.intake.last_number("agent0") == node.sent.number
        assert not neighbor.node.intake.dropped.keys() & {"equivocation", "bad_signature", "wrong_dimension"}
        assert self.agent.gates is not None
        spent = self.agent.gates.epsilon_spent
        self.world.stop()
        return spent


def assert_nobody_pays_too_much(paths, seed, growth, mechanism):
    with pytest.MonkeyPatch.context() as patch:
        used = record(patch)
        schedule = Schedule(paths, seed)
        schedule.go(STEPS)
        spent = schedule.end()
    own = budget(growth, mechanism)
    mine = [marks for marks in used if marks[0] > 0]
    entries = ledgers(paths[0])
    events = [entry.event for ledger in entries for entry in ledger]
    paid = costs(mine, events, own.plan().accountant, own.budget, CLIP)
    # What the status says is what the sample has paid that has paid most.
    assert spent == pytest.approx(max(paid.values()))
    assert spent == pytest.approx(own.epsilon, rel=1e-6)
    if growth == "one_budget":
        assert [len(ledger) for ledger in entries] == [UPDATES]
    else:
        n_batches = 1 + schedule.arrivals
        assert [len(ledger) for ledger in entries[:n_batches]] == [UPDATES] * n_batches
        assert not any(entries[n_batches:])  # a ledger whose batch never came to be


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_no_sample_pays_more_than_the_budget(networks, tmp_path, growth):
    for seed in range(FEW):
        paths = copied(networks(growth), tmp_path / str(seed))
        assert_nobody_pays_too_much(paths, seed, growth, "gaussian")


@pytest.mark.network
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_no_sample_pays_more_than_the_budget_in_many_schedules(networks, tmp_path, growth, mechanism):
    for seed in range(FEW, FEW + MANY):
        paths = copied(networks(growth, mechanism), tmp_path / str(seed))
        assert_nobody_pays_too_much(paths, seed, growth, mechanism)


def test_a_sample_that_pays_from_two_budgets_would_be_noticed(networks, tmp_path, monkeypatch):
    of_present = BatchReleases._of_present

    def of_oldest(releases):
        """As many samples as there should be, and not those: no gate can tell."""
        batches, place = releases._batches, releases._gates.place
        size, together = len(batches[place].targets), joined(batches)
        oldest = Samples(together.features[:size], together.targets[:size])
        releases._batches = [*batches[:place], oldest, *batches[place + 1 :]]
        try:
            return of_present(releases)
        finally:
            releases._batches = batches

    monkeypatch.setattr(BatchReleases, "_of_present", of_oldest)
    found = 0
    for seed in range(FEW):
        paths = copied(networks("batches"), tmp_path / str(seed))
        try:
            assert_nobody_pays_too_much(paths, seed, "batches", "gaussian")
        except PaidTooMuch:
            found += 1
    assert found > 0


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_an_agent_cannot_change_how_it_pays_for_growth(networks, tmp_path, growth):
    """Else samples that all paid from one budget would get another one each, or the other way round."""
    paths = copied(networks(growth), tmp_path)
    with FolderWorld(paths) as world:
        world[0].add_data(*samples(2, FIRST))
        world.run(1.0)
    file = paths[0] / "agent.toml"
    other = "batches" if growth == "one_budget" else "one_budget"
    file.write_text(file.read_text().replace(f'growth = "{growth}"', f'growth = "{other}"'))
    assert AgentFolder.read(paths[0]).settings.privacy == budget(other)
    with pytest.raises(LedgerError, match="stays as it was when samples were added"):
        FolderWorld(paths).start()


def test_an_agent_whose_ledger_of_a_batch_is_gone_does_not_start(networks, tmp_path):
    paths = copied(networks("batches"), tmp_path)
    with FolderWorld(paths) as world:
        world.run(LONG)
        world[0].add_data(*samples(2, FIRST))
        world.run(LONG)
        assert world[0].node.releases == 2 * UPDATES
    (paths[0] / "state" / "batch1" / NAME).unlink()
    with pytest.raises(LedgerError, match="no ledger"):
        FolderWorld(paths).start()


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_an_agent_that_lost_its_first_samples_and_its_ledger_does_not_send_the_others(
    networks, tmp_path, growth
):
    paths = copied(networks(growth), tmp_path)
    with FolderWorld(paths) as world:
        world[0].add_data(*samples(2, FIRST))
    (paths[0] / "state" / NAME).unlink()
    data = paths[0] / AgentFolder.read(paths[0]).settings.data
    np.savez(data, features=np.zeros((0, 2)), targets=np.zeros(0))
    with pytest.raises(PrivacyError, match=r"'agent0'.*give them back"):
        FolderWorld(paths).start()


def test_an_old_copy_of_a_batchs_ledger_releases_nothing(networks, tmp_path):
    paths = copied(networks("batches"), tmp_path)
    with FolderWorld(paths) as world:
        world.run(LONG)
        world[0].add_data(*samples(2, FIRST))
    state = paths[0] / "state"
    Ledger.open(state / "batch1", "agent0").close()
    shutil.copytree(state / "batch1", tmp_path / "backup")
    with FolderWorld(paths) as world:
        world.run(LONG)
    shutil.rmtree(state / "batch1")
    shutil.copytree(tmp_path / "backup", state / "batch1")
    with FolderWorld(paths) as world:
        world.run(LONG)
        assert world[0].node.obstacle == "behind"
    assert [len(ledger) for ledger in ledgers(paths[0])] == [UPDATES, 0]


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="what is open can be seen in /proc alone")
def test_more_batches_do_not_open_more_files(networks, tmp_path):
    paths = copied(networks("batches"), tmp_path)
    with FolderWorld(paths) as world:
        opened = []
        for count in range(4):
            world.run(LONG)
            opened.append(len(list(DESCRIPTORS.iterdir())))
            world[0].add_data(*samples(2, FIRST + 2 * count))
    assert len(set(opened)) == 1
    with FolderWorld(paths) as world:
        world.run(LONG)
        assert world[0].node.releases == 5 * UPDATES
        assert len(list(DESCRIPTORS.iterdir())) == opened[0]


def test_added_samples_are_for_the_owners_eyes_alone(networks, tmp_path):
    paths = copied(networks("batches"), tmp_path)
    with FolderWorld(paths) as world:
        world[0].add_data(*samples(2, FIRST))
        files = [path for path in (paths[0] / "state").iterdir() if path.name.startswith("state.sqlite")]
        assert len(files) >= 2  # the log of the database too
        assert [path.stat().st_mode & 0o077 for path in files] == [0] * len(files)


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_agents_say_what_they_guarantee(networks, growth):
    words = promise_in(networks(growth)[0].parents[1])
    assert "(ε = 1, δ = 0.0001) differential privacy" in words
    assert "how many samples arrive, and when" in words
    assert "one sample of one agent is replaced by any other" in words
    assert "secure discrete Gaussian noise" in words
    assert "zcdp" in words
    assert ("budget of their own" in words) == (growth == "batches")


def test_a_program_gives_an_agent_samples_with_a_budget_of_their_own(networks, tmp_path):
    """Over real sockets, with a restart while the second batch is being released from."""
    import flockwise.runtime

    paths = copied(networks("batches"), tmp_path)

    async def releases(agent, count):
        for _ in range(600):
            if agent.status.releases >= count:
                break
            await asyncio.sleep(0.05)
        assert agent.status.releases >= count
        assert agent.status.epsilon_spent <= agent.status.epsilon_total == 1.0

    async def program():
        async with flockwise.runtime.RealAgent(paths[1]):
            async with flockwise.runtime.RealAgent(paths[0]) as agent:
                await releases(agent, UPDATES)
                agent.add_data(*samples(5, FIRST))
                await releases(agent, UPDATES + 1)
                assert "how many samples arrive, and when" in agent.guarantee
            async with flockwise.runtime.RealAgent(paths[0]) as agent:
                await releases(agent, 2 * UPDATES)
                agent.add_data(*samples(1, FIRST + 5))
                await releases(agent, 3 * UPDATES)
                assert agent.status.obstacle is None

    asyncio.run(program())
    entries = ledgers(paths[0])
    assert [len(ledger) for ledger in entries] == [UPDATES] * 3
    assert [2 * CLIP / ledger[0].event.sensitivity for ledger in entries] == pytest.approx([FIRST, 5, 1])
