"""What leaves an agent once, and what it makes of the answers for itself."""

from flockwise.release.mean import PointMean
from flockwise.release.model import OutputPerturbation
from flockwise.release.statistic import STATISTICS, Released, Statistic
from flockwise.release.tilted import ObjectivePerturbation

__all__ = [
    "STATISTICS",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PointMean",
    "Released",
    "Statistic",
]
