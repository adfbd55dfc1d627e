"""How every picture looks: one size of text, colours that colour-blind people can tell apart, no clutter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Text, axes and grid, as unmistakable colours: the page replaces them by its own, in light and dark.
INK = "#23272f"
FAINT = "#b9c0cb"

# Okabe and Ito's palette, less black (invisible on a dark page) and yellow (on a light one).
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
PALETTE = (GREEN, SKY, VERMILION, BLUE, PURPLE, ORANGE)
# What readers know from one report to the next; all others take what is left, in turn.
LOOKS = {
    "local": (ORANGE, "s"),
    "global": (PURPLE, "D"),
    "collaborative": (GREEN, "o"),
    "propagation": (SKY, "^"),
    "admm": (VERMILION, "v"),
    "private": (BLUE, "P"),
}
MARKERS = "X*hpd<>"


def looks_of(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A color and a marker for each row of a comparison."""
    looks = {name: LOOKS[name] for name in names if name in LOOKS}
    others = [name for name in names if name not in LOOKS]
    free = [color for color in PALETTE if color not in {color for color, _ in looks.values()}] or list(
        PALETTE
    )
    for place, name in enumerate(others):
        looks[name] = (free[place % len(free)], MARKERS[place % len(MARKERS)])
    return looks


STYLE: dict[Any, Any] = {
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "grid.alpha": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "font.family": "sans-serif",
    "font.size": 9.5,
}


def draw(width: float, height: float, paint: Callable[[Figure], None]) -> Figure:
    """A figure of this size in inches, painted in the house style; nothing global is left behind."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        paint(figure)
        # Layout and text sizes depend on the style, so that they are settled while it is in force.
        figure.draw_without_rendering()
    return figure


def legend_above(figure: Figure, axes: Axes) -> None:
    """One legend for the whole figure, in a row over it, with each label once."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 5))
