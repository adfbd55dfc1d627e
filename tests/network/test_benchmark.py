"""The benchmark of the network measures what it says, on a network small enough for a test."""

import numpy as np
import pytest
from benchmarks.network import run
from benchmarks.network_host import ARRIVED, SENT, latencies


def test_latencies_belong_to_the_messages_that_were_sent():
    sent = np.array([(7, 2, 10.0, 2), (3, 1, 11.0, 1)], SENT)
    arrived = np.array([(7, 2, 10.5), (7, 3, 12.0), (3, 1, 11.25), (7, 2, 10.25), (8, 1, 1.0)], ARRIVED)
    assert latencies(sent, arrived).tolist() == [0.5, 0.25, 0.25]
    assert latencies(sent[:0], arrived).tolist() == []


@pytest.mark.network
@pytest.mark.parametrize("private", [False, True])
def test_a_small_network_delivers_everything(private):
    result = run(agents=20, degree=4, dimension=10, processes=2, seconds=3.0, rate=2.0, private=private)
    assert result["messages"] > 0
    assert result["delivered_share"] == 1.0
    assert result["messages_dropped"] == result["failures"] == 0
    assert 0 < result["latency_p50_ms"] <= result["latency_p99_ms"] <= result["latency_max_ms"]
    # 20 agents at 2 updates a second for 3 s: 120 updates, a Poisson number; beyond 5 sd one run in 10⁶.
    assert 0 < result["updates_per_second"] * 3 < 120 + 5 * 120**0.5
