"""The tables of a page: what each run reached, how each agent fares, and what ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from flockwise.report.comparison import Comparison
from flockwise.report.verdict import promise

# A page of more agents would be slow to open: of larger populations both ends are shown.
MOST_LISTED = 2000
ENDS = {
    "solved": "computed at once",
    "ticks": "when all agents together had made their updates",
    "updates": "when every agent had made its updates",
    "time": "when the simulated time was over",
    "tolerance": "when the objective had settled",
}


class AgentTable(NamedTuple):
    """One row per agent: its name, its samples, its scores, and what it gains in the main run.

    columns: headings of the scores. rows: (name, samples, scores, gain), NaN where nothing is known.
    n_left_out: agents in the middle that are not listed.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, int, tuple[float, ...], float], ...]
    n_left_out: int


def shown_metric(value: float, metric: str) -> str:
    """As tables show it."""
    if np.isnan(value):
        return "–"
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.4f}"


def shown_gain(value: float, metric: str) -> str:
    """With its sign; more is better, in points of accuracy or in units of the target."""
    if np.isnan(value):
        return "–"
    return f"{100 * value:+.1f}" if metric == "accuracy" else f"{value:+.4f}"


def results_table(comparison: Comparison) -> list[dict[str, str]]:
    """One row per run, two for a private one."""
    n_agents, metric = comparison.problem.n_agents, comparison.metric
    return [
        {
            "label": comparison.label(row.method, row.model),
            "color": comparison.look(row.method, row.model)[0],
            "metric": shown_metric(row.metric, metric),
            "spread": shown_metric(row.metric_sd, metric),
            "objective": "–" if np.isnan(row.objective) else f"{row.objective:,.4f}",
            "updates": _amount(row.updates / n_agents),
            "vectors": _amount(row.vectors / n_agents),
            "megabytes": _amount(row.bytes / 1e6),
        }
        for row in comparison.rows
    ]


def agent_table(comparison: Comparison) -> AgentTable | None:
    """Everyone alone and in each collaborative run; None where there is nothing to compare."""
    found = comparison.gains()
    if found is None:
        return None
    main, gains = found
    names = [main, *(name for name in comparison.collaborative if name != main)]
    scores = [comparison.alone, *map(comparison.agent_scores, names)]
    columns = ("alone", *(comparison.label(name, comparison.shown_model(name)) for name in names))
    agents = _listed(gains)
    population = comparison.problem.population
    counts, known = population.sample_counts, population.agent_names
    rows = tuple(
        (
            known[agent],
            int(counts[agent]),
            tuple(float(each[agent]) for each in scores if each is not None),
            float(gains[agent]),
        )
        for agent in agents.tolist()
    )
    return AgentTable(columns, rows, comparison.problem.n_agents - len(rows))


def _listed(gains: np.ndarray) -> np.ndarray:
    """All agents in their own order, or those that lose most and those that gain most."""
    if len(gains) <= MOST_LISTED:
        return np.arange(len(gains))
    order = np.argsort(gains)  # agents that cannot be judged come last
    judged = order[: np.count_nonzero(~np.isnan(gains))]
    return np.concatenate((judged[: MOST_LISTED // 2], judged[MOST_LISTED // 2 :][-(MOST_LISTED // 2) :]))


def what_ran(comparison: Comparison) -> list[tuple[str, list[tuple[str, str]]]]:
    """Every collaborative run with its settings and, where it is private, its plan."""
    return [(comparison.label(name), list(_ran(comparison, name))) for name in comparison.collaborative]


def _ran(comparison: Comparison, name: str) -> Iterator[tuple[str, str]]:
    run, guarantee = comparison.runs[name], comparison.runs[name].guarantee
    yield "method", run.method
    for key, value in run.settings.get("method_settings", {}).items():
        if key not in ("kind", "privacy") and value is not None:
            yield key.replace("_", " "), in_words(value)
    yield "updates of an agent", _spread(run.updates)
    yield "ended", ENDS.get(run.stopped, run.stopped)
    for key in ("engine", "seed"):
        if key in run.settings:
            yield key, str(run.settings[key])
    if guarantee is None:
        yield "privacy", "none"
        return
    yield "budget", promise(guarantee)
    yield "plan", f"{guarantee.mechanism}, added up by the {guarantee.accountant} accountant"
    if guarantee.noise_multiplier is not None:
        yield "noise", f"{guarantee.noise_multiplier:.4g} times what one sample can change"


def in_words(value: Any) -> str:
    """A setting, with the settings inside it."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{k.replace('_', ' ')} {in_words(v)}" for k, v in value.items() if k != "kind")
        kind = value.get("kind", "")
        return f"{kind} ({inside})" if kind and inside else kind or inside
    if isinstance(value, list):
        return ", ".join(map(in_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _spread(values: np.ndarray) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}, mean {values.mean():,.1f}"


def _amount(value: float) -> str:
    return f"{value:,.1f}" if value else "0"
