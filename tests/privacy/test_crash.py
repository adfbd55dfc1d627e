"""Agents are killed at any moment and started again; a witness at the other end of a pipe sees what leaves.

Whatever happens: nothing leaves that is not in the ledger with the same bytes, so that no number ever has
two messages and never more is released than charged; the budget is kept; the ledger is never damaged;
and in the end everything that was paid for has been delivered.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pytest
from tests.privacy import nursery, witness, worker

from flockwise.errors import LedgerError
from flockwise.privacy.gate import check_entries
from flockwise.privacy.ledger import NAME, read_statement

pytestmark = [
    pytest.mark.privacy,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the nursery forks"),
]

REPOSITORY = Path(__file__).parents[2]
KILLED = -signal.SIGKILL
OUT_OF_TIME = -signal.SIGPROF
RANDOM_KILLS = 200
LINES_OF_A_FEW_RELEASES = 500


class Violation(AssertionError):
    """Something that must never happen."""


class Stage:
    """A witness, a nursery, and agents that live and die on it."""

    def __init__(self, folder: Path, resources: ExitStack) -> None:
        self._folder = folder
        self._agents = 0
        self._resources = resources
        to_witness, self._from_witness = self._program(witness)
        self._pipe = to_witness.fileno()
        self._to_nursery, self._from_nursery = self._program(nursery, pass_fds=[self._pipe])

    def _program(self, module, **options) -> tuple[IO[bytes], IO[bytes]]:
        program = subprocess.Popen(
            [sys.executable, "-m", module.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            **options,
        )
        self._resources.enter_context(program)
        assert program.stdin
        assert program.stdout
        return program.stdin, program.stdout

    def new_agent(self) -> int:
        self._agents += 1
        return self._agents

    def start(
        self,
        agent: int,
        *,
        updates: int,
        kill_at: int | None = None,
        kill_after: float | None = None,
        bug: str | None = None,
    ) -> int:
        return self._order(
            "start",
            {
                "agent": agent,
                "folder": str(self._of(agent)),
                "updates": updates,
                "pipe": self._pipe,
                "kill_at": kill_at,
                "kill_after": kill_after,
                "bug": bug,
            },
        )

    def wait(self, process: int) -> int:
        return self._order("wait", process)

    def live(self, agent: int, **options) -> int:
        return self.wait(self.start(agent, **options))

    def delivered(self, agent: int) -> dict[int, set[str]]:
        """The hashes under each number, of everything that has left the agent so far."""
        os.write(self._pipe, witness.question(agent))
        seen = json.loads(self._from_witness.readline())
        return {int(number): set(hashes) for number, hashes in seen.items()}

    def check(self, agent: int, updates: int) -> dict[int, set[str]]:
        """What was delivered, if it is in order."""
        delivered = self.delivered(agent)
        try:
            statement = read_statement(self._of(agent))
        except LedgerError as error:
            if delivered:
                raise Violation(f"agent {agent} has released, and its ledger is gone: {error}") from error
            return delivered
        if statement.problems:
            raise Violation(f"agent {agent}: the ledger is damaged: {statement.problems}")
        charged = {row.number: hashlib.sha256(row.payload or b"").hexdigest() for row in statement.rows}
        plan = worker.plan(updates)
        if len(charged) > updates or plan.epsilon_after(len(charged)) > worker.BUDGET.epsilon:
            raise Violation(f"agent {agent}: the budget is exceeded")
        try:
            check_entries(plan, str(agent), (row.entry() for row in statement.rows))
        except LedgerError as error:
            raise Violation(f"agent {agent}: something else was spent than was planned") from error
        if not delivered.keys() <= charged.keys():
            raise Violation(f"agent {agent}: released {set(delivered)}, charged only {set(charged)}")
        if any(len(hashes) > 1 for hashes in delivered.values()):
            raise Violation(f"agent {agent}: one number with several messages")
        if any(hashes != {charged[number]} for number, hashes in delivered.items()):
            raise Violation(f"agent {agent}: a message is not what the ledger says")
        return delivered

    def lose_log(self, agent: int) -> None:
        """Remove what a dead agent has left beside its ledger, as a cleanup might."""
        for suffix in ("-wal", "-shm"):
            (self._of(agent) / f"{NAME}{suffix}").unlink(missing_ok=True)

    def _of(self, agent: int) -> Path:
        return self._folder / str(agent)

    def _order(self, order: str, argument) -> int:
        self._to_nursery.write(json.dumps({order: argument}).encode() + b"\n")
        self._to_nursery.flush()
        return int(self._from_nursery.readline())


@pytest.fixture(scope="module")
def stage():
    """In memory where the system allows: what a killed process has written survives it without a disk."""
    memory = Path("/dev/shm")
    with ExitStack() as resources:
        folder = resources.enter_context(TemporaryDirectory(dir=memory if memory.is_dir() else None))
        yield Stage(Path(folder), resources)


def kill_at_every_line(
    stage: Stage, *, updates: int, bug: str | None = None, after_death: Callable[[int], None] = lambda _: None
) -> int:
    """Kill an agent before its first line of code, the next one before its second, and so on; each twice.

    The second death is in the life after the first, on the way through the ledger that it finds.
    after_death: what becomes of a dead agent's files. Returns how many lines there are.
    """
    line = 0
    while True:
        line += 1
        agent = stage.new_agent()
        first = stage.live(agent, updates=updates, kill_at=line, bug=bug)
        after_death(agent)
        stage.check(agent, updates)
        second = stage.live(agent, updates=updates, kill_at=line, bug=bug)
        after_death(agent)
        stage.check(agent, updates)
        if stage.live(agent, updates=updates, bug=bug) != 0:
            raise Violation(f"agent {agent} cannot live on after it was killed at line {line}")
        if stage.check(agent, updates).keys() != set(range(1, updates + 1)):
            raise Violation(f"agent {agent} has not delivered what it paid for")
        assert {first, second} <= {KILLED, 0}
        if first == 0:
            return line - 1


def kill_at_random(stage: Stage, kills: int, *, updates: int, seed: int) -> tuple[int, int]:
    """Let agents compute for random times until so many were killed; (releases, agents) at the end."""
    randomness = random.Random(seed)
    agents = [stage.new_agent()]
    while kills:
        # Not 0: that would never end it.
        ended = stage.live(agents[-1], updates=updates, kill_after=randomness.uniform(1e-6, 0.015))
        assert ended in (0, OUT_OF_TIME)
        delivered = stage.check(agents[-1], updates)
        kills -= ended == OUT_OF_TIME
        if len(delivered) == updates:
            agents.append(stage.new_agent())
    for agent in agents:
        assert stage.live(agent, updates=updates) == 0
        assert stage.check(agent, updates).keys() == set(range(1, updates + 1))
    return updates * len(agents), len(agents)


def live_two_at_once(stage: Stage, times: int, *, updates: int, bug: str | None = None) -> list[int]:
    """Start two processes of an agent together that has released before, again and again; how they ended."""
    ends = []
    for _ in range(times):
        agent = stage.new_agent()
        assert stage.live(agent, updates=updates, kill_at=LINES_OF_A_FEW_RELEASES) == KILLED
        assert stage.check(agent, updates)
        both = [stage.start(agent, updates=updates, bug=bug) for _ in range(2)]
        ends += [stage.wait(process) for process in both]
        stage.check(agent, updates)
    return ends


def test_killed_at_every_step_of_a_release_once_plan_each_agent_delivers_exactly_one_release(stage):
    lines = kill_at_every_line(stage, updates=1)
    assert lines > 150  # all of opening, granting, clipping, noise, charging and sending was stepped through


def test_killed_at_every_step_of_three_releases(stage):
    assert kill_at_every_line(stage, updates=3) > 300


def test_killed_at_every_step_and_then_robbed_of_the_log(stage):
    """What has left is in the ledger's file itself; only what has not may be lost with the log."""
    assert kill_at_every_line(stage, updates=2, after_death=stage.lose_log) > 200


def test_a_log_that_is_not_emptied_is_found(stage):
    with pytest.raises(Violation, match=r"charged only|its ledger is gone"):
        kill_at_every_line(stage, updates=1, bug="log is kept", after_death=stage.lose_log)


def test_forks_of_one_process_draw_noise_of_their_own(stage):
    """A generator copied by the fork would give agents with the same data the same release."""
    agents = [stage.new_agent() for _ in range(5)]
    assert all(stage.live(agent, updates=1) == 0 for agent in agents)
    hashes = set.union(*(stage.check(agent, 1)[1] for agent in agents))
    assert len(hashes) == len(agents)


def test_two_hundred_kills_at_random_moments(stage):
    releases, agents = kill_at_random(stage, RANDOM_KILLS, updates=40, seed=0)
    assert releases > RANDOM_KILLS / 4, "the lives were too short to test anything"
    assert agents >= 2


def test_of_two_processes_one_is_refused(stage):
    ends = live_two_at_once(stage, 20, updates=30)
    assert set(ends) == {0, worker.LEDGER_IN_USE}


def test_without_the_lock_a_second_writer_is_still_refused(stage):
    """The lock is not all there is: an entry is added only to the chain that its writer has seen."""
    ends = live_two_at_once(stage, 20, updates=30, bug="no lock")
    assert 1 in ends


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("charge after send", "charged only"),
        ("redraw after crash", "several messages|not what the ledger says"),
    ],
)
def test_the_mistake_is_found(stage, bug, found):
    with pytest.raises(Violation, match=found):
        kill_at_every_line(stage, updates=1, bug=bug)


def test_a_missing_lock_is_found(stage):
    with pytest.raises(Violation, match=r"several messages|damaged|not what the ledger says"):
        live_two_at_once(stage, 20, updates=30, bug="no lock at all")
