"""One release of the local model, by output perturbation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flockwise.checks import Configured, Positive, check_fields
from flockwise.data import Population
from flockwise.data.samples import Samples
from flockwise.errors import PrivacyError
from flockwise.objective import Objective, Problem, gradient_bound
from flockwise.objective.bounds import bounded_targets
from flockwise.objective.losses import loss_name
from flockwise.privacy.budget import Budgets
from flockwise.privacy.gate import Bounded
from flockwise.privacy.grid import clip_rows
from flockwise.release.statistic import STATISTICS, Misfit, Released, check_fits, release_once

# The gradient that a solver may leave, as a share of one sample's largest gradient: it enters the
# sensitivity. The solver is asked for far less, so the check behind it does not fail.
SOLVER_SHARE = 1e-6
SOLVER_TOLERANCE = 1e-9


@STATISTICS.register
@dataclass(frozen=True)
class OutputPerturbation:
    """Releases argmin_θ (1/m_i) Σ ℓ(θ; x, y) + λ‖θ‖² with normal noise.

    The objective is 2λ-strongly convex. Replacing a sample changes its gradient by at most 2C/m_i,
    C being the largest gradient of one sample, and so moves the minimum by at most C/(m_i·λ). A solver
    that stops at a gradient of norm γ is within γ/(2λ) of the minimum, on either side: γ/λ more.

    width: for a quadratic loss, whose slope has no bound: residuals from this on count as absolute (Huber).
    l2: λ, one constant, by default that of the objective; it must not fall with m_i: with λ_i = 1/m_i the
        sensitivity is C whatever m_i is.

    Longer samples are scaled down to the objective's feature bound R, so C = R·(slope bound of the loss).
    """

    width: Positive | None = None
    l2: Annotated[Positive | None, Configured(None)] = None
    name: ClassVar[str] = "output"
    mechanism: ClassVar[str] = "gaussian"
    words: ClassVar[str] = "Gaussian noise (output perturbation)"
    bounded_by_loss: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, PrivacyError)

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        needs_width = math.isinf(objective.loss.slope_bound("l2"))
        if needs_width and self.width is None:
            yield Misfit(
                "method.width",
                f'missing; loss = "{loss_name(objective.loss)}" does not bound the gradient of a sample: say '
                "from which residual on the released model takes it as absolute (Huber)",
            )
        if self.width is not None and not needs_width:
            yield Misfit("method.width", "only for a loss without a bounded gradient; leave it out")
        yield from model_misfits(self.name, self.l2, objective)

    def of(self, samples: Samples, objective: Objective, at: NDArray[Any] | None = None) -> Bounded:
        problem = _of_one(samples, objective)
        (model,), (sensitivity,) = self.models(problem), self.sensitivities(problem)
        return Bounded(model, float(sensitivity))

    def release(self, problem: Problem, budgets: Budgets, seed: int) -> Released:
        check_fits(self, problem.objective)
        counts = problem.population.sample_counts
        released = release_once(
            self, self.models(problem), counts, self.sensitivities(problem), budgets, seed
        )
        return replace(released, l2=self.l2 or problem.objective.l2)

    def sensitivities(self, problem: Problem) -> NDArray[np.float64]:
        """How far each agent's model may move when one of its samples is replaced."""
        objective, counts = self._objective(problem), np.maximum(problem.population.sample_counts, 1)
        assert isinstance(objective.l2, int | float)
        return sample_gradient_bound(objective) * (1 / counts + SOLVER_SHARE) / objective.l2

    def signal_power(self, dimension: int) -> float | None:
        return None

    def models(self, problem: Problem) -> NDArray[np.float64]:
        """What noise is added to: everyone's minimum, on bounded samples."""
        task = bounded_problem(problem, self._objective(problem))
        tilts = np.zeros((task.n_agents, task.dimension))
        return solved_within(task, tilts, SOLVER_SHARE * sample_gradient_bound(task.objective))

    def _objective(self, problem: Problem) -> Objective:
        """The objective whose minima are released: a loss of bounded slope, one constant λ."""
        loss: Any = problem.loss
        bounded = loss if self.width is None else loss.bounded(self.width)
        return replace(problem.objective, loss=bounded, l2=self.l2 or problem.objective.l2)


def model_misfits(kind: str, l2: float | None, objective: Objective) -> Iterator[Misfit]:
    """A released model needs one constant penalty, and a bound on samples."""
    penalty = objective.l2 if l2 is None else l2
    if not isinstance(penalty, int | float) or penalty == 0:
        # Penalties of each agent may have been chosen on its samples, and are not shown.
        found = "got one per agent" if isinstance(penalty, tuple) else f"got {penalty!r}"
        found = "missing" if penalty is None else found
        yield Misfit(
            "objective.l2", f'{found}; kind = "{kind}" needs one number above 0, the same for all agents'
        )
    if objective.feature_bound is None:
        yield Misfit(
            "objective.feature_bound",
            f'missing; kind = "{kind}" needs a public bound on the length of every sample',
        )


def bounded_problem(problem: Problem, objective: Objective) -> Problem:
    """The problem whose minima are released, on bounded samples."""
    population, bound = problem.population, objective.feature_bound
    assert bound is not None
    # In double precision, whatever that of the data: rounded, a scaled sample could be too long again.
    features = population.features.astype(np.float64)
    targets = objective.in_range(population.targets.astype(np.float64))
    targets = _reached(bounded_targets(features, targets, objective), objective)
    if population.n_samples:
        features = clip_rows(features, bound, "l2")
    return Problem(population.with_samples(features, targets), None, objective)


def _reached(targets: NDArray[np.float64], objective: Objective) -> NDArray[np.float64]:
    """Targets clamped to where they make no difference any more: a solver must not fail for one far away.

    A minimum has ‖θ‖ ≤ C/(2λ), so scores are at most R·C/(2λ), and beyond that by the width of the loss its
    slope is at its bound. Failing, or not, would leak the sample.
    """
    loss, bound = objective.loss, objective.feature_bound
    assert bound is not None
    assert isinstance(objective.l2, int | float)
    if loss.metric == "accuracy":
        return targets
    reach = getattr(loss, "largest_residual", None)
    if reach is None:
        raise PrivacyError(f"a model for regression is released under the Huber loss, got loss={loss!r}")
    limit = bound * gradient_bound(loss, bound, "l2") / (2 * objective.l2) + reach
    return np.clip(targets, -limit, limit)


def sample_gradient_bound(objective: Objective) -> float:
    """C: the largest L2 norm of one sample's gradient."""
    assert objective.feature_bound is not None
    largest = gradient_bound(objective.loss, objective.feature_bound, "l2")
    if math.isinf(largest):
        raise PrivacyError(
            f"one sample's gradient has no bound under {objective.loss!r}, so no noise hides it; "
            "use Huber or CappedLogistic, or give a width"
        )
    return largest


def solved_within(task: Problem, tilts: NDArray[np.float64], gradient_norm: float) -> NDArray[np.float64]:
    """argmin ℒ_i(θ) + tilt_iᵀθ for every agent, with a gradient of at most the given norm; else refused.

    λ‖θ‖² + tiltᵀθ is λ‖θ + tilt/(2λ)‖² up to a constant.
    """
    anchors = -tilts / (2 * task.l2_penalties[:, None])
    # Compiled, and only for simulations.
    from flockwise.objective.local_batch import LocalObjectives
    from flockwise.solve.local import minimize_each

    objectives = LocalObjectives(task, anchors=anchors)
    models = objectives.zeros()
    minimize_each(objectives, models, SOLVER_TOLERANCE)
    norms = np.linalg.norm(objectives.gradients(models), axis=1)
    unsolved = np.flatnonzero(~(norms <= gradient_norm))
    if unsolved.size:
        name = task.population.agent_names[unsolved[0]]
        raise PrivacyError(
            f"agent {name!r}: its model was not solved as exactly as its sensitivity supposes; raise l2"
        )
    return models


def _of_one(samples: Samples, objective: Objective) -> Problem:
    features, targets = (np.ascontiguousarray(part, np.float64) for part in samples)
    return Problem(Population.packed(features, targets, np.array([0, len(targets)])), None, objective)
