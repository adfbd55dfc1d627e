"""A recommendation in words, and as a document for other programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flockwise.method import PublicFacts
from flockwise.planner.recommendation import Recommendation
from flockwise.planner.trials import Expectation
from flockwise.planner.twins import TWINS_PER_SHARE
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import spans


def advice(plan: Recommendation) -> str:
    """The advice, and the reasons for it."""
    best = plan.best
    if best is None:
        return f"Keep your local models: no private method can be run; {_missing(plan.facts)}."
    expected = (
        f"{best.candidate.words}, expected to gain {best.gain:+.4f} ± {best.spread:.4f} over local models"
    )
    if plan.chosen is not None:
        return f"Run {expected}{_by_share(plan)}."
    if plan.shares == (0.0,):
        why = "the edges of the graph look random, and neighbors with nothing in common cannot help"
    else:
        why = (
            f"by collaboration {best.gain_by_collaboration:+.4f} is expected, and a run is worth it from "
            f"{plan.gain_wanted:+.4f} on"
        )
    expected += _by_share(plan)
    return f"Keep your local models: {why}. The best private candidate is {expected}."


def basis(plan: Recommendation) -> Iterator[str]:
    """The basis of the numbers, a line each."""
    made_from_data = "" if plan.facts.not_covered else "; no feature and no target was looked at"
    yield (
        f"Expected from {TWINS_PER_SHARE * len(plan.shares)} generated twins with the same sample counts, "
        f"dimension, graph, loss and budgets{made_from_data}."
    )
    shares = ", ".join(f"{share:.0%}" for share in plan.shares)
    yield f"Of the twins' models {shares} varies along the graph; the rest is each agent's own."
    if plan.simulated_agents < plan.facts.n_agents:
        yield (
            f"A twin has {plan.simulated_agents} of the {plan.facts.n_agents:,} agents and the edges between "
            "them; a larger network smooths more noise away, so this usually promises too little."
        )
    for leak in plan.facts.not_covered:
        yield f"NOT public, so neither is this plan: {leak}."


def _by_share(plan: Recommendation) -> str:
    """The gain where the graph is right, half right, and wrong."""
    assert plan.best is not None
    gains = plan.best.gains.items()
    if len(gains) == 1:
        return ""
    return f" ({', '.join(f'{gain:+.4f} at {share:.0%} along the graph' for share, gain in gains)})"


def _missing(facts: PublicFacts) -> str:
    if facts.objective.feature_bound is None:
        return "give a feature_bound, a public bound on the length of every sample"
    return "give a bound on gradients (clip_norm), or take a loss that has one"


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
