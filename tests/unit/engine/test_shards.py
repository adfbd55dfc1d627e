"""Shards, all in this process: the run of the cpu engine to the last bit, however the agents are cut."""

import errno
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from tests.support import LOSSES, PUBLIC, named, random_problem

from flockwise.engine import ENGINES, Checkpoint, Conditions, RayEngine, RunSettings, simulate
from flockwise.engine.cpu.sweeps import sweep_part
from flockwise.engine.judges import DescentObjective
from flockwise.engine.ray.cut import BAD_CUT
from flockwise.engine.ray.progress import traffic_in_words
from flockwise.engine.ray.start import start_here
from flockwise.engine.ray.workers import ShardLost
from flockwise.errors import FlockwiseWarning, MissingExtra, ResumeError, SimulationError
from flockwise.graph import SimilarityGraph
from flockwise.method import (
    CoordinateDescent,
    GossipADMM,
    LowPass,
    ModelPropagation,
    PrivateUpdates,
    ReleaseOnce,
)
from flockwise.objective import Logistic, Problem
from flockwise.privacy.budget import Budget
from flockwise.randomness.clocks import NEVER, TIME_UNIT

BUDGET = Budget(2.0, 1e-3)
METHODS = {
    "cd": CoordinateDescent(),
    "cd from local models": CoordinateDescent("local"),
    "private cd": CoordinateDescent(privacy=PrivateUpdates(BUDGET, 6, 0.5)),
    "propagation": ModelPropagation(),
    "release once": ReleaseOnce(BUDGET),
}
N_AGENTS = 40
UNTIL = 5 * TIME_UNIT // 2
ABOUT = {"settings": {}, "problem_fingerprint": "", "now": TIME_UNIT, "records": []}


def problem_with(loss=Logistic(), **options):
    public = {"feature_bound": 1.5, "target_range": (-2.0, 2.0) if loss.metric == "rmse" else None}
    settings: dict[str, Any] = {"n_agents": N_AGENTS, "density": 0.2, "l2": 0.1} | public | options
    return random_problem(4, loss=loss, **settings)


def cuts(n_agents):
    """By what to call it: everyone together, two halves, every other agent, and four unequal parts."""
    agents = np.arange(n_agents)
    return {
        "one": 0 * agents,
        "halves": agents * 2 // n_agents,
        "alternating": agents % 2,
        "four": np.searchsorted([3, 10, 11], agents, side="right"),
    }


def sharded_run(rule, settings, parts, **options):
    n_shards = int(parts.max()) + 1
    with pytest.warns(FlockwiseWarning) if is_bad(rule, parts) else nullcontext():
        return start_here(rule, settings, n_shards, parts=parts, **options)


def is_bad(rule, parts):
    owners = np.repeat(parts, rule.edges.counts)
    return np.mean(owners != parts[rule.edges.neighbors]) > BAD_CUT


def to_the(until, run, steps=3):
    while not run.advance(until, steps).done:
        pass
    return run


def assert_the_same(run, cpu, until):
    for name, array in cpu.state().items():
        np.testing.assert_array_equal(run.state()[name], array, err_msg=name)
    np.testing.assert_array_equal(run.result().models, cpu.result().models)
    assert run.status(until) == cpu.status(until)
    assert run.sent(until) == cpu.sent(until)


@pytest.mark.parametrize("dtype", [float, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", METHODS)
def test_any_cut_gives_the_run_of_the_cpu_engine_to_the_last_bit(name, dtype):
    problem = problem_with(dtype=dtype)
    rule, settings = METHODS[name].prepare(problem, 7).rule, RunSettings(7, 5, threads=1)
    cpu = to_the(UNTIL, ENGINES["cpu"].start(rule, settings))
    assert cpu.result().updates.min() < cpu.result().updates.max() == 5
    compiled = len(sweep_part.signatures)
    for parts in cuts(N_AGENTS).values():
        assert_the_same(to_the(UNTIL, sharded_run(rule, settings, parts)), cpu, UNTIL)
    assert len(sweep_part.signatures) == compiled, "shards ran other machine code than the cpu engine"


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_shards_run_every_registered_loss(loss):
    rule = CoordinateDescent().prepare(problem_with(loss), 7).rule
    settings = RunSettings(7, threads=1)
    cpu = to_the(UNTIL, ENGINES["cpu"].start(rule, settings))
    assert_the_same(to_the(UNTIL, sharded_run(rule, settings, cuts(N_AGENTS)["four"])), cpu, UNTIL)


def test_agents_of_many_neighbors_and_few_are_counted_in_the_same_type():
    """A hub of 300 neighbors is in one of the shards alone: in the other, 8 bits would do."""
    weights = np.zeros((310, 310))
    weights[0, 1:301] = weights[1:301, 0] = 1
    weights[301, 302:] = weights[302:, 301] = 1
    problem = random_problem(4, n_agents=310)
    graph = SimilarityGraph.from_scipy(weights, source=PUBLIC)
    rule = CoordinateDescent().prepare(Problem(problem.population, graph, problem.objective), 7).rule
    settings = RunSettings(7, threads=1)
    cpu = to_the(UNTIL, ENGINES["cpu"].start(rule, settings))
    parts = (np.arange(310) > 300).astype(int)
    compiled = len(sweep_part.signatures)
    assert_the_same(to_the(UNTIL, sharded_run(rule, settings, parts)), cpu, UNTIL)
    assert len(sweep_part.signatures) == compiled


def test_several_threads_in_a_shard_change_nothing():
    problem = problem_with()
    rule = METHODS["cd"].prepare(problem, 7).rule
    one, three = (
        to_the(UNTIL, sharded_run(rule, RunSettings(7, threads=threads), cuts(N_AGENTS)["halves"]))
        for threads in (1, 3)
    )
    np.testing.assert_array_equal(one.result().models, three.result().models)


def test_ticks_of_equal_time_go_by_number_across_shards():
    """Neighbors in different shards whose ticks are equal: the lower number goes first, as everywhere."""
    problem = problem_with(density=0.9)
    rule = METHODS["cd"].prepare(problem, 7).rule
    settings = RunSettings(7, threads=1)
    state = ENGINES["cpu"].start(rule, settings).state()
    state["next_ticks"][:] = TIME_UNIT // 8
    state["now"] = np.array(0)
    settings = RunSettings(7)
    runs = [ENGINES[name].start(rule, settings, state) for name in ("reference", "cpu")]
    reference, cpu = (to_the(UNTIL, run) for run in runs)
    with pytest.warns(FlockwiseWarning):
        sharded = start_here(rule, settings, 2, state, parts=cuts(N_AGENTS)["alternating"])
    to_the(UNTIL, sharded)
    np.testing.assert_array_equal(cpu.state()["next_ticks"], reference.state()["next_ticks"])
    np.testing.assert_allclose(cpu.result().models, reference.result().models, rtol=0, atol=1e-12)
    assert_the_same(sharded, cpu, UNTIL)


@pytest.mark.parametrize("name", METHODS)
def test_sums_of_the_objective_are_those_of_one_machine(name):
    problem = problem_with()
    prepared = METHODS[name].prepare(problem, 7)
    settings = RunSettings(7, 5, threads=1)
    cpu = to_the(UNTIL, ENGINES["cpu"].start(prepared.rule, settings))
    run = to_the(UNTIL, sharded_run(prepared.rule, settings, cuts(N_AGENTS)["four"]))
    expected, found = (one.measure(DescentObjective(prepared.objective)) for one in (cpu, run))
    assert found.agents == expected.agents == N_AGENTS
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    gathered = run.measure(lambda models: models[:, 0])
    np.testing.assert_allclose(gathered, cpu.measure(lambda models: models[:, 0]), rtol=1e-12)


@pytest.mark.parametrize("count", [1, 17, 60, 200, 201])
def test_the_time_of_a_tick_is_found_across_shards(count):
    problem = problem_with()
    rule, settings = METHODS["cd"].prepare(problem, 7).rule, RunSettings(7, 5, threads=1)
    cpu = ENGINES["cpu"].start(rule, settings)
    run = sharded_run(rule, settings, cuts(N_AGENTS)["four"])
    assert run.time_of_tick(count) == cpu.time_of_tick(count)
    assert (cpu.time_of_tick(count) == NEVER) == (count > 5 * N_AGENTS)


@pytest.mark.parametrize("name", ["cd", "private cd"])
def test_a_checkpoint_goes_on_with_any_cut_and_in_the_other_engines(name, tmp_path):
    problem, method = problem_with(), METHODS[name]
    options: dict[str, Any] = {"seed": 7, "updates": 5, "threads": 1}
    whole = simulate(problem, method, **options)
    rule, settings = method.prepare(problem, 7).rule, RunSettings(7, 5, threads=1)
    run = sharded_run(rule, settings, cuts(N_AGENTS)["four"], folder=tmp_path, checkpoint_every=0.0)
    to_the(TIME_UNIT, run)
    early = simulate(problem, method, seed=7, updates=5, should_stop=Once(2), threads=1)
    about = {
        "settings": dict(early.settings),
        "problem_fingerprint": problem.fingerprint,
        "now": TIME_UNIT,
        "records": [record.__dict__ for record in early.records[:2]],
    }
    run.keep(lambda: about)
    saved = Checkpoint.read(tmp_path)
    assert [record.time for record in saved.records] == [0.0, 1.0]
    resumed = simulate(problem, method, resume=saved, **options)
    np.testing.assert_array_equal(np.asarray(resumed.models), np.asarray(whole.models))
    assert resumed.column("ticks").tolist() == whole.column("ticks").tolist()
    reference = simulate(problem, method, resume=saved, engine="reference", seed=7, updates=5)
    np.testing.assert_allclose(np.asarray(reference.models), np.asarray(whole.models), atol=1e-9)
    with pytest.warns(FlockwiseWarning):
        other = start_here(rule, settings, 2, saved.state, parts=cuts(N_AGENTS)["alternating"])
    end = to_the(NEVER - 1, other)
    np.testing.assert_array_equal(end.result().models, np.asarray(whole.models))


class Once:
    """Says stop when asked for the n-th time."""

    def __init__(self, count):
        self.left = count

    def __call__(self):
        self.left -= 1
        return self.left < 0


class Unlucky:
    """Workers one of whom is lost at given calls, with all that it knew."""

    def __init__(self, workers, at):
        self.workers, self.at, self.calls, self.lost = workers, set(at), 0, 0
        self.pieces = [shard._piece for shard in workers.shards]

    def __getattr__(self, name):
        return getattr(self.workers, name)

    def wait(self, handles):
        self.calls += 1
        if self.calls in self.at:
            raise ShardLost("struck by lightning")
        return self.workers.wait(handles)

    def replace_lost(self):
        self.lost += 1
        kind = type(self.workers.shards[1])
        self.workers.shards[1] = kind(self.pieces[1], 7, 5, 1, None)


@pytest.mark.parametrize("name", ["cd", "private cd"])
def test_a_lost_shard_sets_all_back_and_the_run_is_the_same(name, tmp_path):
    problem = problem_with()
    prepared, settings = METHODS[name].prepare(problem, 7), RunSettings(7, 5, threads=1)
    cpu = to_the(UNTIL, ENGINES["cpu"].start(prepared.rule, settings))
    run = sharded_run(prepared.rule, settings, cuts(N_AGENTS)["four"], folder=tmp_path, checkpoint_every=0.0)
    unlucky = Unlucky(run._workers, at=[2, 5, 6, 16, 19])
    run._workers = unlucky  # pyright: ignore[reportAttributeAccessIssue]
    to_the(TIME_UNIT, run)
    first = run.measure(DescentObjective(prepared.objective))
    run.keep(lambda: ABOUT)
    to_the(UNTIL, run)
    assert unlucky.lost >= 4
    assert_the_same(run, cpu, UNTIL)
    assert first == to_the(TIME_UNIT, sharded_run(prepared.rule, settings, cuts(N_AGENTS)["four"])).measure(
        DescentObjective(prepared.objective)
    )


def test_a_shard_that_is_lost_again_and_again_ends_the_run():
    rule = METHODS["cd"].prepare(problem_with(), 7).rule
    run = sharded_run(rule, RunSettings(7, 5, threads=1), cuts(N_AGENTS)["four"])
    run._workers = Unlucky(run._workers, range(1, 100))  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SimulationError, match=r"lost 6 times and there is no checkpoint yet.*lightning"):
        run.advance(UNTIL)


def test_a_checkpoint_with_a_damaged_or_missing_file_is_refused_by_its_name(tmp_path):
    rule, settings = METHODS["cd"].prepare(problem_with(), 7).rule, RunSettings(7, threads=1)
    run = to_the(
        TIME_UNIT,
        sharded_run(rule, settings, cuts(N_AGENTS)["halves"], folder=tmp_path, checkpoint_every=0.0),
    )
    with pytest.raises(ResumeError, match="no checkpoint here"):
        Checkpoint.read(tmp_path)
    run.keep(lambda: ABOUT)
    files = sorted(tmp_path.glob("shard-*.npz"))
    assert len(files) == 2
    content = files[0].read_bytes()
    files[0].write_bytes(content[: len(content) // 2])
    state = Checkpoint.read(tmp_path).state
    with pytest.raises(ResumeError, match=rf"{files[0].name} is .*damaged"):
        state["models"]
    with pytest.raises(ResumeError, match=rf"{files[0].name} is .*damaged"):
        sharded_run(rule, settings, cuts(N_AGENTS)["one"])._each("load_files", [str(files[0])])
    files[0].unlink()
    with pytest.raises(ResumeError, match=f"{files[0].name} is missing"):
        Checkpoint.read(tmp_path)


def test_a_new_checkpoint_replaces_the_files_of_those_before(tmp_path):
    rule, settings = METHODS["cd"].prepare(problem_with(), 7).rule, RunSettings(7, threads=1)
    run = sharded_run(rule, settings, cuts(N_AGENTS)["halves"], folder=tmp_path, checkpoint_every=0.0)
    left = ("shard-0123abcd-99-0.npz", "shard-0123abcd-99-1.npz.part")  # by a driver that was lost
    others = {"shard-of-mine-1-0.npz", "notes.txt"}
    for name in (*left, *others):
        (tmp_path / name).touch()
    for time in (1, 2):
        to_the(time * TIME_UNIT, run)
        run.keep(lambda time=time: ABOUT | {"now": time * TIME_UNIT})
    names = {file.name for file in tmp_path.iterdir()}
    assert len(names) == 3 + len(others)
    assert others < names
    assert int(Checkpoint.read(tmp_path).state["now"]) == 2 * TIME_UNIT


@pytest.mark.parametrize("until", [TIME_UNIT, 2 * TIME_UNIT], ids=["the same time", "a later time"])
def test_a_checkpoint_that_does_not_fit_leaves_the_one_before_and_nothing_else(until, tmp_path, monkeypatch):
    rule, settings = METHODS["cd"].prepare(problem_with(), 7).rule, RunSettings(7, threads=1)
    run = sharded_run(rule, settings, cuts(N_AGENTS)["halves"], folder=tmp_path, checkpoint_every=0.0)
    to_the(TIME_UNIT, run)
    run.keep(lambda: ABOUT)
    before = sorted(tmp_path.iterdir())
    to_the(until, run)
    save, saved = np.savez, []

    def fills_the_disk(stream, **arrays):
        if saved:
            stream.write(b"half of it")
            raise SimulationError("shard 1 failed in 'save': no space left on device")
        saved.append(stream.name)
        save(stream, **arrays)

    monkeypatch.setattr(np, "savez", fills_the_disk)
    with pytest.raises(SimulationError, match="no space left"):
        run.keep(lambda: ABOUT)
    assert saved
    assert sorted(tmp_path.iterdir()) == before
    assert Checkpoint.read(tmp_path).state["models"].shape == rule.start.shape


@pytest.mark.parametrize("kept", [0, 1])
def test_a_checkpoint_whose_manifest_does_not_fit_leaves_nothing_either(kept, tmp_path, monkeypatch):
    def no_room(file, document):
        raise OSError(errno.ENOSPC, "No space left on device")

    rule, settings = METHODS["cd"].prepare(problem_with(), 7).rule, RunSettings(7, threads=1)
    run = sharded_run(rule, settings, cuts(N_AGENTS)["halves"], folder=tmp_path, checkpoint_every=0.0)
    for time in range(1, 1 + kept):
        to_the(time * TIME_UNIT, run)
        run.keep(lambda: ABOUT)
    before = sorted(tmp_path.iterdir())
    assert len(before) == 3 * kept
    to_the((1 + kept) * TIME_UNIT, run)
    monkeypatch.setattr("flockwise.engine.checkpoint.write_json", no_room)
    with pytest.raises(OSError, match="No space left"):
        run.keep(lambda: ABOUT)
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_missing_is_said_by_its_name(tmp_path, monkeypatch):
    problem, engine = problem_with(), RayEngine(models=tmp_path / "models")
    monkeypatch.setattr("flockwise.engine.ray.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="cluster"):
        simulate(problem, METHODS["cd"], engine=engine, updates=1)
    monkeypatch.setattr("flockwise.engine.ray.find_spec", lambda name: name)
    monkeypatch.setattr("flockwise.code_cache.config.DISABLE_JIT", True)
    with pytest.raises(SimulationError, match="NUMBA_DISABLE_JIT is set"):
        simulate(problem, METHODS["cd"], engine=engine, updates=1)


def test_what_a_checkpoint_says_is_computed_when_one_is_made(monkeypatch):
    """Not at each barrier: the fingerprint of the problem reads all samples."""

    def start(engine, rule, settings, state):
        return start_here(rule, settings, 1, state)

    monkeypatch.setattr("flockwise.engine.ray.start.start_run", start)
    monkeypatch.setattr(RayEngine, "missing", lambda self: None)
    monkeypatch.setattr(Problem, "fingerprint", property(lambda self: pytest.fail("nothing is kept")))
    run = simulate(problem_with(), CoordinateDescent(), engine=RayEngine(), time=2.0, threads=1)
    assert run.final.ticks > 0


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (GossipADMM(), {}, "engine 'ray' does not run gossip ADMM; use engine='cpu'"),
        (ReleaseOnce(BUDGET, smoother=LowPass()), None, "engine 'ray' does not run rounds"),
        (CoordinateDescent(), {"conditions": Conditions(delay=0.5)}, "ideal network"),
    ],
)
def test_what_shards_do_not_run_is_refused_by_name(method, options, words, monkeypatch):
    monkeypatch.setattr(RayEngine, "missing", lambda self: None)
    stops = {} if options is None else {"time": 1.0} | options
    with pytest.raises(SimulationError, match=words):
        simulate(problem_with(), method, engine="ray", **stops)


def test_without_ray_the_engine_says_what_to_install(monkeypatch):
    monkeypatch.setattr("flockwise.engine.ray.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'engine="ray" needs .*flockwise\[cluster\]'):
        simulate(problem_with(), CoordinateDescent(), engine="ray", time=1.0)


def test_a_bad_cut_is_announced_and_a_wrong_one_refused():
    rule, settings = METHODS["cd"].prepare(problem_with(), 7).rule, RunSettings(7, threads=1)
    with pytest.warns(FlockwiseWarning, match=r"\d\d% of the edges join agents of different shards"):
        start_here(rule, settings, 2, parts=cuts(N_AGENTS)["alternating"])
    with pytest.raises(SimulationError, match="parts must give the shard of each of 40 agents"):
        start_here(rule, settings, 2, parts=[0, 1])
    with pytest.raises(SimulationError, match="parts of agent 10: shards are numbered 0 to 1, got 2"):
        start_here(rule, settings, 2, parts=cuts(N_AGENTS)["four"])


def test_traffic_counts_what_crosses_the_cut():
    rule, settings = METHODS["cd"].prepare(problem_with(), 7).rule, RunSettings(7, threads=1)
    run = to_the(UNTIL, sharded_run(rule, settings, cuts(N_AGENTS)["halves"]))
    told = run.traffic.summary()
    row = run.result().models[0].nbytes + 8 + 4
    assert told["boundary_bytes"] == told["boundary_vectors"] * row
    assert 0 < told["boundary_vectors"] <= run.status(UNTIL).ticks
    assert 0.5 <= told["balance"] <= 1
    assert run.traffic.ticks.sum() == run.status(UNTIL).ticks


def test_a_run_says_in_words_how_far_its_shards_are_and_what_crossed_the_cut():
    rule, settings = METHODS["cd"].prepare(problem_with(), 7).rule, RunSettings(7, threads=1)
    seen = []
    run = to_the(UNTIL, sharded_run(rule, settings, cuts(N_AGENTS)["halves"], on_progress=seen.append))
    ticks = run.result().updates.reshape(2, -1).sum(axis=1)
    assert seen[-1].words == f"shards at {ticks[0]}, {ticks[1]} ticks"
    told = run.traffic.summary()
    words = traffic_in_words(told)
    assert words.startswith("2 shards: ")
    assert f"{told['boundary_vectors']:,} models" in words
