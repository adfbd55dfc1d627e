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

from flockwise.privacy.accounting import calibrate, composed_epsilon
from flockwise.privacy.audit import samplers
from flockwise.privacy.audit.bounds import Scores
from flockwise.privacy.audit.gate import CLIP, NoiseSource, NoNoise, Points, opposite_points, released, secure
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate
from flockwise.privacy.ledger import Ledger
from flockwise.privacy.mechanisms import Mechanism
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
    event: Mechanism
    budget: Budget
    accountant: str
    runs: int
    direction: Points
    noise: NoiseSource = secure
    updates: int = 1

    def scores(self, runs: int, seed: int) -> Scores:
        (event,) = calibrate(self.budget, self.event, self.accountant, updates=1)
        return Scores(
            *(
                self._misfits(event, output, 0) - self._misfits(event, output, 1)
                for output in (self._releases(event, which, runs, seed) for which in range(2))
            )
        )

    def _releases(self, event: Mechanism, which: int, runs: int, seed: int) -> NDArray[np.float64]:
        points = opposite_points(self.direction)[which]
        plan = self._plan((event,) * runs)
        with tempfile.TemporaryDirectory() as folder, Ledger.create(folder, "audited") as ledger:
            gate = Gate(plan, ledger, self.noise(seed, which))
            return np.array([gate.release_mean(points, CLIP).vector for _ in range(runs)])

    def _misfits(self, event: Mechanism, output: NDArray[np.float64], which: int) -> NDArray[np.float64]:
        points = opposite_points(self.direction)[which]
        centre = released(self._plan((event,)), points, NoNoise())[0]
        # In steps of the grid, as the noise was drawn: a power of two, so that no digit changes.
        grid = event.grid or 1.0
        steps = output / grid, centre / grid, event.scale / grid
        return np.sum([misfits(*steps) for misfits in KNOWN_SAMPLERS[event.name]], axis=0)

    def _plan(self, events: tuple[Mechanism, ...]) -> Plan:
        total = composed_epsilon(self.accountant, events, self.budget.delta)
        return Plan(Budget(total, self.budget.delta), self.accountant, events)
