"""Growing data in an agent's own folder, with its real ledgers, stores and secure noise.

Whatever comes, and whenever its process dies, no point pays more than the budget.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.network.pairs import Pair, make_folders
from tests.network.paying import PaidTooMuch, costs, record

from flockwise.errors import LedgerError
from flockwise.net.folder import AgentFolder, OwnBudget
from flockwise.net.growth import GrowthName, MechanismName, joined
from flockwise.net.overview import promise_in
from flockwise.net.store import Batch, FileStore
from flockwise.net.time import ManualTime
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.ledger_file import NAME, read_statement

CLIP, UPDATES, FIRST = 0.8, 3, 4
FEW, MANY = 8, 50  # schedules
STEPS = 14
DESCRIPTORS = Path("/proc/self/fd")
LONG = 60.0  # seconds of simulated time: all releases that there can be are made


class Killed(BaseException):
    """The end of a process, wherever it is."""


def budget(growth: GrowthName = "one_budget", mechanism: MechanismName = "gaussian"):
    return OwnBudget(epsilon=1.0, delta=1e-4, updates=UPDATES, clip=CLIP, growth=growth, mechanism=mechanism)


def points(count, first, sign=1):
    """Each with a first feature of its own; those of the neighbor are negative."""
    marks = sign * (1 + first + np.arange(count)) / 1000
    return np.stack([marks, np.full(count, 0.5)], axis=1), np.where(np.arange(count) % 2, 1.0, -1.0)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """A new network of two agents by what they pay growth from, and with which noise."""

    def make(growth, mechanism):
        folder = tmp_path_factory.mktemp("networks") / "net"
        own = budget(growth, mechanism)
        return make_folders(folder, [points(FIRST, 0), points(3, 0, sign=-1)], own, updates=UPDATES)

    made = {}

    def find(growth: GrowthName, mechanism="gaussian"):
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


class Life:
    """The first agent of a pair lives through a schedule; its neighbor listens."""

    def __init__(self, paths, seed):
        self.paths, self.chance = paths, random.Random(seed)
        self.time, self.count, self.arrivals = ManualTime(), FIRST, 0
        self.pair = Pair(paths, self.time)

    @property
    def agent(self):
        return self.pair.residents[0]

    def go(self, steps):
        for _ in range(steps):
            self.chance.choice([self.tick, self.tick, self.tick, self.add, self.restart, self.die])()

    def tick(self):
        self.pair.run(self.chance.choice([0.1, 0.4, 1.0]))

    def add(self):
        size = self.chance.randrange(1, 6)
        assert self.agent.own is not None
        arriving = points(size, self.count)
        self.count += size
        with pytest.MonkeyPatch.context() as patch:
            if self.chance.random() < 0.3:
                self._cut(patch)
            try:
                self.agent.own.add_data(*arriving)
                self.arrivals += 1
            except Killed:
                self.again()

    def _cut(self, patch):
        """The process ends before the points are on disk, or right after."""
        is_late, write = self.chance.random() < 0.5, FileStore.add_batch

        def cut(store, batch):
            if is_late:
                write(store, batch)
                self.arrivals += 1
            raise Killed

        patch.setattr(FileStore, "add_batch", cut)

    def restart(self):
        self.pair.close()
        self.pair = Pair(self.paths, self.time)

    def die(self):
        """At its next release: it is charged for, and nobody hears of it before the next life."""
        if self.chance.random() < 0.5:

            def killed(sender, data):
                raise Killed

            self.pair.network.publish = killed
            with suppress(Killed):
                self.pair.run(2.0)
        self.again()

    def again(self):
        self.pair.die()
        self.pair = Pair(self.paths, self.time)

    def end(self):
        """Let it say all that it has to say, and check what both agents make of it."""
        self.pair.run(LONG)
        node, (_, neighbor) = self.agent.node, self.pair.residents
        assert node.obstacle is None
        assert neighbor.node.intake.last_number("agent0") == node.sent.number
        assert not neighbor.node.intake.dropped.keys() & {"equivocation", "bad_signature", "wrong_dimension"}
        assert self.agent.gate is not None
        spent = self.agent.gate.epsilon_spent
        self.pair.close()
        return spent


def assert_nobody_pays_too_much(paths, seed, growth, mechanism):
    with pytest.MonkeyPatch.context() as patch:
        used = record(patch)
        life = Life(paths, seed)
        life.go(STEPS)
        spent = life.end()
    own = budget(growth, mechanism)
    mine = [marks for marks in used if marks[0] > 0]
    entries = ledgers(paths[0])
    events = [entry.event for ledger in entries for entry in ledger]
    paid = costs(mine, events, own.meter.accountant, own.budget, CLIP)
    # What the status says is what the point has paid that has paid most.
    assert spent == pytest.approx(max(paid.values()))
    assert spent == pytest.approx(own.epsilon, rel=1e-6)
    if growth == "one_budget":
        assert [len(ledger) for ledger in entries] == [UPDATES]
    else:
        assert [len(ledger) for ledger in entries[: 1 + life.arrivals]] == [UPDATES] * (1 + life.arrivals)
        assert not any(entries[1 + life.arrivals :])  # a ledger whose batch never came to be


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_no_point_pays_more_than_the_budget(networks, tmp_path, growth):
    for seed in range(FEW):
        paths = copied(networks(growth), tmp_path / str(seed))
        assert_nobody_pays_too_much(paths, seed, growth, "gaussian")


@pytest.mark.network
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_no_point_pays_more_than_the_budget_in_many_schedules(networks, tmp_path, growth, mechanism):
    for seed in range(FEW, FEW + MANY):
        paths = copied(networks(growth, mechanism), tmp_path / str(seed))
        assert_nobody_pays_too_much(paths, seed, growth, mechanism)


def test_a_point_that_pays_from_two_budgets_would_be_noticed(networks, tmp_path, monkeypatch):
    def oldest(gates):
        """As many points as there should be, and not those: no gate can tell."""
        size, together = len(gates.batches[len(gates._opened) - 1].targets), joined(gates.batches)
        return Batch(together.features[:size], together.targets[:size])

    monkeypatch.setattr("flockwise.net.batches.BatchGates.batch", property(oldest))
    found = 0
    for seed in range(FEW):
        paths = copied(networks("batches"), tmp_path / str(seed))
        try:
            assert_nobody_pays_too_much(paths, seed, "batches", "gaussian")
        except PaidTooMuch:
            found += 1
    assert found > 0


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_how_growth_is_paid_for_stays_as_it_was(networks, tmp_path, growth):
    """Else points that all paid from one budget would get another one each, or the other way round."""
    paths = copied(networks(growth), tmp_path)
    with Pair(paths) as pair:
        assert pair.residents[0].own is not None
        pair.residents[0].own.add_data(*points(2, FIRST))
        pair.run(1.0)
    file = paths[0] / "agent.toml"
    other = "batches" if growth == "one_budget" else "one_budget"
    file.write_text(file.read_text().replace(f'growth = "{growth}"', f'growth = "{other}"'))
    assert AgentFolder.read(paths[0]).settings.privacy == budget(other)
    with pytest.raises(LedgerError, match="granted"):
        Pair(paths)


def test_an_agent_whose_ledger_of_a_batch_is_gone_does_not_start(networks, tmp_path):
    paths = copied(networks("batches"), tmp_path)
    with Pair(paths) as pair:
        pair.run(LONG)
        assert pair.residents[0].own is not None
        pair.residents[0].own.add_data(*points(2, FIRST))
        pair.run(LONG)
        assert pair.residents[0].node.releases == 2 * UPDATES
    (paths[0] / "state" / "batch1" / NAME).unlink()
    with pytest.raises(LedgerError, match="no ledger"):
        Pair(paths)


def test_an_old_copy_of_a_batchs_ledger_releases_nothing(networks, tmp_path):
    paths = copied(networks("batches"), tmp_path)
    with Pair(paths) as pair:
        pair.run(LONG)
        assert pair.residents[0].own is not None
        pair.residents[0].own.add_data(*points(2, FIRST))
    state = paths[0] / "state"
    Ledger.open(state / "batch1", "agent0").close()
    shutil.copytree(state / "batch1", tmp_path / "backup")
    with Pair(paths) as pair:
        pair.run(LONG)
    shutil.rmtree(state / "batch1")
    shutil.copytree(tmp_path / "backup", state / "batch1")
    with Pair(paths) as pair:
        pair.run(LONG)
        assert pair.residents[0].node.obstacle == "behind"
    assert [len(ledger) for ledger in ledgers(paths[0])] == [UPDATES, 0]


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="what is open can be seen in /proc alone")
def test_however_many_batches_come_as_many_files_are_open(networks, tmp_path):
    paths = copied(networks("batches"), tmp_path)
    with Pair(paths) as pair:
        opened = []
        for count in range(4):
            pair.run(LONG)
            opened.append(len(list(DESCRIPTORS.iterdir())))
            assert pair.residents[0].own is not None
            pair.residents[0].own.add_data(*points(2, FIRST + 2 * count))
    assert len(set(opened)) == 1
    with Pair(paths) as pair:
        pair.run(LONG)
        assert pair.residents[0].node.releases == 5 * UPDATES
        assert len(list(DESCRIPTORS.iterdir())) == opened[0]


def test_added_points_are_for_the_owners_eyes_alone(networks, tmp_path):
    paths = copied(networks("batches"), tmp_path)
    with Pair(paths) as pair:
        assert pair.residents[0].own is not None
        pair.residents[0].own.add_data(*points(2, FIRST))
        files = [path for path in (paths[0] / "state").iterdir() if path.name.startswith("state.sqlite")]
        assert len(files) >= 2  # the log of the database too
        assert [path.stat().st_mode & 0o077 for path in files] == [0] * len(files)


@pytest.mark.parametrize("growth", ["one_budget", "batches"])
def test_agents_say_what_they_guarantee(networks, growth):
    words = promise_in(networks(growth)[0].parents[1])
    assert "(ε = 1, δ = 0.0001) differential privacy" in words
    assert "how many points arrive, and when" in words
    assert "one sample of one agent is replaced by any other" in words
    assert "secure discrete Gaussian noise" in words
    assert "zcdp" in words
    assert ("budget of their own" in words) == (growth == "batches")


def test_a_program_gives_an_agent_points_with_a_budget_of_their_own(networks, tmp_path):
    """Over real sockets, with a restart while the second batch is being released from."""
    import flockwise.net

    paths = copied(networks("batches"), tmp_path)

    async def releases(agent, count):
        for _ in range(600):
            if agent.status.releases >= count:
                break
            await asyncio.sleep(0.05)
        assert agent.status.releases >= count
        assert agent.status.epsilon_spent <= agent.status.epsilon_total == 1.0

    async def program():
        async with flockwise.net.Agent(paths[1]):
            async with flockwise.net.Agent(paths[0]) as agent:
                await releases(agent, UPDATES)
                agent.add_data(*points(5, FIRST))
                await releases(agent, UPDATES + 1)
                assert "how many points arrive, and when" in agent.guarantee
            async with flockwise.net.Agent(paths[0]) as agent:
                await releases(agent, 2 * UPDATES)
                agent.add_data(*points(1, FIRST + 5))
                await releases(agent, 3 * UPDATES)
                assert agent.status.obstacle is None

    asyncio.run(program())
    entries = ledgers(paths[0])
    assert [len(ledger) for ledger in entries] == [UPDATES] * 3
    assert [2 * CLIP / ledger[0].event.sensitivity for ledger in entries] == pytest.approx([FIRST, 5, 1])
