"""Figure 1: coordinate descent against gossip ADMM, by iterations and by vectors sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from experiments import published
from experiments.drawing import WIDTH, legend, on_clean_labels, percent, published_points
from experiments.published import AGENTS
from experiments.race import (
    CLOSE,
    DIMENSION,
    GRADIENT_STEPS,
    arrival_at,
    measure,
    measure_end,
)
from experiments.result import Claim, Curve, Result, Row, summary
from experiments.scale import Scale
from experiments.synthetic import PAPER_GRAPH, Graph, best_tradeoff
from experiments.workbook import Workbook
from flockwise.report.theme import GREEN, INK, VERMILION, draw

NAME = "fig1"
TITLE = "Beyond Figure 1: coordinate descent and gossip ADMM until they arrive, on three graphs"
CAPTION = (
    "Test accuracy from the local models on (p = 100), mean over instances. ADMM for every penalty ρ tried, "
    "the best of them drawn thick; its vectors counted as they are (4 an iteration, solid) and as the "
    "published curves imply (8, dashed). Dotted: within .005 of the accuracy at the optimum, where both "
    "methods end. Published points, as they would be on clean labels, are those of the paper's one ADMM "
    "curve, whose ρ is not given; they stand beside the graph with as many neighbors as its curves imply."
)

GRAPHS: tuple[Graph, ...] = ("dense", "medium", "sparse")
PENALTIES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
TUNING_INSTANCES = 5
# In a quick run, where the search would take too long.
QUICK_TRADEOFF = 2.0
# The paper's window, in iterations; the picture goes on, to where ADMM catches up.
SHOWN = (0, 500, 1000, 1500)
DRAWN = 4000
FAINT: dict[str, Any] = {"linewidth": 0.9, "alpha": 0.45}
COUNTS = {"vectors": "as they are", "paper_vectors": "8 an iteration"}
NEEDED = {
    "iterations_to_final": "ticks",
    "vectors_to_final": "vectors",
    "paper_vectors_to_final": "paper_vectors",
    "gradients_to_final": "gradients",
}


def run(scale: Scale, book: Workbook) -> Result:
    graphs = scale.pick(quick=("dense", PAPER_GRAPH), full=GRAPHS)
    penalties = scale.pick(quick=(0.1, 1.0), full=PENALTIES)
    seeds = scale.pick(quick=range(1), full=range(5))
    test = scale.pick(quick=100, full=500)
    book.expect(len(graphs) * (scale.pick(quick=0, full=1) + len(seeds) * (2 + len(penalties))))
    rows, curves, settings = [], [], {}
    for graph in graphs:
        tradeoff = _tradeoff(graph, scale, book)
        ends = [
            book.compute(f"{graph}-end-{seed}", measure_end, graph, tradeoff, seed, test) for seed in seeds
        ]
        finals = [end["accuracy"] for end in ends]
        rows.append(_row("optimum", {"graph": graph}, "accuracy", finals))
        neighbors = round(float(np.mean([end["neighbors"] for end in ends])), 1)
        settings |= {f"{graph} graph: trade-off": tradeoff, f"{graph} graph: neighbors": neighbors}
        for penalty in (None, *penalties):
            name = "cd" if penalty is None else f"rho{penalty}"
            found = [
                book.compute(
                    f"{graph}-{name}-{seed}",
                    measure,
                    graph,
                    penalty,
                    tradeoff,
                    seed,
                    test,
                    final,
                    scale.quick,
                )
                for seed, final in zip(seeds, finals, strict=True)
            ]
            rows += _rows(graph, penalty, finals, found)
            curves.append(_curve(graph, penalty, found))
    settings |= {"gradient steps of ADMM": GRADIENT_STEPS, "test points": test}
    rows = _beside_published(rows)
    return Result(NAME, seeds, rows, curves=curves, settings=settings, claims=claims(rows))


def _tradeoff(graph: Graph, scale: Scale, book: Workbook) -> float:
    """The best on instances that are not reported, as the paper chose it."""
    if scale.quick:
        return QUICK_TRADEOFF
    return book.compute(
        f"{graph}-tradeoff", best_tradeoff, DIMENSION, scale.tuning_seeds(TUNING_INSTANCES), graph
    )


def _row(what: str, more: Mapping[str, Any], metric: str, values: Sequence[float]) -> Row:
    return Row(
        what,
        agents=AGENTS,
        dimension=DIMENSION,
        variant="baseline",
        model="released",
        metric=metric,
        more=more,
        **summary(values),
    )


def _rows(
    graph: Graph, penalty: float | None, finals: Sequence[float], found: Sequence[Mapping[str, Any]]
) -> list[Row]:
    """What it took to come close to the final accuracy, and on the paper's graph the paper's window."""
    what = "collaborative" if penalty is None else "admm"
    more: dict[str, Any] = {"graph": graph} | ({} if penalty is None else {"rho": penalty})
    arrivals = [arrival_at(run["accuracy"], final) for run, final in zip(found, finals, strict=True)]
    reached = {"reached": all(arrival is not None for arrival in arrivals)}
    ends = [-1 if arrival is None else arrival for arrival in arrivals]
    rows = [
        _row(
            what,
            more | reached,
            metric,
            [float(run[column][end]) for run, end in zip(found, ends, strict=True)],
        )
        for metric, column in NEEDED.items()
    ]
    rows += [
        _row(
            what,
            more | {"iterations": shown},
            metric,
            [float(np.interp(shown, run["ticks"], run[metric])) for run in found],
        )
        for metric in ("accuracy", "objective")
        for shown in SHOWN
        # A quick run is shorter.
        if graph == PAPER_GRAPH and shown <= min(run["ticks"][-1] for run in found)
    ]
    return rows


def _curve(graph: Graph, penalty: float | None, found: Sequence[Mapping[str, Any]]) -> Curve:
    """The mean accuracy, by iterations and by vectors under both counts, at common iterations."""
    last = min(DRAWN, *(run["ticks"][-1] for run in found))
    grid = np.unique(np.round(np.concatenate((np.linspace(0, min(last, 500), 11), np.linspace(0, last, 41)))))
    mean = {
        column: np.mean([np.interp(grid, run["ticks"], run[column]) for run in found], axis=0)
        for column in ("accuracy", *COUNTS)
    }
    name = f"{graph} cd" if penalty is None else f"{graph} admm {penalty}"
    more = {column: mean[column].round().tolist() for column in COUNTS}
    return Curve(name, grid.tolist(), mean["accuracy"].round(5).tolist(), more)


def _beside_published(rows: Sequence[Row]) -> list[Row]:
    """The paper shows one ADMM curve; it stands beside ρ = 1 and the best.

    Objectives are given as shares of that of the start: the local models.
    """
    best = _best(rows, PAPER_GRAPH)
    completed = []
    for row in rows:
        shown = row.more.get("iterations")
        is_shown = row.more["graph"] == PAPER_GRAPH and row.more.get("rho") in (None, 1.0, best)
        if shown is not None and is_shown:
            curves = published.FIG1_BY_ITERATIONS["cd" if row.what == "collaborative" else "admm"]
            values = curves[row.metric]
            paper = values[shown] if row.metric == "accuracy" else values[shown] / values[0]
            row = replace(row, paper=paper)
        completed.append(row)
    return completed


def _best(rows: Sequence[Row], graph: Graph) -> float:
    """The ρ that comes close to the final accuracy in the fewest iterations, in hindsight."""
    found = _needed(rows, graph, "iterations_to_final")[1]
    return min(found, key=lambda row: (not row.more["reached"], row.ours)).more["rho"]


def _needed(rows: Sequence[Row], graph: Graph, metric: str) -> tuple[Row, list[Row]]:
    """Of coordinate descent, and of ADMM by ρ."""
    found = [row for row in rows if row.metric == metric and row.more["graph"] == graph]
    descent = next(row for row in found if row.what == "collaborative")
    return descent, [row for row in found if row.what == "admm"]


def claims(rows: Sequence[Row]) -> list[Claim]:
    statements = {
        "iterations_to_final": "is within .005 of its final accuracy in fewer iterations than ADMM for any ρ",
        "gradients_to_final": "computes fewer local gradients to get there than ADMM for any ρ",
        "paper_vectors_to_final": "sends fewer vectors to get there, counting 8 an iteration of ADMM",
        "vectors_to_final": "sends fewer vectors to get there, counting the 4 that ADMM needs",
    }
    found = []
    for metric, statement in statements.items():
        wins = {graph: _wins(rows, graph, metric) for graph in _graphs(rows)}
        for outcome in (True, False):
            graphs = [graph for graph, won in wins.items() if won is outcome]
            if graphs:
                where = f"the {' and the '.join(graphs)} graph"
                found.append(Claim(f"On {where} coordinate descent {statement}", outcome, "ours"))
    return found


def _graphs(rows: Sequence[Row]) -> list[Graph]:
    return [graph for graph in GRAPHS if any(row.more["graph"] == graph for row in rows)]


def _wins(rows: Sequence[Row], graph: Graph, metric: str) -> bool | None:
    """Whether coordinate descent needs least; None where a run was stopped too early to tell."""
    descent, gossip = _needed(rows, graph, metric)
    if not descent.more["reached"]:
        return None
    if any(row.more["reached"] and row.ours <= descent.ours for row in gossip):
        return False
    return None if any(row.ours <= descent.ours for row in gossip) else True


def picture(result: Result) -> Figure:
    graphs = _graphs(result.rows)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(graphs), 2, sharey=True, squeeze=False)
        for row, graph in zip(grid, graphs, strict=True):
            best = _best(result.rows, graph)
            for curve in result.curves:
                if curve.name.startswith(f"{graph} "):
                    _paint_curve(row, curve, best)
            close = result.find(what="optimum", graph=graph).ours - CLOSE
            for axes in row:
                axes.axhline(close, color=INK, linestyle=":", linewidth=1)
            if graph == PAPER_GRAPH:
                for method, colour in (("cd", GREEN), ("admm", VERMILION)):
                    by_iterations, by_vectors = published.FIG1_BY_ITERATIONS, published.FIG1_BY_VECTORS
                    published_points(row[0], on_clean_labels(by_iterations[method]["accuracy"]), colour)
                    published_points(row[1], on_clean_labels(by_vectors[method]["accuracy"]), colour)
            title = f"{graph} graph, {result.settings[f'{graph} graph: neighbors']:.0f} neighbors"
            row[0].set_title(f"{title}, by iterations")
            row[1].set_title(f"{title}, by vectors")
            row[0].set(xlim=(-80, DRAWN), ylabel="test accuracy")
            row[1].set_xlim(-800, 40_500)
            for axes in row:
                axes.xaxis.set_major_locator(MaxNLocator(5))
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        percent(grid[0, 0])
        for axes, label in zip(grid[-1], ("iterations", "vectors"), strict=True):
            axes.set_xlabel(label)
        legend(
            figure,
            [
                ("CD", {"color": GREEN}),
                ("ADMM, best ρ", {"color": VERMILION}),
                ("ADMM, other ρ", {"color": VERMILION, **FAINT}),
                ("8 vectors counted", {"color": VERMILION, "linestyle": "--"}),
            ],
            columns=5,
        )

    return draw(WIDTH, 0.6 + 3 * len(graphs), paint)


def _paint_curve(axes: Sequence[Axes], curve: Curve, best: float) -> None:
    words = curve.name.split()
    by_iterations, by_vectors = axes
    if words[1] == "cd":
        by_iterations.plot(curve.x, curve.y, color=GREEN, zorder=4)
        by_vectors.plot(curve.more["vectors"], curve.y, color=GREEN, zorder=4)
        return
    is_best = float(words[2]) == best
    style: dict[str, Any] = {"color": VERMILION} | ({} if is_best else FAINT)
    by_iterations.plot(curve.x, curve.y, **style)
    by_vectors.plot(curve.more["vectors"], curve.y, **style)
    if is_best:
        by_vectors.plot(curve.more["paper_vectors"], curve.y, linestyle="--", **style)


def story(result: Result) -> str:
    parts = [
        "A question of ours, not of the paper: how long it takes to arrive, for the ρ that is best in "
        "hindsight. Both methods start at the local models and end at the optimum of Eq. (2). A method has "
        "arrived when its mean accuracy stays within .005 of the accuracy there."
    ]
    for graph in _graphs(result.rows):
        best = _best(result.rows, graph)
        neighbors = result.settings[f"{graph} graph: neighbors"]
        needed = {metric: _needed(result.rows, graph, metric) for metric in NEEDED}
        descent = {metric: _count(found[0]) for metric, found in needed.items()}
        gossip = {
            metric: _count(next(row for row in found[1] if row.more["rho"] == best))
            for metric, found in needed.items()
        }
        parts.append(
            f"On the {graph} graph ({neighbors:.0f} neighbors) coordinate descent takes "
            f"{descent['iterations_to_final']} iterations, "
            f"{descent['vectors_to_final']} vectors and {descent['gradients_to_final']} local gradients. "
            f"ADMM with the best ρ ({best:g}) takes {gossip['iterations_to_final']} iterations, "
            f"{gossip['vectors_to_final']} vectors ({gossip['paper_vectors_to_final']} if an iteration "
            f"counts 8, as the published curves imply) and {gossip['gradients_to_final']} gradients."
        )
    return " ".join(parts)


def _count(row: Row) -> str:
    return f"{'' if row.more['reached'] else 'more than '}{row.ours:,.0f}"
