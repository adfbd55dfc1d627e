"""Results of runs, and how they are judged."""

from flockwise.results.metrics import (
    SizeBin,
    agent_metrics,
    agent_predictions,
    mean_metric,
    metrics_by_sample_count,
)
from flockwise.results.trajectory import Record, Trajectory
from flockwise.results.tuning import TradeoffChoice, choose_tradeoff

__all__ = [
    "Record",
    "SizeBin",
    "TradeoffChoice",
    "Trajectory",
    "agent_metrics",
    "agent_predictions",
    "choose_tradeoff",
    "mean_metric",
    "metrics_by_sample_count",
]
