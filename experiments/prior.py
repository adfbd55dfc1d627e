"""Beyond the paper: a prior learned from sums that nobody can open one by one, and no graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from experiments.drawing import WIDTH, percent
from experiments.grouped import DATA_SETS
from experiments.prior_advice import measure_advice
from experiments.prior_measures import (
    DELTA,
    choose_descent,
    guarantee_of,
    measure_descent,
    measure_learned,
    measure_local,
    measure_mixed,
    measure_once,
    measure_pooled,
    measure_rotated,
)
from experiments.result import Claim, Result, Row, summary
from experiments.scale import Scale
from experiments.share import share_of_gain
from experiments.summed_descent import DescentSettings
from experiments.workbook import Workbook
from flockwise.report.theme import BLUE, GREEN, INK, ORANGE, PURPLE, draw

NAME = "prior"
TITLE = "Beyond the paper: a prior learned from sums, without a graph"
CAPTION = (
    "Left: share of what a mixed model gains over the best local ridge models that private own models keep, "
    "on real grouped data (δ = 10⁻⁵, a third of the agents colluding, a tenth absent), by ε; pooled: one "
    "model for all, not private. Right: accuracy of own models on the paper's task with randomly rotated "
    "features and no graph (δ = e⁻⁵), local models dashed."
)

EPSILONS = (1.0, 0.3, 0.1)
SPLITS, QUICK_SPLITS = 30, 2
# Of single releases, whose rounds take long in large networks.
ONCE_SPLITS = 5
QUICK_DATA = ("Hsb82", "Exam")
# The least shares that were asked for, by data set and ε.
WANTED = {
    ("Chem97", 1.0): 0.85,
    ("Hsb82", 1.0): 0.85,
    ("ScotsSec", 1.0): 0.7,
    ("Exam", 1.0): 0.5,
    ("InstEval", 1.0): 0.5,
    ("Chem97", 0.1): 0.75,
}
LEAST_SHARE = -0.05

ROTATED_EPSILONS = (1.05, 0.55, 0.15)
ROTATED_DELTA = math.exp(-5)
# Agents, features: instances, and the accuracies that were asked for, by ε.
ROTATED = {
    (100, 20): (10, (0.895, 0.87, 0.80)),
    (400, 20): (10, (0.94, 0.935, 0.905)),
    (400, 100): (10, (0.83,)),
    (1600, 100): (3, (0.925, 0.91, 0.82)),
}
QUICK_ROTATED = ((100, 20),)

METHODS = ("pooled", "release_once", "gradient_descent", "learned_prior")
COLOURS = {"release_once": PURPLE, "gradient_descent": GREEN, "learned_prior": BLUE}


def run(scale: Scale, book: Workbook) -> Result:
    names = scale.pick(quick=QUICK_DATA, full=tuple(DATA_SETS))
    splits = range(scale.pick(quick=QUICK_SPLITS, full=SPLITS))
    sizes = scale.pick(quick=QUICK_ROTATED, full=tuple(ROTATED))
    instances = {size: range(scale.pick(quick=1, full=ROTATED[size][0])) for size in sizes}
    test = scale.pick(quick=500, full=2000)
    of_a_data_set = len(splits) * (3 + 2 * len(EPSILONS)) + (2 + len(splits[:ONCE_SPLITS])) * len(EPSILONS)
    book.expect(len(names) * of_a_data_set + sum(map(len, instances.values())))
    rows = [row for size, seeds in instances.items() for row in _rotated_rows(book, size, seeds, test)]
    for name in names:
        rows += _grouped_rows(book, name, splits)
    return Result(
        NAME,
        splits,
        rows,
        guarantees=[guarantee_of(name, EPSILONS[0]) for name in names],
        settings={
            "data": {name: DATA_SETS[name].words for name in names},
            "chosen before any result": [name for name in names if DATA_SETS[name].standing != "known"],
            "training share": 0.6,
            "test points of the rotated task": test,
        },
        claims=list(_claims(rows)),
    )


def _grouped_rows(book: Workbook, name: str, splits: range) -> Iterator[Row]:
    def each(what: str, function: Any, *arguments: Any, most: int = len(splits)) -> list[Any]:
        seeds = splits[:most]
        return [book.compute(f"{name}-{what}-{seed}", function, name, *arguments, seed) for seed in seeds]

    data = DATA_SETS[name]
    local, mixed = each("local", measure_local), each("mixed", measure_mixed)
    common: dict[str, Any] = {
        "agents": data.split(0).problem.n_agents,
        "dimension": data.dimension,
        "model": "own",
    }
    for what, errors in (("local", local), ("mixed_model", mixed)):
        yield Row(
            what, variant="baseline", metric=data.metric, more={"data": name}, **common, **summary(errors)
        )

    def row(what: str, errors: Sequence[float], epsilon: float | None = None, **more: Any) -> Row:
        share = share_of_gain(local[: len(errors)], errors, mixed[: len(errors)])
        return Row(
            what,
            variant="honest" if what == "learned_prior" else "baseline",
            metric="share",
            ours=share.value,
            runs=len(errors),
            epsilon=epsilon,
            delta=None if epsilon is None else DELTA,
            more={
                "data": name,
                "se": _rounded(share.standard_error),
                "error": _rounded(_mean(errors)),
                "gain": _rounded(1 - _mean(errors) / _mean(local[: len(errors)])),
                **more,
            },
            **common,
        )

    yield row("pooled", each("pooled", measure_pooled))
    for epsilon in EPSILONS:
        once = each(f"once-{epsilon}", measure_once, epsilon, most=ONCE_SPLITS)
        yield row("release_once", once, epsilon)
        chosen = DescentSettings(*book.compute(f"{name}-choice-{epsilon}", choose_descent, name, epsilon))
        descents = each(f"descent-{epsilon}", measure_descent, epsilon, chosen)
        yield row("gradient_descent", descents, epsilon)
        learned = each(f"learned-{epsilon}", measure_learned, epsilon)
        kept = _mean([one["kept"] for one in learned])
        advice = book.compute(f"{name}-advice-{epsilon}", measure_advice, name, epsilon)
        errors = [one["error"] for one in learned]
        yield row("learned_prior", errors, epsilon, kept_local=_rounded(kept), planned=advice)


def _rotated_rows(book: Workbook, size: tuple[int, int], seeds: range, test: int) -> Iterator[Row]:
    agents, dimension = size
    found = [
        book.compute(
            f"rotated-n{agents}-p{dimension}-{seed}",
            measure_rotated,
            *(agents, dimension, seed, ROTATED_EPSILONS, ROTATED_DELTA, test),
        )
        for seed in seeds
    ]
    common: dict[str, Any] = {"agents": agents, "dimension": dimension, "model": "own", "metric": "accuracy"}
    more = {"data": "rotated"}
    yield Row("local", variant="baseline", more=more, **common, **summary([one["local"] for one in found]))
    for place, epsilon in enumerate(ROTATED_EPSILONS):
        kept = _rounded(_mean([one["kept"][place] for one in found]))
        yield Row(
            "learned_prior",
            variant="honest",
            epsilon=epsilon,
            delta=ROTATED_DELTA,
            more=more | {"kept_local": kept},
            **common,
            **summary([one["own"][place] for one in found]),
        )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    shares = {(row.more["data"], row.epsilon): row for row in _learned(rows, "share")}
    for (name, epsilon), wanted in WANTED.items():
        if (name, epsilon) in shares:
            yield Claim(
                f"On {name} at ε = {epsilon:g} own models keep at least {wanted:.0%} of a mixed model's gain",
                shares[name, epsilon].ours >= wanted,
                "ours",
            )
    yield Claim(
        "Where a plan says run, agents lose at most a twentieth of that gain on every grouped data set",
        all(_loses_little(row) for row in shares.values() if row.more["planned"]),
        "ours",
    )
    accuracies = {(row.agents, row.dimension, row.epsilon): row.ours for row in _learned(rows, "accuracy")}
    for size, (_, wanted) in ROTATED.items():
        asked = list(zip(ROTATED_EPSILONS, wanted, strict=False))
        if (*size, asked[0][0]) in accuracies:
            words = ", ".join(f"{100 * accuracy:g} % at ε = {epsilon:g}" for epsilon, accuracy in asked)
            yield Claim(
                f"Rotated features, {size[0]} agents, p = {size[1]}, no graph: own models reach {words}",
                all(accuracies[*size, epsilon] >= accuracy for epsilon, accuracy in asked),
                "ours",
            )


def _loses_little(row: Row) -> bool:
    """Where a mixed model gains nothing, anything that is lost is too much."""
    return row.ours >= LEAST_SHARE if math.isfinite(row.ours) else row.more["gain"] >= 0


def _learned(rows: Sequence[Row], metric: str) -> list[Row]:
    return [row for row in rows if (row.what, row.metric) == ("learned_prior", metric)]


def picture(result: Result) -> Figure:
    def paint(figure: Figure) -> None:
        grouped, rotated = figure.subplots(1, 2, width_ratios=(1.6, 1))
        _paint_shares(grouped, result)
        _paint_rotated(rotated, result)
        marks = [Line2D([], [], color=INK, marker="_", linestyle="none", markersize=14, label="pooled")]
        marks += [
            Line2D([], [], color=colour, marker="o", label=what.replace("_", " "))
            for what, colour in COLOURS.items()
        ]
        figure.legend(handles=marks, loc="outside upper center", ncols=4)

    return draw(WIDTH, 4.6, paint)


def _paint_shares(axes: Axes, result: Result) -> None:
    """Three points for each data set and method: ε from the largest to the smallest."""
    names = list(dict.fromkeys(row.more["data"] for row in _learned(result.rows, "share")))
    for place, name in enumerate(names):
        for what, colour in COLOURS.items():
            rows = result.where(what=what, data=name, metric="share")
            x = [place + step for step in (-0.25, 0.0, 0.25)]
            axes.plot(x, [max(row.ours, -1.0) for row in rows], color=colour, marker=".", markersize=8)
        pooled = result.find(what="pooled", data=name, metric="share").ours
        axes.plot([place], [max(pooled, -1.0)], color=INK, marker="_", markersize=14)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.axhline(1, color=INK, linewidth=0.8, linestyle=":")
    axes.set_ylim(-1.05, 1.2)
    axes.xaxis.set_major_locator(FixedLocator(range(len(names))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(names, rotation=30, ha="right")
    axes.set(
        title="real groups: ε = 1, .3, .1 from left to right", ylabel="share of the gain (−1 or less: at −1)"
    )


def _paint_rotated(axes: Axes, result: Result) -> None:
    sizes = {(row.agents, row.dimension) for row in _learned(result.rows, "accuracy")}
    for (agents, dimension), colour in zip(sorted(sizes), (ORANGE, BLUE, GREEN, PURPLE), strict=False):
        here = {"agents": agents, "dimension": dimension, "metric": "accuracy", "data": "rotated"}
        rows = result.where(what="learned_prior", **here)
        x = [row.epsilon or math.nan for row in rows]
        label = f"n = {agents}, p = {dimension}"
        axes.plot(x, [row.ours for row in rows], color=colour, marker=".", markersize=8, label=label)
        axes.axhline(result.find(what="local", **here).ours, color=colour, linestyle="--", linewidth=0.9)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(ROTATED_EPSILONS)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set(title="rotated task, no graph", xlabel="ε", ylabel="test accuracy")
    axes.legend(loc="lower right")
    percent(axes)


def story(result: Result) -> str:
    lines = [table(result)]
    chosen = result.settings["chosen before any result"]
    if chosen:
        lines.append(f"\n{' and '.join(chosen)} were chosen before any result on them was known.")
    return "\n".join(lines)


def table(result: Result) -> str:
    """As it stands in docs/learned-prior.md."""
    return "\n".join([*_share_lines(result), "", *_rotated_lines(result)])


def _share_lines(result: Result) -> list[str]:
    lines = ["Share of the gain of a mixed model over the best local ridge, standard error in brackets:\n"]
    lines += [
        "| data | pooled | " + " | ".join(f"{_short(what)}, ε = {e:g}" for what in COLOURS for e in EPSILONS)
    ]
    lines[-1] += " |"
    lines.append("|---|" + "--:|" * (1 + len(COLOURS) * len(EPSILONS)))
    for name in dict.fromkeys(row.more["data"] for row in _learned(result.rows, "share")):
        rows = [result.find(what="pooled", data=name, metric="share")]
        rows += [
            result.find(what=what, data=name, metric="share", epsilon=e) for what in COLOURS for e in EPSILONS
        ]
        lines.append(f"| {name} | " + " | ".join(_cell(row) for row in rows) + " |")
    lines.append(
        "\n† the planner says keep local. * a run keeps the local models, with λ = 1/m. In percent: the gain "
        "over the best local ridge, where a mixed model has none to share."
    )
    return lines


def _rotated_lines(result: Result) -> list[str]:
    lines = ["Accuracy on the rotated task, own models, standard deviation over instances in brackets:\n"]
    heads = [f"ε = {epsilon:g}" for epsilon in ROTATED_EPSILONS]
    lines += ["| n, p | instances | local | " + " | ".join(heads) + " |", "|---|" + "--:|" * (2 + len(heads))]
    sizes = dict.fromkeys((row.agents, row.dimension) for row in _learned(result.rows, "accuracy"))
    for agents, dimension in sizes:
        here = {"agents": agents, "dimension": dimension, "metric": "accuracy", "data": "rotated"}
        local = result.find(what="local", **here)
        rows = result.where(what="learned_prior", **here)
        cells = [_accuracy_cell(row) for row in (local, *rows)]
        lines.append(f"| {agents}, {dimension} | {local.runs} | " + " | ".join(cells) + " |")
    return lines


def _accuracy_cell(row: Row) -> str:
    spread = "" if row.sd is None else f" ({row.sd:.3f})"
    return f"{row.ours:.3f}{spread}" + (" *" if row.more.get("kept_local") == 1 else "")


def _short(what: str) -> str:
    return {"release_once": "once", "gradient_descent": "descent", "learned_prior": "prior"}[what]


def _cell(row: Row) -> str:
    se = row.more.get("se")
    error = "" if se is None else f" ({se:.2f})"
    kept = " *" if row.more.get("kept_local") == 1 else ""
    kept += " †" if row.more.get("planned") is False else ""
    return f"{row.ours:.2f}{error}{kept}" if math.isfinite(row.ours) else f"{row.more['gain']:+.1%}{kept}"
