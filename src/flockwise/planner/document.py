"""A plan for other programs."""

from __future__ import annotations

from typing import Any

from flockwise.planner.expectation import Expectation
from flockwise.planner.recommendation import Recommendation
from flockwise.planner.twins import TWINS_PER_SHARE
from flockwise.planner.words import advice
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import spans


def document(plan: Recommendation) -> dict[str, Any]:
    """Numbers and words; ε and δ as the least and the largest over agents."""
    facts = plan.facts
    epsilon, delta = spans([facts.budgets] if isinstance(facts.budgets, Budget) else facts.budgets)
    return {
        "agents": facts.n_agents,
        "simulated_agents": plan.simulated_agents,
        "dimension": facts.objective.loss.outputs * facts.n_features,
        "epsilon": epsilon,
        "delta": delta,
        "metric": facts.objective.loss.metric,
        "twins": TWINS_PER_SHARE * len(plan.shares),
        "shares_along_graph": plan.shares,
        "not_covered": facts.not_covered,
        "local": plan.local,
        "candidates": [_row(expected) for expected in plan.expectations],
        "chosen": None if plan.chosen is None else plan.chosen.words,
        "advice": advice(plan),
    }


def _row(expected: Expectation) -> dict[str, Any]:
    candidate = expected.candidate
    return {
        "candidate": candidate.words,
        "method": candidate.method.name,
        "updates": candidate.stops.get("updates"),
        "tradeoff": candidate.tradeoff,
        "released": None if candidate.sends_nothing else expected.mean("released"),
        "own": expected.mean("own"),
        "gain": expected.gain,
        "spread": expected.spread,
        "gain_by_collaboration": expected.gain_by_collaboration,
        "standard_error": expected.error,
        "gain_by_share": {f"{share:g}": gain for share, gain in expected.gains.items()},
        "noise_multiplier": None if candidate.sends_nothing else expected.mean("noise"),
        "vectors_per_agent": expected.mean("vectors"),
        "bytes_per_agent": expected.mean("bytes"),
    }
