"""Public post-processing of releases, computed for all agents at once.

Released vectors, their public variances and the graph are enough. Nothing here receives a population, so
nothing here costs privacy, however often it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from flockwise.errors import SimulationError
from flockwise.graph import SimilarityGraph
from flockwise.method.rules import Traffic
from flockwise.objective.passes import neighbor_sums
from flockwise.protocol.choice import (
    Beliefs,
    Figures,
    believe,
    choose,
    guessed_signal,
    judged,
    mean_of,
    measured_signal,
    no_estimates,
    usable,
)
from flockwise.protocol.filter import DEGREES, batches, hops_to_judge, step_weights
from flockwise.protocol.gossip import (
    FIRST_ROUNDS,
    MOST_ROUNDS,
    PROBE_COLUMNS,
    agree,
    damped_up_to,
    more_rounds,
    push_sum_mean,
)
from flockwise.protocol.propagation import precision_confidences, shrunken_mean
from flockwise.protocol.rows import (
    NOISE_COLUMNS,
    PUBLIC_SEED,
    TALLIES,
    AgentRows,
    public_noise,
    quotients,
    released_powers,
    tallies,
    weighted,
)
from flockwise.release.statistic import Released

# μ of propagated releases. Chosen on generated instances of the paper's task (100 agents, 20 and 100
# features, ε from ½ to 1), where results change little from .1 to .25.
PROPAGATION_TRADEOFF: Final = 0.15
# Of propagated releases, whatever noise is in them: their direction still says something.
LEAST_KEPT: Final = 0.05
# Propagation ends when no variance changes by more than this share: even a slow rest is then a few percent.
SWEEP_TOLERANCE: Final = 1e-4
MAX_SWEEPS: Final = 1000
# Each run of the filter's recursion reaches four times as far as the one before, and starts anew: keeping all
# of its hops, as an agent does, would take too much memory for all agents together.
DEGREES_PER_RUN: Final = 4
DEGREES_OF_FIRST_RUN: Final = 3
# Numbers in a message of the search for the leader.
REACH_NUMBERS: Final = 6


def propagate(
    graph: SimilarityGraph, anchors: NDArray[np.float64], pulls: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Supplement C for all agents at once: (neighbors' mean + μc_i·anchor_i)/(1 + μc_i), again and again.

    It ends when the mean square of every row has settled: the public quality needs no more.
    """
    degrees = np.where(graph.degrees > 0, graph.degrees, 1.0)[:, None]
    own = np.where(graph.degrees > 0, pulls / (1 + pulls), 1.0)[:, None]
    models, before = anchors, variances_of(anchors)
    for _ in range(MAX_SWEEPS):
        means = neighbor_sums(graph.offsets, graph.neighbors, graph.weights, np.ascontiguousarray(models))
        models = (1 - own) * (means / degrees) + own * anchors
        after = variances_of(models)
        if (np.abs(after - before) <= SWEEP_TOLERANCE * after).all():
            break
        before = after
    return models


def propagated_releases(graph: SimilarityGraph, released: Released, tradeoff: float) -> NDArray[np.float64]:
    """Model propagation over releases, each of which counts as much as it is precise.

    The mean over all releases is shrunk as far as it does not stand out of its noise, and so are all models
    in the end, by one factor: the share of their squares that the noise in them does not explain.
    """
    is_there = np.isfinite(released.variances)
    if not is_there.any():
        return released.vectors
    mean = shrunken_mean(released.vectors, released.variances)
    anchors = mean.replace_in(released.vectors, released.variances)
    noise = mean.replace_in_noise(noise_like(np.where(is_there, released.noise_variances, 0.0)))
    pulls = tradeoff * precision_confidences(released.variances)
    models, left = propagate(graph, anchors, pulls), variances_of(propagate(graph, noise, pulls))
    power = float((models**2).sum())
    explained = models.shape[1] * float(left.sum()) / power if power > 0 else 0.0
    return max(1 - explained, LEAST_KEPT) * models


def noise_like(variances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Noise as large as everyone's release has it, one row per agent, from a seed that everyone knows."""
    generator = np.random.Generator(np.random.Philox(key=PUBLIC_SEED))
    return np.sqrt(variances)[:, None] * generator.standard_normal((len(variances), NOISE_COLUMNS))


def variances_of(noise: NDArray[Any]) -> NDArray[np.float64]:
    """Each agent's variance per coordinate, from its row of independent columns."""
    return np.einsum("ij,ij->i", noise, noise) / noise.shape[1]


class Smoothing(NamedTuple):
    """The result of the low-pass filter, one row per agent; 0 for agents without neighbors.

    degrees: of the filter that the agent's component chose. hops: done to find it. chances: that the
    graph is useful.
    """

    beliefs: Beliefs
    degrees: NDArray[np.int64]
    hops: NDArray[np.int64]
    chances: NDArray[np.float64]


def smooth(
    graph: SimilarityGraph,
    releases: Released,
    signal_power: float | None,
    degree: int | None = None,
    ids: NDArray[np.int64] | None = None,
) -> Smoothing:
    """Beliefs of all agents, each from its own component of the graph.

    signal_power: ‖t_i‖² if it is known beforehand; None has it measured.
    degree: of the filter, one of DEGREES, in place of the one that promises most.
    ids: the agents' numbers, by which they draw public noise; by default their positions.
    """
    if degree is not None and degree not in DEGREES:
        raise SimulationError(f"degree must be one of {', '.join(map(str, DEGREES))}, got degree={degree!r}")
    ids = np.arange(graph.n_agents) if ids is None else ids
    vectors, variances = releases.vectors, releases.variances
    found = _no_smoothing(*vectors.shape)
    hop = _hop(graph)
    for component in range(int(graph.components.max(initial=-1)) + 1):
        agents = np.flatnonzero(graph.components == component)
        if len(agents) > 1 and np.isfinite(variances[agents]).any():
            released = vectors[agents], variances[agents], releases.noise_variances[agents]
            one = _smooth_component(hop[agents][:, agents], ids[agents], *released, signal_power, degree)
            for whole, part in zip(found.beliefs, one.beliefs, strict=True):
                whole[agents] = part
            for whole, part in zip(found[1:], one[1:], strict=True):
                whole[agents] = part
    return found


def collected(results: Mapping[int, Any], n_agents: int, dimension: int) -> Smoothing:
    """The same from the outcomes of agents that talked, by position."""
    found = _no_smoothing(n_agents, dimension)
    for position, outcome in results.items():
        for whole, part in zip(found.beliefs, outcome.beliefs, strict=True):
            whole[position] = part[0]
        found.degrees[position], found.hops[position] = outcome.choice.degree, outcome.hops
        found.chances[position] = outcome.choice.chance
    return found


def _no_smoothing(n_agents: int, dimension: int) -> Smoothing:
    """For agents that received nothing."""
    numbers = np.zeros(n_agents, np.int64)
    return Smoothing(no_estimates(n_agents, dimension), numbers, numbers.copy(), np.zeros(n_agents))


def _hop(graph: SimilarityGraph) -> sparse.csr_array:
    """P = W·D⁻¹, where each edge was first divided by the degrees of both its ends."""
    scales = sparse.diags_array(1 / np.where(graph.degrees > 0, graph.degrees, 1.0))
    edges = scales @ graph.to_scipy() @ scales
    degrees = edges.sum(axis=0)
    return sparse.csr_array(edges @ sparse.diags_array(1 / np.where(degrees > 0, degrees, 1.0)))


def _smooth_component(
    hop: sparse.csr_array,
    ids: NDArray[np.int64],
    vectors: NDArray[np.float64],
    variances: NDArray[np.float64],
    noise_variances: NDArray[np.float64],
    signal_power: float | None,
    degree: int | None,
) -> Smoothing:
    released = AgentRows(vectors, public_noise(ids, variances))
    shares = (1 / variances) / (1 / variances).sum()
    means = AgentRows.of_columns((shares @ released.columns())[None])
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
    return Smoothing(beliefs, *(np.full(len(ids), number) for number in (choice.degree, hops, choice.chance)))


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


def lowpass_traffic(
    graph: SimilarityGraph,
    releases: Released,
    ids: NDArray[np.int64],
    smoothing: Smoothing,
    measures_power: bool,
) -> Traffic:
    """What agents send, by stage, with no relay lost, to find this smoothing by messages."""
    traffic, dimension = Traffic.none(), releases.vectors.shape[1]
    for component in range(int(graph.components.max(initial=-1)) + 1):
        agents = np.flatnonzero(graph.components == component)
        if len(agents) < 2:
            continue
        count = int(graph.neighbor_counts[agents].sum())
        edges = (graph.to_scipy()[agents][:, agents] > 0).astype(np.float64).tocsr()
        reach, search_rounds = _search_for_leader(edges)
        tried = _mixing_rounds(edges, ids[agents], releases.variances[agents])
        stages = [("mixing", rounds, PROBE_COLUMNS) for rounds in tried]
        stages += [("mean", tried[-1], dimension + NOISE_COLUMNS)]
        stages += [("power", tried[-1], 2)] if measures_power else []
        n_hops = int(smoothing.hops[agents[0]])
        stages += [("tally", tried[-1], TALLIES * len(degrees)) for degrees in batches(n_hops)]
        traffic.add("reach", count * search_rounds, REACH_NUMBERS)
        traffic.add("degree", count, 1)
        for stage, rounds, numbers in stages:
            # Push-sum, and then the extremes by which agents see that they agree.
            traffic.add(stage, count * rounds, numbers + 1)
            traffic.add(stage, count * reach, 2 * numbers)
        traffic.add("hop", count * n_hops, dimension + NOISE_COLUMNS + 1)
    return traffic


def _search_for_leader(edges: sparse.csr_array) -> tuple[int, int]:
    """How many rounds reach everyone and come back, and how many the search takes.

    An agent d hops from the leader can answer once it sees that all its neighbors have joined, and d rounds
    later the leader knows; to tell everyone takes as many rounds as the farthest agent is hops away.
    """
    away = csgraph.dijkstra(edges, indices=0, unweighted=True).astype(np.int64)
    farthest = int(away.max())
    latest = np.maximum.reduceat(away[edges.indices], edges.indptr[:-1])
    return 2 * farthest, int((np.maximum(away, latest + 1) + away).max()) + farthest


def _mixing_rounds(
    edges: sparse.csr_array, ids: NDArray[np.int64], variances: NDArray[np.float64]
) -> list[int]:
    """The numbers of rounds that agents try on public noise."""
    hop = sparse.csr_array(edges @ sparse.diags_array(1 / edges.sum(axis=0)))
    precisions = (1 / variances)[:, None]
    probes = public_noise(ids, variances)[:, -PROBE_COLUMNS:]
    return rounds_tried(hop, np.hstack([precisions * probes, precisions]))


def rounds_tried(hop: Any, sums: NDArray[np.float64]) -> list[int]:
    """The numbers of rounds that agents try, up to the one after which they agree. hop: multiplies by P."""
    tried = [FIRST_ROUNDS]
    while not _agrees_after(tried[-1], hop, sums) and tried[-1] < MOST_ROUNDS:
        tried.append(more_rounds(tried[-1]))
    return tried


def _agrees_after(rounds: int, hop: Any, sums: NDArray[np.float64]) -> bool:
    bound = damped_up_to(rounds)
    before, now = sums, (2 * (hop @ sums) + (1 - bound) * sums) / (1 + bound)
    for _ in range(rounds - 1):
        before, now = now, 2 * (2 * (hop @ now) + (1 - bound) * now) / (1 + bound) - before
    means = np.apply_along_axis(push_sum_mean, 1, now)
    return agree(means.min(axis=0), means.max(axis=0))
