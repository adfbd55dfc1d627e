"""One release of the local model, by objective perturbation: noise in what is minimized, not in the minimum.

Chaudhuri, Monteleoni and Sarwate (JMLR 2011) and Kifer, Smith and Thakurta (COLT 2012) perturb the
objective by bᵀθ; Iyengar et al. (IEEE S&P 2019) add a little noise to what a solver finds, so its
error is covered. The claim here is proved in full for a generalized linear loss φ(θᵀx, y) with
|φ'| ≤ C/R, 0 ≤ φ'' ≤ κ almost everywhere, ‖x‖₂ ≤ R, and one sample (x, y) replaced by (x', y'):

1. θ* = argmin ℒ_i(θ) + bᵀθ, b ~ N(0, σ²I), so b = −∇ℒ_i(θ*): a bi-Lipschitz map of θ* to b,
   whose inverse exists because ℒ_i is 2λ-strongly convex. The density of θ* is that of b times |det ∇²ℒ_i|.
2. For the same θ* the two data sets need b and b' = b + d, where d = (φ'(θᵀx, y)·x − φ'(θᵀx', y')·x')/m
   has length at most Δ = 2C/m and lies in the plane of x and x', which does not depend on b. So
   (‖b'‖² − ‖b‖²)/(2σ²) ≤ (Δ·r + Δ²/2)/σ² with r the length of b within that plane, and
   r ≤ σ√(2 ln(1/δ₁)) but with probability δ₁, by Rayleigh's law in two dimensions.
3. The Hessians differ by one term of rank 1 each, h·xxᵀ/m with h ≤ κ, on top of a common part of at
   least 2λI. By the matrix determinant lemma the ratio of determinants is at most 1 + κR²/(2λm).
4. Together, ε₁ = ln(1 + κR²/(2λm)) + Δ√(2 ln(1/δ₁))/σ + Δ²/(2σ²) with δ₁.
5. The solver stops at a gradient of norm γ, within γ/(2λ) of θ*. Given θ*, what is sent is θ* plus an
   error of that length plus N(0, σ₂²I): normal noise on a vector of sensitivity γ/λ, (ε₂, δ₂).
   The sum (ε₁ + ε₂, δ₁ + δ₂) is the budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Configured, Positive, check_fields
from flockwise.data.samples import Samples
from flockwise.errors import PrivacyError
from flockwise.objective import Objective, Problem
from flockwise.objective.losses import loss_name
from flockwise.privacy.budget import Budget, Budgets
from flockwise.privacy.schedule import Schedule, distinct_budgets
from flockwise.release.model import (
    SOLVER_SHARE,
    bounded_problem,
    model_misfits,
    sample_gradient_bound,
    solved_within,
)
from flockwise.release.statistic import (
    STATISTICS,
    Misfit,
    Released,
    check_fits,
    standard_noises,
)

# What covers the solver's error: its noise is small even so.
SOLVER_BUDGET_SHARE = 0.01


@STATISTICS.register
@dataclass(frozen=True)
class ObjectivePerturbation:
    """Releases argmin_θ (1/m_i) Σ ℓ(θ; x, y) + λ‖θ‖² + bᵀθ for normal b; see the proof above.

    Where the data have much curvature it is less noisy than output perturbation. l2: λ, by default that of
    the objective; it must be large enough for step 3: ln(1 + κR²/(2λ·m_i)) below ε.
    """

    l2: Annotated[Positive | None, Configured(None)] = None
    name: ClassVar[str] = "objective"
    mechanism: ClassVar[str] = "gaussian"
    words: ClassVar[str] = "objective perturbation with Gaussian noise"
    bounded_by_loss: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, PrivacyError)

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        if math.isinf(objective.loss.slope_bound("l2")):
            yield Misfit(
                "objective.loss",
                f'got "{loss_name(objective.loss)}"; kind = "objective" needs a bounded gradient: '
                'use "huber"',
            )
        if objective.loss.outputs != 1:
            yield Misfit("method.kind", 'got "objective"; it is for losses of one score: use kind = "output"')
        yield from model_misfits(self.name, self.l2, objective)

    def of(self, samples: Samples, objective: Objective, at: NDArray[Any] | None = None) -> Any:
        raise PrivacyError(
            'kind = "objective" perturbs what is minimized, which a gate cannot do: it is for simulations; '
            'real agents release kind = "mean"'
        )

    def release(self, problem: Problem, budgets: Budgets, seed: int) -> Released:
        check_fits(self, problem.objective)
        objective = replace(problem.objective, l2=self.l2 or problem.objective.l2)
        task = bounded_problem(problem, objective)
        largest, penalties = sample_gradient_bound(task.objective), task.l2_penalties
        counts = problem.population.sample_counts
        distinct, rows = distinct_budgets(budgets, problem.n_agents)
        tilt_scales = self._tilt_scales(task, largest, [distinct[row] for row in rows])
        small = Schedule.fitting(
            [_share(distinct[row], SOLVER_BUDGET_SHARE) for row in rows], problem.n_agents, self.mechanism, 1
        )
        solver_scales = small.multipliers[small.rows, 0] * (SOLVER_SHARE * largest / penalties)
        # Tilts and the noise on the result come from one draw, so they are independent.
        draws = standard_noises(self.mechanism, seed, task.n_agents, 2 * task.dimension)
        tilts = tilt_scales[:, None] * draws[:, : task.dimension]
        models = solved_within(task, tilts, SOLVER_SHARE * largest)
        models += solver_scales[:, None] * draws[:, task.dimension :]
        has_samples = counts > 0
        # The Hessian is at least 2λI, so a tilt moves the minimum by at most its length over 2λ.
        variances = (tilt_scales / (2 * penalties)) ** 2 + solver_scales**2
        return Released(
            np.where(has_samples[:, None], models, 0.0),
            np.where(has_samples, variances, np.inf),
            (largest / penalties) ** 2 / (4 * np.maximum(counts, 1) * task.dimension),
            None,
            "basic",
            float(penalties[0]),
        )

    def signal_power(self, dimension: int) -> float | None:
        return None

    def _tilt_scales(self, task: Problem, largest: float, budgets: list[Budget]) -> NDArray[np.float64]:
        bound, penalty = task.objective.feature_bound, float(task.l2_penalties[0])
        assert bound is not None
        curvature = task.loss.curvature * bound**2 / (2 * penalty)
        scales = np.empty(task.n_agents)
        for agent, (budget, count) in enumerate(zip(budgets, task.population.sample_counts, strict=True)):
            if count == 0:
                scales[agent] = 0.0
                continue
            main = _share(budget, 1 - SOLVER_BUDGET_SHARE)
            samples = int(count)
            left = main.epsilon - math.log1p(curvature / samples)
            if left <= 0:
                raise PrivacyError(
                    f"agent {task.population.agent_names[agent]!r}: epsilon={budget.epsilon!r} is too small "
                    f"for objective perturbation with l2={penalty!r}, feature_bound={bound!r} "
                    f"and m_i={samples}; raise l2, or use OutputPerturbation"
                )
            scales[agent] = tilt_scale(2 * largest / samples, left, main.delta)
        return scales


def tilt_scale(shift: float, epsilon: float, delta: float) -> float:
    """The σ at which Δ√(2 ln(1/δ))/σ + Δ²/(2σ²) = ε, for a shift Δ: a quadratic equation in Δ/σ."""
    if delta == 0:
        raise PrivacyError("objective perturbation with normal noise needs delta > 0, got delta=0")
    tail = math.sqrt(-2 * math.log(delta))
    return shift / (math.sqrt(tail**2 + 2 * epsilon) - tail)


def _share(budget: Budget, share: float) -> Budget:
    return Budget(share * budget.epsilon, share * budget.delta)
