"""The noise that is stated is the noise that is added, for every registered mechanism and statistic.

Agents have samples at zero and no neighbors, so what they release is nothing but noise. Every mean square is
compared within 5 of its standard errors, which a right one exceeds for 1 seed of a million.
"""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import typer
from tests.unit.privacy.proven import every_mechanism, noise_for
from typer.testing import CliRunner

import flockwise.cli.plan
from flockwise.data import Population
from flockwise.engine import simulate
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent, PrivateUpdates, ReleaseOnce
from flockwise.objective import CappedLogistic, Objective, Problem
from flockwise.privacy import Budget, Plan
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import MemoryLedger
from flockwise.release import STATISTICS

BUDGET, PURE = Budget(1.0, 1e-5), Budget(1.0)
UPDATES, SAMPLES, DIMENSION, CLIP = 20, 5, 4, 0.7
AGENTS = {"cpu": 6000, "reference": 600}


def silent_problem(agents: int) -> Problem:
    """Agents without neighbors whose samples have no influence on what they release."""
    population = Population.packed(
        np.zeros((agents * SAMPLES, DIMENSION)),
        np.tile([1.0, -1.0, 1.0, -1.0, 1.0], agents),
        np.arange(agents + 1) * SAMPLES,
    )
    no_edges = SimilarityGraph.from_edges(agents, np.empty((0, 2), np.int64))
    return Problem(population, no_edges, Objective(CappedLogistic(), l2=10.0, feature_bound=1.0))


def assert_is_deviation(noise, stated) -> None:
    squares = noise**2
    assert abs(squares.mean() - stated**2) < 5 * squares.std() / math.sqrt(squares.size)


def check_engine(kind, engine, budget) -> None:
    """After one update from 0 a model is −α·μc times the noise, in units of the sensitivity 2·clip/m."""
    problem = silent_problem(AGENTS[engine])
    method = CoordinateDescent(privacy=PrivateUpdates(budget, UPDATES, CLIP, kind.name))
    run = simulate(problem, method, engine=engine, seed=4, updates=1, record_every=None)
    gains = (problem.step_sizes * problem.pulls)[:, None] * (2 * CLIP / SAMPLES)
    assert run.guarantee is not None
    assert_is_deviation(run.state["models"] / gains, run.guarantee.noise_multiplier)


@every_mechanism
@pytest.mark.parametrize("engine", AGENTS)
def test_an_engine_adds_the_noise_that_the_guarantee_states(kind, engine):
    check_engine(kind, engine, BUDGET)
    if kind.is_pure:
        check_engine(kind, engine, PURE)


@every_mechanism
def test_an_engine_that_adds_less_noise_than_the_guarantee_states_is_found(monkeypatch, kind):
    """A seeded bug: 22.06 times the sensitivity is added where 28.28 times is stated."""
    honest = PrivateUpdates.noise

    def quieter(self, problem, start=None):
        noise = honest(self, problem, start)
        return dataclasses.replace(noise, sensitivities=22.06 / 28.28 * noise.sensitivities)

    monkeypatch.setattr(PrivateUpdates, "noise", quieter)
    with pytest.raises(AssertionError):
        check_engine(kind, "cpu", BUDGET)


@every_mechanism
def test_a_gate_adds_the_noise_that_its_plan_and_the_guarantee_state(kind):
    plan = Plan.fitting(BUDGET, kind.name, UPDATES)
    ledgers, releases = [MemoryLedger(str(agent)) for agent in range(1500)], []
    for agent, ledger in enumerate(ledgers):
        gate = Gate(plan, ledger, noise_for(plan, seed=agent))
        releases.append(gate.release(Rows.of(np.zeros((SAMPLES, DIMENSION)), CLIP)).vector)
    (entry,) = ledgers[0].entries
    assert entry.event == plan.event(1, 2 * CLIP / SAMPLES, DIMENSION)
    assert_is_deviation(np.array(releases), entry.event.noise_std)


@pytest.mark.parametrize("kind", list(STATISTICS), ids=STATISTICS.names)
def test_a_statistic_is_released_with_the_noise_that_the_guarantee_states(kind):
    problem, method = silent_problem(3000), ReleaseOnce(BUDGET, kind())
    released = method.release(problem, seed=5)
    # Models of silent samples are 0, and so are means.
    if (
        released.plan is None
    ):  # the noise is not on the vector itself: its variance is bounded, and that is all
        assert np.mean(released.vectors**2) <= released.noise_variances[0] * 1.2
        return
    assert_is_deviation(released.vectors, math.sqrt(released.noise_variances[0]))
    guarantee = method.prepare(problem, 5).guarantee
    value = method.statistic.of(problem.population.samples(0), problem.objective)
    event = value.event(released.plan, 1)
    assert guarantee is not None
    assert guarantee.noise_multiplier == pytest.approx(event.noise_std / event.sensitivity, rel=1e-12)
    assert released.noise_variances[0] == pytest.approx(event.noise_std**2, rel=1e-12)


def planned(tmp_path, *options):
    """What `flockwise plan` states, by accountant."""
    app = typer.Typer()
    app.command()(flockwise.cli.plan.plan)
    file = tmp_path / "plan.json"
    sizes = ["--epsilon", "1", "--updates", str(UPDATES), "--samples", str(SAMPLES)]
    words = [*sizes, "--dimension", str(DIMENSION), "--bound", str(CLIP), "--json", str(file), *options]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return json.loads(file.read_text())["accountants"]


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_command_states_the_noise_that_a_gate_adds(tmp_path, norm, delta):
    stated = planned(tmp_path, "--norm", norm, "--delta", str(delta))
    assert stated
    for accountant, row in stated.items():
        plan = Plan.fitting(Budget(1.0, delta), row["mechanism"], UPDATES, accountant=accountant)
        ledger = MemoryLedger("anna")
        Gate(plan, ledger, noise_for(plan)).release(Rows.of(np.zeros((SAMPLES, DIMENSION)), CLIP))
        assert row["noise_std"] == ledger.entries[0].event.noise_std
