"""The configuration file: every refusal in its own words, and experiments that are what the file says."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from murmura.config import Config, build
from murmura.engine.conditions import Conditions
from murmura.errors import ConfigError, SimulationError
from murmura.method import CoordinateDescent, Global, GossipADMM, Local, ModelPropagation
from murmura.objective import Huber, Logistic, Quadratic, Softmax

EXAMPLES = Path(__file__).parents[2] / "examples"


def valid(**sections):
    """A configuration that is right, with some sections replaced or, by None, left out."""
    values = {
        "data": {"source": "synthetic", "agents": 8, "dimension": 3},
        "graph": {"kind": "angular", "from": "targets", "threshold": 0},
        "objective": {"tradeoff": 2.0},
        "method": {"name": "cd", "updates": 5},
        "privacy": {"kind": "none"},
    }
    return {name: section for name, section in (values | sections).items() if section is not None}


def refusal(tmp_path, **sections):
    with pytest.raises(ConfigError) as caught:
        Config.parse(valid(**sections), folder=tmp_path)
    return str(caught.value)


SYNTHETIC_KEYS = (
    "source, agents, dimension, min_samples, max_samples, test_samples, label_noise, noisy_test, features, "
    "informative, rotated, dtype"
)


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"seed": -1}, "seed: got -1; allowed: a whole number from 0 to below 2^64"),
        ({"seed": 1.5}, "seed: got 1.5; allowed: a whole number from 0 to below 2^64"),
        (
            {"network": {"tick_rate": 1.0}},
            "network: unknown section or key; "
            "known are seed, data, graph, objective, method, privacy, engine",
        ),
        (
            {"data": None},
            '[data]: missing; write it with source = "synthetic", "movielens", or a .csv or .parquet file',
        ),
        (
            {"data": {"source": "samples.xls"}},
            'data.source: got "samples.xls"; allowed: "synthetic", "movielens", or a .csv or .parquet file',
        ),
        (
            {"data": {"agents": 3}},
            'data.source: missing; allowed: "synthetic", "movielens", or a .csv or .parquet file',
        ),
        (
            {"data": {"source": "synthetic", "agnets": 3}},
            f"data.agnets: unknown key; known here are {SYNTHETIC_KEYS}",
        ),
        (
            {"data": {"source": "synthetic", "agents": "3"}},
            'data.agents: got "3"; allowed: a whole number from 1 on',
        ),
        (
            {"data": {"source": "synthetic", "label_noise": 2}},
            "data.label_noise: got 2; allowed: a number from 0 to 1",
        ),
        (
            {"data": {"source": "synthetic", "features": "normal"}},
            'data.features: got "normal"; allowed: "uniform", "gaussian"',
        ),
        (
            {"data": {"source": "synthetic", "min_samples": 9, "max_samples": 5}},
            "data.min_samples: got 9; allowed: at most max_samples, 5",
        ),
        (
            {"data": {"source": "synthetic", "dimension": 1}},
            "data.informative: got 2; allowed: at most dimension, 1",
        ),
        ({"data": 3}, "data: got 3; allowed: a section [data]"),
        (
            {"graph": {"kind": "ring"}},
            'graph.kind: got "ring"; allowed: "angular", "knn", "edges", "random"',
        ),
        (
            {"graph": {"kind": "knn"}},
            'graph.from: missing; allowed: "profiles", "models", "targets", "ratings"',
        ),
        (
            {"graph": {"kind": "angular", "from": "ratings"}},
            'graph.from: got "ratings"; allowed: "profiles", "models", "targets"',
        ),
        (
            {"graph": {"kind": "angular", "from": "targets", "threshold": "conected"}},
            'graph.threshold: got "conected"; allowed: a number from 0 to 1, or "connected"',
        ),
        (
            {"graph": {"kind": "knn", "from": "ratings"}},
            'graph.from: got "ratings"; there are ratings for data.source = "movielens" only',
        ),
        (
            {"graph": {"kind": "knn", "from": "profiles"}},
            'graph.from: got "profiles"; agents of data.source = "synthetic" have none',
        ),
        (
            {"graph": {"kind": "knn", "from": "targets", "columns": ["age"]}},
            'graph.columns: only for from = "profiles" with a file; leave it out',
        ),
        (
            {"graph": {"kind": "edges", "file": "edges.csv", "columns": ["a"]}},
            'graph.columns: got ["a"]; allowed: a list of 2 or 3 column names',
        ),
        (
            {"objective": {"loss": "hinge"}},
            'objective.loss: got "hinge"; allowed: "logistic", "softmax", "quadratic", "huber"',
        ),
        ({"objective": {"tradeoff": 0}}, 'objective.tradeoff: got 0; allowed: a number above 0, or "auto"'),
        (
            {"objective": {"tradeoff": float("inf")}},
            'objective.tradeoff: got Infinity; allowed: a number above 0, or "auto"',
        ),
        ({"objective": {"l2": -1.0}}, "objective.l2: got -1.0; allowed: a number from 0 on"),
        ({"objective": {"classes": 3}}, 'objective.classes: only for loss = "softmax"; leave it out'),
        (
            {"objective": {"loss": "softmax"}},
            'objective.classes: missing; loss = "softmax" needs the number of classes',
        ),
        ({"objective": {"width": 1.0}}, 'objective.width: only for loss = "huber"; leave it out'),
        (
            {"objective": {"tradeoff": 1.0, "validation_share": 0.2}},
            'objective.validation_share: only for tradeoff = "auto"; leave it out',
        ),
        (
            {"method": {"name": "sgd"}},
            'method.name: got "sgd"; allowed: "local", "global", "cd", "propagation", "admm"',
        ),
        ({"method": {"name": "local", "updates": 3}}, "method.updates: unknown key; known here are name"),
        (
            {"method": {"name": "cd"}},
            "method.updates: missing; say when to stop by updates, ticks, time or tolerance",
        ),
        (
            {"method": {"name": "cd", "updates": 3, "start": "random"}},
            'method.start: got "random"; allowed: "zeros", "local"',
        ),
        (
            {"privacy": None},
            "privacy.kind: missing; a run without privacy has to say so itself: "
            'write kind = "none" under [privacy]',
        ),
        (
            {"privacy": {}},
            "privacy.kind: missing; a run without privacy has to say so itself: "
            'write kind = "none" under [privacy]',
        ),
        (
            {"privacy": {"kind": "dp"}},
            'privacy.kind: got "dp"; differential privacy is not available in this version; allowed: "none"',
        ),
        ({"privacy": {"kind": "some"}}, 'privacy.kind: got "some"; allowed: "none"'),
        ({"engine": {"name": "gpu"}}, 'engine.name: got "gpu"; allowed: "cpu", "reference"'),
        ({"engine": {"delay": 1e6}}, "engine.delay: got 1000000.0; allowed: a number from 0 to below 1e6"),
        (
            {"engine": {"offline_length": 1e-7}},
            "engine.offline_length: got 1e-07; allowed: a number from 1e-6 to below 1e6",
        ),
        (
            {"method": {"name": "cd", "time": float("inf")}},
            "method.time: got Infinity; allowed: a number from 1e-6 to 1e6",
        ),
        (
            {"method": {"name": "cd", "updates": 3, "record_every": 1e-9}},
            "method.record_every: got 1e-09; allowed: a number from 1e-6 to 1e6",
        ),
        (
            {"method": {"name": "cd", "tolerance": 1.0}},
            "method.tolerance: got 1.0; allowed: a number between 0 and 1, both excluded",
        ),
        ({"engine": {"loss": 1}}, "engine.loss: got 1; allowed: a number from 0 to below 1"),
        (
            {"method": {"name": "admm", "updates": 1}, "engine": {"delay": 0.5}},
            'engine.delay: got 0.5; name = "admm" needs an ideal network, leave it out',
        ),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(tmp_path, sections, line):
    (tmp_path / "edges.csv").write_text("a,b\n")
    assert refusal(tmp_path, **sections) == line


@pytest.mark.parametrize("key", ["delay", "offline_length"])
@pytest.mark.parametrize("value", [-1.0, 0.0, 1e-7, 1e-6, 1.0, 999_999.0, 1e6, float("inf")])
def test_what_a_configuration_accepts_the_network_accepts(key, value):
    try:
        Conditions(**{key: value})
        is_allowed = True
    except SimulationError:
        is_allowed = False
    with nullcontext() if is_allowed else pytest.raises(ConfigError):
        Config.parse(valid(engine={key: value}))


def test_all_problems_are_found_at_once(tmp_path):
    lines = refusal(tmp_path, seed="x", privacy=None, engine={"threads": 0, "speed": 1}).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "seed",
        "privacy.kind",
        "engine.threads",
        "engine.speed",
    ]


def test_a_table_needs_its_file_and_its_target(tmp_path):
    lines = refusal(tmp_path, data={"source": "samples.csv"}, graph={"kind": "knn", "from": "models"})
    assert lines.splitlines() == [
        f'data.source: got "samples.csv"; there is no file {tmp_path / "samples.csv"}',
        "data.target: missing; allowed: a name in quotes",
    ]


def test_profiles_of_a_table_need_a_file(tmp_path):
    (tmp_path / "samples.csv").write_text("agent,x,y\n")
    line = refusal(
        tmp_path,
        data={"source": "samples.csv", "target": "y"},
        graph={"kind": "knn", "from": "profiles"},
    )
    assert line == "graph.file: missing; name the table of public profiles, one row per agent"


def test_read_names_the_file_in_every_line(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        '[data]\nsource = "synthetic"\n[graph]\nkind = "random"\n[method]\nname = "local"\nage = 3\n'
    )
    with pytest.raises(ConfigError) as caught:
        Config.read(file)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"{file}: ") for line in lines)


@pytest.mark.parametrize(("text", "words"), [("[data", "not a TOML file"), (b"\xff\xfe", "not a TOML file")])
def test_what_is_no_toml_is_refused(tmp_path, text, words):
    file = tmp_path / "run.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=words):
        Config.read(file)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"run\.toml: there is no such file"):
        Config.read(tmp_path / "run.toml")


@pytest.mark.parametrize(
    ("section", "method"),
    [
        ({"name": "local"}, Local()),
        ({"name": "global"}, Global()),
        ({"name": "cd", "time": 2.0, "start": "local"}, CoordinateDescent(start="local")),
        ({"name": "propagation", "ticks": 9}, ModelPropagation()),
        (
            {"name": "admm", "updates": 1, "penalty": 0.5, "gradient_steps": 3, "start": "zeros"},
            GossipADMM(0.5, 3, "zeros"),
        ),
    ],
)
def test_the_method_is_the_one_named(section, method):
    assert build(Config.parse(valid(method=section))).method == method


@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        ({"loss": "logistic"}, Logistic()),
        ({"loss": "quadratic"}, Quadratic()),
        ({"loss": "huber", "width": 0.5}, Huber(0.5)),
    ],
)
def test_the_objective_is_the_one_described(objective, loss):
    config = Config.parse(valid(objective={**objective, "tradeoff": 3, "l2": 0.5, "max_samples": 50}))
    problem = build(config).problem
    assert (problem.loss, problem.tradeoff, problem.sample_cap) == (loss, 3, 50)
    assert (problem.l2_penalties == 0.5).all()


def test_the_synthetic_task_is_the_one_described():
    data = {"source": "synthetic", "agents": 6, "dimension": 4, "test_samples": 7, "dtype": "float32"}
    experiment = build(Config.parse(valid(data=data, seed=3)))
    assert experiment.test is not None
    assert experiment.train.dtype == np.float32
    assert (experiment.test.sample_counts == 7).all()
    assert experiment.problem.dimension == 4
    assert experiment.problem.graph.source.private
    again = build(Config.parse(valid(data=data, seed=3)))
    assert again.problem.fingerprint == experiment.problem.fingerprint


def test_a_table_with_classes_profiles_and_an_intercept(tmp_path):
    rows = "".join(f"{name},{x},{x % 3}\n" for name in ("01", "02", "10") for x in range(6))
    (tmp_path / "samples.csv").write_text("who,x,kind\n" + rows)
    (tmp_path / "people.csv").write_text("who,age\n10,30\n01,31\n02,70\n")
    config = Config.parse(
        valid(
            data={"source": "samples.csv", "agent": "who", "target": "kind", "intercept": True},
            graph={"kind": "knn", "from": "profiles", "file": "people.csv", "k": 1},
            objective={"loss": "softmax", "classes": 3, "tradeoff": 1.0},
        ),
        folder=tmp_path,
    )
    experiment = build(config)
    assert experiment.problem.loss == Softmax(3)
    assert experiment.train.agent_names == ("01", "02", "10")
    assert experiment.train.feature_names == ("x", "intercept")
    assert (experiment.train.sample_counts == 5).all()
    assert not experiment.problem.graph.source.private
    # By age, 01 and 10 are nearest to each other, and 02 is nearest to 01.
    assert experiment.problem.graph.neighbors_of(0)[0].tolist() == [1, 2]


def test_edges_may_be_declared_private_and_nothing_held_out(tmp_path):
    (tmp_path / "samples.csv").write_text("agent,x,y\na,1,1\nb,2,-1\n")
    (tmp_path / "edges.csv").write_text("one,other\na,b\n")
    config = Config.parse(
        valid(
            data={"source": "samples.csv", "target": "y", "test_share": 0},
            graph={"kind": "edges", "file": "edges.csv", "columns": ["one", "other"], "private": True},
        ),
        folder=tmp_path,
    )
    experiment = build(config)
    assert experiment.test is None
    assert experiment.problem.graph.n_edges == 1
    assert experiment.problem.graph.source.private


def test_a_profile_table_without_an_agent_is_refused(tmp_path):
    (tmp_path / "samples.csv").write_text("agent,x,y\na,1,1\nb,2,-1\n")
    (tmp_path / "people.csv").write_text("agent,age\na,30\n")
    config = Config.parse(
        valid(
            data={"source": "samples.csv", "target": "y", "test_share": 0},
            graph={"kind": "knn", "from": "profiles", "file": "people.csv", "k": 1},
        ),
        folder=tmp_path,
    )
    with pytest.raises(ConfigError, match=r"people\.csv: agent 'b'"):
        build(config)


@pytest.mark.parametrize("name", ["rooms", "synthetic", "movielens"])
def test_the_examples_can_be_read(name):
    assert Config.read(EXAMPLES / f"{name}.toml").privacy.kind == "none"


@pytest.mark.skipif("MURMURA_DATA" not in os.environ, reason="MURMURA_DATA does not name the data")
def test_validation_ratings_have_no_part_in_movie_features():
    """Features fitted to the ratings that judge μ would make every μ look better, the largest most."""
    from murmura.config.samples import load_samples, validation_samples

    config = Config.read(EXAMPLES / "movielens.toml")
    outer = load_samples(config.data, 0)
    inner = validation_samples(config.data, outer, 0.2, 0)
    assert inner.test is not None
    assert inner.train.n_samples + inner.test.n_samples == outer.train.n_samples
    assert inner.rating_matrix.nnz == inner.train.n_samples
    # The features of a movie differ where its ratings were held out.
    assert not np.isin(inner.test.features[:100].round(9), outer.train.features.round(9)).any()
