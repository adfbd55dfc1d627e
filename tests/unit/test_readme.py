"""The Python in the documents runs as it stands."""

import pkgutil
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import flockwise
from flockwise.cli.app import COMMANDS, app, load_command
from flockwise.config import Config

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
# A name, and four numbers.
ROW = re.compile(r"^(\w[\w, ()]*?) +((?: *[\d,.]+){4})$", re.MULTILINE)


def test_every_name_that_the_documents_use_is_public():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    used = {name for page in pages for name in re.findall(r"\bfw\.(\w+)", page.read_text())}
    assert used
    assert used <= set(flockwise.__all__)


def test_every_module_and_name_that_the_documents_spell_out_exists():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    paths = {path.rstrip(".") for path in re.findall(r"\bflockwise((?:\.[A-Za-z_]\w*)+)", text)}
    files = {path for path in paths if path.rpartition(".")[2] in ("toml", "service", "py", "sqlite")}
    for path in sorted(paths - files):
        assert pkgutil.resolve_name(f"flockwise{path}") is not None


def test_every_file_of_the_package_that_the_documents_name_exists():
    pages = [ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    named = {
        path for page in pages for path in re.findall(r"`(?:flockwise/)?([a-z_/]+\.py)`", page.read_text())
    }
    package = ROOT / "src" / "flockwise"
    files = [f"/{path.relative_to(package)}" for path in package.rglob("*.py")]
    files += [
        f"/{path.relative_to(ROOT)}"
        for folder in ("tests", "benchmarks", "examples", "experiments")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert named
    assert {path for path in named if not any(file.endswith(f"/{path}") for file in files)} == set()


def test_the_page_on_architecture_has_the_layers_that_are_checked():
    """In their order, from the most basic one on; those side by side in any order."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (one for one in settings["contracts"] if one["type"] == "layers")
    checked = [set(layer.split(" | ")) for layer in reversed(contract["layers"])]
    _, _, page = (ROOT / "docs" / "architecture.md").read_text().partition("## The layers")
    table = page.partition("\n## ")[0]
    told = [name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in cell.split(", ")]
    for layer in checked:
        assert {name.strip("`") for name in told[: len(layer)]} == layer
        told = told[len(layer) :]
    assert not told


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


def test_every_page_with_python_in_it_has_a_test_that_runs_it():
    with_python = {page.name for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if blocks(page)}
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert {"README.md", "privacy.md", "choosing.md"} <= with_python
    assert {name for name in with_python if f'"{name}"' not in tests} == set()


@pytest.mark.parametrize("page", ["configuration.md", "network.md"])
def test_the_configurations_in_the_documents_are_valid(page):
    examples = ROOT / "examples"
    found = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    assert found
    for text in found:
        values = tomllib.loads(text)
        # A section by itself goes into a whole file.
        rest = {} if "data" in values else tomllib.loads((examples / "network.toml").read_text())
        assert Config.parse(rest | values, folder=examples).seed == 0


def commands_told():
    """Every call of the command that a document shows, without the command and its comment."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        text = page.read_text()
        yield from re.findall(r"^(?:\.venv/bin/)?flockwise +([^#\n]*)", text, flags=re.MULTILINE)
        yield from re.findall(r"`(?:\.venv/bin/)?flockwise +([^`\n]*)`", text)


@pytest.mark.parametrize("words", sorted(set(map(str.strip, commands_told()))))
def test_the_commands_in_the_documents_exist_with_their_options(words):
    name, *rest = re.sub(r"[\[\]]", "", words).split()
    if name.startswith("--"):
        assert name in ("--help", "--version")
        return
    assert name in COMMANDS
    command = load_command(name)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    # What is left are options, and words for files and names.
    assert not (rest and hasattr(command, "commands") and not rest[0].startswith("-")), rest
    known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    assert {word.partition("=")[0] for word in rest if word.startswith("-")} <= known | {"--help"}


@pytest.mark.slow
@pytest.mark.parametrize("page", ["planner.md", "mixed-models.md"])
def test_the_lines_of_longer_pages_run(page):
    task = flockwise.linear_classification(20, 3, seed=0)
    names: dict = {"problem": flockwise.Problem(task.train, None)}
    for code in blocks(ROOT / "docs" / page):
        exec(code, names)
    assert {"run", "plan"} & set(names)


def test_the_five_lines_run_and_gain_what_is_said(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    code, *_ = blocks(ROOT / "README.md")
    names: dict = {}
    exec(code, names)
    gains = 100 * names["model"].gain_["gain"]
    said = re.search(
        r"\+(\S+) ± (\S+) points .*?(\d+) patients are better off, (\d+)\s+worse\. Over all visits it is"
        r" \+(.*?),",
        README,
        re.DOTALL,
    )
    assert said is not None
    rows = names["model"].gain_["rows"]
    found = gains.mean(), gains.std() / len(gains) ** 0.5, (gains > 0).sum(), (gains < 0).sum()
    found += ((gains * rows).sum() / rows.sum(),)
    assert [float(number) for number in said.groups()] == pytest.approx(found, abs=0.06)
    assert capsys.readouterr().out


@pytest.mark.slow
def test_the_table_of_the_readme_is_what_the_demo_prints(tmp_path):
    printed = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)], catch_exceptions=False).stdout
    said, found = (dict(ROW.findall(text)) for text in (README, printed))
    assert list(said) == list(found)
    for method, numbers in said.items():
        assert numbers_of(numbers) == pytest.approx(numbers_of(found[method]), rel=2e-3)


def numbers_of(text):
    return [float(number.replace(",", "")) for number in text.split()]


def test_the_lines_that_choose_a_tradeoff_run_and_the_choice_helps(capsys):
    [code] = blocks(ROOT / "docs" / "choosing.md")
    names: dict = {}
    exec(code, names)
    grid = [row.tradeoff for row in names["choice"].table]
    assert grid[0] < names["choice"].best < grid[-1]
    assert names["together"].final.metric > names["alone"].final.metric + 0.01
    assert capsys.readouterr().out


def test_the_citation_names_the_version_of_the_package():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (.*)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert version is not None
    assert cited is not None
    assert cited[1] == version[1]


def test_every_link_between_pages_leads_to_a_file():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    links = {
        (page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    }
    assert {link for page, link in links if not (page.parent / link).exists()} == set()


def test_the_private_lines_run(capsys):
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "privacy.md").read_text(), flags=re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert "differentially private" in capsys.readouterr().out
    # Better than alone, by the public rule and within the budget.
    alone = names["fw"].simulate(names["problem"], names["fw"].Local(), test=names["task"].test)
    assert names["run"].own_metrics.mean() > alone.final.metric + 0.03


def test_the_ten_lines_of_python_run(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    _, code, _ = blocks(ROOT / "README.md")
    names: dict = {}
    exec(code, names)
    printed = capsys.readouterr().out
    assert f"It prints `{printed.strip()}`" in README
    assert names["together"].final.metric < 0.8 * names["alone"].final.metric


def test_the_first_private_example_covers_everything_and_gains(capsys):
    _, _, code = blocks(ROOT / "README.md")
    names: dict = {}
    exec(code, names)
    assert "Whoever sees" in capsys.readouterr().out
    alone = names["fw"].simulate(names["problem"], names["fw"].Local(), test=names["task"].test)
    for run in (names["smoothed"], names["shrunken"]):
        assert run.guarantee.not_covered == ()
        assert run.own_metrics.mean() > alone.final.metric + 0.03
