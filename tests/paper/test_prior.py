"""A learned prior on the paper's task, with rotated features and without a graph: small instances."""

import math

import pytest
from experiments.prior_measures import measure_rotated

pytestmark = pytest.mark.paper

EPSILONS = (1.05, 0.55, 0.15)


@pytest.mark.filterwarnings("ignore:learned prior")  # where the budget is small
@pytest.mark.parametrize(
    ("agents", "dimension", "asked"),
    [(100, 20, (0.895, 0.87, 0.80)), (400, 20, (0.94, 0.935, 0.905)), (400, 100, (0.83,))],
)
def test_own_models_reach_what_was_asked_and_are_never_worse_than_local_ones(agents, dimension, asked):
    """On three instances each; they differ by about .01."""
    found = [
        measure_rotated(agents, dimension, seed, EPSILONS, math.exp(-5), test=500) for seed in range(100, 103)
    ]
    means = [sum(one["own"][place] for one in found) / len(found) for place in range(len(EPSILONS))]
    local = sum(one["local"] for one in found) / len(found)
    assert all(mean >= least for mean, least in zip(means, asked, strict=False)), means
    assert min(means) >= local - 0.015, (means, local)
