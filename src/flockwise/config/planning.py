"""From a configuration to a plan: its data are opened for their sizes alone."""

from __future__ import annotations

from flockwise.config.budgets import budgets_of
from flockwise.config.objectives import build_problem
from flockwise.config.samples import load_samples
from flockwise.config.schema import Config
from flockwise.config.sections import DifferentialPrivacy, Objective
from flockwise.errors import ConfigError
from flockwise.objective import Problem
from flockwise.planner import Plan, PublicFacts, plan_run
from flockwise.planner.plan import Progress

# Until a plan has chosen one; nothing that a plan may know depends on it.
ANY_TRADEOFF = 1.0


def plan_of(config: Config, progress: Progress | None = None) -> Plan:
    """A plan for the budgets of a configuration, whichever method it names."""
    if not isinstance(config.privacy, DifferentialPrivacy):
        raise ConfigError('privacy.kind: got "none"; a plan is for private runs: write kind = "dp"')
    samples = load_samples(config.data, config.seed, config.objective.feature_bound)
    return plan_run(facts_of(config, build_problem(config, samples, ANY_TRADEOFF)), progress)


def facts_of(config: Config, problem: Problem) -> PublicFacts:
    """What is public about a configured problem."""
    privacy, objective = config.privacy, config.objective
    assert isinstance(privacy, DifferentialPrivacy)
    return PublicFacts.of(
        problem,
        budgets_of(privacy, problem),
        tradeoff=None if objective.tradeoff == "auto" else objective.tradeoff,
        residual_scale=_residual_scale(objective, privacy),
    )


def _residual_scale(objective: Objective, privacy: DifferentialPrivacy) -> float | None:
    """Of numbers under the quadratic loss: the residual r whose gradient, 2·r·‖x‖, is clip_norm."""
    if privacy.clip_norm is None or objective.feature_bound is None:
        return None
    return privacy.clip_norm / (2 * objective.feature_bound)
