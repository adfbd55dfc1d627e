"""`flockwise plan`: its document, its table, its picture and what it refuses."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import dp_accounting
import pytest
import typer
from typer.testing import CliRunner

from flockwise.cli.plan import plan
from flockwise.errors import ConfigError, PrivacyError

APP = typer.Typer()
APP.command()(plan)
PAPER = {"epsilon": 1.0, "delta": math.exp(-5), "updates": 10, "samples": 50, "dimension": 20}


def invoke(**options):
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return CliRunner().invoke(APP, arguments, catch_exceptions=False)


def document(tmp_path, **options):
    file = tmp_path / "plan.json"
    assert invoke(**(PAPER | options), json=file).exit_code == 0
    return json.loads(file.read_text())


def test_in_l1_the_document_states_laplace_noise_by_accountant(tmp_path):
    made = document(tmp_path, norm="l1", bound=3.0)
    assert {key: made[key] for key in PAPER} == PAPER
    assert made["sensitivity"] == pytest.approx(2 * 3.0 / 50)
    found = made["accountants"]
    assert found.keys() == {"theorem1", "basic", "kov", "pld", "zcdp"}
    for name, step in (("theorem1", 0.1060), ("pld", 0.1687), ("basic", 0.1)):
        assert found[name]["mechanism"] == "laplace"
        assert found[name]["step_epsilon"] == pytest.approx(step, abs=5e-5)
    for row in found.values():
        assert row["noise_scale"] == pytest.approx(2 * 3.0 / 50 / row["step_epsilon"])
        assert row["noise_std"] == pytest.approx(math.sqrt(2) * row["noise_scale"])


def test_in_l2_the_default_the_document_states_gaussian_noise_by_accountant(tmp_path):
    made = document(tmp_path)
    assert (made["norm"], made["bound"]) == ("l2", 1.0)
    found = made["accountants"]
    assert found.keys() == {"gdp", "zcdp", "pld", "remark"}
    exact = dp_accounting.get_sigma_gaussian(1.0, math.exp(-5)) * math.sqrt(10) * 2 / 50
    assert found["gdp"]["noise_std"] == pytest.approx(exact)
    assert found["pld"]["noise_std"] == pytest.approx(exact, rel=5e-3)
    assert all(row["mechanism"] == "gaussian" for row in found.values())
    assert all(row["noise_scale"] == row["noise_std"] for row in found.values())
    assert [name for name, row in found.items() if "step_epsilon" in row] == ["remark"]


def test_without_delta_pure_mechanisms_are_left(tmp_path):
    laplace = document(tmp_path, norm="l1", delta=0)["accountants"]
    assert laplace.keys() == {"theorem1", "basic", "kov", "pld"}
    assert {round(row["step_epsilon"], 5) for row in laplace.values()} == {0.1}
    knorm = document(tmp_path, delta=0)["accountants"]
    assert knorm.keys() == {"basic"}
    assert knorm["basic"]["mechanism"] == "knorm"
    scale = 2 / 50 / 0.1
    assert knorm["basic"]["noise_scale"] == pytest.approx(scale)
    assert knorm["basic"]["noise_std"] == pytest.approx(scale * math.sqrt(21))


def test_the_default_delta_is_that_of_the_design(tmp_path):
    options = {name: value for name, value in PAPER.items() if name != "delta"}
    file = tmp_path / "plan.json"
    assert invoke(**(options | {"samples": 1000}), json=file).exit_code == 0
    assert json.loads(file.read_text())["delta"] == 1e-6


def test_the_screen_shows_every_accountant_and_says_why_one_is_missing():
    result = invoke(**(PAPER | {"delta": 0}), norm="l1")
    assert all(name in result.stdout for name in ("basic", "theorem1", "kov", "pld"))
    assert "No zcdp: " in result.stderr
    assert "replacing one of them moves it by at most 0.04 in L1" in result.stderr


def test_the_picture_is_drawn(tmp_path):
    invoke(**PAPER, out=tmp_path / "new")
    picture = ElementTree.parse(tmp_path / "new" / "noise.svg")
    assert picture.getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": -1}, "epsilon must be positive"),
        ({"delta": 1}, "delta must be"),
        ({"norm": "l3"}, "--norm must be l1 or l2, got 'l3'"),
        ({"bound": 0}, "--bound must be positive"),
    ],
)
def test_what_cannot_be_planned_is_refused(options, words):
    with pytest.raises(PrivacyError, match=words):
        invoke(**(PAPER | options))


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        invoke(**PAPER, out=tmp_path / "taken")


def test_the_command_loads_neither_compiler_nor_plotter():
    heavy = ("numba", "matplotlib", "dp_accounting")
    code = f"import sys, flockwise.cli.plan; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0
