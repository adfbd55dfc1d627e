"""`flockwise plan`: what a budget buys, for one agent's noise or for a whole private run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from flockwise.cli.console import output_folder, print_table, progress_bar, say
from flockwise.errors import PrivacyError
from flockwise.files import write_json
from flockwise.privacy import Budget, Mechanism, Plan, default_delta
from flockwise.privacy.accounting.gaussian import Remark
from flockwise.privacy.mechanisms import Norm, accountants_of

# The usual mechanism of each norm, and the pure one, which needs no δ.
USUAL: dict[str, str] = {"l1": "laplace", "l2": "gaussian"}
PURE: dict[str, str] = {"l1": "laplace", "l2": "knorm"}
CURVE_POINTS = 17


@dataclass(frozen=True)
class Noise:
    """The event that every update would be, under one accountant."""

    event: Mechanism
    step_epsilon: float | None

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"mechanism": self.event.name}
        if self.step_epsilon is not None:
            document["step_epsilon"] = self.step_epsilon
        return document | {"noise_scale": self.event.scale, "noise_std": self.event.noise_std}


@dataclass(frozen=True)
class Question:
    """What is to be released, how often, and for which budget."""

    budget: Budget
    samples: int
    dimension: int
    norm: Norm
    bound: float

    @property
    def sensitivity(self) -> float:
        """2C/m: how far the mean of clipped gradients moves when one of the m samples is replaced."""
        return 2 * self.bound / self.samples

    @property
    def mechanism(self) -> str:
        return (USUAL if self.budget.delta > 0 else PURE)[self.norm]

    def answers(self, updates: int) -> dict[str, Noise | PrivacyError]:
        """The least noise under each accountant that is proven for it, or why it has none."""
        # Without δ only the sum is left for K-norm noise.
        only_sums = self.budget.delta == 0 and self.norm == "l2"
        proven = ("basic",) if only_sums else accountants_of(self.mechanism)
        return {name: self._answer(name, updates) for name in proven}

    def _answer(self, accountant: str, updates: int) -> Noise | PrivacyError:
        """What the gate of a simulated agent would add."""
        try:
            made = Plan.fitting(self.budget, self.mechanism, updates, accountant=accountant)
        except PrivacyError as error:
            return error
        event = made.event(1, self.sensitivity, self.dimension)
        if accountant == Remark.name:
            return Noise(event, Remark().split([event] * updates, self.budget.delta).step_epsilons[0])
        return Noise(event, event.epsilon if event.is_pure else None)


def plan(
    problem: Annotated[
        Path | None,
        typer.Option(metavar="CONFIG.toml", help="Choose the method for this private run; only with --json."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Total ε of an agent.")] = None,
    updates: Annotated[
        int | None, typer.Option(min=1, help="How often the agent releases something.")
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="How many samples the agent has.")] = None,
    dimension: Annotated[
        int | None, typer.Option(min=1, help="How many coordinates one release has.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Total δ of an agent; by default min(1e-5, 1/samples²).")
    ] = None,
    norm: Annotated[str, typer.Option(help="l1 (Laplace noise) or l2 (Gaussian noise).")] = "l2",
    bound: Annotated[
        float, typer.Option(help="What each sample's gradient is clipped to, in that norm.")
    ] = 1.0,
    json: Annotated[Path | None, typer.Option(help="Write the numbers to this file.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for a picture of noise against updates.")] = None,
) -> None:
    """See what a budget buys: the least noise under every accountant, or the best method (--problem)."""
    if problem is not None:
        given = {"epsilon": epsilon, "updates": updates, "samples": samples, "dimension": dimension}
        _plan_problem(problem, json, [name for name, value in given.items() if value is not None])
        return
    if epsilon is None or updates is None or samples is None or dimension is None:
        raise PrivacyError("give --epsilon, --updates, --samples and --dimension, or --problem CONFIG.toml")
    if norm not in USUAL:
        raise PrivacyError(f"--norm must be l1 or l2, got {norm!r}")
    if not (math.isfinite(bound) and bound > 0):
        raise PrivacyError(f"--bound must be positive and finite, got {bound!r}")
    budget = Budget(epsilon, default_delta(samples) if delta is None else delta)
    question = Question(budget, samples, dimension, cast(Norm, norm), bound)
    folder = None if out is None else output_folder(out)
    answers = question.answers(updates)
    if json is not None:
        write_json(json, _document(question, updates, answers))
    _show(question, updates, answers)
    say(
        f"Noise on each coordinate of the mean of {samples:,} clipped gradients; replacing one of them moves "
        f"it by at most {question.sensitivity:.6g} in {norm.upper()}."
    )
    if folder is not None:
        say(f"The picture is {_draw(question, updates, folder)}")


def _plan_problem(file: Path, json: Path | None, given: list[str]) -> None:
    """Which method to run, and whether: from what is public about a configured run."""
    if given:
        raise PrivacyError(f"--{given[0]}: --problem takes it from {file}; leave it out")
    # These need the compiled engines, which take longer to load than the other plans to make.
    from flockwise.cli.planning import UNIT, WORDS, show_plan
    from flockwise.config import Config, plan_of
    from flockwise.planner.words import document

    settings = Config.read(file)
    with progress_bar(WORDS, UNIT) as progress:
        made = plan_of(settings, progress)
    if json is not None:
        write_json(json, document(made))
    show_plan(made)


def _document(question: Question, updates: int, answers: dict[str, Noise | PrivacyError]) -> dict[str, Any]:
    return {
        "epsilon": question.budget.epsilon,
        "delta": question.budget.delta,
        "updates": updates,
        "samples": question.samples,
        "dimension": question.dimension,
        "norm": question.norm,
        "bound": question.bound,
        "sensitivity": question.sensitivity,
        "neighboring": "replace one sample",
        "accountants": {
            name: answer.document() for name, answer in answers.items() if isinstance(answer, Noise)
        },
    }


def _show(question: Question, updates: int, answers: dict[str, Noise | PrivacyError]) -> None:
    def cells(name: str, answer: Noise | PrivacyError) -> tuple[str, ...]:
        if isinstance(answer, PrivacyError):
            return name, *"–" * 5
        length = math.sqrt(question.dimension) * answer.event.noise_std
        return (
            name,
            answer.event.name,
            "–" if answer.step_epsilon is None else f"{answer.step_epsilon:.4f}",
            f"{answer.event.scale:.5g}",
            f"{answer.event.noise_std:.5g}",
            f"{length / question.bound:.4g}",
        )

    epsilon, delta = question.budget.epsilon, question.budget.delta
    print_table(
        ("accountant", "mechanism", "step ε", "noise scale", "noise sd", "length / bound"),
        (cells(name, answer) for name, answer in answers.items()),
        words=("accountant", "mechanism"),
        title=f"ε = {epsilon:g}, δ = {delta:.4g}, {updates:,} updates, p = {question.dimension:,}",
    )
    for name, answer in answers.items():
        if isinstance(answer, PrivacyError):
            say(f"No {name}: {answer}")


def _draw(question: Question, updates: int, folder: Path) -> Path:
    """Noise for 1 update up to well beyond those asked for."""
    # Drawing needs matplotlib, which takes longer to load than all answers take to find.
    from flockwise.report.noise_plot import noise_against_updates
    from flockwise.report.svg import save_picture

    last = max(100, 4 * updates)
    ratio = last ** (1 / (CURVE_POINTS - 1))
    counts = sorted({round(ratio**point) for point in range(CURVE_POINTS)} | {updates})
    curves: dict[str, list[float]] = {}
    for count in counts:
        for name, answer in question.answers(count).items():
            if isinstance(answer, Noise):
                curves.setdefault(name, []).append(answer.event.noise_std)
    picture = noise_against_updates(
        counts, curves, updates=updates, epsilon=question.budget.epsilon, delta=question.budget.delta
    )
    return save_picture(picture, folder)
