"""Makes visits.csv: visits of 60 patients to a pain clinic, as untidy as such tables are. All is made up.

A patient has 3 to 80 visits. What eases whose pain differs from patient to patient, around what is common.

    python examples/make_visits.py
"""

from pathlib import Path

import numpy as np
import pandas as pd

PATIENTS = 60
WARDS = ("north", "south", "east", "day clinic")
DRUGS = ("none", "ibuprofen", "tramadol", "naproxen")
GAPS = {"sleep": 0.12, "pulse": 0.08, "drug": 0.05}


def visits(seed: int = 16) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    counts = np.clip(np.rint(np.exp(random.normal(2.6, 0.9, PATIENTS))), 3, 80).astype(int)
    counts[:2] = 3, 80
    patient = np.repeat(np.arange(PATIENTS), counts)
    n = len(patient)
    sleep = random.normal(6.5, 1.4, n)
    pulse = random.normal(74, 9, n)
    steps = random.gamma(3, 1900, n)
    ward = random.choice(len(WARDS), n, p=[0.4, 0.3, 0.2, 0.1])
    drug = random.choice(len(DRUGS), n, p=[0.4, 0.3, 0.15, 0.15])
    effects = np.array([0.0, 1.5, 2.4, 1.0])
    common = np.array([1.2, -0.8, 0.6])
    own = common + random.normal(0, 0.5, (PATIENTS, 3))
    level = random.normal(-0.9, 1.5, PATIENTS)
    numbers = np.column_stack([(sleep - 6.5) / 1.4, (pulse - 74) / 9, (steps - 5700) / 3300])
    score = level[patient] + (own[patient] * numbers).sum(axis=1) + effects[drug]
    eased = np.where(random.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
    table = pd.DataFrame(
        {
            "patient": [f"P{one:02d}" for one in patient],
            "sleep": sleep.round(1),
            "pulse": pulse.round(),
            "steps": steps.round(-1).astype(int),
            "ward": np.array(WARDS)[ward],
            "drug": np.array(DRUGS)[drug],
            "eased": eased,
        }
    )
    for column, share in GAPS.items():
        table.loc[random.random(n) < share, column] = None
    return table.sample(frac=1, random_state=seed)


if __name__ == "__main__":
    visits().to_csv(Path(__file__).with_name("visits.csv"), index=False)
