"""What a real agent would add where a simulation draws real numbers: integer noise costs a little more."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from flockwise.privacy.accounting import calibrate
from flockwise.privacy.accounting.pld import LEAST_DELTA
from flockwise.privacy.budget import Budget
from flockwise.privacy.grid import grid_for_mean
from flockwise.privacy.mechanisms import Gaussian, Laplace, Mechanism

ACCOUNTANTS = {Gaussian: "zcdp", Laplace: "pld"}


def real_event(budget: Budget, simulated: Mechanism, costs: Sequence[float]) -> Mechanism | None:
    """The first event of a real agent's plan, for a sensitivity of 1; None if there is no integer version.

    On the grid normal noise is proven for zCDP alone, Laplace noise for its own discrete law.
    """
    if type(simulated) not in ACCOUNTANTS:
        return None
    unit = dataclasses.replace(simulated, sensitivity=1.0, scale=1.0, grid=grid_for_mean(1.0, 1))
    return calibrate(budget, unit, accountant_of(unit, budget), costs=tuple(costs))[0]


def accountant_of(event: Mechanism, budget: Budget) -> str:
    """The tightest that is proven for this kind of integer noise."""
    accountant = ACCOUNTANTS[type(event)]
    return "basic" if accountant == "pld" and budget.delta < LEAST_DELTA else accountant
