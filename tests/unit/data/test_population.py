"""Population: packing, views, splits, and what it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flockwise.data import Population
from flockwise.errors import DataError


def three_agents(dtype="float64") -> Population:
    features = np.arange(12, dtype=dtype).reshape(6, 2)
    targets = np.array([1, -1, 1, -1, 1, -1], dtype=dtype)
    return Population.packed(features, targets, np.array([0, 1, 1, 6]), feature_names=("height", "weight"))


def test_packed_shares_memory_and_leaves_the_callers_arrays_writable():
    features, targets, offsets = np.zeros((3, 2)), np.ones(3), np.array([0, 1, 3])
    population = Population.packed(features, targets, offsets)
    for kept, given in (
        (population.features, features),
        (population.targets, targets),
        (population.offsets, offsets),
    ):
        assert np.shares_memory(kept, given)
        assert given.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            kept[0] = 7


def test_population_cannot_be_changed():
    population = three_agents()
    with pytest.raises(dataclasses.FrozenInstanceError):
        population.offsets = np.array([0, 6])  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match="read-only"):
        population.sample_counts[0] = 3
    with pytest.raises(ValueError, match="read-only"):
        population.samples(2)[0][0] = 3


def test_a_population_knows_its_sizes_and_its_type():
    population = three_agents("float32")
    assert (population.n_agents, population.n_samples, population.n_features) == (3, 6, 2)
    assert population.dtype == np.float32
    assert population.sample_counts.tolist() == [1, 0, 5]
    assert population.sample_counts.dtype == np.int64
    assert repr(population) == "Population(3 agents, 6 samples, 2 features, float32)"


def test_samples_are_views_of_the_agents_rows():
    population = three_agents()
    features, targets = population.samples(2)
    assert np.shares_memory(features, population.features)
    np.testing.assert_array_equal(features, np.arange(2, 12).reshape(5, 2))
    np.testing.assert_array_equal(targets, [-1, 1, -1, 1, -1])
    assert population.samples(1)[0].shape == (0, 2)


@pytest.mark.parametrize("position", [-1, 3])
def test_samples_of_no_agent(position):
    with pytest.raises(DataError, match=f"agent {position}: positions go from 0 to 2"):
        three_agents().samples(position)


def test_names_are_numbers_by_default():
    population = three_agents()
    assert population.agent_names == ("0", "1", "2")
    assert population.agent_index("2") == 2
    with pytest.raises(DataError, match="there is no agent 'anna'; the agents are '0', '1', '2'"):
        population.agent_index("anna")


def test_a_million_unnamed_agents_make_no_names():
    offsets = np.zeros(1_000_001, dtype=np.int64)
    population = Population.packed(np.empty((0, 1)), np.empty(0), offsets)
    assert population.given_names is None
    assert "agent_names" not in vars(population)


def test_from_arrays_packs_rows_in_any_order_and_keeps_their_order_within_an_agent():
    population = Population.from_arrays(
        [[1.0], [2.0], [3.0], [4.0]], [10, 20, 30, 40], ["bob", "anna", "bob", "anna"]
    )
    assert population.agent_names == ("anna", "bob")
    assert population.features[:, 0].tolist() == [2, 4, 1, 3]
    assert population.targets.tolist() == [20, 40, 10, 30]
    assert population.feature_names == ("x0",)


def test_from_arrays_copies_rows_that_are_in_order_already():
    features, targets = np.zeros((2, 1)), np.zeros(2)
    population = Population.from_arrays(features, targets, [0, 1])
    features[0], targets[0] = 5, 5
    assert population.features[0, 0] == 0
    assert population.targets[0] == 0


@pytest.mark.parametrize("agents", [[0, 1, 2], [2, 0, 1]])
def test_from_arrays_takes_any_memory_layout(agents):
    features = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    population = Population.from_arrays(features, np.arange(6.0)[::2], agents)
    np.testing.assert_array_equal(population.features, features[np.argsort(agents)])
    assert population.features.flags.c_contiguous


def test_integer_labels_are_sorted_as_numbers_and_text_that_is_whole_numbers_too():
    for labels in ([10, 9, 100], ["10", "9", "100"]):
        population = Population.from_arrays(np.zeros((3, 1)), np.zeros(3), labels)
        assert population.agent_names == ("9", "10", "100")


def test_text_labels_with_leading_zeros_stay_as_they_are():
    population = Population.from_arrays(np.zeros((2, 1)), np.zeros(2), ["007", "10"])
    assert population.agent_names == ("007", "10")


def test_agent_names_may_list_agents_without_data():
    population = Population.from_arrays(
        [[1.0]], [1.0], ["bob"], agent_names=["carl", "bob", "anna"], dtype="float32"
    )
    assert population.agent_names == ("carl", "bob", "anna")
    assert population.sample_counts.tolist() == [0, 1, 0]
    assert population.dtype == np.float32


def test_integers_are_positions_among_textual_names_and_labels_among_integer_names():
    by_position = Population.from_arrays([[1.0]], [1.0], [1], agent_names=["anna", "bob"])
    assert by_position.sample_counts.tolist() == [0, 1]
    by_label = Population.from_arrays([[1.0]], [1.0], [7], agent_names=[3, 7, 9])
    assert by_label.agent_names == ("3", "7", "9")
    assert by_label.sample_counts.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("given", "kept"),
    [(np.float32, "float32"), (np.float64, "float64"), (np.int8, "float64"), (bool, "float64")],
)
def test_from_arrays_chooses_the_dtype(given, kept):
    population = Population.from_arrays(np.ones((2, 1), dtype=given), [0, 1], [0, 1])
    assert population.dtype == kept
    assert population.targets.dtype == kept


def test_an_intercept_is_one_more_feature_of_ones():
    population = three_agents().with_intercept()
    assert population.feature_names == ("height", "weight", "intercept")
    np.testing.assert_array_equal(population.features[:, 2], np.ones(6))
    np.testing.assert_array_equal(population.features[:, :2], three_agents().features)
    with pytest.raises(DataError, match="a feature 'intercept' already"):
        population.with_intercept()


def test_numbers_are_converted_to_single_precision_and_nothing_else():
    population = three_agents()
    assert population.astype("float64") is population
    single = population.astype(np.float32)
    assert single.targets.dtype == single.features.dtype == np.float32
    np.testing.assert_array_equal(single.features, population.features)
    with pytest.raises(DataError, match="dtype must be 'float32' or 'float64', got 'int32'"):
        population.astype("int32")
    with pytest.raises(DataError, match="got 'number'"):
        population.astype("number")


def test_astype_refuses_numbers_that_do_not_fit():
    population = Population.from_arrays([[1.0], [1e300]], [0, 0], ["anna", "bob"])
    with pytest.raises(DataError, match=r"agent 'bob', column 'x0', row 2: 1e\+300 does not fit float32"):
        population.astype("float32")


def test_select_by_name_and_by_position():
    population = three_agents()
    for wanted in (["2", "0"], [2, 0], np.array([2, 0])):
        chosen = population.select(wanted)
        assert chosen.agent_names == ("2", "0")
        np.testing.assert_array_equal(chosen.samples(0)[0], population.samples(2)[0])
        np.testing.assert_array_equal(chosen.samples(1)[1], population.samples(0)[1])
    with pytest.raises(DataError, match="agent '1' occurs twice"):
        population.select([1, 1])
    with pytest.raises(DataError, match="there is no agent 'anna'"):
        population.select(["anna"])


def test_split_holds_out_the_rounded_share_but_never_everything():
    counts = np.array([0, 1, 2, 3, 10, 12])
    offsets = np.concatenate(([0], np.cumsum(counts)))
    features = np.arange(offsets[-1], dtype=float)[:, None]
    population = Population.packed(features, features[:, 0], offsets)
    train, test = population.split(0.5, seed=0)
    assert test.sample_counts.tolist() == [0, 0, 1, 2, 5, 6]
    assert train.sample_counts.tolist() == [0, 1, 1, 1, 5, 6]
    again = population.split(0.5, seed=0)
    np.testing.assert_array_equal(train.features, again[0].features)
    assert not np.array_equal(train.features, population.split(0.5, seed=1)[0].features)


def test_split_chooses_every_sample_equally_often():
    """Chi-square of 10 samples over 4000 agents with half held out; false alarm in 1 of 1000 seeds."""
    n_agents = 4000
    features = np.tile(np.arange(10.0), n_agents)[:, None]
    population = Population.packed(features, features[:, 0], np.arange(0, 10 * n_agents + 1, 10))
    held = np.bincount(population.split(0.5, seed=3)[1].targets.astype(int), minlength=10)
    # Each sample is held out with probability ½, pairs correlate by −1/9: the statistic is χ² with 9 degrees.
    statistic = np.sum((held - n_agents / 2) ** 2) / (n_agents / 4) * 9 / 10
    assert statistic < 27.88


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_split_refuses_a_share_that_is_none(share):
    with pytest.raises(DataError, match="test_share must lie between 0 and 1"):
        three_agents().split(share, 0)


@pytest.mark.parametrize(
    ("value", "words"),
    [(np.nan, "missing value; fill it or drop the row"), (-np.inf, r"infinite value \(-inf\)")],
)
def test_non_finite_features_name_agent_column_and_the_callers_row(value, words):
    features = np.ones((4, 2))
    features[2, 1] = value
    with pytest.raises(DataError, match=f"agent 'anna', column 'height', row 3: {words}"):
        Population.from_arrays(
            features, np.ones(4), ["bob", "bob", "anna", "anna"], feature_names=["age", "height"]
        )


def test_non_finite_packed_values_name_agent_column_and_row():
    targets = np.ones(4)
    targets[3] = np.nan
    with pytest.raises(DataError, match="agent 'bob', column 'target', row 4: missing value"):
        Population.packed(np.ones((4, 1)), targets, np.array([0, 2, 2, 4]), agent_names=("anna", "cy", "bob"))


def test_non_finite_values_are_found_beyond_the_first_block():
    features = np.ones((3000, 700), dtype=np.float32)
    features[2900, 650] = np.inf
    with pytest.raises(DataError, match="agent '1', column 'x650', row 2901"):
        Population.packed(features, features[:, 0].copy(), np.array([0, 10, 3000]))


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ([0, 3, 2, 4], "offsets must not decrease: agent 1 would begin at 3 and end at 2"),
        ([1, 4], "start at 0 and end at the number of samples, 4; got 1 and 4"),
        ([0, 5], "got 0 and 5"),
        ([0], "one more entry than there are agents"),
        ([0.0, 4.0], "must be a list of integers"),
    ],
)
def test_offsets_that_do_not_cut_the_samples_are_refused(offsets, words):
    with pytest.raises(DataError, match=words):
        Population.packed(np.ones((4, 1)), np.ones(4), np.array(offsets))


def test_unsigned_offsets_that_decrease_are_refused_too():
    with pytest.raises(DataError, match="must not decrease"):
        Population.packed(np.ones((4, 1)), np.ones(4), np.array([0, 3, 2, 4], dtype=np.uint64))


@pytest.mark.parametrize(
    ("features", "targets", "words"),
    [
        (np.ones(4), np.ones(4), r"shape \(samples, features\), got \(4,\)"),
        (np.ones((4, 0)), np.ones(4), r"got \(4, 0\)"),
        (np.ones((4, 1)), np.ones((4, 1)), r"shape \(4,\), got \(4, 1\)"),
        (np.ones((4, 1)), np.ones(4, dtype="float32"), "float64 and float32; convert both first"),
        (np.ones((4, 1), dtype=int), np.ones(4, dtype=int), "int64 and int64; convert both first"),
        (np.ones((2, 4)).T, np.ones(4), "must be C-contiguous"),
    ],
)
def test_arrays_of_the_wrong_shape_or_type_are_refused(features, targets, words):
    with pytest.raises(DataError, match=words):
        Population.packed(features, targets, np.array([0, 4]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"features": [["red"], ["blue"]]}, "features must be numbers.*encode text and categories"),
        ({"features": [1.0, 2.0]}, r"features must have shape \(samples, features\), got \(2,\)"),
        ({"targets": [1.0]}, "2 rows of features, 1 targets, 2 agents: give one target and one agent"),
        ({"targets": ["yes", "no"]}, "targets must be numbers"),
        ({"agents": ["anna", None]}, "column 'agent', row 2: the agent is missing; fill it or drop"),
        ({"agents": ["", "anna"]}, "column 'agent', row 1: the agent is missing"),
        ({"agents": [1.0, 2.0]}, "agents must be text or integers, got double"),
        ({"agents": np.array(["anna", 3], dtype=object)}, "labels of several kinds"),
        ({"agents": [[0], [1]]}, r"one label per row, got an array of shape \(2, 1\)"),
        (
            {"agents": ["anna", "bob"], "agent_names": ["anna", "carl"]},
            r"agent 'bob', column 'agent', row 2: is not one of the agents given \('anna', 'carl'\)",
        ),
        (
            {"agents": [0, 2], "agent_names": ["anna", "carl"]},
            "row 2: position 2 is not among the 2 agent_names",
        ),
        ({"agent_names": ["anna", "anna"]}, "agent 'anna' occurs twice"),
        ({"agent_names": []}, "agent_names is empty"),
        ({"agent_names": [1.5]}, "agent 1.5 is not a name"),
        ({"feature_names": ["a", "b"]}, "2 feature names for 1 features"),
        ({"feature_names": [""]}, "feature '' is not a name"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64', got 'float16'"),
    ],
)
def test_arrays_with_wrong_values_or_names_are_refused(arguments, words):
    good = {"features": [[1.0], [2.0]], "targets": [1.0, 2.0], "agents": [0, 1]}
    with pytest.raises(DataError, match=words):
        Population.from_arrays(**(good | arguments))


def test_no_rows_need_named_agents():
    with pytest.raises(DataError, match="there are no rows"):
        Population.from_arrays(np.empty((0, 1)), [], [])
    empty = Population.from_arrays(np.empty((0, 1)), [], [], agent_names=["anna"])
    assert empty.sample_counts.tolist() == [0]


def test_names_must_match_the_number_of_agents():
    with pytest.raises(DataError, match="1 agent names for 2 agents"):
        Population.packed(np.ones((1, 1)), np.ones(1), np.array([0, 1, 1]), agent_names=["anna"])
