"""What agents released once: noisy vectors, how noisy they are, and what they paid for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import PrivacyError
from flockwise.objective import Problem
from flockwise.privacy.accounting import calibrate
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import Guarantee, spans
from flockwise.privacy.mechanisms import Gaussian
from flockwise.privacy.real_noise import real_event
from flockwise.randomness.noise import normals

Budgets: TypeAlias = tuple[Budget, ...]

# The number of an agent's first release, as its gate counts them: its place in the streams of noise.
FIRST_RELEASE = 1


@dataclass(frozen=True, eq=False)
class Released:
    """One vector per agent, safe to be seen by anyone; nothing here but `vectors` depends on data.

    noise_variances: of the noise in one coordinate, infinite for an agent without points: it releases
        nothing, and its row is 0.
    sampling_variances: a public bound, on average over coordinates, of how much the vector would vary
        with other points of the same kind.
    events: what a gate has to add to make each agent's release; None for an agent without points.
    """

    vectors: NDArray[np.float64]
    noise_variances: NDArray[np.float64]
    sampling_variances: NDArray[np.float64]
    events: tuple[Gaussian | None, ...]

    @property
    def variances(self) -> NDArray[np.float64]:
        """s_i² of one coordinate: noise and sampling."""
        return self.noise_variances + self.sampling_variances


def budget_of_each(problem: Problem, budgets: Budget | Sequence[Budget]) -> Budgets:
    """One budget per agent, from one for all or one each."""
    if isinstance(budgets, Budget):
        return (budgets,) * problem.n_agents
    each = tuple(budgets)
    if len(each) != problem.n_agents:
        raise PrivacyError(f"{len(each)} budgets for {problem.n_agents} agents; give one for all or one each")
    return each


def whole_budget(budgets: Budgets) -> NDArray[np.float64]:
    """Noise multipliers that spend each agent's whole budget at once; one calibration per distinct budget."""
    multipliers = {budget: release_multiplier(budget) for budget in set(budgets)}
    return np.array([multipliers[budget] for budget in budgets])


def released_with_noise(
    vectors: NDArray[np.float64],
    counts: NDArray[np.int64],
    sensitivities: NDArray[np.float64],
    multipliers: NDArray[np.float64],
    noise_seed: int,
) -> Released:
    """Adds normal noise to each agent's vector; simulated, so that the seed can subtract it again.

    The sampling variance is bounded by that of m_i independent terms of which each moves the vector
    by at most half of the sensitivity Δ_i: m_i·Δ_i²/4 in all coordinates together.
    """
    has_points = counts > 0
    dimension = vectors.shape[1]
    scales = multipliers * sensitivities
    events = (Gaussian(*pair) for pair in zip(sensitivities.tolist(), scales.tolist(), strict=True))
    noise = scales[:, None] * release_normals(noise_seed, *vectors.shape)
    return Released(
        np.where(has_points[:, None], vectors + noise, 0.0),
        np.where(has_points, scales**2, np.inf),
        counts * sensitivities**2 / (4 * dimension),
        tuple(event if count else None for event, count in zip(events, counts, strict=True)),
    )


def release_normals(noise_seed: int, n_agents: int, dimension: int) -> NDArray[np.float64]:
    """Standard normals for everyone's one release, from the agents' own streams."""
    draws = np.empty((n_agents, dimension))
    for agent in range(n_agents):
        normals(noise_seed, agent, FIRST_RELEASE, draws[agent])
    return draws


def release_multiplier(budget: Budget) -> float:
    """Standard deviation of the normal noise that makes one release of sensitivity 1 spend the budget."""
    if budget.delta == 0:
        raise PrivacyError(
            f"normal noise needs delta > 0, got epsilon={budget.epsilon!r}, delta=0; "
            "give a delta (default_delta says which)"
        )
    (event,) = calibrate(budget, Gaussian(1.0, 1.0), "gdp", updates=1)
    return event.multiplier


def one_release(
    problem: Problem, budgets: Budgets, mechanism: str, accountant: str, *, is_gaussian: bool = True
) -> Guarantee:
    """What holds for agents that release once and post-process; a graph from private data is a leak.

    is_gaussian: normal noise on a vector, whose size is stated, here and for a real agent; a tilted
    objective has no such noise.
    """
    least = min(budgets, key=lambda budget: budget.epsilon)
    simulated = Gaussian(1.0, release_multiplier(least)) if is_gaussian else None
    real = None if simulated is None else real_event(least, simulated, [1.0])
    epsilon, delta = spans(set(budgets))
    return Guarantee(
        mechanism=mechanism,
        accountant=accountant,
        epsilon=epsilon,
        delta=delta,
        leaks=problem.leaks,
        noise_multiplier=None if simulated is None else simulated.multiplier,
        real_multiplier=None if real is None else real.multiplier,
    )
