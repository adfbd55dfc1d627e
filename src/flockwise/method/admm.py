"""The gossip ADMM of Vanhaesebrouck et al. (2017): the two-way baseline of the paper's Section 5.1.

Agent i holds, besides its own model Θ_i, a copy Θ_i^j of each neighbor's model. Its part of Eq. (2),

    ¼ Σ_j W_ij ‖Θ_i − Θ_i^j‖² + μ D_ii c_i ℒ_i(Θ_i),

reads nothing but its own variables; where all copies are true the parts sum to Eq. (2). On the edge
between i and j, each end has an auxiliary variable z and a dual variable λ for either model. They
make the two ends agree on both: four z and four λ per edge.

At its tick an agent wakes a random neighbor. Both minimise their part of the augmented Lagrangian,
then the edge between them is updated. Whatever an update reads or writes belongs to these two.

The minimum over the copies. With penalty ρ, the terms of Θ_i^j are, up to a constant,

    ¼ W_ij ‖Θ_i − Θ_i^j‖² + ½ρ ‖Θ_i^j − t‖²   with   t = z − λ/ρ,

smallest at Θ_i^j = s·Θ_i + (1 − s)·t with s = W_ij / (W_ij + 2ρ), where they equal ½ρs‖Θ_i − t‖². So
the own model has to minimise the smooth function

    μ D_ii c_i ℒ_i(Θ_i) + ½ρ Σ_j (‖Θ_i − t_j^own‖² + s_j ‖Θ_i − t_j^copy‖²),

for which it takes gradient steps, and the copies follow in closed form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import SimulationError
from flockwise.method.descent import Start, Vector, starting_models
from flockwise.objective import CollaborativeObjective, LocalObjective, Problem
from flockwise.objective.kernels import DataTerm, data_term
from flockwise.results.trajectory import Trajectory

# At each end of an edge: what concerns the agent's own model, and what concerns its copy of the neighbor's.
OWN, COPY = 0, 1

# Both ends send Θ + λ/ρ for both models: all that z needs.
VECTORS_PER_TICK = 4
# The paper sends Θ and λ apart.
PAPER_VECTORS_PER_TICK = 8


@dataclass(frozen=True)
class GossipADMM:
    """Gossip ADMM with penalty ρ, `gradient_steps` per agent and tick, from `start`.

    start: "local" (Eq. (1), as in the paper), "zeros" (public), or an array of models.
    The best penalty depends on the graph and the data; 1 is rarely the best, so sweep it.
    """

    penalty: float = 1.0
    gradient_steps: int = 10
    start: Start = "local"
    name = "admm"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.penalty) and self.penalty > 0):
            raise SimulationError(f"penalty must be positive and finite, got penalty={self.penalty}")
        if self.gradient_steps < 1:
            raise SimulationError(
                f"gradient_steps must be at least 1, got gradient_steps={self.gradient_steps}"
            )

    def prepare(self, problem: Problem) -> Gossip:
        models, is_public = starting_models(problem, self.start)
        return Gossip(problem, models, is_public, self.penalty, self.gradient_steps)


@dataclass(frozen=True)
class Gossip:
    """Gossip ADMM on Eq. (2), made ready to run.

    `start_is_public` says that everyone knows where everyone starts without a message; otherwise
    each agent first sends its start to its neighbors, for their copies of it.
    """

    problem: Problem
    start: NDArray[Any]
    start_is_public: bool
    penalty: float
    gradient_steps: int

    @cached_property
    def data_weights(self) -> NDArray[np.float64]:
        """μ D_ii c_i; 1 for an agent without neighbors, which has only its own data to follow."""
        degrees = self.problem.graph.degrees
        return np.where(degrees > 0, degrees * self.problem.pulls, 1.0)

    @cached_property
    def copy_shares(self) -> NDArray[np.float64]:
        """s = W_ij / (W_ij + 2ρ) of each directed edge: how far a copy follows the own model."""
        weights = self.problem.graph.weights
        return weights / (weights + 2 * self.penalty)

    @cached_property
    def stiffness(self) -> NDArray[np.float64]:
        """ρ Σ_j (1 + s_j): the curvature that an agent's edges add to its part."""
        graph = self.problem.graph
        agents = np.repeat(np.arange(graph.n_agents), graph.neighbor_counts)
        sums = np.zeros(graph.n_agents)
        np.add.at(sums, agents, 1 + self.copy_shares)
        return self.penalty * sums

    @cached_property
    def step_sizes(self) -> NDArray[np.float64]:
        """1 / smoothness of an agent's part; 0 where the part is constant."""
        smoothness = self.data_weights * self.problem.local_smoothness + self.stiffness
        return np.divide(1, smoothness, out=np.zeros_like(smoothness), where=smoothness > 0)

    def part(self, agent: int) -> AgentPart:
        """What one agent minimises."""
        edges = slice(*self.problem.graph.offsets[agent : agent + 2])
        return AgentPart(
            LocalObjective.of_agent(self.problem, agent),
            float(self.data_weights[agent]),
            float(self.step_sizes[agent]),
            self.copy_shares[edges],
            self.penalty,
            self.gradient_steps,
        )

    def kernel_term(self) -> DataTerm:
        """ℒ_i of all agents, for the compiled engines."""
        return data_term(self.problem)

    def objective(self) -> CollaborativeObjective:
        """What ADMM minimises in the limit."""
        return CollaborativeObjective(self.problem)

    def vectors_sent(self, updates: NDArray[np.int64]) -> int:
        """Four per tick that has a neighbor to wake, and the first broadcasts."""
        graph = self.problem.graph
        first = 0 if self.start_is_public else graph.neighbors.size
        return first + VECTORS_PER_TICK * int(updates[graph.neighbor_counts > 0].sum())


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


def agree(
    model: Vector, copy: Vector, model_dual: Vector, copy_dual: Vector, penalty: float
) -> tuple[Vector, Vector, Vector]:
    """z and both new duals for one model, held by its owner and, as a copy, at the other end of the edge."""
    auxiliary = 0.5 * ((model_dual + copy_dual) / penalty + model + copy)
    return (
        auxiliary,
        model_dual + penalty * (model - auxiliary),
        copy_dual + penalty * (copy - auxiliary),
    )


def paper_vectors(trajectory: Trajectory) -> NDArray[np.int64]:
    """The vectors sent up to each record as the paper counts them: 8 per tick instead of 4."""
    vectors = trajectory.column("vectors")
    # Before the first tick there are just the first broadcasts, which count once either way.
    return vectors[0] + (vectors - vectors[0]) // VECTORS_PER_TICK * PAPER_VECTORS_PER_TICK
