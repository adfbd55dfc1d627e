"""The configuration file: every refusal in its own words, and experiments that are what the file says."""

from __future__ import annotations

import math
import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flockwise.config import Config, build, samples
from flockwise.data.movielens import MovieLens, Movies, Ratings, Users
from flockwise.engine import ENGINES
from flockwise.engine.conditions import Conditions
from flockwise.errors import ConfigError, PrivacyError, SimulationError
from flockwise.graph.kinds import GRAPHS
from flockwise.graph.stored import StoredGraph
from flockwise.method import (
    METHODS,
    CoordinateDescent,
    Global,
    GossipADMM,
    Local,
    LowPass,
    ModelPropagation,
    ReleaseOnce,
    WarmStart,
)
from flockwise.objective import LOSSES, CappedLogistic, Huber, Logistic, Quadratic, Softmax
from flockwise.privacy.accounting import ACCOUNTANTS
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.release import STATISTICS
from flockwise.release.mean import PointMean
from flockwise.release.model import OutputPerturbation
from flockwise.release.tilted import ObjectivePerturbation
from flockwise.results.tuning import choose_tradeoff
from flockwise.solve import choose_l2

EXAMPLES = Path(__file__).parents[2] / "examples"


def quoted(names):
    return ", ".join(f'"{name}"' for name in names)


PRIVATE_FORMS = (
    f'use {quoted(one.name for one in METHODS if one.privacy is not None)}, or "local" or "tuned_local", '
    "which sends nothing"
)


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


SOURCES = '"synthetic", "movielens", a .csv or .parquet file, or "FOLDER/"'
SYNTHETIC_KEYS = (
    "source, agents, dimension, min_samples, max_samples, test_samples, label_noise, noisy_test, features, "
    "informative, rotated, profile_noise, dtype"
)


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"seed": -1}, "seed: got -1; allowed: a whole number from 0 to below 2^64"),
        ({"seed": 1.5}, "seed: got 1.5; allowed: a whole number from 0 to below 2^64"),
        (
            {"weather": {"tick_rate": 1.0}},
            "weather: unknown section or key; "
            "known are seed, data, graph, objective, method, privacy, engine, network",
        ),
        (
            {"data": None},
            f"[data]: missing; write it with source = {SOURCES}",
        ),
        (
            {"data": {"source": "samples.xls"}},
            f'data.source: got "samples.xls"; allowed: {SOURCES}',
        ),
        (
            {"data": {"agents": 3}},
            f"data.source: missing; allowed: {SOURCES}",
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
            f'graph.kind: got "ring"; allowed: {quoted(GRAPHS.names)}, "edges"',
        ),
        (
            {"graph": {"kind": "knn"}},
            'graph.from: missing; allowed: "profiles", "models", "targets", "ratings"',
        ),
        (
            {"graph": {"kind": "angular", "from": "ratings"}},
            'graph.from: got "ratings"; there are ratings for data.source = "movielens" only',
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
            {"graph": {"kind": "knn", "from": "targets", "columns": ["age"]}},
            'graph.columns: only for from = "profiles" with a file; leave it out',
        ),
        (
            {"graph": {"kind": "edges", "file": "edges.csv", "columns": ["a"]}},
            'graph.columns: got ["a"]; allowed: a list of 2 or 3 column names',
        ),
        (
            {"objective": {"loss": "hinge"}},
            f'objective.loss: got "hinge"; allowed: {quoted(LOSSES.names)}',
        ),
        ({"objective": {"tradeoff": 0}}, 'objective.tradeoff: got 0; allowed: a number above 0, or "auto"'),
        (
            {"objective": {"tradeoff": float("inf")}},
            'objective.tradeoff: got Infinity; allowed: a finite number above 0, or "auto"',
        ),
        (
            {"objective": {"tradeoff": 1.0, "feature_bound": 2.0}},
            'objective.feature_bound: only for privacy.kind = "dp"; leave it out',
        ),
        (
            {"method": {"name": "release_once", "updates": 3}},
            'method.name: got "release_once"; it releases within a budget: write privacy.kind = "dp", '
            'or use name = "propagation"',
        ),
        ({"objective": {"l2": -1.0}}, 'objective.l2: got -1.0; allowed: a number from 0 on, or "auto"'),
        ({"objective": {"classes": 3}}, 'objective.classes: only for loss = "softmax"; leave it out'),
        (
            {"objective": {"loss": "softmax"}},
            "objective.classes: missing; allowed: a whole number from 2 on",
        ),
        ({"objective": {"width": 1.0}}, 'objective.width: only for loss = "huber"; leave it out'),
        (
            {"objective": {"tradeoff": 1.0, "validation_share": 0.2}},
            'objective.validation_share: only for tradeoff = "auto"; leave it out',
        ),
        (
            {"method": {"name": "sgd"}},
            f'method.name: got "sgd"; allowed: {quoted([*METHODS.names, "auto"])}',
        ),
        ({"method": {"name": "local", "updates": 3}}, "method.updates: unknown key; known here are name"),
        (
            {"method": {"name": "cd"}},
            "method.updates: missing; say when to stop by updates, ticks, time or tolerance",
        ),
        (
            {"method": {"name": "cd", "updates": 3, "start": "random"}},
            'method.start: got "random"; allowed: "zeros", "local", "propagated"',
        ),
        (
            {"privacy": None},
            'privacy.kind: missing; write kind = "dp" under [privacy], or kind = "none": '
            "a run without privacy has to say so itself",
        ),
        (
            {"privacy": {}},
            'privacy.kind: missing; write kind = "dp" under [privacy], or kind = "none": '
            "a run without privacy has to say so itself",
        ),
        ({"privacy": {"kind": "some"}}, 'privacy.kind: got "some"; allowed: "none", "dp"'),
        (
            {"engine": {"name": "abacus"}},
            f'engine.name: got "abacus"; allowed: {quoted(ENGINES.names)}',
        ),
        ({"engine": {"delay": 1e6}}, "engine.delay: got 1000000.0; allowed: a number from 0 to below 1e6"),
        (
            {"engine": {"offline_length": 1e-7}},
            "engine.offline_length: got 1e-07; allowed: a number from 1e-6 to below 1e6",
        ),
        (
            {"method": {"name": "cd", "time": float("inf")}},
            "method.time: got Infinity; allowed: a finite number from 1e-6 to 1e6",
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
def test_a_configuration_accepts_the_network_conditions_that_the_engine_accepts(key, value):
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[data", "not a TOML file"),
        (b"\xff\xfe", "not a TOML file"),
        ("[data]\n[data]", r"\[data\] is there twice.*line 2.*put its keys below one"),
    ],
)
def test_a_file_that_is_not_toml_is_refused(tmp_path, text, words):
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
        ({"loss": "capped_logistic"}, CappedLogistic()),
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
    assert experiment.problem.neighbors.source.private
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
    assert not experiment.problem.neighbors.source.private
    # By age, 01 and 10 are nearest to each other, and 02 is nearest to 01.
    assert experiment.problem.neighbors.neighbors_of(0)[0].tolist() == [1, 2]


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
    assert experiment.problem.neighbors.n_edges == 1
    assert experiment.problem.neighbors.source.private


def test_a_graph_may_stay_in_a_folder_beside_the_configuration(tmp_path):
    (tmp_path / "samples.csv").write_text("agent,x,y\na,1,1\nb,2,-1\n")
    edges = pa.table({"source": ["a"], "target": ["b"], "weight": [0.5]})
    (tmp_path / "edges").mkdir()
    pq.write_table(edges, tmp_path / "edges" / "0.parquet")
    graph = {"kind": "edges", "file": "edges/", "folder": "graph"}
    data = {"source": "samples.csv", "target": "y", "test_share": 0}
    for _ in range(2):
        built = build(Config.parse(valid(data=data, graph=graph), folder=tmp_path)).problem.neighbors
        assert isinstance(built, StoredGraph)
        assert (tmp_path / "graph" / "weights").is_file()
        assert built.weights.tolist() == [0.5, 0.5]


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


def private(**sections):
    """A private coordinate descent that is right, with some sections changed key by key; None drops a key."""
    values = valid(
        objective={"tradeoff": 2.0, "feature_bound": 2.0},
        privacy={"kind": "dp", "epsilon": 1.0},
    )
    for name, changes in sections.items():
        merged = values.get(name, {}) | changes
        values[name] = {key: value for key, value in merged.items() if value is not None}
    return values


RELEASE_ONCE = {"name": "release_once"}
LOWPASS = {"name": "lowpass", "updates": None}
TABLE = {"source": "samples.csv", "target": "y", "agents": None, "dimension": None}


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        (
            {"method": {"name": "propagation"}},
            'method.name: got "propagation"; it has no private form: ' + PRIVATE_FORMS,
        ),
        (
            {"method": {"name": "admm"}},
            'method.name: got "admm"; it has no private form: ' + PRIVATE_FORMS,
        ),
        (
            {"method": {"name": "global", "updates": None}},
            'method.name: got "global"; it has no private form: ' + PRIVATE_FORMS,
        ),
        (
            {"method": {"start": "local"}},
            'method.start: got "local"; the first message of a private run would give it away without noise: '
            'use "zeros" or "propagated", or, in Python, wrap models that are public or were released as '
            "PublicModels(models)",
        ),
        (
            {"method": {"tolerance": 0.01}},
            "method.tolerance: got 0.01; when a private run stops would leak the data: "
            "stop by updates, ticks or time",
        ),
        (
            {"method": {"updates": None, "ticks": 9}},
            "method.updates: missing; say for how many updates of each agent the budget is planned",
        ),
        (
            {"method": {"updates": None}},
            "method.updates: missing; say when to stop by updates, ticks, time or tolerance",
        ),
        (
            {"objective": {"tradeoff": "auto"}, "data": TABLE, "graph": {"from": "models"}},
            'objective.tradeoff: got "auto"; a private run would tune it on private data: '
            "write a number, and choose it on public or generated data",
        ),
        (
            {"objective": {"tradeoff": "auto", "validation_share": 0.1}},
            "objective.validation_share: a private run chooses tradeoff on other generated instances; "
            "leave it out",
        ),
        (
            {"objective": {"feature_bound": None}},
            'objective.feature_bound: missing; private "cd" takes its step sizes from a public bound on the '
            "length of every sample: taken from the data, a released step would leak them",
        ),
        (
            {"objective": {"feature_bound": 0}},
            "objective.feature_bound: got 0; allowed: a number above 0",
        ),
        (
            {"objective": {"loss": "quadratic"}},
            'privacy.clip_norm: missing; loss = "quadratic" does not bound the gradient of a sample: '
            'give a bound to clip it to, or use loss = "huber"',
        ),
        (
            {"privacy": {"epsilon": None}},
            "privacy.epsilon: missing; give one for all agents, or budgets, a table with one for each",
        ),
        ({"privacy": {"epsilon": 0}}, "privacy.epsilon: got 0; allowed: a number above 0"),
        (
            {"privacy": {"budgets": "budgets.csv"}},
            "privacy.epsilon: got 1.0 beside a table of budgets; leave one of them out",
        ),
        (
            {"privacy": {"budgets": "budgets.csv", "epsilon": None, "delta": 1e-6}},
            "privacy.delta: got 1e-06 beside a table of budgets, which has one for each agent; leave it out",
        ),
        ({"privacy": {"delta": 1}}, "privacy.delta: got 1; allowed: a number from 0 to below 1"),
        (
            {"privacy": {"delta": 0}},
            'privacy.delta: got 0.0; gaussian noise needs a delta above 0: use mechanism = "laplace"',
        ),
        (
            {"privacy": {"delta": 0, "mechanism": "laplace", "accountant": "zcdp"}},
            'privacy.delta: got 0.0; accountant = "zcdp" needs a delta above 0: use "basic"',
        ),
        (
            {"privacy": {"mechanism": "uniform"}},
            f'privacy.mechanism: got "uniform"; allowed: {quoted(MECHANISMS.names)}',
        ),
        (
            {"privacy": {"accountant": "moments"}},
            f'privacy.accountant: got "moments"; allowed: {quoted(ACCOUNTANTS.names)}',
        ),
        (
            {"privacy": {"accountant": "basic"}},
            'privacy.accountant: got "basic"; allowed for mechanism = "gaussian": '
            '"gdp", "zcdp", "pld", "remark"',
        ),
        (
            {"privacy": {"mechanism": "laplace", "accountant": "gdp"}},
            'privacy.accountant: got "gdp"; allowed for mechanism = "laplace": '
            '"pld", "basic", "theorem1", "kov", "zcdp"',
        ),
        (
            {"privacy": {"mechanism": "knorm", "accountant": "pld"}},
            'privacy.accountant: got "pld"; allowed for mechanism = "knorm": '
            '"basic", "theorem1", "kov", "zcdp"',
        ),
        (
            {"privacy": {"allocation": "late"}},
            'privacy.contraction: missing; allocation = "late" needs what is left of the error after one '
            "update of each agent, a number above 0 and at most 1",
        ),
        (
            {"privacy": {"allocation": "late", "contraction": 1.5}},
            "privacy.contraction: got 1.5; allowed: a number above 0 and at most 1",
        ),
        (
            {"privacy": {"contraction": 0.9}},
            'privacy.contraction: only for allocation = "late"; leave it out',
        ),
        (
            {
                "privacy": {
                    "mechanism": "laplace",
                    "accountant": "kov",
                    "allocation": "late",
                    "contraction": 0.9,
                }
            },
            'privacy.accountant: got "kov"; it composes equal updates only: use allocation = "uniform", '
            'or "theorem1"',
        ),
        (
            {"method": RELEASE_ONCE | {"kind": "gradient"}},
            f'method.kind: got "gradient"; allowed: {quoted(STATISTICS.names)}',
        ),
        (
            {"method": RELEASE_ONCE, "objective": {"loss": "huber"}},
            'method.kind: got "mean"; it is for two classes, and loss = "huber" is not: use kind = "output"',
        ),
        (
            {"method": RELEASE_ONCE | {"kind": "output"}},
            'objective.l2: missing; kind = "output" needs one number above 0, the same for all agents',
        ),
        (
            {"method": RELEASE_ONCE | {"kind": "output"}, "objective": {"l2": 0.0}},
            'objective.l2: got 0.0; kind = "output" needs one number above 0, the same for all agents',
        ),
        (
            {"method": RELEASE_ONCE | {"kind": "output"}, "objective": {"l2": 0.1, "feature_bound": None}},
            'objective.feature_bound: missing; kind = "output" needs a public bound on the length of '
            "every sample",
        ),
        (
            {"method": RELEASE_ONCE | {"kind": "output"}, "objective": {"l2": 0.1, "loss": "quadratic"}},
            'method.width: missing; loss = "quadratic" does not bound the gradient of a sample: say '
            "from which residual on the released model takes it as absolute (Huber)",
        ),
        (
            {
                "method": RELEASE_ONCE | {"kind": "objective"},
                "objective": {"l2": 0.1, "loss": "softmax", "classes": 3},
            },
            'method.kind: got "objective"; it is for losses of one score: use kind = "output"',
        ),
        (
            {"method": LOWPASS | {"kind": "objective"}, "objective": {"l2": 0.1}},
            'method.kind: got "objective"; it is for losses of a residual, and loss = "logistic" is not: '
            'use kind = "mean", or name = "release_once"',
        ),
        (
            {"method": LOWPASS | {"updates": 3}},
            "method.updates: unknown key; known here are name, kind",
        ),
        (
            {"method": LOWPASS, "objective": {"loss": "quadratic"}},
            'method.kind: got "mean"; it is for two classes, and loss = "quadratic" is not: '
            'use kind = "output"',
        ),
        (
            {"method": LOWPASS | {"kind": "output"}, "objective": {"l2": 0.1}},
            'method.kind: got "output"; it is for losses of a residual, and loss = "logistic" is not: '
            'use kind = "mean", or name = "release_once"',
        ),
        (
            {"method": LOWPASS | {"kind": "output"}, "objective": {"l2": 0.1, "loss": "quadratic"}},
            'method.width: missing; loss = "quadratic" does not bound the gradient of a sample: say from '
            "which residual on the released model takes it as absolute (Huber)",
        ),
        (
            {"method": LOWPASS | {"kind": "output"}, "objective": {"loss": "huber"}},
            'objective.l2: missing; kind = "output" needs one number above 0, the same for all agents',
        ),
        (
            {"method": LOWPASS | {"width": 1.0}},
            'method.width: only for kind = "output"; leave it out',
        ),
        (
            {"method": LOWPASS, "engine": {"offline_share": 0.5}},
            'engine.offline_share: got 0.5; name = "lowpass" needs an ideal network, leave it out',
        ),
        (
            {"method": LOWPASS, "privacy": {"allocation": "late"}},
            'privacy.allocation: only for method.name = "cd"; leave it out',
        ),
        (
            {"method": RELEASE_ONCE, "privacy": {"clip_norm": 1.0}},
            'privacy.clip_norm: only for method.name = "cd"; leave it out',
        ),
        (
            {"method": RELEASE_ONCE, "privacy": {"mechanism": "laplace"}},
            'privacy.mechanism: only for method.name = "cd"; leave it out',
        ),
        (
            {"privacy": {"epsilon": float("inf")}},
            "privacy.epsilon: got Infinity; allowed: a finite number above 0",
        ),
        (
            {"method": RELEASE_ONCE, "privacy": {"delta": 0.0}},
            "privacy.delta: got 0.0; gaussian noise needs a delta above 0: leave delta out for its default",
        ),
        (
            {"method": RELEASE_ONCE, "privacy": {"accountant": "gdp"}},
            'privacy.accountant: only for method.name = "cd"; leave it out',
        ),
        (
            {"method": {"name": "local", "updates": None}, "privacy": {"allocation": "late"}},
            'privacy.allocation: only for method.name = "cd"; leave it out',
        ),
    ],
)
def test_a_private_run_refuses_in_one_line(tmp_path, sections, line):
    (tmp_path / "samples.csv").write_text("agent,x,y\n")
    (tmp_path / "budgets.csv").write_text("agent,epsilon,delta\n")
    with pytest.raises(ConfigError) as caught:
        Config.parse(private(**sections), folder=tmp_path)
    assert str(caught.value) == line


def test_privacy_has_keys_of_its_own(tmp_path):
    keys = "kind, epsilon, budgets, delta, clip_norm, mechanism, accountant, allocation, contraction"
    keys += ", models"
    assert refusal(tmp_path, privacy={"kind": "none", "epsilon": 1.0}) == (
        "privacy.epsilon: unknown key; known here are kind"
    )
    with pytest.raises(ConfigError, match=f"^privacy.sigma: unknown key; known here are {keys}$"):
        Config.parse(private(privacy={"sigma": 1.0}))


def private_updates(**sections):
    method = build(Config.parse(private(**sections))).method
    assert isinstance(method, CoordinateDescent)
    assert method.privacy is not None
    return method.privacy


@pytest.mark.parametrize(
    ("privacy", "accountant", "delta"),
    [
        ({}, "gdp", 1e-5),
        ({"delta": 1e-3}, "gdp", 1e-3),
        ({"accountant": "zcdp"}, "zcdp", 1e-5),
        ({"mechanism": "laplace"}, "pld", 1e-5),
        ({"mechanism": "laplace", "delta": 0}, "basic", 0.0),
        ({"mechanism": "laplace", "accountant": "basic"}, "basic", 0.0),
        ({"mechanism": "laplace", "accountant": "kov", "delta": 0}, "kov", 0.0),
        ({"mechanism": "knorm"}, "basic", 0.0),
        ({"mechanism": "knorm", "accountant": "theorem1"}, "theorem1", 1e-5),
    ],
)
def test_accountant_and_delta_have_defaults_that_fit_the_noise(privacy, accountant, delta):
    updates = private_updates(privacy=privacy)
    assert updates.budgets == Budget(1.0, delta)
    noise = updates.noise(build(Config.parse(private(privacy=privacy))).problem)
    assert noise.schedule.plans[0].accountant == accountant
    assert (updates.updates, updates.allocation) == (5, "uniform")


def test_the_default_delta_follows_the_public_cap():
    assert private_updates(objective={"max_samples": 1000}).budgets == Budget(1.0, 1e-6)


@pytest.mark.parametrize(
    ("objective", "mechanism", "bound"),
    [
        ({"loss": "logistic"}, "gaussian", 2.0),
        ({"loss": "capped_logistic"}, "gaussian", 1.0),
        ({"loss": "capped_logistic"}, "knorm", 1.0),
        ({"loss": "huber", "width": 0.5}, "gaussian", 2.0),
        # ‖x‖₁ ≤ √3·‖x‖₂ in three dimensions.
        ({"loss": "capped_logistic"}, "laplace", math.sqrt(3)),
    ],
)
def test_the_default_clip_is_a_quarter_of_the_largest_gradient(objective, mechanism, bound):
    experiment = build(Config.parse(private(objective=objective, privacy={"mechanism": mechanism})))
    clip = experiment.method.privacy.clip_for(experiment.problem)
    assert clip == pytest.approx(bound / 4, rel=1e-12)


def test_a_clip_that_is_given_is_kept():
    assert private_updates(objective={"loss": "quadratic"}, privacy={"clip_norm": 0.3}).clip == 0.3


def test_a_late_allocation_by_the_agents_own_clock():
    late = {"allocation": "late", "contraction": 0.5}
    gaussian = private_updates(privacy=late).costs()
    pure = private_updates(privacy={**late, "mechanism": "knorm"}).costs()
    assert gaussian == pytest.approx([0.5 ** (left / 4) for left in (4, 3, 2, 1, 0)])
    assert pure == pytest.approx([0.5 ** (left / 3) for left in (4, 3, 2, 1, 0)])


def test_a_contraction_that_starves_early_updates_is_refused():
    experiment = build(Config.parse(private(privacy={"allocation": "late", "contraction": 1e-12})))
    with pytest.raises(PrivacyError, match=r"^privacy\.contraction: got 1e-12; .*nearer to 1"):
        experiment.simulate()


@pytest.mark.parametrize(
    ("section", "start"),
    [
        ({}, WarmStart()),
        ({"start_share": 0.2, "start_l2": 0.5}, WarmStart(l2=0.5, share=0.2)),
    ],
)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_private_descent_may_start_from_what_was_released(section, start, mechanism):
    config = private(
        method={"name": "cd", "updates": 3, "start": "propagated"} | section, privacy={"mechanism": mechanism}
    )
    experiment = build(Config.parse(config | {"engine": {"name": "reference"}}))
    assert isinstance(experiment.method, CoordinateDescent)
    assert experiment.method.start == start
    guarantee = experiment.simulate().guarantee
    assert guarantee is not None
    assert guarantee.epsilon == (1.0, 1.0)
    assert f"{mechanism} noise on local models" in guarantee.explain()
    assert "for the start, propagated" in guarantee.explain()


def test_a_released_start_of_a_quadratic_loss_has_its_width():
    method = {"name": "cd", "updates": 3, "start": "propagated", "start_width": 1.5}
    sections = {"method": method, "objective": {"loss": "quadratic"}, "privacy": {"clip_norm": 1.0}}
    experiment = build(Config.parse(private(**sections) | {"engine": {"name": "reference"}}))
    assert isinstance(experiment.method, CoordinateDescent)
    assert experiment.method.start == WarmStart(width=1.5)
    guarantee = experiment.simulate().guarantee
    assert guarantee is not None
    assert guarantee.epsilon == (1.0, 1.0)


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        (
            {"method": {"name": "cd", "updates": 3, "start": "propagated", "start_share": 1.5}},
            "method.start_share: got 1.5; allowed: a number between 0 and 1, both excluded",
        ),
        (
            {"method": {"name": "cd", "updates": 3, "start_share": 0.2}},
            'method.start_share: only for start = "propagated"; leave it out',
        ),
    ],
)
def test_settings_of_a_released_start_are_checked(tmp_path, sections, line):
    assert refusal(tmp_path, **private(**sections)) == line


@pytest.mark.parametrize(
    ("section", "statistic"),
    [
        ({"kind": "mean"}, PointMean()),
        ({}, PointMean()),
        ({"kind": "output"}, OutputPerturbation()),
        ({"kind": "objective"}, ObjectivePerturbation()),
    ],
)
def test_release_once_releases_the_statistic_that_is_named(section, statistic):
    config = private(method=RELEASE_ONCE | section, objective={"l2": 0.1})
    method = build(Config.parse(config)).method
    assert method == ReleaseOnce(Budget(1.0, 1e-5), statistic)


@pytest.mark.parametrize(
    ("section", "loss", "statistic"),
    [
        ({}, "logistic", PointMean()),
        ({"kind": "output"}, "huber", OutputPerturbation()),
        ({"kind": "output", "width": 0.5}, "quadratic", OutputPerturbation(width=0.5)),
    ],
)
def test_the_low_pass_smooths_the_statistic_that_is_named(section, loss, statistic):
    config = private(method=LOWPASS | section, objective={"l2": 0.1, "loss": loss})
    method = build(Config.parse(config)).method
    assert method == ReleaseOnce(Budget(1.0, 1e-5), statistic, LowPass())


def test_the_low_pass_from_end_to_end(tmp_path):
    rows = "".join(f"{agent},{1 + agent / 10},1e-6\n" for agent in range(12))
    (tmp_path / "budgets.csv").write_text("agent,epsilon,delta\n" + rows)
    config = private(method=LOWPASS, data={"agents": 12}, privacy={"budgets": "budgets.csv", "epsilon": None})
    run = build(Config.parse(config, folder=tmp_path)).simulate()
    assert run.own_models is not None
    assert run.guarantee is not None
    assert run.guarantee.epsilon == (1.0, 2.1)
    assert run.final.vectors == sum(run.settings["vectors_by_stage"].values()) > 0


def test_release_once_may_stop_by_what_has_been_released():
    method = RELEASE_ONCE | {"updates": None, "tolerance": 1e-3}
    config = Config.parse(private(method=method, engine={"name": "reference"}))
    assert build(config).simulate().stopped == "tolerance"


BUDGETS = {"budgets": "budgets.csv", "epsilon": None}


def with_budgets(folder, rows, **privacy):
    (folder / "budgets.csv").write_text("agent,epsilon,delta\n" + rows)
    return Config.parse(private(data={"agents": 3}, privacy=BUDGETS | privacy), folder=folder)


def test_everyone_has_a_budget_of_its_own(tmp_path):
    method = build(with_budgets(tmp_path, "2,0.5,1e-6\n0,1,1e-5\n1,2,1e-5\n")).method
    assert isinstance(method, CoordinateDescent)
    assert method.privacy is not None
    assert method.privacy.budgets == (Budget(1.0, 1e-5), Budget(2.0, 1e-5), Budget(0.5, 1e-6))


def test_one_agent_without_a_delta_makes_the_accounting_pure(tmp_path):
    config = with_budgets(tmp_path, "0,1,0\n1,1,1e-5\n2,1,1e-5\n", mechanism="laplace")
    experiment = build(config)
    method = experiment.method
    assert isinstance(method, CoordinateDescent)
    assert method.privacy is not None
    plans = method.privacy.noise(experiment.problem).schedule.plans
    assert {plan.accountant for plan in plans} == {"basic"}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("0,1,1e-5\n2,1,1e-5\n", "agent '1', column 'agent': 0 rows; every agent needs exactly one"),
        (
            "0,1,1e-5\n1,1,1e-5\n2,1,1e-5\n1,2,1e-5\n",
            "agent '1', column 'agent': 2 rows; every agent needs exactly one",
        ),
        ("0,1,1e-5\n1,1,1e-5\n2,1,1e-5\n7,1,1e-5\n", "agent '7', column 'agent', row 4: is not one of"),
        ("0,1,1e-5\n1,much,1e-5\n2,1,1e-5\n", "agent '1', column 'epsilon': got 'much'; write a number"),
        ("0,1,1e-5\n1,1,\n2,1,1e-5\n", "agent '1', column 'delta': got a missing value; write a number"),
        (
            "0,1,1e-5\n1,-1,1e-5\n2,1,1e-5\n",
            "agent '1': epsilon must be positive and finite, got epsilon=-1.0",
        ),
        ("0,1,1e-5\n1,1,2\n2,1,1e-5\n", "agent '1': delta must be from 0 to below 1, got delta=2.0"),
        ("0,1,1e-5\n1,1,0\n2,1,1e-5\n", "agent '1': got delta = 0; gaussian noise needs a delta above 0"),
        ("", "the table has no rows"),
    ],
)
def test_a_table_of_budgets_that_does_not_fit_is_refused(tmp_path, rows, words):
    config = with_budgets(tmp_path, rows)
    with pytest.raises(ConfigError) as caught:
        build(config)
    assert str(caught.value).startswith(f"{tmp_path / 'budgets.csv'}: {words}")


def test_a_table_of_budgets_needs_its_columns(tmp_path):
    config = with_budgets(tmp_path, "0,1,1e-5\n")
    (tmp_path / "budgets.csv").write_text("agent,epsilon\n0,1\n")
    with pytest.raises(ConfigError, match=r"budgets\.csv: there is no column 'delta'"):
        build(config)


def test_a_missing_table_of_budgets_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^privacy\.budgets: got \"budgets\.csv\"; there is no file"):
        Config.parse(private(privacy=BUDGETS), folder=tmp_path)


def test_a_private_run_takes_nothing_from_the_length_of_samples():
    """Longer samples are scaled to the public bound in what is exchanged; step sizes follow from it alone."""
    bounded = build(Config.parse(private(objective={"feature_bound": 0.5})))
    free = build(Config.parse(private(objective={"feature_bound": 100.0})))
    lengths = np.linalg.norm(free.train.features, axis=1)
    kept = np.linalg.norm(bounded.problem.exchanged.features, axis=1)
    assert (lengths > 0.5).any()
    np.testing.assert_allclose(kept, np.minimum(lengths, 0.5), rtol=1e-12)
    assert bounded.problem.local_smoothness == pytest.approx(0.25 * 0.5**2 + 2 * bounded.problem.l2_penalties)
    # What stays at home uses the data as they are.
    assert (bounded.train.features == free.train.features).all()
    assert bounded.test is not None
    assert free.test is not None
    assert (bounded.test.features == free.test.features).all()


def test_auto_is_chosen_on_other_instances_than_the_private_one(monkeypatch):
    seen = []

    def spy(trials, grid, **options):
        seen.extend(problem.population for problem, _ in trials)
        return choose_tradeoff(trials, [0.5, 2.0], **options)

    monkeypatch.setattr("flockwise.config.experiment.choose_tradeoff", spy)
    config = Config.parse(private(objective={"tradeoff": "auto"}, data={"test_samples": 0}))
    experiment = build(config)
    assert len(seen) == 5
    rows = {row.tobytes() for row in experiment.train.features}
    assert not any(row.tobytes() in rows for population in seen for row in population.features)
    assert experiment.choice is not None
    assert experiment.problem.tradeoff == experiment.choice.best
    assert "other seeds" in experiment.choice_description


def test_without_privacy_auto_is_chosen_on_a_part_of_the_samples():
    experiment = build(Config.parse(valid(objective={"tradeoff": "auto"})))
    assert "part of the training samples" in experiment.choice_description


def tiny_movielens():
    """Eight users who rate ten of twelve movies each."""
    random = np.random.default_rng(0)
    n_users, n_movies, n_rated = 8, 12, 10
    rated = np.concatenate([random.choice(n_movies, n_rated, replace=False) for _ in range(n_users)])
    ratings = Ratings(
        users=np.repeat(np.arange(n_users), n_rated),
        movies=rated,
        values=random.integers(1, 6, n_users * n_rated).astype(np.float64),
        n_users=n_users,
        n_movies=n_movies,
    )
    users = Users(
        ages=np.arange(20, 20 + n_users),
        genders=("F", "M") * 4,
        occupations=("artist", "writer") * 4,
        zip_codes=("00000",) * n_users,
    )
    movies = Movies(
        titles=tuple(f"movie {number}" for number in range(n_movies)),
        years=np.arange(1990.0, 1990 + n_movies),
        genres=random.random((n_movies, 19)) < 0.3,
        genre_names=tuple(f"genre {number}" for number in range(19)),
    )
    return MovieLens(ratings, users, movies)


@pytest.mark.parametrize(
    ("choices", "derived"),
    [
        ({"features": "genres", "centring": "public"}, ()),
        (
            {"features": "als", "centring": "user_mean"},
            (
                "the movie features, factors of the agents' own ratings",
                "the targets, centered by each agent's own mean rating",
            ),
        ),
        (
            {"features": "als_disjoint", "centring": "public"},
            ("the movie features, factors of the ratings of other users, who are not agents",),
        ),
    ],
)
def test_features_and_centers_from_ratings_are_named_as_not_covered(monkeypatch, choices, derived):
    monkeypatch.setattr(samples, "load_movielens", lambda folder: tiny_movielens())
    config = private(
        data={"source": "movielens", "agents": None, "dimension": None, **choices},
        graph={"kind": "knn", "from": "ratings", "threshold": None, "k": 2},
        objective={"loss": "huber"},
    )
    experiment = build(Config.parse(config))
    method = experiment.method
    assert isinstance(method, CoordinateDescent)
    for one in (method, ReleaseOnce(Budget(1.0, 1e-5), OutputPerturbation(l2=0.1))):
        guarantee = one.prepare(experiment.problem, seed=0).guarantee
        assert guarantee is not None
        assert guarantee.not_covered == (*derived, "the graph, built from ratings")
        assert not guarantee.is_private


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"privacy": {"mechanism": "laplace", "delta": 0}},
        {"method": RELEASE_ONCE},
        {"method": RELEASE_ONCE | {"kind": "output"}, "objective": {"l2": 0.1}},
    ],
)
def test_a_private_run_from_end_to_end(sections):
    experiment = build(Config.parse(private(**sections, engine={"name": "reference"})))
    run = experiment.simulate()
    assert (run.updates == 5).all()
    assert run.own_models is not None
    assert run.guarantee is not None
    assert run.guarantee.epsilon == (1.0, 1.0)
    assert run.guarantee.not_covered == ("the graph, built from targets",)
    assert "(ε = 1, δ = " in run.guarantee.label
    assert np.isfinite(run.models).all()


def test_learning_alone_may_be_called_private():
    experiment = build(Config.parse(private(method={"name": "local", "updates": None})))
    assert experiment.method == Local()
    assert experiment.simulate().final.vectors == 0


@pytest.mark.parametrize("name", ["private", "private_cd", "lowpass"])
def test_the_private_examples_can_be_read(name):
    privacy = Config.read(EXAMPLES / f"{name}.toml").privacy
    assert (privacy.kind, getattr(privacy, "epsilon", None)) == ("dp", 1.0)


@pytest.mark.parametrize("name", ["rooms", "synthetic", "movielens"])
def test_the_examples_can_be_read(name):
    assert Config.read(EXAMPLES / f"{name}.toml").privacy.kind == "none"


@pytest.mark.skipif("FLOCKWISE_DATA" not in os.environ, reason="FLOCKWISE_DATA does not name the data")
def test_validation_ratings_have_no_part_in_movie_features():
    """Features fitted to the ratings that judge μ would make every μ look better, the largest most."""
    from flockwise.config.samples import load_samples, validation_samples

    config = Config.read(EXAMPLES / "movielens.toml")
    outer = load_samples(config.data, 0)
    inner = validation_samples(config.data, outer, 0.2, 0)
    assert inner.test is not None
    assert inner.train.n_samples + inner.test.n_samples == outer.train.n_samples
    assert inner.rating_matrix.nnz == inner.train.n_samples
    # The features of a movie differ where its ratings were held out.
    assert not np.isin(inner.test.features[:100].round(9), outer.train.features.round(9)).any()


@pytest.mark.parametrize("tradeoff", [2.0, "auto"])
@pytest.mark.parametrize("origin", ["targets", "models"])
def test_penalties_are_chosen_on_the_samples_where_the_file_leaves_them_open(tradeoff, origin):
    graph = {"kind": "angular", "from": origin, "threshold": 0}
    experiment = build(Config.parse(valid(graph=graph, objective={"l2": "auto", "tradeoff": tradeoff})))
    problem = experiment.problem
    plain = problem.with_objective(l2="auto")
    assert problem.l2_penalties.tolist() == choose_l2(plain).l2_penalties.tolist()
    assert experiment.simulate().final.ticks > 0


def test_a_private_run_uses_the_default_penalties_where_the_file_leaves_them_open():
    privacy = {"kind": "dp", "epsilon": 1.0, "clip_norm": 1.0}
    objective = {"l2": "auto", "tradeoff": 2.0, "feature_bound": 3.0, "max_samples": 100}
    config = Config.parse(valid(graph={"kind": "complete"}, privacy=privacy, objective=objective))
    experiment = build(config)
    counts = experiment.problem.population.sample_counts
    assert experiment.problem.l2_penalties.tolist() == (1 / np.maximum(counts, 1)).tolist()
    guarantee = experiment.simulate().guarantee
    assert guarantee is not None
    assert not any("l2" in words for words in guarantee.not_covered)


def test_shards_and_address_are_keys_of_the_ray_engine_alone():
    keys = {"shards": 2, "address": "10.0.0.1:6379"}
    engine = Config.parse(valid(engine={"name": "ray"} | keys)).engine
    assert (engine.shards, engine.address) == (2, "10.0.0.1:6379")
    with pytest.raises(ConfigError, match=r"engine\.shards"):
        Config.parse(valid(engine={"name": "cpu"} | keys))
