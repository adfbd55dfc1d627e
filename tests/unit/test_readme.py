"""The Python in the documents runs as it stands."""

import pkgutil
import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq

import flockwise

ROOT = Path(__file__).resolve().parents[2]


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
        for folder in ("tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert named
    assert {path for path in named if not any(file.endswith(f"/{path}") for file in files)} == set()


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
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert (
        names["run"].final.metric
        < names["fw"].simulate(names["problem"], names["fw"].Local(), test=names["test"]).final.metric
    )
    assert pq.read_table("models.parquet").num_rows == names["people"].n_agents
    assert capsys.readouterr().out
