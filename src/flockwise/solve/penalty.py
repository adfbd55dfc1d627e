"""Choice of the penalties λ_i by cross-validation inside the agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

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


class ChosenPenalties(tuple[float, ...]):
    """Penalties that know, wherever they are used, that they were chosen on samples."""

    origin = CHOSEN


def choose_l2(
    problem: Problem, *, weights: Sequence[float] = WEIGHTS, splits: int = 5, seed: int = 0
) -> Problem:
    """The same problem with λ_i = weight/m_i, by the weight whose local models predict best.

    A quarter of every agent's samples is held out, `splits` times; the loss there is averaged over all
    held-out samples. The choice looks at everybody's samples, so guarantees name it as not covered.
    """
    pairs = [problem.population.split(HELD_OUT_SHARE, seed + number) for number in range(splits)]
    if not any(held_out.n_samples for _, held_out in pairs):
        raise ObjectiveError('l2="auto": no agent has two samples, so none can be held out; give l2 a number')
    losses = [sum(_held_out_loss(problem, weight, *pair) for pair in pairs) for weight in weights]
    best = weights[int(np.argmin(losses))]
    penalties = ChosenPenalties(_penalties(best, problem.population))
    return replace(problem, objective=replace(problem.objective, l2=penalties))


def _held_out_loss(problem: Problem, weight: float, train: Population, held_out: Population) -> float:
    """The loss of the local models, summed over the samples that were held out."""
    objective = replace(problem.objective, l2=_penalties(weight, train))
    models = solve_local_models(Problem(train, None, objective), tolerance=TOLERANCE)
    judge = LocalObjectives(Problem(held_out, None, replace(objective, l2=0.0)))
    return float(judge.values(models) @ held_out.sample_counts)


def _penalties(weight: float, population: Population) -> tuple[float, ...]:
    return tuple((weight / np.maximum(population.sample_counts, 1)).tolist())
