"""A problem: whose data, who resembles whom, which loss, and how much each agent trusts its own data."""

from __future__ import annotations

import copy
import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flockwise.data.population import Population
from flockwise.errors import ObjectiveError
from flockwise.graph.similarity import SimilarityGraph
from flockwise.objective.losses import Logistic, Loss, public_smoothness
from flockwise.objective.spectrum import largest_gram_eigenvalues

Smoothness: TypeAlias = Literal["exact", "public"]

# The confidence of an agent without data, as a share of that of an agent with one sample.
_CONFIDENCE_WITHOUT_DATA = 0.1

_DEPENDS_ON_TRADEOFF = ("pulls", "step_sizes", "block_smoothness", "fingerprint")


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Eq. (2) with everything that it needs; all arrays have one entry per agent.

    tradeoff: μ. Large: agents trust their own data; small: they agree with their neighbors.
    l2: λ, one number for all agents or one each; by default 1/max(m_i, 1).
    max_samples: the public cap on m_i that confidences are measured against; by default the
        largest m_i.
    smoothness: "exact" takes L_i^loc from the agent's data; "public" takes it from
        `feature_bound`, a bound on every ‖x‖₂, and looks at no data.
    derived: what was computed from private data before there was a problem, such as features or
        centres; every guarantee names it.
    """

    population: Population
    graph: SimilarityGraph
    loss: Loss = Logistic()
    tradeoff: float = 1.0
    l2: float | ArrayLike | None = None
    max_samples: int | None = None
    smoothness: Smoothness = "exact"
    feature_bound: float | None = None
    derived: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_loss(self.loss)
        _check_tradeoff(self.tradeoff)
        _check_sizes(self.population, self.graph)
        _check_targets(self.population, self.loss)
        _check_cap(self.max_samples)
        _check_smoothness(self.population, self.smoothness, self.feature_bound)
        _ = self.l2_penalties  # a bad l2 is refused here and not at its first use

    def __repr__(self) -> str:
        return (
            f"Problem({self.n_agents} agents, {self.population.n_samples} samples, "
            f"{self.graph.n_edges} edges, {self.loss!r}, tradeoff={self.tradeoff!r})"
        )

    @property
    def n_agents(self) -> int:
        return self.population.n_agents

    @property
    def dimension(self) -> int:
        """p: the coordinates of one model, outputs × features."""
        return self.loss.outputs * self.population.n_features

    @property
    def leaks(self) -> tuple[str, ...]:
        """What tells of private data before anything is sent: it is outside every guarantee."""
        source = self.graph.source
        return ((f"the graph, built from {source.kind}",) if source.private else ()) + self.derived

    @cached_property
    def l2_penalties(self) -> NDArray[np.float64]:
        """λ_i of Eq. (1)."""
        if self.l2 is None:
            return 1.0 / np.maximum(self.population.sample_counts, 1)
        penalties = np.asarray(self.l2, dtype=np.float64)
        if penalties.shape not in ((), (self.n_agents,)):
            raise ObjectiveError(
                f"l2 must be one number or one per agent ({self.n_agents}), got shape {penalties.shape}"
            )
        penalties = np.broadcast_to(penalties, (self.n_agents,)).copy()
        wrong = ~(np.isfinite(penalties) & (penalties >= 0))
        if wrong.any():
            agent = int(np.argmax(wrong))
            name = self.population.agent_names[agent]
            raise ObjectiveError(f"agent {name!r}: l2 must be finite and at least 0, got {penalties[agent]}")
        return penalties

    @cached_property
    def sample_cap(self) -> int:
        """The m that a confidence of 1 stands for."""
        if self.max_samples is not None:
            return self.max_samples
        return max(int(self.population.sample_counts.max()), 1)

    @cached_property
    def confidences(self) -> NDArray[np.float64]:
        """c_i = m_i / cap, at most 1, and a small constant without data."""
        counts = np.minimum(self.population.sample_counts, self.sample_cap)
        return np.where(counts > 0, counts, _CONFIDENCE_WITHOUT_DATA) / self.sample_cap

    @cached_property
    def local_smoothness(self) -> NDArray[np.float64]:
        """L_i^loc: the Lipschitz constant of the gradient of Eq. (1)."""
        if self.smoothness == "public":
            assert self.feature_bound is not None
            data_term = np.full(self.n_agents, public_smoothness(self.loss, self.feature_bound))
        else:
            gram = largest_gram_eigenvalues(self.population.features, self.population.offsets)
            data_term = self.loss.curvature * gram
        return data_term + 2 * self.l2_penalties

    @cached_property
    def pulls(self) -> NDArray[np.float64]:
        """μ c_i: how strongly an agent's own data pulls, against its neighbors' 1."""
        return self.tradeoff * self.confidences

    @cached_property
    def block_smoothness(self) -> NDArray[np.float64]:
        """L_i = D_ii (1 + μ c_i L_i^loc)."""
        return self.graph.degrees * (1 + self.pulls * self.local_smoothness)

    @cached_property
    def step_sizes(self) -> NDArray[np.float64]:
        """α_i = 1 / (1 + μ c_i L_i^loc) of Eq. (4)."""
        return 1 / (1 + self.pulls * self.local_smoothness)

    def with_tradeoff(self, tradeoff: float) -> Problem:
        """The same problem with another μ; what does not depend on μ is not computed again."""
        _check_tradeoff(tradeoff)
        # Computed before the copy is made, so that a sweep over μ computes them once.
        _ = self.confidences, self.local_smoothness
        other = copy.copy(self)
        object.__setattr__(other, "tradeoff", tradeoff)
        for name in _DEPENDS_ON_TRADEOFF:
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the arrays and parameters: equal for equal problems, for checks on resuming."""
        digest = hashlib.sha256()
        kind = type(self.loss)
        parameters = (
            f"{kind.__module__}.{kind.__qualname__}",
            repr(self.loss),
            repr(float(self.tradeoff)),
            repr(self.sample_cap),
            self.smoothness,
            repr(self.feature_bound),
        )
        digest.update("\n".join(parameters).encode())
        for array in (
            self.population.features,
            self.population.targets,
            self.population.offsets,
            self.graph.offsets,
            self.graph.neighbors,
            self.graph.weights,
            self.l2_penalties,
        ):
            digest.update(f"\n{array.dtype.str}{array.shape}\n".encode())
            digest.update(_bytes_of(array))
        return digest.hexdigest()


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """The array's own memory as bytes, without a copy; empty arrays have no memory to view."""
    return memoryview(b"") if array.size == 0 else np.ascontiguousarray(array).data.cast("B")


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, Loss):
        raise ObjectiveError(f"loss must be a loss such as Logistic(), got {loss!r}")
    if not (isinstance(loss, tuple) and hasattr(loss, "_fields")):
        raise ObjectiveError(
            f"loss must be a NamedTuple, so that it can be compiled and compared, got a "
            f"{type(loss).__name__}; write class {type(loss).__name__}(NamedTuple)"
        )
    needed = ("value", "slope") if loss.outputs == 1 else ("value_of_scores", "slopes")
    missing = [name for name in needed if not hasattr(loss, name)]
    if missing:
        raise ObjectiveError(f"a loss with {loss.outputs} output(s) needs {missing[0]}; {loss!r} has none")
    if loss.outputs < 1 or not loss.curvature > 0 or not loss.slope_bound("l2") > 0:
        raise ObjectiveError(f"{loss!r}: outputs, curvature and slope bound must be positive")


def _check_tradeoff(tradeoff: float) -> None:
    if not (math.isfinite(tradeoff) and tradeoff > 0):
        raise ObjectiveError(f"tradeoff must be positive and finite, got tradeoff={tradeoff!r}")


def _check_sizes(population: Population, graph: SimilarityGraph) -> None:
    if graph.n_agents != population.n_agents:
        raise ObjectiveError(
            f"the graph has {graph.n_agents} agents and the population {population.n_agents}; "
            "build the graph on the same agents, in the same order"
        )


def _check_targets(population: Population, loss: Loss) -> None:
    misfit = target_misfit(population, loss, "training")
    if misfit is not None:
        raise ObjectiveError(misfit)


def target_misfit(population: Population, loss: Loss, kind: Literal["training", "held-out"]) -> str | None:
    """The first target that the loss does not accept, in words; None if it accepts them all."""
    valid = loss.valid_targets(population.targets)
    if valid.all():
        return None
    row = int(np.argmin(valid))
    return (
        f"{_place_of(population, row, kind)}: target {population.targets[row].item()!r} does not fit "
        f"{type(loss).__name__}, which expects {loss.expects}; "
        f"{np.count_nonzero(~valid):,} of {valid.size:,} targets do not fit in all"
    )


def _check_cap(max_samples: int | None) -> None:
    if max_samples is not None and not (isinstance(max_samples, int | np.integer) and max_samples >= 1):
        raise ObjectiveError(f"max_samples must be a whole number from 1 on, got max_samples={max_samples!r}")


def _check_smoothness(population: Population, smoothness: str, feature_bound: float | None) -> None:
    if smoothness not in ("exact", "public"):
        raise ObjectiveError(f"smoothness must be 'exact' or 'public', got smoothness={smoothness!r}")
    if feature_bound is None:
        if smoothness == "public":
            raise ObjectiveError("smoothness='public' needs feature_bound, a bound on every ‖x‖₂")
        return
    if not (math.isfinite(feature_bound) and feature_bound > 0):
        raise ObjectiveError(f"feature_bound must be positive and finite, got {feature_bound!r}")
    lengths = np.sqrt(np.einsum("kj,kj->k", population.features, population.features))
    # A row scaled to the bound in the data's own precision may exceed it by rounding.
    allowed = feature_bound * (1 + 4 * population.n_features**0.5 * np.finfo(population.dtype).eps)
    if population.n_samples and lengths.max() > allowed:
        row = int(np.argmax(lengths))
        raise ObjectiveError(
            f"{_place_of(population, row, 'training')}: ‖x‖₂ = {lengths[row]:.6g} exceeds "
            f"feature_bound={feature_bound}; scale the features or raise the bound"
        )


def _place_of(population: Population, row: int, kind: str) -> str:
    agent = int(np.searchsorted(population.offsets, row, side="right")) - 1
    number = row - population.offsets[agent] + 1
    return f"agent {population.agent_names[agent]!r}, {kind} sample {number} (counted from 1)"
