"""What a method keeps of the gain of another over purely local models, with its standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Share(NamedTuple):
    """0 is as good as local models, 1 as good as the best. Without a gain to share in there is none: NaN."""

    value: float
    standard_error: float | None


def share_of_gain(local: Sequence[float], ours: Sequence[float], best: Sequence[float]) -> Share:
    """(mean local − mean ours) / (mean local − mean best) of errors on the same splits, one each.

    The standard error is that of a ratio of paired means, to first order. It covers the noise and the choice
    of rows. It does not cover which agents there are: all splits share them.
    """
    kept, whole = np.subtract(local, ours), np.subtract(local, best)
    if not len(kept) or whole.mean() <= 0:
        return Share(math.nan, None)
    value = float(kept.mean() / whole.mean())
    if len(kept) < 2:
        return Share(value, None)
    scatter = float(np.std(kept - value * whole, ddof=1))
    return Share(value, scatter / math.sqrt(len(kept)) / float(whole.mean()))
