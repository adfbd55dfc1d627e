"""Every registered part can be asked for in a configuration, and is read again from what reports show of it.

The tests walk the registries: a new part is tested here without another line.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest

from flockwise.checks import fits
from flockwise.config import Config, build
from flockwise.config.parts import Setting, objective_of, settings_of, spending_of
from flockwise.config.samples import build_graph, load_samples
from flockwise.config.sections import CLOCKED
from flockwise.graph import GRAPHS, GraphSource
from flockwise.method import METHODS
from flockwise.method.start import STARTS
from flockwise.objective import LOSSES
from flockwise.privacy.budget import Budget
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.release.statistic import STATISTICS

DATA = {"source": "synthetic", "agents": 40, "dimension": 3}
PRIVATE = {"kind": "dp", "epsilon": 2.0, "delta": 1e-3}
# Values to try for a key, until one is allowed and is not the default.
TRIED = (0.25, 3, "reference", True, False)


def toml(sections: dict[str, dict[str, Any]]) -> str:
    """Text, numbers, switches and lists are written in TOML as in JSON."""
    lines = []
    for name, section in sections.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    return "\n".join(lines)


def read(**sections: dict[str, Any]) -> Config:
    values = {"data": DATA, "method": {"name": "local"}, "privacy": {"kind": "none"}}
    return Config.parse(tomllib.loads(toml(values | sections)))


def read_again(config: Config) -> Config:
    shown = config.dump()
    seed = shown.pop("general")["seed"]
    again = Config.parse(tomllib.loads(f"seed = {seed}\n{toml(shown)}"))
    assert again.dump() == config.dump()
    return again


def other_values(settings: Iterator[Setting]) -> dict[str, tuple[str, Any]]:
    """By key: the field, and an allowed value that is not the default, where one of those tried is."""
    found = {}
    for setting in settings:
        choices = [*TRIED, *words_of(setting.annotation)]
        allowed = [one for one in choices if fits(one, setting.annotation) and one != setting.default]
        if setting.part is None and allowed:
            found[setting.key] = setting.field, allowed[0]
    return found


def words_of(annotation: Any) -> Iterator[str]:
    """All text in an annotation, such as the choices of a Literal."""
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        yield from words_of(part)


def keys(values: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, (_, value) in values.items()}


def arguments(values: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    return dict(values.values())


def test_values_other_than_the_default_are_found():
    values = other_values(settings_of(GRAPHS["knn"]))
    assert values == {"k": ("k", 3), "metric": ("metric", "cosine")}


@pytest.mark.parametrize("name", LOSSES.names)
def test_every_loss(name):
    values = other_values(settings_of(LOSSES[name]))
    config = read(objective={"loss": name, **keys(values)})
    for one in (config, read_again(config)):
        loss = objective_of(one, 1.0).loss
        assert type(loss) is LOSSES[name]
        assert loss == LOSSES[name](**arguments(values))


@pytest.mark.parametrize("name", GRAPHS.names)
def test_every_kind_of_graph(name):
    kind, values = GRAPHS[name], other_values(settings_of(GRAPHS[name]))
    compared = {"from": "profiles"} if hasattr(kind, "of_vectors") else {}
    config = read(graph={"kind": name, **compared, **keys(values)})
    samples, graph = load_samples(config.data, config.seed), kind(**arguments(values))
    wanted = (
        graph.of_vectors(samples.profiles, GraphSource("profiles"), None)
        if compared
        else graph.of_agents(samples.train.n_agents, config.seed)
    )
    for one in (config, read_again(config)):
        made = build_graph(one, samples)
        assert made is not None
        assert made.source.describe() == wanted.source.describe()
        assert np.array_equal(made.to_scipy().toarray(), wanted.to_scipy().toarray())


def methods() -> Iterator[Any]:
    for variant in METHODS:
        if not variant.needs_privacy:
            yield pytest.param(variant, False, id=variant.name)
        if variant.privacy is not None:
            yield pytest.param(variant, True, id=f"{variant.name}, private")


@pytest.mark.parametrize(("variant", "is_private"), list(methods()))
def test_every_method(variant, is_private):
    values = other_values(settings_of(variant.kind, frozenset({"privacy", *variant.preset})))
    clocked = variant.rule in CLOCKED
    config = read(
        objective={"tradeoff": 1.0} | ({"feature_bound": 2.0} if is_private else {}),
        graph={"kind": "complete"},
        method={"name": variant.name, **keys(values), **({"updates": 4} if clocked else {})},
        privacy=PRIVATE if is_private else {"kind": "none"},
    )
    for one in (config, read_again(config)):
        method = build(one).method
        assert type(method) is variant.kind
        wanted = dict(variant.preset) | arguments(values)
        assert {field: getattr(method, field) for field in wanted} == wanted
        if is_private:
            budget = Budget(PRIVATE["epsilon"], PRIVATE["delta"])
            assert getattr(method.privacy, "budgets", method.privacy) == budget
        else:
            assert method.privacy is None


@pytest.mark.parametrize("name", MECHANISMS.names)
def test_every_mechanism(name):
    config = read_again(private_descent(privacy={"mechanism": name}))
    assert build(config).method.privacy.mechanism == name


@pytest.mark.parametrize("name", STARTS.names)
def test_every_start(name):
    values = other_values(settings_of(STARTS[name]))
    # A width is for losses without a bound of their own.
    values.pop("start_width", None)
    config = read_again(private_descent(method={"start": name, **keys(values)}))
    method: Any = build(config).method
    assert method.start == STARTS[name](**arguments(values))


def private_descent(**sections: dict[str, Any]) -> Config:
    values: dict[str, dict[str, Any]] = {
        "objective": {"tradeoff": 1.0, "feature_bound": 2.0},
        "graph": {"kind": "complete"},
        "method": {"name": "cd", "updates": 4},
        "privacy": PRIVATE,
    }
    return read(**{name: section | sections.get(name, {}) for name, section in values.items()})


@pytest.mark.parametrize("name", STATISTICS.names)
def test_every_statistic(name):
    config = private_descent(objective={"l2": 0.1}, method={"name": "release_once", "kind": name})
    method: Any = build(read_again(config)).method
    assert type(method.statistic) is STATISTICS[name]


def test_every_key_of_a_budget_is_read():
    variant = METHODS["cd"]
    values = other_values(settings_of(spending_of(variant)))
    assert {"clip_norm", "mechanism", "allocation", "contraction", "models"} <= values.keys()
    values |= {"contraction": ("contraction", 0.9)}  # one that leaves early updates something
    del values["accountant"]  # of the mechanism
    privacy = build(read_again(private_descent(privacy=keys(values)))).method.privacy
    wanted = arguments(values)
    assert {field: getattr(privacy, field) for field in wanted} == wanted
