"""An operator removes, renews, moves and changes agents of a network that runs, on real files."""

from __future__ import annotations

import shutil
import socket
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import numpy as np
import pytest
from tests.network.processes import STALE, TOLERANCE, Processes, RealNetwork, wait_for
from tests.network.test_one_release import Home
from tests.network.test_setup import BUDGET, WHOLE, flockwise_status, killed_at_change, make_network
from tests.network.world import FolderWorld
from typer.testing import CliRunner

from flockwise.cli.app import app
from flockwise.deploy.changes import change_settings, move_agent, remove_agent
from flockwise.deploy.credentials import Credentials
from flockwise.deploy.folder import AgentFolder, HostFolder
from flockwise.deploy.identity import Authority
from flockwise.deploy.joining import accept_reply, answer_request, make_request
from flockwise.deploy.network_plan import NetworkPlan
from flockwise.deploy.renewal import ends_in, find_certificate, put_certificate
from flockwise.deploy.rotation import Rotation, answer_rotation, ask_for_new_keys
from flockwise.deploy.setup import free_addresses, host_together
from flockwise.deploy.updating import take_over
from flockwise.errors import FlockwiseError, IdentityError, NetworkError
from flockwise.graph import SimilarityGraph
from flockwise.runtime.metrics import HostStatus, MetricsServer
from flockwise.runtime.overview import agents_in
from flockwise.runtime.run import run_folder


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fresh") / "net"
    make_network(folder)
    return folder


@pytest.fixture
def net(fresh, tmp_path):
    """ann, bob and cy are neighbors of each other, and dee of cy; all folders are here."""
    return shutil.copytree(fresh, tmp_path / "net")


def flockwise(*arguments):
    """The words of the command."""
    done = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def slice_of(net, name):
    return AgentFolder.read(net / "agents" / name).neighborhood


def neighbors(net, name):
    return {link.name: link.weight for link in slice_of(net, name).neighbors}


@pytest.fixture
def device(net, tmp_path):
    """eve, elsewhere: a neighbor of ann and dee."""
    folder, reply = tmp_path / "device", tmp_path / "reply"
    request = make_request(folder, "rooms", "eve", "127.0.0.1:7100")
    answer_request(net, request, "127.0.0.1:7100", {"ann": 0.75, "dee": 1.5}, reply)
    np.savez(tmp_path / "samples.npz", features=np.zeros((4, 3)), targets=np.array([1.0, -1, 1, -1]))
    accept_reply(folder, reply, tmp_path / "samples.npz", BUDGET.budget, BUDGET.updates, BUDGET.clip)
    return folder


# Remove


def test_one_command_removes_an_agent_from_all_rosters(net):
    before = slice_of(net, "cy")
    flockwise("network", "remove", net, "bob")
    assert neighbors(net, "ann") == {"cy": 0.25}
    assert neighbors(net, "cy") == {"ann": 0.25, "dee": 2.0}
    after, gone = slice_of(net, "cy"), slice_of(net, "bob")
    assert after.index == before.index, "an agent keeps its number"
    assert after.version == gone.version == before.version + 1
    assert gone.is_removed
    assert not gone.neighbors
    assert "bob" not in flockwise_status(net)


def test_a_removal_names_neighbors_that_are_left_alone(net):
    assert "no neighbor any more" not in flockwise("network", "remove", net, "bob")
    said = flockwise("network", "remove", net, "cy")
    assert "Agent ann has no neighbor any more" in said
    assert "Agent dee has no neighbor any more" in said
    assert "no neighbor any more" not in flockwise("network", "remove", net, "ann")


def test_a_removed_agent_stays_out(net, tmp_path):
    remove_agent(net, "bob")
    with pytest.raises(NetworkError, match="agent 'bob' was removed"):
        remove_agent(net, "bob")
    request = make_request(tmp_path / "device", "rooms", "bob", "127.0.0.1:7100")
    with pytest.raises(NetworkError, match="agent 'bob' was removed"):
        answer_request(net, request, "127.0.0.1:7100", {"ann": 1.0}, tmp_path / "reply")
    request = make_request(tmp_path / "other", "rooms", "eve", "127.0.0.1:7100")
    with pytest.raises(NetworkError, match="agent 'bob' was removed"):
        answer_request(net, request, "127.0.0.1:7100", {"bob": 1.0}, tmp_path / "reply")
    answer_request(net, request, "127.0.0.1:7100", {"ann": 1.0}, tmp_path / "reply")
    numbers = [link.index for link in slice_of(net, "ann").neighbors]
    assert sorted(numbers) == [2, 4], "the number of the removed agent is not given again"


def test_a_device_elsewhere_takes_over_what_was_carried_to_it(net, device):
    said = flockwise("network", "remove", net, "ann")
    assert str(net / "devices") in said.replace("\n", "")
    assert {link.name for link in AgentFolder.read(device).neighborhood.neighbors} == {"ann", "dee"}
    flockwise("agent", "accept", device, net / "devices" / "eve")
    assert {link.name for link in HostFolder.read(device).agents[0].neighborhood.neighbors} == {"dee"}
    with pytest.raises(NetworkError, match="of agent 'dee'"):
        take_over(device, net / "agents" / "dee")


def test_gateways_run_a_removed_agent_no_more(net):
    host_together(net, 2)
    remove_agent(net, "bob")
    assert HostFolder.read(net / "hosts" / "gateway1"), "one that runs can still be started again"
    hosts = host_together(net, 2)
    hosted = [agent.name for host in hosts for agent in HostFolder.read(host).agents]
    assert hosted == ["ann", "cy", "dee"]


def test_a_removal_that_was_interrupted_is_made_again_and_no_version_has_two_contents(net, monkeypatch):
    seen = slice_of(net, "ann")
    write, files = NetworkPlan._save, []

    def die(self, folder):
        files.append(self)
        if len(files) == 2:
            raise KeyboardInterrupt
        write(self, folder)

    with monkeypatch.context() as patched:
        patched.setattr(NetworkPlan, "_save", die)
        with pytest.raises(KeyboardInterrupt):
            remove_agent(net, "bob")
    seen = seen.successor(slice_of(net, "ann"))
    remove_agent(net, "dee")
    seen = seen.successor(slice_of(net, "ann"))
    assert {link.name for link in seen.neighbors} == {"bob", "cy"}
    remove_agent(net, "bob")
    assert {link.name for link in seen.successor(slice_of(net, "ann")).neighbors} == {"cy"}


def test_an_old_roster_does_not_bring_a_removed_agent_back(net):
    """Put back on disk while the agent is down, with its store as it was."""
    roster = net / "agents" / "ann" / "roster"
    old = roster.read_bytes()
    remove_agent(net, "bob")
    world = FolderWorld([net / "agents" / "ann"])
    world.make("ann").close()
    roster.write_bytes(old)
    with pytest.raises(NetworkError, match="version 1, and version 2 was in force"):
        world.make("ann")


def test_weights_of_those_that_stay_are_renormalized(net):
    world = FolderWorld([net / "agents" / name for name in ("ann", "bob", "cy", "dee")])
    with world:
        world.run(1)
        ann = world["ann"]
        for number, name in enumerate(("bob", "cy")):
            ann.agent.neighbors[name].model = np.full(3, float(number))
        shares = {"bob": 1.0 / 1.25, "cy": 0.25 / 1.25}
        np.testing.assert_allclose(ann.agent._neighbor_mean(), np.full(3, shares["cy"]))
        remove_agent(net, "bob")
        newer = slice_of(net, "ann")
        ann.node.set_neighbors(newer.keys(), newer.version)
        np.testing.assert_allclose(ann.agent._neighbor_mean(), np.full(3, 1.0))


@pytest.mark.network
def test_running_agents_refuse_a_removed_one_at_once_and_it_stops(tmp_path):
    graph = SimilarityGraph.from_edges(3, np.array([[0, 1], [1, 2]]), np.ones(2))
    network = RealNetwork(tmp_path / "net", free_addresses("127.0.0.1", 3), graph=graph)
    old = (network.path("agent2") / "roster").read_bytes()
    with Processes(network) as agents:
        agents.start(*network.names)
        agents.wait("agent1", lambda one: one["neighbors_up"] == 2)
        flockwise("network", "remove", network.folder, "agent2")
        agents.wait("agent1", lambda one: one["neighbors_up"] == 1)
        agents.wait("agent2", lambda one: one["phase"] == "removed" and one["neighbors_up"] == 0)
        agents.stop("agent2")
        agents.start("agent2")
        assert agents.end_of("agent2") == 1
        assert "agent 'agent2': was removed" in agents.errors("agent2")
        # An enemy that keeps its old roster and forgets the new one.
        (network.path("agent2") / "roster").write_bytes(old)
        for file in (network.path("agent2") / "state").glob("state.sqlite*"):
            file.unlink()
        agents.start("agent2")
        releases = agents.wait("agent2", lambda one: one["releases"] >= 3)["releases"]
        assert agents.wait("agent2", lambda one: one["releases"] > releases)["neighbors_up"] == 0
        heard = network.held_by("agent1")
        assert agents.wait("agent1", lambda one: True)["neighbors_up"] == 1
        agents.stop()
    assert "agent2" not in heard


# Certificates


def give_life(net, host, days):
    """A certificate that ends in so many days, in place of the one that the host has."""
    authority, old = Authority.read(net / "authority"), find_certificate(net, host).read_bytes()
    put_certificate(net, host, authority.renew(old, lifetime=timedelta(days=days)))


@pytest.mark.parametrize(
    ("days", "level"), [(31, 0), (29, 1), (8, 1), (6.9, 2), (1.1, 2), (0.9, 3), (0.01, 3), (-0.5, 4)]
)
def test_status_and_metrics_warn_before_a_certificate_ends(net, days, level):
    give_life(net, "ann", days)
    shown = flockwise_status(net)
    assert ("ann: its certificate" in shown) == bool(level)
    assert (f"flockwise network renew {net}" in shown.replace("\n", "")) == bool(level)
    assert ("has ended" in shown) == (level == 4)
    end = ends_in(net)["ann"].timestamp()
    server = MetricsServer(lambda: HostStatus("rooms", "ann", 1, 0.0, (), expires_at=end))
    try:
        read = urllib.request.urlopen(f"http://127.0.0.1:{server.port}", timeout=10).read().decode()
    finally:
        server.close()
    assert f"flockwise_certificate_warning {level}.0\n" in read


def test_certificates_are_renewed_before_and_after_their_end(net):
    host_together(net, 2)
    identity = net / "agents" / "dee" / "identity"
    give_life(net, "gateway1", 20)
    give_life(net, "dee", -0.5)
    key, before = (identity / "tls.key").read_bytes(), read(net / "hosts" / "gateway2")
    with pytest.raises(IdentityError, match="flockwise network renew"):
        Credentials.read(identity)
    said = flockwise("network", "renew", net)
    assert [line.split(":")[0] for line in said.splitlines()] == ["gateway1", "dee"]
    assert min(ends_in(net).values()) > datetime.now(UTC) + timedelta(days=5 * 365 - 1)
    assert Credentials.read(identity).subject.agents == ("dee",)
    assert (identity / "tls.key").read_bytes() == key, "the key stays on its device"
    assert read(net / "hosts" / "gateway2") == before, "it does not end soon"
    assert HostFolder.read(net / "hosts" / "gateway1").identity.subject.agents == ("ann", "bob")
    assert "gateway2" in flockwise("network", "renew", net, "--within", 6 * 365)


def read(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_device_whose_certificate_has_ended_comes_back(net, device, tmp_path):
    """Joining again is refused, and the refusal says what helps."""
    give_life(net, "eve", -0.5)
    with pytest.raises(IdentityError, match="flockwise network renew"):
        take_over(device, net / "devices" / "eve")
    (device / "identity" / "tls.pem").write_bytes((net / "devices" / "eve" / "tls.pem").read_bytes())
    with pytest.raises(IdentityError, match="flockwise network renew"):
        HostFolder.read(device)
    request = make_request(tmp_path / "again", "rooms", "eve", "127.0.0.1:7100")
    with pytest.raises(NetworkError, match=f"has ended: flockwise network renew {net}"):
        answer_request(net, request, "127.0.0.1:7100", {"ann": 1.0}, tmp_path / "second")
    assert "eve" in flockwise("network", "renew", net)
    flockwise("agent", "accept", device, net / "devices" / "eve")
    assert HostFolder.read(device).name == "eve"


def test_a_certificate_of_another_authority_is_not_renewed(net):
    other = Authority.new("rooms")
    with pytest.raises(IdentityError, match="another authority"):
        other.renew(find_certificate(net, "ann").read_bytes())


@pytest.mark.network
def test_a_running_network_expires_says_so_and_is_renewed_without_a_restart(tmp_path):
    network = RealNetwork(tmp_path / "net", free_addresses("127.0.0.1", 2), graph=pair())
    with Processes(network) as agents:
        agents.start(*network.names)
        for name in network.names:
            agents.wait(name, lambda one: one["neighbors_up"] == 1)
        for name in network.names:
            give_life(network.folder, name, 20 / 86_400)
        for name in network.names:
            agents.wait(name, lambda one: one["neighbors_up"] == 0)
        wait_for(lambda: all(agent["state"] == "expired" for agent in agents_in(network.folder)))
        flockwise("network", "renew", network.folder)
        for name in network.names:
            agents.wait(name, lambda one: one["neighbors_up"] == 1)
        assert "expired" not in [agent["state"] for agent in agents_in(network.folder)]
        assert not flockwise_status(network.folder).count("certificate")
        agents.stop()
    network.assert_whole()


# Addresses


@pytest.mark.parametrize("address", ["127.0.0.1:7200", "192.0.2.7:7002", "ann.example:7002"])
def test_one_command_changes_an_address(net, address):
    flockwise("network", "move", net, "ann", address)
    assert {link.address for link in slice_of(net, "bob").neighbors if link.name == "ann"} == {address}
    assert HostFolder.read(net / "agents" / "ann").listen == address, "its certificate names the new address"


def test_an_agent_keeps_its_new_address_while_a_gateway_runs_it(net):
    host_together(net, 1)
    said = flockwise("network", "move", net, "ann", "127.0.0.1:7200")
    assert "once it runs by itself; now gateway1 runs it" in said
    assert slice_of(net, "ann").place.host == "gateway1"
    assert HostFolder.read(net / "hosts" / "gateway1")
    host_together(net, 0)
    assert HostFolder.read(net / "agents" / "ann").listen == "127.0.0.1:7200"


def test_more_agents_than_a_certificate_names_need_more_processes(net, monkeypatch):
    monkeypatch.setattr("flockwise.deploy.setup.MOST_IN_A_PROCESS", 3)
    before = read(net)
    with pytest.raises(NetworkError, match="processes=1: 4 agents need at least 2 processes"):
        host_together(net, 1)
    assert read(net) == before
    assert len(host_together(net, 2)) == 2


def test_gateways_are_made_where_the_first_agent_has_gone(net):
    move_agent(net, "ann", "192.0.2.7:7001")
    shutil.move(net / "agents" / "ann", net.parent / "elsewhere")
    (host,) = host_together(net, 1)
    assert [agent.name for agent in HostFolder.read(host).agents] == ["bob", "cy", "dee"]


def test_an_address_that_is_none_changes_nothing(net):
    before = read(net)
    with pytest.raises(NetworkError, match="an address is host:port"):
        move_agent(net, "ann", "nowhere")
    assert read(net) == before


def test_a_device_that_has_moved_is_told(net, device):
    flockwise("network", "move", net, "eve", "192.0.2.9:7100")
    flockwise("agent", "accept", device, net / "devices" / "eve")
    assert HostFolder.read(device).listen == "192.0.2.9:7100"


@pytest.mark.network
def test_neighbors_that_run_find_an_agent_at_its_new_address(tmp_path):
    network = RealNetwork(tmp_path / "net", free_addresses("127.0.0.1", 2), graph=pair())
    (address,) = free_addresses("127.0.0.2", 1)
    with Processes(network) as agents:
        agents.start(*network.names)
        agents.wait("agent0", lambda one: one["neighbors_up"] == 1)
        flockwise("network", "move", network.folder, "agent1", address)
        wait_for(lambda: is_open(address), 30)
        heard = network.heard(network.names)
        wait_for(lambda: network.hear_on(network.names, heard), 60)
        agents.stop()
    network.assert_whole()


# Public settings


SOON = 3600.0


def later(monkeypatch, seconds):
    """The clock of this machine goes on by so much."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + seconds)


def tradeoff_of(net, name):
    return slice_of(net, name).settings["objective"]["tradeoff"]


def test_settings_change_for_all_agents_at_one_time(net, monkeypatch):
    own = read(net / "agents")
    begins = datetime.fromtimestamp(time.time() + SOON)
    flockwise(
        *("network", "change", net, "--at", begins.isoformat(timespec="seconds"), "--tradeoff", 3),
        *("--edge", "ann/bob=0.75", "--edge", "cy/bob=0", "--edge", "dee/ann=2"),
    )
    changed = {path for path, content in read(net / "agents").items() if own.get(path) != content}
    assert {path.name for path in changed} == {"roster"}, "budgets, clips and ledgers are as they were"
    assert "Version 2 of the settings begins at" in flockwise_status(net)
    assert neighbors(net, "ann") == {"bob": 1.0, "cy": 0.25}
    assert {tradeoff_of(net, name) for name in ("ann", "bob", "cy", "dee")} == {1.0}
    later(monkeypatch, SOON + 1)
    assert neighbors(net, "ann") == {"bob": 0.75, "cy": 0.25, "dee": 2.0}
    assert neighbors(net, "bob") == {"ann": 0.75}
    assert {tradeoff_of(net, name) for name in ("ann", "bob", "cy", "dee")} == {3.0}
    assert {slice_of(net, name).settings_version for name in ("ann", "bob", "cy", "dee")} == {2}
    assert "begins at" not in flockwise_status(net)


def test_other_changes_go_on_while_settings_wait_and_after_it(net, device, monkeypatch):
    change_settings(net, time.time() + SOON, 3.0, {("ann", "bob"): 0.5, ("ann", "eve"): 0.5})
    remove_agent(net, "bob")
    move_agent(net, "dee", "127.0.0.1:7200")
    assert neighbors(net, "ann") == {"cy": 0.25, "eve": 0.75}
    later(monkeypatch, SOON + 1)
    assert neighbors(net, "ann") == {"cy": 0.25, "eve": 0.5}
    remove_agent(net, "cy")
    assert neighbors(net, "ann") == {"eve": 0.5}
    assert (tradeoff_of(net, "ann"), slice_of(net, "ann").settings_version) == (3.0, 2)
    take_over(device, net / "devices" / "eve")
    assert AgentFolder.read(device).neighborhood.settings_version == 2


def test_two_changes_never_have_one_version(net, monkeypatch):
    """A device that missed the second one would follow the first, under the same number."""
    change_settings(net, time.time() + SOON, 3.0, {})
    change_settings(net, time.time() + SOON, 4.0, {})
    later(monkeypatch, SOON + 1)
    assert (tradeoff_of(net, "ann"), slice_of(net, "ann").settings_version) == (4.0, 3)


@pytest.mark.parametrize(
    ("at", "tradeoff", "edges", "words"),
    [
        (-1.0, 3.0, {}, "still to come"),
        (SOON, -1.0, {}, "tradeoff"),
        (SOON, None, {("ann", "zed"): 1.0}, "'zed' is not in the network"),
        (SOON, None, {("ann", "bob"): -1.0}, "weight"),
        (SOON, None, {("ann", "ann"): 1.0}, "ann|itself|agent 0"),
    ],
)
def test_settings_that_cannot_be_change_nothing(net, at, tradeoff, edges, words):
    before = read(net)
    with pytest.raises(FlockwiseError, match=words):
        change_settings(net, time.time() + at, tradeoff, edges)
    assert read(net) == before


def test_agents_that_talk_keep_their_settings(tmp_path):
    Home(tmp_path / "net", "lowpass")
    with pytest.raises(NetworkError, match="release once and talk"):
        change_settings(tmp_path / "net", time.time() + SOON, 3.0, {})


def test_agents_of_different_settings_refuse_each_other_by_name(net, monkeypatch):
    world = FolderWorld([net / "agents" / name for name in ("ann", "bob", "cy", "dee")])
    with world:
        world.run(5)
        change_settings(net, time.time() + SOON, 3.0, {("ann", "bob"): 0.5})
        later(monkeypatch, SOON + 1)
        spent = {name: one.node.releases for name, one in world.running.items()}
        plan = plan_of(world["ann"])
        world.stop("ann")
        world.start("ann")
        world.run(60)
        assert world["ann"].node.intake.dropped["wrong_settings"]
        assert world["bob"].node.intake.dropped["wrong_settings"]
        assert world["ann"].node.releases == spent["ann"], "nobody that it agrees with is there"
        assert not world["dee"].node.intake.dropped, "both ends follow the old ones"
        world.stop("bob", "cy", "dee")
        world.start("bob", "cy", "dee")
        world.run(60)
        assert not any(one.node.intake.dropped for name, one in world.running.items() if name != "ann")
        assert all(plan_of(one) == plan for one in world.running.values())
        assert {one.node.releases for one in world.running.values()} == {BUDGET.updates}


def plan_of(one):
    assert one.gates is not None
    return one.gates.gate.plan


@pytest.mark.network
def test_running_agents_take_new_settings_up_together_and_learn_by_them(tmp_path):
    graph = SimilarityGraph.from_edges(3, np.array([[0, 1], [1, 2]]), np.ones(2))
    network = RealNetwork(tmp_path / "net", free_addresses("127.0.0.1", 3), graph=graph, tick_rate=8.0)
    with Processes(network) as agents:
        agents.start(*network.names)
        wait_for(lambda: network.all_meet() and network.gap() < TOLERANCE)
        before = network.status("agent0")["pid"]
        change_settings(network.folder, time.time() + 5, 0.2, {("agent0", "agent2"): 3.0})
        network.follow(SimilarityGraph.from_edges(3, [[0, 1], [1, 2], [0, 2]], [1.0, 1.0, 3.0]), 0.2)
        assert network.gap() > STALE
        wait_for(lambda: network.all_meet() and network.gap() < TOLERANCE)
        assert network.status("agent0")["pid"] == before, "it was not restarted"
        agents.stop()
    network.assert_whole()


# Keys


def rotate(folder, net):
    """From the request to the authority's answer, and what that says."""
    flockwise("agent", "rotate", folder)
    return flockwise("network", "rotate", net, folder / "request.json")


def key_in(folder, name):
    return (folder / "identity" / "signing" / f"{name}.key").read_bytes()


def public_key_of(net, neighbor, name):
    (key,) = {link.public_key for link in slice_of(net, neighbor).neighbors if link.name == name}
    return key


def test_a_device_gets_new_keys_that_never_leave_it(net, device):
    before, old, state = public_key_of(net, "ann", "eve"), key_in(device, "eve"), read(device / "state")
    assert "Carry each folder" in rotate(device, net)
    new = (device / "keys" / "eve.key").read_bytes()
    assert not any(new.strip() in content for content in read(net).values())
    with pytest.raises(NetworkError, match="its keys are changed; first: flockwise agent accept"):
        run_folder(device)
    flockwise("agent", "accept", device, net / "devices" / "eve")
    assert HostFolder.read(device).identity.public_keys["eve"] == public_key_of(net, "ann", "eve") != before
    assert key_in(device, "eve") == new != old
    assert not any(old in content for content in read(device).values())
    assert sorted(path.name for path in device.iterdir()) == sorted([*WHOLE, "request.json"])
    assert read(device / "state").items() >= state.items()


def test_an_agent_of_a_gateway_gets_new_keys(net):
    (host,) = host_together(net, 1)
    before = public_key_of(net, "ann", "bob")
    assert "Carry each folder" not in rotate(net / "agents" / "bob", net), "its folder is here"
    assert HostFolder.read(host).identity.public_keys["bob"] == public_key_of(net, "ann", "bob") != before
    host_together(net, 0)
    assert HostFolder.read(net / "agents" / "bob").name == "bob"


def test_only_the_owner_of_a_key_replaces_it(net, device):
    """Not another agent, nor somebody who has read the roster."""
    asked = Rotation.from_json(ask_for_new_keys(device))
    for proof in ("", "00" * 64, "no number", asked.request.agents[0].proof):
        with pytest.raises(IdentityError, match="agent 'eve': the request for new keys is not signed"):
            answer_rotation(net, msgspec.json.encode(msgspec.structs.replace(asked, proof=proof)))
    others = Rotation.from_json(ask_for_new_keys(net / "agents" / "ann"))
    with pytest.raises(IdentityError, match="is not signed"):
        answer_rotation(net, msgspec.json.encode(msgspec.structs.replace(others, proof=asked.proof)))
    with pytest.raises(IdentityError, match="not a request for new keys"):
        answer_rotation(net, asked.request.to_json())
    remove_agent(net, "eve")
    with pytest.raises(NetworkError, match="agent 'eve' was removed"):
        answer_rotation(net, msgspec.json.encode(asked))


def test_an_agent_that_runs_keeps_its_keys(net):
    with FolderWorld([net / "agents" / "ann"]), pytest.raises(NetworkError, match="is running already"):
        ask_for_new_keys(net / "agents" / "ann")
    assert not (net / "agents" / "ann" / "keys").exists()


def test_new_keys_are_whole_wherever_their_acceptance_is_killed(net, device):
    rotate(device, net)
    accept = partial(flockwise, "agent", "accept")
    kills = 0
    while True:
        copy = shutil.copytree(device, device.with_name(f"device{kills}"))
        if not killed_at_change(kills, accept, copy, net / "devices" / "eve"):
            break
        if (copy / "keys").exists() or (copy / "accepted").exists():
            accept(copy, net / "devices" / "eve")
        assert HostFolder.read(copy).identity.public_keys["eve"] == public_key_of(net, "ann", "eve")
        assert sorted(path.name for path in copy.iterdir()) == sorted([*WHOLE, "request.json"])
        kills += 1
    assert kills > 10


@pytest.mark.network
def test_the_authority_gives_new_keys_wherever_its_command_is_killed(net):
    """To an agent whose folder is here: the same command ends with all in agreement."""
    asked = ask_for_new_keys(net / "agents" / "bob")
    kills, was_killed = 0, True
    while was_killed:
        copy = shutil.copytree(net, net.with_name(f"net{kills}"))
        was_killed = killed_at_change(kills, answer_rotation, copy, asked)
        if was_killed:
            answer_rotation(copy, asked)
        bob = HostFolder.read(copy / "agents" / "bob")
        assert bob.identity.public_keys["bob"] == public_key_of(copy, "ann", "bob")
        shutil.rmtree(copy)
        kills += 1
    assert kills > 40


@pytest.mark.parametrize("private", [True, False])
def test_with_new_keys_an_agent_goes_on_where_it_was(tmp_path, private):
    net = tmp_path / "net"
    make_network(net, private=private)
    paths = [net / "agents" / name for name in ("ann", "bob", "cy", "dee")]
    world = FolderWorld(paths)
    with world:
        world.run_until(lambda: all(one.node.releases >= 1 for one in world.running.values()))
        world.network.deliver_all()  # nothing signed with the old key is on its way
        world.stop("ann")
        rotate(paths[0], net)
        for name in ("bob", "cy"):
            newer = slice_of(net, name)
            world[name].node.set_neighbors(newer.keys(), newer.version)
        world.start("ann")
        world.run_until(lambda: all(one.node.releases == 3 for one in world.running.values()))
        world.run(60)
        last = world["ann"].node.sent.number
        for name in ("bob", "cy"):
            node = world[name].node
            assert node.intake.last_number("ann") == last
            assert not node.intake.dropped
        assert not world["ann"].node.intake.dropped
    world.start()
    assert [one.node.intake.dropped for one in world.running.values()] == [{}] * 4, "nothing old is on disk"
    world.stop()


def is_open(address):
    host, port = address.split(":")
    with socket.socket() as caller:
        return caller.connect_ex((host, int(port))) == 0


def pair():
    return SimilarityGraph.from_edges(2, np.array([[0, 1]]), np.ones(1))
