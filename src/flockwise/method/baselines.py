"""Methods to compare with: everyone alone, one model for all, and smoothed local models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.checks import Configured
from flockwise.errors import SimulationError
from flockwise.method.base import METHODS, Candidate, NeverPrivate, Prepared, PublicFacts
from flockwise.method.rules import Descent, Edges, LocalAnchors, Solved
from flockwise.method.start import starting_models
from flockwise.objective import CollaborativeObjective, Problem, PropagationObjective
from flockwise.solve import choose_l2, solve_global_model, solve_local_models


@METHODS.register
@dataclass(frozen=True)
class Local(NeverPrivate):
    """Eq. (1): every agent learns from its own data only (the limit μ → ∞)."""

    name = "local"
    label: ClassVar[str] = "local (each alone)"
    look: ClassVar[tuple[str, str]] = ("orange", "s")
    rule: ClassVar[type] = Solved
    needs_graph: ClassVar[bool] = False
    is_baseline: ClassVar[bool] = True
    sends_nothing: ClassVar[bool] = True

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        objective = None if problem.graph is None else CollaborativeObjective(problem)
        return Prepared(Solved(solve_local_models(self._penalized(problem))), objective)

    def _penalized(self, problem: Problem) -> Problem:
        return problem

    @classmethod
    def candidates(cls, facts: PublicFacts) -> Iterator[Candidate]:
        yield Candidate("local", cls())


@METHODS.register
@dataclass(frozen=True)
class TunedLocal(Local):
    """Local models with the penalty that cross-validation inside the agents finds best, instead of `l2`."""

    name = "tuned_local"
    label: ClassVar[str] = "local, penalty tuned"
    look: ClassVar[tuple[str, str]] = ("olive", "d")
    tunes_l2: ClassVar[bool] = True

    def _penalized(self, problem: Problem) -> Problem:
        return choose_l2(problem)

    @classmethod
    def candidates(cls, facts: PublicFacts) -> Iterator[Candidate]:
        yield from ()  # a choice of the penalty looks at samples, and plans do not


@METHODS.register
@dataclass(frozen=True)
class Global(NeverPrivate):
    """One model for all, argmin Σ D_ii·c_i·ℒ_i (the limit μ → 0), computed centrally for comparison."""

    name = "global"
    label: ClassVar[str] = "global (one model)"
    look: ClassVar[tuple[str, str]] = ("purple", "D")
    rule: ClassVar[type] = Solved
    needs_graph: ClassVar[bool] = True
    is_baseline: ClassVar[bool] = True

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        models = np.tile(solve_global_model(problem), (problem.n_agents, 1))
        return Prepared(Solved(models), CollaborativeObjective(problem))


@METHODS.register
@dataclass(frozen=True)
class ModelPropagation(NeverPrivate):
    """Supplement C: Eq. (4) with ℒ_i(θ) = ½‖θ − anchor_i‖²; an update is the exact minimum of the block.

    The anchors are the local models of Eq. (1), or the given array; the start is the anchors.
    """

    anchors: Annotated[str | Floats, Configured(None)] = "local"
    name = "propagation"
    label: ClassVar[str] = "model propagation"
    look: ClassVar[tuple[str, str]] = ("sky", "^")
    rule: ClassVar[type] = Descent
    needs_graph: ClassVar[bool] = True

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        if isinstance(self.anchors, str) and self.anchors != "local":
            raise SimulationError(f"anchors must be 'local' or an array, got anchors={self.anchors!r}")
        anchors, _ = starting_models(problem, self.anchors)
        return propagated(problem, anchors, problem.pulls)


def propagated(problem: Problem, anchors: NDArray[Any], pulls: Floats) -> Prepared:
    """Smoothing of anchors that everyone first broadcasts; ℒ_i is 1-smooth, so α = 1/(1 + μc_i)."""
    rule = Descent(
        np.arange(problem.n_agents),
        Edges.of(problem.neighbors),
        LocalAnchors(anchors),
        anchors.copy(),
        False,
        1 / (1 + pulls),
        pulls,
    )
    return Prepared(rule, PropagationObjective(problem.neighbors, anchors, pulls))
