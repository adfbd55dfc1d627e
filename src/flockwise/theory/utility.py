"""Theorem 2: what the noise of private coordinate descent, Eq. (6), costs in the objective.

One tick. Agent i wakes and moves by −(g_i + μ D_ii c_i η_i)/L_i, with g_i its block of the gradient
and η_i its noise. Block smoothness gives, whatever the noise is (the mixed terms cancel),

    Q(t+1) ≤ Q(t) − ‖g_i‖²/(2 L_i) + (μ D_ii c_i)²‖η_i‖²/(2 L_i).

Every agent is the one that wakes with probability 1/n, and ‖∇Q‖² ≥ 2σ(Q − Q*). Hence, in
expectation over who wakes and over the noise, the gap P(t) = E[Q(Θ(t))] − Q* satisfies

    P(t+1) ≤ C·P(t) + a(t),   C = 1 − σ/(n L_max),   a(t) = 1/(2n) Σ_i (μ D_ii c_i)²/L_i · E‖η_i(t)‖²,

and E‖η‖² is p times the variance of one coordinate: 2·p·s² for Laplace noise of scale s, p·s² for
normal noise. Unrolled, a(t) is weighted by C^(T−1−t): early noise is forgotten, late noise stays.

The published theorem has 1/L_min for every 1/L_i, which only loosens it; it lacks the factor p and
has the weights C^t, and both make it false (docs/errata.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from flockwise.arrays import Floats
from flockwise.errors import ObjectiveError
from flockwise.objective.problem import Problem
from flockwise.theory.convergence import ConvergenceTheory, convergence_theory

# Of one agent: no more are tried.
MOST_UPDATES = 1000

Counted: TypeAlias = Literal["updates", "ticks"]


@dataclass(frozen=True, eq=False)
class UtilityTheory:
    """The constants of Theorem 2, corrected and as published.

    Noise is given by `noise_stds`, standard deviations of one coordinate of η: one number, one per
    agent, or one row per agent. A row counts the agent's own updates or, as the paper does, the
    ticks of all agents (`counted`).
    """

    convergence: ConvergenceTheory
    noise_weights: Floats
    """What noise of variance 1 adds to the gap in one tick: p/(2n) · (μ D_ii c_i)²/L_i."""
    published_noise_weights: Floats
    """The same as printed: 1/(2n) · (μ D_ii c_i)²/L_min. Laplace noise has s² = ½ of its variance."""

    @property
    def n_agents(self) -> int:
        return self.convergence.n_agents

    def costs(self, noise_stds: ArrayLike, n_ticks: int, *, counted: Counted = "updates") -> Floats:
        """a(t) for t = 0 … T − 1: what the noise of each tick adds to the expected gap.

        An agent's number of updates before tick t is binomial, (t, 1/n); with rows of K updates the
        expectation is over it. An agent whose K updates are used up stays silent and adds nothing.
        """
        return self._costs(self.noise_weights, noise_stds, n_ticks, counted)

    def published_costs(self, noise_stds: ArrayLike, n_ticks: int, *, counted: Counted = "updates") -> Floats:
        """The same without the factor p, as printed."""
        return self._costs(self.published_noise_weights, noise_stds, n_ticks, counted)

    def bounds(self, initial_gap: float, costs: ArrayLike) -> Floats:
        """Theorem 2 corrected: the expected gap after 0, 1, …, T ticks, by P(t+1) = C·P(t) + a(t).

        The expectation is over who wakes and over the noise. Where rows of K updates were given, it
        is that of the gap times 1{no agent has woken more than K times}: an agent that is silent no
        longer descends, and the theorem says nothing about what follows.
        """
        contraction = self.convergence.contraction
        steps = accumulate(
            np.asarray(costs, dtype=np.float64).tolist(),
            lambda gap, cost: contraction * gap + cost,
            initial=float(initial_gap),
        )
        return np.array(list(steps))

    def published_bounds(self, initial_gap: float, costs: ArrayLike) -> Floats:
        """Theorem 2 as printed: C^T·P(0) + Σ_t C^t·a(t), with the weights in the wrong order."""
        costs = np.asarray(costs, dtype=np.float64)
        powers = np.power(self.convergence.published_contraction, np.arange(costs.size + 1), dtype=np.float64)
        return initial_gap * powers + np.concatenate(([0.0], np.cumsum(powers[:-1] * costs)))

    def constant_noise_bound(self, initial_gap: float, noise_stds: ArrayLike, n_ticks: ArrayLike) -> Floats:
        """Supplement B: b·(1 − ρ)^T + a/ρ·(1 − (1 − ρ)^T) for noise that stays the same; ρ = 1 − C."""
        ticks = np.asarray(n_ticks, dtype=np.float64)
        forgotten = -np.expm1(ticks * math.log1p(-self._rate))
        cost = self._constant_cost(noise_stds)
        grown = cost * ticks if self._rate == 0 else cost / self._rate * forgotten
        return initial_gap * (1 - forgotten) + grown

    def noise_limit(self, noise_stds: ArrayLike) -> float:
        """Supplement B: a/ρ, the gap that noise of constant size leaves after ever so many ticks."""
        cost = self._constant_cost(noise_stds)
        if self._rate == 0:
            return math.inf if cost > 0 else 0.0
        return cost / self._rate

    @property
    def _rate(self) -> float:
        """ρ = σ/(n L_max), without the rounding of 1 − C."""
        constants = self.convergence
        return constants.strong_convexity / (constants.n_agents * constants.largest_block_smoothness)

    def _constant_cost(self, noise_stds: ArrayLike) -> float:
        if np.ndim(noise_stds) == 2:
            raise ObjectiveError(
                "noise_stds must be one number or one per agent here, got one row per agent; "
                "use costs and bounds for noise that changes"
            )
        return float(self.noise_weights @ _checked_stds(noise_stds, self.n_agents)[:, 0] ** 2)

    def _costs(self, weights: Floats, noise_stds: ArrayLike, n_ticks: int, counted: Counted) -> Floats:
        if n_ticks < 0:
            raise ObjectiveError(f"n_ticks must not be negative, got n_ticks={n_ticks!r}")
        stds = _checked_stds(noise_stds, self.n_agents)
        costs = weights @ stds**2
        if np.ndim(noise_stds) < 2:
            return np.full(n_ticks, costs[0])
        match counted:
            case "ticks":
                return _cost_of_each_tick(costs, n_ticks)
            case "updates":
                from scipy.stats import binom  # slow to import, and seldom needed

                updates_before = binom.pmf(
                    np.arange(costs.size), np.arange(n_ticks)[:, None], 1 / self.n_agents
                )
                return updates_before @ costs
        raise ObjectiveError(f"counted must be 'updates' or 'ticks', got counted={counted!r}")


@dataclass(frozen=True)
class UpdatesChoice:
    """The number of updates per agent with the smallest bound, and every bound that was looked at."""

    n_updates: int
    bound: float
    table: tuple[tuple[int, float], ...]


def utility_theory(problem: Problem) -> UtilityTheory:
    """Theorem 2's constants for this problem.

    Step sizes are the problem's: in a private run they come from its feature bound. A clipped gradient
    is not the gradient of ℒ_i, so the theorem covers losses whose gradients stay within the clip.
    """
    convergence = convergence_theory(problem)
    # (μ D_ii c_i)²/L_i = D_ii (μ c_i)² α_i, which is 0 and not 0/0 for agents without neighbors.
    shares = problem.neighbors.degrees * problem.pulls**2 * problem.step_sizes
    published = (problem.neighbors.degrees * problem.pulls) ** 2 / convergence.smallest_block_smoothness
    return UtilityTheory(
        convergence,
        noise_weights=problem.dimension / (2 * problem.n_agents) * shares,
        published_noise_weights=published / (2 * problem.n_agents),
    )


def best_updates(
    theory: UtilityTheory,
    initial_gap: float,
    noise_stds_for: Callable[[int], ArrayLike],
) -> UpdatesChoice:
    """The updates per agent, up to 1,000, that minimize the corrected bound at T = n·updates ticks.

    noise_stds_for: the noise that a budget asks for when it is spread over so many updates, one
        number or one per agent; for instance the noise_std of `calibrate` under some accountant.
    More updates need more noise, so the search can end where the noise alone costs more than
    the best bound so far; noise that shrinks with the updates is refused.
    """
    table: list[tuple[int, float]] = []
    best, smallest, last_cost = 0, math.inf, 0.0
    for n_updates in range(1, MOST_UPDATES + 1):
        n_ticks, stds = n_updates * theory.n_agents, noise_stds_for(n_updates)
        noise_alone = float(theory.constant_noise_bound(0.0, stds, n_ticks))
        if noise_alone < last_cost:
            raise ObjectiveError(f"noise_stds_for({n_updates}) is less noise than for fewer updates")
        last_cost = noise_alone
        if noise_alone > smallest:
            break
        bound = float(theory.constant_noise_bound(initial_gap, stds, n_ticks))
        table.append((n_updates, bound))
        if bound < smallest:
            best, smallest = n_updates, bound
    return UpdatesChoice(best, smallest, tuple(table))


def _checked_stds(noise_stds: ArrayLike, n_agents: int) -> Floats:
    """As one row per agent; a number and one number per agent become rows of one entry."""
    stds = np.asarray(noise_stds, dtype=np.float64)
    if stds.ndim > 2 or (stds.ndim > 0 and len(stds) != n_agents) or stds.size == 0:
        raise ObjectiveError(
            f"noise_stds must be one number, one per agent or one row per agent ({n_agents}), "
            f"got shape {stds.shape}"
        )
    if not (np.isfinite(stds) & (stds >= 0)).all():
        raise ObjectiveError("noise_stds must be finite and at least 0")
    return np.broadcast_to(stds, (n_agents, 1)) if stds.ndim == 0 else stds.reshape(n_agents, -1)


def _cost_of_each_tick(costs: Floats, n_ticks: int) -> Floats:
    if costs.size != n_ticks:
        raise ObjectiveError(
            f"noise_stds counted by ticks must have n_ticks={n_ticks} columns, got {costs.size}"
        )
    return costs
