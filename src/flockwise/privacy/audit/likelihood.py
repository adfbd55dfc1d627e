"""How likely noise is under the mechanism that is claimed: by Neyman and Pearson the best score there is.

On a grid as fine as those of flockwise.privacy.grid the discrete law has the density of the real one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.mechanisms import Mechanism


def log_likelihoods(events: Sequence[Mechanism], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each run, whose releases are (runs, updates, coordinates): the sum over its updates."""
    steps = [event.log_likelihood(noise[:, update]) for update, event in enumerate(events)]
    return np.sum(steps, axis=0)
