"""Settings for every test: one run of the suite is like any other."""

from __future__ import annotations

from hypothesis import settings

# The same examples every time, so that a red test is red for everyone; compilation by numba makes
# the first example of a test slow, so that a deadline would only measure that.
settings.register_profile("flockwise", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("flockwise")
