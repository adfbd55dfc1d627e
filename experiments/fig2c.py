"""Figure 2 (c): accuracy by dimension and ε, with guarantees that hold beside the published curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments import published
from experiments.drawing import WIDTH, legend, on_clean_labels, percent, published_points
from experiments.lowpass import solve_lowpass
from experiments.noisy_descent import NOT_PRIVATE, noisy_descent, weakened
from experiments.private_runs import DIVISOR, START_EPSILON, WEAKENED, published_start
from experiments.published import AGENTS, DELTA
from experiments.result import Claim, Model, Result, Row, Variant, summary
from experiments.scale import Scale
from experiments.sparse_models import solve_sparse_models
from experiments.synthetic import BOX, Instance, Network, best_tradeoff, network
from experiments.tradeoff import QUICK, TUNING_INSTANCES
from experiments.workbook import Workbook
from flockwise.engine.simulate import simulate
from flockwise.method import CoordinateDescent, PrivateUpdates, ReleaseOnce
from flockwise.method.rules import Descent, LocalAnchors, Rule
from flockwise.method.smoothing import propagate
from flockwise.objective import Problem
from flockwise.privacy.budget import Budget
from flockwise.report.theme import BLUE, GREEN, ORANGE, PURPLE, SKY, draw
from flockwise.solve import solve_local_models, solve_optimum

NAME = "fig2c"
TITLE = "Beyond Figure 2 (c): other methods by dimension"
CAPTION = (
    "Test accuracy of 100 agents by the number of features, δ = e⁻⁵. Left: one release per agent within the "
    "budget, low-pass smoothing over many hops, and own models by a silent finish; dotted, purely local "
    "models with an L1 penalty, which send nothing and profit from targets that are 0 beyond two "
    f"coordinates. Right: private coordinate descent with {WEAKENED}, which protects nobody (lines), and "
    "with the noise that its guarantee takes (dashed). Circles: published, as they would be on clean labels."
)

EPSILONS = (1.05, 0.55, 0.15)
COLOURS = {"local": ORANGE, "collaborative": GREEN, 1.05: BLUE, 0.55: SKY, 0.15: PURPLE}
# Updates of each agent in private coordinate descent: the best of figure 2 (b).
UPDATES = 8
CLIP = 1.0
PAPER_TEST_SAMPLES = 100
# Twice as many as elsewhere: gains differ between instances by about .013.
INSTANCES = 20
# An agent loses that is this much less accurate than its local model.
LOSS = 0.002

# What is wanted of own models over purely local ones, by dimension and ε; and how many agents may lose.
WANTED_GAINS = {20: {0.15: 0.02, 0.55: 0.06, 1.05: 0.08}, 100: {0.15: 0.008, 0.55: 0.04, 1.05: 0.08}}
WANTED_LOSING = {0.15: 0.2, 0.55: 0.1, 1.05: 0.1}

Models = NDArray[np.float64]
Found = Mapping[str, Any]


def run(scale: Scale, book: Workbook) -> Result:
    dimensions = scale.pick(quick=(2, 20, 100), full=(2, 10, 20, 25, 50, 75, 100))
    seeds = range(scale.pick(quick=1, full=INSTANCES))
    tuning = scale.tuning_seeds(TUNING_INSTANCES)
    test = scale.pick(quick=1000, full=4000)
    book.expect(len(dimensions) * (len(seeds) + scale.pick(quick=0, full=1)))
    rows: list[Row] = []
    tradeoffs, as_published, guarantees = {}, {}, []
    for dimension in dimensions:
        tradeoff = QUICK
        if not scale.quick:
            tradeoff = book.compute(f"p{dimension}-tradeoff", best_tradeoff, dimension, tuning, "dense")
        found = [
            book.compute(f"p{dimension}-{seed}", measure, dimension, tradeoff, seed, test) for seed in seeds
        ]
        rows += _rows(dimension, found)
        tradeoffs[dimension], guarantees = tradeoff, found[0]["guarantees"]
        as_published[dimension] = _on_few_points(found)
    return Result(
        NAME,
        seeds,
        rows,
        guarantees=guarantees,
        settings={
            "tradeoff": tradeoffs,
            "updates of private descent": UPDATES,
            "test points": test,
            f"accuracy on {PAPER_TEST_SAMPLES} test points, as in the paper": as_published,
        },
        claims=claims(rows),
    )


def measure(dimension: int, tradeoff: float, seed: int, test: int) -> dict[str, Any]:
    """For each method: mean accuracy, on the paper's number of test points too, and who gains or loses."""
    drawn = network(AGENTS, dimension, seed)
    models: dict[str, Models] = {
        "local": solve_local_models(drawn.problem),
        "local_l1": solve_sparse_models(drawn.problem),
        "collaborative": solve_optimum(drawn.problem.with_tradeoff(tradeoff), tolerance=1e-5).models,
    }
    guarantees = []
    for epsilon in EPSILONS:
        private, words = _private_models(drawn, tradeoff, epsilon, seed)
        models |= {f"{name} {epsilon}": found for name, found in private.items()}
        guarantees += words
    accuracies = drawn.accuracies(list(models.values()), test)
    on_few_points = drawn.accuracies(list(models.values()), PAPER_TEST_SAMPLES).mean(axis=1)
    gains = accuracies - accuracies[0]
    return {
        "guarantees": guarantees,
        "methods": {
            name: {
                "accuracy": float(accuracy.mean()),
                "on_few_points": float(few),
                "gain": float(gain.mean()),
                "losing": float((gain < -LOSS).mean()),
            }
            for name, accuracy, few, gain in zip(models, accuracies, on_few_points, gains, strict=True)
        },
    }


def _private_models(
    drawn: Network, tradeoff: float, epsilon: float, seed: int
) -> tuple[dict[str, Models], list[str]]:
    """By "what variant model", and the guarantees of those that have one."""
    problem, budget = drawn.problem.with_tradeoff(tradeoff), Budget(epsilon, DELTA)
    smoothed = solve_lowpass(problem, budget, seed)
    once = ReleaseOnce(budget).prepare(problem, seed)
    propagated = _settled(problem, once.rule)
    assert once.finish is not None
    assert once.guarantee is not None
    # Points of [−1, 1]^p have ‖x‖₂ ≤ √p; steps that a guarantee covers may not come from the data.
    bounded = problem.with_objective(feature_bound=math.sqrt(problem.dimension))
    descent = CoordinateDescent("zeros", PrivateUpdates(budget, UPDATES, CLIP, "laplace", "kov"))
    descended = simulate(bounded, descent, engine="reference", seed=seed, record_every=None)
    assert descended.own_models is not None
    assert descended.guarantee is not None
    models = {
        "private honest released": smoothed.smoothing.beliefs.vectors,
        "private honest own": smoothed.own_models,
        "release_once honest released": propagated,
        "release_once honest own": once.finish(propagated, None),
        "private_cd honest released": descended.models,
        "private_cd honest own": descended.own_models,
        "private published released": _without_guarantee(drawn, tradeoff, epsilon, seed),
    }
    return models, [smoothed.guarantee, once.guarantee.explain(), descended.guarantee.explain()]


def _settled(problem: Problem, rule: Rule) -> Models:
    """What a run of model propagation settles at."""
    assert isinstance(rule, Descent)
    assert isinstance(rule.local, LocalAnchors)
    return propagate(problem.neighbors, rule.local.anchors, rule.pulls)


def _without_guarantee(drawn: Network, tradeoff: float, epsilon: float, seed: int) -> Models:
    """The paper's private start and updates, with less noise than printed and no bound on a gradient."""
    problem = drawn.problem.with_tradeoff(tradeoff)
    scales = weakened(problem, epsilon - START_EPSILON, DELTA, UPDATES, DIVISOR)
    start = published_start(Instance(problem, drawn.task.test), "private", seed)
    return noisy_descent(problem, start, scales, seed)


def _on_few_points(found: Sequence[Found]) -> dict[str, float]:
    return {
        name: round(float(np.mean([one["methods"][name]["on_few_points"] for one in found])), 4)
        for name in found[0]["methods"]
    }


def _rows(dimension: int, found: Sequence[Found]) -> list[Row]:
    return [_row(name, dimension, [one["methods"][name] for one in found]) for name in found[0]["methods"]]


def _row(name: str, dimension: int, found: Sequence[Found]) -> Row:
    what, variant, model, epsilon = _parts(name)
    more: dict[str, Any] = {}
    paper = _published(what, dimension, epsilon)
    if what != "local":
        more = {key: round(float(np.mean([one[key] for one in found])), 5) for key in ("gain", "losing")}
    return Row(
        what,
        agents=AGENTS,
        dimension=dimension,
        variant=variant,
        model=model,
        metric="accuracy",
        epsilon=epsilon,
        delta=None if epsilon is None else DELTA,
        paper=paper,
        more=more | (NOT_PRIVATE if variant == "published" else {}),
        **summary([one["accuracy"] for one in found]),
    )


def _parts(name: str) -> tuple[str, Variant, Model, float | None]:
    what, *words = name.split()
    if not words:
        return what, "baseline", "released" if what == "collaborative" else "own", None
    variant, model, epsilon = words
    return what, variant, model, float(epsilon)  # pyright: ignore[reportReturnType]


def _published(what: str, dimension: int, epsilon: float | None) -> float | None:
    """Of the paper's methods, and of what takes the place of its private one."""
    if what in ("local_l1", "release_once"):
        return None
    return published.FIG2C[what if epsilon is None else epsilon].get(dimension)


def _private(
    rows: Sequence[Row], what: str = "private", variant: str = "honest", model: str = "own"
) -> list[Row]:
    return [row for row in rows if (row.what, row.variant, row.model) == (what, variant, model)]


def claims(rows: Sequence[Row]) -> list[Claim]:
    honest = _private(rows)
    without = _private(rows, variant="published", model="released")
    return [
        Claim(
            "Own models of the low-pass method reach the published private accuracies at n = 100 with a "
            "guarantee that holds",
            all(row.verdict in ("holds", "better") for row in honest if row.paper is not None),
            "ours",
        ),
        Claim(
            "On points of [−1, 1]^p (a tenth of the printed noise, start with noise divided by m_i, no "
            "guarantee) accuracy falls with the dimension from p = 10 on, as published. It beats learning "
            "alone at ε ≥ 0.55, in the paper at ε = 0.15 as well",
            _has_published_pattern(without),
            "cause",
        ),
        *_wanted_gains(honest),
        *_wanted_losing(honest),
        Claim(
            "Own models of the low-pass method are better than those of model propagation in every dimension "
            "from 10 on and at every ε",
            all(
                row.ours > other.ours
                for row, other in zip(honest, _private(rows, "release_once"), strict=True)
                if row.dimension >= 10
            ),
            "ours",
        ),
        Claim(
            "On this task, whose targets are 0 beyond two coordinates, private own models are at least as "
            "accurate as purely local ones with an L1 penalty",
            _beats_sparse(rows, honest),
            "ours",
        ),
    ]


def _has_published_pattern(rows: Sequence[Row]) -> bool:
    for epsilon in EPSILONS:
        own = [row for row in rows if row.epsilon == epsilon and row.dimension >= 10]
        if [row.ours for row in own] != sorted((row.ours for row in own), reverse=True):
            return False
        if epsilon >= 0.5 and not all(row.more["gain"] > 0 for row in own):
            return False
    return True


def _wanted_gains(honest: Sequence[Row]) -> list[Claim]:
    found = []
    for dimension, wanted in WANTED_GAINS.items():
        gains = {row.epsilon: row.more["gain"] for row in honest if row.dimension == dimension}
        asked = ", ".join(f"{100 * wanted[epsilon]:g}" for epsilon in reversed(EPSILONS))
        found.append(
            Claim(
                f"With a guarantee that holds, own models gain at least {asked} points of accuracy over "
                f"purely local ones at p = {dimension} and ε = 0.15, 0.55, 1.05",
                all(gains[epsilon] >= gain for epsilon, gain in wanted.items()),
                "ours",
            )
        )
    return found


def _wanted_losing(honest: Sequence[Row]) -> list[Claim]:
    judged = [row for row in honest if row.dimension in WANTED_GAINS]
    return [
        Claim(
            "At p = 20 and 100 few agents lose more than 0.002 against their local model: at most 20 % at "
            "ε = 0.15, and 10 % at ε = 0.55 and 1.05",
            all(
                row.more["losing"] <= WANTED_LOSING[row.epsilon] for row in judged if row.epsilon is not None
            ),
            "ours",
        )
    ]


def _beats_sparse(rows: Sequence[Row], honest: Sequence[Row]) -> bool:
    sparse = {row.dimension: row.ours for row in rows if row.what == "local_l1"}
    return all(row.ours >= sparse[row.dimension] for row in honest if row.dimension >= 10)


def picture(result: Result) -> Figure:
    def paint(figure: Figure) -> None:
        honest, without = figure.subplots(1, 2, sharey=True)
        for axes in (honest, without):
            for what in ("local", "collaborative"):
                _line(axes, result.where(what=what), COLOURS[what])
                published_points(axes, on_clean_labels(published.FIG2C[what]), COLOURS[what])
            for epsilon in EPSILONS:
                published_points(axes, on_clean_labels(published.FIG2C[epsilon]), COLOURS[epsilon])
            axes.set_xlabel("dimension p")
        _line(honest, result.where(what="local_l1"), ORANGE, ":")
        for epsilon in EPSILONS:
            _line(
                honest,
                result.where(what="private", variant="honest", model="own", epsilon=epsilon),
                COLOURS[epsilon],
            )
            _line(
                without, result.where(what="private", variant="published", epsilon=epsilon), COLOURS[epsilon]
            )
            sound = result.where(what="private_cd", model="released", epsilon=epsilon)
            _line(without, sound, COLOURS[epsilon], "--")
        honest.set(title="with a guarantee, own models", ylabel="test accuracy")
        without.set_title(f"CD, not private: {WEAKENED}")
        percent(honest)
        entries = [("local", {"color": ORANGE}), ("local, L1", {"color": ORANGE, "linestyle": ":"})]
        entries.append(("not private CD", {"color": GREEN}))
        entries += [(f"ε = {epsilon:g}", {"color": COLOURS[epsilon]}) for epsilon in EPSILONS]
        legend(figure, entries, columns=4)

    return draw(WIDTH, 4.8, paint)


def _line(axes: Axes, rows: Sequence[Row], colour: str, style: str = "-") -> None:
    axes.plot([row.dimension for row in rows], [row.ours for row in rows], color=colour, linestyle=style)


def story(result: Result) -> str:
    def values(rows: Sequence[Row]) -> str:
        return " / ".join(f"{row.ours:.3f}" for row in sorted(rows, key=lambda row: row.epsilon or 0))

    def noisy(rows: Sequence[Row]) -> str:
        return " / ".join(f"{row.as_published:.3f}" for row in sorted(rows, key=lambda row: row.epsilon or 0))

    def gains(dimension: int) -> str:
        rows = sorted(
            result.where(what="private", variant="honest", model="own", dimension=dimension),
            key=lambda row: row.epsilon or 0,
        )
        found = " / ".join(f"{100 * row.more['gain']:+.1f}" for row in rows)
        losing = " / ".join(f"{100 * row.more['losing']:.0f}" for row in rows)
        return f"{found} points at p = {dimension} ({losing} % of the agents lose)"

    largest = {"dimension": 100}
    sound = result.where(what="private_cd", model="released", **largest)
    without = result.where(what="private", variant="published", **largest)
    own = result.where(what="private", variant="honest", model="own", **largest)
    paper = " / ".join(str(published.FIG2C[epsilon][100]) for epsilon in reversed(EPSILONS))
    local, sparse = (result.find(what=what, **largest).ours for what in ("local", "local_l1"))
    return (
        "Here are methods that are not the paper's; its own follow below. The graph is the dense one, with "
        f"points of {BOX}, and labels are clean. At p = 100 and ε = 0.15 / 0.55 / 1.05 purely local models "
        f"have {local:.3f}. {WEAKENED.capitalize()}, from a start with noise divided by m_i, protects nobody "
        f"and gives {values(without)}, which is {noisy(without)} on noisy labels (published "
        f"{paper}). Eight updates from zero models with "
        f"Laplace noise and a guarantee, not tuned, give {values(sound)}. One release, low-pass smoothing "
        f"and a silent finish give {values(own)} within the same budgets. Gains over purely local models are "
        f"{gains(20)} and {gains(100)}. Purely local models with an L1 penalty suppose that targets are "
        f"sparse. They reach {sparse:.3f} without any message, and lose that on rotated features (see "
        "scaling)."
    )
