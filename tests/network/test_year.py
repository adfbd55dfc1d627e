"""A year of daily changes: nothing is overspent or drawn twice, and neighbors find each other again.

`python -m tests.network.year` prints its figures.
"""

import pytest
from tests.network.faults.watch import Broken
from tests.network.year import MINUTE, MONTH, YearWorld

YEAR = 365
# Of agents that have gone, at 2 ticks a day: those that stay for a month spend all of their budget.
EXPECTED_RELEASES = 12_000


def lived(days, seed=0):
    world = YearWorld(seed)
    for day in range(days):
        world.run_day(day)
    return world


def test_a_few_days_break_nothing_and_a_seed_is_one_run():
    one, other = lived(2), lived(2)
    assert one.digest == other.digest
    assert one.counts["joins"] == one.counts["leaves"] == one.counts["moves"] == 2
    assert 0 < one.slowest < MINUTE


@pytest.mark.parametrize(
    ("sabotage", "found"),
    [
        (lambda patch: patch.setattr(YearWorld, "notice", 70.0), "has not heard from"),
        (lambda patch: patch.setattr(YearWorld, "_take_roster", lambda self, name: None), "has roster 1 of"),
    ],
)
def test_a_network_that_loses_touch_is_found(sabotage, found, monkeypatch):
    sabotage(monkeypatch)
    with pytest.raises(Broken, match=found):
        lived(1)


def test_neighbors_that_miss_a_revocation_are_found(monkeypatch):
    world = lived(1)
    monkeypatch.setattr(YearWorld, "_take_roster", lambda self, name: None)
    monkeypatch.setattr(YearWorld, "check_contacts", lambda self: None)
    with pytest.raises(Broken, match=r"listens to|was accepted that"):
        world.run_day(MONTH - 1)


@pytest.mark.network
def test_a_year_breaks_nothing():
    """About two minutes of one core."""
    world = lived(YEAR)
    assert world.counts["revoked"] == YEAR // MONTH
    assert min(world.counts[what] for what in ("joins", "leaves", "arrives", "lapses")) > 0.95 * YEAR
    assert world.counts["died at a write"] > YEAR / 6
    assert world.counts["dropped: unknown_sender"] > 0
    assert world.releases > EXPECTED_RELEASES
    assert world.slowest < MINUTE
