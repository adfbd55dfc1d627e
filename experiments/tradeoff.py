"""The trade-off μ of the experiments on the synthetic task."""

from __future__ import annotations

from experiments.scale import Scale
from experiments.synthetic import Graph, best_tradeoff
from experiments.workbook import Workbook

TUNING_INSTANCES = 5
# The search takes longer than the whole of a quick run, which therefore takes what is near the best.
QUICK = 3.0


def chosen_tradeoff(dimension: int, graph: Graph, scale: Scale, book: Workbook) -> float:
    """The best on instances that are not reported, as the paper chose it."""
    if scale.quick:
        return QUICK
    tuning = scale.tuning_seeds(TUNING_INSTANCES)
    return book.compute(f"{graph}-tradeoff", best_tradeoff, dimension, tuning, graph)
