"""Hostile messages in great number: none raises, none gets in, each is counted; and the test would notice."""

from typing import get_args

import pytest
from tests.network.fuzz import Campaign

from flockwise.net import wire
from flockwise.net.intake import Intake
from flockwise.net.wire import Reason

# The campaign has no rate limit: a flood is what it is.
REASONS = set(get_args(Reason)) - {"flooded"}


def test_a_few_thousand_hostile_messages_change_nothing():
    report = Campaign(seed=1).run(5000)
    assert set(report.dropped) == REASONS
    assert report.messages == sum(report.kinds.values()) == 5000


@pytest.mark.network
def test_a_hundred_thousand_hostile_messages_change_nothing():
    """About 20 seconds; `python -m tests.network.fuzz --messages 10000000` is the long form."""
    report = Campaign(seed=2).run(100_000)
    assert set(report.dropped) == REASONS
    assert min(report.kinds.values()) >= 100


def unsigned(self, opened, public_key):
    """No check of signatures."""


def unnumbered(self, number, track, peer, opened, data):
    """A signature, and any number."""
    self._check_signature(opened, peer.key.public_key)


def unnamed(self, opened, sender):
    """Any network and any name."""


def advanced_first(self, number, track, peer, opened, data, original=Intake._check_number):
    """The last number moves before the signature is checked."""
    if number > track.last:
        track.last = number
        self._check_signature(opened, peer.key.public_key)
    else:
        original(self, number, track, peer, opened, data)


def unbounded(self, opened):
    """Any coordinates, if there are as many as there should be."""
    if opened.vector.size != self._dimension:
        raise wire.Rejected("wrong_dimension")


SABOTAGE = {
    "no check of signatures": (Intake, "_check_signature", unsigned),
    "no check of numbers": (Intake, "_check_number", unnumbered),
    "no check of names": (Intake, "_check_names", unnamed),
    "a number that moves too early": (Intake, "_check_number", advanced_first),
    "no check of coordinates": (Intake, "_check_coordinates", unbounded),
    "an exception that is not Rejected": (wire, "Rejected", ValueError),
}


@pytest.mark.parametrize("flaw", SABOTAGE)
def test_a_flaw_is_found(flaw, monkeypatch):
    campaign = Campaign(seed=3)
    place, name, broken = SABOTAGE[flaw]
    monkeypatch.setattr(place, name, broken)
    with pytest.raises(AssertionError):
        campaign.run(2000)
