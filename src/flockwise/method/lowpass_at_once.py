"""The whole network's smoothing computed at once: the oracle that the protocol agrees with.

Nothing here receives a population: released vectors, their public variances and the graph are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from flockwise.errors import SimulationError
from flockwise.graph import SimilarityGraph
from flockwise.protocol.choice import (
    Beliefs,
    Figures,
    believe,
    choose,
    guessed_signal,
    judged,
    mean_of,
    measured_signal,
    nothing_believed,
    usable,
)
from flockwise.protocol.filter import DEGREES, hops_to_judge, step_weights
from flockwise.protocol.rows import (
    Rows,
    public_noise,
    quotients,
    released_powers,
    tallies,
    weighted,
)
from flockwise.release.statistic import Released

# Each run of the recursion reaches four times as far as the one before, and starts anew: keeping all of its
# hops, as an agent does, would take too much memory for all agents together.
DEGREES_PER_RUN: Final = 4
DEGREES_OF_FIRST_RUN: Final = 3


class Smoothing(NamedTuple):
    """What smoothing makes of releases, one row per agent.

    degrees: of the filter chosen by the agent's component. hops: done to find it. chances: that the
    graph is useful. Agents without neighbors have 0 everywhere.
    """

    beliefs: Beliefs
    degrees: NDArray[np.int64]
    hops: NDArray[np.int64]
    chances: NDArray[np.float64]


def smooth(
    graph: SimilarityGraph, releases: Released, signal_power: float | None, degree: int | None = None
) -> Smoothing:
    """Beliefs of all agents, each from its own component of the graph.

    signal_power: ‖t_i‖² if it is known beforehand; None has it measured.
    degree: of the filter, one of DEGREES, in place of the one that promises most.
    """
    if degree is not None and degree not in DEGREES:
        raise SimulationError(f"degree must be one of {', '.join(map(str, DEGREES))}, got degree={degree!r}")
    vectors, variances = releases.vectors, releases.variances
    found = nothing_smoothed(*vectors.shape)
    hop = _hop(graph)
    for component in range(int(graph.components.max(initial=-1)) + 1):
        agents = np.flatnonzero(graph.components == component)
        if len(agents) > 1 and np.isfinite(variances[agents]).any():
            released = vectors[agents], variances[agents], releases.noise_variances[agents]
            one = _smooth_component(hop[agents][:, agents], agents, *released, signal_power, degree)
            for whole, part in zip(found.beliefs, one.beliefs, strict=True):
                whole[agents] = part
            for whole, part in zip(found[1:], one[1:], strict=True):
                whole[agents] = part
    return found


def collected(results: Mapping[int, Any], n_agents: int, dimension: int) -> Smoothing:
    """The same from what agents ended with who found it out by messages, by their numbers."""
    found = nothing_smoothed(n_agents, dimension)
    for number, outcome in results.items():
        for whole, part in zip(found.beliefs, outcome.beliefs, strict=True):
            whole[number] = part[0]
        found.degrees[number], found.hops[number] = outcome.choice.degree, outcome.hops
        found.chances[number] = outcome.choice.chance
    return found


def nothing_smoothed(n_agents: int, dimension: int) -> Smoothing:
    """What agents know who heard nobody."""
    numbers = np.zeros(n_agents, np.int64)
    return Smoothing(nothing_believed(n_agents, dimension), numbers, numbers.copy(), np.zeros(n_agents))


def _hop(graph: SimilarityGraph) -> sparse.csr_array:
    """P = W·D⁻¹, with both ends' degrees divided out of each tie before."""
    scales = sparse.diags_array(1 / np.where(graph.degrees > 0, graph.degrees, 1.0))
    ties = scales @ graph.to_scipy() @ scales
    degrees = ties.sum(axis=0)
    return sparse.csr_array(ties @ sparse.diags_array(1 / np.where(degrees > 0, degrees, 1.0)))


def _smooth_component(
    hop: sparse.csr_array,
    agents: NDArray[np.int64],
    vectors: NDArray[np.float64],
    variances: NDArray[np.float64],
    noise_variances: NDArray[np.float64],
    signal_power: float | None,
    degree: int | None,
) -> Smoothing:
    released = Rows(vectors, public_noise(agents, variances))
    shares = (1 / variances) / (1 / variances).sum()
    means = Rows.of_columns((shares @ released.columns())[None])
    mean, before = mean_of(means), released.less(means)
    if signal_power is None:
        square, variance = shares @ released_powers(before, variances, noise_variances)
        signal = measured_signal(float(square), float(variance), mean)
    else:
        signal = guessed_signal(signal_power, mean)
    figures: list[Figures] = []
    smoothed: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for output in _filtered(hop, weighted(released, variances)):
        after = quotients(output, means)
        tallied = tallies(before, after, variances)
        figures.append(Figures(*(shares @ tallied).tolist()))
        smoothed.append((after.vectors, tallied))
        if len(figures) == DEGREES.index(degree) + 1 if degree else usable(figures, mean) is not None:
            break
    if degree:
        choice = judged(degree, figures[-1], mean, signal)
    else:
        choice = choose(figures[: usable(figures, mean)], mean, signal)
    beliefs = believe(*smoothed[DEGREES.index(choice.degree)], choice, mean, signal)
    hops = hops_to_judge(len(figures))
    return Smoothing(
        beliefs, *(np.full(len(agents), number) for number in (choice.degree, hops, choice.chance))
    )


def _filtered(hop: sparse.csr_array, columns: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The columns filtered by each of the degrees, in order, and no further than they are asked for."""
    first = 0
    while first < len(DEGREES):
        count = DEGREES_PER_RUN if first else DEGREES_OF_FIRST_RUN
        yield from _filtered_together(hop, columns, DEGREES[first : first + count])
        first += count


def _filtered_together(
    hop: sparse.csr_array, columns: NDArray[np.float64], degrees: tuple[int, ...]
) -> list[NDArray[np.float64]]:
    weights = [step_weights(degree) for degree in degrees]
    outputs = [own[0] * columns for own in weights]
    before, now = columns, hop @ columns
    for order in range(1, degrees[-1] + 1):
        for degree, own, output in zip(degrees, weights, outputs, strict=True):
            if order <= degree:
                output += own[order] * now
        before, now = now, 2 * (hop @ now) - before
    return outputs
