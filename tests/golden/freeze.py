"""What golden.json keeps of a run, and how a run is compared with it.

    python -m tests.golden.freeze            compare
    python -m tests.golden.freeze --write    keep the present results

Events and counts are compared exactly. The linear algebra of another machine may round differently, so models
and records of the reference engine may differ by 1e-12 here; bits.py compares them to the last bit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.cases import SEEDS, cases

FILE = Path(__file__).with_name("golden.json")
# Of the cpu engine, whose sums may be reordered; float32 has fewer digits to lose.
TOLERANCE = 1e-12
CPU_TOLERANCE = 1e-9
TOLERANCE_32 = 2e-4
# Of priors that an optimizer finds: it stops where rounding lets it.
FITTED = "learned-prior/"
FITTED_TOLERANCE = 1e-6


def kept(run: Any) -> dict[str, Any]:
    """Models, own models, events, records and the stated guarantee, as plain values."""
    return {
        "models": np.asarray(run.models, np.float64).tolist(),
        "own_models": None if run.own_models is None else np.asarray(run.own_models, np.float64).tolist(),
        "updates": run.updates.tolist(),
        "next_ticks": run.state["next_ticks"].tolist() if "next_ticks" in run.state else None,
        "ticks": [record.ticks for record in run.records],
        "vectors": [record.vectors for record in run.records],
        "bytes": [record.bytes for record in run.records],
        "objective": [record.objective for record in run.records],
        "metric": [record.metric for record in run.records],
        "metric_sd": [record.metric_sd for record in run.records],
        "epsilon": None if run.guarantee is None else list(run.guarantee.epsilon),
        "noise_multiplier": None if run.guarantee is None else run.guarantee.noise_multiplier,
    }


EXACT = ("updates", "next_ticks", "ticks", "vectors", "bytes", "epsilon", "noise_multiplier")
NUMBERS = ("models", "own_models", "objective", "metric", "metric_sd")


def all_runs() -> dict[str, dict[str, Any]]:
    return {
        f"{case.name} {engine} {seed}": kept(case.run(engine, seed))
        for case in cases()
        for engine in case.engines
        for seed in SEEDS
    }


def differences(name: str, found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """What differs from the frozen run, in words."""
    tolerance = CPU_TOLERANCE if " cpu " in name else TOLERANCE
    if "float32" in name:
        tolerance = TOLERANCE_32
    if name.startswith(FITTED):
        tolerance = FITTED_TOLERANCE
    wrong = [f"{name}: {key} changed" for key in EXACT if found[key] != wanted[key]]
    for key in NUMBERS:
        if (found[key] is None) != (wanted[key] is None):
            wrong.append(f"{name}: {key} is there in one of the two alone")
        elif wanted[key] is not None:
            here, there = np.array(found[key]), np.array(wanted[key])
            if here.shape != there.shape or not np.allclose(
                here, there, rtol=tolerance, atol=tolerance, equal_nan=True
            ):
                apart = np.nanmax(np.abs(here - there)) if here.shape == there.shape else "another shape"
                wrong.append(f"{name}: {key} differs by {apart}")
    return wrong


def main() -> None:
    runs = all_runs()
    if "--write" in sys.argv:
        text = ",\n".join(f"{json.dumps(name)}: {json.dumps(run)}" for name, run in runs.items())
        FILE.write_text("{\n" + text + "\n}\n", encoding="utf-8")
        return
    frozen = json.loads(FILE.read_text(encoding="utf-8"))
    wrong = [line for name, run in runs.items() for line in differences(name, run, frozen[name])]
    wrong += [f"{name}: no longer run" for name in frozen if name not in runs]
    print("\n".join(wrong) or f"{len(runs)} runs, unchanged")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
