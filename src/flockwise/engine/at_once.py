"""Runs of rules without a clock: what is solved already, and conversations, which are one step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.engine.base import Judge, Result, Status, Sums
from flockwise.method.rules import Outcome, Solved, Traffic
from flockwise.randomness.clocks import NEVER


class RunAtOnce:
    """Finished when it starts: no tick, and everything sent that there was to send."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    @classmethod
    def solved(cls, rule: Solved) -> RunAtOnce:
        return cls(Outcome(rule.models, np.zeros(rule.n_agents, np.int64), Traffic.none()))

    def status(self, until: int) -> Status:
        return Status(True, 0, NEVER)

    def advance(self, until: int, max_sweeps: int = 2**62) -> Status:
        return self.status(until)

    def time_of_tick(self, left: int) -> int:
        return NEVER

    def measure(self, judge: Judge) -> Sums:
        return Sums.of(judge(self._outcome.models))

    def sent(self, until: int) -> tuple[int, int]:
        return self._outcome.traffic.all_vectors, self._outcome.traffic.all_bytes

    def result(self) -> Result:
        outcome = self._outcome
        by_stage = {"vectors_by_stage": outcome.traffic.vectors, "bytes_by_stage": outcome.traffic.bytes}
        settings = by_stage if outcome.traffic.vectors else {}
        return Result(outcome.models, outcome.rounds, outcome.details, settings)

    def state(self) -> dict[str, NDArray[Any]]:
        return {}
