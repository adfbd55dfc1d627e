"""A network on disk: what each folder holds, who may read it, and what is refused."""

from __future__ import annotations

import stat

import numpy as np
import pytest

from flockwise.data import Samples
from flockwise.errors import IdentityError, NetworkError
from flockwise.graph import SimilarityGraph
from flockwise.net.folder import AgentFolder, HostFolder, OwnBudget
from flockwise.net.joining import accept_reply, answer_request, make_request
from flockwise.net.settings import NetworkSettings
from flockwise.net.setup import Member, NetworkPlan, create_network, host_together
from flockwise.objective import Objective

BUDGET = OwnBudget(epsilon=1.0, delta=1e-5, updates=3, clip=0.5)
NAMES = ("ann", "bob", "cy", "dee")


def triangle_and_tail() -> SimilarityGraph:
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    return SimilarityGraph.from_edges(4, edges, np.array([1.0, 0.5, 0.25, 2.0]))


def make_network(folder, *, private=True):
    generator = np.random.default_rng(0)
    members = [
        Member(
            name,
            Samples(generator.uniform(-0.5, 0.5, (5, 3)), np.array([1.0, -1, 1, -1, 1])),
            BUDGET if private else None,
            f"127.0.0.1:{7001 + k}",
        )
        for k, name in enumerate(NAMES)
    ]
    objective = Objective(max_samples=10, feature_bound=1.0)
    settings = NetworkSettings(objective, "dp" if private else "none", updates=3)
    create_network(folder, "rooms", members, triangle_and_tail(), settings, dimension=3, tick_rate=2.0)
    return members


def test_a_folder_has_all_that_its_agent_needs_and_nothing_of_the_others(tmp_path):
    members = make_network(tmp_path / "net")
    for member in members:
        folder = AgentFolder.read(tmp_path / "net" / "agents" / member.name)
        features, targets = folder.samples()
        np.testing.assert_array_equal(features, member.samples.features)
        np.testing.assert_array_equal(targets, member.samples.targets)
        assert HostFolder.read(folder.path).listen == member.address
    for name in NAMES:
        holdings = b"".join(
            path.read_bytes() for path in (tmp_path / "net" / "agents" / name).rglob("*") if path.is_file()
        )
        for other in members:
            if other.name != name:
                key = tmp_path / "net" / "agents" / other.name / "identity" / "signing" / f"{other.name}.key"
                assert key.read_bytes().strip() not in holdings
                assert other.samples.features.tobytes() not in holdings


def test_an_agent_learns_of_no_edges_but_its_own(tmp_path):
    make_network(tmp_path / "net")
    text = (tmp_path / "net" / "agents" / "dee" / "roster").read_text()
    assert '"cy"' in text
    assert '"ann"' not in text
    assert '"bob"' not in text


def test_both_ends_of_an_edge_hold_the_same_weight(tmp_path):
    make_network(tmp_path / "net")
    rosters = {name: AgentFolder.read(tmp_path / "net" / "agents" / name).neighborhood for name in NAMES}
    for name, roster in rosters.items():
        for link in roster.neighbors:
            assert link.weight == {other.name: other.weight for other in rosters[link.name].neighbors}[name]


def test_private_files_are_for_their_owner_alone(tmp_path):
    make_network(tmp_path / "net")
    secrets = [*tmp_path.rglob("*.key"), *tmp_path.rglob("data.npz")]
    assert len(secrets) == 2 + 3 * len(NAMES)
    for path in secrets:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_folder_that_is_there_is_never_overwritten(tmp_path):
    make_network(tmp_path / "net")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NetworkError, match="something already"):
        make_network(tmp_path / "net")
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_left_when_a_network_cannot_be_made(tmp_path):
    with pytest.raises(NetworkError, match="no dots"):
        create_network(
            tmp_path / "net",
            "rooms",
            [Member("a.b", Samples(np.zeros((1, 1)), np.ones(1)), None, "127.0.0.1:7001")],
            SimilarityGraph.from_edges(1, np.empty((0, 2), np.int64), np.empty(0)),
            NetworkSettings(Objective(max_samples=10)),
            dimension=1,
            tick_rate=1.0,
        )
    assert list(tmp_path.iterdir()) == []


def test_gateways_list_their_agents_and_hold_no_signing_key(tmp_path):
    make_network(tmp_path / "net")
    hosts = host_together(tmp_path / "net", 2)
    assert [host.name for host in hosts] == ["gateway1", "gateway2"]
    assert [HostFolder.read(host).identity.subject.agents for host in hosts] == [
        ("ann", "bob"),
        ("cy", "dee"),
    ]
    assert {path.name for path in (tmp_path / "net" / "hosts").rglob("*.key")} == {"tls.key"}
    assert NetworkPlan.read(tmp_path / "net").version == 2
    assert host_together(tmp_path / "net", 2) == hosts
    assert NetworkPlan.read(tmp_path / "net").version == 2, "nothing changed, so nothing is signed anew"


def test_an_agent_that_moved_to_a_gateway_does_not_run_by_itself(tmp_path):
    make_network(tmp_path / "net")
    host_together(tmp_path / "net", 1)
    with pytest.raises(IdentityError, match="another host"):
        HostFolder.read(tmp_path / "net" / "agents" / "ann")
    host_together(tmp_path / "net", 0)
    assert HostFolder.read(tmp_path / "net" / "agents" / "ann").name == "ann"
    assert not (tmp_path / "net" / "hosts").exists()


def test_a_device_joins_with_keys_that_never_leave_it(tmp_path):
    make_network(tmp_path / "net")
    device, reply = tmp_path / "device", tmp_path / "reply"
    request = make_request(device, "rooms", "eve", "127.0.0.1:7100")
    secret = (device / "keys" / "eve.key").read_bytes().strip()
    assert secret not in request
    name = answer_request(tmp_path / "net", request, "127.0.0.1:7100", {"ann": 0.75, "dee": 1.5}, reply)
    assert name == "eve"
    np.savez(tmp_path / "samples.npz", features=np.zeros((4, 3)), targets=np.array([1.0, -1, 1, -1]))
    accept_reply(device, reply, tmp_path / "samples.npz", BUDGET.budget, BUDGET.updates, BUDGET.clip)
    joined = HostFolder.read(device)
    assert {link.name: link.weight for link in joined.agents[0].neighborhood.neighbors} == {
        "ann": 0.75,
        "dee": 1.5,
    }
    for neighbor, weight in (("ann", 0.75), ("dee", 1.5)):
        roster = AgentFolder.read(tmp_path / "net" / "agents" / neighbor).neighborhood
        assert roster.version == 2
        assert {link.name: link.weight for link in roster.neighbors}["eve"] == weight
    assert not (device / "keys").exists()
    assert all(secret not in path.read_bytes() for path in (tmp_path / "net").rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("ann", {"bob": 1.0}, "in the network already"),
        ("eve", {"zed": 1.0}, "not in the network"),
        ("eve", {"bob": -1.0}, "weight"),
    ],
)
def test_a_request_that_cannot_be_met_changes_nothing(tmp_path, name, weights, message):
    make_network(tmp_path / "net")
    request = make_request(tmp_path / "device", "rooms", name, "127.0.0.1:7100")
    before = {p: p.read_bytes() for p in (tmp_path / "net").rglob("*") if p.is_file()}
    with pytest.raises(Exception, match=message) as refused:
        answer_request(tmp_path / "net", request, "127.0.0.1:7100", weights, tmp_path / "reply")
    assert type(refused.value).__module__ == "flockwise.errors"
    assert {p: p.read_bytes() for p in (tmp_path / "net").rglob("*") if p.is_file()} == before
    assert not (tmp_path / "reply").exists()


def test_an_agent_of_a_private_network_needs_a_budget(tmp_path):
    make_network(tmp_path / "net")
    request = make_request(tmp_path / "device", "rooms", "eve", "127.0.0.1:7100")
    answer_request(tmp_path / "net", request, "127.0.0.1:7100", {"ann": 1.0}, tmp_path / "reply")
    np.savez(tmp_path / "samples.npz", features=np.zeros((4, 3)), targets=np.array([1.0, -1, 1, -1]))
    with pytest.raises(NetworkError, match="give --epsilon"):
        accept_reply(tmp_path / "device", tmp_path / "reply", tmp_path / "samples.npz", None)
    assert (tmp_path / "device" / "keys").is_dir(), "it can be tried again"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "ann"', "missing required field `privacy`"),
        ('name = "ann"\n[privacy]\nkind = "dp"\nepsilon = -1.0', "privacy"),
        ('name = "ann"\ncolour = "red"\n[privacy]\nkind = "none"', "colour"),
        ("name = ", "Invalid value"),
    ],
)
def test_a_bad_agent_file_is_named_with_what_is_wrong(tmp_path, text, message):
    make_network(tmp_path / "net")
    path = tmp_path / "net" / "agents" / "ann" / "agent.toml"
    path.write_text(text)
    with pytest.raises(NetworkError, match=message) as refused:
        AgentFolder.read(path.parent)
    assert str(path) in str(refused.value)
