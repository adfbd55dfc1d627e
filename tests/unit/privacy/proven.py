"""Every noise with every accountant that is proven for it, on and off a grid, from the registries."""

from __future__ import annotations

import numpy as np
import pytest

from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.gate import Rows
from flockwise.privacy.mechanisms import MECHANISMS, accountants_of
from flockwise.privacy.noise import SecureNoise, SimulatedNoise

NOISES = [(name, on_grid) for name in MECHANISMS.names for on_grid in (False, True)]
# (mechanism, whether on a grid, accountant)
PROVEN = [
    (name, on_grid, accountant)
    for name, on_grid in NOISES
    for accountant in accountants_of(name, on_grid=on_grid)
]
NOT_PROVEN = [
    (name, on_grid, accountant)
    for name, on_grid in NOISES
    for accountant in ACCOUNTANTS.names
    if (name, on_grid, accountant) not in PROVEN
]
WITH_INTEGERS = [kind for kind in MECHANISMS if kind.grid_accountants]


def _words(case):
    """What a test case is called."""
    name, on_grid, *accountant = case
    return "-".join([name, "grid" if on_grid else "real", *accountant])


def _every(cases, *names):
    return pytest.mark.parametrize(names, cases, ids=[_words(case) for case in cases])


every_mechanism = pytest.mark.parametrize("kind", list(MECHANISMS), ids=MECHANISMS.names)
every_integer_version = pytest.mark.parametrize("kind", WITH_INTEGERS, ids=[k.name for k in WITH_INTEGERS])
every_noise = _every(NOISES, "mechanism", "on_grid")
every_proof = _every(PROVEN, "mechanism", "on_grid", "accountant")
every_missing_proof = _every(NOT_PROVEN, "mechanism", "on_grid", "accountant")


def costs_for(accountant, costs):
    """Relative costs that the accountant can compose."""
    return (1.0,) * len(costs) if ACCOUNTANTS[accountant].equal_steps_only else tuple(costs)


def noise_for(plan, seed=0):
    """What a gate with this plan draws from."""
    return SecureNoise() if plan.on_grid else SimulatedNoise(seed, 0)


def events_of(plan, samples, clip=1.0, dimension=3):
    """What the releases of a plan are, where release k is a mean over samples[k] rows."""
    rows = (Rows(np.empty(0), clip, count, dimension) for count in samples)
    return tuple(one.event(plan, number) for number, one in enumerate(rows, start=1))
