"""Shards that are lost, busy or failing, by what Ray says; `make cluster` tests Ray itself."""

from types import SimpleNamespace

import pytest

from flockwise.engine.ray import cluster
from flockwise.engine.ray.cluster import STARTS, RayWorkers, ShardActor
from flockwise.errors import DataError, SimulationError


class RayError(Exception):
    pass


class GetTimeoutError(RayError):
    pass


class RayTaskError(RayError):
    cause = DataError("file 7 is damaged")


class Actor:
    """One that is asked for a sign of life; what it answers may be an exception."""

    def __init__(self, answer):
        self.pid = SimpleNamespace(remote=lambda: answer)


class FakeRay:
    exceptions = SimpleNamespace(
        RayError=RayError, GetTimeoutError=GetTimeoutError, RayTaskError=RayTaskError
    )

    def __init__(self, slow_starts=0):
        self.killed, self.starts, self.slow_starts, self.waited = [], [], slow_starts, False
        self.facts, self.half_started = [], False

    def nodes(self):
        return [
            {"NodeID": name, "Alive": alive, "Resources": {"CPU": cpus} if cpus else {}}
            for name, alive, cpus in self.facts
        ]

    def is_initialized(self):
        return False

    def init(self, address, **options):
        assert not self.half_started, "what an earlier start left still runs"
        self.starts.append(address)
        self.half_started = len(self.starts) <= self.slow_starts
        if self.half_started:
            raise Exception("The current node timed out during startup.")

    def shutdown(self):
        self.half_started = False

    def wait(self, signs, num_returns, timeout):
        assert num_returns == len(signs)
        self.waited = True

    def get(self, signs, timeout=None):
        for sign in signs if isinstance(signs, list) else [signs]:
            if isinstance(sign, Exception):
                raise sign
        return signs

    def kill(self, actor):
        self.killed.append(actor)


def test_a_lost_shard_is_replaced_and_one_that_is_still_at_work_is_not(monkeypatch):
    monkeypatch.setattr(cluster, "SETTLING_SECONDS", 0.0)
    workers, ray = RayWorkers.__new__(RayWorkers), FakeRay()
    alive, busy, lost = actors = [Actor(17), Actor(GetTimeoutError()), Actor(RayError("died"))]
    workers._ray, workers._actors = ray, list(actors)
    workers._cluster = SimpleNamespace(nodes=lambda: ["here"])  # pyright: ignore[reportAttributeAccessIssue]
    workers._new_actor = lambda shard, node: (shard, node)
    workers.replace_lost()
    assert workers._actors == [alive, busy, (2, "here")]
    assert ray.killed == [lost]


def test_what_a_shard_refuses_is_raised_when_the_others_are_done():
    workers, ray = RayWorkers.__new__(RayWorkers), FakeRay()
    workers._ray = ray
    with pytest.raises(DataError, match="file 7 is damaged"):
        workers.wait([RayTaskError(), "still at work"])
    assert ray.waited


def test_a_machine_that_is_gone_or_made_to_do_no_work_gets_no_shard(monkeypatch):
    ray = FakeRay()
    monkeypatch.setattr(cluster, "_import_ray", lambda: ray)
    ray.facts = [("c", True, 8.0), ("b", True, 0.0), ("d", False, 8.0), ("a", True, 2.0)]
    assert [node["NodeID"] for node in cluster.RayCluster(None).nodes()] == ["a", "c"]
    ray.facts = [("b", True, 0.0)]
    assert [node["NodeID"] for node in cluster.RayCluster(None).nodes()] == ["b"]


def test_a_cluster_of_this_process_is_started_again_where_ray_gave_up_on_it(monkeypatch):
    """And by that word: without it Ray joins the cluster that `RAY_ADDRESS` or an earlier command names."""
    ray = FakeRay(slow_starts=STARTS - 1)
    monkeypatch.setattr(cluster, "_import_ray", lambda: ray)
    cluster.RayCluster(None)
    assert ray.starts == ["local"] * STARTS


def test_a_cluster_that_cannot_be_started_is_an_error_in_words(monkeypatch):
    ray = FakeRay(slow_starts=100)
    monkeypatch.setattr(cluster, "_import_ray", lambda: ray)
    words = r"a Ray cluster cannot be started on this machine \(Exception: The current node timed out"
    with pytest.raises(SimulationError, match=words):
        cluster.RayCluster(None)


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
