"""Real agents on a real network that fails them: cut in two, slow, and losing packets."""

from __future__ import annotations

import time
from functools import partial

import pytest
from tests.network.processes import SECONDS_TO_HEAR, STALE, TOLERANCE, Processes, RealNetwork, wait_for
from tests.network.wires import Wires

from flockwise.deploy.folder import OwnBudget
from flockwise.net.zenoh.access import LEASE_MS

pytestmark = pytest.mark.network

SECONDS_CUT = 30.0
# Neighbors that cannot be reached are given up after a lease, by each side for itself.
SECONDS_TO_NOTICE = 2 * LEASE_MS / 1000 + 5
BUDGET = OwnBudget(epsilon=1.0, delta=1e-5, updates=400, clip=1.0)


@pytest.fixture
def wires():
    with Wires(6) as made:
        yield made


def inside(wires: Wires, network: RealNetwork, places: list[int]) -> Processes:
    return Processes(network, {n: wires.inside(p) for n, p in zip(network.names, places, strict=True)})


def test_halves_that_cannot_reach_each_other_learn_on_and_agree_afterwards(tmp_path, wires):
    """Beside them two private agents, one in each half: while they are apart they spend nothing."""
    network = RealNetwork(tmp_path / "open", [wires.address(place) for place in range(6)])
    pair = RealNetwork(tmp_path / "private", [wires.address(p, 7500) for p in (0, 3)], budget=BUDGET)
    left, right = network.names[:3], network.names[3:]
    with inside(wires, network, list(range(6))) as agents, inside(wires, pair, [0, 3]) as two:
        agents.start(*network.names)
        two.start(*pair.names)
        wait_for(lambda: network.gap() <= TOLERANCE, 90, "all converge")
        wait_for(lambda: min(pair.releases().values()) >= 3, 30, "the private agents release")

        wires.cut_off([0, 1, 2])
        began = time.monotonic()
        # At the edge of one half: the other half would have to know.
        agents.stop("agent0")
        network.give_other_samples("agent0")
        agents.start("agent0")
        wait_for(lambda: only_own_half_is_up(network, left, right), SECONDS_TO_NOTICE, "they notice")
        wait_for(lambda: not any(pair.status(n)["neighbors_up"] for n in pair.names), 10, "the pair, too")
        spent, heard = pair.releases(), [network.heard(half) for half in (left, right)]
        assert [len(half) for half in heard] == [4, 4]
        for since, half in zip(heard, (left, right), strict=True):
            wait_for(partial(network.hear_on, half, since), SECONDS_TO_HEAR, "each half goes on")
        time.sleep(max(0.0, began + SECONDS_CUT - time.monotonic()))
        assert network.gap() > STALE
        assert pair.releases() == spent

        wires.heal()
        wait_for(lambda: network.all_meet() and pair.all_meet(), 60, "all meet again")
        wait_for(lambda: network.gap() <= TOLERANCE, 60, "all converge again")
        wait_for(lambda: all(pair.releases()[n] > spent[n] for n in spent), 30, "the pair goes on")
        for processes in (agents, two):
            processes.assert_running()
            processes.stop()
    network.assert_whole()
    network.assert_nobody_is_ahead()
    pair.assert_whole()
    pair.assert_within_budget()


def only_own_half_is_up(network: RealNetwork, *halves: list[str]) -> bool:
    return all(
        network.status(name)["neighbors_up"] == len(set(network.neighbors(name)) & set(half))
        for half in halves
        for name in half
    )


def test_a_slow_network_that_loses_packets_only_slows_learning_down(tmp_path, wires):
    """One packet in ten is lost, and each takes 100 ms: from the first handshake on, in both directions."""
    wires.loss, wires.delay = 0.1, 0.1
    network = RealNetwork(tmp_path / "open", [wires.address(place) for place in range(6)])
    pair = RealNetwork(tmp_path / "private", [wires.address(p, 7500) for p in (0, 3)], budget=BUDGET)
    with inside(wires, network, list(range(6))) as agents, inside(wires, pair, [0, 3]) as two:
        agents.start(*network.names)
        two.start(*pair.names)
        wait_for(network.all_meet, 90, "all meet")
        wait_for(lambda: network.gap() <= TOLERANCE, 60, "all converge")
        agents.stop("agent0")
        network.give_other_samples("agent0")
        agents.start("agent0")
        assert network.gap() > STALE
        wait_for(lambda: network.gap() <= TOLERANCE, 60, "all converge on what is new")
        wait_for(lambda: min(pair.releases().values()) >= 3, 60, "the private agents release")
        heard = network.heard(network.names)
        assert len(heard) == 12
        wait_for(lambda: network.hear_on(network.names, heard), SECONDS_TO_HEAR, "all go on")
        for processes in (agents, two):
            processes.assert_running()
            processes.stop()
    assert 0.08 < wires.lost / (wires.lost + wires.carried) < 0.12
    network.assert_whole()
    network.assert_nobody_is_ahead()
    pair.assert_whole()
    pair.assert_within_budget()
