"""A plan in words: what it advises, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from flockwise.method import PublicFacts
from flockwise.planner.recommendation import Recommendation
from flockwise.planner.twins import TWINS_PER_SHARE


def advice(plan: Recommendation) -> str:
    """What to do, and why."""
    best = plan.best
    if best is None:
        return f"Keep your local models: no private method can be run; {_missing(plan.facts)}."
    expected = (
        f"{best.candidate.words}, expected to gain {best.gain:+.4f} ± {best.spread:.4f} over local models"
    )
    if plan.chosen is not None:
        return f"Run {expected}{_by_share(plan)}."
    if plan.shares == (0.0,):
        why = "the edges of the graph look random, and neighbors who have nothing in common cannot help"
    else:
        why = (
            f"by collaboration {best.gain_by_collaboration:+.4f} is expected, and a run is worth it from "
            f"{plan.gain_wanted:+.4f} on"
        )
    expected += _by_share(plan)
    return f"Keep your local models: {why}. The best private candidate is {expected}."


def basis(plan: Recommendation) -> Iterator[str]:
    """What the numbers rest on, a line each."""
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
