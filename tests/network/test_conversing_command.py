"""`flockwise network` with agents that release once and talk: real processes, one of them killed."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.network.conversations import assert_same_direction, simulated_outcomes
from tests.network.processes import wait_for
from tests.network.test_command import (
    ROOT,
    assert_within_budget,
    flockwise,
    host_pids,
    running,
    status,
)
from tests.network.world import FolderWorld, name_of

from flockwise.config import Config, Experiment, build
from flockwise.deploy.folder import AgentFolder
from flockwise.deploy.settings import NetworkSettings
from flockwise.privacy.ledger import Ledger
from flockwise.results.metrics import agent_metrics
from flockwise.runtime.releases import public_side
from flockwise.solve import solve_local_models

pytestmark = pytest.mark.network

EXAMPLE = ROOT / "examples" / "network-lowpass.toml"
# Rounds after which a gateway is killed, and how long a conversation may take on a busy machine.
EARLY, SECONDS = 20, 240.0


def configured(folder: Path, method: str) -> Path:
    config, text = folder / "network.toml", EXAMPLE.read_text()
    assert 'name = "lowpass"' in text
    # A simulation has to be told when to stop; real agents stop when they have settled.
    chosen = 'name = "lowpass"' if method == "lowpass" else 'name = "release_once"\nupdates = 100'
    config.write_text(text.replace('name = "lowpass"', chosen))
    return config


def journaled(folder: Path, table: str) -> int:
    """How many rounds the first agent, of gateway1, has on disk, or whether it has come to an end."""
    journal = folder / "agents" / "agent0" / "state" / "conversation.sqlite"
    try:
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
            return connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
    except sqlite3.OperationalError:  # it is not there yet
        return 0


@pytest.mark.parametrize("method", ["lowpass", "release_once"])
def test_from_nothing_to_own_models_with_a_gateway_killed_on_the_way(tmp_path, method):
    config, folder = configured(tmp_path, method), tmp_path / "net"
    flockwise("network", "init", config, "--out", folder)
    with running(folder, 2):
        wait_for(lambda: len(host_pids(folder)) == 2)
        pids = host_pids(folder)
        wait_for(lambda: journaled(folder, "round") >= EARLY, SECONDS, pause=0.02)
        os.kill(pids["gateway1"], signal.SIGKILL)
        assert journaled(folder, "ended") == 0
        wait_for(lambda: host_pids(folder)["gateway1"] != pids["gateway1"])
        wait_for(lambda: all(agent["is_over"] for agent in status(folder).values()), SECONDS)
        agents = status(folder)
        flockwise("network", "down", folder)
    assert len(agents) == 20
    assert len({agent["rounds"] for agent in agents.values()}) == 1
    for agent in agents.values():
        assert (agent["updates"], agent["releases"], agent["obstacle"]) == (1, 1, None)
        assert 0 < agent["epsilon_spent"] <= agent["epsilon_total"] == 1.0
        # It said the same bytes again: a neighbor that saw others for one round would have counted it.
        assert not agent["dropped"].keys() & {"equivocation", "bad_signature", "wrong_dimension", "error"}
    assert assert_within_budget(folder) == 20
    experiment = build(Config.read(config))
    assert_as_simulated(folder, experiment)
    assert_as_good_as_alone(folder, experiment)


def assert_as_simulated(folder: Path, experiment: Experiment) -> None:
    """Everyone ended with what the protocol makes of their releases when nothing gets lost."""
    graph, dimension = experiment.problem.graph, experiment.problem.dimension

    def public_of(agent: int):
        with Ledger.open(folder / "agents" / name_of(agent) / "state", name_of(agent)) as ledger:
            return public_side(settings.statistic, ledger, dimension)

    settings = NetworkSettings.of(AgentFolder.read(folder / "agents" / "agent0").neighborhood)
    for agent, expected in simulated_outcomes(settings, graph, public_of).items():
        with FolderWorld([folder / "agents" / name_of(agent)]) as alone:
            assert_same_direction(alone.nodes[agent].role.direction, expected)


def assert_as_good_as_alone(folder: Path, experiment: Experiment) -> None:
    """At this budget the gain is about .01, and so is its standard deviation: secure noise has no seed."""
    own = []
    for agent in range(experiment.problem.n_agents):
        with FolderWorld([folder / "agents" / name_of(agent)]) as alone:
            own.append(np.asarray(alone[agent].own_model()))
    apart_models = solve_local_models(experiment.problem)
    loss, test = experiment.problem.loss, experiment.test
    assert test is not None
    together, apart = (agent_metrics(loss, test, models).mean() for models in (np.stack(own), apart_models))
    assert together > apart - 0.03
