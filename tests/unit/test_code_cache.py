"""Compiled code on disk: the next process loads it, and code that has changed is never loaded."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from flockwise.code_cache import Unkeepable, cache_folder, code_of

# Prints the mean loss of one sample with score 2 and target 0, and how many functions were compiled for it.
SCRIPT = """
import numpy as np
from numba.core import event
from flockwise.objective.passes import mean_loss
{imports}

with event.install_recorder("numba:compile") as compiled:
    value = mean_loss({loss}, np.ones((1, 2)), np.zeros(1), np.ones((1, 2)))
print(value, sum(one.is_start for _, one in compiled.buffer))
"""

# Prints how many functions were compiled for one whose sums may be reordered in several ways.
REORDERED = """
import numpy as np
from numba.core import event
from flockwise.objective.passes import add_scaled

with event.install_recorder("numba:compile") as compiled:
    add_scaled(2.0, np.ones(2), np.ones(2))
print(sum(one.is_start for _, one in compiled.buffer))
"""

# Runs two methods on the reference engine, and one on the cpu engine.
SWITCHED_OFF = """
import numpy as np, flockwise as fw

task = fw.linear_classification(6, 3, seed=0)
problem = fw.Problem(task.train, fw.angular_graph(task.targets), fw.Objective(feature_bound=1.0))
private = fw.CoordinateDescent(privacy=fw.PrivateUpdates(fw.Budget(1.0, 1e-5), 2))
plain = fw.CoordinateDescent()
for method, engine in ((plain, "reference"), (plain, "cpu"), (private, "reference")):
    try:
        run = fw.simulate(problem, method, engine=engine, **({} if method is private else {"updates": 2}))
        print(engine, np.isfinite(run.models).all())
    except fw.FlockwiseError as error:
        print(engine, error)
"""

LOSS = """
from typing import NamedTuple
import weights
from weights import half

class Scaled(NamedTuple):
    def value(self, score, target):
        return {factor} * half(score - target) + weights.EXTRA
"""

WEIGHTS = """
EXTRA = {extra}

def half(number):
    return number / {divisor}
"""


class Home:
    """A folder with a loss of someone's own, and processes that use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.cache = folder / "cache"

    def write(self, factor: float = 10, divisor: float = 2, extra: float = 0) -> None:
        (self._folder / "own_loss.py").write_text(LOSS.format(factor=factor))
        helper = "from numba.extending import register_jitable\n" + WEIGHTS.format(
            extra=extra, divisor=divisor
        )
        (self._folder / "weights.py").write_text(helper.replace("def half", "@register_jitable\ndef half"))

    def run(self, loss: str = "Scaled()", imports: str = "from own_loss import Scaled") -> tuple[float, int]:
        value, compilations = self.output(SCRIPT.format(loss=loss, imports=imports)).split()
        return float(value), int(compilations)

    def output(self, program: str, **environment: str) -> str:
        settings = {
            **os.environ,
            "FLOCKWISE_CACHE": str(self.cache),
            "PYTHONPATH": os.pathsep.join([str(self._folder), *sys.path]),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        }
        answer = subprocess.run(
            [sys.executable, "-c", program], env=settings, capture_output=True, text=True, timeout=600
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.write()
    return home


def test_the_second_process_compiles_nothing(home: Home):
    value, compilations = home.run()
    assert value == 10
    assert compilations > 0
    assert home.run() == (10, 0)


def test_it_is_found_in_whatever_order_a_process_keeps_sets(home: Home):
    first, *others = (int(home.output(REORDERED, PYTHONHASHSEED=seed)) for seed in "123")
    assert first > 0
    assert others == [0, 0]


@pytest.mark.parametrize(
    ("change", "value"),
    [
        pytest.param({"factor": 20}, 20, id="the loss"),
        pytest.param({"divisor": 4}, 5, id="a function that it calls, in another file"),
        pytest.param({"extra": 1}, 11, id="a constant in another file"),
    ],
)
def test_an_edited_loss_is_never_served_stale(home: Home, change: dict[str, float], value: float):
    assert home.run()[0] == 10
    home.write(**change)
    edited, compilations = home.run()
    assert edited == value
    assert compilations > 0
    home.write()
    assert home.run() == (10, 0), "the code of the first version is still there"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: content[:100], id="cut off"),
        pytest.param(
            lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:], id="one bit"
        ),
        pytest.param(lambda content: pickle.dumps("something else"), id="another file"),
    ],
)
def test_a_damaged_file_is_compiled_again(home: Home, damage):
    home.run()
    for path in home.cache.iterdir():
        path.write_bytes(damage(path.read_bytes()))
    assert home.run()[0] == 10
    assert home.run() == (10, 0)


def test_a_folder_that_others_can_write_to_is_not_used(home: Home):
    home.cache.mkdir()
    home.cache.chmod(0o777)
    assert home.run()[0] == 10
    assert not list(home.cache.iterdir())


def test_only_compiled_code_is_ever_removed(home: Home):
    home.cache.mkdir(mode=0o700)
    thesis, old = home.cache / "thesis.txt", home.cache / "flockwise.engine.old-0.nbc"
    for path in (thesis, old):
        path.write_text("…")
        os.utime(path, (0, 0))
    home.run()
    assert thesis.exists()
    assert not old.exists()


def test_a_user_without_a_home_goes_without_a_cache(monkeypatch):
    monkeypatch.delenv("FLOCKWISE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown_home)
    assert cache_folder() is None


def unknown_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_runs_that_need_compiled_code_say_so_where_it_is_switched_off(home: Home):
    """Methods without privacy run uncompiled on the reference engine."""
    last = home.output(SWITCHED_OFF, NUMBA_DISABLE_JIT="1").splitlines()
    assert last[0] == "reference True"
    assert [line.partition(":")[0] for line in last[1:]] == [
        f"{engine} NUMBA_DISABLE_JIT is set, and this needs compiled code" for engine in ("cpu", "reference")
    ]


def test_a_loss_that_is_written_in_a_script_works_and_is_not_kept(home: Home):
    imports = (
        "from typing import NamedTuple\n"
        "class Own(NamedTuple):\n"
        "    def value(self, score, target):\n"
        "        return 3.0 * score"
    )
    for _ in range(2):
        value, compilations = home.run("Own()", imports)
        assert value == 6
        assert compilations > 0


def test_a_cache_folder_that_cannot_be_written_costs_time_only(home: Home):
    home.cache.write_text("a file, not a folder")
    assert home.run()[0] == 10


def test_code_that_refers_to_something_that_can_change_unseen_is_not_kept():
    with pytest.raises(Unkeepable, match="may change unseen"):
        code_of(Careless)


TABLE = {"factor": 2.0}


class Careless(NamedTuple):
    """A loss that reads a dictionary."""

    def value(self, score: float, target: float) -> float:
        return score * TABLE["factor"]
