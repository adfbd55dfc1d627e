"""Figure 3: accuracy by the size of the local data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import published
from experiments.drawing import WIDTH, legend, percent, published_points
from experiments.noisy_descent import NOT_PRIVATE, divided_twice, noisy_descent
from experiments.private_curves import START_EPSILON, published_start
from experiments.published import AGENTS, DELTA
from experiments.result import Claim, Result, Row, summary
from experiments.scale import Scale
from experiments.synthetic import best_tradeoff, instance
from experiments.workbook import Workbook
from murmura.engine.run import simulate
from murmura.method import ReleaseOnce
from murmura.objective import solve_local_models, solve_optimum
from murmura.privacy.budget import Budget
from murmura.report.theme import BLUE, GREEN, ORANGE, PURPLE, SKY, draw

NAME = "fig3"
TITLE = "Figure 3: who gains, by the size of the local data set"
CAPTION = (
    "Accuracy of agents grouped by their number of training points (p = 100). Left: one release per agent "
    "within the budget, smoothed, and own models by a silent finish. Right: private coordinate descent with "
    "the paper's Laplace noise divided by m_i once more, which comes near the published curves and protects "
    "nobody."
)

DIMENSION = 100
EPSILONS = (1.05, 0.55, 0.15)
COLOURS = {"local": ORANGE, "collaborative": GREEN, 1.05: BLUE, 0.55: SKY, 0.15: PURPLE}
EDGES = (10, 21, 31, 41, 51, 61, 71, 81, 91, 101)
UPDATES = 8
SMOOTHING_UPDATES = 30


def run(scale: Scale, book: Workbook) -> Result:
    seeds = scale.pick(quick=range(1), full=scale.seeds)
    book.expect(1 + len(seeds))
    tuning = scale.tuning_seeds(scale.pick(quick=1, full=5))
    tradeoff = book.compute("tradeoff", best_tradeoff, DIMENSION, tuning, "dense")
    found = [
        book.compute(f"seed{seed}", measure, tradeoff, seed, scale.pick(quick=100, full=4000))
        for seed in seeds
    ]
    rows = _rows(found)
    return Result(
        NAME,
        seeds,
        rows,
        guarantees=found[0]["guarantees"],
        settings={"tradeoff": tradeoff, "updates of the run without a guarantee": UPDATES},
        claims=_claims(rows),
    )


def measure(tradeoff: float, seed: int, test: int) -> dict[str, Any]:
    """Everyone's number of points, and everyone's accuracy under each method."""
    drawn = instance(DIMENSION, seed, test, tradeoff)
    problem = drawn.problem
    scores = {
        "local": drawn.accuracies(solve_local_models(problem)),
        "collaborative": drawn.accuracies(solve_optimum(problem, tolerance=1e-5).models),
    }
    guarantees = []
    for epsilon in EPSILONS:
        once = ReleaseOnce(Budget(epsilon, DELTA), noise_seed=seed)
        smoothed = simulate(
            problem, once, engine="reference", seed=seed, updates=SMOOTHING_UPDATES, record_every=None
        )
        assert smoothed.own_models is not None
        scores[f"honest {epsilon}"] = drawn.accuracies(smoothed.own_models)
        guarantees.append(once.guarantee(problem).explain())
        scales = divided_twice(problem, epsilon - START_EPSILON, DELTA, UPDATES)
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
            paper = {0: points[0], len(EDGES) - 2: points[1]}.get(number)
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


def _claims(rows: Sequence[Row]) -> list[Claim]:
    together = _gains(rows, "collaborative", "baseline", None)
    honest = {epsilon: _gains(rows, "private", "honest", epsilon) for epsilon in EPSILONS}
    return [
        Claim(
            "Without privacy every size of data set gains, the smallest most",
            min(together) > 0 and together[0] == max(together),
        ),
        Claim(
            "With a guarantee that holds, agents of every size gain at ε = 0.55 and 1.05, small ones more "
            "than large ones",
            all(
                min(honest[e]) > 0 and np.mean(honest[e][:3]) > np.mean(honest[e][-3:]) for e in (0.55, 1.05)
            ),
        ),
        Claim(
            "The published accuracies by size are reached with a guarantee that holds",
            all(
                row.ours >= row.paper - 0.02
                for row in rows
                if row.what == "private" and row.variant == "honest" and row.paper is not None
            ),
        ),
    ]


def picture(result: Result) -> Figure:
    panels = {"honest": "with a guarantee, own models", "published": "not private: noise divided by m twice"}

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
    published_points(axes, known, colour)


def story(result: Result) -> str:
    together = _gains(result.rows, "collaborative", "baseline", None)
    gains = {epsilon: _gains(result.rows, "private", "honest", epsilon) for epsilon in EPSILONS}
    words = ", ".join(f"{100 * g[0]:+.1f} and {100 * g[-1]:+.1f} at ε = {e:g}" for e, g in gains.items())
    return (
        f"Without privacy, collaboration gives agents with 10 to 20 points {100 * together[0]:.0f} points of "
        f"accuracy and those with 91 to 100 {100 * together[-1]:.0f}, so that all end at about the same "
        f"level: the published shape. With a guarantee that holds, the smallest and the largest gain {words}."
    )
