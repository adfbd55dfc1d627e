"""What may be released of one agent's samples, and what all agents released of theirs.

A statistic is rows with a bound, or a vector with a sensitivity. The same one feeds the gate of a real agent
(`of`), all simulated gates at once (`release`), and the audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flockwise.data.samples import Samples
from flockwise.errors import PrivacyError
from flockwise.objective import Loss, Objective, Problem
from flockwise.privacy.budget import Budgets
from flockwise.privacy.gate import Bounded, Rows
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.privacy.plan import Plan
from flockwise.privacy.schedule import Schedule
from flockwise.registry import Registry

# The number of an agent's first release, as its gate counts them: its place in the streams of noise.
FIRST_RELEASE = 1


class Misfit(NamedTuple):
    """A setting that does not fit the others: where it stands in a configuration, and what to do."""

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class Statistic(Protocol):
    """A frozen dataclass; its fields are keys of [method] in a configuration, each with a default.

    mechanism: the noise that it is released with. words: what a guarantee calls that.
    bounded_by_loss: whether its sensitivity follows from the bounds that the loss states.
    """

    name: ClassVar[str]
    mechanism: ClassVar[str]
    words: ClassVar[str]
    bounded_by_loss: ClassVar[bool]

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        """Why it cannot be released under this objective."""
        ...

    def of(self, samples: Samples, objective: Objective, at: NDArray[Any] | None = None) -> Rows | Bounded:
        """What one agent's gate is given; `at`: a public point, for statistics that depend on one."""
        ...

    def release(self, problem: Problem, budgets: Budgets, seed: int) -> Released:
        """What all agents release for their whole budgets, each with noise from its own stream."""
        ...

    def signal_power(self, dimension: int) -> float | None:
        """‖t‖² of what is released if that is known beforehand; None has it measured."""
        ...


STATISTICS: Registry[type[Any]] = Registry("statistic", PrivacyError)


@dataclass(frozen=True, eq=False)
class Released:
    """One vector per agent, safe to be seen by anyone; nothing here but `vectors` depends on data.

    noise_variances: of the noise in one coordinate, infinite for an agent without samples: it releases
        nothing, and its row is 0.
    sampling_variances: a public bound, on average over coordinates, of how much the vector would vary
        with other samples of the same kind.
    plan: of the least budget, whose noise a guarantee states; None if the noise is not on the vector.
    accountant: what composed it.
    l2: λ of what was minimized, if these are models; they are shorter for it.
    """

    vectors: NDArray[np.float64]
    noise_variances: NDArray[np.float64]
    sampling_variances: NDArray[np.float64]
    plan: Plan | None
    accountant: str
    l2: float | None = None

    @property
    def variances(self) -> NDArray[np.float64]:
        """s_i² of one coordinate: noise and sampling."""
        return self.noise_variances + self.sampling_variances


def declaring_parts(statistic: Statistic, loss: Loss) -> Iterator[Any]:
    """All parts by whose word its sensitivity holds."""
    yield from (statistic, MECHANISMS[statistic.mechanism])
    if statistic.bounded_by_loss:
        yield loss


def check_fits(statistic: Statistic, objective: Objective) -> None:
    """Refuse an objective under which it cannot be released, with the first reason."""
    for misfit in statistic.misfits(objective):
        raise PrivacyError(str(misfit))


def release_once(
    statistic: Statistic,
    vectors: NDArray[np.float64],
    counts: NDArray[np.int64],
    sensitivities: NDArray[np.float64],
    budgets: Budgets,
    seed: int,
) -> Released:
    """Every agent's vector with noise that spends its whole budget; the seed can subtract it again."""
    schedule = Schedule.fitting(budgets, len(vectors), statistic.mechanism, 1)
    return release_first(schedule, vectors, counts, sensitivities, seed)


def release_first(
    schedule: Schedule,
    vectors: NDArray[np.float64],
    counts: NDArray[np.int64],
    sensitivities: NDArray[np.float64],
    seed: int,
    lengths: NDArray[np.float64] | None = None,
) -> Released:
    """Every agent's vector with the noise of its plan's first release.

    sensitivities: in the norm of the mechanism. lengths: the same in L2, where that is another norm.

    The sampling variance is bounded by that of m_i independent terms of which each moves the vector
    by at most half of its length Δ_i: m_i·Δ_i²/4 in all coordinates together.
    """
    has_samples = counts > 0
    dimension = vectors.shape[1]
    lengths = sensitivities if lengths is None else lengths
    scales = schedule.multipliers[schedule.rows, 0] * sensitivities
    stds = schedule.stds(dimension)[:, 0] * sensitivities
    noise = scales[:, None] * standard_noises(schedule.mechanism, seed, *vectors.shape)
    return Released(
        np.where(has_samples[:, None], vectors + noise, 0.0),
        np.where(has_samples, stds**2, np.inf),
        counts * lengths**2 / (4 * dimension),
        schedule.least,
        schedule.plans[0].accountant,
    )


def standard_noises(mechanism: str, seed: int, n_agents: int, dimension: int) -> NDArray[np.float64]:
    """Standard noise for everyone's first release, from the agents' own streams."""
    sampler = MECHANISMS[mechanism].sampler()
    from flockwise.randomness.noise import standard_noise  # compiled, and only for simulations

    rows = [standard_noise(sampler, seed, agent, FIRST_RELEASE, dimension) for agent in range(n_agents)]
    return np.array(rows).reshape(n_agents, dimension)
