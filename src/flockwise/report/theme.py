"""How every picture looks, and how it becomes SVG: a file of its own, or a piece of a page.

One size of text, colors that color-blind people can tell apart, no clutter.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from flockwise.files import write_text

PIXELS_PER_INCH = 200  # of what is drawn as pixels inside a picture

# Text, axes and grid, as unmistakable colors: the page replaces them by its own, in light and dark.
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
# Where these six do not suffice, four of Paul Tol's follow.
COLORS = {
    "green": GREEN,
    "sky": SKY,
    "vermilion": VERMILION,
    "blue": BLUE,
    "purple": PURPLE,
    "orange": ORANGE,
    "olive": "#999933",
    "lavender": "#7570b3",
    "plum": "#aa4499",
    "teal": "#44aa99",
}
MARKERS = "X*hpd<>"


def looks_of(names: Sequence[str], own: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """A color and a marker for each row of a comparison.

    own: those that readers know from one report to the next; all others take what is left, in turn.
    """
    looks = {name: (COLORS.get(color, color), marker) for name, (color, marker) in own.items()}
    others = [name for name in names if name not in looks]
    taken = {color for color, _ in looks.values()}
    free = [color for color in COLORS.values() if color not in taken] or list(COLORS.values())
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


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with the name of its file, its title and what it shows."""

    name: str
    title: str
    caption: str
    figure: Figure


def draw(width: float, height: float, paint: Callable[[Figure], None]) -> Figure:
    """A figure of this size in inches, painted in the house style; nothing global is left behind."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        paint(figure)
        # Layout and text sizes depend on the style, so they are settled while it is in force.
        figure.draw_without_rendering()
    return figure


def legend_above(figure: Figure, axes: Axes) -> None:
    """One legend for the whole figure, in a row over it, with each label once."""
    handles, labels = axes.get_legend_handles_labels()
    # As many beside each other as have room: inches for a handle, and for each letter of the longest label.
    columns = int(figure.get_figwidth() / (0.55 + 0.064 * max(map(len, labels))))
    columns = max(1, min(columns, 5, len(labels)))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)


def log_ticks(axis: Any) -> None:
    """Plain numbers on a logarithmic axis, with 2 and 5 between the powers where there is room."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0,) if high > 300 * low else (1.0, 2.0, 5.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def save_picture(picture: Picture, folder: Path) -> Path:
    """A file of its own, on white, that looks the same in every program."""
    path = folder / f"{picture.name}.svg"
    write_text(path, _svg(picture.figure, picture.name, "path", transparent=False))
    return path


def inline_svg(picture: Picture) -> str:
    """An <svg> element for a page: its text is text, and it follows the page from light to dark."""
    text = _svg(picture.figure, picture.name, "none", transparent=True)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace(INK, "currentColor").replace(FAINT, "var(--faint)")
    text = _drop_unused_ids(text)
    # Sized by the page, so the width and height in points have to go.
    end = text.index(">")
    opening = re.sub(r' (width|height)="[^"]*"', "", text[:end])
    return f'{opening} role="img" aria-label="{escape(picture.title)}"{text[end:]}'


def _svg(figure: Figure, name: str, fonttype: str, *, transparent: bool) -> str:
    buffer = io.StringIO()
    # The same figure gives the same bytes, and ids differ between figures of one page.
    with matplotlib.rc_context({"svg.fonttype": fonttype, "svg.hashsalt": name}):
        figure.savefig(
            buffer, format="svg", dpi=PIXELS_PER_INCH, transparent=transparent, metadata={"Date": None}
        )
    return buffer.getvalue()


def _drop_unused_ids(text: str) -> str:
    """Ids such as "axes_1" are in every figure, but an id may occur only once in a page."""
    used = set(re.findall(r"#([\w.:-]+)", text))
    return re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", text)
