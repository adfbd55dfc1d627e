"""A private fit: what it guarantees, what it refuses, and what leaves it."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.base
from sklearn.model_selection import GridSearchCV
from tests.unit.estimators.test_personalized import people

from flockwise import (
    Budget,
    FlockwiseError,
    FlockwiseWarning,
    LearnedPrior,
    Objective,
    PersonalizedClassifier,
    PersonalizedRegressor,
    Population,
    Problem,
    Quadratic,
    SimilarityGraph,
    choose_tradeoff,
    simulate,
)
from flockwise.estimators.columns import columns_of_frame
from flockwise.estimators.preparation import public
from flockwise.method import candidates
from flockwise.planner.recommendation import Group, Recommendation
from flockwise.planner.trials import Expectation, Trial
from flockwise.results.tuning import CHOSEN

BUDGET = Budget(1.0, 1e-5)
BOUNDS = {"a": (-1, 11), "b": (-5, -1)}
RANGE = (-5, 25)


def clone(model) -> Any:
    return sklearn.base.clone(model)


def private(**settings) -> Any:
    return PersonalizedRegressor(
        **{
            "agent": "who",
            "method": "prior",
            "budget": BUDGET,
            "bounds": BOUNDS,
            "target_range": RANGE,
            "inner_folds": 0,
        }
        | settings
    )


def test_a_private_fit_is_the_learned_prior_on_public_scales():
    frame, y, _ = people(n_agents=200)
    model = private(random_state=3).fit(frame, y)
    seed = int(np.random.RandomState(3).randint(2**31))
    numbers = (frame[["a", "b"]].to_numpy() - [5, -3]) / [6, 2]
    population = Population.from_arrays(numbers, (y - 10) / 15, frame["who"].to_numpy()).with_intercept()
    objective = Objective(Quadratic(), feature_bound=np.sqrt(3), target_range=(-1.0, 1.0))
    run: Any = simulate(Problem(population, None, objective), LearnedPrior(BUDGET), seed=seed)
    scores = (
        np.einsum("rf,rf->r", numbers, run.own_models[:, :2][_places(frame)])
        + run.own_models[_places(frame), 2]
    )
    np.testing.assert_allclose(model.predict(frame), 10 + 15 * scores, rtol=1e-9)
    assert model.guarantee_.spent == run.guarantee.spent
    assert model.guarantee_.is_private
    # Steps of a pipeline before the fit are not seen here.
    assert "made from each row alone" in model.guarantee_.explain()
    # For agents that took no part there is what was released, and nothing else.
    released = np.asarray(run.models)[0]
    by_hand = 10 + 15 * (numbers[:2] @ released[:2] + released[2])
    with pytest.warns(FlockwiseWarning, match="2 of 2 rows"):
        np.testing.assert_allclose(model.predict(frame.head(2).assign(who="new")), by_hand, rtol=1e-9)


def _places(frame):
    return np.unique(frame["who"], return_inverse=True)[1]


def test_the_noise_of_a_private_fit_is_secret_unless_a_seed_was_given():
    frame, y, _ = people(n_agents=200)
    drawn = [private().fit(frame, y).population_model_ for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 0
    seeded = [private(random_state=1).fit(frame, y).population_model_ for _ in range(2)]
    np.testing.assert_array_equal(*seeded)


def test_nothing_public_of_a_private_fit_depends_on_the_rows_but_through_the_noise():
    frame, y, _ = people(n_agents=200)
    changed = frame.copy()
    # Far beyond the bounds, in one row: scales and names stay, and the model of the population hardly moves.
    changed.loc[0, ["a", "b"]] = 1e6, -1e6
    models = [private(random_state=5).fit(data, y) for data in (frame, changed)]
    assert models[0]._preparation == models[1]._preparation
    assert dataclasses.asdict(models[0].guarantee_) == dataclasses.asdict(models[1].guarantee_)
    away = np.abs(models[0].population_model_ - models[1].population_model_)
    assert (away < 0.2 * np.abs(models[0].population_model_)).all()


def test_the_gain_of_a_private_fit_is_marked_as_not_covered():
    frame, y, _ = people(n_agents=200)
    gain = private(inner_folds=2, budget=Budget(10.0, 1e-5), random_state=0).fit(frame, y).gain_
    assert not gain["covered_by_guarantee"].any()
    assert "covered_by_guarantee" not in PersonalizedRegressor(agent="who", inner_folds=2).fit(frame, y).gain_


def test_a_tradeoff_that_was_chosen_on_samples_is_marked_as_not_covered(monkeypatch):
    def first_over_the_graph(facts, report):
        """In place of a plan, whose trials take long."""
        offered = (one for one in candidates(facts) if one.tradeoff is not None)
        return SimpleNamespace(chosen=next(offered))

    monkeypatch.setattr("flockwise.estimators.private.plan_run", first_over_the_graph)
    frame, y, _ = people(n_agents=30, smooth=True)
    names = sorted(set(frame["who"]))
    ring = SimilarityGraph.from_edges(30, [(k, (k + 1) % 30) for k in range(30)], agent_names=names)
    numbers = (frame[["a", "b"]].to_numpy() - [5, -3]) / [6, 2]
    rows = Population.from_arrays(numbers, (y - 10) / 15, frame["who"].to_numpy()).with_intercept()
    chosen = choose_tradeoff([(Problem(rows, ring, Objective(Quadratic())), rows)], [0.1, 1.0]).best
    fitted = [
        private(method="auto", graph=ring, tradeoff=one).fit(frame, y) for one in (chosen, float(chosen))
    ]
    assert [CHOSEN.words in model.guarantee_.not_covered for model in fitted] == [True, False]


def test_who_asks_for_the_graph_does_not_get_a_prior(monkeypatch):
    """Even if a plan promises more of it: it protects against another adversary."""

    def prior_alone(facts, report):
        [prior] = [one for one in candidates(facts) if isinstance(one.method, LearnedPrior)]
        trial = Trial("any", 0.5, 0.5, 1.0, 0.5, 3.0, 24.0)
        return Recommendation(facts, (Group(True, 30, 1.0, (Expectation(prior, (trial, trial)),)),))

    monkeypatch.setattr("flockwise.estimators.private.plan_run", prior_alone)
    frame, y, _ = people(n_agents=200)
    names = sorted(set(frame["who"]))
    ring = SimilarityGraph.from_edges(200, [(k, (k + 1) % 200) for k in range(200)], agent_names=names)
    assert private(method="auto", graph=ring).fit(frame, y).method_ == "learned prior"
    with pytest.warns(FlockwiseWarning, match="expects no gain"):
        assert private(method="graph", graph=ring).fit(frame, y).method_ == "alone"


def test_a_search_over_private_fits_says_that_it_is_not_covered():
    frame, y, _ = people(n_agents=200)
    assert clone(private()).fit(frame, y).guarantee_.is_private is False
    with pytest.warns(FlockwiseWarning):  # a fold may hold all rows of a small agent
        search = GridSearchCV(private(), {"budget": [Budget(0.5, 1e-5), BUDGET]}, cv=2).fit(frame, y)
    assert "search" in search.best_estimator_.guarantee_.label


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bounds": None}, r"column 'a'.*give bounds="),
        ({"bounds": {"a": (0, 1)}}, r"column 'b'.*give bounds="),
        ({"bounds": BOUNDS | {"c": (0, 1)}}, "'c', but the columns are"),
        ({"bounds": BOUNDS | {"a": (1, 0)}}, "the smaller first"),
        ({"target_range": None}, "give target_range="),
        ({"graph": "models"}, 'graph="profiles" with public profiles'),
        ({"method": "both", "graph": "profiles"}, "no private form"),
        ({"prepare": None}, "public bounds"),
        ({"budget": 1.0}, "must be a flockwise.Budget"),
        ({"agent": None, "categories": {"who": ["x", "y"]}}, "a single agent sends nothing"),
    ],
)
def test_what_would_leak_is_refused_with_what_to_do_instead(settings, words):
    frame, y, _ = people(n_agents=10)
    with pytest.raises(FlockwiseError, match=words):
        private(**settings).fit(frame, y)


def test_weights_and_unlisted_categories_and_many_classes_are_refused():
    frame, y, _ = people(n_agents=10, classes=2)
    model = private_classifier()
    with pytest.raises(FlockwiseError, match="sample_weight"):
        model.fit(frame, y, sample_weight=np.ones(len(y)))
    with pytest.raises(FlockwiseError, match="class_weight"):
        clone(model).set_params(class_weight="balanced").fit(frame, y)
    with pytest.raises(FlockwiseError, match="categories="):
        model.fit(frame.assign(color="red"), y)
    with pytest.raises(FlockwiseError, match="a private fit takes two"):
        private_classifier(classes=["no", "perhaps", "yes"]).fit(frame, y)


def private_classifier(**settings) -> Any:
    public: dict[str, Any] = {"bounds": BOUNDS, "classes": ["no", "yes"], "method": "prior"}
    return PersonalizedClassifier(agent="who", budget=BUDGET, inner_folds=0, **public | settings)


def test_the_classes_of_a_private_fit_are_those_that_were_listed_whichever_the_rows_have():
    frame, y, _ = people(n_agents=200, classes=2)
    labels = np.where(y == np.unique(y)[0], "no", "yes")
    with pytest.raises(FlockwiseError, match=r'which labels occur would leak.*classes=\["no", "yes"\]'):
        private_classifier(classes=None).fit(frame, labels)
    # One label, both, or both under other names: the same signs, and no error that depends on the rows.
    for given in (np.full(len(y), "yes"), np.full(len(y), "no"), labels):
        fitted = private_classifier(classes=["yes", "no"], random_state=0).fit(frame, given)
        assert fitted.classes_.tolist() == ["no", "yes"]
    renamed = private_classifier(classes=[False, True], random_state=0).fit(frame, labels == "yes")
    np.testing.assert_array_equal(renamed.population_model_, fitted.population_model_)


def test_a_label_that_is_not_listed_is_refused_and_not_shown():
    frame, y, _ = people(n_agents=200, classes=2)
    labels = np.where(y == np.unique(y)[0], "no", "yes").astype(object)
    labels[6] = "secret"
    with pytest.raises(
        FlockwiseError, match=r"y holds a label that is none of classes=\['no', 'yes'\]"
    ) as caught:
        private_classifier().fit(frame, labels)
    assert "secret" not in str(caught.value)


def test_too_few_agents_for_the_noise_keep_the_models_that_they_learned_alone():
    frame, y, _ = people(n_agents=5)
    with pytest.warns(FlockwiseWarning, match="learned alone, because with 3 features the noise") as caught:
        model = private(inner_folds=2).fit(frame, y)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(model.models_, model.local_models_)
    assert model.method_ == "alone"
    assert (model.gain_["gain"] == 0).all()


def far_apart():
    """Agents whose common mean tells nothing of each."""
    random = np.random.default_rng(5)
    who = np.repeat(np.arange(100), 10)
    frame = pd.DataFrame({"who": who, "x": random.normal(size=len(who))})
    return frame, random.normal(0, 3, 100)[who] + 0.3 * frame["x"] + random.normal(0, 0.3, len(who))


def test_without_a_graph_a_plan_decides_too_unless_a_method_was_named():
    frame, y = far_apart()
    settings: Any = {"bounds": {"x": (-3, 3)}, "target_range": (-12, 12), "inner_folds": 2, "random_state": 0}
    with pytest.warns(FlockwiseWarning, match="a plan expects no gain") as caught:
        advised = private(method="auto", **settings | {"budget": Budget(0.1, 1e-5)}).fit(frame, y)
    # Runs that are tried have nothing to say.
    assert [one.filename for one in caught] == [__file__]
    assert (advised.method_, advised.guarantee_) == ("alone", None)
    np.testing.assert_array_equal(advised.models_, advised.local_models_)
    with pytest.warns(FlockwiseWarning, match="clearly worse than those that agents learn alone"):
        named = private(method="prior", **settings).fit(frame, y)
    assert named.method_ == "learned prior"
    assert named.gain_["gain"].mean() < 0


CODES = (1234567, 7654321)


@pytest.mark.parametrize(
    ("values", "listed"),
    [
        ((False, True), [False, True]),
        ((False, True), [0, 1]),
        ((1.0, 2.0), [1.0, 2.0]),
        ((1.0, 2.5), [1, 2.5]),
        (CODES, list(CODES)),
        (CODES, [str(code) for code in CODES]),
        (("1234567", "7654321"), list(CODES)),
        (pd.Categorical([False, True]), [False, True]),
        (pd.Categorical([1.0, 2.0]), [1, 2]),
        ((None, "a"), [None, "a"]),
    ],
)
def test_listed_categories_are_found_however_they_are_written(values, listed):
    column = pd.Series(values)
    found = public(columns_of_frame(pd.DataFrame({"kind": column}), None), None, {"kind": listed})
    numbers = found(columns_of_frame(pd.DataFrame({"kind": column}), None))
    assert numbers.ravel().tolist() == [0.0, 1.0]


def test_a_list_of_categories_that_fits_no_row_is_refused_and_one_that_fits_some_is_warned_of():
    frame, y, _ = people(n_agents=50)
    frame["kind"] = np.where(frame["a"] > 5, "secret one", "secret two")
    with pytest.raises(FlockwiseError, match="no row holds one of") as refused:
        private(categories={"kind": ["first", "second"]}).fit(frame, y)
    with pytest.warns(FlockwiseWarning, match="count as the first of these") as caught:
        private(categories={"kind": ["secret one", "another"]}).fit(frame, y)
    assert caught[0].filename == __file__
    # Words tell nothing but the list.
    assert "secret" not in str(refused.value)
    assert "secret two" not in str(caught[0].message)


@pytest.mark.slow
def test_with_public_profiles_a_plan_decides_and_a_graph_of_unknown_origin_is_named():
    frame, y, profiles = people(n_agents=60, smooth=True)
    with pytest.warns(FlockwiseWarning, match="a plan expects no gain"):
        model = private(method="auto", graph="profiles", profiles=profiles).fit(frame, y)
    assert model.guarantee_ is None
    names = sorted(set(frame["who"]))
    ring = SimilarityGraph.from_edges(60, [(k, (k + 1) % 60) for k in range(60)], agent_names=names)
    generous = private(method="auto", graph=ring, budget=Budget(10.0, 1e-3)).fit(frame, y)
    assert not generous.guarantee_.is_private
