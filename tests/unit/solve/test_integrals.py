"""Models of agents with few samples are integrated out in a cheaper way, and to the same numbers."""

import numpy as np

from flockwise.solve.integrals import _dense, parts_of


def sums(parts, root, mean, covariance):
    """Of all agents: what the evidence needs, and how far models are pulled away, whatever their order."""
    found = [part.integrated(root) for part in parts]
    away = np.vstack([one.away(mean) for one in found])
    return [
        sum(one.total for one in found),
        sum(one.pulled.sum(axis=0) for one in found),
        sum(one.height for one in found),
        sum(one.explained for one in found),
        sum(one.known(covariance) for one in found),
        away.T @ away,
    ]


def test_agents_of_few_samples_have_the_same_integrals_as_by_full_matrices():
    random = np.random.default_rng(0)
    p = 20
    features = [random.normal(size=(rows, p)) for rows in (1, 1, 2, 3, 5, 0, 18, 40)]
    features.append(np.vstack([features[3], features[3]]))  # of rank 3 all the same
    hessians = np.array([own.T @ own for own in features])
    linear = np.array([own.T @ random.normal(size=len(own)) for own in features])
    root, mean = random.normal(size=(p, p)), random.normal(size=p)
    covariance = np.eye(p) + 0.1
    parts = list(parts_of(hessians, linear))
    assert sum(type(part).__name__ == "_Thin" for part in parts) == 4  # of rank 1, 2, 3 and 5
    whole = _dense(hessians, linear, np.arange(len(linear)))
    for ours, by_full in zip(
        sums(parts, root, mean, covariance), sums(whole, root, mean, covariance), strict=True
    ):
        np.testing.assert_allclose(ours, by_full, rtol=1e-8)
