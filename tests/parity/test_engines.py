"""The compiled engine against the event queue of plain agents: same seed, same run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import LOSSES, named, random_problem

from flockwise.engine import Conditions, simulate
from flockwise.method import CoordinateDescent, ModelPropagation

METHODS = (CoordinateDescent(), CoordinateDescent("local"), ModelPropagation())
HARSH = Conditions(
    delay=0.5,
    delay_kind="exponential",
    loss=0.2,
    offline_share=0.3,
    offline_length=1.5,
    joins={3: 4.0, 5: 0.3},
    leaves={7: 6.0},
)
NETWORKS = {
    "ideal": Conditions(),
    "loss": Conditions(loss=0.3),
    "fixed delay": Conditions(delay=0.7),
    "long delay": Conditions(delay=6.0),
    "random delay": Conditions(delay=2.0, delay_kind="exponential"),
    "absences": Conditions(offline_share=0.4, offline_length=0.8),
    "joining and leaving": Conditions(joins={0: 3.0, 1: 5.5}, leaves={2: 4.0, 3: 0.1}),
    "never there": Conditions(leaves={2: 0.0}, offline_share=0.3, offline_length=0.02),
    "everything": HARSH,
}


def assert_same_run(compiled, plain):
    """Equal events, and models that differ by rounding alone."""
    assert np.array_equal(compiled.updates, plain.updates)
    assert np.array_equal(compiled.state["next_ticks"], plain.state["next_ticks"])
    scale = max(1.0, float(np.abs(plain.models).max()))
    assert np.abs(compiled.models - plain.models).max() <= 1e-10 * scale
    for ours, theirs in zip(compiled.records, plain.records, strict=True):
        assert (ours.time, ours.ticks, ours.vectors) == (theirs.time, theirs.ticks, theirs.vectors)
        assert ours.objective == pytest.approx(theirs.objective, rel=1e-10)


def assert_engines_agree(problem, method, **options):
    assert_same_run(*(simulate(problem, method, engine=engine, **options) for engine in ("cpu", "reference")))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", METHODS, ids=["zeros", "local", "propagation"])
def test_cpu_equals_reference_in_every_network(network, method):
    problem = random_problem(4, n_agents=30, density=0.2)
    assert_engines_agree(problem, method, seed=11, updates=12, conditions=NETWORKS[network])


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_cpu_equals_reference_with_rows_and_samples_beyond_one_vector(loss):
    problem = random_problem(5, n_agents=12, n_features=37, max_samples=45, loss=loss)
    assert_engines_agree(problem, METHODS[0], seed=3, updates=8)


def test_cpu_equals_reference_with_more_neighbors_than_a_byte_can_count():
    problem = random_problem(6, n_agents=300, density=1.0, max_samples=3)
    # No barrier before the 256th of them has ticked.
    assert_engines_agree(problem, METHODS[0], seed=3, updates=2, record_every=8.0)


@st.composite
def conditions(draw):
    return Conditions(
        delay=draw(st.sampled_from([0.0, 0.3, 2.5])),
        delay_kind=draw(st.sampled_from(["fixed", "exponential"])),
        loss=draw(st.sampled_from([0.0, 0.4])),
        offline_share=draw(st.sampled_from([0.0, 0.5])),
        offline_length=draw(st.floats(0.2, 4.0)),
        joins=draw(st.dictionaries(st.integers(0, 7), st.floats(0, 4), max_size=3)),
        leaves=draw(st.dictionaries(st.integers(0, 7), st.floats(0, 6), max_size=3)),
    )


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    n_agents=st.integers(8, 14),
    density=st.floats(0, 1),
    loss=st.sampled_from(LOSSES),
    network=st.one_of(st.just(Conditions()), conditions()),
    stop=st.sampled_from([{"updates": 6}, {"time": 4.3}, {"ticks": 37}]),
)
def test_parallel_sweeps_equal_the_sequential_order(seed, n_agents, density, loss, network, stop):
    problem = random_problem(seed, n_agents=n_agents, density=density, loss=loss)
    options = {"seed": seed, "conditions": network, **stop}
    plain = simulate(problem, CoordinateDescent(), engine="reference", **options)
    one = simulate(problem, CoordinateDescent(), threads=1, **options)
    three = simulate(problem, CoordinateDescent(), threads=3, **options)
    assert_same_run(one, plain)
    assert np.array_equal(one.models, three.models)


@pytest.mark.parametrize("network", ["ideal", "everything"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_thread_count_gives_the_same_bits(network, dtype):
    problem = random_problem(9, n_agents=200, density=0.04, n_features=5, dtype=dtype)
    runs = [
        simulate(problem, CoordinateDescent(), updates=15, threads=threads, conditions=NETWORKS[network])
        for threads in (1, 2, 3, 5)
    ]
    for run in runs[1:]:
        assert np.array_equal(run.models, runs[0].models)
        assert run.records[-1].objective == runs[0].records[-1].objective
    assert runs[0].models.dtype == dtype


def test_another_seed_gives_another_run():
    problem = random_problem(4)
    first, second = (simulate(problem, CoordinateDescent(), updates=3, seed=seed) for seed in (1, 2))
    assert not np.array_equal(first.models, second.models)
