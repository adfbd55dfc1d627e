"""One model per agent from arrays and frames: against scikit-learn, by hand, and inside its tools."""

import io
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from flockwise import (
    FlockwiseError,
    FlockwiseWarning,
    GraphSource,
    PersonalizedClassifier,
    PersonalizedRegressor,
    Quadratic,
    SimilarityGraph,
)
from flockwise.errors import ObjectiveError
from flockwise.estimators.rows import FitRows
from flockwise.estimators.validation import gain_of


def people(seed: int = 0, n_agents: int = 24, classes: int = 0, smooth: bool = False) -> tuple[Any, Any, Any]:
    """Agents whose models differ around a common one, or along a circle: a frame, targets, and profiles."""
    random = np.random.default_rng(seed)
    counts = random.integers(3, 16, n_agents)
    who = np.repeat(np.arange(n_agents), counts)
    angle = 2 * np.pi * np.arange(n_agents) / n_agents
    away = np.column_stack([np.cos(angle), np.sin(angle)]) if smooth else random.normal(0, 0.5, (n_agents, 2))
    own = np.array([1.0, -1.0]) + 1.5 * away
    numbers = random.normal([5, -3], [2, 0.5], (len(who), 2))
    score = (own[who] * (numbers - [5, -3]) / [2, 0.5]).sum(axis=1)
    names = np.array([f"agent {k:02d}" for k in range(n_agents)])
    frame = pd.DataFrame({"who": names[who], "a": numbers[:, 0], "b": numbers[:, 1]})
    profiles = pd.DataFrame({"who": names, "east": np.cos(angle), "north": np.sin(angle)})
    if classes:
        noisy = np.column_stack([2 * k * score + random.gumbel(size=len(who)) for k in range(classes)])
        return frame, np.array(["no", "yes", "maybe"])[noisy.argmax(axis=1)], profiles
    return frame, 10 + 3 * score + random.normal(0, 1.0, len(who)), profiles


def plain(frame):
    return frame[["a", "b"]].to_numpy()


def test_without_agents_a_regressor_is_a_ridge_regression():
    frame, y, _ = people()
    ours = PersonalizedRegressor(prepare=None).fit(plain(frame), y)
    theirs = Ridge().fit(plain(frame), y)
    np.testing.assert_allclose(ours.predict(plain(frame)), theirs.predict(plain(frame)), rtol=1e-6)
    scaled = make_pipeline(StandardScaler(), Ridge()).fit(plain(frame), y)
    ours = PersonalizedRegressor().fit(plain(frame), y)
    np.testing.assert_allclose(ours.predict(plain(frame)), scaled.predict(plain(frame)), rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("class_weight", [None, "balanced", {"no": 3.0, "yes": 0.5, "maybe": 1.0}])
def test_without_agents_a_classifier_is_a_logistic_regression(classes, class_weight):
    frame, y, _ = people(classes=classes)
    weights = np.random.default_rng(1).uniform(0.1, 3, len(y))
    ours = PersonalizedClassifier(prepare=None, class_weight=class_weight)
    ours.fit(plain(frame), y, sample_weight=weights)
    theirs = LogisticRegression(tol=1e-10, max_iter=10_000, class_weight=class_weight)
    theirs.fit(plain(frame), y, sample_weight=weights)
    ours_say, theirs_say = (one.predict_proba(plain(frame)) for one in (ours, theirs))
    np.testing.assert_allclose(ours_say, theirs_say, atol=1e-5)
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    np.testing.assert_allclose(
        ours.decision_function(plain(frame)), theirs.decision_function(plain(frame)), atol=1e-3
    )


def test_a_weight_of_two_is_two_rows_for_every_agent_alone():
    frame, y, _ = people(classes=2)
    weights = np.random.default_rng(2).integers(0, 3, len(y))
    again = np.repeat(np.arange(len(y)), weights)
    model = PersonalizedClassifier(prepare=None, agent="who", l2=1.0, inner_folds=0)
    weighted = model.fit(frame, y, sample_weight=weights).local_models_
    repeated = model.fit(frame.iloc[again], y[again]).local_models_
    np.testing.assert_allclose(weighted, repeated, atol=1e-5)


def test_models_learned_together_are_better_than_pooled_and_than_alone():
    frame, y, _ = people(classes=2, n_agents=40)
    test = np.random.default_rng(3).random(len(y)) < 0.4
    model = PersonalizedClassifier(agent="who", inner_folds=3).fit(frame[~test], y[~test])
    known = frame[test]["who"].isin(frame[~test]["who"]).to_numpy()
    held_out, truth = frame[test][known], y[test][known]
    together = log_loss(truth, model.predict_proba(held_out))
    pooled = PersonalizedClassifier().fit(frame[~test][["a", "b"]], y[~test])
    assert pooled.method_ == "pooled"
    assert together < log_loss(truth, pooled.predict_proba(held_out[["a", "b"]]))
    model.models_ = model.local_models_
    assert together < log_loss(truth, model.predict_proba(held_out))


def test_groups_and_a_column_of_agents_give_the_same_models():
    frame, y, _ = people(n_agents=8)
    by_column = PersonalizedRegressor(agent="who", inner_folds=0).fit(frame, y)
    by_groups = PersonalizedRegressor(inner_folds=0).fit(plain(frame), y, groups=frame["who"])
    np.testing.assert_allclose(by_column.models_, by_groups.models_, rtol=1e-9)
    assert by_column.agents_.tolist() == by_groups.agents_.tolist() == sorted(set(frame["who"]))
    assert by_column.feature_names_in_.tolist() == ["who", "a", "b"]
    given = by_groups.predict(plain(frame), groups=frame["who"])
    np.testing.assert_allclose(by_column.predict(frame), given, rtol=1e-9)


def test_frames_of_every_library_give_the_same_models_and_come_back_as_they_came():
    frame, y, _ = people(n_agents=6)
    kinds = {"pandas": frame, "polars": pl.from_pandas(frame), "pyarrow": pa.Table.from_pandas(frame)}
    models = {}
    for library, data in kinds.items():
        model = PersonalizedRegressor(agent="who", inner_folds=2).fit(data, y)
        models[library] = model.models_
        assert type(model.gain_).__module__.startswith(library)
        assert type(model.coef_frame_).__module__.startswith(library)
        assert model.predict(data).shape == y.shape
    np.testing.assert_allclose(models["polars"], models["pandas"], rtol=1e-9)
    np.testing.assert_allclose(models["pyarrow"], models["pandas"], rtol=1e-9)


def test_the_frame_of_coefficients_predicts_by_hand():
    frame, y, _ = people(classes=2, n_agents=10)
    model = PersonalizedClassifier(agent="who", inner_folds=0).fit(frame, y)
    own = model.coef_frame_.loc[frame["who"]]
    by_hand = own["intercept"].to_numpy() + (own[["a", "b"]].to_numpy() * plain(frame)).sum(axis=1)
    np.testing.assert_allclose(model.decision_function(frame), by_hand, rtol=1e-9)


def test_the_gain_of_each_agent_comes_with_its_standard_error():
    frame, y, _ = people(n_agents=30)
    gain = PersonalizedRegressor(agent="who").fit(frame, y).gain_
    assert gain.index.tolist() == sorted(set(frame["who"]))
    assert gain["rows"].tolist() == frame.groupby("who").size().tolist()
    np.testing.assert_allclose(gain["alone"] - gain["together"], gain["gain"], rtol=1e-9)
    # Agents with few rows of a noisy number gain.
    assert gain["gain"].mean() > 0
    assert (gain["gain"] > 0).sum() > 1.5 * (gain["gain"] < 0).sum()
    assert (gain["standard_error"] > 0).all()


def test_an_agent_that_was_not_in_fit_gets_the_model_of_the_population_with_one_warning():
    frame, y, _ = people(n_agents=8)
    model = PersonalizedRegressor(agent="who", inner_folds=0).fit(frame, y)
    new = frame.head(5).assign(who=["x", "x", "y", "agent 00", "agent 00"])
    with pytest.warns(FlockwiseWarning, match="3 of 5 rows .* 2 in all") as caught:
        found = model.predict(new)
    assert len(caught) == 1
    by_hand = new[["a", "b"]].to_numpy() @ model.population_model_[:2] + model.population_model_[2]
    np.testing.assert_allclose(found[:3], by_hand[:3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(frame)


def test_along_a_graph_of_profiles_models_are_better_than_with_a_prior_alone():
    frame, y, profiles = people(n_agents=40, smooth=True)
    test = np.random.default_rng(4).random(len(y)) < 0.5
    options = {"agent": "who", "inner_folds": 3}
    prior = PersonalizedRegressor(**options).fit(frame[~test], y[~test])
    chosen = PersonalizedRegressor(graph="profiles", profiles=profiles, **options).fit(frame[~test], y[~test])
    assert chosen.method_ in ("graph", "both")
    assert chosen.tradeoff_ > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlockwiseWarning)
        assert chosen.score(frame[test], y[test]) > prior.score(frame[test], y[test])


def test_an_agent_that_was_not_in_fit_starts_from_the_nearest_profiles():
    frame, y, profiles = people(n_agents=40, smooth=True)
    new = (frame["who"] == "agent 07").to_numpy()
    model = PersonalizedRegressor(agent="who", graph="profiles", profiles=profiles, inner_folds=3)
    model.fit(frame[~new], y[~new])
    with pytest.warns(FlockwiseWarning, match="nearest profiles"):
        from_neighbors = model.score(frame[new], y[new])
    model.profiles = None
    plain_model = PersonalizedRegressor(agent="who", inner_folds=0).fit(frame[~new], y[~new])
    with pytest.warns(FlockwiseWarning, match="the model of the population"):
        assert from_neighbors > plain_model.score(frame[new], y[new])


def test_a_graph_can_be_a_named_matrix_edges_or_a_graph_of_this_package():
    frame, y, _ = people(n_agents=6)
    names = sorted(set(frame["who"]))
    pairs = [(names[k], names[(k + 1) % 6], 1.0) for k in range(6)]
    shuffled = names[::-1]
    matrix = pd.DataFrame(0.0, index=shuffled, columns=shuffled)
    for one, other, weight in pairs:
        matrix.loc[one, other] = matrix.loc[other, one] = weight
    edges = pd.DataFrame(pairs, columns=["source", "target", "weight"])
    ours = SimilarityGraph.from_edges(
        6, [(k, (k + 1) % 6) for k in range(6)], agent_names=names, source=GraphSource("edges")
    )
    in_order = matrix.loc[names, names].to_numpy()
    models = [
        PersonalizedRegressor(agent="who", graph=graph, method="graph", tradeoff=1.0, inner_folds=0)
        .fit(frame, y)
        .models_
        for graph in (pairs, edges, matrix, in_order, ours)
    ]
    for other in models[1:]:
        np.testing.assert_allclose(other, models[0], rtol=1e-9)


def test_the_tradeoff_is_searched_in_a_pipeline_with_a_column_of_agents():
    frame, y, _ = people(classes=2, n_agents=16)
    frame["color"] = np.where(np.arange(len(y)) % 3 == 0, "red", "blue")
    encoded = make_column_transformer(
        (StandardScaler(), ["a", "b"]),
        (OneHotEncoder(sparse_output=False, drop="first"), ["color"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    model = PersonalizedClassifier(agent="who", prepare=None, graph="models", method="graph", inner_folds=0)
    search = GridSearchCV(
        make_pipeline(encoded, model), {"personalizedclassifier__tradeoff": [0.1, 1.0, 10.0]}, cv=3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FlockwiseWarning)  # a fold may hold all rows of a small agent
        search.fit(frame, y)
        assert cross_val_score(search.best_estimator_, frame, y, cv=3).mean() > 0.6
    assert search.best_estimator_[-1].tradeoff_ == search.best_params_["personalizedclassifier__tradeoff"]


def test_the_tradeoff_is_searched_in_a_pipeline_with_groups_that_are_routed():
    frame, y, _ = people(n_agents=16)
    model = PersonalizedRegressor(graph="models", method="graph", inner_folds=0)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", FlockwiseWarning)
        routed: Any = model.set_fit_request(groups=True)
        routed.set_score_request(groups=True)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), routed),
            {"personalizedregressor__tradeoff": [0.1, 1.0, 10.0]},
            cv=3,
        )
        search.fit(plain(frame), y, groups=frame["who"].to_numpy())
    assert len(search.best_estimator_[-1].agents_) == 16
    assert search.best_score_ > 0.5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"agent": "whom"}, "no column 'whom'"),
        ({"agent": "who", "tradeoff": 2.0}, "need neighbors"),
        ({"agent": "who", "method": "best"}, "method must be one of"),
        ({"agent": "who", "graph": "profiles"}, "needs profiles="),
        ({"agent": "who", "graph": "friends"}, "graph must be"),
        ({"agent": "who", "bounds": {"a": (0, 1)}}, "for private fits"),
        ({"agent": "who", "l2": -1}, "l2 must be"),
        ({"prepare": None}, "column 'who' holds text"),
        ({"graph": "models"}, 'name the column with them, as in agent="patient"'),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(settings, words):
    frame, y, _ = people(n_agents=5)
    with pytest.raises(FlockwiseError, match=words):
        PersonalizedRegressor(**settings).fit(frame, y)


def test_rows_of_unknown_owners_are_refused():
    frame, y, _ = people(n_agents=5)
    model = PersonalizedRegressor(inner_folds=0).fit(plain(frame), y, groups=frame["who"])
    with pytest.raises(FlockwiseError, match="give groups="):
        model.predict(plain(frame))
    with pytest.raises(FlockwiseError, match="already; leave groups out"):
        PersonalizedRegressor(agent="who").fit(frame, y, groups=frame["who"])
    with pytest.raises(FlockwiseError, match="the fit knew no agents"):
        PersonalizedRegressor().fit(plain(frame), y).predict(plain(frame), groups=frame["who"])
    with pytest.raises(FlockwiseError, match=re.escape('.set_output(transform="pandas")')):
        PersonalizedRegressor(agent="who").fit(plain(frame), y)
    with pytest.raises(AttributeError, match="needs agents"):
        _ = PersonalizedRegressor().fit(plain(frame), y).gain_


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
def test_a_gap_in_agents_or_targets_is_named_by_its_row(gap):
    frame, y, _ = people(n_agents=5, classes=2)
    with pytest.raises(FlockwiseError, match="y, row 8: the target is missing"):
        PersonalizedClassifier(agent="who").fit(frame, np.array([*y[:7], gap, *y[8:]], dtype=object))
    # pandas makes fractions of whole numbers with a gap.
    numbers = [int(name[-2:]) for name in frame["who"]]
    numbers[4:5] = [gap]
    for who in (pd.Series(numbers, dtype=object), pd.Series(numbers, dtype="Int64").astype("float64")):
        with pytest.raises(FlockwiseError, match="column 'who', row 5: the agent is missing"):
            PersonalizedClassifier(agent="who").fit(frame.assign(who=who), y)
    if gap is not None:
        with pytest.raises(FlockwiseError, match="column 'groups', row 5: the agent is missing"):
            PersonalizedClassifier().fit(
                plain(frame), y, groups=pd.Series(numbers, dtype="Int64").astype("float64").to_numpy()
            )


def test_agents_with_numbers_are_found_by_their_numbers():
    frame, y, _ = people(n_agents=6)
    numbered = frame.assign(who=7 * frame["who"].str[-2:].astype(int))
    model = PersonalizedRegressor(agent="who", inner_folds=2).fit(numbered, y)
    assert 35 in model.agents_
    assert model.gain_.loc[7, "rows"] == (numbered["who"] == 7).sum()
    assert model.coef_frame_.index.tolist() == [0, 7, 14, 21, 28, 35]
    # 7 and "7" are the same agent all the same.
    as_text = numbered.assign(who=numbered["who"].astype(str))
    np.testing.assert_array_equal(model.predict(as_text), model.predict(numbered))


def test_categories_are_the_same_as_text_and_as_numbers_and_new_ones_are_counted_in_one_warning():
    frame, y, _ = people(n_agents=10)
    frame["code"], frame["size"] = np.where(frame["a"] > 5, 1234567, 7654321), "large"
    as_text = frame.assign(code=frame["code"].astype(str))
    model = PersonalizedRegressor(agent="who", inner_folds=0).fit(as_text, y)
    np.testing.assert_array_equal(model.predict(frame), model.predict(as_text))
    new = as_text.head(4).assign(code=["1234567", "x", "y", None], size=["large", "large", "small", "large"])
    with pytest.warns(FlockwiseWarning, match="2 of 4 rows hold categories .* 'code', 'size'") as caught:
        model.predict(new)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("right", [True, False])
def test_intervals_of_a_cut_column_are_written_as_pandas_writes_them(right):
    frame, y, _ = people(n_agents=6)
    frame["size"] = pd.cut(frame["a"], [-10.0, 4.5, 6.0, 20.0], right=right)
    model = PersonalizedRegressor(agent="who", inner_folds=0).fit(frame, y)
    named = [name.removeprefix("size=") for name in model.coef_frame_.columns if "size=" in name]
    assert len(named) == 2
    assert set(named) < set(map(str, frame["size"].cat.categories))
    as_text = frame.assign(size=frame["size"].astype(str))
    np.testing.assert_array_equal(model.predict(as_text), model.predict(frame))


def test_an_error_names_the_columns_that_a_person_put_there():
    frame, y, _ = people(n_agents=6)
    shuffled = frame.sample(frac=1, random_state=0)
    with pytest.raises(FlockwiseError, match=r"the columns are 'who', 'a', 'b'$"):
        PersonalizedRegressor(agent="whom").fit(shuffled, y)


def test_categories_that_were_rare_in_fit_are_not_new():
    frame, y, _ = people(n_agents=10)
    frame["kind"] = ["rare", *["a", "b"] * len(y)][: len(y)]
    model = PersonalizedRegressor(agent="who", inner_folds=0).fit(frame, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(frame)
    with pytest.warns(FlockwiseWarning, match="1 of 1 rows"):
        model.predict(frame.head(1).assign(kind="never seen"))


def test_a_weight_of_two_is_two_rows_in_the_gain_of_an_agent():
    random = np.random.default_rng(3)
    weights = np.array([1.0, 2.0, 2.0, 1.0, 3.0])
    again = np.repeat(np.arange(5), weights.astype(int))
    alone, together = random.random((2, 5))

    def gain(chosen, weights):
        owners = np.array([0, 0, 0, 1, 1])[chosen]
        zeros = np.zeros((len(chosen), 1))
        rows = FitRows.packed(zeros, zeros[:, 0], weights, owners, ("a", "b"), ("x",), Quadratic())
        return gain_of(rows, alone[chosen], together[chosen])

    weighted, repeated = gain(np.arange(5), weights), gain(again, np.ones(len(again)))
    for name in ("alone", "together", "gain"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name))
    # As many rows as there are tell less than if each were two.
    assert (weighted.standard_error > repeated.standard_error).all()


@pytest.mark.parametrize("model", [PersonalizedRegressor, PersonalizedClassifier])
def test_empty_frames_are_refused_in_fit_and_in_predict(model):
    frame, y, _ = people(n_agents=5, classes=0 if model is PersonalizedRegressor else 2)
    with pytest.raises(FlockwiseError, match="the frame has no rows"):
        model(agent="who").fit(frame.head(0), y[:0])
    fitted = model(agent="who", inner_folds=0).fit(frame, y)
    with pytest.raises(FlockwiseError, match="the frame has no rows"):
        fitted.predict(frame.head(0))


def test_targets_of_the_wrong_kind_are_refused_in_plain_words():
    frame, y, _ = people(n_agents=5, classes=2)
    with pytest.raises(FlockwiseError, match=rf"y, row 1: '{y[0]}' is no number; PersonalizedClassifier"):
        PersonalizedRegressor(agent="who").fit(frame, y)
    with pytest.raises(ValueError, match="only one class in y, 'no'; a classifier needs"):
        PersonalizedClassifier(agent="who").fit(frame, np.full(len(y), "no"))


def test_classes_may_be_listed_and_none_of_them_has_to_occur():
    frame, y, _ = people(n_agents=5, classes=2)
    labels = np.where(y == np.unique(y)[0], "no", "yes")
    listed, plain = (
        PersonalizedClassifier(agent="who", inner_folds=0, classes=classes).fit(frame, labels)
        for classes in (["yes", "no"], None)
    )
    np.testing.assert_array_equal(listed.models_, plain.models_)
    more = PersonalizedClassifier(agent="who", inner_folds=0, classes=["no", "perhaps", "yes"])
    chances = more.fit(frame, labels).predict_proba(frame)
    assert more.classes_.tolist() == ["no", "perhaps", "yes"]
    assert chances.shape[1] == 3
    assert set(more.predict(frame)) <= {"no", "yes"}
    with pytest.raises(FlockwiseError, match="two labels or more"):
        PersonalizedClassifier(agent="who", classes=["no", "no"]).fit(frame, labels)


@pytest.mark.parametrize("classes", [5, ["no", "yes", None]])
def test_classes_that_are_no_list_of_labels_are_refused_by_name(classes):
    frame, y, _ = people(n_agents=5, classes=2)
    said = (
        rf'classes must list labels of one kind, .*got {re.escape(repr(classes))}; .*classes=\["no", "yes"\]'
    )
    with pytest.raises(ObjectiveError, match=said):
        PersonalizedClassifier(agent="who", classes=classes).fit(frame, y)


def test_a_fit_in_a_terminal_shows_how_far_it_is(monkeypatch):
    frame, y, _ = people(n_agents=5)
    monkeypatch.setattr("flockwise.progress.PATIENCE", 0.0)
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    PersonalizedRegressor(agent="who", inner_folds=2).fit(frame, y)
    assert "validating" in screen.getvalue()
    assert "4 folds" in screen.getvalue()
