"""A mixed model: what all agents' models have in common and how they differ, learned from all samples.

For the quadratic loss the marginal likelihood is exact (flockwise.solve.evidence). For the others each
agent's losses are replaced by a quadratic at its most probable model, and prior and models are found in
turns: a Laplace approximation. Nothing here is private.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from flockwise.arrays import Floats
from flockwise.errors import ObjectiveError
from flockwise.objective.losses import sample_value
from flockwise.objective.problem import Problem
from flockwise.solve.evidence import Bounds, Explained, Quadratics, Shape, Widths, best_prior
from flockwise.solve.posterior import SummedLosses
from flockwise.solve.prior import Prior, Structure, posterior_models

# Turns of a Laplace approximation, and the change of the evidence that ends them.
TURNS: Final = 50
SETTLED: Final = 1e-4
# Of the evidence: the quadratics of the next turn are others anyway.
_TURN_TOLERANCE: Final = 1e-9
_WHOLE_TURNS: Final = 10
# Entries of Λ's root and widths, in units in which a sample's curvature is about 1. Classes that can be told
# apart without error would have either go to infinity: scores may have a standard deviation of about 10.
_KNOWN_SCALE: Final = Bounds(5.0, (-20.0, math.log(25.0)))
_FREE_SCALE: Final = Bounds(1e3, (-20.0, 30.0))
# Where the search starts: models differ by so much of the noise in one sample.
_FIRST_SPREAD: Final = 0.1
# Where targets are explained without error.
_LEAST_DISPERSION: Final = 1e-100
# Of the largest: where all residuals are far out, the loss would have none.
_LEAST_CURVATURE: Final = 1e-3
# That a covariance of more than one number asks for, for each number of it and of the mean.
_SAMPLES_PER_NUMBER: Final = 4


@dataclass(frozen=True, eq=False)
class MixedModel:
    """A prior, everyone's most probable model under it, and how each structure of the covariance was judged.

    criteria: −2·log evidence + parameters·log(agents) of every structure that was tried, by name; the least
    was taken.
    """

    prior: Prior
    models: Floats
    criteria: Mapping[str, float]


def fit_mixed_model(problem: Problem) -> MixedModel:
    """Mean, covariance and residual variance by evidence, and the models that are most probable under them.

    All samples count as they are, without public bounds, and the l2 of the problem plays no part. Features
    are compared in units of their own: the root mean square of the values that are not 0.
    """
    if not problem.population.n_samples:
        raise ObjectiveError("no agent has a sample, so nothing can be learned; give agents samples")
    fit = _Fit(problem)
    tried: dict[str, _Found] = {}
    for found in fit.structures():
        tried[found.name] = found
    best = min(tried.values(), key=lambda found: found.criterion)
    return MixedModel(best.prior, best.models, {name: found.criterion for name, found in tried.items()})


class _Found(NamedTuple):
    """The best prior of one structure."""

    name: str
    shape: Shape
    numbers: Floats
    explained: Explained
    prior: Prior
    models: Floats
    criterion: float


class _Fit:
    """One problem in coordinates of its own units: θ = scales · u."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.losses = SummedLosses(problem, np.flatnonzero(problem.population.sample_counts))
        self.bounds = _FREE_SCALE if problem.loss.metric == "rmse" else _KNOWN_SCALE

    @property
    def is_quadratic(self) -> bool:
        return hasattr(self.problem.loss, "constant_curvature")

    @property
    def n_agents(self) -> int:
        """With samples."""
        return len(self.losses.agents)

    @cached_property
    def scales(self) -> Floats:
        """A feature in other units leads to the same predictions; 0s of sparse features do not count."""
        features = self.problem.population.features.astype(np.float64)
        sums, counts = (features**2).sum(axis=0), np.count_nonzero(features, axis=0)
        sizes = np.sqrt(np.where(counts > 0, sums / np.maximum(counts, 1), 1.0))
        loss = self.problem.loss
        return np.tile(1 / (sizes * math.sqrt(loss.curvature)), loss.outputs)

    @cached_property
    def widths(self) -> Widths:
        population = self.problem.population
        groups = np.zeros(population.n_features, dtype=np.intp)
        if population.has_intercept and population.n_features > 1:
            groups[-1] = 1
        return Widths(np.tile(groups, self.problem.loss.outputs))

    def structures(self) -> Iterator[_Found]:
        """From the simplest on, as long as richer ones explain more than they cost."""
        p = self.problem.dimension
        best = found = self._found(Shape(p, 0), self._first_numbers, None)
        yield found
        for rank in range(1, p):
            shape = Shape(p, rank)
            if not self._is_enough_for(shape):
                break
            found = self._found(shape, self._with_direction(found, shape), found)
            yield found
            if found.criterion > best.criterion:
                break
            best = found
        full = Shape(p, p)
        if p > 1 and full.n_parameters <= self.n_agents and self._is_enough_for(full):
            yield self._found(full, self._as_full(best, full), best)

    def _is_enough_for(self, shape: Shape) -> bool:
        """With fewer agents or samples the evidence would praise a structure that fits their noise."""
        numbers = shape.n_parameters + shape.dimension
        return 2 * shape.rank < self.n_agents and _SAMPLES_PER_NUMBER * numbers <= self.losses.counts.sum()

    @property
    def _first_numbers(self) -> Floats:
        return np.concatenate([[math.sqrt(_FIRST_SPREAD)], np.zeros(self.widths.size)])

    def _with_direction(self, found: _Found, shape: Shape) -> NDArray[Any]:
        """The numbers found, with one more direction in which the evidence wants models to differ."""
        vectors = np.linalg.eigh(found.explained.covariance_slope)[1]
        old = found.numbers[: found.shape.size]
        factors = old[:-1].reshape(shape.dimension, found.shape.rank)
        length = max(abs(float(old[-1])), 0.1 * math.sqrt(_FIRST_SPREAD))
        wider = np.column_stack([factors, length * vectors[:, 0]])
        return np.concatenate([wider.ravel(), old[-1:], found.numbers[found.shape.size :]])

    def _as_full(self, found: _Found, full: Shape) -> NDArray[Any]:
        root = found.shape.root(found.numbers[: found.shape.size])
        covariance = root @ root.T + 1e-6 * _FIRST_SPREAD * np.eye(full.dimension)
        triangle = np.linalg.cholesky(covariance)[np.tril_indices(full.dimension)]
        return np.append(triangle, found.numbers[found.shape.size :])

    def _found(self, shape: Shape, start: Floats, before: _Found | None) -> _Found:
        if not self.is_quadratic:
            return self._in_turns(shape, start, before)
        numbers, explained = best_prior(self._exact, shape, self.widths, start, self.bounds)
        prior = self._prior(shape, numbers, explained.mean, explained.dispersion)
        return self._judged(shape, numbers, explained, prior, posterior_models(self.problem, prior))

    @cached_property
    def _exact(self) -> Quadratics:
        zeros = np.zeros((self.n_agents, self.problem.dimension))
        return self._around(zeros, 1.0, self.losses.hessians(zeros), self.problem.population.n_samples)

    def _around(self, models: Floats, dispersion: float, hessians: Floats, n_samples: int = 0) -> Quadratics:
        """The losses in units of φ, as quadratics in models in units of √φ that agree with them at these."""
        gradients = self.losses.gradients(models)
        images = np.einsum("nij,nj->ni", hessians, models)
        constants = self.losses.values(models) - np.einsum("ni,ni->n", gradients - images / 2, models)
        hessians *= self.scales * self.scales[:, None]
        linear = self.scales * (images - gradients) / math.sqrt(dispersion)
        return Quadratics(hessians, linear, float(constants.sum()) / dispersion, n_samples)

    def _in_turns(self, shape: Shape, start: Floats, before: _Found | None) -> _Found:
        """Quadratics at the most probable models, the best prior for them, and again, until both agree."""
        scale = _Scale(self.problem)
        if before is None:
            # The steepest quadratics that the losses allow lead to no step too far.
            zeros = np.zeros((self.n_agents, self.problem.dimension))
            dispersion = scale.of(float(self.losses.values(zeros).sum()))
            quadratics = self._around(zeros, dispersion, self._steepest.copy())
        else:
            quadratics, dispersion = self._at(before.models, before.prior.dispersion), before.prior.dispersion
        value, numbers, turns, models = math.inf, start, 0, None if before is None else before.models
        while True:
            numbers, explained = best_prior(
                quadratics, shape, self.widths, numbers, self.bounds, _TURN_TOLERANCE
            )
            prior = self._prior(shape, numbers, math.sqrt(dispersion) * explained.mean, dispersion)
            models = posterior_models(self.problem, prior, start=models)
            # Where curvatures jump, turns could go to and fro for ever: then the way is halved.
            quadratics = self._at(models, dispersion).mixed(quadratics, 0.0 if turns < _WHOLE_TURNS else 0.5)
            earlier, value = value, self._value(quadratics, shape, numbers) + scale.normalizer(dispersion)
            turns += 1
            if abs(earlier - value) <= SETTLED or turns == TURNS:
                return self._judged(shape, numbers, explained._replace(value=value), prior, models)
            if scale.is_free:
                dispersion = scale.of(self._expected_losses(models, quadratics, prior))

    @cached_property
    def _steepest(self) -> NDArray[Any]:
        """The Hessians with the largest curvature that the loss has anywhere."""
        problem = self.problem
        agents = self.losses.agents.tolist()
        features = [problem.population.samples(agent)[0].astype(np.float64) for agent in agents]
        blocks = problem.loss.curvature * np.array([own.T @ own for own in features])
        return np.kron(np.eye(problem.loss.outputs), blocks)

    def _at(self, models: Floats, dispersion: float) -> Quadratics:
        """Of numbers the curvature is that of a residual on average, wherever an agent's own ones lie."""
        own = models[self.losses.agents]
        hessians = self.losses.hessians(own)
        if self.problem.loss.metric == "rmse":
            share = np.einsum("nii->", hessians) / np.einsum("nii->", self._steepest)
            hessians = max(share, _LEAST_CURVATURE) * self._steepest
        return self._around(own, dispersion, hessians)

    def _value(self, quadratics: Quadratics, shape: Shape, numbers: Floats) -> float:
        root = shape.root(numbers[: shape.size])
        return quadratics.explained(root, self.widths.widths(numbers[shape.size :])).value

    def _expected_losses(self, models: Floats, quadratics: Quadratics, prior: Prior) -> float:
        """Of all samples together, over what the agents' models may be."""
        own = models[self.losses.agents]
        root = prior.root / self.scales[:, None] / math.sqrt(prior.dispersion)
        inner = root.T @ quadratics.hessians @ root
        free = np.trace(np.linalg.solve(inner + np.eye(inner.shape[1]), inner), axis1=1, axis2=2)
        return float(self.losses.values(own).sum() + 0.5 * prior.dispersion * free.sum())

    def _judged(
        self, shape: Shape, numbers: Floats, explained: Explained, prior: Prior, models: Floats
    ) -> _Found:
        criterion = 2 * explained.value + shape.n_parameters * math.log(self.n_agents)
        name = f"low rank {shape.rank}" if 0 < shape.rank < shape.dimension else prior.structure
        return _Found(name, shape, numbers, explained, prior, models, criterion)

    def _prior(self, shape: Shape, numbers: Floats, mean: Floats, dispersion: float) -> Prior:
        """In the units of the features."""
        root = self.scales[:, None] * shape.root(numbers[: shape.size])
        covariance = dispersion * root @ root.T
        structure: Structure = "low rank" if shape.rank else "isotropic"
        if shape.is_unrestricted:
            structure = "full"
        return Prior(self.scales * mean, (covariance + covariance.T) / 2, dispersion, structure)


class _Scale:
    """φ where exp(−ℓ/φ) is a density of numbers; elsewhere, as for classes, it is 1."""

    def __init__(self, problem: Problem) -> None:
        self.loss, self.n_samples = problem.loss, problem.population.n_samples
        self.is_free = problem.loss.metric == "rmse"

    def normalizer(self, dispersion: float) -> float:
        """−log of what makes it a density, over all samples."""
        if not self.is_free:
            return 0.0
        unit = math.sqrt(dispersion / self.loss.curvature)
        whole = quad(lambda y: math.exp(-self._loss(unit * y) / dispersion), -np.inf, np.inf)[0]
        return self.n_samples * math.log(unit * whole)

    def of(self, losses: float) -> float:
        """The φ for which losses of this sum are most probable."""
        if not self.is_free:
            return 1.0
        guess = math.log(max(2 * losses / self.n_samples, _LEAST_DISPERSION))
        result: Any = minimize_scalar(
            lambda log: losses / math.exp(log) + self.normalizer(math.exp(log)),
            bounds=(guess - 10, guess + 10),
            method="bounded",
        )
        return math.exp(result.x)

    def _loss(self, residual: float) -> float:
        return sample_value(self.loss, np.zeros(1), residual)
