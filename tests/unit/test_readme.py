"""The README's Python runs as it stands."""

import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]


def test_the_ten_lines_of_python_run(tmp_path, monkeypatch, capsys):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert (
        names["run"].final.metric
        < names["mm"].simulate(names["problem"], names["mm"].Local(), test=names["test"]).final.metric
    )
    assert pq.read_table("models.parquet").num_rows == names["people"].n_agents
    assert capsys.readouterr().out
