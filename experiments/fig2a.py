"""Figure 2 (a): private coordinate descent from a constant start, for T/n = 1, 2, 4, 8."""

from __future__ import annotations

from matplotlib.figure import Figure

from experiments import private_curves, published
from experiments.private_runs import Setting
from experiments.result import Result
from experiments.scale import Scale
from experiments.workbook import Workbook

NAME = "fig2a"
TITLE = "Figure 2 (a): private coordinate descent from a constant start"
CAPTION = (
    "Objective and accuracy of released models while all agents together make n·T_i updates, from zero "
    "models. Left: every point's gradient clipped, normal noise within the budget, tail averages. Right: a "
    "tenth of the printed Laplace noise and no clipping, which comes near the published pattern and protects "
    "nobody. Circles: published accuracies, as they would be on clean labels."
)
SETTING = Setting(NAME, "constant")


def run(scale: Scale, book: Workbook) -> Result:
    return private_curves.run(SETTING, published.FIG2A, scale, book)


def picture(result: Result) -> Figure:
    return private_curves.picture(result, published.FIG2A)


def story(result: Result) -> str:
    return private_curves.story(result)
