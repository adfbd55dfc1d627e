"""Targets as they come in, and as a loss wants them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flockwise.arrays import Floats
from flockwise.errors import DataError
from flockwise.objective.losses import Loss


class Targets(NamedTuple):
    """Targets as the loss wants them, and how scores are read: center + scale·score."""

    values: Floats
    loss: Loss
    center: float = 0.0
    scale: float = 1.0


def check_no_gaps(y: Any) -> None:
    """Labels of text may have gaps that sorting them would trip over."""
    values = np.asarray(y)
    if values.dtype.kind != "O" or values.ndim != 1:
        return
    for row, value in enumerate(values):
        if value is None or type(value).__name__ == "NAType" or value != value:
            raise DataError(f"y, row {row + 1}: the target is missing; leave out the rows without one")


def check_numbers(y: Any) -> None:
    values = np.asarray(y)
    if values.dtype.kind not in "OU" or values.ndim != 1:
        return
    for row, value in enumerate(values.tolist()):
        try:
            float(value)
        except (TypeError, ValueError):
            raise DataError(
                f"y, row {row + 1}: {value!r} is no number; PersonalizedClassifier learns classes"
            ) from None
