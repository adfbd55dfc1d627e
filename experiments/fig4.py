"""Figure 4: purely local models, learned from points that were perturbed under local privacy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments import published
from experiments.drawing import WIDTH, legend, on_clean_labels, percent, published_points
from experiments.noisy_descent import NOT_PRIVATE
from experiments.published import AGENTS, DELTA, fig4_value
from experiments.result import PAPER_RUNS, Claim, Result, Row, summary
from experiments.scale import Scale
from experiments.synthetic import BOX, PAPER_GRAPH, instance
from experiments.workbook import Workbook
from flockwise.method import LocalDP
from flockwise.objective import Problem
from flockwise.privacy.budget import Budget
from flockwise.report.theme import BLUE, GREEN, INK, ORANGE, PURPLE, draw
from flockwise.solve import solve_local_models, solve_optimum

NAME = "fig4"
TITLE = "Figure 4: local models under local privacy"
CAPTION = (
    "Accuracy of purely local models, on clean labels, by the dimension of the data. Every point is "
    "perturbed before anything is learned. Dashed: Laplace noise of scale 2/ε on every feature and labels as "
    "they are, which comes near the published values at p = 100 and is not private. Lines: Laplace noise on "
    "the features and randomized response on the label, half of ε each; dotted: normal noise within (ε, e⁻⁵) "
    "instead. Circles: published, as they would be on clean labels."
)

EPSILONS = (1.0, 0.5, 0.1)
# Those for which collaboration on perturbed points is measured.
COLLABORATION = (2, 100)
COLOURS = {1.0: BLUE, 0.5: GREEN, 0.1: PURPLE}
NEAR_CHANCE = 0.03  # where the paper has .53
# Features as large as noise makes them leave gradients that are only rounding.
ROUNDING = 1e-6
# Of collaboration on perturbed points.
SMALL_GAIN = 0.02
# The best one at p = 100 without noise.
TRADEOFF = 2.0
# Last word of the seed of the noise on features.
FEATURE_NOISE = 103


def run(scale: Scale, book: Workbook) -> Result:
    dimensions = scale.pick(quick=(2, 100), full=(2, 10, 25, 50, 75, 100))
    seeds = scale.pick(quick=range(1), full=range(PAPER_RUNS))
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
    drawn = instance(dimension, seed, test_samples, 1.0, PAPER_GRAPH)

    def accuracies(delta: float, bound: float) -> list[float]:
        problem = drawn.problem.with_objective(feature_bound=bound)
        perturbed = [LocalDP(Budget(epsilon, delta)).perturbed(problem, seed) for epsilon in EPSILONS]
        return [drawn.accuracy(solve_local_models(problem, tolerance=ROUNDING)) for problem in perturbed]

    printed = [_as_printed(drawn.problem, epsilon, seed) for epsilon in EPSILONS]
    # Points of [−1, 1]^p have ‖x‖₁ ≤ p.
    bounded = drawn.problem.with_objective(feature_bound=float(dimension))
    private = [LocalDP(Budget(epsilon, 0.0)).perturbed(bounded, seed) for epsilon in EPSILONS]
    together = {
        kind: [drawn.accuracy(_together(problem)) for problem in problems]
        for kind, problems in (("printed", printed), ("laplace", private))
        if dimension in COLLABORATION
    }
    return {
        "together": together,
        "printed": [drawn.accuracy(solve_local_models(problem, tolerance=ROUNDING)) for problem in printed],
        "local": drawn.accuracy(solve_local_models(drawn.problem)),
        # Points of [−1, 1]^p have ‖x‖₁ ≤ p and ‖x‖₂ ≤ √p, so none of them is clipped.
        "laplace": accuracies(0.0, float(dimension)),
        "gaussian": accuracies(DELTA, math.sqrt(dimension)),
    }


def _as_printed(problem: Problem, epsilon: float, seed: int) -> Problem:
    """Noise "proportional to the sensitivity of its features" on each of them, and labels as they are."""
    population, generator = problem.population, np.random.default_rng([seed, FEATURE_NOISE])
    noise = 2 / epsilon * generator.laplace(size=population.features.shape)
    noisy = population.with_samples(population.features + noise, population.targets)
    return replace(problem, population=noisy)


def _together(problem: Problem) -> NDArray[np.float64]:
    """The optimum of Eq. (2) on perturbed points, at the trade-off that is best without noise."""
    return solve_optimum(problem.with_tradeoff(TRADEOFF), tolerance=1e-4).models


def _rows(dimension: int, found: list[dict[str, Any]]) -> list[Row]:
    common: dict[str, Any] = {"agents": AGENTS, "dimension": dimension, "metric": "accuracy", "model": "own"}
    is_known = dimension in published.FIG4[None]
    rows = [
        Row(
            "local",
            variant="baseline",
            paper=published.FIG4[None].get(dimension),
            value=fig4_value(None, dimension) if is_known else None,
            **common,
            **summary([values["local"] for values in found]),
        )
    ]
    for number, epsilon in enumerate(EPSILONS):
        rows.append(
            Row(
                "noisy_features",
                variant="published",
                epsilon=epsilon,
                paper=published.FIG4[epsilon].get(dimension),
                value=fig4_value(epsilon, dimension) if is_known else None,
                more=NOT_PRIVATE,
                **common,
                **summary([values["printed"][number] for values in found]),
            )
        )
        rows += [
            Row(
                "noisy_features_together" if kind == "printed" else "local_dp_laplace_together",
                variant="published" if kind == "printed" else "honest",
                epsilon=epsilon,
                delta=None if kind == "printed" else 0.0,
                more=NOT_PRIVATE if kind == "printed" else {},
                **common,
                **summary([values["together"][kind][number] for values in found]),
            )
            for kind in found[0]["together"]
        ]
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
    judged = [row for row in rows if row.what == "noisy_features" and row.value]
    return [
        *(
            Claim(
                f"On points of {BOX} Laplace noise of scale 2/ε on every feature, with labels as they are, "
                f"which is our guess, gives the published accuracies at p = {dimension}",
                all(row.verdict == "holds" for row in judged if row.dimension == dimension),
                "cause",
            )
            for dimension in dict.fromkeys(row.dimension for row in judged)
        ),
        Claim(
            "Collaboration on points with noise of scale 2/ε on their features alone, which is not private, "
            "hardly improves on learning alone: by less than 2 points at p = 100 for every ε",
            _largest_gain(rows, "noisy_features") < SMALL_GAIN,
            "ours",
        ),
        Claim(
            "Collaboration on locally private points hardly improves on learning alone: by less than 2 "
            "points at p = 100 for every ε",
            _largest_gain(rows, "local_dp_laplace") < SMALL_GAIN,
        ),
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


def _largest_gain(rows: list[Row], what: str) -> float:
    """Of collaboration over learning alone, at p = 100."""
    alone, together = (
        [row.ours for row in rows if row.what == name and row.dimension == 100]
        for name in (what, f"{what}_together")
    )
    return max(two - one for one, two in zip(alone, together, strict=True))


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
        published_points(axes, on_clean_labels(published.FIG4[None]), ORANGE)
        for epsilon, colour in COLOURS.items():
            for what, style in (
                ("noisy_features", "--"),
                ("local_dp_laplace", "-"),
                ("local_dp_gaussian", ":"),
            ):
                rows = result.where(what=what, epsilon=epsilon)
                axes.plot([r.dimension for r in rows], [r.ours for r in rows], color=colour, linestyle=style)
            published_points(axes, on_clean_labels(published.FIG4[epsilon]), colour)
        axes.set(xlabel="dimension p", ylabel="test accuracy", ylim=(0.47, 1.0))
        percent(axes)
        entries = [("no privacy", {"color": ORANGE})]
        entries += [(f"ε = {epsilon:g}", {"color": colour}) for epsilon, colour in COLOURS.items()]
        entries.append(("features only, not private", {"color": INK, "linestyle": "--"}))
        entries.append(("normal noise", {"color": INK, "linestyle": ":"}))
        legend(figure, entries, columns=4)

    return draw(WIDTH, 3.8, paint)


def story(result: Result) -> str:
    def along(what: str, dimension: int, noisy: bool = True) -> str:
        rows = [result.find(what=what, dimension=dimension, epsilon=epsilon) for epsilon in EPSILONS]
        return " / ".join(f"{row.as_published if noisy else row.ours:.3f}" for row in rows)

    paper = " / ".join(f"{published.FIG4[epsilon][100]:.3f}" for epsilon in EPSILONS)
    small = " / ".join(f"{published.FIG4[epsilon][2]:.3f}" for epsilon in EPSILONS)
    local = result.find(what="local", dimension=100)
    return (
        "The paper adds noise to each point, in proportion to the sensitivity of its features, and gives no "
        "formula. Laplace noise of scale 2/ε on every feature, with labels as they are, comes near its "
        f"values at p = 100: {along('noisy_features', 100)} at ε = 1 / 0.5 / 0.1 on noisy test labels "
        f"(published {paper}; purely local models have {local.as_published:.3f}), and not at p = 2, where it "
        f"has {along('noisy_features', 2)} (published {small}). It is not locally "
        "private: the noise is for one feature and not for all of a point, and labels are shown. "
        f"Collaboration on such points, on the {PAPER_GRAPH} graph, changes the accuracy on clean labels "
        f"from {along('noisy_features', 100, False)} to {along('noisy_features_together', 100, False)}. The "
        "paper found no significant improvement on its points. Points are of "
        f"{BOX}. With noise that makes a whole point private, "
        f"its label included, the accuracy is {along('local_dp_laplace', 100, False)} alone and "
        f"{along('local_dp_laplace_together', 100, False)} together."
    )
