"""What an agent's process takes: no compiler, no Arrow, no certificate maker, no solver at first."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.network.processes import Processes, RealNetwork
from tests.network.world import SAMPLES, make_folders

from flockwise.deploy.folder import OwnBudget
from flockwise.deploy.settings import NetworkSettings
from flockwise.deploy.setup import free_addresses
from flockwise.graph import complete_graph
from flockwise.objective import Objective, Quadratic

# Megabytes, when all code of an agent has been imported: about 54.
MOST_MEMORY = 60
PROGRAM = """
import sys
from pathlib import Path

import flockwise.net.zenoh.link
import flockwise.runtime.run
from flockwise.deploy.folder import AgentFolder
from flockwise.runtime.durable import open_participant
from flockwise.runtime.testing import ManualTime, MemoryNetwork, run_for, start_agents

pages = int(Path("/proc/self/statm").read_text().split()[1])
network, time = MemoryNetwork(), ManualTime()
agents = [open_participant(AgentFolder.read(Path(path)), network, time) for path in sys.argv[1:]]
start_agents(agents, network, time)
run_for(30, agents, network, time)
assert all(one.node.releases >= 3 for one in agents)
print(pages, *sorted({name.partition(".")[0] for name in sys.modules}))
agents[0].own_model()
"""
PRIVATE = OwnBudget(epsilon=1.0, delta=1e-3, updates=3, clip=1.0)
LONG = OwnBudget(epsilon=1.0, delta=1e-3, updates=1000, clip=1.0)


@pytest.mark.parametrize(("privacy", "budget"), [("none", None), ("dp", PRIVATE)])
def test_an_agent_learns_without_compiler_arrow_and_solvers(tmp_path, privacy, budget):
    settings = NetworkSettings(Objective(Quadratic(), max_samples=4, feature_bound=1.0), privacy)
    paths = make_folders(tmp_path / "net", settings, complete_graph(2), [SAMPLES] * 2, budget)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, paths)], capture_output=True, text=True, check=True
    )
    pages, *modules = ran.stdout.split()
    assert int(pages) * 4096 < MOST_MEMORY * 10**6
    large = {"numba", "llvmlite", "scipy", "dp_accounting", "pyarrow", "pandas", "sklearn", "cryptography"}
    large |= {"prometheus_client"}
    assert not large & set(modules)


@pytest.mark.network
# Megabytes: 70 and 89 were measured, and other kernels and libraries take other pages.
@pytest.mark.parametrize(("budget", "megabytes"), [(None, 78), (LONG, 98)])
def test_a_process_with_one_agent_is_small_before_its_first_own_model(tmp_path, budget, megabytes):
    """As the system counts it: resident, with the pages of libraries."""
    network = RealNetwork(tmp_path / "net", free_addresses("127.0.0.1", 2), budget=budget)
    with Processes(network) as agents:
        agents.start(*network.names)
        status = agents.wait(network.names[0], lambda one: one["releases"] >= 5)
        words = Path(f"/proc/{status['pid']}/status").read_text()
        resident = int(words.partition("VmRSS:")[2].split()[0]) * 1024
    print(f"{resident / 1e6:.1f} MB")
    assert resident < megabytes * 10**6
