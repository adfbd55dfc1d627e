"""How much of what a common model leaves lies between agents, before anything is asked about it and after.

All of it is in units of s², the variance that the common model leaves. Populations usually differ in their
intercepts and hardly in their slopes. They may also differ by any amount: in their intercepts, in their
slopes, or in all coefficients alike, as if they had nothing in common. Answers of sums say which of it is
likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from flockwise.protocol.unknown_size import Vector

# How much lies between agents in their intercepts, and in their slopes, if all is as usual.
INTERCEPT_SHARE, INTERCEPT_SD = 0.105, 0.055
SLOPE_SHARE, SLOPE_SD = 0.025, 0.02
# Slopes that differ by any amount do so by this much on average, and by so much at most.
ANY_SLOPE_SHARE, LARGEST_SLOPE_SHARE = 0.1, 0.6
LEAST_SHARE, LARGEST_SHARE = 0.005, 0.9
# How likely it is that some features vary little within agents: one of them is twice as likely as two.
MIXING: Final = 0.5
# Beyond so much it has no weight: ½^40 of it.
MOST_MIXED: Final = 40


class Found(NamedTuple):
    """The mean over agents of what a further sum measures, the noise in an entry of it, in units of s², and
    how many agents of equal weight it is worth.
    """

    values: Vector
    std: float
    n_agents: float


class Shares(NamedTuple):
    """Of what differs: in intercepts (predictions at the mean of x), in slopes around it, and in models that
    differ alike in all coefficients.
    """

    intercepts: float
    slopes: float
    alike: float


class _Chances(NamedTuple):
    """How likely it is that intercepts, slopes, or all coefficients alike differ by any amount."""

    intercepts: float
    slopes: float
    alike: float


USUAL: Final = _Chances(0.3, 0.15, 0.05)
# Where agents seem to have nothing in common.
UNRELATED: Final = _Chances(0.25, 0.05, 0.5)


class _Law(NamedTuple):
    """What one share may be, and how likely that is."""

    values: Vector
    weights: Vector


class _Cloud(NamedTuple):
    """Shares that may be, and how likely they are together."""

    intercepts: Vector
    slopes: Vector
    alike: Vector
    weights: Vector


def likely_shares(
    found: Sequence[Found], n_slopes: int, in_slopes: float, *, unrelated: bool, together: bool
) -> Shares:
    """Posterior means, from answers about intercepts and then slopes, as many as there are.

    in_slopes: how much of E[‖x‖²] is variance around the mean. together: the one answer is about all
    coefficients. A feature that does not vary within agents makes differences in intercepts look like
    differences in slopes as well. Nobody knows beforehand how much of that there is.
    """
    cloud = _beforehand(UNRELATED if unrelated else USUAL)
    mixed, chances = np.zeros(1), np.ones(1)
    if n_slopes > 0 and len(found) > 1 and not unrelated:
        mixed = np.arange(4 * min(n_slopes, MOST_MIXED) + 1) / 4
        chances = np.r_[1 - MIXING, MIXING * 0.5 ** mixed[1:] / (0.5 ** mixed[1:]).sum()]
    mixed, weights = np.tile(mixed, len(cloud.weights)), np.outer(cloud.weights, chances).ravel()
    intercepts, slopes, alike = (np.repeat(shares, len(chances)) for shares in cloud[:3])
    seen_intercepts = intercepts + (1 - in_slopes) * alike
    seen_slopes = slopes + in_slopes * alike
    asked = [seen_intercepts, seen_slopes + mixed * seen_intercepts]
    if together:
        asked = [intercepts + slopes + alike]
    logs = np.zeros(len(weights))
    for one, shares in zip(found, asked, strict=False):
        # Of a variance measured on so many agents, with as much again from their samples.
        variances = one.std**2 + 8 / one.n_agents * shares**2
        logs -= 0.5 * (one.values[0] - shares) ** 2 / variances + 0.5 * np.log(variances)
    after = weights * np.exp(logs - logs.max())
    after /= after.sum()
    return Shares(*(float(shares @ after) for shares in (intercepts, slopes, alike)))


def _beforehand(chances: _Chances) -> _Cloud:
    anything = np.linspace(LEAST_SHARE, LARGEST_SHARE, 100)
    any_intercepts = _Law(anything, np.ones(len(anything)))
    usual_intercepts = _bell(LEAST_SHARE, INTERCEPT_SHARE, INTERCEPT_SD, 40)
    usual_slopes = _bell(0.0, SLOPE_SHARE, SLOPE_SD, 20)
    much = np.linspace(0.0, LARGEST_SLOPE_SHARE, 61)
    any_slopes = _Law(much, np.exp(-much / ANY_SLOPE_SHARE))
    nothing = np.zeros(len(anything))
    clouds = (
        _apart(1 - sum(chances), usual_intercepts, usual_slopes),
        _apart(chances.intercepts, any_intercepts, usual_slopes),
        _apart(chances.slopes, usual_intercepts, any_slopes),
        _Cloud(nothing, nothing, anything, np.full(len(anything), chances.alike / len(anything))),
    )
    return _Cloud(*(np.concatenate(parts) for parts in zip(*clouds, strict=True)))


def _apart(chance: float, intercepts: _Law, slopes: _Law) -> _Cloud:
    """Intercepts and slopes that have nothing to do with each other."""
    grid = np.meshgrid(intercepts.values, slopes.values, indexing="ij")
    weights = np.outer(intercepts.weights, slopes.weights).ravel()
    return _Cloud(grid[0].ravel(), grid[1].ravel(), np.zeros(len(weights)), chance * weights / weights.sum())


def _bell(least: float, center: float, sd: float, number: int) -> _Law:
    values = np.linspace(least, center + 4 * sd, number)
    return _Law(values, np.exp(-0.5 * ((values - center) / sd) ** 2))
