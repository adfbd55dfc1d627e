"""`flockwise plan`: what a budget buys, for one agent's noise or for a whole private run."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from flockwise.cli.console import folder_for_results, print_table, progress_bar, say
from flockwise.errors import PrivacyError
from flockwise.files import write_json
from flockwise.privacy import Budget, Plan, default_delta
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.accounting.gaussian import Remark
from flockwise.privacy.mechanisms import Norm, accountants_of, usual_mechanism

CURVE_POINTS = 17


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
    norm: Annotated[Any, typer.Option(help="l1 (Laplace noise) or l2 (Gaussian noise).")] = "l2",
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
    if norm not in get_args(Norm):
        raise PrivacyError(f"--norm must be l1 or l2, got {norm!r}")
    if not (math.isfinite(bound) and bound > 0):
        raise PrivacyError(f"--bound must be positive and finite, got {bound!r}")
    budget = Budget(epsilon, default_delta(samples) if delta is None else delta)
    # How far the mean of clipped gradients moves when one of the m samples is replaced: 2C/m.
    sensitivity = 2 * bound / samples
    with nullcontext() if out is None else folder_for_results(out) as folder:
        found, missing = _least_noise(budget, norm, updates, sensitivity, dimension)
        if json is not None:
            document = {
                "epsilon": epsilon,
                "delta": budget.delta,
                "updates": updates,
                "samples": samples,
                "dimension": dimension,
                "norm": norm,
                "bound": bound,
                "sensitivity": sensitivity,
                "neighboring": "replace one sample",
                "accountants": found,
            }
            write_json(json, document)
        print_table(
            ("accountant", "mechanism", "step ε", "noise scale", "noise sd", "length / bound"),
            [
                *(_cells(name, noise, math.sqrt(dimension) / bound) for name, noise in found.items()),
                *((name, *"–" * 5) for name in missing),
            ],
            words=("accountant", "mechanism"),
            title=f"ε = {epsilon:g}, δ = {budget.delta:.4g}, {updates:,} updates, p = {dimension:,}",
        )
        for name, reason in missing.items():
            say(f"No {name}: {reason}")
        say(
            f"Noise on each coordinate of the mean of {samples:,} clipped gradients; replacing one of them "
            f"moves it by at most {sensitivity:.6g} in {norm.upper()}."
        )
        if folder is not None:
            say(f"The picture is {_draw(budget, norm, updates, sensitivity, dimension, folder)}")


def _least_noise(
    budget: Budget, norm: Norm, updates: int, sensitivity: float, dimension: int
) -> tuple[dict[str, dict[str, Any]], dict[str, PrivacyError]]:
    """The noise that the gate of a simulated agent adds, by accountant; and why others have none."""
    mechanism = usual_mechanism(norm, pure=budget.delta == 0)
    # Without δ only the sum is left for K-norm noise.
    only_sums = budget.delta == 0 and norm == "l2"
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, PrivacyError] = {}
    for name in accountants_of(mechanism):
        if only_sums and not ACCOUNTANTS[name].adds_epsilons:
            continue
        try:
            made = Plan.fitting(budget, mechanism, updates, accountant=name)
        except PrivacyError as error:
            missing[name] = error
            continue
        event = made.event(1, sensitivity, dimension)
        found[name] = {"mechanism": event.name}
        if name == Remark.name:
            split = Remark().split([event] * updates, budget.delta)
            found[name]["step_epsilon"] = split.step_epsilons[0]
        elif event.is_pure:
            found[name]["step_epsilon"] = event.epsilon
        found[name] |= {"noise_scale": event.scale, "noise_std": event.noise_std}
    return found, missing


def _cells(name: str, noise: dict[str, Any], length: float) -> tuple[str, ...]:
    """length: of a vector of ones, beside the clipping bound."""
    return (
        name,
        noise["mechanism"],
        f"{noise['step_epsilon']:.4f}" if "step_epsilon" in noise else "–",
        f"{noise['noise_scale']:.5g}",
        f"{noise['noise_std']:.5g}",
        f"{length * noise['noise_std']:.4g}",
    )


def _plan_problem(file: Path, json: Path | None, given: list[str]) -> None:
    """Which method to run, if any, from what is public about a configured run."""
    if given:
        raise PrivacyError(f"--{given[0]}: --problem takes it from {file}; leave it out")
    # Imported here: the compiled engines take longer to load than the other plans take to make.
    from flockwise.cli.planning import UNIT, WORDS, show_plan
    from flockwise.config import Config, plan_of
    from flockwise.planner.words import document

    settings = Config.read(file)
    with progress_bar(WORDS, UNIT) as progress:
        made = plan_of(settings, progress)
    if json is not None:
        write_json(json, document(made))
    show_plan(made)


def _draw(budget: Budget, norm: Norm, updates: int, sensitivity: float, dimension: int, folder: Path) -> Path:
    """Noise for 1 update up to many more than those asked for."""
    # Imported here: matplotlib takes longer to load than all else here.
    from flockwise.report.noise_plot import noise_against_updates
    from flockwise.report.theme import save_picture

    last = max(100, 4 * updates)
    ratio = last ** (1 / (CURVE_POINTS - 1))
    counts = sorted({round(ratio**point) for point in range(CURVE_POINTS)} | {updates})
    curves: dict[str, list[float]] = {}
    for count in counts:
        for name, noise in _least_noise(budget, norm, count, sensitivity, dimension)[0].items():
            curves.setdefault(name, []).append(noise["noise_std"])
    picture = noise_against_updates(
        counts, curves, updates=updates, epsilon=budget.epsilon, delta=budget.delta
    )
    return save_picture(picture, folder)
