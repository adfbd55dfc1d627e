"""The opening paragraph of docs/reproduction.md: one sentence per finding, made from its numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.result import Result, Row


def gist(results: Sequence[Result]) -> str:
    """A sentence for each experiment that has one and was run, in the order of the argument."""
    by_name = {result.name: result for result in results}
    return " ".join(say(by_name[name]) for name, say in _SENTENCES.items() if name in by_name)


def _without_privacy(result: Result) -> str:
    parts = []
    for graph in ("dense", "medium", "sparse"):
        needed = result.where(graph=graph, metric="iterations_to_final")
        descent = next(row for row in needed if row.what == "collaborative")
        gossip = min(
            (row for row in needed if row.what == "admm"), key=lambda row: (not row.more["reached"], row.ours)
        )
        parts.append(f"{_count(descent)} iterations against {_count(gossip)} on the {graph} graph")
    return (
        "Without privacy, coordinate descent and gossip ADMM with the best penalty come within .005 of the "
        f"accuracy at the optimum in {', '.join(parts)}."
    )


def _count(row: Row) -> str:
    return f"{'' if row.more['reached'] else 'more than '}{row.ours:,.0f}"


def _published_noise(result: Result) -> str:
    private = {"what": "private", "model": "released", "metric": "accuracy"}
    sound, without = (
        max(row.ours for row in result.where(variant=variant, **private))
        for variant in ("honest", "published")
    )
    paper = max(row.paper or 0.0 for row in result.where(variant="honest", **private))
    return (
        f"With the sensitivity enforced, the paper's private method reaches an accuracy of {sound:.2f} at "
        f"ε = 0.5 and p = 100 where the paper shows {paper:.2f}; a tenth of the printed noise, which "
        f"guarantees nothing, gives {without:.2f}."
    )


def _low_pass(result: Result) -> str:
    local = result.find(what="local", dimension=100).ours
    own = result.find(what="private", variant="honest", model="own", dimension=100, epsilon=1.05)
    sparse = result.find(what="local_l1", dimension=100).ours
    return (
        "One release per agent, smoothed over many hops, and own models that are never sent reach "
        f"{own.ours:.3f} at ε = 1.05 and p = 100 with a guarantee that holds (published {own.paper}), "
        f"against {local:.3f} for purely local models with the paper's L2 penalty; with an L1 penalty, which "
        f"fits this task of two informative features, purely local models have {sparse:.3f}."
    )


def _larger_networks(result: Result) -> str:
    rows = result.where(
        what="private",
        model="own",
        dimension=100,
        epsilon=1.05,
        metric="accuracy",
        edges="right",
        features="as drawn",
    )
    words = [f"{row.ours:.3f} with {row.agents:,} agents" for row in rows if row.agents > 100]
    return f"At the same ε larger networks are more accurate: {', '.join(words)}."


def _ratings(result: Result) -> str:
    cells = result.where(what="private", variant="honest", source="als", model="released")
    printed = [row for row in cells if row.paper is not None]
    ours, paper, epsilons = (
        " / ".join(words)
        for words in (
            (f"{row.ours:.4f}" for row in printed),
            (f"{row.paper:.4f}" for row in printed),
            (f"{row.epsilon:g}" for row in printed),
        )
    )
    return (
        f"On MovieLens-100K released models have an RMSE of {ours} at ε = {epsilons} (published {paper}), "
        "with features and graph taken as public."
    )


_SENTENCES: dict[str, Callable[[Result], str]] = {
    "fig1": _without_privacy,
    "fig2a": _published_noise,
    "fig2c": _low_pass,
    "scaling": _larger_networks,
    "table1": _ratings,
}
