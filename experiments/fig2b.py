"""Figure 2 (b): private coordinate descent from a private start, for T/n = 1, 2, 4, 8."""

from __future__ import annotations

from matplotlib.figure import Figure

from experiments import private_curves, published
from experiments.private_runs import Setting
from experiments.result import Result
from experiments.scale import Scale
from experiments.workbook import Workbook

NAME = "fig2b"
TITLE = "Figure 2 (b): private coordinate descent from a private start"
CAPTION = (
    "Objective and accuracy of released models while all agents together make n·T_i updates, from released "
    "local models, which have ε = .05 of the budget. Left: every point's gradient clipped, normal noise "
    "within the budget, tail averages. Right: a tenth of the printed Laplace noise and no clipping, which "
    "comes near the published pattern and protects nobody. Circles: published accuracies, as they would be "
    "on clean labels."
)
SETTING = Setting(NAME, "private")


def run(scale: Scale, book: Workbook) -> Result:
    return private_curves.run(SETTING, published.FIG2B, scale, book)


def picture(result: Result) -> Figure:
    return private_curves.picture(result, published.FIG2B)


def story(result: Result) -> str:
    return private_curves.story(result)
