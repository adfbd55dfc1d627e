"""Gossip ADMM: the compiled engine against the reference, any number of threads, stopped and resumed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import random_problem

from flockwise.engine import simulate
from flockwise.method import GossipADMM
from flockwise.objective import Softmax
from flockwise.results import Trajectory


def assert_same_run(one, other, tolerance):
    scale = np.abs(other.models).max()
    np.testing.assert_allclose(one.models, other.models, rtol=0, atol=tolerance * scale)
    np.testing.assert_array_equal(one.updates, other.updates)
    np.testing.assert_array_equal(one.state["next_ticks"], other.state["next_ticks"])
    for name in ("copies", "auxiliary", "duals"):
        np.testing.assert_allclose(one.state[name], other.state[name], rtol=0, atol=tolerance * scale)
    for name in ("time", "ticks", "vectors", "bytes"):
        np.testing.assert_array_equal(one.column(name), other.column(name))


@settings(max_examples=25)
@given(
    n_agents=st.integers(1, 12),
    density=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    penalty=st.sampled_from([0.05, 1.0]),
    gradient_steps=st.integers(1, 3),
    seed=st.integers(0, 2**64 - 1),
    limit=st.sampled_from([{"updates": 4}, {"ticks": 30}, {"time": 5.0}]),
    threads=st.sampled_from([1, 3]),
)
def test_gossip_admm_on_the_cpu_engine_equals_the_reference_engine(
    n_agents, density, penalty, gradient_steps, seed, limit, threads
):
    problem = random_problem(seed % 1000, n_agents=n_agents, density=density, max_samples=9, tradeoff=0.8)
    method = GossipADMM(penalty, gradient_steps, start="zeros")
    cpu = simulate(problem, method, seed=seed, engine="cpu", record_every=2.5, threads=threads, **limit)
    reference = simulate(problem, method, seed=seed, engine="reference", record_every=2.5, **limit)
    assert_same_run(cpu, reference, tolerance=1e-10)


def test_cpu_equals_reference_with_several_scores_in_single_precision():
    problem = random_problem(3, n_agents=10, loss=Softmax(2), dtype=np.float32)
    method = GossipADMM(0.3, start=np.random.default_rng(1).standard_normal((10, 6)))
    cpu = simulate(problem, method, seed=4, updates=6, engine="cpu")
    reference = simulate(problem, method, seed=4, updates=6, engine="reference")
    assert cpu.models.dtype == reference.models.dtype == np.float32
    # Some 100 updates, each within a few units of 1.2e-7.
    assert_same_run(cpu, reference, tolerance=1e-5)


def test_every_number_of_threads_gives_the_same_bits():
    problem = random_problem(7, n_agents=150, density=0.03, n_features=9, max_samples=9)
    runs = [
        simulate(problem, GossipADMM(0.2, start="zeros"), seed=9, time=6, threads=threads)
        for threads in (1, 2, 5)
    ]
    for run in runs[1:]:
        assert_same_bits(run, runs[0])


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize("start", ["zeros", "ones"])
def test_a_resumed_run_equals_an_uninterrupted_one(engine, start, tmp_path):
    problem = random_problem(2)
    models = "zeros" if start == "zeros" else np.ones((12, 3))
    common = {"method": GossipADMM(0.5, 3, start=models), "seed": 6, "engine": engine, "updates": 7}
    whole = simulate(problem, time=8, **common)
    simulate(problem, time=3, **common).save(tmp_path / "run.npz")
    resumed = simulate(problem, time=8, resume=Trajectory.load(tmp_path / "run.npz"), **common)
    assert_same_bits(resumed, whole)
    for name in ("time", "ticks", "objective", "vectors", "bytes"):
        np.testing.assert_array_equal(resumed.column(name), whole.column(name))


def assert_same_bits(one, other):
    np.testing.assert_array_equal(one.models, other.models)
    for name, array in other.state.items():
        np.testing.assert_array_equal(one.state[name], array)
