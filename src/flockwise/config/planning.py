"""From a configuration to a plan: its data are opened for their sizes alone."""

from __future__ import annotations

from typing import Any

from flockwise.config.budgets import budgets_of
from flockwise.config.problems import build_problem
from flockwise.config.samples import load_samples
from flockwise.config.schema import Config
from flockwise.errors import ConfigError
from flockwise.method import PublicFacts
from flockwise.objective import Problem
from flockwise.planner import Recommendation, plan_run
from flockwise.planner.recommendation import Progress

# Until a plan has chosen one; nothing that a plan may know depends on it.
ANY_TRADEOFF = 1.0


def plan_of(config: Config, progress: Progress | None = None) -> Recommendation:
    """A plan for the budgets of a configuration, whichever method it names."""
    if not config.is_private:
        raise ConfigError('privacy.kind: got "none"; a plan is for private runs: write kind = "dp"')
    samples = load_samples(config.data, config.seed)
    return plan_run(facts_of(config, build_problem(config, samples, ANY_TRADEOFF)), progress)


def facts_of(config: Config, problem: Problem) -> PublicFacts:
    """What is public about a configured problem."""
    privacy, objective = config.privacy, config.objective
    given = objective.tradeoff != "auto"
    return PublicFacts.of(
        problem.with_objective(tradeoff=objective.tradeoff) if given else problem,
        budgets_of(privacy, problem),
        chooses_tradeoff=not given,
        residual_scale=_residual_scale(objective, privacy),
    )


def _residual_scale(objective: Any, privacy: Any) -> float | None:
    """Of numbers under the quadratic loss: the residual r whose gradient, 2·r·‖x‖, is clip_norm."""
    clip = getattr(privacy, "clip_norm", None)
    if clip is None or objective.feature_bound is None:
        return None
    return clip / (2 * objective.feature_bound)
