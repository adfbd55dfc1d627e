"""Shards that are lost, busy or failing, by what Ray says; `make cluster` tests Ray itself."""

from types import SimpleNamespace

import pytest

from flockwise.engine.ray.cluster import RayWorkers, ShardActor
from flockwise.errors import DataError, SimulationError


class RayError(Exception):
    pass


class GetTimeoutError(RayError):
    pass


class Actor:
    """One that is asked for a sign of life; what it answers may be an exception."""

    def __init__(self, answer):
        self.pid = SimpleNamespace(remote=lambda: answer)


class FakeRay:
    exceptions = SimpleNamespace(RayError=RayError, GetTimeoutError=GetTimeoutError)

    def __init__(self):
        self.killed = []

    def wait(self, signs, num_returns, timeout):
        assert num_returns == len(signs)

    def get(self, sign, timeout):
        if isinstance(sign, Exception):
            raise sign
        return sign

    def kill(self, actor):
        self.killed.append(actor)


def test_a_lost_shard_is_replaced_and_one_that_is_still_at_work_is_not():
    workers, ray = RayWorkers.__new__(RayWorkers), FakeRay()
    alive, busy, lost = actors = [Actor(17), Actor(GetTimeoutError()), Actor(RayError("died"))]
    workers._ray, workers._actors = ray, list(actors)
    workers._cluster = SimpleNamespace(nodes=lambda: ["here"])  # pyright: ignore[reportAttributeAccessIssue]
    workers._new_actor = lambda shard, node: (shard, node)
    workers.replace_lost()
    assert workers._actors == [alive, busy, (2, "here")]
    assert ray.killed == [lost]


def test_a_failing_shard_says_its_number_and_what_went_wrong():
    actor = ShardActor(3, SimpleNamespace())  # pyright: ignore[reportArgumentType]
    actor.__dict__["_shard"] = SimpleNamespace(step=lambda until: 1 // until, load=refuse)
    for call in (actor.call, lambda method, *given: actor.call_spread(method, 1, *given)):
        with pytest.raises(
            SimulationError, match=r"shard 3 failed in 'step': ZeroDivisionError: integer div"
        ):
            call("step", 0)
        with pytest.raises(DataError, match=r"^file 7 is damaged$"):
            call("load", 7)


def refuse(file):
    raise DataError(f"file {file} is damaged")
