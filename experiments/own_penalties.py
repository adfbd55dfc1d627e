"""What local models lose where each agent chooses its penalty on its own samples: errors of test rows.

`python -m experiments.own_penalties` prints the table of docs/choosing.md.
"""

from __future__ import annotations

import numpy as np

from experiments.grouped import DATA_SETS
from experiments.grouped_baselines import errors_of
from flockwise.solve import choose_l2, solve_local_models

NAMES = ("Chem97", "Hsb82", "Exam", "ScotsSec")
SPLITS = 5


def errors(name: str, number: int) -> tuple[float, float, float]:
    """RMSE of local models with λ = 1/m, with each agent's own choice, and with one choice for all."""
    split = DATA_SETS[name].split(number)
    problems = (split.problem, choose_l2(split.problem, alone=True), choose_l2(split.problem))
    default, alone, together = (errors_of(split, solve_local_models(one)).rows for one in problems)
    return default, alone, together


def main() -> None:
    print("| RMSE | λ = 1/m | each agent chooses | one choice for all |")
    print("|---|--:|--:|--:|")
    for name in NAMES:
        means = np.mean([errors(name, number) for number in range(SPLITS)], axis=0)
        print(f"| {name} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |", flush=True)


if __name__ == "__main__":
    main()
