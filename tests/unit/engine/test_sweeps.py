"""The compiled sweeps: what each agent counts, that one call does all there is to do, and their memory."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support import random_problem

from flockwise.engine import RunSettings
from flockwise.engine.cpu.descent import DescentRun
from flockwise.engine.cpu.meetings import MeetingsRun
from flockwise.engine.cpu.sweeps import Workspace
from flockwise.graph import SimilarityGraph
from flockwise.method import CoordinateDescent, GossipADMM
from flockwise.method.rules import Descent, Meetings
from flockwise.objective import Problem
from flockwise.randomness.clocks import NEVER, TIME_UNIT

ROOT = Path(__file__).resolve().parents[3]
N_AGENTS, LIMIT = 16, 7


def run_of(kind: str, graph: SimilarityGraph, threads: int) -> DescentRun | MeetingsRun:
    other = random_problem(2, n_agents=graph.n_agents)
    problem = Problem(other.population, graph, other.objective)
    method = GossipADMM(0.2, start="zeros") if kind == "gossip" else CoordinateDescent()
    rule, settings = method.prepare(problem, 5).rule, RunSettings(seed=5, limit=LIMIT, threads=threads)
    if isinstance(rule, Meetings):
        return MeetingsRun(rule, settings)
    assert isinstance(rule, Descent)
    return DescentRun(rule, settings)


def with_edges(edges: list[list[int]]) -> SimilarityGraph:
    return SimilarityGraph.from_edges(N_AGENTS, np.array(edges), np.ones(len(edges)))


GRAPHS = {
    "nobody": random_problem(0, n_agents=N_AGENTS, density=0.0).neighbors,
    "few": random_problem(0, n_agents=N_AGENTS, density=0.15).neighbors,
    "everybody": random_problem(0, n_agents=N_AGENTS, density=1.0).neighbors,
    "pairs": with_edges([[agent, agent + 1] for agent in range(0, N_AGENTS, 2)]),
    "star": with_edges([[0, leaf] for leaf in range(1, N_AGENTS)]),
}


def counted_afresh(graph: SimilarityGraph, ticks) -> np.ndarray:
    """How many neighbors tick before each agent, ties to the lower index."""
    agents = np.repeat(np.arange(graph.n_agents), np.diff(graph.offsets))
    others = graph.neighbors.astype(int)
    earlier = (ticks[others] < ticks[agents]) | ((ticks[others] == ticks[agents]) & (others < agents))
    return np.bincount(agents[earlier], minlength=graph.n_agents)


def check_one_call(kind: str, graph: SimilarityGraph, threads: int) -> None:
    run = run_of(kind, graph, threads)
    for until in (2 * TIME_UNIT, NEVER - 1):
        assert run.advance(until).done, "ticks were left though nothing stood in their way"
        counts = workspace_of(run).earlier
        np.testing.assert_array_equal(counts, counted_afresh(graph, run.state()["next_ticks"]))
    assert (run.updates == LIMIT).all()


def workspace_of(run) -> Workspace:
    return run._team._work


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["descent", "gossip"])
def test_one_call_does_every_tick_and_the_counts_stay_right(kind, graph, threads):
    check_one_call(kind, GRAPHS[graph], threads)


def everything_once() -> None:
    for kind in ("descent", "gossip"):
        for graph in GRAPHS.values():
            check_one_call(kind, graph, threads=2)


def test_nothing_is_written_beyond_an_array():
    code = "from tests.unit.engine.test_sweeps import everything_once; everything_once()"
    checked = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], env=checked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
