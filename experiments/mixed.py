"""Mixed models on grouped data: ours as it comes, beside MixedLM of statsmodels and EM to convergence.

`python -m experiments.mixed --out docs/mixed-models` measures five data sets, writes one file each, and
prints the table of docs/mixed-models.md from the files of the folder. Names of data sets measure these alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from experiments.grouped import DATA_SETS
from experiments.grouped_baselines import Models, errors_of, tuned_local_models
from experiments.maximum_likelihood import STEPS, by_em, by_statsmodels
from flockwise.engine import simulate
from flockwise.files import write_text
from flockwise.method import LearnedPrior
from flockwise.solve import posterior_models

NUMERIC = ("Chem97", "InstEval", "Hsb82", "Exam", "ScotsSec")
SPLITS = 30
# Where there are thousands of groups, MixedLM takes minutes: EM stands alone, with fewer splits and steps.
LARGE = ("Chem97", "InstEval")
SPLITS_OF_LARGE = 10
STEPS_OF_LARGE = 2000


def measure(name: str, number: int) -> dict[str, float | None]:
    """RMSE on the test rows of one split. mixed_lm: None where it was not asked or did not converge."""
    split = DATA_SETS[name].split(number)
    problem = split.problem

    def error(models: Models) -> float:
        return round(errors_of(split, models).rows, 7)

    is_large = name in LARGE
    mixed_lm = None if is_large else by_statsmodels(problem)
    return {
        "ours": error(np.asarray(simulate(problem.with_objective(l2="auto"), LearnedPrior()).models)),
        "em": error(posterior_models(problem, by_em(problem, STEPS_OF_LARGE if is_large else STEPS))),
        "mixed_lm": None if mixed_lm is None else error(posterior_models(problem, mixed_lm)),
        "local": error(tuned_local_models(problem)),
    }


def table(folder: Path) -> str:
    """As it stands in docs/mixed-models.md."""
    lines = [
        "| | local | EM | ours | above EM, % | MixedLM | ours | above MixedLM, % | splits (MixedLM) |",
        "|---|" + "--:|" * 8,
    ]
    for file in (folder / f"{name}.json" for name in NUMERIC):
        if not file.exists():
            continue
        document = json.loads(file.read_text(encoding="utf-8"))
        rows = document["splits"]
        converged = [row for row in rows if row["mixed_lm"] is not None]
        cells = [
            *(f"{_mean(rows, key):.5f}" for key in ("local", "em", "ours")),
            _above(rows, "em"),
            *((f"{_mean(converged, key):.5f}" for key in ("mixed_lm", "ours")) if converged else "––"),
            _above(converged, "mixed_lm") if converged else "–",
            f"{len(rows)} ({len(converged)})",
        ]
        lines.append(f"| {document['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def excess(rows: Sequence[dict[str, Any]], reference: str) -> tuple[float, float]:
    """By how much our mean error is above that of the reference, relatively, and its standard error."""
    ours, theirs = (np.array([row[key] for row in rows]) for key in ("ours", reference))
    above = ours.mean() / theirs.mean() - 1
    scatter = float(np.std(ours - (1 + above) * theirs, ddof=1))
    return float(above), scatter / math.sqrt(len(rows)) / float(theirs.mean())


def _above(rows: Sequence[dict[str, Any]], reference: str) -> str:
    above, error = excess(rows, reference)
    return f"{100 * above:+.3f} ({100 * error:.3f})"


def _mean(rows: Sequence[dict[str, Any]], key: str) -> float:
    return math.fsum(row[key] for row in rows) / len(rows)


def main(
    out: Annotated[Path, typer.Option(help="The folder for the numbers of every split.")],
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; all five if none is named.")] = None,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in names or NUMERIC:
        rows = []
        for number in range(SPLITS_OF_LARGE if name in LARGE else SPLITS):
            rows.append(measure(name, number))
            typer.echo(f"{name} {number}: {rows[-1]}")
        splits = ",\n  ".join(json.dumps(row) for row in rows)
        text = f' "name": "{name}",\n "data": {json.dumps(DATA_SETS[name].words, ensure_ascii=False)},\n'
        write_text(out / f"{name}.json", f'{{\n{text} "splits": [\n  {splits}\n ]\n}}\n')
    typer.echo(table(out))


if __name__ == "__main__":
    typer.run(main)
