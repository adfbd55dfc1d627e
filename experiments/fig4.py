"""Figure 4: purely local models, learned from points that were perturbed under local privacy."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from experiments import published
from experiments.drawing import WIDTH, legend, percent, published_points
from experiments.published import AGENTS, DELTA
from experiments.result import Claim, Result, Row, summary
from experiments.scale import Scale
from experiments.synthetic import instance
from experiments.workbook import Workbook
from flockwise.method import LocalDP
from flockwise.privacy.budget import Budget
from flockwise.report.theme import BLUE, GREEN, INK, ORANGE, PURPLE, draw
from flockwise.solve import solve_local_models

NAME = "fig4"
TITLE = "Figure 4: local models under local privacy"
CAPTION = (
    "Accuracy of purely local models by the dimension of the data. Every point is perturbed before anything "
    "is learned: Laplace noise on its features and randomised response on its label, half of ε each (lines); "
    "normal noise within (ε, e⁻⁵) instead (dotted)."
)

EPSILONS = (1.0, 0.5, 0.1)
COLOURS = {1.0: BLUE, 0.5: GREEN, 0.1: PURPLE}
NEAR_CHANCE = 0.03  # where the paper has .53


def run(scale: Scale, book: Workbook) -> Result:
    dimensions = scale.pick(quick=(2, 100), full=(2, 10, 25, 50, 75, 100))
    seeds = scale.pick(quick=range(1), full=scale.seeds)
    book.expect(len(dimensions) * len(seeds))
    rows = []
    for dimension in dimensions:
        found = [
            book.compute(f"p{dimension}-{seed}", measure, dimension, seed, scale.test_samples)
            for seed in seeds
        ]
        rows += _rows(dimension, found)
    return Result(NAME, seeds, rows, guarantees=_guarantees(), claims=_claims(rows))


def measure(dimension: int, seed: int, test_samples: int) -> dict[str, Any]:
    """Accuracies without privacy, with Laplace noise and with normal noise."""
    drawn = instance(dimension, seed, test_samples, 1.0)

    def accuracies(delta: float, bound: float) -> list[float]:
        problem = drawn.problem.with_objective(feature_bound=bound)
        perturbed = [LocalDP(Budget(epsilon, delta)).perturbed(problem, seed) for epsilon in EPSILONS]
        return [drawn.accuracy(solve_local_models(problem)) for problem in perturbed]

    return {
        "local": drawn.accuracy(solve_local_models(drawn.problem)),
        # Points of [−1, 1]^p have ‖x‖₁ ≤ p and ‖x‖₂ ≤ √p, so none of them is clipped.
        "laplace": accuracies(0.0, float(dimension)),
        "gaussian": accuracies(DELTA, math.sqrt(dimension)),
    }


def _rows(dimension: int, found: list[dict[str, Any]]) -> list[Row]:
    common: dict[str, Any] = {"agents": AGENTS, "dimension": dimension, "metric": "accuracy", "model": "own"}
    rows = [
        Row(
            "local",
            variant="baseline",
            paper=published.FIG4[None].get(dimension),
            **common,
            **summary([values["local"] for values in found]),
        )
    ]
    for number, epsilon in enumerate(EPSILONS):
        for kind, delta, paper in (
            ("laplace", 0.0, published.FIG4[epsilon].get(dimension)),
            ("gaussian", DELTA, None),
        ):
            rows.append(
                Row(
                    f"local_dp_{kind}",
                    variant="honest",
                    epsilon=epsilon,
                    delta=delta,
                    paper=paper,
                    **common,
                    **summary([values[kind][number] for values in found]),
                )
            )
    return rows


def _claims(rows: list[Row]) -> list[Claim]:
    local = {row.dimension: row.ours for row in rows if row.what == "local"}
    noisy = [row for row in rows if row.what == "local_dp_laplace"]
    return [
        Claim(
            "Models learned from points under local privacy are far worse than purely local ones, at every ε",
            all(row.ours < local[row.dimension] - 0.1 for row in noisy),
        ),
        Claim(
            "At p = 100 local privacy leaves models near chance for every ε up to 1",
            all(abs(row.ours - 0.5) <= NEAR_CHANCE for row in noisy if row.dimension == 100),
        ),
        Claim(
            "Where local privacy leaves anything, at p = 2, less is left for a smaller ε",
            (small := [row.ours for row in noisy if row.dimension == 2]) == sorted(small, reverse=True),
        ),
    ]


def _guarantees() -> list[str]:
    return [
        "Every perturbed point is (ε, 0) differentially private by itself (Laplace noise on its features, "
        f"randomised response on its label), or (ε, {DELTA:.4f}) with normal noise on its features; all of "
        "them could be published. How many points an agent has and the range of the features are public."
    ]


def picture(result: Result) -> Figure:
    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        local = result.where(what="local")
        axes.plot([r.dimension for r in local], [r.ours for r in local], color=ORANGE)
        published_points(axes, published.FIG4[None], ORANGE)
        for epsilon, colour in COLOURS.items():
            for what, style in (("local_dp_laplace", "-"), ("local_dp_gaussian", ":")):
                rows = result.where(what=what, epsilon=epsilon)
                axes.plot([r.dimension for r in rows], [r.ours for r in rows], color=colour, linestyle=style)
            published_points(axes, published.FIG4[epsilon], colour)
        axes.set(xlabel="dimension p", ylabel="test accuracy", ylim=(0.47, 1.0))
        percent(axes)
        entries = [("no privacy", {"color": ORANGE})]
        entries += [(f"ε = {epsilon:g}", {"color": colour}) for epsilon, colour in COLOURS.items()]
        entries.append(("normal noise", {"color": INK, "linestyle": ":"}))
        legend(figure, entries, columns=6)

    return draw(WIDTH, 3.8, paint)


def story(result: Result) -> str:
    largest = max(row.dimension for row in result.rows)
    local = result.find(what="local", dimension=largest)
    noisy = result.find(what="local_dp_laplace", dimension=largest, epsilon=1.0)
    small = result.find(what="local_dp_laplace", dimension=2, epsilon=1.0)
    return (
        f"Perturbing the points themselves destroys them: at p = {largest} local models fall from "
        f"{local.ours:.3f} to {noisy.ours:.3f} at ε = 1, and even at p = 2 they only reach {small.ours:.3f} "
        f"(published {small.paper})."
    )
