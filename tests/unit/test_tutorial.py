"""The tutorial runs as it stands and prints what it says; so does the example of five lines."""

import re
import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"[-+]?\d+\.?\d*")
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_tutorial_prints_what_it_says(folder, capsys):
    names: dict = {}
    for code, told in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text()):
        exec(code, names)
        printed = capsys.readouterr().out
        assert not told or _alike(printed, told), f"{printed}\n--- is not ---\n{told}"
    gain = names["gain"]["gain"]
    assert gain.mean() > 2 * gain.std() / len(gain) ** 0.5
    counts = names["visits"]["patient"].value_counts()
    assert (counts.min(), counts.max(), len(counts), counts.sum()) == (3, 80, 60, 1219)
    assert names["visits"].isna().any().any()


def _alike(printed: str, told: str) -> bool:
    """The same words, and numbers that differ in their last digits at most, as they do between machines."""
    words = [" ".join(NUMBER.sub("#", text).split()) for text in (printed, told)]
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (printed, told)]
    if words[0] != words[1] or len(numbers[0]) != len(numbers[1]):
        return False
    return all(abs(one - other) <= 0.02 + 0.02 * abs(other) for one, other in zip(*numbers, strict=True))


def test_the_five_lines_run(folder, capsys):
    found = runpy.run_path("examples/five_lines.py")
    assert len(found["model"].agents_) == 60
    assert "gain" in capsys.readouterr().out


def test_the_table_of_visits_is_what_its_script_makes(folder):
    before = (folder / "examples" / "visits.csv").read_bytes()
    runpy.run_path("examples/make_visits.py", run_name="__main__")
    assert (folder / "examples" / "visits.csv").read_bytes() == before
