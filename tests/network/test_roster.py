"""A roster: both ends of an edge hold one weight, no byte of a signed slice can change, old ones stay out."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import random_weights

from flockwise.deploy.identity import Authority, Keys, enroll
from flockwise.deploy.roster import Link, check_belongs, neighborhoods, read_neighborhood, sign_neighborhood
from flockwise.errors import IdentityError, NetworkError
from flockwise.graph import SimilarityGraph
from flockwise.net.intake import NeighborKey
from flockwise.net.transport import Place

AUTHORITY = Authority.new("meadow")
TRUST = AUTHORITY.trust
SETTINGS = {"method": "cd", "tradeoff": 0.1, "updates": 10, "private": True, "reach": None}


def place(i):
    return Place(f"agent-{i}", f"host-{i // 2}", f"127.0.0.1:{7000 + i // 2}", bytes([i]) * 32)


def slices(graph, version=1, places=None):
    places = [place(i) for i in range(graph.n_agents)] if places is None else places
    return neighborhoods("meadow", version, graph, places, dimension=4, tick_rate=0.5, settings=SETTINGS)


TRIANGLE = SimilarityGraph.from_edges(3, [(0, 1), (1, 2), (0, 2)], [0.5, 0.1, 2.0])
PATH = SimilarityGraph.from_edges(3, [(0, 1), (1, 2)], [0.5, 0.1])
OWN = slices(PATH)[0]


def random_graph(seed, n_agents):
    return SimilarityGraph.from_scipy(random_weights(np.random.default_rng(seed), n_agents, 0.3))


@given(st.integers(0, 2**32), st.integers(1, 15))
def test_both_ends_of_every_edge_hold_the_weight_of_the_graph(seed, n_agents):
    graph = random_graph(seed, n_agents)
    cut = slices(graph)
    weights = np.zeros((n_agents, n_agents))
    for slice_ in cut:
        for link in slice_.neighbors:
            weights[slice_.index, link.index] = link.weight
            assert link == Link(**vars(place(link.index)), index=link.index, weight=link.weight)
    np.testing.assert_array_equal(weights, graph.to_scipy().toarray())
    np.testing.assert_array_equal(weights, weights.T)


@given(st.integers(0, 2**32), st.integers(1, 15), st.integers(1, 2**40))
def test_a_slice_survives_signing_bit_for_bit(seed, n_agents, version):
    for slice_ in slices(random_graph(seed, n_agents), version)[:3]:
        data = sign_neighborhood(slice_, AUTHORITY)
        assert read_neighborhood(data, slice_.agent, TRUST) == slice_
        assert sign_neighborhood(slice_, AUTHORITY) == data


def test_a_slice_names_the_neighbors_and_nobody_else():
    data = sign_neighborhood(OWN, AUTHORITY)
    assert b"agent-1" in data
    assert b"agent-2" not in data
    assert place(2).public_key not in data


def test_a_slice_can_be_read_by_people_and_programs():
    data = sign_neighborhood(OWN, AUTHORITY)
    read = json.loads(data.split(b"\n", 2)[2])
    assert (read["network"], read["version"], read["settings"]) == ("meadow", 1, SETTINGS)
    assert [(link["name"], link["weight"]) for link in read["neighbors"]] == [("agent-1", 0.5)]


def test_the_intake_gets_keys_weights_and_numbers():
    assert slices(TRIANGLE)[0].keys() == {
        "agent-1": NeighborKey(place(1).public_key, 0.5, 1),
        "agent-2": NeighborKey(place(2).public_key, 2.0, 2),
    }


@pytest.mark.parametrize("bit", [0x01, 0x20, 0x80])
def test_a_change_of_any_byte_is_refused(bit):
    """0x20 turns small letters into capitals, which hexadecimal digits and JSON would often forgive."""
    data = sign_neighborhood(OWN, AUTHORITY)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= bit
        with pytest.raises(IdentityError):
            read_neighborhood(bytes(changed), OWN.agent, TRUST)


def test_a_byte_more_or_less_is_refused():
    data = sign_neighborhood(OWN, AUTHORITY)
    for end in range(len(data)):
        with pytest.raises(IdentityError):
            read_neighborhood(data[:end], OWN.agent, TRUST)
    for changed in (data + b"\n", data + b" ", b"\n" + data, data.replace(b"\n", b"\n\n", 1)):
        with pytest.raises(IdentityError):
            read_neighborhood(changed, OWN.agent, TRUST)


def test_a_slice_of_another_authority_agent_or_network_is_refused():
    with pytest.raises(IdentityError, match="not signed by the authority"):
        read_neighborhood(sign_neighborhood(OWN, Authority.new("meadow")), OWN.agent, TRUST)
    with pytest.raises(IdentityError, match="every agent has one of its own"):
        read_neighborhood(sign_neighborhood(slices(PATH)[1], AUTHORITY), OWN.agent, TRUST)
    with pytest.raises(IdentityError, match="the authority of 'forest'"):
        sign_neighborhood(OWN, Authority.new("forest"))


def test_a_later_format_asks_for_a_newer_program():
    data = sign_neighborhood(OWN, AUTHORITY).replace(b"roster 1", b"roster 2", 1)
    with pytest.raises(IdentityError, match="install the version"):
        read_neighborhood(data, OWN.agent, TRUST)


@pytest.mark.parametrize(
    "body",
    [b"{}\n", b"\xff\n", b"[" * 10**5, b'{"network": "meadow"}\n'],
)
def test_even_what_is_signed_has_to_be_a_roster(body):
    data = (
        b"flockwise roster 1\n" + AUTHORITY.sign(b"flockwise roster 1\n" + body).hex().encode() + b"\n" + body
    )
    with pytest.raises(IdentityError, match="cannot be used"):
        read_neighborhood(data, OWN.agent, TRUST)


# Versions.


def test_a_newer_slice_wins_and_an_older_one_is_refused():
    old, new = slices(PATH, 4)[0], slices(TRIANGLE, 5)[0]
    assert old.successor(new) == new
    assert new.successor(new) == new
    with pytest.raises(IdentityError, match="version 4, and 5 is in force"):
        new.successor(old)


def test_one_version_has_one_content():
    with pytest.raises(IdentityError, match="two different rosters of version 1"):
        slices(PATH)[0].successor(slices(TRIANGLE)[0])


@pytest.mark.parametrize(
    "change",
    [
        {"network": "forest"},
        {"place": place(2)},
        {"place": dataclasses.replace(place(0), public_key=bytes(31) + b"x")},
        {"index": 7},
        {"dimension": 5},
    ],
)
def test_a_roster_cannot_change_an_agents_name_number_key_or_dimension(change):
    offered = dataclasses.replace(OWN, version=2, **change)
    with pytest.raises(IdentityError, match="never changes"):
        OWN.successor(offered)


def test_an_agent_may_move():
    moved = dataclasses.replace(
        OWN, version=2, place=dataclasses.replace(place(0), host="new", address="a:1")
    )
    assert OWN.successor(moved) == moved


# What cannot be a roster.


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_a_weight_has_to_be_positive_and_finite(weight):
    with pytest.raises(NetworkError, match="positive and finite"):
        Link(**vars(place(0)), index=0, weight=weight)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"dimension": 0},
        {"tick_rate": 0.0},
        {"tick_rate": math.inf},
        {"tick_rate": math.nan},
        {"network": "no/slash"},
        {"neighbors": OWN.neighbors * 2},
        {"neighbors": (Link(**vars(place(0)), index=0, weight=1.0),)},
    ],
)
def test_a_slice_that_makes_no_sense_is_refused(change):
    with pytest.raises(NetworkError):
        dataclasses.replace(OWN, **change)


@pytest.mark.parametrize(
    "change", [{"name": "a b"}, {"host": ""}, {"address": "nowhere"}, {"public_key": b"short"}]
)
def test_a_place_that_makes_no_sense_is_refused(change):
    with pytest.raises(NetworkError):
        dataclasses.replace(place(0), **change)


def test_places_have_to_fit_the_graph():
    with pytest.raises(NetworkError, match="3 agents, and there are 2 places"):
        slices(PATH, places=[place(0), place(1)])
    with pytest.raises(NetworkError, match="same name"):
        slices(PATH, places=[place(0), place(1), place(0)])
    moved = dataclasses.replace(place(1), address="127.0.0.1:9999")
    with pytest.raises(NetworkError, match="host 'host-0' has two addresses"):
        slices(PATH, places=[place(0), moved, place(2)])


def test_an_agent_runs_where_the_roster_says():
    identity = enroll(AUTHORITY, "gate", "[::1]:7000", ["anna", "bo"])
    here = Place("anna", "gate", "[0::1]:7000", identity.public_keys["anna"])
    own = dataclasses.replace(OWN, place=here)
    check_belongs(own, identity.subject, identity.public_keys)
    for what, change in {
        "host": {"host": "tower"},
        "address": {"address": "127.0.0.1:7000"},
        "public key": {"public_key": identity.public_keys["bo"]},
    }.items():
        other = dataclasses.replace(own, place=dataclasses.replace(here, **change))
        with pytest.raises(IdentityError, match=f"another {what}"):
            check_belongs(other, identity.subject, identity.public_keys)
    stranger = dataclasses.replace(here, name="eve")
    stray = dataclasses.replace(own, place=stranger)
    with pytest.raises(IdentityError, match="another public key"):
        check_belongs(stray, identity.subject, identity.public_keys)


def test_a_joining_agent_becomes_a_neighbor_in_the_next_version():
    """From its request to the slices: names, keys and weights agree at both ends."""
    keys = Keys.new(["dora"])
    request = keys.request("meadow", "dora", "127.0.0.1:7100")
    assert AUTHORITY.certify(request, {})
    newcomer = Place("dora", "dora", "127.0.0.1:7100", request.public_keys()["dora"])
    graph = SimilarityGraph.from_edges(4, [(0, 1), (1, 2), (0, 3)], [0.5, 0.1, 0.25])
    grown = slices(graph, 2, [*(place(i) for i in range(3)), newcomer])
    known = OWN.successor(read_neighborhood(sign_neighborhood(grown[0], AUTHORITY), OWN.agent, TRUST))
    assert known.keys()["dora"] == NeighborKey(newcomer.public_key, 0.25, 3)
    assert grown[3].keys()[OWN.agent].weight == known.keys()["dora"].weight
    assert slices(PATH)[2].neighbors == grown[2].neighbors
