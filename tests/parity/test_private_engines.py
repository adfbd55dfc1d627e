"""Private coordinate descent: the compiled engine against plain agents with gates, same seed, same run."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.parity.test_engines import HARSH, assert_same_run
from tests.support import LOSSES, named, random_problem

from flockwise.engine import Conditions, simulate
from flockwise.method import CoordinateDescent, PrivateUpdates, PublicModels
from flockwise.privacy.budget import Budget

UPDATES = 6
KINDS = {
    "gaussian": {"mechanism": "gaussian", "accountant": "gdp"},
    "laplace": {"mechanism": "laplace", "accountant": "theorem1"},
    "knorm": {"mechanism": "knorm", "accountant": "basic"},
}


def private_problem(seed, **options):
    """Random, with public step sizes and no sample beyond the bound; some agents have no samples."""
    problem = random_problem(seed, **options)
    length = float(np.linalg.norm(problem.population.features, axis=1).max()) * (1 + 1e-6)
    return problem.with_objective(feature_bound=length)


def private_method(n_agents, *, start: Any = "zeros", allocation: Any = "uniform", **kind: Any):
    budgets = tuple(Budget(0.5 + 0.5 * (i % 3), 1e-3) for i in range(n_agents))
    return CoordinateDescent(start, PrivateUpdates(budgets, UPDATES, 0.8, allocation=allocation, **kind))


def own_models(run):
    assert run.own_models is not None
    return np.asarray(run.own_models)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("conditions", [Conditions(), HARSH], ids=["ideal", "harsh"])
def test_private_descent_on_the_cpu_engine_equals_the_reference_engine(kind, conditions):
    problem = private_problem(5, n_agents=16)
    method = private_method(16, **KINDS[kind])
    runs = [
        simulate(problem, method, engine=engine, seed=3, conditions=conditions)
        for engine in ("cpu", "reference")
    ]
    assert_same_run(*runs)
    np.testing.assert_allclose(own_models(runs[0]), own_models(runs[1]), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_cpu_equals_reference_for_every_loss(loss):
    problem = private_problem(8, n_agents=12, loss=loss)
    start = np.random.default_rng(0).normal(size=(12, problem.dimension))
    method = private_method(12, start=PublicModels(start), allocation=range(1, UPDATES + 1))
    assert_same_run(*(simulate(problem, method, engine=name, seed=1) for name in ("cpu", "reference")))


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_a_resumed_private_run_equals_an_uninterrupted_one(engine, tmp_path):
    problem = private_problem(2)
    method = private_method(12)
    whole = simulate(problem, method, engine=engine, seed=9)
    part = simulate(problem, method, engine=engine, seed=9, time=3.0)
    part.save(tmp_path / "run.npz")
    loaded = type(part).load(tmp_path / "run.npz")
    assert loaded.guarantee == part.guarantee
    resumed = simulate(problem, method, engine=engine, seed=9, resume=loaded)
    assert np.array_equal(resumed.models, whole.models)
    assert np.array_equal(own_models(resumed), own_models(whole))
    for name in ("time", "ticks", "objective", "vectors"):
        assert np.array_equal(resumed.column(name), whole.column(name))


@pytest.mark.parametrize("kind", KINDS)
def test_cpu_equals_reference_where_samples_are_longer_than_the_bound(kind):
    """Both use the samples as they are exchanged: scaled down, and then clipped."""
    problem = random_problem(5, n_agents=16, feature_bound=0.5)
    assert problem.exchanged is not problem.population
    method = private_method(16, **KINDS[kind])
    assert_same_run(*(simulate(problem, method, engine=name, seed=3) for name in ("cpu", "reference")))


def test_every_thread_count_gives_the_same_bits():
    problem = private_problem(6, n_agents=40, density=0.1)
    method = private_method(40)
    one, *others = (simulate(problem, method, seed=4, threads=threads) for threads in (1, 2, 3))
    for other in others:
        assert np.array_equal(one.models, other.models)


def test_the_noise_does_not_depend_on_the_precision_of_the_data():
    problem = private_problem(2, dtype=np.float32)
    run = simulate(problem, private_method(12), seed=9)
    assert run.models.dtype == np.float32
    double = dataclasses.replace(problem, population=problem.population.astype(np.float64))
    assert np.allclose(run.models, simulate(double, private_method(12), seed=9).models, atol=1e-3)
