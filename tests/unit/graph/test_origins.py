"""What a guarantee says of graph and samples: nothing becomes public by being written in another form."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
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
    PublicModels,
    SimilarityGraph,
    angular_graph,
    knn_graph,
    linear_classification,
    profile_graph,
    simulate,
)
from flockwise.errors import GraphError, PrivacyError
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
    assert made.not_covered == ("the graph, built from models of local, made of private data without noise",)
    assert not made.is_private
    assert "models" in made.explain()


def test_a_source_with_a_misspelled_kind_is_refused():
    with pytest.raises(GraphError, match=r"no source 'profile'; say one of \"profiles\""):
        angular_graph(PUBLIC_VECTORS, source="profile")  # pyright: ignore[reportArgumentType]


BUILDERS = {
    "angular": lambda vectors, **said: angular_graph(vectors, threshold=0, **said),
    "nearest": lambda vectors, **said: knn_graph(vectors, 2, **said),
    "profiles": lambda vectors: profile_graph(vectors, k=2),
    "columns": lambda vectors: profile_graph({"a": vectors[:, 0], "b": np.arange(8.0)}, gamma=1.0),
}


@pytest.fixture(scope="module")
def private_run():
    graph = knn_graph(PUBLIC_VECTORS, 2, source=GraphSource("vectors", private=False))
    problem = Problem(TASK.train, graph, Objective(feature_bound=2.0, max_samples=100))
    method = CoordinateDescent(privacy=PrivateUpdates(Budget(0.5, 1e-6), 2))
    return simulate(problem, method, updates=2, engine="reference", seed=1)


@pytest.mark.parametrize("build", BUILDERS)
def test_a_graph_of_models_that_were_not_released_is_private_without_a_word(build, private_run):
    for models in (simulate(Problem(TASK.train), Local()).models, private_run.own_models):
        graph = BUILDERS[build](models)
        assert graph.source.status == "private"
        [words] = guarantee_of(graph).not_covered
        assert "made of private data without noise" in words
        assert "derived from private data" in graph.describe()


@pytest.mark.parametrize("build", BUILDERS)
def test_a_graph_of_released_models_is_covered_and_costs_what_they_did(build, private_run):
    graph = BUILDERS[build](private_run.models)
    made = guarantee_of(graph)
    assert graph.source.status == "released"
    assert made.not_covered == ()
    assert made.epsilon == (1.5, 1.5)
    assert made.released_before == ("the graph, built from models released by cd",)
    assert "models released by cd" in graph.describe()


@pytest.mark.parametrize(
    "mix",
    [
        lambda released, own: np.insert(released[1:], 0, own[0], axis=0),
        lambda released, own: np.where(np.arange(8)[:, None] == 0, own, released),
        lambda released, own: 0 * released + own,
        lambda released, own: own.round(3),
        lambda released, own: np.add(released, own, out=np.empty(own.shape)),
    ],
)
def test_own_models_among_released_ones_are_no_start(mix, private_run):
    with pytest.raises(PrivacyError, match="made of private data without noise"):
        PublicModels(mix(private_run.models, private_run.own_models), source="pretraining")


def test_a_copy_of_released_models_is_not_covered_and_costs_what_they_did(private_run):
    copied = private_run.models.copy()
    copied[0] = np.asarray(private_run.own_models)[0]
    for source in (None, "a model published in 2019"):
        origin = PublicModels(copied, source).origin
        assert not origin.is_covered
        assert origin.spent == private_run.models.origin.spent


def written(run, which, folder):
    run.to_parquet(folder / "models.parquet", which=which)
    return folder / "models.parquet"


EXPORTS = {
    "data frame": lambda run, which, folder: run.to_pandas(which=which).reset_index(),
    "file read by pyarrow": lambda run, which, folder: pq.read_table(written(run, which, folder)),
    "file read by pandas": lambda run, which, folder: pd.read_parquet(written(run, which, folder)),
    "part of a file": lambda run, which, folder: (
        pq.read_table(written(run, which, folder)).slice(0, 8).to_pandas()
    ),
}


@pytest.mark.parametrize("form", EXPORTS)
def test_exported_models_know_where_they_came_from(form, private_run, tmp_path):
    """Own models do not become public profiles in a file; released ones cost what they did."""
    own, released = (EXPORTS[form](private_run, which, tmp_path) for which in ("own", "released"))
    made = guarantee_of(profile_graph(own, agent="agent", k=2))
    assert made.not_covered == ("the graph, built from own models, made of private data without noise",)
    assert not made.is_private
    made = guarantee_of(profile_graph(released, agent="agent", k=2))
    assert (made.not_covered, made.epsilon) == ((), (1.5, 1.5))
    with pytest.raises(PrivacyError, match="they are not a start for a private run"):
        PublicModels(own)


def with_own_row(frame, own):
    frame.iloc[0] = own.iloc[0]
    return frame


def in_a_file(change):
    def changed(frame, own, folder):
        change(frame, own).to_parquet(folder / "changed.parquet")
        return pd.read_parquet(folder / "changed.parquet")

    return changed


CHANGES = {
    "a row": lambda frame, own, folder: with_own_row(frame, own),
    "a row, in a file": in_a_file(with_own_row),
    "one number": lambda frame, own, folder: frame.replace(frame.iloc[2, 1], own.iloc[2, 1]),
    "a column": lambda frame, own, folder: frame.assign(more=own.iloc[:, 0]),
    "text": lambda frame, own, folder: frame.assign(more=own.iloc[:, 0].astype(str)),
    "a part": lambda frame, own, folder: frame.iloc[:4],
    "names": lambda frame, own, folder: frame.rename(index=lambda name: f"{name}a"),
    "Arrow": lambda frame, own, folder: pa.table(frame).set_column(0, "x", pa.array(own.iloc[:, 0])),
}


@pytest.mark.parametrize("change", CHANGES)
def test_exported_models_that_were_changed_are_of_unknown_origin(change, private_run, tmp_path):
    released, own = (private_run.to_pandas(which) for which in ("released", "own"))
    assert PublicModels(released).origin.status == "released"
    origin = PublicModels(CHANGES[change](released, own, tmp_path)).origin
    assert (origin.status, origin.spent) == ("unknown", ((0.5, 0.5), (1e-6, 1e-6)))
    assert "models released by cd, changed since the export" in origin.words
    with pytest.raises(PrivacyError, match="they are not a start for a private run"):
        PublicModels(CHANGES[change](own, private_run.to_pandas("released"), tmp_path))


def test_a_private_run_from_changed_models_is_not_covered(private_run):
    graph = knn_graph(PUBLIC_VECTORS, 2, source=GraphSource("vectors", private=False))
    problem = Problem(TASK.train, graph, Objective(feature_bound=2.0, max_samples=100))
    released, own = (private_run.to_pandas(which) for which in ("released", "own"))
    for start, is_private in ((released, True), (with_own_row(released.copy(), own), False)):
        method = CoordinateDescent(PublicModels(start), PrivateUpdates(Budget(1.0, 1e-5), 2))
        made = simulate(problem, method, updates=1, engine="reference", seed=2).guarantee
        assert made is not None
        assert (made.is_private, made.epsilon) == (is_private, (1.5, 1.5))


def test_exported_models_in_another_order_of_the_columns_are_known(private_run):
    frame = private_run.to_pandas("released")
    for again in (frame[frame.columns[::-1]], frame.reset_index(), pa.table(frame), frame.copy()):
        assert PublicModels(again).origin.status == "released"


def test_models_exported_without_privacy_are_not_public_profiles(tmp_path):
    run = simulate(Problem(TASK.train), Local())
    [words] = guarantee_of(profile_graph(run.to_pandas().reset_index(), agent="agent", k=2)).not_covered
    assert words.endswith("models of local, made of private data without noise")


def test_a_column_that_is_called_origin_is_a_column(tmp_path):
    profiles = pd.DataFrame({"origin": ["here", "there"] * 4})
    assert profile_graph(profiles, k=2).source.status == "public"


@pytest.mark.parametrize("build", ["angular", "nearest"])
@pytest.mark.parametrize("said", [GraphSource("vectors", private=False), "profiles"])
def test_no_source_makes_private_models_public(build, said, private_run):
    with pytest.raises(GraphError, match="it is built from own models, made of private data"):
        BUILDERS[build](private_run.own_models, source=said)
    assert BUILDERS[build](private_run.models, source=said).source.status == "released"
    assert BUILDERS[build](private_run.models, source="models").source.status == "private"


def test_weights_of_a_matrix_or_of_edges_know_their_origin(private_run):
    own = private_run.own_models
    weights = np.abs(own @ own.T) * (1 - np.eye(8)) + 0
    said = GraphSource("matrix", private=False)
    pairs = np.array([[0, 1], [1, 2]])
    for build in (
        lambda: SimilarityGraph.from_scipy(weights, said),
        lambda: SimilarityGraph.from_edges(8, pairs, weights[0, 1:3], source=said),
    ):
        with pytest.raises(GraphError, match="it is built from own models"):
            build()
    graph = SimilarityGraph.from_edges(8, pairs, weights[0, 1:3])
    assert graph.source.status == "private"
    assert graph.in_order([str(agent) for agent in range(8)]).source == graph.source


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
