"""Figure 2 (a) and (b): private coordinate descent with few and many updates, from two kinds of start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.drawing import WIDTH, legend, percent, published_points
from experiments.lowpass import solve_lowpass
from experiments.noisy_descent import NOT_PRIVATE, noisy_descent, weakened
from experiments.published import AGENTS, DELTA
from experiments.result import READING, Claim, Curve, Result, Row, summary
from experiments.scale import Scale
from experiments.synthetic import Instance, instance
from experiments.tradeoff import chosen_tradeoff
from experiments.workbook import Workbook
from flockwise.engine.simulate import simulate
from flockwise.method import CoordinateDescent, PrivateUpdates, WarmStart
from flockwise.method.smoothing import propagate
from flockwise.privacy.budget import Budget
from flockwise.release.model import OutputPerturbation
from flockwise.report.theme import BLUE, GREEN, PURPLE, VERMILION, draw
from flockwise.results.trajectory import Trajectory
from flockwise.solve import solve_local_models

Start: TypeAlias = Literal["constant", "private"]
Points: TypeAlias = list[tuple[int, float, float]]  # updates made by all agents, accuracy, objective

DIMENSION = 100
# The sparser one, about 8 neighbors: with the μ chosen on it, it comes near the objective of figure 1.
GRAPH = "sparse"
UPDATES = (1, 2, 4, 8)
COLOURS = {1: VERMILION, 2: PURPLE, 4: BLUE, 8: GREEN}
EPSILON = 0.5
START_EPSILON = 0.05
# Bounds on one point's gradient, in L2 for normal and in L1 for Laplace noise, where the paper takes L₀ = 1.
# On tuning instances from .5 to 3 give the same accuracy to a point.
CLIP = 1.0
# The released local models' penalty: at a tenth of the budget they are noise, which only a large penalty
# keeps from ruining what follows.
START_PENALTY = 200.0
# The trade-off of the propagation that smooths the published start: its start is then near the published one.
START_TRADEOFF = 1.0
# The printed Laplace noise divided by it comes nearest to both figures, of 1, 3, 5, 7, 10, 30, 100 and m_i on
# tuning instances.
DIVISOR = 10
WEAKENED = "a tenth of the printed noise"
MECHANISMS = {"gaussian": "gdp", "laplace": "theorem1"}
POINTS_PER_RUN = 10
# The last agents take a while to wake as often as they may, so that there are several times as many records.
RECORDS_PER_UPDATES = 4
# The published objective has no unit. In figure 1 local models are at 6.6; on a tuning instance they have 6.3
# times the objective of zero models.
PAPER_OBJECTIVE_AT_ZERO = 6.6 / 6.3


@dataclass(frozen=True)
class Setting:
    """One of the two figures."""

    name: str
    start: Start

    @property
    def epsilon(self) -> float:
        """Of the whole run, start included."""
        return EPSILON if self.start == "constant" else EPSILON + START_EPSILON

    @property
    def mechanisms(self) -> tuple[str, ...]:
        # A start is released with normal noise, and one plan covers it and the updates.
        return ("gaussian", "laplace") if self.start == "constant" else ("gaussian",)


def run(setting: Setting, paper: Mapping[str, Mapping[int, float]], scale: Scale, book: Workbook) -> Result:
    seeds = scale.pick(quick=range(1), full=scale.seeds)
    book.expect(scale.pick(quick=0, full=1) + len(seeds) * (len(UPDATES) + 1))
    tradeoff = chosen_tradeoff(DIMENSION, GRAPH, scale, book)
    test = scale.pick(quick=100, full=1000)
    runs: dict[str, list[list[Points]]] = {}
    own: dict[str, list[list[float]]] = {}
    for updates in UPDATES:
        found = [
            book.compute(f"updates{updates}-{seed}", measure, setting, updates, tradeoff, seed, test)
            for seed in seeds
        ]
        for kind in found[0]["points"]:
            runs.setdefault(kind, []).append([values["points"][kind] for values in found])
        for kind in found[0]["own"]:
            own.setdefault(kind, []).append([values["own"][kind] for values in found])
    others = [book.compute(f"others-{seed}", measure_others, setting, tradeoff, seed, test) for seed in seeds]
    rows = [*_rows(setting, paper, runs, own), *_other_rows(setting, others)]
    return Result(
        setting.name,
        seeds,
        rows,
        guarantees=others[0]["guarantees"],
        curves=_curves(runs),
        settings={"tradeoff": tradeoff, "clip": CLIP, "test points": test},
        claims=_claims(setting, rows),
    )


def measure(setting: Setting, updates: int, tradeoff: float, seed: int, test: int) -> dict[str, Any]:
    """Curves of what was released, and the accuracy of own models at the end."""
    drawn = instance(DIMENSION, seed, test, tradeoff, GRAPH, True)
    points, own = {}, {}
    for mechanism in setting.mechanisms:
        trajectory = _private_run(drawn, setting, updates, mechanism, seed)
        assert trajectory.own_metrics is not None
        scale = drawn.objective_at_zero
        points[mechanism] = [(r.ticks, r.metric, r.objective / scale) for r in trajectory.records]
        own[mechanism] = float(trajectory.own_metrics.mean())
    points["weakened"] = _published_run(
        instance(DIMENSION, seed, test, tradeoff, GRAPH), setting, updates, seed
    )
    return {"points": points, "own": own}


def _private_run(drawn: Instance, setting: Setting, updates: int, mechanism: str, seed: int) -> Trajectory:
    method = _method(setting, updates, mechanism)
    # Far too few ticks to be worth compiling for.
    return simulate(
        drawn.problem,
        method,
        engine="reference",
        seed=seed,
        record_every=updates / RECORDS_PER_UPDATES,
        test=drawn.test,
    )


def _method(setting: Setting, updates: int, mechanism: str) -> CoordinateDescent:
    budget = Budget(setting.epsilon, DELTA)
    privacy = PrivateUpdates(budget, updates, CLIP, mechanism, MECHANISMS[mechanism])
    if setting.start == "constant":
        return CoordinateDescent("zeros", privacy)
    # The paper's split: the start has a tenth of what all updates have together. Costs add up as squares.
    cost = START_EPSILON / EPSILON * math.sqrt(updates)
    return CoordinateDescent(WarmStart(OutputPerturbation(l2=START_PENALTY), cost), privacy)


def _published_run(drawn: Instance, setting: Setting, updates: int, seed: int) -> Points:
    """What a tenth of the printed noise gives: Laplace, no clipping, no guarantee."""
    points: Points = []
    every = max(updates * AGENTS // POINTS_PER_RUN, 1)

    def watch(tick: int, models: NDArray[np.float64]) -> None:
        if tick % every == 0:
            points.append((tick, drawn.accuracy(models), drawn.objective(models)))

    scales = weakened(drawn.problem, EPSILON, DELTA, updates, DIVISOR)
    noisy_descent(drawn.problem, published_start(drawn, setting.start, seed), scales, seed, watch)
    return points


def published_start(drawn: Instance, start: Start, seed: int) -> NDArray[np.float64]:
    """Zero models, or noisy local ones that model propagation smooths (supplement C).

    With λ_i = 1/m_i the local model's sensitivity is L₀ = 1 for every m_i, and noise for that leaves nothing
    of it at ε = .05. Noise divided by m_i starts near where the paper does, and protects nobody.
    """
    problem = drawn.problem
    if start == "constant":
        return np.zeros((problem.n_agents, problem.dimension))
    random = np.random.default_rng([seed, 1])
    scales = 1 / (START_EPSILON * problem.population.sample_counts[:, None])
    noise = scales * random.laplace(size=(problem.n_agents, problem.dimension))
    anchors = solve_local_models(problem) + noise
    return propagate(problem.neighbors, anchors, START_TRADEOFF * problem.confidences)


def measure_others(setting: Setting, tradeoff: float, seed: int, test: int) -> dict[str, Any]:
    """Purely local models, own models of the low-pass method, and what is guaranteed."""
    drawn = instance(DIMENSION, seed, test, tradeoff, GRAPH, True)
    once = solve_lowpass(drawn.problem, Budget(setting.epsilon, DELTA), seed)
    methods = [_method(setting, UPDATES[-1], mechanism) for mechanism in setting.mechanisms]
    guarantees = [method.prepare(drawn.problem, seed).guarantee for method in methods]
    return {
        "local": drawn.accuracy(solve_local_models(drawn.problem)),
        "low_pass": drawn.accuracy(once.own_models),
        "guarantees": [*(found.explain() for found in guarantees if found is not None), once.guarantee],
    }


def _rows(
    setting: Setting,
    paper: Mapping[str, Mapping[int, float]],
    runs: Mapping[str, list[list[Points]]],
    own: Mapping[str, list[list[float]]],
) -> list[Row]:
    """The end of every curve, beside the published one; objectives in units of what zero models have."""
    rows = []
    common: dict[str, Any] = {"agents": AGENTS, "dimension": DIMENSION}
    common |= {"epsilon": setting.epsilon, "delta": DELTA}
    for kind, by_updates in runs.items():
        honest = kind != "weakened"
        variant = "honest" if honest else "published"
        for updates, found in zip(UPDATES, by_updates, strict=True):
            more = {"mechanism": kind if honest else WEAKENED, "updates": updates}
            more |= {} if honest else NOT_PRIVATE
            for metric, column in (("accuracy", 1), ("objective", 2)):
                value = paper[metric][updates]
                rows.append(
                    Row(
                        "private",
                        variant=variant,
                        model="released",
                        metric=metric,
                        paper=value if metric == "accuracy" else value / PAPER_OBJECTIVE_AT_ZERO,
                        comparable=metric == "accuracy",
                        more=more,
                        **common,
                        **summary([points[-1][column] for points in found]),
                    )
                )
            if honest:
                values = summary(own[kind][UPDATES.index(updates)])
                rows.append(
                    Row(
                        "private",
                        variant=variant,
                        model="own",
                        metric="accuracy",
                        more=more,
                        **common,
                        **values,
                    )
                )
    starts = [points[0] for points in runs["weakened"][0]], [points[0] for points in runs["gaussian"][0]]
    for variant, found in zip(("published", "honest"), starts, strict=True):
        rows.append(
            Row(
                "start",
                variant=variant,
                model="released",
                metric="accuracy",
                paper=paper["accuracy"][0],
                more=NOT_PRIVATE if variant == "published" and setting.start == "private" else {},
                **common,
                **summary([point[1] for point in found]),
            )
        )
    return rows


def _other_rows(setting: Setting, others: Sequence[Mapping[str, Any]]) -> list[Row]:
    common: dict[str, Any] = {"agents": AGENTS, "dimension": DIMENSION, "metric": "accuracy"}
    budget = {"epsilon": setting.epsilon, "delta": DELTA}
    return [
        Row("local", variant="baseline", model="own", **common, **summary([v["local"] for v in others])),
        Row(
            "low_pass",
            variant="honest",
            model="own",
            **common,
            **budget,
            **summary([v["low_pass"] for v in others]),
        ),
    ]


def _curves(runs: Mapping[str, list[list[Points]]]) -> list[Curve]:
    """Means over instances, by updates per agent, on a common grid."""
    curves = []
    for kind, by_updates in runs.items():
        for updates, found in zip(UPDATES, by_updates, strict=True):
            grid = np.linspace(0, updates * AGENTS, POINTS_PER_RUN + 1)
            for metric, column in (("accuracy", 1), ("objective", 2)):
                lines = [np.interp(grid, *np.array(points)[:, [0, column]].T) for points in found]
                curves.append(
                    Curve(f"{kind} {updates} {metric}", grid.tolist(), np.mean(lines, axis=0).tolist())
                )
    return curves


def _claims(setting: Setting, rows: Sequence[Row]) -> list[Claim]:
    def accuracy(variant: str, what: str = "private", model: str = "released") -> float:
        found = (
            r for r in rows if (r.what, r.variant, r.model, r.metric) == (what, variant, model, "accuracy")
        )
        return max(row.ours for row in found)

    best, words = accuracy("honest"), "a constant" if setting.start == "constant" else "a private"
    published = max(row.paper or 0.0 for row in rows if row.what == "private" and row.metric == "accuracy")
    without = accuracy("published")
    claims = [
        Claim(
            f"Private coordinate descent from {words} start reaches the published accuracy at ε = "
            f"{setting.epsilon:g} with a guarantee that holds",
            best >= published - READING["accuracy"],
        ),
        Claim(
            f"A tenth of the printed noise, which guarantees nothing, comes within .02 of the best published "
            f"accuracy from {words} start",
            abs(without - published) <= 0.02,
            "cause",
        ),
        Claim(
            f"At ε = {setting.epsilon:g} and p = 100 own models of the low-pass method beat purely local "
            "models and every released model of private coordinate descent",
            accuracy("honest", "low_pass", "own") > max(accuracy("baseline", "local", "own"), best),
            "ours",
        ),
    ]
    if setting.start == "private":
        start = next(r for r in rows if r.what == "start" and r.variant == "honest")
        claims.insert(1, Claim("A private start at ε = 0.05 is better than chance", start.ours > 0.52))
    return claims


def picture(result: Result, paper: Mapping[str, Mapping[int, float]]) -> Figure:
    """Objective over accuracy; the honest run on the left, what the published pattern takes on the right."""
    columns = {"gaussian": "with a guarantee", "weakened": f"not private: {WEAKENED}"}

    def paint(figure: Figure) -> None:
        grid = figure.subplots(2, 2, sharex=True, sharey="row")
        for axes_column, (kind, title) in zip(grid.T, columns.items(), strict=True):
            for axes, metric in zip(axes_column, ("objective", "accuracy"), strict=True):
                for updates in UPDATES:
                    curve = result.curve(f"{kind} {updates} {metric}")
                    axes.plot(curve.x, curve.y, color=COLOURS[updates])
                    unit = PAPER_OBJECTIVE_AT_ZERO if metric == "objective" else 1.0
                    published_points(
                        axes, {updates * AGENTS: paper[metric][updates] / unit}, COLOURS[updates]
                    )
            axes_column[0].set_title(title)
            axes_column[1].set_xlabel("updates of all agents together")
        grid[0, 0].set(ylabel="objective, zero models = 1", ylim=(0.6, 2.6))
        grid[1, 0].set_ylabel("test accuracy")
        percent(grid[1, 0])
        entries = [(f"T/n = {updates}", {"color": colour}) for updates, colour in COLOURS.items()]
        legend(figure, entries, columns=5)

    return draw(WIDTH, 5.8, paint)


def story(result: Result) -> str:
    honest = result.where(what="private", variant="honest", metric="accuracy", model="released")
    best = max(honest, key=lambda row: row.ours)
    without = result.where(what="private", variant="published", metric="accuracy")
    ours = ", ".join(f"{row.ours:.2f}" for row in without)
    paper = ", ".join(f"{row.paper:.2f}" for row in without)
    once, local = result.find(what="low_pass"), result.find(what="local")
    start = result.find(what="start", variant="honest")
    return (
        "With the sensitivity enforced, released models of private coordinate descent reach at most "
        f"{best.ours:.3f} at ε = {best.epsilon:g} (published: up to "
        f"{max(row.paper or 0 for row in without):.2f}), from a start at {start.ours:.3f}. The printed noise "
        f"divided by {DIVISOR}, without clipping, guarantees nothing and gives {ours} for T/n = 1, 2, 4, 8 "
        f"where the paper has {paper}. Within the same budget own models of the low-pass method reach "
        f"{once.ours:.3f}, against {local.ours:.3f} for purely local ones."
    )
