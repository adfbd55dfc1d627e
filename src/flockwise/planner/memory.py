"""A plan that was made is not made again: it is kept beside the compiled code, under a hash of its facts.

Nothing but public facts enters a plan, so nothing else enters the file. A plan made by other code, or with
parts from another package, is not found.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from flockwise.code_cache import cache_folder
from flockwise.files import write_json
from flockwise.method import Candidate, PublicFacts, candidates
from flockwise.planner.recommendation import Group, Progress, Recommendation, plan_run
from flockwise.planner.trials import Expectation, Trial
from flockwise.registry import declared_by


def recalled_plan(facts: PublicFacts, progress: Progress | None = None) -> Recommendation:
    """The plan for these facts: made now, or read where the same code made it before."""
    offered = {one.words: one for one in candidates(facts)}
    file = _file(facts, offered)
    if file is not None and file.is_file():
        found = _read(file, facts, offered)
        if found is not None:
            return found
    plan = plan_run(facts, progress)
    if file is not None:
        write_json(file, {"groups": [_group_document(group) for group in plan.groups]})
    return plan


def _file(facts: PublicFacts, offered: dict[str, Candidate]) -> Path | None:
    folder = cache_folder()
    parts = (facts.objective.loss, *(one.method for one in offered.values()))
    if folder is None or any(declared_by(part) for part in parts):
        return None
    digest = hashlib.sha256(f"{_all_code()}\n{sorted(offered)}\n{_plain(facts)}".encode())
    if facts.graph is not None:
        for array in (facts.graph.offsets, facts.graph.neighbors, facts.graph.weights):
            digest.update(array.tobytes())
    digest.update(facts.sample_counts.tobytes())
    return folder / f"flockwise-plan-{digest.hexdigest()[:32]}.json"


@lru_cache(maxsize=1)
def _all_code() -> str:
    """A hash of the package: any part of it may change what a plan finds."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _plain(facts: PublicFacts) -> str:
    """All but arrays."""
    source = None if facts.graph is None else facts.graph.source
    settings = facts.n_features, facts.chooses_tradeoff, facts.has_intercept, facts.residual_scale
    return f"{settings}\n{facts.objective!r}\n{facts.budgets!r}\n{source!r}\n{facts.origins!r}"


def _group_document(group: Group) -> dict[str, Any]:
    return {
        "sums_only": group.sums_only,
        "simulated_agents": group.simulated_agents,
        "local": group.local,
        "follows_graph": group.follows_graph,
        "expectations": _plain_expectations(group.expectations),
        "others": _plain_expectations(group.others),
    }


def _plain_expectations(expectations: tuple[Expectation, ...]) -> list[Any]:
    return [[one.candidate.words, one.trials] for one in expectations]


def _read(file: Path, facts: PublicFacts, offered: dict[str, Candidate]) -> Recommendation | None:
    """None for a file that is damaged."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        return Recommendation(facts, tuple(_group(group, offered) for group in document["groups"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _group(document: dict[str, Any], offered: dict[str, Candidate]) -> Group:
    expectations: dict[str, Any] = {
        name: _expectations(document[name], offered) for name in ("expectations", "others")
    }
    return Group(**(document | expectations))


def _expectations(rows: list[Any], offered: dict[str, Candidate]) -> tuple[Expectation, ...]:
    return tuple(
        Expectation(offered[words], tuple(Trial(*trial) for trial in trials)) for words, trials in rows
    )
