"""Eq. (1): what an agent would minimise on its own, for one agent and for all agents at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from murmura.errors import ObjectiveError
from murmura.objective.batch_newton import MAX_ITERATIONS, minimize_each
from murmura.objective.losses import Loss
from murmura.objective.newton import minimize_convex
from murmura.objective.passes import (
    all_curvatures,
    mean_hessian_diagonals,
    mean_hessian_products,
    mean_loss_gradients,
    mean_losses,
    sample_slopes,
    sample_value,
)
from murmura.objective.problem import Problem

Form: TypeAlias = Literal["mean", "sum"]


class LocalObjective:
    """Eq. (1): ℒ_i(θ) = (1/m) Σ ℓ(θ; x, y) + λ‖θ‖², in plain NumPy; the data term is 0 without samples."""

    def __init__(self, loss: Loss, features: NDArray[Any], targets: NDArray[Any], l2_penalty: float) -> None:
        self.loss = loss
        self.features = np.asarray(features, dtype=np.float64)
        self.targets = np.asarray(targets, dtype=np.float64)
        self.l2_penalty = float(l2_penalty)
        if self.features.ndim != 2 or self.targets.shape != (len(self.features),):
            raise ObjectiveError(
                "features must have shape (samples, features) and targets (samples,), "
                f"got {self.features.shape} and {self.targets.shape}"
            )

    @classmethod
    def of_agent(cls, problem: Problem, agent: int) -> LocalObjective:
        features, targets = problem.population.samples(agent)
        return cls(problem.loss, features, targets, problem.l2_penalties[agent])

    @property
    def dimension(self) -> int:
        return self.loss.outputs * self.features.shape[1]

    def value(self, model: NDArray[Any]) -> float:
        scores = self._scores(model)
        values = [sample_value(self.loss, s, y) for s, y in zip(scores, self.targets, strict=True)]
        return sum(values) / max(len(values), 1) + self.l2_penalty * float(model @ model)

    def gradient(self, model: NDArray[Any]) -> NDArray[np.float64]:
        scores = self._scores(model)
        slopes = np.empty_like(scores)
        for score, target, out in zip(scores, self.targets, slopes, strict=True):
            sample_slopes(self.loss, score, target, out)
        data_term = slopes.T @ self.features / max(len(scores), 1)
        return data_term.ravel() + 2 * self.l2_penalty * model

    @property
    def smoothness(self) -> float:
        """L_i^loc = curvature·λ_max(XᵀX/m) + 2λ."""
        samples = len(self.features)
        largest = np.linalg.norm(self.features, ord=2) ** 2 / samples if samples else 0.0
        return float(self.loss.curvature * largest + 2 * self.l2_penalty)

    def _scores(self, model: NDArray[Any]) -> NDArray[np.float64]:
        return self.features @ np.asarray(model, dtype=np.float64).reshape(self.loss.outputs, -1).T


class AnchoredObjective:
    """Supplement C: ℒ_i(θ) = ½‖θ − anchor‖², which stands for the data in model propagation."""

    smoothness = 1.0

    def __init__(self, anchor: NDArray[Any]) -> None:
        self.anchor = np.asarray(anchor, dtype=np.float64)

    @property
    def dimension(self) -> int:
        return self.anchor.size

    def value(self, model: NDArray[Any]) -> float:
        difference = model - self.anchor
        return 0.5 * float(difference @ difference)

    def gradient(self, model: NDArray[Any]) -> NDArray[np.float64]:
        return model - self.anchor


class LocalObjectives:
    """Eq. (1) for all agents at once: entry i is agent i's, at agent i's own model."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def values(self, models: NDArray[Any]) -> NDArray[np.float64]:
        """ℒ_i(Θ_i), shape (agents,)."""
        models = checked_models(self.problem, models)
        penalties = self.problem.l2_penalties * np.einsum("ij,ij->i", models, models)
        return mean_losses(*self._samples, self._blocks(models)) + penalties

    def gradients(self, models: NDArray[Any]) -> NDArray[np.float64]:
        """∇ℒ_i(Θ_i), shape (agents, dimension)."""
        models = checked_models(self.problem, models)
        gradients = mean_loss_gradients(*self._samples, self._blocks(models)).reshape(models.shape)
        gradients += 2 * self.problem.l2_penalties[:, None] * models
        return gradients

    def hessians(self, models: NDArray[Any]) -> LocalHessians:
        """∇²ℒ_i(Θ_i), ready to be multiplied with directions."""
        models = checked_models(self.problem, models)
        return LocalHessians(self.problem, all_curvatures(*self._samples, self._blocks(models)))

    @property
    def _samples(self) -> tuple[Any, Any, Any, Any]:
        population = self.problem.population
        return self.problem.loss, population.features, population.targets, population.offsets

    def _blocks(self, models: NDArray[np.float64]) -> NDArray[np.float64]:
        return models.reshape(len(models), self.problem.loss.outputs, -1)


class LocalHessians:
    """The Hessians of all ℒ_i at given models, never formed: one small matrix per sample is kept."""

    def __init__(self, problem: Problem, curvatures: NDArray[np.float64]) -> None:
        self._features = problem.population.features
        self._offsets = problem.population.offsets
        self._curvatures = curvatures
        self._ridge = 2 * problem.l2_penalties[:, None]

    def products(self, directions: NDArray[np.float64]) -> NDArray[np.float64]:
        """∇²ℒ_i · direction_i, shape (agents, dimension)."""
        blocks = directions.reshape(len(directions), self._curvatures.shape[1], -1)
        products = mean_hessian_products(self._features, self._offsets, self._curvatures, blocks)
        return products.reshape(directions.shape) + self._ridge * directions

    def diagonals(self) -> NDArray[np.float64]:
        """The diagonals of ∇²ℒ_i, shape (agents, dimension)."""
        diagonals = mean_hessian_diagonals(self._features, self._offsets, self._curvatures)
        return diagonals.reshape(len(diagonals), -1) + self._ridge


def checked_models(problem: Problem, models: NDArray[Any]) -> NDArray[np.float64]:
    """The models as contiguous float64, refused if there is not one of the right size per agent."""
    if np.shape(models) != (problem.n_agents, problem.dimension):
        raise ObjectiveError(
            f"models must have shape (agents, dimension) = ({problem.n_agents}, {problem.dimension}), "
            f"got {np.shape(models)}"
        )
    return np.ascontiguousarray(models, dtype=np.float64)


def solve_local_models(
    problem: Problem,
    *,
    form: Form = "mean",
    tolerance: float = 1e-8,
    agents: Sequence[int] | NDArray[np.integer] | None = None,
) -> NDArray[np.float64]:
    """Eq. (1) for every agent, or for the `agents` listed: one row each.

    form: "mean" is Eq. (1) as printed; "sum", as in supplement C, does not divide the losses by
        m_i, which is the same as dividing λ_i by m_i.
    tolerance: the gradient's norm is at most this times its norm at the start, θ = 0. With λ_i = 0
        and separable classes there is no minimum; the model is then the first one along a growing
        path that meets the tolerance.
    """
    if form not in ("mean", "sum"):
        raise ObjectiveError(f"form must be 'mean' or 'sum', got form={form!r}")
    population = problem.population
    chosen = np.arange(problem.n_agents) if agents is None else np.asarray(agents, dtype=np.int64)
    penalties = problem.l2_penalties
    if form == "sum":
        penalties = penalties / np.maximum(population.sample_counts, 1)
    models, shortfalls = minimize_each(
        problem.loss,
        population.features,
        population.targets,
        population.offsets,
        penalties,
        chosen,
        problem.loss.outputs,
        tolerance,
    )
    _refuse_unsolved(problem, chosen, shortfalls, tolerance)
    return models.reshape(len(chosen), problem.dimension)


def _refuse_unsolved(
    problem: Problem, agents: NDArray[np.int64], shortfalls: NDArray[np.float64], tolerance: float
) -> None:
    unsolved = np.flatnonzero(~(shortfalls <= tolerance))
    if unsolved.size == 0:
        return
    shown = ", ".join(
        f"{problem.population.agent_names[agents[k]]!r} ({shortfalls[k]:.1e})" for k in unsolved[:5]
    )
    more = f" and {unsolved.size - 5} more" if unsolved.size > 5 else ""
    raise ObjectiveError(
        f"no local model within tolerance={tolerance:g} after {MAX_ITERATIONS} Newton steps for "
        f"agent(s) {shown}{more} (relative gradient norm in brackets); "
        "raise l2 (with l2 = 0 there may be no minimum), scale the features, or relax the tolerance"
    )


def solve_global_model(problem: Problem, *, tolerance: float = 1e-8) -> NDArray[np.float64]:
    """argmin over one θ of Σ_i D_ii c_i ℒ_i(θ), the limit of Eq. (2) as μ → 0 on a connected graph.

    tolerance: the gradient's norm is at most this times its norm at the start, θ = 0.
    """
    shares = problem.graph.degrees * problem.confidences
    if not shares.any():
        raise ObjectiveError("no agent has a neighbor, so that the global model is undefined; add edges")
    shares /= shares.sum()
    objectives = LocalObjectives(problem)

    def all_agents(model: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.tile(model, (problem.n_agents, 1))

    def value(model: NDArray[np.float64]) -> float:
        return float(shares @ objectives.values(all_agents(model)))

    def gradient(model: NDArray[np.float64]) -> NDArray[np.float64]:
        return shares @ objectives.gradients(all_agents(model))

    def hessian(model: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
        hessians = objectives.hessians(all_agents(model))
        diagonal = shares @ hessians.diagonals()
        return lambda direction: shares @ hessians.products(all_agents(direction)), diagonal

    start = np.zeros(problem.dimension)
    goal = tolerance * float(np.linalg.norm(gradient(start)))
    found = minimize_convex(
        value, gradient, hessian, start, lambda _, slope: float(np.linalg.norm(slope)) <= goal
    )
    return found.point
