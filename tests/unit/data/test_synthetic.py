"""The synthetic task: its laws, its seeds, and its choices."""

from __future__ import annotations

import numpy as np
import pytest

from flockwise.data import linear_classification, synthetic
from flockwise.errors import DataError


def true_labels(task, population):
    owners = np.repeat(np.arange(population.n_agents), population.sample_counts)
    return np.where(np.einsum("ij,ij->i", population.features, task.targets[owners]) >= 0, 1, -1)


def test_the_papers_sizes_are_the_defaults():
    task = linear_classification()
    assert (task.train.n_agents, task.train.n_features) == (100, 100)
    assert task.train.sample_counts.min() >= 10
    assert task.train.sample_counts.max() <= 100
    assert set(task.test.sample_counts) == {100}
    assert task.train.dtype == np.float64
    assert set(np.unique(task.train.targets)) == {-1, 1}


def test_sample_counts_include_both_ends():
    task = linear_classification(200, 2, min_samples=0, max_samples=3, test_samples=0)
    assert set(task.train.sample_counts) == {0, 1, 2, 3}
    assert task.test.n_samples == 0
    assert task.test.n_agents == 200


def test_targets_are_zero_beyond_the_informative_coordinates():
    task = linear_classification(500, 10, informative=3, test_samples=1)
    assert np.all(task.targets[:, :3] != 0)
    assert np.all(task.targets[:, 3:] == 0)
    # 1500 standard normals: mean and mean square within 5 standard errors (false alarm below 1e-6).
    assert abs(task.targets[:, :3].mean()) < 5 / np.sqrt(1500)
    assert abs((task.targets[:, :3] ** 2).mean() - 1) < 5 * np.sqrt(2 / 1500)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("noisy_test", [False, True])
def test_labels_are_flipped_with_the_stated_probability(rotated, noisy_test):
    task = linear_classification(100, 20, rotated=rotated, noisy_test=noisy_test, label_noise=0.05, seed=4)
    flipped = true_labels(task, task.train) != task.train.targets
    # Binomial of about 5500 and 10 000 draws: within 5 standard deviations (false alarm below 1e-6).
    assert abs(flipped.mean() - 0.05) < 5 * np.sqrt(0.05 * 0.95 / len(flipped))
    test_flipped = true_labels(task, task.test) != task.test.targets
    if noisy_test:
        assert abs(test_flipped.mean() - 0.05) < 5 * np.sqrt(0.05 * 0.95 / len(test_flipped))
    else:
        assert not test_flipped.any()


def test_features_follow_the_law_that_was_asked_for():
    uniform = linear_classification(100, 20, seed=1).train.features
    assert np.abs(uniform).max() <= 1
    assert abs(uniform.var() - 1 / 3) < 0.005
    gaussian = linear_classification(100, 20, seed=1, features="gaussian").train.features
    assert abs(gaussian.var() - 1 / 2) < 0.015
    assert abs((gaussian**4).mean() / gaussian.var() ** 2 - 3) < 0.2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rotation_is_orthogonal_and_changes_nothing_but_the_axes(dtype):
    plain = linear_classification(20, 10, seed=2, dtype=dtype)
    turned = linear_classification(20, 10, seed=2, dtype=dtype, rotated=True)
    assert turned.rotated
    assert not plain.rotated
    rotation = turned.rotation
    assert rotation is not None
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(10), atol=1e-12)
    np.testing.assert_allclose(turned.targets, plain.targets @ rotation.T, atol=1e-12)
    np.testing.assert_allclose(turned.train.features, plain.train.features @ rotation.T, atol=1e-5)
    np.testing.assert_array_equal(turned.train.targets, plain.train.targets)
    assert np.all(np.abs(turned.targets) > 1e-6)


def test_one_seed_gives_one_task_and_another_seed_another():
    first, again, other = (linear_classification(30, 5, seed=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.train.features, again.train.features)
    np.testing.assert_array_equal(first.test.targets, again.test.targets)
    assert not np.array_equal(first.targets, other.targets)
    assert first.train.features[0, 0] != other.train.features[0, 0]


def test_profiles_are_targets_with_noise_and_change_nothing_else():
    plain, exact = (
        linear_classification(2000, 4, seed=3, max_samples=10, test_samples=1, profile_noise=s)
        for s in (0.5, 0)
    )
    np.testing.assert_array_equal(exact.profiles, exact.targets[:, :2])
    assert abs((plain.profiles - exact.profiles).std() - 0.5) < 0.03  # 3.7 standard errors
    np.testing.assert_array_equal(plain.train.features, exact.train.features)
    np.testing.assert_array_equal(plain.test.targets, exact.test.targets)


def test_train_and_test_are_different_draws():
    task = linear_classification(5, 3)
    assert not np.intersect1d(task.train.features, task.test.features).size


def test_no_chunk_repeats_another():
    n_agents = 2 * synthetic.AGENTS_PER_CHUNK + 5
    task = linear_classification(n_agents, 2, min_samples=1, max_samples=2, test_samples=1)
    assert len(np.unique(task.train.features)) == task.train.features.size
    assert np.all(true_labels(task, task.test) == task.test.targets)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_agents": 0}, "n_agents must be at least 1, got 0"),
        ({"min_samples": 5, "max_samples": 4}, "0 ≤ min ≤ max, got 5 and 4"),
        ({"min_samples": -1}, "got -1 and 100"),
        ({"test_samples": -1}, "test_samples must not be negative, got -1"),
        ({"label_noise": 1.5}, "label_noise is a probability between 0 and 1, got 1.5"),
        ({"profile_noise": -0.1}, "profile_noise must not be negative, got -0.1"),
        ({"informative": 0}, "informative must lie between 1 and dimension = 3, got 0"),
        ({"informative": 4}, "informative must lie between 1 and dimension = 3, got 4"),
        ({"features": "cauchy"}, "features must be one of .*'uniform', 'gaussian'.*got 'cauchy'"),
        ({"dtype": "int32"}, "dtype must be 'float32' or 'float64'"),
    ],
)
def test_settings_outside_their_limits_are_refused(arguments, words):
    with pytest.raises(DataError, match=words):
        linear_classification(**({"n_agents": 2, "dimension": 3} | arguments))
