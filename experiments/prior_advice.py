"""What a plan says about the groups that a learned prior is measured on."""

from __future__ import annotations

from experiments.grouped import DATA_SETS
from experiments.planner import planned


def measure_advice(name: str, epsilon: float) -> bool:
    """Whether the planner says run; it looks at no data."""
    return planned(DATA_SETS[name].split(0).problem, epsilon).chosen is not None
