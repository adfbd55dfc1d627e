"""Figure 3: accuracy by the size of the local data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import published
from experiments.drawing import WIDTH, legend, on_clean_labels, percent, published_points
from experiments.lowpass import solve_lowpass
from experiments.noisy_descent import NOT_PRIVATE, noisy_descent, weakened
from experiments.private_runs import DIVISOR, START_EPSILON, WEAKENED, published_start
from experiments.published import AGENTS, DELTA
from experiments.result import Claim, Result, Row, summary
from experiments.scale import Scale
from experiments.synthetic import BOX, PAPER_GRAPH, instance
from experiments.tradeoff import chosen_tradeoff
from experiments.workbook import Workbook
from flockwise.privacy.budget import Budget
from flockwise.report.theme import BLUE, GREEN, ORANGE, PURPLE, SKY, draw
from flockwise.solve import solve_local_models, solve_optimum

NAME = "fig3"
TITLE = "Figure 3: who gains by the size of the data set, without privacy and by another method"
CAPTION = (
    "Accuracy of agents grouped by their number of training points (p = 100). Left: own models of the "
    "low-pass method, which releases one vector per agent within the budget. Right: private coordinate "
    "descent with a tenth of the printed Laplace noise and no clipping, which comes near the published "
    "curves and protects nobody. Circles: published, as they would be on clean labels."
)

DIMENSION = 100
EPSILONS = (1.05, 0.55, 0.15)
COLOURS = {"local": ORANGE, "collaborative": GREEN, 1.05: BLUE, 0.55: SKY, 0.15: PURPLE}
EDGES = (10, 21, 31, 41, 51, 61, 71, 81, 91, 101)
UPDATES = 8
GRAPH = PAPER_GRAPH


def run(scale: Scale, book: Workbook) -> Result:
    seeds = scale.pick(quick=range(1), full=scale.seeds)
    book.expect(scale.pick(quick=0, full=1) + len(seeds))
    tradeoff = chosen_tradeoff(DIMENSION, GRAPH, scale, book)
    found = [
        book.compute(f"seed{seed}", measure, tradeoff, seed, scale.pick(quick=100, full=1000))
        for seed in seeds
    ]
    rows = _rows(found)
    return Result(
        NAME,
        seeds,
        rows,
        guarantees=found[0]["guarantees"],
        settings={"tradeoff": tradeoff, "updates of the run without a guarantee": UPDATES},
        claims=claims(rows),
    )


def measure(tradeoff: float, seed: int, test: int) -> dict[str, Any]:
    """Everyone's number of points, and everyone's accuracy under each method."""
    drawn = instance(DIMENSION, seed, test, tradeoff, GRAPH)
    problem = drawn.problem
    scores = {
        "local": drawn.accuracies(solve_local_models(problem)),
        "collaborative": drawn.accuracies(solve_optimum(problem, tolerance=1e-5).models),
    }
    guarantees = []
    for epsilon in EPSILONS:
        once = solve_lowpass(problem, Budget(epsilon, DELTA), seed)
        scores[f"honest {epsilon}"] = drawn.accuracies(once.own_models)
        guarantees.append(once.guarantee)
        scales = weakened(problem, epsilon - START_EPSILON, DELTA, UPDATES, DIVISOR)
        start = published_start(drawn, "private", seed)
        scores[f"published {epsilon}"] = drawn.accuracies(noisy_descent(problem, start, scales, seed))
    return {
        "counts": problem.population.sample_counts.tolist(),
        "scores": {name: values.tolist() for name, values in scores.items()},
        "guarantees": guarantees,
    }


def _rows(found: Sequence[Mapping[str, Any]]) -> list[Row]:
    rows = []
    for name in found[0]["scores"]:
        variant, _, epsilon = name.partition(" ")
        is_private = epsilon != ""
        points = published.FIG3[float(epsilon) if is_private else name]
        for number, (lowest, end) in enumerate(pairwise(EDGES)):
            values = [_mean_within(instance_, name, lowest, end) for instance_ in found]
            place = {0: 0, len(EDGES) - 2: 1}.get(number)
            paper = None if place is None else points[place]
            more: dict[str, Any] = {"samples": f"{lowest} to {end - 1}", "x": (lowest + end - 1) / 2}
            rows.append(
                Row(
                    "private" if is_private else name,
                    agents=AGENTS,
                    dimension=DIMENSION,
                    variant=variant if is_private else "baseline",  # pyright: ignore[reportArgumentType]
                    model="own" if name == "local" or variant == "honest" else "released",
                    metric="accuracy",
                    epsilon=float(epsilon) if is_private else None,
                    delta=DELTA if is_private else None,
                    paper=paper,
                    more=more | (NOT_PRIVATE if variant == "published" else {}),
                    **summary([value for value in values if value is not None]),
                )
            )
    return rows


def _mean_within(found: Mapping[str, Any], name: str, lowest: int, end: int) -> float | None:
    """Over the agents of this size in one instance; it may have none."""
    counts = np.array(found["counts"])
    inside = np.array(found["scores"][name])[(counts >= lowest) & (counts < end)]
    return float(inside.mean()) if inside.size else None


def _gains(rows: Sequence[Row], what: str, variant: str, epsilon: float | None) -> list[float]:
    """Over purely local models, by size."""
    local = {row.more["x"]: row.ours for row in rows if row.what == "local"}
    chosen = [r for r in rows if (r.what, r.variant, r.epsilon) == (what, variant, epsilon)]
    return [row.ours - local[row.more["x"]] for row in chosen]


def _along(rows: Sequence[Row], what: str, variant: str, epsilon: float | None = None) -> list[float]:
    """Accuracies by size."""
    return [r.ours for r in rows if (r.what, r.variant, r.epsilon) == (what, variant, epsilon)]


def claims(rows: Sequence[Row]) -> list[Claim]:
    together = _gains(rows, "collaborative", "baseline", None)
    honest = {epsilon: _gains(rows, "private", "honest", epsilon) for epsilon in EPSILONS}
    return [
        Claim(
            "Without privacy every size of data set gains, the smallest most, and all end at about the same "
            "accuracy: the published shape",
            min(together) > 0
            and together[0] == max(together)
            and _spread(rows, "collaborative") < _spread(rows, "local") / 2,
        ),
        Claim(
            "With a guarantee that holds, own models of agents of every size gain at ε = 0.55 and 1.05",
            min(*honest[0.55], *honest[1.05]) > 0,
            "ours",
        ),
        Claim(
            "With a guarantee that holds, own models of agents of every size gain at ε = 0.15",
            min(honest[0.15]) > 0,
            "ours",
        ),
        Claim(
            "With a guarantee that holds, gains grow with ε, and small data sets gain more than large ones",
            _has_published_order(honest),
            "ours",
        ),
        Claim(
            "Own models of the low-pass method reach the published accuracies by size with a guarantee that "
            "holds",
            all(
                row.verdict in ("holds", "better")
                for row in rows
                if row.what == "private" and row.variant == "honest" and row.paper is not None
            ),
            "ours",
        ),
    ]


def _spread(rows: Sequence[Row], what: str) -> float:
    """Between the largest and the smallest data sets, a third of the sizes each."""
    line = _along(rows, what, "baseline")
    return abs(float(np.mean(line[-3:]) - np.mean(line[:3])))


def _has_published_order(gains: Mapping[float, Sequence[float]]) -> bool:
    means = [np.mean(gains[epsilon]) for epsilon in sorted(gains)]
    return means == sorted(means) and all(np.mean(line[:3]) > np.mean(line[-3:]) for line in gains.values())


def picture(result: Result) -> Figure:
    panels = {"honest": "with a guarantee, own models", "published": f"not private: {WEAKENED}"}

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, 2, sharey=True)
        for axes, (variant, title) in zip(grid, panels.items(), strict=True):
            for key, colour in COLOURS.items():
                found = (
                    result.where(what=key)
                    if isinstance(key, str)
                    else result.where(what="private", variant=variant, epsilon=key)
                )
                _paint(axes, found, colour)
            axes.set(title=title, xlabel="training points of the agent")
        grid[0].set_ylabel("test accuracy")
        percent(grid[0])
        entries = [("local", {"color": ORANGE}), ("not private CD", {"color": GREEN})]
        entries += [(f"ε = {epsilon:g}", {"color": COLOURS[epsilon]}) for epsilon in EPSILONS]
        legend(figure, entries, columns=6)

    return draw(WIDTH, 4.2, paint)


def _paint(axes: Axes, rows: Sequence[Row], colour: str) -> None:
    sizes = [row.more["x"] for row in rows]
    axes.plot(sizes, [row.ours for row in rows], color=colour, marker=".", markersize=7)
    known = {row.more["x"]: row.paper for row in rows if row.paper is not None}
    published_points(axes, on_clean_labels(known), colour)


def story(result: Result) -> str:
    together = _gains(result.rows, "collaborative", "baseline", None)
    gains = {epsilon: _gains(result.rows, "private", "honest", epsilon) for epsilon in EPSILONS}
    words = ", ".join(f"{100 * g[0]:+.1f} and {100 * g[-1]:+.1f} at ε = {e:g}" for e, g in gains.items())
    return (
        f"This is the {GRAPH} graph, with points of {BOX}. The paper's private curves are in the section on "
        "Figures 2 (c) and 3. Without privacy, "
        f"agents with 10 to 20 points gain {100 * together[0]:.0f} percentage points by collaboration and "
        f"agents with 91 to 100 points {100 * together[-1]:.0f}. All end at about the same accuracy. With "
        "one release, low-pass smoothing and a guarantee that holds, own models of the smallest and of the "
        f"largest gain {words}."
    )
