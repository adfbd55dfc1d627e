"""Exact minima of every agent alone: Eq. (1), or its own data with a pull toward an anchor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.errors import ObjectiveError
from flockwise.objective.local_batch import LocalObjectives
from flockwise.objective.problem import Problem
from flockwise.solve.batch_newton import newton_directions_of

# Of a gradient's norm, as a share of its norm at θ = 0, where data are pulled toward an anchor.
ANCHORED_TOLERANCE = 1e-6
MAX_ITERATIONS = 200
MAX_HALVINGS = 40
_SUFFICIENT_DECREASE = 1e-4
# A decrease below this share of the value is lost in its rounding, and no reason to shorten a step.
_ROUNDING = 1e-15
# Agents solved together: bounds the memory for one number per sample, and keeps all threads busy.
_AGENTS_AT_ONCE = 50_000


def solve_local_models(
    problem: Problem,
    *,
    tolerance: float = 1e-8,
    agents: Sequence[int] | NDArray[np.integer] | None = None,
    anchors: Floats | None = None,
) -> Floats:
    """Eq. (1) for every agent, or for the `agents` listed: one row each, by a truncated Newton method.

    Supplement C does not divide the losses by m_i, which is the same as dividing λ_i by m_i.

    tolerance: the gradient's norm is at most this times its norm at the start, θ = 0, or no more than
        rounding leaves of gradients that cancel. With λ_i = 0 and separable classes there is no minimum;
        the model is then the first one along a growing path that meets the tolerance.
    anchors: of all agents, if λ_i is to weigh ‖θ − anchor_i‖² in place of ‖θ‖².
    """
    chosen = None if agents is None else np.asarray(agents, dtype=np.int64)
    everyone = LocalObjectives(problem, chosen, anchors=anchors)
    models, shortfalls = everyone.zeros(), np.zeros(len(everyone.agents))
    for first in range(0, len(models), _AGENTS_AT_ONCE):
        part = slice(first, first + _AGENTS_AT_ONCE)
        shortfalls[part] = minimize_each(everyone.only(part), models[part], tolerance)
    advice = "raise l2 (with l2 = 0 there may be no minimum), scale the features, or relax the tolerance"
    _refuse_unsolved(everyone, shortfalls, tolerance, "local", advice)
    return models


def solve_anchored_models(problem: Problem, anchors: Floats, strengths: Floats) -> Floats:
    """argmin_θ (1/m_i) Σ ℓ(θ; x, y) + strength_i·‖θ − anchor_i‖² for every agent, one row each.

    The l2 of the problem plays no part. An agent without samples keeps its anchor.
    """
    _check_strengths(problem, strengths)
    objectives = LocalObjectives(problem, l2_penalties=strengths, anchors=np.asarray(anchors, np.float64))
    models = objectives.zeros()
    objectives.checked(anchors)
    shortfalls = minimize_each(objectives, models, ANCHORED_TOLERANCE)
    _refuse_unsolved(objectives, shortfalls, ANCHORED_TOLERANCE, "anchored", "scale the features")
    return models


def _check_strengths(problem: Problem, strengths: Floats) -> None:
    if strengths.shape != (problem.n_agents,):
        raise ObjectiveError(
            f"strengths must have one entry per agent ({problem.n_agents}), got shape {strengths.shape}"
        )
    wrong = ~((strengths > 0) & np.isfinite(strengths))
    if wrong.any():
        agent = int(np.argmax(wrong))
        name = problem.population.agent_names[agent]
        raise ObjectiveError(f"agent {name!r}: strength must be positive and finite, got {strengths[agent]}")


def minimize_each(objectives: LocalObjectives, models: Floats, tolerance: float) -> Floats:
    """Moves the models from 0 to their minima; returns each gradient's norm relative to its first.

    A first gradient that is nothing but rounding, as that of samples that contradict each other, is no
    measure: there the norm is relative to what makes the tolerance just reachable.
    """
    values, gradients = objectives.values(models), objectives.gradients(models)
    norms = np.linalg.norm(gradients, axis=1)
    first = np.maximum(norms, objectives.gradient_rounding() / tolerance)
    shortfalls = np.divide(norms, first, out=np.zeros(len(first)), where=first > 0)
    active = np.flatnonzero(shortfalls > tolerance)
    for _ in range(MAX_ITERATIONS):
        if active.size == 0:
            break
        remaining = objectives.only(active)
        # Solve each Newton system only as well as the distance from the minimum deserves.
        shares = np.maximum(np.minimum(0.1, shortfalls[active] ** 0.5), 0.3 * tolerance / shortfalls[active])
        goals = shares * shortfalls[active] * first[active]
        directions = newton_directions_of(remaining.hessians(models[active]), gradients[active], goals)
        slopes = np.einsum("ij,ij->i", gradients[active], directions)
        steps, values[active] = steps_along(remaining, models[active], values[active], slopes, directions)
        models[active] += steps[:, None] * directions
        gradients[active] = remaining.gradients(models[active])
        shortfalls[active] = np.linalg.norm(gradients[active], axis=1) / first[active]
        active = active[(steps > 0) & (shortfalls[active] > tolerance)]
    return shortfalls


class Objectives(Protocol):
    """One value per agent, each a function of the agent's own model."""

    def only(self, which: NDArray[np.integer]) -> Objectives: ...

    def values(self, models: Floats) -> Floats: ...


def steps_along(
    objectives: Objectives, models: Floats, before: Floats, slopes: Floats, directions: Floats
) -> tuple[Floats, Floats]:
    """How far each agent goes along its direction, and its value there.

    Steps are halved until the value decreases enough; 0 if it never does.
    """
    steps, values = np.ones(len(models)), before.copy()
    pending = np.arange(len(models))
    for _ in range(MAX_HALVINGS):
        reached = models[pending] + steps[pending, None] * directions[pending]
        after = objectives.only(pending).values(reached)
        accepted = after <= before[pending] + decrease_wanted(
            before[pending], steps[pending] * slopes[pending]
        )
        values[pending[accepted]] = after[accepted]
        pending = pending[~accepted]
        if pending.size == 0:
            break
        steps[pending] /= 2
    steps[pending] = 0.0
    return steps, values


def decrease_wanted(height: Any, descent: Any) -> Any:
    """The change of value that a step has to undercut: a share of what the slope promises."""
    return _SUFFICIENT_DECREASE * descent + _ROUNDING * abs(height)


def _refuse_unsolved(
    objectives: LocalObjectives, shortfalls: Floats, tolerance: float, kind: str, advice: str
) -> None:
    unsolved = np.flatnonzero(~(shortfalls <= tolerance))
    if unsolved.size == 0:
        return
    names, agents = objectives.population.agent_names, objectives.agents
    shown = ", ".join(f"{names[agents[k]]!r} ({shortfalls[k]:.1e})" for k in unsolved[:5])
    more = f" and {unsolved.size - 5} more" if unsolved.size > 5 else ""
    raise ObjectiveError(
        f"no {kind} model within tolerance={tolerance:g} after at most {MAX_ITERATIONS} Newton steps for "
        f"agent(s) {shown}{more} (relative gradient norm in brackets); {advice}"
    )
