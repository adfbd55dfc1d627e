"""What a run can be asked: predictions by name, scores, and which models leave in a file."""

import json
import math
import os
import stat
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score, root_mean_squared_error

from flockwise import (
    Budget,
    CoordinateDescent,
    Local,
    Objective,
    PrivateUpdates,
    Problem,
    Quadratic,
    Softmax,
    Trajectory,
    complete_graph,
    population_from_frame,
    simulate,
)
from flockwise.errors import DataError, FlockwiseError, ResumeError
from flockwise.files import write_whole
from flockwise.privacy.tracked import origin_of

FEATURES = ["age", "height", "weight"]
AGENTS = ["ann", "bob", "cy"]


def table(seed=0, rows=60):
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(random.normal(size=(rows, 3)), columns=FEATURES)
    frame["who"] = [AGENTS[row % 3] for row in range(rows)]
    truth = {"ann": (2, -1, 0), "bob": (0, 2, -1), "cy": (-1, 0, 2)}
    frame["number"] = [float(np.dot(frame.loc[row, FEATURES], truth[frame.who[row]])) for row in frame.index]
    frame["label"] = np.where(frame.number > 0, 1.0, -1.0)
    frame["class"] = (frame.number > -1).astype(float) + (frame.number > 1)
    return frame


def population(target="label"):
    return population_from_frame(table(), agent="who", target=target, features=FEATURES)


@pytest.fixture(scope="module")
def run():
    return simulate(Problem(population()), Local())


@pytest.fixture(scope="module")
def private_run():
    objective = Objective(feature_bound=3.0, max_samples=20)
    problem = Problem(population(), complete_graph(len(AGENTS)), objective)
    method = CoordinateDescent("zeros", PrivateUpdates(Budget(0.5, 1e-5), 3, clip=1.0))
    return simulate(problem, method, engine="reference", seed=1)


class TestColumnsAreMatchedByName:
    def test_reversed_columns_give_the_same_predictions(self, run):
        frame = table(1)
        expected = run.predict(frame[FEATURES].to_numpy(), frame.who)
        found = run.predict(frame[["who", *reversed(FEATURES)]], agent="who")
        assert found.tolist() == expected.tolist()
        assert len(set(expected.tolist())) == 2

    def test_a_missing_column_is_refused_by_name(self, run):
        with pytest.raises(DataError, match=r"column 'height' is missing.*'age', 'height', 'weight'"):
            run.predict(table()[["age", "weight", "who"]], agent="who")

    def test_an_extra_column_is_refused_by_name(self, run):
        with pytest.raises(DataError, match=r"column 'label' was not there in the training.*drop it"):
            run.predict(table()[[*FEATURES, "who", "label"]], agent="who")

    def test_a_missing_value_is_refused_with_its_agent_and_row(self, run):
        frame = table()[[*FEATURES, "who"]]
        frame.loc[4, "weight"] = math.nan
        with pytest.raises(DataError, match="'weight'"):
            run.predict(frame, agent="who")

    def test_a_missing_value_of_an_array_is_refused_too(self, run):
        with pytest.raises(DataError, match="column 'height', row 1: nan is not a finite number"):
            run.predict([[0.0, math.nan, 1.0]], "ann")

    def test_an_agent_that_was_not_there_is_refused_by_name(self, run):
        with pytest.raises(DataError, match=r"no agent named 'zoe'.*'ann', 'bob', 'cy'"):
            run.predict([[0.0, 1.0, 1.0]], "zoe")
        with pytest.raises(DataError, match="no agent 3; agents are 0 to 2"):
            run.predict([[0.0, 1.0, 1.0]], 3)

    def test_rows_without_an_agent_are_refused(self, run):
        with pytest.raises(DataError, match="say whose rows these are"):
            run.predict([[0.0, 1.0, 1.0]])

    def test_an_intercept_need_not_be_a_column(self):
        people = population().with_intercept()
        run = simulate(Problem(people), Local())
        frame = table(1)
        with_ones = np.column_stack((frame[FEATURES], np.ones(len(frame))))
        expected = run.predict(with_ones, frame.who)
        assert run.predict(frame[[*FEATURES, "who"]], agent="who").tolist() == expected.tolist()

    def test_a_population_is_predicted_by_the_names_of_its_agents(self, run):
        frame = table(1)
        other = population_from_frame(
            frame, agent="who", target="label", features=FEATURES, agents=AGENTS[::-1]
        )
        owners = np.repeat(AGENTS[::-1], other.sample_counts)
        assert run.predict(other).tolist() == run.predict(other.features, owners).tolist()
        assert np.array_equal(run.predict_proba(other), run.predict_proba(other.features, owners))
        with pytest.raises(DataError, match="a population says whose samples are whose"):
            run.predict(other, "ann")
        with pytest.raises(DataError, match="cannot read rows from a object"):
            run.predict(object(), "ann")

    def test_a_population_with_other_columns_is_refused(self, run):
        other = population_from_frame(
            table(), agent="who", target="label", features=["height", "age", "weight"]
        )
        with pytest.raises(DataError, match="the features are 'height', 'age', 'weight'"):
            run.score(other)

    def test_a_feature_that_is_named_intercept_has_to_be_there(self):
        frame = table().rename(columns={"weight": "intercept"})
        names = ["age", "height", "intercept"]
        people = population_from_frame(frame, agent="who", target="label", features=names)
        with pytest.raises(DataError, match="column 'intercept' is missing"):
            simulate(Problem(people), Local()).predict(frame[["age", "height", "who"]], agent="who")

    def test_a_saved_run_knows_that_its_intercept_was_added(self, tmp_path):
        run = simulate(Problem(population().with_intercept()), Local())
        run.save(tmp_path / "run.npz")
        rows = table(1)[[*FEATURES, "who"]]
        found = Trajectory.load(tmp_path / "run.npz").predict(rows, agent="who")
        assert found.tolist() == run.predict(rows, agent="who").tolist()

    def test_a_row_of_an_agent_without_a_name_is_refused_without_one(self, run):
        nameless = replace(run, agent_names=("", "bob", "cy"))
        with pytest.raises(DataError, match=r"^column 'age', row 1: missing value"):
            nameless.predict({"age": [math.nan], "height": [0.0], "weight": [0.0]}, 0)


def numbered_run(names):
    frame = table()
    frame["who"] = frame.who.map(dict(zip(AGENTS, names, strict=True)))
    return simulate(
        Problem(
            population_from_frame(frame, agent="who", target="number", features=FEATURES),
            objective=Objective(Quadratic()),
        ),
        Local(),
    )


class TestIntegersAsAgents:
    ROWS = np.eye(3)

    @pytest.mark.parametrize(
        "integers",
        [
            [1, 2, 3],
            np.array([1, 2, 3], np.uint8),
            pd.Series([1, 2, 3]),
            pd.Series([1, 2, 3], dtype="Int64"),
            pd.Series([1, 2, 3], dtype="category"),
            np.array([1, 2, 3], dtype=object),
        ],
    )
    def test_they_are_names_where_all_names_are_whole_numbers(self, integers):
        run = numbered_run([1, 2, 3])
        expected = run.predict(self.ROWS, ["1", "2", "3"])
        assert run.predict(self.ROWS, integers).tolist() == expected.tolist()
        assert run.predict(self.ROWS[:1], 1).tolist() == expected[:1].tolist()

    def test_a_name_that_is_none_is_refused(self):
        with pytest.raises(DataError, match="no agent named '0'"):
            numbered_run([1, 2, 3]).predict(self.ROWS, 0)
        with pytest.raises(DataError, match="no agent named '1'"):
            numbered_run(["001", "002", "003"]).predict(self.ROWS, 1)

    def test_they_are_positions_where_names_are_words_or_positions(self, run):
        assert run.predict(self.ROWS, 1).tolist() == run.predict(self.ROWS, "bob").tolist()
        run = numbered_run([0, 1, 2])
        assert run.predict(self.ROWS, [2, 1, 0]).tolist() == run.predict(self.ROWS, list("210")).tolist()


class TestTestSamples:
    """Samples to judge by find their agents by name, in a run as in a score."""

    def test_any_order_of_agents_gives_the_same_metrics(self):
        people = population("number")
        problem = Problem(people, objective=Objective(Quadratic(), l2=0.5))
        expected = simulate(problem, Local(), test=people).agent_metrics
        shuffled = simulate(problem, Local(), test=people.select(["cy", "ann", "bob"]))
        assert expected is not None
        assert shuffled.agent_metrics is not None
        assert shuffled.agent_metrics.tolist() == expected.tolist()
        assert shuffled.score(people.select(["cy", "ann", "bob"])) == pytest.approx(expected.mean())
        assert shuffled.score(people.select(["cy", "ann"])) == pytest.approx(expected[::2].mean())

    def test_other_agents_and_other_features_are_refused(self):
        people = population()
        strangers = replace(people, given_names=("ann", "bob", "zoe"))
        with pytest.raises(DataError, match="no agent named 'zoe'"):
            simulate(Problem(people), Local(), test=strangers)
        swapped = replace(people, feature_names=("height", "age", "weight"))
        with pytest.raises(DataError, match="the features are 'height', 'age', 'weight'"):
            simulate(Problem(people), Local(), test=swapped)


class TestNamesThatAreTaken:
    def test_a_feature_named_agent_leaves_the_names_of_agents_alone(self, tmp_path):
        frame = table().rename(columns={"age": "agent"})
        names = ["agent", "height", "weight"]
        people = population_from_frame(frame, agent="who", target="label", features=names)
        run = simulate(Problem(people), Local())
        assert run.to_pandas().index.tolist() == AGENTS
        assert run.to_pandas().columns.tolist() == names
        run.to_parquet(tmp_path / "models.parquet")
        written = pq.read_table(tmp_path / "models.parquet")
        assert written["agent_name"].to_pylist() == AGENTS
        assert written["agent"].to_pylist() == run.models[:, 0].tolist()


def test_the_main_picture_is_the_course_of_the_run(private_run):
    ours, named = (
        figure.axes[0].lines[0].get_ydata() for figure in (private_run.plot(), private_run.plot.convergence())
    )
    assert np.array_equal(ours, named)


class TestOwnAndReleasedModels:
    def test_own_models_predict_by_default_where_there_are_any(self, private_run):
        frame = table(1)
        asked = {
            which: private_run.predict(frame[FEATURES], frame.who, which=which) for which in (None, "own")
        }
        assert asked[None].tolist() == asked["own"].tolist()
        released = private_run.predict_proba(frame[FEATURES], frame.who, which="released")
        assert not np.allclose(private_run.predict_proba(frame[FEATURES], frame.who), released)

    def test_a_score_is_that_of_the_models_asked_for(self, private_run):
        by_hand = {
            which: accuracy_score(
                table(1).label, private_run.predict(table(1)[FEATURES], table(1).who, which=which)
            )
            for which in ("own", "released")
        }
        people = population_from_frame(table(1), agent="who", target="label", features=FEATURES)
        for which, expected in by_hand.items():
            assert private_run.score(people, which=which, over="rows") == pytest.approx(expected)
        assert private_run.score(people, over="rows") == pytest.approx(by_hand["own"])
        assert by_hand["own"] > by_hand["released"]

    def test_a_run_without_privacy_has_no_own_models_to_ask_for(self, run):
        with pytest.raises(DataError, match="'local' has no own models"):
            run.predict([[0.0, 1.0, 1.0]], "ann", which="own")
        with pytest.raises(DataError, match='which must be "own" or "released"'):
            run.predict([[0.0, 1.0, 1.0]], "ann", which="mine")

    def test_an_export_of_a_private_run_has_to_say_which(self, private_run, tmp_path):
        path = tmp_path / "models.parquet"
        for export in (private_run.to_pandas, lambda: private_run.to_parquet(path)):
            with pytest.raises(DataError, match='say which models: which="released"'):
                export()
        assert not path.exists()

    def test_the_file_says_which_models_it_holds_and_that_own_ones_must_not_be_shown(
        self, private_run, tmp_path
    ):
        for which, note in (("own", "must not be shown"), ("released", "released models")):
            path = tmp_path / f"{which}.parquet"
            private_run.to_parquet(path, which)
            found = pq.read_table(path)
            about = json.loads(found.schema.metadata[b"flockwise"])
            assert about["which"] == which
            assert note in about["note"]
            models = private_run.own_models if which == "own" else private_run.models
            assert found.drop(["agent"]).to_pandas().to_numpy() == pytest.approx(np.asarray(models))

    def test_a_file_of_released_models_says_what_is_guaranteed(self, private_run, tmp_path):
        path, made = tmp_path / "models.parquet", private_run.guarantee
        named = replace(made, not_covered=("the graph",), declared=("others",))
        replace(private_run, guarantee=named).to_parquet(path, "released")
        about = json.loads(pq.read_table(path).schema.metadata[b"flockwise"])
        assert (tuple(about["epsilon"]), tuple(about["delta"])) == made.spent
        assert (about["not_covered"], about["declared"]) == (["the graph"], ["others"])
        private_run.to_parquet(path, "own")
        assert "epsilon" not in json.loads(pq.read_table(path).schema.metadata[b"flockwise"])

    def test_a_file_of_models_without_privacy_does_not_call_them_released(self, run, tmp_path):
        run.to_parquet(tmp_path / "models.parquet")
        about = json.loads(pq.read_table(tmp_path / "models.parquet").schema.metadata[b"flockwise"])
        assert (about["which"], about["note"]) == ("models", "models, made of private data without noise")

    def test_own_models_without_a_guarantee_are_not_loaded(self, private_run, tmp_path):
        replace(private_run, guarantee=None).save(tmp_path / "run.npz")
        with pytest.raises(ResumeError, match="own models and no guarantee"):
            Trajectory.load(tmp_path / "run.npz")

    def test_save_and_load_keep_both(self, private_run, tmp_path):
        private_run.save(tmp_path / "run.npz")
        again = Trajectory.load(tmp_path / "run.npz")
        assert np.array_equal(again.models, private_run.models)
        assert np.array_equal(np.asarray(again.own_models), np.asarray(private_run.own_models))
        assert again.guarantee == private_run.guarantee
        assert list(again.feature_names) == FEATURES
        frame = table(1)[[*FEATURES, "who"]]
        for which in ("own", "released"):
            assert np.array_equal(
                again.predict(frame, agent="who", which=which),
                private_run.predict(frame, agent="who", which=which),
            )

    @pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
    def test_files_with_own_models_are_for_their_owner_alone(self, private_run, run, tmp_path):
        """From their first byte on, whatever an interrupted write left there."""
        (tmp_path / "run.npz.part").touch(0o644)
        seen = []
        table_file, saved = tmp_path / "own.parquet", tmp_path / "run.npz"
        private_run.to_parquet(table_file, which="own")
        private_run.save(saved)
        write_whole(tmp_path / "secret", lambda part: seen.append(rights(part)), is_secret=True)
        assert [rights(table_file), rights(saved), *seen] == [0o600] * 3
        for path, write in ((tmp_path / "shown.parquet", run.to_parquet), (tmp_path / "plain.npz", run.save)):
            path.touch()
            usual = rights(path)
            write(path)
            assert rights(path) == usual

    def test_models_still_know_where_they_came_from_when_they_are_loaded(self, private_run, tmp_path):
        private_run.save(tmp_path / "run.npz")
        again = Trajectory.load(tmp_path / "run.npz")
        for name, status in (("own_models", "private"), ("models", "released")):
            origin = origin_of(getattr(again, name))
            assert origin is not None
            assert origin == origin_of(getattr(private_run, name))
            assert origin.status == status


def rights(path):
    return stat.S_IMODE(path.stat().st_mode)


class TestNamesOfCoefficients:
    def test_one_column_per_feature(self, run):
        frame = run.to_pandas()
        assert list(frame.columns) == FEATURES
        assert list(frame.index) == AGENTS
        assert frame.to_numpy() == pytest.approx(np.asarray(run.models))

    def test_one_column_per_feature_and_class(self):
        run = simulate(Problem(population("class"), None, Objective(Softmax(3))), Local())
        names = [f"{feature}[{k}]" for k in range(3) for feature in FEATURES]
        assert list(run.to_pandas().columns) == names


SCORES_OF_CLASSES = {
    "accuracy": lambda y, found, chances: accuracy_score(y, found),
    "auc": lambda y, found, chances: roc_auc_score(y, chances[:, 1]),
    "log_loss": lambda y, found, chances: log_loss(y, chances),
}


class TestScores:
    """Against scikit-learn, agent by agent and for all rows together."""

    @pytest.mark.parametrize("metric", SCORES_OF_CLASSES)
    def test_scores_of_two_classes_equal_those_of_scikit_learn(self, run, metric):
        frame = table(1)
        found = run.predict(frame[FEATURES], frame.who)
        chances = run.predict_proba(frame[FEATURES], frame.who)
        judge, data = SCORES_OF_CLASSES[metric], frame[[*FEATURES, "who", "label"]]
        asked = {"agent": "who", "target": "label", "metric": metric}
        assert run.score(data, over="rows", **asked) == pytest.approx(judge(frame.label, found, chances))
        each = [
            judge(frame.label[own], found[own], chances[own])
            for own in (frame.who.to_numpy() == name for name in AGENTS)
        ]
        assert run.score(data, **asked) == pytest.approx(np.mean(each))

    @pytest.mark.parametrize(("metric", "judge"), [("rmse", root_mean_squared_error), ("r2", r2_score)])
    def test_scores_of_numbers_equal_those_of_scikit_learn(self, metric, judge):
        run = simulate(Problem(population("number"), None, Objective(Quadratic())), Local())
        frame = table(1)
        expected = judge(frame.number, run.predict(frame[FEATURES], frame.who))
        data = frame[[*FEATURES, "who", "number"]]
        found = run.score(data, agent="who", target="number", metric=metric, over="rows")
        assert found == pytest.approx(expected)

    def test_probabilities_of_several_classes_add_up_to_one(self):
        run = simulate(Problem(population("class"), None, Objective(Softmax(3))), Local())
        frame = table(1)
        chances = run.predict_proba(frame[FEATURES], frame.who)
        assert chances.shape == (len(frame), 3)
        assert chances.sum(axis=1) == pytest.approx(np.ones(len(frame)))
        assert chances.argmax(axis=1).tolist() == run.predict(frame[FEATURES], frame.who).tolist()
        data = frame[[*FEATURES, "who", "class"]]
        found = run.score(data, agent="who", target="class", metric="log_loss", over="rows")
        assert found == pytest.approx(log_loss(frame["class"], chances, labels=[0.0, 1.0, 2.0]))

    def test_a_score_that_does_not_fit_the_loss_is_refused(self, run):
        with pytest.raises(DataError, match="metric='rmse' does not fit loss 'logistic'"):
            run.score(population(), metric="rmse")
        with pytest.raises(DataError, match="metric must be one of accuracy, auc"):
            run.score(population(), metric="f1")

    def test_targets_that_the_loss_does_not_know_are_refused(self, run):
        with pytest.raises(DataError, match="a target does not fit"):
            run.score(population("class"))

    def test_a_loss_of_numbers_gives_no_probabilities(self):
        run = simulate(Problem(population("number"), None, Objective(Quadratic())), Local())
        with pytest.raises(DataError, match="'quadratic' gives no probabilities"):
            run.predict_proba(table()[FEATURES], "ann")


class TestAtAGlance:
    def test_a_run_is_one_short_line(self, run, private_run):
        assert repr(run) == "Trajectory('local', 3 agents)"
        shown = repr(private_run)
        assert shown == "Trajectory('cd', 3 agents, (ε = 0.5, δ = 1e-05) differentially private)"

    def test_a_notebook_shows_a_table_with_nothing_to_run(self, private_run):
        shown = replace(private_run, method="<script>")._repr_html_()
        assert shown.startswith("<table><caption>A run</caption>")
        assert "&lt;script&gt;" in shown
        assert "<script" not in shown
        assert "differentially private" in shown

    def test_pictures_are_one_call(self, private_run):
        assert private_run.plot.convergence().get_axes()
        people = population()
        problem = Problem(people, complete_graph(len(AGENTS)))
        judged = simulate(problem, CoordinateDescent(), engine="reference", updates=2, test=people)
        assert judged.plot.agents().get_axes()

    def test_a_record_field_that_is_not_there_is_refused_by_name(self, run):
        with pytest.raises(FlockwiseError, match="no field 'loss' in all records; there are time"):
            run.column("loss")
