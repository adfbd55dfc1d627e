"""scikit-learn's own checks of an estimator, all of them."""

import os
import subprocess
import sys
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from flockwise import PersonalizedClassifier, PersonalizedRegressor

ESTIMATORS = [
    PersonalizedClassifier(),
    PersonalizedRegressor(),
    PersonalizedClassifier(prepare=None),
    PersonalizedRegressor(prepare=None),
]
# Those that need a setting which SciPy reads when it is imported: they run in a process of their own.
NEEDS_SETTING = "check_array_api"
CHECKS: list[Any] = [pair for estimator in ESTIMATORS for pair in estimator_checks_generator(estimator)]


def name_of(check) -> str:
    return check.func.__name__


def shown(pair) -> str:
    estimator, check = pair
    return f"{estimator!r}-{name_of(check)}"


@pytest.mark.parametrize(
    "pair", [pair for pair in CHECKS if not name_of(pair[1]).startswith(NEEDS_SETTING)], ids=shown
)
def test_scikit_learns_check_passes(pair):
    estimator, check = pair
    check(estimator)


def test_scikit_learns_checks_of_its_array_interface_pass():
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(ESTIMATORS)


def test_an_estimator_is_checked_in_more_than_fifty_ways():
    assert all(len([one for one, _ in CHECKS if one is estimator]) > 50 for estimator in ESTIMATORS)


if __name__ == "__main__":
    chosen = [pair for pair in CHECKS if name_of(pair[1]).startswith(NEEDS_SETTING)]
    for estimator, check in chosen:
        check(estimator)
    print(len(chosen))
