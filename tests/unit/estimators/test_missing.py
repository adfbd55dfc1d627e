"""Without scikit-learn the rest of the package works, and one line says what to install."""

import subprocess
import sys

CODE = """
import sys
sys.modules["sklearn"] = None  # as if it were not installed
import flockwise
flockwise.Budget(1.0)
try:
    flockwise.PersonalizedClassifier
except flockwise.FlockwiseError as error:
    print(error)
"""


def test_a_missing_scikit_learn_gives_one_line_that_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "flockwise.estimators needs an optional part: pip install 'flockwise[sklearn]'"
    ]
