"""How docs/reproduction.md opens: a few sentences per finding, made from its numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.result import Result, Row


def gist(results: Sequence[Result]) -> list[str]:
    """An item for each experiment that has one and was run, in the order of the argument."""
    by_name = {result.name: result for result in results}
    return [say(by_name[name]) for name, say in _SENTENCES.items() if name in by_name]


def _without_privacy(result: Result) -> str:
    parts = []
    for graph in ("dense", "medium", "sparse"):
        needed = result.where(graph=graph, metric="iterations_to_final")
        descent = next(row for row in needed if row.what == "collaborative")
        gossip = min(
            (row for row in needed if row.what == "admm"), key=lambda row: (not row.more["reached"], row.ours)
        )
        parts.append(f"{_count(descent)} and {_count(gossip)} on the {graph} graph")
    return (
        "Without privacy: iterations of coordinate descent, and of gossip ADMM with its best penalty, until "
        f"the accuracy stays within .005 of that at the optimum. They are {', '.join(parts)}."
    )


def _count(row: Row) -> str:
    return f"{'' if row.more['reached'] else 'more than '}{row.ours:,.0f}"


def _published_noise(result: Result) -> str:
    alone = {row.dimension: row.ours for row in result.where(what="local") if "samples" not in row.more}
    words = (
        "On points of [−1, 1]^p the paper's private method at ε = 1.05, tuned on other instances, with the "
        "noise as printed and nothing clipped, has an accuracy of "
        f"{_at(result, 10, 'printed', 'last'):.3f} at p = 10 and "
        f"{_at(result, 100, 'printed', 'last'):.3f} at p = 100. Learning alone has "
        f"{alone[10]:.3f} and {alone[100]:.3f}."
    )
    if not result.where(noise="zeros"):
        return words
    small, sound = (_at(result, dimension, "zeros", "tail") for dimension in (10, 100))
    return (
        f"{words} With normal noise and every gradient clipped, and so with a guarantee that holds, it has "
        f"{small:.3f} and {sound:.3f}."
    )


def _at(result: Result, dimension: int, noise: str, shown: str) -> float:
    """Accuracy of all agents of the paper's private method at the largest ε."""
    rows = result.where(what="private", dimension=dimension, noise=noise, shown=shown, epsilon=1.05)
    return next(row.ours for row in rows if "samples" not in row.more)


def _range(result: Result) -> str:
    nearest = result.settings["nearest"]
    private = [
        row
        for row in result.where(what="private", metric="accuracy", factor=nearest)
        if row.more["figure"] in ("2a", "2c")
    ]
    started = result.where(what="private", factor=nearest, figure="2b")
    missed = sum(abs(row.as_published - (row.paper or 0.0)) for row in private) / len(private)
    return (
        f"On points of [−{nearest:g}, {nearest:g}]^p, with the printed μ, the same noise gives the published "
        f"private accuracies of Figures 2 (a) and 2 (c) nearly: {_hold(private)} of {len(private)} hold, "
        f"from zero models, and they are missed by {missed:.3f} on average. Of Figure 2 (b), from a private "
        f"start released in our way, {_hold(started)} of {len(started)} hold. The paper does not say how "
        "far its points reach. In any of these boxes gradients are longer in L1 than L₀ = 1, and the "
        "printed ε guarantees nothing."
    )


def _hold(rows: Sequence[Row]) -> int:
    return sum(row.verdict == "holds" for row in rows)


def _low_pass(result: Result) -> str:
    local = result.find(what="local", dimension=100).ours
    own = result.find(what="private", variant="honest", model="own", dimension=100, epsilon=1.05)
    sparse = result.find(what="local_l1", dimension=100).ours
    return (
        f"One release per agent, smoothed over many hops, and own models that are never sent: {own.ours:.3f} "
        f"at ε = 1.05 and p = 100, with a guarantee that holds. Purely local models have {local:.3f} with "
        f"the paper's L2 penalty, and {sparse:.3f} with an L1 penalty, which fits targets that are 0 beyond "
        "two coordinates, as ours are; the paper does not say so of its own."
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
        f"On MovieLens-100K, with features and graph taken as public, released models have an RMSE of {ours} "
        f"at ε = {epsilons} and the paper's δ. Published are {paper}."
    )


_SENTENCES: dict[str, Callable[[Result], str]] = {
    "fig1": _without_privacy,
    "fig2c_paper": _published_noise,
    "larger_box": _range,
    "fig2c": _low_pass,
    "scaling": _larger_networks,
    "table1": _ratings,
}
