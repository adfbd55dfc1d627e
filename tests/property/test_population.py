"""Packing, splitting and selecting never lose, copy or mix up a sample."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flockwise.data import Population, population_from_frame

labels = st.lists(st.sampled_from(["anna", "bob", "7", "10", "été"]), min_size=1, max_size=40)
seeds = st.integers(0, 2**32 - 1)


def numbered(agents: list[str]) -> Population:
    """Every sample carries its own number in features and target."""
    numbers = np.arange(len(agents), dtype=float)
    return Population.from_arrays(np.column_stack((numbers, -numbers)), numbers, agents)


def samples_by_name(population: Population) -> dict[str, list[float]]:
    return {name: population.samples(k)[1].tolist() for k, name in enumerate(population.agent_names)}


@given(labels)
def test_packing_gives_each_agent_its_own_samples_in_their_order(agents):
    population = numbered(agents)
    expected = {name: [k for k, label in enumerate(agents) if label == name] for name in set(agents)}
    assert samples_by_name(population) == expected
    np.testing.assert_array_equal(population.features[:, 0], population.targets)
    np.testing.assert_array_equal(population.features[:, 1], -population.targets)


@given(labels, seeds)
def test_the_order_of_rows_changes_neither_agents_nor_their_sets_of_samples(agents, seed):
    order = np.random.default_rng(seed).permutation(len(agents))
    numbers = np.arange(len(agents), dtype=float)
    shuffled = Population.from_arrays(
        numbers[order, None], numbers[order], [agents[k] for k in order], dtype="float64"
    )
    population = numbered(agents)
    assert shuffled.agent_names == population.agent_names
    assert {name: sorted(own) for name, own in samples_by_name(shuffled).items()} == samples_by_name(
        population
    )


@given(labels, st.floats(0.01, 0.99), seeds)
def test_split_partitions_the_samples_of_every_agent(agents, share, seed):
    population = numbered(agents)
    train, test = population.split(share, seed)
    assert train.agent_names == test.agent_names == population.agent_names
    for agent in range(population.n_agents):
        kept, held = train.samples(agent)[1].tolist(), test.samples(agent)[1].tolist()
        assert kept == sorted(kept)
        assert held == sorted(held)
        assert sorted(kept + held) == population.samples(agent)[1].tolist()
        assert len(kept) >= 1
        assert abs(len(held) - share * (len(kept) + len(held))) <= 1


@given(labels, st.data())
def test_select_keeps_names_and_samples_together(agents, data):
    population = numbered(agents)
    chosen = data.draw(st.lists(st.sampled_from(population.agent_names), unique=True, min_size=1))
    selected = population.select(chosen)
    assert selected.agent_names == tuple(chosen)
    everything = samples_by_name(population)
    assert samples_by_name(selected) == {name: everything[name] for name in chosen}


@given(labels)
def test_a_table_and_arrays_give_the_same_population(agents):
    from_arrays = numbered(agents)
    numbers = np.arange(len(agents), dtype=float)
    from_table = population_from_frame(
        {"agent": agents, "x0": numbers, "x1": -numbers, "y": numbers}, target="y"
    )
    assert from_table.agent_names == from_arrays.agent_names
    assert from_table.feature_names == from_arrays.feature_names
    np.testing.assert_array_equal(from_table.features, from_arrays.features)
    np.testing.assert_array_equal(from_table.targets, from_arrays.targets)
    np.testing.assert_array_equal(from_table.offsets, from_arrays.offsets)


@given(labels)
def test_float32_and_back_loses_nothing_of_small_whole_numbers(agents):
    population = numbered(agents)
    back = population.astype("float32").astype("float64")
    np.testing.assert_array_equal(back.features, population.features)
    assert samples_by_name(back) == samples_by_name(population)
