"""Prop. 1: how fast coordinate descent converges, proven and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.drawing import WIDTH
from experiments.published import AGENTS
from experiments.result import Claim, Curve, Result, Row, summary
from experiments.scale import Scale
from experiments.synthetic import instance
from experiments.workbook import Workbook
from flockwise.engine.simulate import simulate
from flockwise.method import CoordinateDescent
from flockwise.report.theme import BLUE, GREEN, VERMILION, draw, legend_above
from flockwise.solve import solve_optimum
from flockwise.theory import convergence_theory

NAME = "prop1"
TITLE = "Prop. 1: the proven rate of coordinate descent against the measured one"
CAPTION = (
    "Suboptimality of coordinate descent from zero models: mean over runs with different clocks, and the "
    "bound of Prop. 1 with the printed strong convexity and with one that counts the graph in."
)

# Near the best trade-off of the task; the proposition holds for each.
TRADEOFF = 3.0
RECORD_EVERY = 2.0
# Where the rate is measured: after the first fast steps and above rounding, as shares of the gap at first.
LINEAR_PART = (1e-2, 1e-9)


def run(scale: Scale, book: Workbook) -> Result:
    dimensions = scale.pick(quick=(20,), full=(20, 100))
    clocks = scale.pick(quick=3, full=20)
    seeds = scale.pick(quick=range(1), full=range(3))
    book.expect(len(dimensions) * len(seeds))
    rows, curves = [], []
    for dimension in dimensions:
        found = [
            book.compute(
                f"p{dimension}-{seed}",
                measure,
                dimension,
                seed,
                clocks,
                scale.pick(quick=10.0, full=40.0),
                scale.pick(quick="reference", full="cpu"),  # a quick run is too short to compile for
            )
            for seed in seeds
        ]
        rows += _rows(dimension, found)
        curves += _curves(dimension, found[0])
    settings = {"tradeoff": TRADEOFF, "runs with other clocks, each": clocks}
    return Result(NAME, seeds, rows, curves=curves, settings=settings, claims=_claims(rows))


def measure(dimension: int, seed: int, clocks: int, time: float, engine: str) -> dict[str, Any]:
    """Ticks and gaps along runs with different clocks on one instance, and the constants of the theory."""
    problem = instance(dimension, seed, 1, TRADEOFF).problem
    best, theory = solve_optimum(problem).value, convergence_theory(problem)
    runs = [
        simulate(
            problem,
            CoordinateDescent(),
            engine=engine,
            seed=clock,
            time=time,
            record_every=RECORD_EVERY,
            threads=1 if engine == "cpu" else None,
        )
        for clock in range(clocks)
    ]
    return {
        "ticks": [run.column("ticks").tolist() for run in runs],
        "gaps": [(run.column("objective") - best).tolist() for run in runs],
        "contraction": theory.contraction,
        "published_contraction": theory.published_contraction,
    }


def _rate(contraction: float) -> float:
    """By how much ln(Q − Q*) falls while every agent makes one update on average."""
    return -AGENTS * float(np.log(contraction))


def _measured_rate(found: Mapping[str, Any]) -> float:
    gaps, ticks = np.mean(found["gaps"], axis=0), np.mean(found["ticks"], axis=0)
    high, low = LINEAR_PART
    inside = np.flatnonzero((gaps < high * gaps[0]) & (gaps > low * gaps[0]))
    first, last = (inside[0], inside[-1]) if inside.size > 1 else (0, len(gaps) - 1)
    return float(AGENTS * np.log(gaps[first] / gaps[last]) / (ticks[last] - ticks[first]))


def _largest_ratio(found: Mapping[str, Any]) -> float:
    """The mean over clocks of gap/bound, each run at its own ticks, where it is largest after the start."""
    gaps, ticks = np.array(found["gaps"]), np.array(found["ticks"])
    bounds = gaps[:, :1] * np.exp(ticks * np.log(found["contraction"]))
    return float((gaps / bounds).mean(axis=0)[1:].max())


def _rows(dimension: int, found: Sequence[Mapping[str, Any]]) -> list[Row]:
    common: dict[str, Any] = {"agents": AGENTS, "dimension": dimension, "model": "released"}
    measured = [_measured_rate(values) for values in found]
    proven = [_rate(values["contraction"]) for values in found]
    printed = [_rate(values["published_contraction"]) for values in found]
    return [
        Row("measured", variant="baseline", metric="rate", **common, **summary(measured)),
        Row("proven", variant="honest", metric="rate", **common, **summary(proven)),
        Row("proven_as_printed", variant="published", metric="rate", **common, **summary(printed)),
        Row(
            "measured",
            variant="baseline",
            metric="largest_share_of_bound",
            **common,
            **summary([_largest_ratio(values) for values in found]),
        ),
    ]


def _curves(dimension: int, found: Mapping[str, Any]) -> list[Curve]:
    ticks, gaps = np.mean(found["ticks"], axis=0), np.mean(found["gaps"], axis=0)
    updates = ticks / AGENTS

    def bound(contraction: float) -> NDArray[np.float64]:
        return gaps[0] * np.exp(ticks * np.log(contraction))

    lines = {
        "measured": gaps,
        "proven": bound(found["contraction"]),
        "printed": bound(found["published_contraction"]),
    }
    above = gaps > 1e-12 * gaps[0]
    return [
        Curve(f"{dimension} {name}", updates[above].tolist(), (values / gaps[0])[above].tolist())
        for name, values in lines.items()
    ]


def _claims(rows: Sequence[Row]) -> list[Claim]:
    shares = [row.ours for row in rows if row.metric == "largest_share_of_bound"]
    return [Claim("Coordinate descent converges at least as fast as Prop. 1 says", max(shares) <= 1.0)]


def picture(result: Result) -> Figure:
    dimensions = sorted({row.dimension for row in result.rows})
    looks = {
        "measured": (GREEN, "-", "measured"),
        "proven": (BLUE, "--", "Prop. 1, σ from the graph and the penalties"),
        "printed": (VERMILION, ":", "Prop. 1, σ as printed"),
    }

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, len(dimensions), sharey=True, squeeze=False)[0]
        for axes, dimension in zip(grid, dimensions, strict=True):
            for name, (colour, style, label) in looks.items():
                curve = result.curve(f"{dimension} {name}")
                axes.plot(curve.x, curve.y, color=colour, linestyle=style, label=label)
            axes.set(yscale="log", title=f"p = {dimension}", xlabel="updates per agent")
        grid[0].set_ylabel("suboptimality, start = 1")
        legend_above(figure, grid[0])

    return draw(WIDTH, 3.8, paint)


def story(result: Result) -> str:
    parts = []
    for dimension in sorted({row.dimension for row in result.rows}):
        rates = {row.what: row.ours for row in result.where(dimension=dimension, metric="rate")}
        parts.append(
            f"At p = {dimension} the measured rate is {rates['measured'] / rates['proven']:.0f} times the "
            f"proven one, and {rates['measured'] / rates['proven_as_printed']:.0f} times that with σ as "
            "printed."
        )
    return f"Prop. 1 holds and is loose. {' '.join(parts)}"
