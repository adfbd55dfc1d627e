"""The samples of one agent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Samples(NamedTuple):
    """Features of shape (samples, features), and targets of shape (samples,)."""

    features: NDArray[Any]
    targets: NDArray[Any]


def joined(parts: list[Samples]) -> Samples:
    """All of them, in their order."""
    return Samples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
