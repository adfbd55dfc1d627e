"""The gpu engine where it cannot run, and what it leaves to others. What it does is tested by `make gpu`."""

import subprocess
import sys

import pytest
from tests.support import random_problem

from flockwise.engine import ENGINES, simulate
from flockwise.errors import MissingExtra, SimulationError
from flockwise.method import CoordinateDescent, GossipADMM


def test_without_pytorch_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr("flockwise.engine.gpu.available.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"engine 'gpu' needs .* pip install 'flockwise\[gpu\]'"):
        simulate(random_problem(1), CoordinateDescent(), engine="gpu", updates=1)


def test_rules_that_it_cannot_run_are_refused_with_the_engine_that_can():
    assert ENGINES["cpu"].missing() is None
    with pytest.raises(SimulationError, match="engine 'gpu' does not run gossip ADMM; use engine='cpu'"):
        simulate(random_problem(1), GossipADMM(), engine="gpu", updates=1)


def test_naming_the_engine_imports_nothing_heavy():
    code = "import sys, flockwise; print(sorted({'torch', 'triton'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_saved_run_goes_on_with_another_engine():
    problem, method = random_problem(1), CoordinateDescent()
    part = simulate(problem, method, engine="reference", updates=6, time=2.0)
    whole, resumed = (simulate(problem, method, updates=6, resume=saved) for saved in (None, part))
    assert (whole.updates == resumed.updates).all()
    assert abs(whole.models - resumed.models).max() < 1e-12
