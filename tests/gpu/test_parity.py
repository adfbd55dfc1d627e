"""The gpu engine against the cpu engine, same seed, same run: on a GPU or with TRITON_INTERPRET=1."""

import re
from typing import Any

import numpy as np
import pytest
from benchmarks.workload import benchmark_problem
from tests.support import LOSSES, PUBLIC, named, random_problem

from flockwise.engine import ENGINES, Conditions, RunSettings, simulate
from flockwise.errors import SimulationError
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent, GossipADMM, ModelPropagation, PrivateUpdates, WarmStart
from flockwise.objective import Problem, Quadratic
from flockwise.privacy.budget import Budget

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(ENGINES["gpu"].missing() is not None, reason="no GPU, and not TRITON_INTERPRET=1"),
]
MOST_APART = 1e-5


def assert_same_run(gpu, cpu):
    """Equal events, and models that differ by the rounding of float32."""
    for name in ("next_ticks", "updates"):
        np.testing.assert_array_equal(gpu.state[name], cpu.state[name])
    for name in ("time", "ticks", "vectors", "bytes"):
        np.testing.assert_array_equal(gpu.column(name), cpu.column(name))
    assert gpu.models.dtype == cpu.models.dtype
    for ours, theirs in ((gpu.models, cpu.models), (gpu.state["models"], cpu.state["models"])):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert np.linalg.norm(ours - theirs) <= MOST_APART * np.linalg.norm(theirs)
    np.testing.assert_allclose(gpu.column("objective"), cpu.column("objective"), rtol=MOST_APART)


def both(problem, method, **options):
    gpu, cpu = (simulate(problem, method, engine=engine, seed=3, **options) for engine in ("gpu", "cpu"))
    assert_same_run(gpu, cpu)
    return gpu, cpu


def small(seed=4, *, n_agents=8, dtype: type = np.float32, **options):
    return random_problem(seed, n_agents=n_agents, dtype=dtype, **options)


def private(kind, updates=3):
    accountant = {"gaussian": "gdp", "laplace": "theorem1", "knorm": "basic"}[kind]
    return CoordinateDescent(privacy=PrivateUpdates(Budget(1.0, 1e-3), updates, 0.8, kind, accountant))


def bounded(problem):
    length = float(np.linalg.norm(problem.population.features, axis=1).max()) * (1 + 1e-6)
    return problem.with_objective(feature_bound=length)


def test_ten_updates_an_agent_are_the_same_run():
    gpu, _ = both(small(n_features=5), CoordinateDescent(), updates=10, record_every=4.0)
    assert gpu.final.ticks == 80


def test_model_propagation_is_the_same_run():
    both(small(), ModelPropagation(), updates=3)


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_every_loss_of_ours_is_the_same_run(loss):
    both(small(loss=loss, n_features=4, max_samples=20), CoordinateDescent(), updates=2)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("loss", [LOSSES[0], LOSSES[2]], ids=named)
def test_private_updates_clip_alike_and_draw_the_same_noise(kind, loss):
    both(bounded(small(8, loss=loss)), private(kind))


def test_a_start_that_is_released_comes_first_in_the_plan():
    privacy = PrivateUpdates(Budget(1.0, 1e-3), 3, 0.8, models="last")
    both(bounded(small(8)), CoordinateDescent(WarmStart(), privacy=privacy))


@pytest.mark.parametrize("n_features", [1, 33, 130])
def test_models_of_several_tiles_and_of_any_size_are_the_same_run(n_features):
    both(small(n_features=n_features, max_samples=20), CoordinateDescent("local"), updates=2)


def test_agents_with_more_neighbors_than_are_read_at_once_are_the_same_run():
    both(small(n_agents=40, density=1.0, max_samples=3), CoordinateDescent(), time=0.6)


def test_double_precision_agrees_to_rounding():
    gpu, cpu = both(bounded(small(dtype=np.float64)), private("gaussian"))
    np.testing.assert_allclose(gpu.state["models"], cpu.state["models"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("first", "second"), [("gpu", "cpu"), ("cpu", "gpu"), ("gpu", "reference")])
def test_a_run_can_be_resumed_on_another_engine(first, second, tmp_path):
    problem, method = bounded(small()), private("laplace", 4)
    whole = simulate(problem, method, engine="cpu", seed=9)
    part = simulate(problem, method, engine=first, seed=9, time=1.0)
    part.save(tmp_path / "run.npz")
    resumed = simulate(problem, method, engine=second, seed=9, resume=type(part).load(tmp_path / "run.npz"))
    assert 0 < part.final.ticks < whole.final.ticks
    assert_same_run(resumed, whole)


def test_a_run_stops_after_so_many_ticks():
    gpu, _ = both(small(), CoordinateDescent(), ticks=17)
    assert gpu.stopped == "ticks"


@pytest.mark.parametrize(("bound", "value"), [("TURNS_AN_AGENT", -126), ("MOST_TURNS", 16)])
def test_a_queue_that_is_too_small_for_a_step_takes_shorter_ones(bound, value, monkeypatch):
    """16 turns for 8 agents."""
    monkeypatch.setattr(f"flockwise.engine.gpu.descent.{bound}", value)
    both(small(), CoordinateDescent(), time=4.0, record_every=4.0)


def test_a_loss_without_a_slope_in_triton_is_refused_by_name():
    class Hinge(Quadratic):
        name = "hinge"

    with pytest.raises(
        SimulationError, match="engine 'gpu' has no slope for loss 'hinge', only for logistic"
    ):
        simulate(small(loss=Hinge()), CoordinateDescent(), engine="gpu", updates=1)


def test_what_the_engine_cannot_do_is_refused_by_name():
    problem = small()
    unusable: tuple[tuple[dict[str, Any], str], ...] = (
        ({"conditions": Conditions(delay=0.5)}, "engine 'gpu' runs the ideal network only; use engine='cpu'"),
        ({"threads": 2}, "engine 'gpu' cannot use threads"),
    )
    for options, said in unusable:
        with pytest.raises(SimulationError, match=said):
            simulate(problem, CoordinateDescent(), engine="gpu", updates=1, **options)
    with pytest.raises(SimulationError, match="engine 'gpu' does not run gossip ADMM; use engine='cpu'"):
        simulate(problem, GossipADMM(), engine="gpu", updates=1)
    with pytest.raises(SimulationError, match="Gaussian and Laplace noise, not that of mechanism 'knorm'"):
        simulate(bounded(problem), private("knorm"), engine="gpu")


def test_data_larger_than_the_memory_is_refused_before_anything_is_allocated(monkeypatch):
    """The message has both sizes. Arrays that just fit are refused, since more is needed for a moment."""
    from flockwise.engine.gpu.descent import Form, layout_of
    from flockwise.engine.gpu.memory import needed_bytes

    problem = benchmark_problem(1500, 100, 4)
    rule: Any = CoordinateDescent().prepare(problem, 0).rule
    layout = layout_of(rule, Form.of(rule), 1)
    arrays, needed = sum(shape.bytes for shape in layout.values()), needed_bytes(layout)
    assert needed > arrays > problem.population.features.nbytes > 0.03e9
    monkeypatch.setattr("torch.zeros", None)
    monkeypatch.setattr("flockwise.engine.gpu.memory.free_bytes", lambda device: arrays)
    words = f"needs {needed / 1e9:.2f} GB of GPU memory, and {arrays / 1e9:.2f} GB are free"
    with pytest.raises(SimulationError, match=re.escape(words)):
        ENGINES["gpu"].start(rule, RunSettings(limit=1))


def test_what_pytorch_keeps_of_earlier_runs_counts_as_free(monkeypatch):
    from flockwise.engine.gpu.memory import free_bytes

    kept = [3.0]
    monkeypatch.setattr("torch.cuda.empty_cache", kept.clear)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (10.0 - sum(kept), 80.0))
    assert free_bytes("cuda") == 10.0


def test_models_come_from_the_gpu_piece_by_piece(monkeypatch):
    from flockwise.engine.gpu.memory import fetch

    torch: Any = pytest.importorskip("torch")

    monkeypatch.setattr("flockwise.engine.gpu.memory.ROWS_AT_ONCE", 3)
    rows = torch.arange(40, dtype=torch.float32).reshape(8, 5)
    fetched = fetch(rows, 4)
    np.testing.assert_array_equal(fetched, rows.numpy()[:, :4])
    assert fetched.dtype == np.float32
    assert fetched.base is None


def test_agents_alone_and_without_samples_are_the_same_run():
    population = small().population
    assert (population.sample_counts == 0).any()
    graph = SimilarityGraph.from_edges(8, np.array([[0, 1]]), np.ones(1), source=PUBLIC)
    both(Problem(population, graph, small().objective), CoordinateDescent(), updates=2)
