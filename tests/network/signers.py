"""Agents that only sign: the other ends of an intake under test."""

from __future__ import annotations

import numpy as np

from flockwise.net.intake import Intake, NeighborKey
from flockwise.net.rate import RateLimit
from flockwise.net.signing import public_key_of
from flockwise.net.wire import ModelBody, PrivacyLabel, RelayBody, sign
from flockwise.privacy.messages import encode
from flockwise.runtime.testing import key_for_tests

NETWORK = "meadow"
WEIGHT = 0.5
BOUND = 1e6
NO_LIMIT = RateLimit(per_second=1e9, burst=10**9)


class Signer:
    """A name with a key that follows from it, so one seed gives one run."""

    def __init__(self, name, network=NETWORK):
        self.name = name
        self.network = network
        self.key = key_for_tests(name)
        self.public_key = public_key_of(self.key)

    def model(
        self, number, vector, *, privacy: PrivacyLabel = "none", payload=None, sender=None, network=None
    ):
        """A signed model; whatever is given replaces what an honest agent would write there."""
        payload = encode(number, np.asarray(vector, float)) if payload is None else payload
        body = ModelBody(network or self.network, sender or self.name, number, privacy, payload)
        return sign(body, self.key)

    def relay(self, stage, round, vector, *, payload=None, sender=None):
        payload = encode(round, np.asarray(vector, float)) if payload is None else payload
        return sign(RelayBody(self.network, sender or self.name, stage, round, payload), self.key)


def intake_of(me, neighbors, dimension, **options):
    """The intake of one signer with others as its neighbors; no rate limit unless one is given."""
    options = {"rate": NO_LIMIT, "clock": lambda: 0, "magnitude_bound": BOUND} | options
    options.setdefault("privacy", "none")
    keys = {other.name: NeighborKey(other.public_key, WEIGHT, i) for i, other in enumerate(neighbors)}
    return Intake(me.name, NETWORK, dimension, neighbors=keys, public_key=me.public_key, **options)


def counts(intake):
    """Everything that an intake was given, as it counted it."""
    return intake.accepted + intake.duplicates + sum(intake.dropped.values())
