"""The attack on floating-point noise: which outputs could not have come from one of the two data sets?

A sampler that computes with floating-point numbers turns random words into noise, and so gives only some
of all numbers. An attacker who knows the sampler asks of every output which noise either data set
would need, and whether any word gives it (Mironov, CCS 2012; Jin et al., IEEE S&P 2022). An output that
is impossible on one data set reveals the other, whatever ε is claimed. The integer noise of real agents
(flockwise.privacy.noise) can be any integer on either data set, so that the attack has to come to nothing.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.audit import samplers
from flockwise.privacy.audit.bounds import Scores
from flockwise.privacy.audit.gate import (
    CLIP,
    NoiseSource,
    NoNoise,
    Points,
    audited_events,
    opposite_points,
    released,
    secure,
)
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.plan import Plan

# NumPy's normal numbers are left out: they come of 256 overlapping sets of words, nearly every number.
KNOWN_SAMPLERS = {
    "laplace": (samplers.numpy_laplace_misfits, samplers.philox_laplace_misfits),
    "gaussian": (samplers.philox_gaussian_misfits,),
}


@dataclass(frozen=True, eq=False)
class SupportAttack:
    """A real agent, with a ledger on disk. Each of its releases is a run and claims the budget by itself.

    The score counts what is impossible on the first data set, less what is impossible on the second.
    """

    name: str
    mechanism: str
    budget: Budget
    accountant: str
    runs: int
    direction: Points
    noise: NoiseSource = secure
    updates: int = 1

    def scores(self, runs: int, seed: int) -> Scores:
        plan = Plan.fitting(self.budget, self.mechanism, 1, accountant=self.accountant, on_grid=True)
        return Scores(
            *(
                self._misfits(plan, output, 0) - self._misfits(plan, output, 1)
                for output in (self._releases(plan, which, runs, seed) for which in range(2))
            )
        )

    def _releases(self, plan: Plan, which: int, runs: int, seed: int) -> NDArray[np.float64]:
        rows = Rows.of(opposite_points(self.direction)[which], CLIP)
        with tempfile.TemporaryDirectory() as folder, Ledger.create(folder, "audited") as ledger:
            gate = Gate(_repeated(plan, runs), ledger, self.noise(seed, which))
            return np.array([gate.release(rows).vector for _ in range(runs)])

    def _misfits(self, plan: Plan, output: NDArray[np.float64], which: int) -> NDArray[np.float64]:
        points = opposite_points(self.direction)[which]
        center = released(plan, points, NoNoise())[0]
        # In steps of the grid, as the noise was drawn: a power of two, so that no digit changes.
        (event,) = audited_events(plan)
        grid = event.grid or 1.0
        steps = output / grid, center / grid, event.scale / grid
        return np.sum([misfits(*steps) for misfits in KNOWN_SAMPLERS[self.mechanism]], axis=0)


def _repeated(plan: Plan, runs: int) -> Plan:
    """The one release of a plan many times over, with a budget for all of them."""
    multipliers = plan.multipliers * runs
    total = Budget(1e9, plan.budget.delta)
    return Plan(total, plan.mechanism, plan.accountant, multipliers, plan.on_grid)
