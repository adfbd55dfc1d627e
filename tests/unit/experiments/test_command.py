"""`flockwise reproduce`, on experiments of a moment."""

from __future__ import annotations

import json
import re
import sys
from types import ModuleType

import experiments
import pytest
import typer
from experiments.result import Claim, Curve, Result, Row, summary
from experiments.story import tell
from matplotlib.figure import Figure
from typer.testing import CliRunner

from flockwise.cli.reproduce import reproduce
from flockwise.errors import ConfigError, DataError, FlockwiseError

app = typer.Typer()
app.command()(reproduce)


def measure(seed):
    return 0.7 + 0.01 * seed


class Tiny(ModuleType):
    """An experiment that counts how often it computes."""

    TITLE = "Figure 9: a <b>small</b> one"
    CAPTION = "What is drawn."

    def __init__(self, name):
        super().__init__(f"experiments.{name}")
        self.NAME = name

    def run(self, scale, book):
        seeds = scale.pick(quick=range(2), full=range(3))
        book.expect(len(seeds))
        values = [book.compute(f"seed{seed}", measure, seed) for seed in seeds]
        common = {"agents": 100, "dimension": 5, "model": "own", "metric": "accuracy"}
        return Result(
            self.NAME,
            seeds,
            [
                # .71 on clean labels, and so .689 on noisy ones.
                Row(
                    "local", variant="baseline", paper=0.69, value="fig9: local", **common, **summary(values)
                ),
                Row(
                    "private",
                    variant="published",
                    ours=0.9,
                    epsilon=0.5,
                    more={"guarantee": "not differentially private"},
                    **common,
                ),
            ],
            guarantees=["Nothing is guaranteed.\nReally."],
            curves=[Curve("line", [0, 1], [0, 1])],
            claims=[Claim("It is small", True), Claim("It is large", False), Claim("Ours is", True, "ours")],
        )

    def picture(self, result):
        figure = Figure()
        figure.subplots().plot(result.curve("line").x, result.curve("line").y)
        return figure

    def story(self, result):
        return f"Local models reach {result.find(what='local').ours:.3f}."


class Broken(Tiny):
    def run(self, scale, book):
        raise DataError("there is no such data set")


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(experiments, "NAMES", ("fig8", "fig9"))
    monkeypatch.setattr(experiments, "BEYOND", ())
    for name in experiments.NAMES:
        monkeypatch.setitem(sys.modules, f"experiments.{name}", Tiny(name))


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.usefixtures("known")
def test_it_writes_numbers_pictures_and_a_page(tmp_path):
    done = run("fig9", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "fig9.json").read_text())
    assert document["name"] == "fig9"
    assert document["seeds"] == [0, 1, 2]
    assert [row["verdict"] for row in document["rows"]] == ["holds", ""]
    assert document["quick"] is False
    assert {path.name for path in tmp_path.iterdir()} == {
        ".work",
        "fig9.json",
        "fig9.png",
        "fig9.svg",
        "report.html",
    }
    page = (tmp_path / "report.html").read_text()
    assert "a &lt;b&gt;small&lt;/b&gt; one" in page
    assert "Local models reach 0.710." in page
    assert "not private" in page
    # Beside the published value ours is on noisy labels, .05 + .9·.71; it is counted once.
    assert "<td>0.690</td><td>0.689</td>" in page
    assert "Published values, each counted once: 1; 1 hold." in page
    counts = re.search(r">all</span></th>((?:<td>\d</td>)+)</tr>", page)
    assert counts is not None
    assert re.findall(r"\d", counts[1]) == ["1", "1", "0", "0", "0"]
    assert not re.search(r'(src|href)="(?!#)', page)


@pytest.mark.usefixtures("known")
def test_the_page_has_all_that_was_run_in_the_folder(tmp_path):
    run("fig9", "--out", tmp_path, "--quick")
    run("fig8", "--out", tmp_path, "--quick")
    page = (tmp_path / "report.html").read_text()
    assert page.index('<section id="fig8">') < page.index('<section id="fig9">')
    assert "A quick run" in page


@pytest.mark.usefixtures("known")
def test_quick_and_full_runs_do_not_mix(tmp_path):
    run("fig9", "--out", tmp_path, "--quick")
    assert json.loads((tmp_path / "fig9.json").read_text())["seeds"] == [0, 1]
    run("fig9", "--out", tmp_path)
    assert json.loads((tmp_path / "fig9.json").read_text())["seeds"] == [0, 1, 2]


@pytest.mark.usefixtures("known")
def test_the_story_is_told_from_full_runs(tmp_path):
    story = tmp_path / "reproduction.md"
    refused = run("all", "--out", tmp_path / "out", "--quick", "--docs", story)
    assert isinstance(refused.exception, ConfigError)
    assert not story.exists()
    done = run("all", "--out", tmp_path / "out", "--docs", story)
    assert done.exit_code == 0, done.output
    text = story.read_text()
    assert "## What held\n\n- It is small ([fig8]" in text
    assert "## What did not hold\n\n- It is large" in text
    assert "Local models reach 0.710." in text
    assert "Of 4 claims of the paper that were checked, 2 hold and 2 do not." in text
    assert "| without privacy | 2 | 2 | 0 | 0 | 0 |" in text
    assert re.search(r"\| fig9 \| 3 \| \d+\.\d \|", text)


@pytest.mark.usefixtures("known")
def test_the_story_can_be_told_again_from_the_numbers_beside_it(tmp_path):
    story = tmp_path / "reproduction.md"
    run("all", "--out", tmp_path / "out", "--docs", story)
    files = [tmp_path / "reproduction" / f"{name}.json" for name in experiments.NAMES]
    documents = [json.loads(file.read_text()) for file in files]
    assert "curves" not in documents[0]
    assert tell(documents) == story.read_text()
    documents[1]["rows"][0]["ours"] = 0.6
    assert "Local models reach 0.600." in tell(documents)


@pytest.mark.usefixtures("known")
def test_numbers_that_are_kept_stand_for_a_run_and_the_report_leaves_out_what_it_cannot_draw(tmp_path):
    story = tmp_path / "reproduction.md"
    run("all", "--out", tmp_path / "out", "--docs", story)
    text = story.read_text()
    (tmp_path / "again").mkdir()
    (tmp_path / "reproduction" / "fig9.json").rename(tmp_path / "again" / "fig9.json")
    done = run("fig8", "--out", tmp_path / "again", "--docs", story)
    assert done.exit_code == 0, done.output
    told = story.read_text()
    assert told.split("## What it takes")[0] == text.split("## What it takes")[0]
    page = (tmp_path / "again" / "report.html").read_text()
    assert '<section id="fig8">' in page
    assert '<section id="fig9">' not in page


@pytest.mark.usefixtures("known")
def test_it_says_which_claims_hold(tmp_path):
    done = run("fig9", "--out", tmp_path)
    assert "✓ It is small" in done.output
    assert "✗ It is large" in done.output
    assert "✓ Ours is (ours)" in done.output
    assert re.search(r"accuracy +0\.690 +0\.689 +holds \*", done.output)
    assert "* Published values, each counted once: 1; 1 hold." in done.output


def test_the_help_names_all_experiments():
    words = re.findall(r"\w+", run("--help").output)
    assert {*experiments.NAMES, *experiments.BEYOND} <= set(words)


@pytest.mark.usefixtures("known")
def test_a_file_of_another_version_is_left_out_of_the_page(tmp_path):
    run("fig8", "--out", tmp_path)
    document = json.loads((tmp_path / "fig8.json").read_text())
    (tmp_path / "fig8.json").write_text(json.dumps(document | {"rows": document["rows"][1:]}))
    done = run("fig9", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "run fig8 again" in done.output
    page = (tmp_path / "report.html").read_text()
    assert '<section id="fig9">' in page
    assert '<section id="fig8">' not in page


@pytest.mark.usefixtures("known")
def test_an_unknown_name_is_refused_before_anything_is_done(tmp_path):
    done = run("fig9", "fig7", "--out", tmp_path / "out")
    assert isinstance(done.exception, ConfigError)
    assert "'fig7' is no experiment; there are fig8, fig9 and all" in str(done.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("known")
def test_an_experiment_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "experiments.fig8", Broken("fig8"))
    done = run("all", "--out", tmp_path)
    assert isinstance(done.exception, FlockwiseError)
    assert "not reproduced: fig8" in str(done.exception)
    assert (tmp_path / "fig9.json").is_file()
    assert (tmp_path / "report.html").is_file()
