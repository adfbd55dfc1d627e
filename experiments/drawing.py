"""What the pictures of the experiments share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from experiments.result import LABEL_NOISE
from flockwise.report.theme import INK

WIDTH = 9.2
PUBLISHED = "published (read off the figure)"


def percent(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))


def on_clean_labels(accuracies: Mapping[Any, float]) -> dict[Any, float]:
    """Published accuracies, which fit noisy test labels, as they would be on clean ones."""
    return {place: (value - LABEL_NOISE) / (1 - 2 * LABEL_NOISE) for place, value in accuracies.items()}


def published_points(axes: Axes, points: Mapping[Any, float], colour: str) -> None:
    """Hollow marks: what the paper shows, in the colour of what they belong to."""
    axes.plot(
        list(points),
        list(points.values()),
        linestyle="none",
        marker="o",
        markersize=7,
        markerfacecolor="none",
        markeredgecolor=colour,
        markeredgewidth=1.6,
        zorder=5,
    )


def legend(figure: Figure, entries: Iterable[tuple[str, Mapping[str, Any]]], columns: int = 4) -> None:
    """One legend over the whole figure: lines and marks with these properties, then the published marks."""
    handles = [Line2D([], [], label=label, **style) for label, style in entries]
    handles.append(
        Line2D(
            [],
            [],
            label=PUBLISHED,
            linestyle="none",
            marker="o",
            markersize=7,
            markerfacecolor="none",
            markeredgecolor=INK,
            markeredgewidth=1.6,
        )
    )
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)
