"""100 real agents in 4 processes learn what the simulator says: as fast, as far, and as well in private.

Clocks and delays are those of the machine, so that no seed makes a run repeat. What is compared are whole
distributions, and what comes out of line by chance is tried a second time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.network.test_command import assert_within_budget, murmura, running, status, wait_for

from murmura.config import Experiment, load
from murmura.engine import simulate
from murmura.net.embedded import own_model
from murmura.net.store import FileStore
from murmura.objective import CollaborativeObjective, solve_optimum
from murmura.privacy.messages import decode
from murmura.results.metrics import agent_metrics

pytestmark = pytest.mark.network

N_AGENTS, PROCESSES = 100, 4
CHECKED = (1, 2, 5, 10, 20)
N_SIMULATED = 100
TASK = """
seed = 7
[data]
source = "synthetic"
agents = 100
dimension = 100
[graph]
kind = "knn"
k = 10
from = "targets"
[objective]
loss = "logistic"
tradeoff = {tradeoff}
feature_bound = 10.0
[method]
name = "cd"
updates = {updates}
[privacy]
{privacy}
[network]
name = "meadow"
tick_rate = {rate}
"""
