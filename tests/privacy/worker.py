"""One life of a real agent: open the ledger, send the last release again, go on until the plan is spent.

It may be told to kill itself before the n-th line of code that it runs, in Flockwise's privacy package or in
this file: so a test can end it at every boundary between two steps without a word of it in the package. Or
the system kills it once it has computed for so long: a busy machine makes its life longer, and not poorer.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from tests.privacy import bugs
from tests.privacy.witness import frame

import flockwise.privacy
from flockwise.errors import BudgetSpent, LedgerError
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import NAME, Ledger
from flockwise.privacy.noise import SecureNoise
from flockwise.privacy.plan import Plan

BUDGET = Budget(1.0, 1e-5)
SAMPLES, DIMENSION, CLIP = 10, 4, 1.0
LEDGER_IN_USE = 3

TRACED = (str(Path(flockwise.privacy.__file__).parent), __file__)


def plan(updates: int) -> Plan:
    return Plan.fitting(BUDGET, "gaussian", updates, accountant="zcdp", on_grid=True)


def live(
    agent: int,
    folder: str,
    updates: int,
    pipe: int,
    kill_at: int | None,
    kill_after: float | None,
    bug: str | None,
) -> int:
    """The code with which the life ends, if it is let.

    kill_after: the system ends it (SIGPROF) when it has had a processor for so many seconds.
    """
    mine = plan(updates)  # before the first line that counts: it is the same in every life
    if kill_at is not None:
        _die_at_line(kill_at)
    if kill_after is not None:
        signal.setitimer(signal.ITIMER_PROF, kill_after)
    try:
        _live(agent, folder, mine, pipe, bugs.BUGS[bug]())
    except LedgerError as error:
        if "in use by another process" in str(error):
            return LEDGER_IN_USE
        raise
    return 0


def _live(agent: int, folder: str, mine: Plan, pipe: int, bug: bugs.Bug) -> None:
    rows = Rows.of(np.random.default_rng(0).normal(size=(SAMPLES, DIMENSION)), CLIP)  # the same for all
    ledger = _ledger(Path(folder), str(agent))
    gate = Gate(mine, ledger, SecureNoise(), start=np.zeros(DIMENSION))
    last = gate.last_release()
    if last is not None:
        os.write(pipe, frame(agent, bug.payload_after_crash(last)))
    while True:
        try:
            gate.prepare(rows)
            release = gate.release(rows, lambda noisy, released: released - 0.1 * noisy)
        except BudgetSpent:
            ledger.close()
            return
        os.write(pipe, frame(agent, release.payload))
        bug.after_send()


def _ledger(folder: Path, agent: str) -> Ledger:
    """The agent's ledger; a new one if a crash came before it had any."""
    if (folder / NAME).is_file():
        try:
            return Ledger.open(folder, agent)
        except LedgerError as error:
            if "never finished" not in str(error):
                raise
    return Ledger.create(folder, agent)


def _die_at_line(kill_at: int) -> None:
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if event == "line":
            lines += 1
            if lines == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
