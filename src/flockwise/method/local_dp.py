"""The local-privacy baseline: every sample is perturbed itself, and then all of them could be published."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from flockwise.arrays import Floats
from flockwise.checks import Configured
from flockwise.method.base import METHODS, Prepared
from flockwise.method.rules import Solved
from flockwise.objective import CollaborativeObjective, Objective, Problem
from flockwise.privacy.accounting import default_accountant
from flockwise.privacy.budget import Budget, Budgets
from flockwise.privacy.grid import clip_rows
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.mechanisms import MECHANISMS, usual_mechanism
from flockwise.privacy.plan import Plan
from flockwise.privacy.schedule import distinct_budgets
from flockwise.randomness.noise import LaplaceSampler, NormalSampler, standard_noise
from flockwise.release.statistic import Misfit
from flockwise.solve import solve_local_models

# Of ε, for the label or target; the rest, and all of δ, is for the features.
TARGET_SHARE = 0.5
# The numbers of the two draws in an agent's stream of simulated noise.
FEATURE_DRAW, TARGET_DRAW = 0, 1
# Beyond it e^ε overflows, and a lie has probability 0 in double precision long before.
LARGEST_EXPONENT = 700.0


@METHODS.register
@dataclass(frozen=True)
class LocalDP:
    """Local differential privacy (supplement D): noise on every sample, then learning without privacy.

    Replacing a sample changes one perturbed sample, so each may spend its agent's whole budget. Samples are
    scaled down to the objective's feature bound, in L2 for normal noise (δ > 0), in L1 for Laplace (δ = 0).
    Numbers are clipped to its target range and get Laplace noise; labels get randomized response. The own
    model is the local one: an agent does not need its perturbed samples.
    """

    privacy: Annotated[Budgets, Configured(None)]
    name = "local_dp"
    label: ClassVar[str] = "local privacy (noisy samples)"
    rule: ClassVar[type] = Solved
    needs_graph: ClassVar[bool] = False

    def misfits(self, objective: Objective) -> Iterator[Misfit]:
        if objective.feature_bound is None:
            yield Misfit(
                "objective.feature_bound",
                "missing; local privacy needs a bound on the length of every sample",
            )
        if objective.loss.metric != "accuracy" and objective.target_range is None:
            yield Misfit(
                "objective.target_range", "missing; local privacy of real-valued targets needs a public range"
            )

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        models = solve_local_models(self.perturbed(problem, seed))
        objective = None if problem.graph is None else CollaborativeObjective(problem)
        guarantee = Guarantee.of(
            self.privacy,
            mechanism="noise on every sample itself, labels by randomized response",
            accountant="basic",
            origins=problem.origins,
        )
        return Prepared(Solved(models), objective, guarantee, lambda models, _: solve_local_models(problem))

    def perturbed(self, problem: Problem, seed: int) -> Problem:
        """The same problem on perturbed samples, which any method may use."""
        population = problem.population
        features = population.features.astype(np.float64)
        targets = population.targets.astype(np.float64)
        budgets, rows = distinct_budgets(self.privacy, problem.n_agents)
        for agent, row in enumerate(rows):
            own = slice(population.offsets[agent], population.offsets[agent + 1])
            if own.start == own.stop:
                continue
            budget = budgets[row]
            features[own] = _noisy_features(features[own], problem.objective, budget, agent, seed)
            targets[own] = _noisy_targets(targets[own], problem.objective, budget, agent, seed)
        dtype = population.dtype
        perturbed = population.with_samples(features.astype(dtype), targets.astype(dtype))
        # A public bound on the features holds for them no more.
        objective = replace(problem.objective, feature_bound=None, target_range=None)
        return replace(problem, population=perturbed, objective=objective)


def _noisy_features(features: Floats, objective: Objective, budget: Budget, agent: int, seed: int) -> Floats:
    bound = objective.feature_bound
    assert bound is not None
    share = Budget((1 - TARGET_SHARE) * budget.epsilon, budget.delta)
    mechanism = usual_mechanism("l2" if budget.delta > 0 else "l1")
    accountant = default_accountant(mechanism, budget.delta) if budget.delta > 0 else "basic"
    (multiplier,) = Plan.fitting(share, mechanism, 1, accountant=accountant).multipliers
    noise = standard_noise(MECHANISMS[mechanism].sampler(), seed, agent, FEATURE_DRAW, features.size)
    clipped = clip_rows(features, bound, MECHANISMS[mechanism].norm)
    return clipped + 2 * bound * multiplier * noise.reshape(features.shape)


def _noisy_targets(targets: Floats, objective: Objective, budget: Budget, agent: int, seed: int) -> Floats:
    epsilon, loss = TARGET_SHARE * budget.epsilon, objective.loss
    if loss.metric == "accuracy":
        classes = np.array([-1, 1]) if loss.outputs == 1 else np.arange(loss.outputs)
        uniforms = ndtr(standard_noise(NormalSampler(), seed, agent, TARGET_DRAW, targets.size))
        return _randomized_response(targets, classes, epsilon, uniforms)
    assert objective.target_range is not None
    low, high = objective.target_range
    noise = standard_noise(LaplaceSampler(), seed, agent, TARGET_DRAW, targets.size)
    return np.clip(targets, low, high) + (high - low) / epsilon * noise


def _randomized_response(
    labels: Floats, classes: NDArray[np.int64], epsilon: float, uniforms: Floats
) -> Floats:
    """The label with probability e^ε/(e^ε + k − 1), else one of the k − 1 others, all alike."""
    other = 1 / (math.exp(epsilon) + len(classes) - 1) if epsilon < LARGEST_EXPONENT else 0.0
    # From 0 to 1: the truth first, then the others in order, each as wide as it is probable.
    ends = 1 - other * np.arange(len(classes) - 1, 0, -1)
    steps = np.searchsorted(ends, uniforms, side="right")
    return classes[(np.searchsorted(classes, labels) + steps) % len(classes)].astype(np.float64)
