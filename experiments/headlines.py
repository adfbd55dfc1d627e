"""The few numbers of each experiment that stand in the table of docs/reproduction.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from experiments.result import Result, Row


class Headline(NamedTuple):
    """A row of a result, and what it says in words."""

    words: str
    row: Row


Headlines: TypeAlias = Iterable[Headline]


def headlines(result: Result) -> list[Headline]:
    """Those of one experiment; an experiment without any has none to show."""
    pick = _PICKS.get(result.name)
    return [] if pick is None else list(pick(result))


def _largest(rows: Iterable[Row]) -> Row:
    return max(rows, key=lambda row: row.ours)


def _each(result: Result, words: str, **wanted: Any) -> Headlines:
    """One for each row that there is, `words` filled in with its values."""
    for row in result.where(**wanted):
        yield Headline(words.format(**row.document()), row)


def _fig1(result: Result) -> Headlines:
    metric = "iterations_to_final"
    for graph in ("dense", "medium", "sparse"):
        yield from _each(
            result, f"CD, {graph} graph: iterations", what="collaborative", graph=graph, metric=metric
        )
        gossip = result.where(what="admm", graph=graph, metric=metric)
        if gossip:
            best = min(gossip, key=lambda row: (not row.more["reached"], row.ours))
            yield Headline(f"ADMM with ρ = {best.more['rho']:g}, {graph} graph: iterations", best)


def _fig1_paper(result: Result) -> Headlines:
    for row in result.rows:
        if row.value and row.more.get("iterations") == 1500:
            words = "CD" if row.what == "collaborative" else "ADMM with ρ = 1"
            yield Headline(f"{words}, {row.metric} after 1500 iterations", row)


def _private_curves(result: Result) -> Headlines:
    private = {"what": "private", "model": "released", "metric": "accuracy"}
    kinds = {
        "Laplace noise as printed, nothing clipped": "private CD as printed, not private",
        "a tenth of the printed noise": "a tenth of the noise, not private",
        "gaussian": "private CD, normal noise and a clip",
    }
    for mechanism, words in kinds.items():
        found = result.where(mechanism=mechanism, **private)
        if found:
            best = _largest(found)
            yield Headline(f"{words}, T/n = {best.more['updates']}, p = 100, ε = {best.epsilon:g}", best)
    yield from _each(result, "low-pass, own models, p = 100, ε = {epsilon:g}", what="low_pass")


def _fig2c_paper(result: Result) -> Headlines:
    kinds = {
        ("printed", "last"): "private CD as printed, tuned, not private",
        ("zeros", "tail"): "private CD, normal noise and a clip, tuned",
    }
    for (noise, shown), words in kinds.items():
        for row in result.where(noise=noise, shown=shown, epsilon=1.05):
            if row.dimension in (10, 25, 100) and "samples" not in row.more:
                yield Headline(f"{words}, p = {row.dimension}, ε = 1.05", row)


def _larger_box(result: Result) -> Headlines:
    nearest = result.settings["nearest"]
    wanted = {"factor": nearest, "figure": "2c", "dimension": 100}
    words = f"points of [−{nearest:g}, {nearest:g}]^p"
    yield from _each(result, f"CD, printed μ, {words}, p = 100", what="collaborative", **wanted)
    yield from _each(
        result,
        f"private CD as printed, not private, {words}, p = 100, ε = {{epsilon:g}}",
        what="private",
        **wanted,
    )


def _table1_paper(result: Result) -> Headlines:
    for row in result.rows:
        if row.more["shown"] == "tail" or row.value:
            words = "as printed" if row.value else "public steps, clip in L1, averages"
            yield Headline(f"private CD, {words}, ε = {row.epsilon:g}: RMSE", row)


def _text(result: Result) -> Headlines:
    yield from _each(result, "CD, share left after 10 updates each, {agents} agents", metric="share_left")


def _fig2c(result: Result) -> Headlines:
    yield from _each(result, "purely local, p = 100", what="local", dimension=100)
    yield from _each(result, "purely local with an L1 penalty, p = 100", what="local_l1", dimension=100)
    yield from _each(result, "CD, not private, p = 100", what="collaborative", dimension=100)
    honest = {"what": "private", "variant": "honest", "model": "own"}
    for dimension in (20, 100):
        yield from _each(
            result, "low-pass, own models, p = {dimension}, ε = {epsilon:g}", dimension=dimension, **honest
        )


def _fig3(result: Result) -> Headlines:
    for samples in ("10 to 20", "91 to 100"):
        yield from _each(
            result,
            "low-pass, own models of agents with {samples} points, ε = {epsilon:g}",
            what="private",
            variant="honest",
            samples=samples,
            epsilon=1.05,
        )


def _fig4(result: Result) -> Headlines:
    for dimension in (2, 100):
        yield from _each(
            result,
            "noise on features, not private, p = {dimension}, ε = {epsilon:g}",
            what="noisy_features",
            dimension=dimension,
            epsilon=1.0,
        )
        yield from _each(
            result,
            "local privacy, p = {dimension}, ε = {epsilon:g}",
            what="local_dp_laplace",
            dimension=dimension,
            epsilon=1.0,
        )


def _table1(result: Result) -> Headlines:
    yield from _each(result, "CD, printed trade-off: RMSE", what="collaborative_printed")
    yield from _each(result, "local ridge: RMSE", what="local_ridge", features="als")
    yield from _each(
        result, "local, with the public start and prior: RMSE", what="local_same_prior", features="als"
    )
    private = {"what": "private", "variant": "honest", "source": "als"}
    rows = [row for row in result.where(model="released", **private) if row.paper is not None]
    for row in rows:
        yield Headline(f"released models, ε = {row.epsilon:g}, δ = e⁻⁵: RMSE", row)
    yield from _each(
        result, "own models, ε = {epsilon:g}, δ = 10⁻⁶: RMSE", model="own", delta=1e-6, **private
    )


def _prop1(result: Result) -> Headlines:
    for what, words in (("measured", "measured"), ("proven", "proven")):
        yield from _each(result, f"{words} rate per update, p = {{dimension}}", what=what, metric="rate")


def _thm2(result: Result) -> Headlines:
    for what, words in (("theorem_2", "printed"), ("theorem_2_corrected", "corrected")):
        yield from _each(result, f"gap over the {words} bound, p = 100", what=what, dimension=100)
    for allocation in ("published", "corrected"):
        yield from _each(
            result,
            f"gap over that of equal shares, {allocation} allocation, {{where}}",
            what=f"{allocation}_allocation",
            metric="gap_over_uniform",
        )


def _scaling(result: Result) -> Headlines:
    yield from _each(
        result,
        "own models, {agents} agents, p = 100, ε = {epsilon:g}",
        what="private",
        model="own",
        dimension=100,
        epsilon=1.05,
        metric="accuracy",
        edges="right",
        features="as drawn",
    )


_PICKS: dict[str, Callable[[Result], Headlines]] = {
    "fig1": _fig1,
    "fig1_paper": _fig1_paper,
    "fig2a": _private_curves,
    "fig2b": _private_curves,
    "fig2c": _fig2c,
    "fig2c_paper": _fig2c_paper,
    "larger_box": _larger_box,
    "fig3": _fig3,
    "fig4": _fig4,
    "table1": _table1,
    "table1_paper": _table1_paper,
    "text": _text,
    "prop1": _prop1,
    "thm2": _thm2,
    "scaling": _scaling,
}
