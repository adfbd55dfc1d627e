"""A part of a large network."""

from dataclasses import replace

import numpy as np

from flockwise import SimilarityGraph
from flockwise.planner.twins import (
    MOST_AGENTS,
    MOST_SAMPLES,
    agents_around,
    agents_to_add_up,
    facts_of_part,
    graph_of,
)


def test_a_small_network_is_simulated_whole(facts, ring):
    assert agents_around(facts(ring(MOST_AGENTS, 2))).tolist() == list(range(MOST_AGENTS))


def test_of_a_large_ring_one_stretch_of_neighbors_is_simulated(facts, ring):
    graph = ring(3000, 3)
    inside = agents_around(facts(graph))
    assert len(set(inside.tolist())) == MOST_AGENTS
    # All but those at the two ends have all their neighbors inside.
    kept = graph.to_scipy()[inside][:, inside]
    assert (np.diff(kept.indptr) == 6).sum() >= MOST_AGENTS - 6


def test_agents_without_neighbors_are_taken_too(facts):
    graph = SimilarityGraph.from_edges(1000, np.array([[0, 1]]))
    assert len(agents_around(facts(graph))) == MOST_AGENTS


def test_agents_without_a_graph_are_taken_too(facts, ring):
    alone = replace(facts(ring(1000, 1)), graph=None)
    assert len(agents_around(alone)) == MOST_AGENTS
    assert graph_of(alone).n_edges == 0


def test_a_sum_is_over_all_agents_unless_they_are_very_many(facts, ring):
    known = facts(ring(1000, 1))
    assert len(agents_to_add_up(known)) == 1000
    many = replace(known, sample_counts=np.full(1000, MOST_SAMPLES // 100))
    assert len(agents_to_add_up(many)) == 100


def test_sums_are_compared_without_the_graph(facts, ring):
    known = facts(ring(10, 1))
    assert facts_of_part(known, np.arange(10), keep_graph=False).graph is None
