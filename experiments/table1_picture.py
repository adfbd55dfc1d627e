"""Table 1 as a picture: one line per method, a mark per ε, published cells hollow."""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.drawing import WIDTH
from experiments.published import DELTA
from experiments.result import Result, Row
from experiments.table1_story import CONDITION
from flockwise.report.theme import BLUE, GREEN, INK, ORANGE, PURPLE, draw


class Line(NamedTuple):
    """Rows that stand beside each other, where there are any."""

    label: str
    colour: str
    wanted: dict[str, Any]


def _private(label: str, model: str, delta: float, source: str) -> Line:
    colour = BLUE if model == "released" else GREEN
    return Line(label, colour, {"what": "private", "model": model, "delta": delta, "source": source})


def _alone(source: str) -> Line:
    return Line("local, prior of own", INK, {"what": "local_same_prior", "source": source})


BLOCKS: tuple[tuple[str, tuple[Line, ...]], ...] = (
    (
        "without privacy",
        (
            Line("user's mean rating", INK, {"what": "user_mean"}),
            Line("local, Eq. (1)", INK, {"what": "local"}),
            Line("local, sum of losses", INK, {"what": "local_sum"}),
            Line("local, sum, weaker ALS", INK, {"what": "local_sum_weak_als"}),
            Line("local ridge, tuned", INK, {"what": "local_ridge", "features": "als"}),
            Line("CD, printed μ", ORANGE, {"what": "collaborative_printed"}),
            Line("CD, μ from twins", ORANGE, {"what": "collaborative"}),
        ),
    ),
    (
        "features and graph from the ratings, taken as public",
        (
            Line("published mechanism, e⁻⁵", PURPLE, {"what": "private", "variant": "published"}),
            _private("released, e⁻⁵", "released", DELTA, "als"),
            _private("released", "released", 1e-6, "als"),
            _alone("als"),
            _private("own", "own", 1e-6, "als"),
        ),
    ),
    (
        f"factors of other people's ratings: protected from end to end,\n{CONDITION}",
        (
            Line("local ridge, tuned", INK, {"what": "local_ridge", "source": "als_disjoint"}),
            _private("released", "released", 1e-6, "als_disjoint"),
            _alone("als_disjoint"),
            _private("own", "own", 1e-6, "als_disjoint"),
        ),
    ),
    (
        f"genres and year: protected from end to end,\n{CONDITION}",
        (
            Line("local ridge, tuned", INK, {"what": "local_ridge", "source": "genres"}),
            _private("released", "released", 1e-6, "genres"),
            _alone("genres"),
            _private("own", "own", 1e-6, "genres"),
        ),
    ),
)
KEY = (("local", INK), ("CD", ORANGE), ("no guarantee", PURPLE), ("released", BLUE), ("own", GREEN))
MARKS = {None: "o", 1.0: "o", 0.5: "s", 0.1: "^"}
SPAN = (0.89, 1.09)


def picture(result: Result) -> Figure:
    blocks = [
        (title, [(line, rows) for line in lines if (rows := result.where(**line.wanted))])
        for title, lines in BLOCKS
    ]
    blocks = [(title, lines) for title, lines in blocks if lines]

    def paint(figure: Figure) -> None:
        heights = [len(lines) for _, lines in blocks]
        panels = figure.subplots(len(blocks), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, lines) in zip(panels, blocks, strict=True):
            _panel(axes, title, lines)
        panels[-1].set(xlabel="test RMSE", xlim=SPAN)
        _legend(figure)

    return draw(WIDTH, 1.6 + sum(0.5 + 0.24 * len(lines) for _, lines in blocks), paint)


def _panel(axes: Axes, title: str, lines: list[tuple[Line, list[Row]]]) -> None:
    axes.set_title(title, loc="left", fontsize=9)
    for place, (line, rows) in enumerate(lines):
        for row in rows:
            _mark(axes, place, row, line.colour)
        _beyond(axes, place, rows, line.colour)
    axes.set_yticks(range(len(lines)), [line.label for line, _ in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")


def _mark(axes: Axes, place: int, row: Row, colour: str) -> None:
    shape = MARKS.get(row.epsilon, "o")
    if row.ours < SPAN[1]:
        axes.errorbar(
            row.ours,
            place,
            xerr=row.sd or 0.0,
            color=colour,
            marker=shape,
            markersize=5,
            capsize=0,
            linewidth=1,
        )
    if row.paper is not None and row.paper < SPAN[1]:
        axes.plot(row.paper, place, **_hollow(shape))


def _beyond(axes: Axes, place: int, rows: list[Row], colour: str) -> None:
    """What lies beyond the axis is written at its end."""
    words = [f"{row.ours:.3f}" for row in rows if row.ours >= SPAN[1]]
    words += [f"published {row.paper:.3f}" for row in rows if row.paper is not None and row.paper >= SPAN[1]]
    if words:
        text = ", ".join(words) + " →"
        axes.text(SPAN[1] - 0.001, place, text, ha="right", va="center", fontsize=8, color=colour)


def _hollow(shape: str) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": shape,
        "markersize": 8,
        "markerfacecolor": "none",
        "markeredgecolor": INK,
        "markeredgewidth": 1.2,
    }


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], label=label, color=colour, marker="o", linestyle="none") for label, colour in KEY
    ]
    handles += [
        Line2D([], [], label=f"ε = {epsilon:g}", color=INK, marker=shape, linestyle="none")
        for epsilon, shape in MARKS.items()
        if epsilon is not None
    ]
    handles.append(Line2D([], [], label="published (Table 1)", **_hollow("o")))
    figure.legend(handles=handles, loc="outside upper center", ncols=5)
