"""The pictures of a report, as matplotlib figures without global state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray
from scipy.special import stdtrit

from flockwise.arrays import Floats
from flockwise.graph import SimilarityGraph
from flockwise.report.comparison import Comparison
from flockwise.report.layout import MOST_DRAWN, Positions, graph_layout, ring_layout
from flockwise.report.theme import BLUE, FAINT, INK, VERMILION, Picture, draw, legend_above, log_ticks
from flockwise.results.metrics import metrics_by_sample_count, size_bins

Effort: TypeAlias = Literal["ticks", "vectors"]

WIDTH = 9.2
# Worse off, the same, better off: colors that stand out from a light and from a dark page.
GAINS = LinearSegmentedColormap.from_list("gains", (VERMILION, "#c3c8d0", BLUE))
# More marks than this are drawn as pixels inside the vector picture.
MOST_VECTOR_MARKS = 3000
# More agents would hide each other's names.
MOST_NAMED = 30
LONGEST_NAME = 16
# Fewer agents than this say too little for an interval.
FEW = 5


def pictures(comparison: Comparison, targets: Floats | None = None) -> list[Picture]:
    """All pictures that these runs have the numbers for."""
    made = (
        convergence(comparison),
        by_size(comparison),
        gain_on_graph(comparison, targets),
        proven_rate(comparison),
    )
    return [picture for picture in made if picture is not None]


def convergence(comparison: Comparison) -> Picture | None:
    """Objective and metric against updates per agent and against vectors sent."""
    if not comparison.simulated:
        return None
    rows = [_paint_gaps if comparison.optimum is not None else _paint_objectives]
    if comparison.is_tested:
        rows.append(_paint_metrics)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(rows), 2, sharex="col", sharey="row", squeeze=False)
        for painter, (by_updates, by_vectors) in zip(rows, grid, strict=True):
            painter(by_updates, comparison, "ticks")
            painter(by_vectors, comparison, "vectors")
            by_vectors.set_ylabel("")
        for axes in grid[-1]:
            # Most happens early: a straight axis would show it in its first tenth.
            axes.set_xscale("log")
            log_ticks(axes.xaxis)
        grid[-1, 0].set_xlabel("updates per agent")
        grid[-1, 1].set_xlabel("models sent per agent")
        legend_above(figure, grid[-1, 0])

    return Picture(
        "convergence",
        "Convergence",
        "Against the updates each agent has made on average, and against the models it has sent to a "
        "neighbor. Dashed lines: computed at once."
        + (" Dotted lines: own models, at the end." if comparison.guarantees and comparison.is_tested else "")
        + " "
        + _convergence_words(comparison),
        draw(WIDTH, 1.0 + 2.5 * len(rows), paint),
    )


def _convergence_words(comparison: Comparison) -> str:
    if comparison.optimum is None:
        return (
            "The objective is what the method of each curve minimizes itself, and not the training objective "
            "of the table; its least value was not computed."
        )
    return (
        "The distance is relative: how far the objective lies above its least value, which an independent "
        "solver found."
    )


def _paint_gaps(axes: Axes, comparison: Comparison, effort: Effort) -> None:
    for name, gap in comparison.gaps().items():
        _paint_curve(axes, comparison, name, effort, gap)
    axes.set(yscale="log", ylabel="distance from the best")


def _paint_objectives(axes: Axes, comparison: Comparison, effort: Effort) -> None:
    for name, run in comparison.simulated.items():
        _paint_curve(axes, comparison, name, effort, run.column("objective"))
    axes.set(ylabel="objective of the method")


def _paint_metrics(axes: Axes, comparison: Comparison, effort: Effort) -> None:
    for name, run in comparison.drawn.items():
        if name in comparison.simulated:
            _paint_curve(axes, comparison, name, effort, run.column("metric"))
        else:
            color, label = comparison.look(name)[0], _released_label(comparison, name)
            axes.axhline(run.final.metric, color=color, linestyle="--", label=label)
        if run.own_metrics is not None:
            color, own = comparison.look(name, "own")[0], comparison.label(name, "own")
            axes.axhline(float(np.nanmean(run.own_metrics)), color=color, linestyle=":", label=own)
    axes.set(ylabel=_metric_label(comparison))
    _percent_if_accuracy(axes, comparison)


def _paint_curve(axes: Axes, comparison: Comparison, name: str, effort: Effort, values: Floats) -> None:
    spent = comparison.simulated[name].column(effort) / comparison.problem.n_agents
    # The start has no place on a logarithmic axis.
    label = _released_label(comparison, name)
    axes.plot(spent[spent > 0], values[spent > 0], color=comparison.look(name)[0], label=label)


def _released_label(comparison: Comparison, name: str) -> str:
    """Records are of the models that were sent: nobody but an agent knows its own one."""
    return comparison.label(name, None if comparison.runs[name].own_models is None else "released")


def by_size(comparison: Comparison) -> Picture | None:
    """The metric of agents with little and with much data."""
    if not comparison.is_tested or len(comparison.runs) < 2:
        return None
    counts = comparison.problem.population.sample_counts

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        shifts = np.linspace(-0.16, 0.16, len(comparison.drawn))
        for name, shift in zip(comparison.drawn, shifts, strict=True):
            scores = comparison.agent_scores(name)
            assert scores is not None
            model = comparison.shown_model(name)
            color, marker = comparison.look(name, model)
            bins = metrics_by_sample_count(counts, scores, bins=size_bins(counts))
            axes.errorbar(
                np.arange(len(bins)) + shift,
                [row.mean for row in bins],
                yerr=[_half_interval(row.sd, row.n_agents) for row in bins],
                color=color,
                marker=marker,
                markersize=5.5,
                linestyle=":",
                linewidth=1.1,
                elinewidth=1.6,
                label=comparison.label(name, model),
            )
            axes.set_xticks(
                np.arange(len(bins)),
                [f"{_span(row.lowest, row.highest)}\n{_agents(row.n_agents)}" for row in bins],
            )
        axes.grid(axis="x", visible=False)
        axes.set(xlabel="training samples of the agent", ylabel=_metric_label(comparison))
        _percent_if_accuracy(axes, comparison)
        legend_above(figure, axes)

    return Picture(
        "by_size",
        f"{_metric_word(comparison)} by data-set size",
        "Agents grouped by how many training samples they have: the mean over the group, with a 95 % "
        f"confidence interval (Student's t) for groups of {FEW} agents or more.",
        draw(WIDTH, 3.9, paint),
    )


def gain_on_graph(comparison: Comparison, targets: Floats | None = None) -> Picture | None:
    """The similarity graph, agents colored by what collaboration gains them."""
    found = comparison.gains()
    if found is None:
        return None
    method, gains = found
    title = f"Who gains: “{comparison.label(method, comparison.shown_model(method))}” against local"
    unit = "points of accuracy" if comparison.metric == "accuracy" else "RMSE"
    if comparison.metric == "accuracy":
        gains = 100 * gains
    graph = comparison.problem.graph
    if graph is None or graph.n_agents > MOST_DRAWN:
        return _gain_counts(title, gains, unit)
    positions = None if targets is None else ring_layout(targets)
    where = "at the angle of its true separator" if positions is not None else "near those it resembles"
    if positions is None:
        positions = graph_layout(graph)
    caption = (
        f"Each agent {where}, joined to its neighbors, larger with more training samples. Color: how much "
        f"better its model is than what it learns alone, in {unit}"
        + ("; grey agents have no test samples." if np.isnan(gains).any() else ".")
    )
    counts = comparison.problem.population.sample_counts

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        _paint_edges(axes, graph, positions)
        _paint_agents(figure, axes, positions, gains, counts, f"gain in {unit}")
        _paint_sizes(figure, axes, counts)
        names = comparison.problem.population.agent_names
        if len(names) <= MOST_NAMED and all(map(_has_letters, names)):
            _paint_names(axes, names, positions)
        axes.set_aspect("equal")
        axes.set_axis_off()

    width, height = np.ptp(positions, axis=0)
    tall = float(np.clip(0.65 * WIDTH * height / max(width, 1e-9), 2.6, 6.0))
    return Picture("gain", title, caption, draw(0.8 * WIDTH, tall, paint))


def _paint_edges(axes: Axes, graph: SimilarityGraph, positions: Positions) -> None:
    agents = np.repeat(np.arange(graph.n_agents), graph.neighbor_counts)
    once = agents < graph.neighbors
    segments = np.stack((positions[agents[once]], positions[graph.neighbors[once]]), axis=1)
    strength = graph.weights[once] / graph.weights.max(initial=1e-300)
    # Dense graphs would be a solid patch at full strength.
    density = min(1.0, 400 / max(graph.n_edges, 1)) ** 0.8
    edges = LineCollection(list(segments), colors=INK, linewidths=0.6, zorder=0.5)
    edges.set_alpha(0.02 + 0.45 * density * strength)
    edges.set_rasterized(graph.n_edges > MOST_VECTOR_MARKS)
    axes.add_collection(edges)


def _paint_agents(
    figure: Figure, axes: Axes, positions: Positions, gains: Floats, counts: NDArray[np.int64], label: str
) -> None:
    known = ~np.isnan(gains)
    sizes = _areas(counts, len(gains))
    # A few extreme agents must not make all others pale.
    limit = max(float(np.quantile(np.abs(gains[known]), 0.97)), 1e-9)
    axes.scatter(*positions[~known].T, s=sizes[~known], color=FAINT, edgecolor=INK, linewidth=0.4)
    points = axes.scatter(
        *positions[known].T,
        s=sizes[known],
        c=gains[known],
        cmap=GAINS,
        vmin=-limit,
        vmax=limit,
        edgecolor=INK,
        linewidth=0.5,
        rasterized=len(gains) > MOST_VECTOR_MARKS,
    )
    bar = figure.colorbar(points, ax=axes, shrink=0.75, pad=0.02, extend="both")
    bar.set_label(label)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _paint_sizes(figure: Figure, axes: Axes, counts: NDArray[np.int64]) -> None:
    """A key: how large agents with the fewest and with the most samples are."""
    ends = np.unique([counts.min(), counts.max()])
    for count, area in zip(ends, _areas(np.append(ends, counts.max()), len(counts)), strict=False):
        label = f"{count:,} training samples"
        axes.scatter([], [], s=area, color=FAINT, edgecolor=INK, linewidth=0.5, label=label)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(ends))


def _paint_names(axes: Axes, names: Sequence[str], positions: Positions) -> None:
    for name, position in zip(names, positions, strict=True):
        words = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        where = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center"}
        axes.annotate(words, position, fontsize=8, parse_math=False, **where)


def _has_letters(name: str) -> bool:
    """Whether the font of the pictures has them: Latin, Greek and Cyrillic."""
    return all(" " <= letter < "\u0500" for letter in name)


def _areas(counts: NDArray[np.int64], n_agents: int) -> Floats:
    largest = 150 * min(1.0, 150 / n_agents) ** 0.6
    return largest * (0.1 + 0.9 * np.sqrt(counts / max(int(counts.max()), 1)))


def _gain_counts(title: str, gains: Floats, unit: str) -> Picture:
    """Where there are too many agents to draw each of them."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.hist(gains[~np.isnan(gains)], bins=40, color=BLUE)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set(xlabel=f"gain over local in {unit}", ylabel="agents")

    return Picture(
        "gain",
        title,
        f"How much better each agent's own model is than what it learns alone, in {unit}. A graph is drawn "
        f"up to {MOST_DRAWN} agents; the gains of these {len(gains):,} are counted instead.",
        draw(WIDTH, 3.6, paint),
    )


def proven_rate(comparison: Comparison) -> Picture | None:
    """Measured suboptimality with the bound of Prop. 1."""
    theory, name = comparison.theory, comparison.descent
    if theory is None or name is None or theory.contraction == 1:
        return None
    run, gap = comparison.simulated[name], comparison.gaps()[name]
    if np.isnan(gap[0]):
        return None
    ticks = run.column("ticks")
    updates = ticks / comparison.problem.n_agents

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(updates, gap, color=comparison.look(name)[0], label="measured, this run")
        axes.plot(
            updates,
            theory.bound(gap[0], ticks),
            color=BLUE,
            linestyle="--",
            label="Prop. 1, σ from the graph and the penalties",
        )
        axes.plot(
            updates,
            theory.published_bound(gap[0], ticks),
            color=VERMILION,
            linestyle=":",
            label="Prop. 1, σ as published",
        )
        axes.set(yscale="log", xlabel="updates per agent", ylabel="distance from the best")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.01)
        legend_above(figure, axes)

    return Picture(
        "rate",
        "Measured and proven convergence of coordinate descent",
        "Prop. 1 bounds the expected suboptimality of a run; it holds for every graph and is loose for most. "
        f"Here one tick multiplies it by at most {theory.contraction:.6f}.",
        draw(WIDTH, 3.7, paint),
    )


def _metric_word(comparison: Comparison) -> str:
    return "Accuracy" if comparison.metric == "accuracy" else "RMSE"


def _metric_label(comparison: Comparison) -> str:
    return "test accuracy" if comparison.metric == "accuracy" else "test RMSE"


def _percent_if_accuracy(axes: Axes, comparison: Comparison) -> None:
    if comparison.metric == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))


def _half_interval(sd: float, n_agents: int) -> float:
    """Half the width of a 95 % interval of a mean, by Student's t; NaN draws none."""
    return float(stdtrit(n_agents - 1, 0.975)) * sd / math.sqrt(n_agents - 1) if n_agents >= FEW else math.nan


def _span(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest}–{highest}"


def _agents(count: int) -> str:
    return "1 agent" if count == 1 else f"{count} agents"
