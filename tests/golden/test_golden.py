"""Runs are as they were: the frozen results of every method on both engines."""

from __future__ import annotations

import json

import pytest

from flockwise.method import METHODS
from flockwise.objective import LOSSES
from flockwise.objective.losses import loss_name
from flockwise.privacy import MECHANISMS
from flockwise.release import STATISTICS
from tests.golden.bits import FILE as BITS
from tests.golden.bits import MADE_WITH, bits_of_all_runs
from tests.golden.cases import SEEDS, cases
from tests.golden.freeze import FILE, differences, kept

FROZEN = json.loads(FILE.read_text(encoding="utf-8"))
FROZEN_BITS = json.loads(BITS.read_text(encoding="utf-8"))
CASES = {case.name: case for case in cases()}


def test_every_frozen_run_is_still_run():
    names = {
        f"{name} {engine} {seed}" for name, case in CASES.items() for engine in case.engines for seed in SEEDS
    }
    assert names == FROZEN.keys()


def test_every_registered_method_has_a_frozen_run_with_and_without_privacy():
    frozen = {(case.method.name, case.method.privacy is not None) for case in CASES.values()}
    wanted = {(one.name, False) for one in METHODS if not one.needs_privacy}
    wanted |= {(one.name, True) for one in METHODS if one.privacy is not None}
    assert wanted <= frozen


def test_every_registered_loss_mechanism_and_statistic_has_a_frozen_run():
    methods = [case.method for case in CASES.values()]
    statistics = {method.statistic for method in methods if hasattr(method, "statistic")}
    mechanisms = {one.privacy.mechanism for one in methods if hasattr(one.privacy, "mechanism")}
    assert {loss_name(case.problem.loss) for case in CASES.values()} >= set(LOSSES.names)
    assert mechanisms | {one.mechanism for one in statistics} >= set(MECHANISMS.names)
    assert {one.name for one in statistics} >= set(STATISTICS.names)


@pytest.mark.slow
@pytest.mark.skipif(FROZEN_BITS["made_with"] != MADE_WITH, reason="bits.json was made with something else")
def test_the_reference_engine_gives_the_same_bits():
    assert bits_of_all_runs() == FROZEN_BITS["runs"]


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_as_it_was(name):
    wrong = []
    for engine in CASES[name].engines:
        for seed in SEEDS:
            key = f"{name} {engine} {seed}"
            wrong += differences(key, kept(CASES[name].run(engine, seed)), FROZEN[key])
    assert not wrong
