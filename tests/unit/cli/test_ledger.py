"""`flockwise ledger show`: what was spent, and a code of 1 for anything that cannot be trusted."""

import json
import re
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from flockwise.cli import ledger as command
from flockwise.errors import LedgerError
from flockwise.privacy.budget import Budget
from flockwise.privacy.gate import Gate, Rows
from flockwise.privacy.ledger import NAME, Entry, Ledger
from flockwise.privacy.noise import SecureNoise
from flockwise.privacy.plan import Plan

PLAN = Plan.fitting(Budget(1.0, 1e-5), "gaussian", 30, accountant="zcdp", on_grid=True)
PURE = Plan(Budget(1.0), "laplace", "basic", (20.0,) * 20, on_grid=True)

app = typer.Typer()
app.add_typer(command.ledger, name="ledger")


def show(*arguments):
    return CliRunner().invoke(app, ["ledger", "show", *map(str, arguments)])


def rows(samples=4):
    return Rows.of(np.ones((samples, 2)), 1.0)


def spend(folder, agent, releases, plan=PLAN):
    with Ledger.create(folder, agent) as ledger:
        gate = Gate(plan, ledger, SecureNoise())
        for _ in range(releases):
            gate.release(rows())


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    """Tables are whole all the same."""
    monkeypatch.setattr(command.RESULTS, "_width", 60)


def test_the_releases_of_one_agent_are_shown(tmp_path):
    spend(tmp_path, "anna", 3)
    shown = show(tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "agent anna" in shown.output
    spent = PLAN.epsilon_after(3)
    assert f"intact  spent ε = {spent:.4g} of 1 at δ = 1e-05 on 3 releases" in shown.output
    assert "a plan of 30, accounted by zcdp" in shown.output
    rows = re.findall(r"^ +(\d) +\S+T\S+ +gaussian +0.5 +(\S+) +32 +(\S+)$", shown.output, re.MULTILINE)
    noise = f"{0.5 * PLAN.multipliers[0]:.4g}"
    assert rows == [(str(k), noise, f"{PLAN.epsilon_after(k):.4g}") for k in (1, 2, 3)]


def test_many_agents_are_shown_and_written_as_json(tmp_path):
    spend(tmp_path / "a", "anna", 25)
    spend(tmp_path / "b" / "deep", "bob", 2, PURE)
    Ledger.create(tmp_path / "c", "cleo").close()
    file = tmp_path / "shown.json"
    shown = show(tmp_path, "--json", file)
    assert shown.exit_code == 0, shown.output
    assert "5 earlier ones" in shown.output
    assert "nothing is granted yet" in shown.output
    assert "a plan of 20, accounted by basic" in shown.output
    anna, bob, cleo = json.loads(file.read_text())["ledgers"]
    assert (anna["agent"], anna["intact"], anna["problems"], len(anna["entries"])) == ("anna", True, [], 25)
    assert anna["epsilon_spent"] == anna["entries"][-1]["epsilon_so_far"] == PLAN.epsilon_after(25)
    assert [entry["number"] for entry in anna["entries"]] == list(range(1, 26))
    assert [entry["epsilon_so_far"] for entry in bob["entries"]] == pytest.approx([0.05, 0.1])
    assert bob["entries"][0]["mechanism"] == "laplace"
    assert bob["entries"][0]["noise_scale"] == 10.0
    assert bob["entries"][0]["sensitivity"] == 0.5
    assert (cleo["epsilon_spent"], cleo["epsilon"], cleo["entries"]) == (0.0, None, [])


def test_a_lost_release_is_named(tmp_path):
    with Ledger.create(tmp_path, "anna") as ledger, pytest.raises(ZeroDivisionError):
        Gate(PLAN, ledger, SecureNoise()).release(rows(), lambda noisy, released: 1 / 0)
    shown = show(tmp_path)
    assert "1 of them lost without a message" in shown.output
    assert shown.exit_code == 0


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DELETE FROM entry WHERE number = 2", "entry 2 is missing"),
        ("UPDATE entry SET payload = x'00' WHERE number = 3", "entry 3 is not what was written"),
        ("DELETE FROM entry WHERE number = 3", "the account counts 3 entries, the last one is 2"),
        ("DROP TABLE account", "cannot be used"),
    ],
)
def test_damage_ends_with_code_1(tmp_path, damage, words):
    spend(tmp_path / "a", "anna", 3)
    spend(tmp_path / "b", "bob", 1)
    with closing(sqlite3.connect(tmp_path / "a" / NAME)) as connection:
        connection.execute(damage)
        connection.commit()
    shown = show(tmp_path, "--json", tmp_path / "shown.json")
    assert shown.exit_code == 1
    assert "DAMAGED" in shown.output
    assert words in shown.output
    assert "agent bob" in shown.output
    anna, bob = json.loads((tmp_path / "shown.json").read_text())["ledgers"]
    assert (anna["intact"], anna["epsilon_spent"], anna["entries"]) == (False, None, [])
    assert words in anna["problems"][0]
    assert bob["intact"]


def test_entries_that_the_plan_does_not_allow_are_damage(tmp_path):
    """The chain of seals is whole, as a faulty program would leave it; the plan is not kept."""
    with Ledger.create(tmp_path, "anna") as ledger:
        ledger.grant(PLAN.to_json())
        ledger.record(Entry.now(1, rows().event(PLAN, 1).with_multiplier(0.1), b""))
    shown = show(tmp_path, "--json", tmp_path / "shown.json")
    assert shown.exit_code == 1
    assert "entry 1 in its ledger is not a release of its plan" in shown.output
    (anna,) = json.loads((tmp_path / "shown.json").read_text())["ledgers"]
    assert (anna["intact"], anna["epsilon_spent"], anna["entries"]) == (False, None, [])


def test_releases_of_more_and_more_samples_cost_the_same(tmp_path):
    """The table shows what changes: sensitivity and noise, and not the cost."""
    counts = (20, 23, 40, 41, 80)
    with Ledger.create(tmp_path, "anna") as ledger:
        gate = Gate(PLAN, ledger, SecureNoise())
        for samples in counts:
            gate.release(rows(samples))
    shown = show(tmp_path, "--json", tmp_path / "shown.json")
    assert shown.exit_code == 0, shown.output
    (anna,) = json.loads((tmp_path / "shown.json").read_text())["ledgers"]
    entries = anna["entries"]
    assert [entry["sensitivity"] for entry in entries] == [2 / samples for samples in counts]
    ratios = [entry["noise_std"] / entry["sensitivity"] for entry in entries]
    assert ratios == pytest.approx([PLAN.multipliers[0]] * 5, rel=1e-14)
    assert [entry["epsilon_so_far"] for entry in entries] == [PLAN.epsilon_after(k) for k in range(1, 6)]


def test_an_agent_at_work_can_be_looked_at(tmp_path):
    with Ledger.create(tmp_path, "anna") as ledger:
        gate = Gate(PLAN, ledger, SecureNoise())
        gate.release(rows())
        assert "on 1 releases" in show(tmp_path).output
        gate.release(rows())
        assert "on 2 releases" in show(tmp_path).output


def test_no_ledger_is_an_error(tmp_path):
    shown = show(tmp_path)
    assert shown.exit_code == 1
    assert isinstance(shown.exception, LedgerError)
