"""What a guarantee says of graph and samples: nothing becomes public by being written in another form."""

import numpy as np
import pytest

from flockwise import (
    Budget,
    CoordinateDescent,
    GraphSource,
    Local,
    Objective,
    Population,
    PrivateUpdates,
    Problem,
    SimilarityGraph,
    angular_graph,
    knn_graph,
    linear_classification,
    simulate,
)
from flockwise.privacy.origin import Origin

TASK = linear_classification(8, 3, seed=0)
PUBLIC_VECTORS = np.random.default_rng(0).normal(size=(8, 2))


def guarantee_of(graph, population=TASK.train):
    problem = Problem(population, graph, Objective(feature_bound=2.0, max_samples=100))
    method = CoordinateDescent(privacy=PrivateUpdates(Budget(1.0, 1e-5), 2))
    made = simulate(problem, method, updates=2, engine="reference").guarantee
    assert made is not None
    return made


@pytest.fixture(scope="module")
def graph_of_models():
    return angular_graph(simulate(Problem(TASK.train), Local()).models, source="models", threshold=0)


def test_a_graph_from_models_is_named_as_not_covered(graph_of_models):
    made = guarantee_of(graph_of_models)
    assert made.not_covered == ("the graph, built from models",)
    assert not made.is_private
    assert "models" in made.explain()


@pytest.mark.parametrize(
    "again",
    [
        lambda graph: SimilarityGraph.from_scipy(graph.to_scipy()),
        lambda graph: SimilarityGraph.from_scipy(graph.to_scipy().toarray()),
        lambda graph: SimilarityGraph.from_networkx(graph.to_networkx()),
        lambda graph: SimilarityGraph.from_edges(
            8, np.argwhere(np.triu(graph.to_scipy().toarray())), source="edges"
        ),
    ],
    ids=["sparse matrix", "dense matrix", "networkx", "edges"],
)
def test_a_graph_from_models_does_not_become_public_in_another_form(graph_of_models, again):
    """Who gives a bare matrix has not said where it comes from, so nothing is promised about it."""
    made = guarantee_of(again(graph_of_models))
    [words] = made.not_covered
    assert words.endswith("of unknown origin")
    assert not made.is_private


def test_vectors_of_unknown_origin_are_not_covered():
    for graph in (angular_graph(PUBLIC_VECTORS, threshold=0), knn_graph(PUBLIC_VECTORS, 2)):
        assert guarantee_of(graph).not_covered == ("the graph, built from vectors, of unknown origin",)


def test_a_graph_that_is_said_to_be_public_is_covered():
    source = GraphSource("vectors", "published coordinates", private=False)
    made = guarantee_of(angular_graph(PUBLIC_VECTORS, threshold=0, source=source))
    assert made.not_covered == ()
    assert made.is_private


def test_models_targets_and_ratings_cannot_be_called_public():
    for kind in ("models", "targets", "ratings"):
        assert GraphSource(kind, private=False).status == "private"


@pytest.mark.parametrize(
    "derived",
    [
        lambda population: population.split(0.5, 0)[0],
        lambda population: population.split(0.5, 0)[1],
        lambda population: population.astype("float32"),
        lambda population: population.with_intercept(),
        lambda population: population.select(range(8)),
        lambda population: population.with_samples(2 * population.features, population.targets),
    ],
    ids=["train", "test", "float32", "intercept", "select", "other numbers"],
)
def test_features_fitted_on_private_data_are_named_whatever_is_made_of_the_samples(derived):
    fitted = Origin("the features, principal components of all samples", "private")
    train = TASK.train
    population = Population.packed(train.features, train.targets, train.offsets, origins=[fitted])
    graph = knn_graph(PUBLIC_VECTORS, 2, source=GraphSource("vectors", private=False))
    assert guarantee_of(graph, derived(population)).not_covered == (fitted.what,)
