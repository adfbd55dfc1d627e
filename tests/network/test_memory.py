"""The network in memory: who hears whom, and when."""

from collections import deque

from tests.network.world import Recorder

from flockwise.runtime.testing import MemoryNetwork, Packet


def network_of(**neighbors):
    network, listeners = MemoryNetwork(), {name: Recorder() for name in neighbors}
    for name, others in neighbors.items():
        network.attach(name, listeners[name], others)
    return network, listeners


def test_neighbors_see_each_other_come_and_go():
    network, listeners = network_of(anna=["ben"], ben=["anna"], carl=[])
    assert [listeners[name].take() for name in ("anna", "ben", "carl")] == [
        [("up", "ben")],
        [("up", "anna")],
        [],
    ]
    network.detach("ben")
    assert listeners["anna"].take() == [("down", "ben")]
    network.attach("ben", listeners["ben"], ["anna"])
    assert listeners["anna"].take() == [("up", "ben")]


def test_agents_see_each_other_only_if_both_name_the_other():
    _, listeners = network_of(anna=["ben"], ben=[])
    assert listeners["anna"].take() == listeners["ben"].take() == []


def test_a_new_neighbor_is_seen_and_old_ones_are_not_seen_again():
    network, listeners = network_of(anna=["ben"], ben=["anna"], carl=["anna"])
    for listener in listeners.values():
        listener.take()
    network.attach("anna", listeners["anna"], ["ben", "carl"])
    assert listeners["anna"].take() == [("up", "carl")]
    assert listeners["carl"].take() == [("up", "anna")]
    assert listeners["ben"].take() == []


def test_models_reach_all_listeners_and_greetings_one():
    network, listeners = network_of(anna=["ben", "carl"], ben=["anna"], carl=["anna"], dora=["ben"])
    for listener in listeners.values():
        listener.take()
    network.publish("anna", b"model")
    network.send("anna", "carl", b"hello")
    assert listeners["ben"].take() == []  # it is on its way
    assert network.deliver_all() == 3
    assert listeners["ben"].take() == [("model", "anna", b"model")]
    assert listeners["carl"].take() == [("model", "anna", b"model"), ("greeting", "anna", b"hello")]
    assert listeners["dora"].take() == []


def test_packets_to_agents_that_are_not_attached_are_lost():
    network, listeners = network_of(anna=["ben"], ben=["anna"])
    network.publish("anna", b"model")
    network.detach("ben")
    assert network.deliver_all() == 1
    assert ("model", "anna", b"model") not in listeners["ben"].take()


def test_packets_can_be_delivered_by_hand():
    packets = deque()
    network, listener = MemoryNetwork(packets), Recorder()
    network.attach("ben", listener, ["anna"])
    network.publish("anna", b"model")
    assert list(packets) == [Packet("anna", "ben", "published", b"model")]
    assert listener.take() == []
    network.deliver(packets[0])
    assert listener.take() == [("model", "anna", b"model")]
