"""How likely noise is under the mechanism that is claimed: by Neyman and Pearson the best score there is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flockwise.privacy.mechanisms import Gaussian, KNorm, Laplace, Mechanism


def log_likelihood(event: Mechanism, noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row, up to a constant.

    On a grid as fine as those of flockwise.privacy.grid the discrete law has the density of the real one.
    """
    match event:
        case Laplace():
            return -np.abs(noise).sum(axis=-1) / event.scale
        case Gaussian():
            return -np.square(noise).sum(axis=-1) / (2 * event.scale**2)
        case KNorm():
            return -np.linalg.norm(noise, axis=-1) / event.scale


def log_likelihoods(events: Sequence[Mechanism], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each run, whose releases are (runs, updates, coordinates): the sum over its updates."""
    steps = [log_likelihood(event, noise[:, update]) for update, event in enumerate(events)]
    return np.sum(steps, axis=0)
