"""Models that agents keep for themselves."""

from __future__ import annotations

import numpy as np


class OwnModels(np.ndarray):
    """An array that remembers what it is, as do its copies, slices and multiples: it must not be released."""
