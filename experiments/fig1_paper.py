"""Figure 1 by the paper's protocol: its graph, its window, both methods from the local models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments import published
from experiments.drawing import WIDTH, legend, on_clean_labels, percent, published_points
from experiments.fig1 import QUICK_TRADEOFF, TUNING_INSTANCES
from experiments.published import AGENTS, fig1_highest, fig1_value
from experiments.race import DIMENSION, measure_window
from experiments.result import Claim, Curve, Result, Row, summary
from experiments.scale import Scale
from experiments.synthetic import PAPER_GRAPH, best_tradeoff
from experiments.workbook import Workbook
from flockwise.report.theme import GREEN, VERMILION, draw

NAME = "fig1_paper"
TITLE = "Figure 1, in the paper's window"
CAPTION = (
    "Accuracy on clean labels (left) and the objective as a share of that of the local models (right), from "
    "the local models on, by iterations. Accuracies with μ tuned on other instances, objectives with μ = 1, "
    "which fits the published ones. Thick: CD, and ADMM with ρ = 1; thin: ADMM with other ρ."
)

# The paper does not give ρ. 1 is the usual one.
USUAL_PENALTY = 1.0
PENALTIES = (0.1, USUAL_PENALTY, 2.0, 5.0)
# With it the published objectives are met; the accuracy is best at another one.
FITTING_TRADEOFF = 1.0
FIGURES = {"iterations": published.FIG1_BY_ITERATIONS, "vectors": published.FIG1_BY_VECTORS}
WINDOW = 1500
COLUMNS = {"iterations": "ticks", "vectors": "paper_vectors"}


def run(scale: Scale, book: Workbook) -> Result:
    seeds = scale.pick(quick=range(1), full=range(5))
    test = scale.pick(quick=100, full=500)
    penalties = scale.pick(quick=(USUAL_PENALTY,), full=PENALTIES)
    book.expect(scale.pick(quick=0, full=1) + 2 * len(seeds) * (1 + len(penalties)))
    tuned = QUICK_TRADEOFF
    if not scale.quick:
        grid = scale.tuning_seeds(TUNING_INSTANCES)
        tuned = book.compute("tradeoff", best_tradeoff, DIMENSION, grid, PAPER_GRAPH)
    rows, curves = [], []
    for metric, tradeoff in (("accuracy", tuned), ("objective", FITTING_TRADEOFF)):
        for penalty in (None, *penalties):
            name = "cd" if penalty is None else f"rho{penalty}"
            found = [
                book.compute(
                    f"{metric}-{name}-{seed}", measure_window, PAPER_GRAPH, penalty, tradeoff, seed, test
                )
                for seed in seeds
            ]
            rows += _rows(metric, penalty, tradeoff, found)
            if metric == "objective" and penalty == USUAL_PENALTY:
                rows.append(_highest(tradeoff, found))
            curves.append(_curve(metric, penalty, found))
    settings = {
        "graph": PAPER_GRAPH,
        "trade-off of accuracies": tuned,
        "trade-off of objectives": FITTING_TRADEOFF,
        "test points": test,
    }
    return Result(NAME, seeds, rows, curves=curves, settings=settings, claims=claims(rows))


def _rows(
    metric: str, penalty: float | None, tradeoff: float, found: Sequence[Mapping[str, Any]]
) -> list[Row]:
    method = "cd" if penalty is None else "admm"
    rows = []
    for unit, figure in FIGURES.items():
        points = figure[method][metric]
        for place, value in points.items():
            paper = value if metric == "accuracy" else value / points[0]
            key = fig1_value(method, metric, place, unit)
            ours = [float(np.interp(place, one[COLUMNS[unit]], one[metric])) for one in found]
            more: dict[str, Any] = {"graph": PAPER_GRAPH, unit: place, "tradeoff": tradeoff}
            rows.append(
                Row(
                    "collaborative" if penalty is None else "admm",
                    AGENTS,
                    DIMENSION,
                    "published",
                    "released",
                    metric,
                    paper=paper if place or metric == "accuracy" else None,
                    value=key if key in published.VALUES and penalty in (None, USUAL_PENALTY) else None,
                    more=more | ({} if penalty is None else {"rho": penalty}),
                    **summary(ours),
                )
            )
    return rows


def _highest(tradeoff: float, found: Sequence[Mapping[str, Any]]) -> Row:
    """The published objective of ADMM rises before it falls."""
    start = published.FIG1_BY_ITERATIONS["admm"]["objective"][0]
    return Row(
        "admm",
        AGENTS,
        DIMENSION,
        "published",
        "released",
        "objective",
        paper=published.FIG1_HIGHEST / start,
        value=fig1_highest(),
        more={"graph": PAPER_GRAPH, "tradeoff": tradeoff, "rho": USUAL_PENALTY, "of": "highest"},
        **summary([max(one["objective"]) for one in found]),
    )


def _curve(metric: str, penalty: float | None, found: Sequence[Mapping[str, Any]]) -> Curve:
    grid = np.linspace(0, WINDOW, 31)
    mean = np.mean([np.interp(grid, one["ticks"], one[metric]) for one in found], axis=0)
    name = "cd" if penalty is None else f"admm {penalty:g}"
    return Curve(f"{metric} {name}", grid.tolist(), mean.round(5).tolist())


def _at(rows: Sequence[Row], what: str, metric: str, unit: str) -> dict[int, list[float]]:
    """Ours by place: one of coordinate descent, one for each ρ of ADMM."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if (row.what, row.metric) == (what, metric) and row.more.get(unit):
            found.setdefault(row.more[unit], []).append(row.ours)
    return found


def claims(rows: Sequence[Row]) -> list[Claim]:
    def ahead(unit: str) -> bool:
        better = []
        for metric, sign in (("accuracy", 1), ("objective", -1)):
            descent, gossip = (_at(rows, what, metric, unit) for what in ("collaborative", "admm"))
            better += [
                sign * (descent[place][0] - other) > 0
                for place in descent.keys() & gossip.keys()
                for other in gossip[place]
            ]
        return all(better)

    judged = [row for row in rows if row.value is not None]
    objective = [row for row in judged if row.metric == "objective" and row.what == "collaborative"]
    return [
        Claim(
            "Coordinate descent is ahead of ADMM in accuracy and objective at every published number of "
            "iterations, for every ρ tried",
            ahead("iterations"),
        ),
        Claim(
            "Coordinate descent is ahead at every published number of vectors, counted as the published "
            "curves imply, for every ρ tried",
            ahead("vectors"),
        ),
        Claim(
            "With μ = 1, which is our choice, the objective of coordinate descent falls as published",
            all(row.verdict == "holds" for row in objective),
            "cause",
        ),
    ]


def picture(result: Result) -> Figure:
    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, 2)
        for axes, metric in zip(grid, ("accuracy", "objective"), strict=True):
            for curve in result.curves:
                if curve.name.startswith(metric):
                    method = curve.name.removeprefix(f"{metric} ")
                    thick = method in ("cd", f"admm {USUAL_PENALTY:g}")
                    style: dict[str, Any] = {} if thick else {"linewidth": 0.9, "alpha": 0.45}
                    axes.plot(curve.x, curve.y, color=GREEN if method == "cd" else VERMILION, **style)
            for method, colour in (("cd", GREEN), ("admm", VERMILION)):
                values = published.FIG1_BY_ITERATIONS[method][metric]
                unit = on_clean_labels(values)
                if metric == "objective":
                    unit = {place: v / values[0] for place, v in values.items()}
                published_points(axes, unit, colour)
            axes.set(xlabel="iterations", ylabel=metric)
        percent(grid[0])
        grid[1].set(yscale="log")
        legend(figure, [("CD", {"color": GREEN}), ("ADMM", {"color": VERMILION})], columns=3)

    return draw(WIDTH, 4.0, paint)


def story(result: Result) -> str:
    def words(what: str, metric: str, **more: Any) -> str:
        rows = [
            row
            for row in result.where(what=what, metric=metric, **more)
            if row.more.get("iterations") and row.paper is not None
        ]
        ours = " / ".join(f"{row.as_published:.3f}" for row in rows)
        return f"{ours} (published {' / '.join(f'{row.paper:.3f}' for row in rows)})"

    tuned = result.settings["trade-off of accuracies"]
    highest = result.find(what="admm", of="highest")
    return (
        f"This is the {PAPER_GRAPH} graph, with μ = {tuned:g} tuned on other instances and noisy test "
        "labels. Accuracies are after 500, 1,000 and 1,500 iterations. Coordinate descent has "
        f"{words('collaborative', 'accuracy')}. ADMM with ρ = 1 has "
        f"{words('admm', 'accuracy', rho=USUAL_PENALTY)}. The paper does not give its ρ. Supplement D names "
        "μ = 0.04, which does not fit points of [−1, 1]^p, as these are (errata, № 15). The "
        f"published objective of coordinate descent falls as ours does with μ = {FITTING_TRADEOFF:g}. As a "
        f"share of that of the local models it then has {words('collaborative', 'objective')}, and ADMM "
        f"{words('admm', 'objective', rho=USUAL_PENALTY)}. The published objective of ADMM rises to "
        f"{highest.paper:.3f} at first; ours has {highest.ours:.3f} at most."
    )
