"""Choice of the penalties λ_i by cross-validation inside the agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flockwise.arrays import Floats
from flockwise.data.population import Population
from flockwise.errors import ObjectiveError
from flockwise.objective.local_batch import LocalObjectives
from flockwise.objective.problem import Problem
from flockwise.privacy.origin import Origin
from flockwise.solve.local import solve_local_models

# λ_i = weight / m_i: one prior for all agents, which counts the less the more samples an agent has.
WEIGHTS = tuple(4.0**power for power in range(-7, 6))
HELD_OUT_SHARE = 0.25
TOLERANCE = 1e-4
CHOSEN = Origin("the penalties l2, chosen by cross-validation on the agents' samples", "private")
CHOSEN_ALONE = Origin("the penalties l2, which each agent chose on its own samples", "private")


class ChosenPenalties(tuple[float, ...]):
    """Penalties that know, wherever they are used, that they were chosen on samples."""

    origin = CHOSEN


class OwnPenalties(ChosenPenalties):
    """Where each agent looked at its own samples only: it leaks only where what is sent depends on λ."""

    origin = CHOSEN_ALONE


def choose_l2(
    problem: Problem,
    *,
    weights: Sequence[float] = WEIGHTS,
    splits: int = 5,
    seed: int = 0,
    alone: bool = False,
) -> Problem:
    """The same problem with λ_i = weight/m_i, by the weight whose local models predict best.

    A quarter of every agent's samples is held out, `splits` times. The loss there is added up over all
    agents' held-out samples, and all get one weight; with `alone` each agent looks at its own samples only.
    Either choice depends on private samples, so guarantees name it as not covered: in private runs it is for
    what stays at home. A learned prior sends nothing that depends on λ, so it covers what agents chose alone.
    """
    pairs = [problem.population.split(HELD_OUT_SHARE, seed + number) for number in range(splits)]
    if not any(held_out.n_samples for _, held_out in pairs):
        raise ObjectiveError('l2="auto": no agent has two samples, so none can be held out; give l2 a number')
    losses = np.array([sum(_held_out_losses(problem, weight, *pair) for pair in pairs) for weight in weights])
    if not alone:
        losses[:] = losses.sum(axis=1, keepdims=True)
    best = np.asarray(weights)[losses.argmin(axis=0)]
    if alone:  # who can hold nothing out keeps the default
        best[problem.population.sample_counts < 2] = 1.0
    kind = OwnPenalties if alone else ChosenPenalties
    penalties = kind(penalties_of(best, problem.population))
    return replace(problem, objective=replace(problem.objective, l2=penalties))


def resolve_l2(problem: Problem, *, is_private: bool) -> Problem:
    """What l2="auto" stands for: a choice on everybody's samples, or in a private run the public default.

    Penalties enter step sizes, starts and releases. A choice would tell in them what no budget pays for. What
    stays at home has the default, too: an agent's own choice makes local models worse (docs/choosing.md).
    """
    if problem.objective.l2 != "auto":
        return problem
    return problem.with_objective(l2=None) if is_private else choose_l2(problem)


def _held_out_losses(problem: Problem, weight: float, train: Population, held_out: Population) -> Floats:
    """The loss of every agent's local model, summed over its samples that were held out."""
    objective = replace(problem.objective, l2=penalties_of(weight, train))
    models = solve_local_models(Problem(train, None, objective), tolerance=TOLERANCE)
    judge = LocalObjectives(Problem(held_out, None, replace(objective, l2=0.0)))
    return judge.values(models) * held_out.sample_counts


def penalties_of(weights: float | Floats, population: Population) -> tuple[float, ...]:
    """λ_i = weight/m_i, by one weight for all agents or one each."""
    return tuple((weights / np.maximum(population.sample_counts, 1)).tolist())
