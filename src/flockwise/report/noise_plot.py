"""The picture of `flockwise plan`: how much noise a budget costs as it is spread over more updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.report.theme import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Picture,
    draw,
    legend_above,
    log_ticks,
)

# The paper's rules share a color: one is for Laplace noise, the other for normal noise.
STYLES: dict[str, tuple[str, Any]] = {
    "basic": (ORANGE, "-"),
    "theorem1": (VERMILION, "-"),
    "remark": (VERMILION, "-"),
    "zcdp": (SKY, "-"),
    "kov": (PURPLE, "-"),
    "gdp": (BLUE, "-"),
    # Dark dashes, since it lies on gdp where both are exact, and just below kov where that applies.
    "pld": (INK, (0, (4, 4))),
}


def noise_against_updates(
    counts: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    *,
    updates: int,
    epsilon: float,
    delta: float,
) -> Picture:
    """One curve of the noise on a coordinate for each accountant; `updates` is marked."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axvline(updates, color=FAINT, linewidth=1.2, zorder=0)
        for name, deviations in curves.items():
            color, line = STYLES.get(name, (INK, ":"))
            axes.plot(counts, deviations, color=color, linestyle=line, label=ACCOUNTANTS[name].label)
            chosen = deviations[list(counts).index(updates)]
            axes.plot([updates], [chosen], color=color, marker="o", markersize=4.5, zorder=3)
        axes.set(xscale="log", yscale="log", xlabel="updates", ylabel="noise on one coordinate (sd)")
        axes.set_title(f"ε = {epsilon:g}, δ = {delta:.3g} in all")
        axes.annotate(
            f"{updates:,} updates",
            (updates, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(4, 0),
            textcoords="offset points",
            color=INK,
            fontsize=9,
        )
        log_ticks(axes.xaxis)
        log_ticks(axes.yaxis)
        axes.margins(x=0.02)
        legend_above(figure, axes)

    return Picture(
        "noise",
        f"Noise for ε = {epsilon:g}, δ = {delta:.3g}",
        "The standard deviation of the noise on one coordinate of each release, when the whole budget is "
        "spread evenly over so many updates: the same guarantee, by tighter and looser proofs of it.",
        draw(7.2, 4.0, paint),
    )
