"""The audit, honest and with bugs: it passes the package as it is and fails each of twelve usual mistakes.

Simulated noise has fixed seeds. Secure noise is fresh every time: an honest audit fails with a probability
of at most .1 % (it is the confidence of all its rows together), and far less in practice, since the bounds
stay well below the claims. With secure noise a bug is missed in fewer than 1 of 10,000 runs: its bounds lie
4 or more standard deviations above the claims. A seeded bug is a small change of the real code, so that all
else is attacked as it is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sized
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import flockwise.engine.cpu.descent
import flockwise.privacy.gate
import flockwise.privacy.plan
import flockwise.release.moments
import flockwise.release.spread
from flockwise.audit import audit_one, every_attack
from flockwise.audit.gate import SAMPLES
from flockwise.cli.audit import audit
from flockwise.data import Samples
from flockwise.method import PrivateUpdates
from flockwise.objective import Objective
from flockwise.privacy.noise import SecureNoise, SimulatedNoise
from flockwise.privacy.sums import SumPlan
from flockwise.randomness.noise import standard_noise
from flockwise.release.moments import BITS, TargetScale

pytestmark = pytest.mark.privacy

SEED = 0
ATTACKS = every_attack()
KEYS = {"mechanism", "updates", "claimed_epsilon", "delta", "lower_bound", "runs", "confidence"}


def attack_on(name, updates=1) -> Any:
    """One of the attacks of the audit."""
    (attack,) = [attack for attack in ATTACKS if (attack.name, attack.updates) == (name, updates)]
    return attack


def assert_caught(attack, share=0.3):
    """At the confidence of the audit, where it can be with fewer runs than it usually takes."""
    row = audit_one(attack, n_rows=len(ATTACKS), seed=SEED, share=share)
    assert row.lower_bound > row.claimed_epsilon, row


def run_audit(tmp_path, *options):
    app = typer.Typer()
    app.command()(audit)
    file = tmp_path / "audit.json"
    result = CliRunner().invoke(app, ["--json", str(file), *options])
    return result, json.loads(file.read_text())["rows"]


def test_the_honest_audit_never_measures_more_than_is_claimed(tmp_path):
    result, rows = run_audit(tmp_path, "--seed", str(SEED))
    assert result.exit_code == 0, result.output
    assert len(rows) == len(ATTACKS)
    for row in rows:
        assert set(row) == KEYS
        assert 0 <= row["lower_bound"] <= row["claimed_epsilon"], row
        assert row["confidence"] == 0.999
    once = {row["mechanism"]: row for row in rows if row["updates"] == 1}
    for name in ("laplace", "gaussian", "descent, laplace", "descent, gaussian"):
        assert once[name]["lower_bound"] >= 0.7 * once[name]["claimed_epsilon"], once[name]
    assert (
        once["sums, second moments"]["lower_bound"] >= 0.5 * once["sums, second moments"]["claimed_epsilon"]
    )
    assert once["secure laplace"]["lower_bound"] > 0.5, "expected .81, standard deviation .035"
    for norm in ("l1", "l2"):
        assert once[f"support of integer noise, {norm}"]["lower_bound"] < 0.2, "every integer is possible"
    assert {row["updates"] for row in rows} == {1, 2, 3, 10}


def test_a_leak_ends_the_command_with_code_1(tmp_path, monkeypatch):
    leaky = dataclasses.replace(attack_on("laplace"), noise=ForASum)
    monkeypatch.setattr("flockwise.cli.audit.every_attack", lambda *, with_secure_noise: [leaky])
    result, (row,) = run_audit(tmp_path, "--runs", "0.3")
    assert result.exit_code == 1
    assert row["lower_bound"] > row["claimed_epsilon"]
    assert "LEAKS" in result.output


# Forgotten factor 2: replacing a point moves the mean by 2·clip/m, and not by clip/m.


@pytest.mark.parametrize("name", ["laplace", "gaussian", "knorm"])
def test_a_forgotten_factor_2_in_the_gate_is_caught(monkeypatch, name):
    honest = flockwise.privacy.gate.clip_rows
    monkeypatch.setattr(
        flockwise.privacy.gate, "clip_rows", lambda rows, bound, norm: honest(rows, 2 * bound, norm)
    )
    assert_caught(attack_on(name))


@pytest.mark.parametrize("name", ["secure laplace", "secure gaussian"])
def test_a_forgotten_factor_2_on_the_integer_path_is_caught(monkeypatch, name):
    honest = flockwise.privacy.gate.sum_on_grid
    monkeypatch.setattr(
        flockwise.privacy.gate,
        "sum_on_grid",
        lambda rows, bound, norm, grid: honest(rows, 2 * bound, norm, grid),
    )
    assert_caught(attack_on(name), share=1.0)


def with_sensitivities_divided_by(divisor, monkeypatch):
    honest = PrivateUpdates.noise

    def wrong(*arguments, **options):
        noise = honest(*arguments, **options)
        return dataclasses.replace(noise, sensitivities=noise.sensitivities / divisor)

    monkeypatch.setattr(PrivateUpdates, "noise", wrong)


@pytest.mark.parametrize("updates", [1, 10])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_forgotten_factor_2_in_the_engine_is_caught(monkeypatch, mechanism, updates):
    with_sensitivities_divided_by(2, monkeypatch)
    assert_caught(attack_on(f"descent, {mechanism}", updates))


# Noise for a mean added to a sum: it is divided by the number of points once more.


class ForASum(SimulatedNoise):
    def draw(self, event, number):
        return super().draw(event, number) / SAMPLES


@pytest.mark.parametrize(
    ("name", "updates"), [("laplace", 1), ("gaussian", 1), ("knorm", 1), ("laplace", 10), ("gaussian", 10)]
)
def test_noise_for_a_mean_on_a_sum_in_the_gate_is_caught(name, updates):
    assert_caught(dataclasses.replace(attack_on(name, updates), noise=ForASum))


def test_noise_for_a_mean_on_a_sum_in_the_engine_is_caught(monkeypatch):
    with_sensitivities_divided_by(SAMPLES, monkeypatch)
    assert_caught(attack_on("descent, gaussian"))


# Rows clipped in L2 under noise that hides an L1 shift.


def test_l2_clipping_with_l1_noise_in_the_gate_is_caught(monkeypatch):
    honest = flockwise.privacy.gate.clip_rows
    monkeypatch.setattr(
        flockwise.privacy.gate, "clip_rows", lambda rows, bound, norm: honest(rows, bound, "l2")
    )
    assert_caught(attack_on("laplace, diagonal"), share=1.0)


def test_l2_clipping_with_l1_noise_on_the_integer_path_is_caught(monkeypatch):
    honest = flockwise.privacy.gate.sum_on_grid
    monkeypatch.setattr(
        flockwise.privacy.gate, "sum_on_grid", lambda rows, bound, norm, grid: honest(rows, bound, "l2", grid)
    )
    assert_caught(attack_on("secure l1 clipping"), share=1.0)


def test_l2_clipping_with_l1_noise_in_the_engine_is_caught(monkeypatch):
    engine = flockwise.engine.cpu.descent
    honest = engine.slope_bounds
    monkeypatch.setattr(engine, "slope_bounds", lambda features, clip, norm: honest(features, clip, "l2"))
    assert_caught(attack_on("descent, l1 clipping"))


# No composition: every update has the noise of a single one.


def with_plans_by(wrong, monkeypatch):
    """Noise that is calibrated in another way, and no check whether it fits the budget."""
    module = flockwise.privacy.plan
    honest = module.calibrate
    monkeypatch.setattr(
        module,
        "calibrate",
        lambda budget, event, accountant, releases: wrong(
            lambda updates: honest(budget, event, accountant, updates),
            len(releases) if isinstance(releases, Sized) else releases,
        ),
    )
    monkeypatch.setattr(module, "composed_epsilon", lambda *_: 0.0)


def each_alone(calibrated, updates):
    return calibrated(1) * updates


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_no_composition_in_a_plan_is_caught(monkeypatch, name):
    with_plans_by(each_alone, monkeypatch)
    assert_caught(attack_on(name, 10))


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_no_composition_in_the_engine_is_caught(monkeypatch, mechanism):
    with_plans_by(each_alone, monkeypatch)
    assert_caught(attack_on(f"descent, {mechanism}", 10))


def test_a_warm_start_outside_the_plan_is_caught(monkeypatch):
    """The start and the updates spend the whole budget each: one plan has to cover both."""
    with_plans_by(lambda calibrated, updates: calibrated(1) + calibrated(updates - 1), monkeypatch)
    assert_caught(attack_on("descent, warm start"), share=1.0)


# A step size computed from the data scales the noise, and so leaks them.


def test_a_step_size_that_depends_on_the_data_is_caught(monkeypatch):
    monkeypatch.setattr(Objective, "public_curvature", property(lambda objective: None))
    assert_caught(attack_on("descent, sample or zero", 10))


# Ratings centered by the user's mean: one of them moves all.


def centered(samples):
    """As the paper does with the ratings of each user."""
    return Samples(samples.features, samples.targets - samples.targets.mean())


@pytest.mark.parametrize("updates", [1, 10])
def test_centering_by_the_own_mean_is_caught(updates):
    attack = attack_on("descent, gaussian", updates)
    first, second = map(centered, attack.pair)
    assert_caught(dataclasses.replace(attack, pair=(first, second)))


# Sums over all agents, as a coalition of others sees them.


def test_shares_of_noise_for_all_agents_instead_of_the_honest_ones_are_caught(monkeypatch):
    honest = SumPlan.share_stds

    def for_all(self, number, size):
        return honest(self, number, size) * np.sqrt(self.crowd.honest / self.crowd.n_agents)

    monkeypatch.setattr(SumPlan, "share_stds", for_all)
    assert_caught(attack_on("sums, second moments"))


def test_second_moments_that_nothing_normalizes_are_caught(monkeypatch):
    """v = (x, y/√2) as it is: longer than 1, although ‖x‖ ≤ 1 and |y| ≤ 1."""

    def as_they_are(features, targets, weights):
        rows = np.column_stack([features, np.sqrt(0.5) * targets])
        return np.trunc(rows * np.sqrt(weights)[:, None] * 2.0**BITS)

    monkeypatch.setattr(flockwise.release.moments, "_integer_rows", as_they_are)
    assert_caught(attack_on("sums, second moments"), share=1.0)


SPREAD_ATTACKS = pytest.mark.parametrize(
    ("attack", "sums"), [("sums, and a number", 2), ("sums, and two numbers", 3), ("sums, and a matrix", 2)]
)


@SPREAD_ATTACKS
def test_differences_that_nothing_clips_are_caught(monkeypatch, attack, sums):
    monkeypatch.setattr(flockwise.release.spread, "clip_rows", lambda rows, bound, norm: rows)
    assert_caught(attack_on(attack, sums))


@pytest.mark.parametrize(
    ("limit", "attack"),
    [("sample_clip", "sums, and a number"), ("mean_clip", "sums, and a matrix, far means")],
)
def test_samples_or_means_that_are_clipped_too_late_are_caught(monkeypatch, limit, attack):
    """With the weights of the limits that are stated."""
    spread = flockwise.release.spread
    honest, weights = getattr(spread, limit), spread.pair_weights

    def stated(*sizes):
        with monkeypatch.context() as patch:
            patch.setattr(spread, limit, honest)
            return weights(*sizes)

    monkeypatch.setattr(spread, "pair_weights", stated)
    monkeypatch.setattr(spread, limit, lambda *sizes: 10 * honest(*sizes))
    assert_caught(attack_on(attack, 2))


def test_agents_with_a_smaller_budget_that_add_as_much_as_others_are_caught(monkeypatch):
    monkeypatch.setattr(SumPlan, "weights", property(lambda plan: np.ones(plan.crowd.n_agents)))
    assert_caught(attack_on("sums, a smaller budget"))


def test_targets_that_nothing_bounds_are_caught(monkeypatch):
    monkeypatch.setattr(
        TargetScale, "__call__", lambda self, targets: (targets.astype(float) - self.center) / self.half
    )
    assert_caught(attack_on("sums, second moments"))


@SPREAD_ATTACKS
def test_sums_that_spend_the_whole_budget_each_are_caught(monkeypatch, attack, sums):
    with_plans_by(each_alone, monkeypatch)
    assert_caught(attack_on(attack, sums), share=1.0)


# Floating-point noise in a real agent: some outputs are impossible on one of the data sets.


class NumpyNoise(SecureNoise):
    """NumPy's Laplace noise where the integers should be."""

    def __init__(self, seed, run):
        self._random = np.random.default_rng([seed, run])

    def draw(self, event: Any, number) -> Any:
        return self._random.laplace(0.0, event.scale / event.grid, event.dimension)


class PhiloxNoise(SecureNoise):
    """The noise of simulations where the integers should be."""

    def __init__(self, seed, run):
        self._seed, self._run = seed, run

    def draw(self, event: Any, number) -> Any:
        noise = standard_noise(event.sampler(), self._seed, self._run, number, event.dimension)
        return event.scale / event.grid * noise


@pytest.mark.parametrize(
    ("norm", "noise"),
    [("l1", NumpyNoise), ("l1", PhiloxNoise), ("l2", PhiloxNoise)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_float_noise_in_a_real_agent_is_caught(norm, noise):
    assert_caught(dataclasses.replace(attack_on(f"support of integer noise, {norm}"), noise=noise))
