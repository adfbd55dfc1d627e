"""The gossip ADMM of Vanhaesebrouck et al. (2017): the two-way baseline of the paper's Section 5.1.

Agent i holds, besides its own model Θ_i, a copy Θ_i^j of each neighbor's model. Its part of Eq. (2),

    ¼ Σ_j W_ij ‖Θ_i − Θ_i^j‖² + μ D_ii c_i ℒ_i(Θ_i),

reads nothing but its own variables; where all copies are true the parts sum to Eq. (2). On the edge
between i and j, each end has an auxiliary variable z and a dual variable λ for either model. They
make the two ends agree on both: four z and four λ per edge.

At its tick an agent wakes a random neighbor. Both minimize their part of the augmented Lagrangian,
then the edge between them is updated. Whatever an update reads or writes belongs to these two.

The minimum over the copies. With penalty ρ, the terms of Θ_i^j are, up to a constant,

    ¼ W_ij ‖Θ_i − Θ_i^j‖² + ½ρ ‖Θ_i^j − t‖²   with   t = z − λ/ρ,

smallest at Θ_i^j = s·Θ_i + (1 − s)·t with s = W_ij / (W_ij + 2ρ), where they equal ½ρs‖Θ_i − t‖². So
the own model has to minimize the smooth function

    μ D_ii c_i ℒ_i(Θ_i) + ½ρ Σ_j (‖Θ_i − t_j^own‖² + s_j ‖Θ_i − t_j^copy‖²),

for which it takes gradient steps, and the copies follow in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from flockwise.checks import Configured, Count, Positive, check_fields
from flockwise.errors import SimulationError
from flockwise.method.base import METHODS, NeverPrivate, Prepared
from flockwise.method.rules import Edges, LocalData, Meetings, Vector
from flockwise.method.start import Start, starting_models
from flockwise.objective import CollaborativeObjective, LocalObjective, Problem

# At each end of an edge: what concerns the agent's own model, and what concerns its copy of the neighbor's.
OWN, COPY = 0, 1

# Both ends send Θ + λ/ρ for both models: all that z needs.
VECTORS_PER_TICK = 4


@METHODS.register
@dataclass(frozen=True)
class GossipADMM(NeverPrivate):
    """Gossip ADMM with penalty ρ, `gradient_steps` per agent and tick, from `start`.

    start: "local" (Eq. (1), as in the paper), "zeros" (public), or an array of models.
    The best penalty depends on the graph and the data; 1 is rarely the best, so sweep it.
    """

    penalty: Positive = 1.0
    gradient_steps: Count = 10
    start: Annotated[Start, Configured(Literal["zeros", "local"])] = "local"
    name = "admm"
    label: ClassVar[str] = "gossip ADMM"
    look: ClassVar[tuple[str, str]] = ("vermilion", "v")
    rule: ClassVar[type] = Meetings
    needs_graph: ClassVar[bool] = True
    minimizes_eq_2: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, SimulationError)

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        models, is_public = starting_models(problem, self.start)
        degrees = problem.neighbors.degrees
        rule = Meetings(
            np.arange(problem.n_agents),
            Edges.of(problem.neighbors),
            LocalData.of(problem),
            models,
            is_public,
            self.penalty,
            self.gradient_steps,
            # μ D_ii c_i; 1 for an agent without neighbors, which has only its own data to follow.
            np.where(degrees > 0, degrees * problem.pulls, 1.0),
            problem.local_smoothness,
        )
        return Prepared(rule, CollaborativeObjective(problem))


@dataclass(frozen=True)
class AgentPart:
    """One agent's part of the augmented Lagrangian, without the variables.

    Auxiliary and dual variables have shape (neighbors, 2, dimension); the second index is OWN or COPY.
    """

    local: LocalObjective
    data_weight: float
    step_size: float
    copy_shares: Vector
    penalty: float
    gradient_steps: int

    def minimize(self, model: Vector, auxiliary: Vector, duals: Vector) -> tuple[Vector, Vector]:
        """The own model after the gradient steps, and the copies that are best for it."""
        aims = auxiliary - duals / self.penalty
        for _ in range(self.gradient_steps):
            model = model - self.step_size * self._gradient(model, aims)
        shares = self.copy_shares[:, None]
        return model, shares * model + (1 - shares) * aims[:, COPY]

    def _gradient(self, model: Vector, aims: Vector) -> Vector:
        """The derivative in the own model, the copies being at their best."""
        apart = (model - aims[:, OWN]).sum(axis=0) + self.copy_shares @ (model - aims[:, COPY])
        return self.data_weight * self.local.gradient(model) + self.penalty * apart


def offer(held: Vector, dual: Vector, penalty: float) -> Vector:
    """Θ + λ/ρ: what either end of an edge sends of a model that it holds."""
    return held + dual / penalty


def agree(held: Vector, dual: Vector, heard: Vector, penalty: float) -> tuple[Vector, Vector]:
    """z and the new dual at one end of an edge, for a model of which the other end offered `heard`."""
    auxiliary = 0.5 * (offer(held, dual, penalty) + heard)
    return auxiliary, dual + penalty * (held - auxiliary)


def part_of(rule: Meetings, position: int) -> AgentPart:
    """What one agent minimizes."""
    edges = slice(rule.edges.offsets[position], rule.edges.offsets[position + 1])
    return AgentPart(
        rule.local.at(position),
        float(rule.data_weights[position]),
        float(rule.step_sizes[position]),
        rule.copy_shares[edges],
        rule.penalty,
        rule.gradient_steps,
    )


def vectors_sent(rule: Meetings, updates: Vector) -> int:
    """Four per tick that has a neighbor to wake, and the first broadcasts."""
    first = 0 if rule.start_is_public else rule.edges.neighbors.size
    return first + VECTORS_PER_TICK * int(updates[rule.edges.counts > 0].sum())


def paper_vectors(vectors: Vector) -> Vector:
    """The vectors sent up to each record as the paper counts them: Θ and λ apart, 8 per tick instead of 4."""
    # Before the first tick there are just the first broadcasts, which count once either way.
    return vectors[0] + 2 * (vectors - vectors[0])
