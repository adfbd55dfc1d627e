"""Minima without collaboration: Eq. (1) for every agent, and one model for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import ObjectiveError
from flockwise.objective.local_batch import LocalObjectives
from flockwise.objective.problem import Problem
from flockwise.solve.batch_newton import newton_directions_of
from flockwise.solve.newton import MAX_HALVINGS, MAX_ITERATIONS, decrease_wanted, minimize_convex

Form: TypeAlias = Literal["mean", "sum"]

# Agents solved together: bounds the memory for one number per sample, and keeps all threads busy.
_AGENTS_AT_ONCE = 50_000


def solve_local_models(
    problem: Problem,
    *,
    form: Form = "mean",
    tolerance: float = 1e-8,
    agents: Sequence[int] | NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """Eq. (1) for every agent, or for the `agents` listed: one row each, by a truncated Newton method.

    form: "mean" is Eq. (1) as printed; "sum", as in supplement C, does not divide the losses by
        m_i, which is the same as dividing λ_i by m_i.
    tolerance: the gradient's norm is at most this times its norm at the start, θ = 0. With λ_i = 0
        and separable classes there is no minimum; the model is then the first one along a growing
        path that meets the tolerance.
    """
    if form not in ("mean", "sum"):
        raise ObjectiveError(f"form must be 'mean' or 'sum', got form={form!r}")
    penalties = problem.l2_penalties
    if form == "sum":
        penalties = penalties / np.maximum(problem.population.sample_counts, 1)
    everyone = LocalObjectives(
        problem, None if agents is None else np.asarray(agents, dtype=np.int64), penalties
    )
    models, shortfalls = everyone.zeros(), np.zeros(len(everyone.agents))
    for first in range(0, len(models), _AGENTS_AT_ONCE):
        part = slice(first, first + _AGENTS_AT_ONCE)
        shortfalls[part] = minimize_each(everyone.only(part), models[part], tolerance)
    _refuse_unsolved(problem, everyone.agents, shortfalls, tolerance)
    return models


def minimize_each(
    objectives: LocalObjectives, models: NDArray[np.float64], tolerance: float
) -> NDArray[np.float64]:
    """Moves the models from 0 to their minima; returns each gradient's norm relative to its first."""
    values, gradients = objectives.values(models), objectives.gradients(models)
    first = np.linalg.norm(gradients, axis=1)
    shortfalls = np.where(first > 0, 1.0, 0.0)
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
        steps, values[active] = _steps(remaining, models[active], values[active], slopes, directions)
        models[active] += steps[:, None] * directions
        gradients[active] = remaining.gradients(models[active])
        shortfalls[active] = np.linalg.norm(gradients[active], axis=1) / first[active]
        active = active[(steps > 0) & (shortfalls[active] > tolerance)]
    return shortfalls


def _steps(
    objectives: LocalObjectives,
    models: NDArray[np.float64],
    before: NDArray[np.float64],
    slopes: NDArray[np.float64],
    directions: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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


def _refuse_unsolved(
    problem: Problem, agents: NDArray[np.integer], shortfalls: NDArray[np.float64], tolerance: float
) -> None:
    unsolved = np.flatnonzero(~(shortfalls <= tolerance))
    if unsolved.size == 0:
        return
    shown = ", ".join(
        f"{problem.population.agent_names[agents[k]]!r} ({shortfalls[k]:.1e})" for k in unsolved[:5]
    )
    more = f" and {unsolved.size - 5} more" if unsolved.size > 5 else ""
    raise ObjectiveError(
        f"no local model within tolerance={tolerance:g} after at most {MAX_ITERATIONS} Newton steps for "
        f"agent(s) {shown}{more} (relative gradient norm in brackets); "
        "raise l2 (with l2 = 0 there may be no minimum), scale the features, or relax the tolerance"
    )


def solve_global_model(problem: Problem, *, tolerance: float = 1e-8) -> NDArray[np.float64]:
    """argmin over one θ of Σ_i D_ii c_i ℒ_i(θ), the limit of Eq. (2) as μ → 0 on a connected graph.

    tolerance: the gradient's norm is at most this times its norm at the start, θ = 0.
    """
    shares = problem.neighbors.degrees * problem.confidences
    if not shares.any():
        raise ObjectiveError("no agent has a neighbor, so that the global model is undefined; add edges")
    shares /= shares.sum()
    objectives = LocalObjectives(problem)

    def for_all(model: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.tile(model, (problem.n_agents, 1))

    def value(model: NDArray[np.float64]) -> float:
        return float(shares @ objectives.values(for_all(model)))

    def gradient(model: NDArray[np.float64]) -> NDArray[np.float64]:
        return shares @ objectives.gradients(for_all(model))

    def hessian(model: NDArray[np.float64]) -> tuple[Callable[[Any], Any], NDArray[np.float64]]:
        hessians = objectives.hessians(for_all(model))
        return lambda direction: shares @ hessians.products(for_all(direction)), shares @ hessians.diagonals()

    start = np.zeros(problem.dimension)
    goal = tolerance * float(np.linalg.norm(gradient(start)))
    return minimize_convex(
        value, gradient, hessian, start, reached=lambda _, slope: float(np.linalg.norm(slope)) <= goal
    ).point
