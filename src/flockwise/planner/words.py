"""A recommendation in words, and as a document for other programs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flockwise.method import PublicFacts
from flockwise.method.base import reasons_against
from flockwise.planner.recommendation import Group, Recommendation, has_public_graph
from flockwise.planner.trials import Expectation
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import spans


def advice(plan: Recommendation) -> str:
    """The advice, and the reasons for it."""
    group = plan.group
    if group is None:
        return f"Keep your local models: no private method can be run; {_missing(plan.facts)}."
    best = group.best
    expected = (
        f"{best.candidate.words}, expected to gain {best.gain:+.2%} ± {best.error:.2%} {_unit(plan)} over "
        "the best local models"
    )
    if not group.is_worth_it:
        return (
            f"Keep your local models: a run is worth it from {group.gain_wanted:+.2%} on. The best private "
            f"candidate is {expected}. {_risk(plan, group)}"
        )
    condition = " if only sums over all agents are opened" if group.sums_only else ""
    caution = f" Mind that {best.candidate.caution}." if best.candidate.caution else ""
    return f"Run {expected}{condition}. {_risk(plan, group)}{caution}"


def _unit(plan: Recommendation) -> str:
    return "of accuracy" if plan.facts.objective.loss.metric == "accuracy" else "of the RMSE"


def _risk(plan: Recommendation, group: Group) -> str:
    """The worst twin, and what a loss would cost."""
    worst = group.best.worst
    twin = f'The worst of {len(group.best.trials)} twins, "{worst.world}",'
    if worst.gain >= 0:
        return f"{twin} gains {worst.gain:+.2%} {_unit(plan)}; if yours gains nothing, the budget is spent."
    return (
        f"{twin} loses: {worst.gain:+.2%} {_unit(plan)}. If your agents are like that, a run costs them so "
        "much, and the budget is spent all the same."
    )


def heading(group: Group) -> str:
    """The adversary of a group of candidates."""
    if group.sums_only:
        return "If only sums over all agents are opened, against coalitions of part of them"
    return "Against everybody who sees all messages"


def basis(plan: Recommendation) -> Iterator[str]:
    """The basis of the numbers, a line each."""
    facts = plan.facts
    made_from_data = "" if facts.not_covered else "; no feature and no target was looked at"
    yield (
        "Expected from generated twins with the same sample counts, dimension, graph, loss and "
        f"budgets{made_from_data}. A gain is over the best that each twin's agents do alone."
    )
    for group in plan.groups:
        worlds = ", ".join(group.best.gains)
        yield f"{heading(group)}: {len(group.best.trials)} twins ({worlds})."
        if group.others:
            behind = "; ".join(f"{one.candidate.words} ({one.gain:+.2%})" for one in group.others)
            yield f"These fell behind on {len(group.others[0].trials)} of the twins: {behind}."
        if group.simulated_agents < facts.n_agents:
            yield (
                f"A twin has {group.simulated_agents} of the {facts.n_agents:,} agents; a larger network "
                "averages more noise away, so this usually promises too little."
            )
    yield from _about_the_graph(plan)
    for reason in reasons_against(facts):
        yield f"Not tried: {reason}."
    for leak in facts.not_covered:
        yield f"NOT public, so neither is this plan: {leak}."


def _about_the_graph(plan: Recommendation) -> Iterator[str]:
    graph = plan.facts.graph
    if graph is None or not plan.groups:
        return
    if not graph.source.neighbors_resemble:
        yield f"The graph does not say who resembles whom: it links {graph.source.description}."
    elif not any(group.follows_graph for group in plan.groups) and any(not g.sums_only for g in plan.groups):
        yield "The edges of the graph look random, so nothing is expected to vary along them."
    if not has_public_graph(plan.facts) and any(group.sums_only for group in plan.groups):
        yield "No public graph says who resembles whom, so sums, which need none, come first."


def _missing(facts: PublicFacts) -> str:
    reasons = reasons_against(facts)
    if reasons:
        return "; ".join(reasons)
    if facts.objective.feature_bound is None:
        return "give a feature_bound, a public bound on the length of every sample"
    if facts.objective.loss.metric == "rmse" and facts.objective.target_range is None:
        return "give a target_range, or a bound on gradients (clip_norm)"
    return "give a bound on gradients (clip_norm), or take a loss that has one"


def document(plan: Recommendation) -> dict[str, Any]:
    """Numbers and words; ε and δ as the least and the largest over agents."""
    facts = plan.facts
    epsilon, delta = spans([facts.budgets] if isinstance(facts.budgets, Budget) else facts.budgets)
    return {
        "agents": facts.n_agents,
        "dimension": facts.objective.loss.outputs * facts.n_features,
        "epsilon": epsilon,
        "delta": delta,
        "metric": facts.objective.loss.metric,
        "not_covered": facts.not_covered,
        "groups": [_of_group(group) for group in plan.groups],
        "chosen": None if plan.chosen is None else plan.chosen.words,
        "advice": advice(plan),
    }


def _of_group(group: Group) -> dict[str, Any]:
    return {
        "adversary": heading(group),
        "sums_only": group.sums_only,
        "simulated_agents": group.simulated_agents,
        "twins": len(group.best.trials),
        "local": group.local,
        "gain_wanted": group.gain_wanted,
        "candidates": [_row(expected) for expected in group.expectations],
        "fell_behind": [
            {"candidate": one.candidate.words, "method": one.candidate.method.name, "gain": one.gain}
            for one in group.others
        ],
    }


def _row(expected: Expectation) -> dict[str, Any]:
    candidate, noise = expected.candidate, expected.mean("noise")
    return {
        "candidate": candidate.words,
        "method": candidate.method.name,
        "updates": candidate.stops.get("updates"),
        "tradeoff": candidate.tradeoff,
        "released": expected.mean("released"),
        "own": expected.mean("own"),
        "gain": expected.gain,
        "standard_error": expected.error,
        "worst_gain": expected.worst.gain,
        "worst_twin": expected.worst.world,
        "gain_by_world": expected.gains,
        "noise_multiplier": noise if math.isfinite(noise) else None,
        "vectors_per_agent": expected.mean("vectors"),
        "bytes_per_agent": expected.mean("bytes"),
    }
