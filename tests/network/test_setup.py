"""A network on disk: what each folder holds, who may read it, and what is refused."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import stat
import sys
import time
from dataclasses import replace
from datetime import timedelta
from typing import get_args

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from flockwise.cli.app import app
from flockwise.data import Samples
from flockwise.deploy.changes import remove_agent
from flockwise.deploy.folder import AgentFolder, HostFolder, OwnBudget, read_samples, write_samples
from flockwise.deploy.identity import Authority
from flockwise.deploy.joining import accept_reply, answer_request, make_request
from flockwise.deploy.keyfiles import write_file
from flockwise.deploy.network_plan import NetworkPlan
from flockwise.deploy.settings import NetworkSettings
from flockwise.deploy.setup import Member, create_network, host_together
from flockwise.errors import IdentityError, NetworkError
from flockwise.graph import SimilarityGraph
from flockwise.net.node import Obstacle
from flockwise.objective import Objective
from flockwise.results.tuning import ChosenTradeoff
from flockwise.runtime import overview
from flockwise.runtime.metrics import AgentStatus, HostStatus
from flockwise.runtime.moving import move_out
from flockwise.runtime.overview import agents_in, crowded_doors
from flockwise.runtime.phases import SILENCE, Phase
from flockwise.runtime.run import open_host

BUDGET = OwnBudget(epsilon=1.0, delta=1e-5, updates=3, clip=0.5)
NAMES = ("ann", "bob", "cy", "dee")


def triangle_and_tail() -> SimilarityGraph:
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    return SimilarityGraph.from_edges(4, edges, np.array([1.0, 0.5, 0.25, 2.0]))


def make_network(folder, *, private=True, tradeoff=1.0):
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
    objective = Objective(tradeoff=tradeoff, max_samples=10, feature_bound=1.0)
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


def test_a_tradeoff_that_was_chosen_on_samples_is_a_number_in_rosters(tmp_path):
    make_network(tmp_path / "net", private=False, tradeoff=ChosenTradeoff(4.0))
    roster = AgentFolder.read(tmp_path / "net" / "agents" / "ann").neighborhood
    assert NetworkSettings.of(roster).objective.tradeoff == 4.0


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


def test_a_device_whose_acceptance_is_killed_at_any_point_finishes_it_the_next_time(tmp_path):
    """Killed before every change of a file or folder."""
    make_network(tmp_path / "net")
    asking = tmp_path / "asking"
    request = make_request(asking, "rooms", "eve", "127.0.0.1:7100")
    reply = tmp_path / "reply"
    answer_request(tmp_path / "net", request, "127.0.0.1:7100", {"ann": 0.75}, reply)
    np.savez(tmp_path / "samples.npz", features=np.zeros((4, 3)), targets=np.array([1.0, -1, 1, -1]))

    def accept(device):
        accept_reply(device, reply, tmp_path / "samples.npz", BUDGET.budget, BUDGET.updates, BUDGET.clip)

    kills = 0
    while True:
        device = tmp_path / f"device{kills}"
        shutil.copytree(asking, device)
        if not killed_at_change(kills, accept, device):
            break
        if sorted(path.name for path in device.iterdir()) != WHOLE:
            accept(device)
        assert HostFolder.read(device).agents[0].name == "eve"
        assert sorted(path.name for path in device.iterdir()) == WHOLE
        kills += 1
    assert kills > 20


WHOLE = ["agent.toml", "data.npz", "identity", "roster", "state"]


def killed_at_change(number, call, *arguments):
    """Whether a process of its own was killed before its change of the given number."""
    child = os.fork()
    if child == 0:
        count = itertools.count()

        def kill(event, details):
            writes = (
                event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
            )
            if (writes or event in CHANGES) and next(count) == number:
                os._exit(9)

        sys.addaudithook(kill)
        call(*arguments)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9)
    return os.waitstatus_to_exitcode(status) == 9


CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "sqlite3.connect")


@pytest.mark.parametrize("name", ["data.npz", "ann.key"])
def test_a_private_file_is_for_its_owner_alone_at_every_moment_of_its_making(tmp_path, name):
    seen = set()
    samples = Samples(np.ones((2, 1)), np.ones(2))
    make = (write_samples, samples) if name == "data.npz" else (write_file, b"secret")
    for number in itertools.count():
        folder = tmp_path / str(number)
        folder.mkdir()
        was_killed = killed_at_change(number, make[0], folder / name, make[1])
        for path in folder.iterdir():
            seen.add(path.name)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        if not was_killed:
            break
    assert seen == {name, f"{name}.part"}


def test_agents_of_other_devices_stay_where_they_are_when_gateways_run_the_others(tmp_path):
    make_network(tmp_path / "net")
    request = make_request(tmp_path / "device", "rooms", "eve", "127.0.0.1:7100")
    answer_request(tmp_path / "net", request, "127.0.0.1:7100", {"ann": 0.75}, tmp_path / "reply")
    hosts = host_together(tmp_path / "net", 2)
    assert [agent.name for host in hosts for agent in HostFolder.read(host).agents] == list(NAMES)
    places = {place.name: place for place in NetworkPlan.read(tmp_path / "net").places}
    assert (places["eve"].host, places["eve"].address) == ("eve", "127.0.0.1:7100")
    alone = host_together(tmp_path / "net", 0)
    assert [host.name for host in alone] == list(NAMES)


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


def test_an_agent_that_joins_clips_as_those_of_a_network_made_without_a_clip(tmp_path):
    make_network(tmp_path / "net")
    request = make_request(tmp_path / "device", "rooms", "eve", "127.0.0.1:7100")
    answer_request(tmp_path / "net", request, "127.0.0.1:7100", {"ann": 1.0}, tmp_path / "reply")
    np.savez(tmp_path / "samples.npz", features=np.zeros((4, 3)), targets=np.array([1.0, -1, 1, -1]))
    accept_reply(tmp_path / "device", tmp_path / "reply", tmp_path / "samples.npz", BUDGET.budget)
    own = AgentFolder.read(tmp_path / "device").settings.privacy.own_budget
    # A quarter of the logistic loss's largest slope, 1, times the largest sample, 1.
    assert own is not None
    assert (own.updates, own.clip) == (3, 0.25)


def test_an_agent_that_has_not_started_is_shown_with_its_budget(tmp_path):
    make_network(tmp_path / "net")
    shown = {agent["name"]: agent for agent in agents_in(tmp_path / "net")}
    assert all(agent["is_private"] and agent["epsilon_total"] == 1.0 for agent in shown.values())
    assert "not private" not in flockwise_status(tmp_path / "net")
    make_network(tmp_path / "plain", private=False)
    assert not any(agent["is_private"] for agent in agents_in(tmp_path / "plain"))


@pytest.fixture
def no_rush(monkeypatch):
    """A status that was just written stays fresh, however long a busy machine takes to read it."""
    monkeypatch.setattr(overview, "FRESH_FOR", 3600.0)


def flockwise_status(folder):
    return CliRunner().invoke(app, ["network", "status", str(folder)], catch_exceptions=False).output


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (AgentStatus("ann", phase=Phase.WAITING, awaited=["bob"]), "waiting for bob"),
        (
            AgentStatus("ann", phase=Phase.WAITING, awaited=list("abcdefg")),
            "waiting for a, b, c, d, e and 2 more",
        ),
        (AgentStatus("ann", phase=Phase.TALKING, awaited=["bob"]), "talking, waits for bob"),
        (AgentStatus("ann", phase=Phase.LEARNING, awaited=["bob"]), "learning"),
        (AgentStatus("ann", phase=Phase.SILENT, obstacle="behind"), "silent: its ledger is an old copy"),
        (AgentStatus("ann", phase=Phase.SILENT, obstacle="ledger"), "silent: its ledger cannot be written"),
        (AgentStatus("ann", phase=Phase.FAILED, obstacle="failed"), "failed"),
        (AgentStatus("ann", phase=Phase.FAILED, obstacle="no samples"), "refused because no samples"),
    ],
)
@pytest.mark.usefixtures("no_rush")
def test_states_are_words_for_people(tmp_path, status, state):
    make_network(tmp_path / "net")
    written = HostStatus("rooms", "ann", 1, time.time(), (status,))
    (tmp_path / "net" / "agents" / "ann" / "state" / "status.json").write_bytes(msgspec.json.encode(written))
    assert agents_in(tmp_path / "net")[0]["state"] == state


def test_an_agent_elsewhere_and_one_that_has_moved_out_are_not_down(tmp_path):
    net = tmp_path / "net"
    make_network(net)
    asked = make_request(tmp_path / "eve", "rooms", "eve", "127.0.0.1:7100")
    answer_request(net, asked, "127.0.0.1:7100", {"ann": 1.0}, tmp_path / "reply")
    move_out(net / "agents" / "dee", tmp_path / "dee.zip")
    assert {agent["name"]: agent["state"] for agent in agents_in(net)} == {
        **dict.fromkeys(("ann", "bob", "cy"), "down"),
        "dee": "moved out",
        "eve": "elsewhere",
    }


@pytest.mark.usefixtures("no_rush")
def test_an_agent_whose_process_was_stopped_is_down_at_once(tmp_path):
    make_network(tmp_path / "net")
    ann = AgentStatus("ann", phase=Phase.LEARNING, neighbors_up=2)
    written = HostStatus("rooms", "ann", 1, time.time(), (ann,), door="shut", ended=True)
    (tmp_path / "net" / "agents" / "ann" / "state" / "status.json").write_bytes(msgspec.json.encode(written))
    shown = agents_in(tmp_path / "net")[0]
    assert (shown["state"], shown["neighbors_up"]) == ("down", 0)
    assert not crowded_doors(tmp_path / "net")


def test_an_agent_whose_process_fell_silent_is_down(tmp_path):
    make_network(tmp_path / "net")
    ann = AgentStatus("ann", phase=Phase.LEARNING, neighbors_up=2)
    written = HostStatus("rooms", "ann", 1, time.time() - overview.FRESH_FOR, (ann,))
    (tmp_path / "net" / "agents" / "ann" / "state" / "status.json").write_bytes(msgspec.json.encode(written))
    shown = agents_in(tmp_path / "net")[0]
    assert (shown["state"], shown["neighbors_up"]) == ("down", 0)


@pytest.mark.usefixtures("no_rush")
def test_an_agent_that_has_no_neighbor_left_says_so(tmp_path):
    make_network(tmp_path / "net")
    for name in ("bob", "cy"):
        remove_agent(tmp_path / "net", name)
    written = HostStatus("rooms", "ann", 1, time.time(), (AgentStatus("ann", phase=Phase.WAITING),))
    (tmp_path / "net" / "agents" / "ann" / "state" / "status.json").write_bytes(msgspec.json.encode(written))
    states = {agent["name"]: agent["state"] for agent in agents_in(tmp_path / "net")}
    assert states == {"ann": "waiting: it has no neighbor", "dee": "down"}


@pytest.mark.usefixtures("no_rush")
def test_status_says_at_whose_port_a_crowd_waits(tmp_path):
    make_network(tmp_path / "net")
    written = HostStatus("rooms", "ann", 1, time.time(), (), door="open to neighbors")
    file = tmp_path / "net" / "agents" / "ann" / "state" / "status.json"
    file.write_bytes(msgspec.json.encode(written))
    assert "its port is open to neighbors" in flockwise_status(tmp_path / "net").replace("\n", " ")
    assert crowded_doors(tmp_path / "net") == {"ann": "open to neighbors"}
    file.write_bytes(msgspec.json.encode(replace(written, door="open")))
    assert not crowded_doors(tmp_path / "net")


def test_every_reason_to_be_silent_has_words():
    assert set(SILENCE) == set(get_args(Obstacle))


def test_a_gateway_says_why_an_agent_of_it_does_not_run(tmp_path):
    make_network(tmp_path / "net")
    (gateway,) = host_together(tmp_path / "net", 1)
    (tmp_path / "net" / "agents" / "bob" / "data.npz").write_bytes(b"")

    async def status():
        async with open_host(HostFolder.read(gateway)) as host:
            status = host.take_status()
            for one in host.participants:
                one.close()
            return status

    agents = {agent.name: agent for agent in asyncio.run(status()).agents}
    assert agents["bob"].phase is Phase.FAILED
    assert "data.npz: cannot be read" in (agents["bob"].obstacle or "")
    assert agents["ann"].obstacle is None


SPOILED = {
    "settings": lambda bob: (bob / "agent.toml").write_text("name = "),
    "key": lambda bob: (bob / "identity" / "signing" / "bob.key").unlink(),
    "roster": lambda bob: (bob / "roster").write_bytes(b"x"),
    "authority": lambda bob: (bob / "identity" / "authority.pem").write_bytes(b""),
    "all": shutil.rmtree,
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_gateway_runs_the_others_when_one_folder_cannot_be_used(tmp_path, what):
    make_network(tmp_path / "net")
    (gateway,) = host_together(tmp_path / "net", 1)
    SPOILED[what](tmp_path / "net" / "agents" / "bob")
    folder = HostFolder.read(gateway)
    assert [agent.name for agent in folder.agents] == ["ann", "cy", "dee"]
    assert list(folder.refused) == ["bob"]

    async def status():
        async with open_host(folder) as host:
            for one in host.participants:
                one.close()
            return host.take_status()

    agents = {agent.name: agent for agent in asyncio.run(status()).agents}
    assert agents["bob"].phase is Phase.FAILED
    assert "bob" in (agents["bob"].obstacle or "")


def test_an_agent_of_another_gateway_is_refused_and_the_others_run(tmp_path):
    make_network(tmp_path / "net")
    first, second = host_together(tmp_path / "net", 2)
    (first / "host.toml").write_text((first / "host.toml").read_text().replace('"bob"', '"cy"'))
    with pytest.raises(NetworkError, match="the certificate lists the agents"):
        HostFolder.read(first)
    assert not HostFolder.read(second).refused


def test_a_folder_that_is_gone_hides_no_newer_roster(tmp_path):
    make_network(tmp_path / "net")
    (gateway,) = host_together(tmp_path / "net", 1)
    folder = HostFolder.read(gateway)
    folder.rosters()
    shutil.rmtree(tmp_path / "net" / "agents" / "dee")
    remove_agent(tmp_path / "net", "bob")
    changed = folder.rosters()
    assert isinstance(changed["dee"], NetworkError)
    removed = changed["bob"]
    assert not isinstance(removed, NetworkError)
    assert removed.is_removed
    assert not folder.rosters(), "it is said once"


@pytest.mark.parametrize(
    ("days", "state", "words"),
    [(-1, "expired", "has ended"), (6.55, "waiting", "ends in 6.5 days"), (40, "waiting", None)],
)
@pytest.mark.usefixtures("no_rush")
def test_status_tells_when_a_certificate_ends(tmp_path, days, state, words):
    make_network(tmp_path / "net")
    now = time.time()
    ann = AgentStatus("ann", phase=Phase.WAITING)
    status = HostStatus("rooms", "ann", 1, now, (ann,))
    certificate = tmp_path / "net" / "agents" / "ann" / "identity" / "tls.pem"
    authority = Authority.read(tmp_path / "net" / "authority")
    certificate.write_bytes(authority.renew(certificate.read_bytes(), lifetime=timedelta(days=days)))
    (tmp_path / "net" / "agents" / "ann" / "state" / "status.json").write_bytes(msgspec.json.encode(status))
    assert {agent["name"]: agent["state"] for agent in agents_in(tmp_path / "net")}["ann"] == state
    shown = flockwise_status(tmp_path / "net")
    assert "certificate" not in shown if words is None else words in shown


@pytest.mark.parametrize("kept", [0, 10, 200, -30])
def test_samples_that_are_cut_short_or_damaged_are_an_error_that_names_the_file(tmp_path, kept):
    path = tmp_path / "data.npz"
    write_samples(path, Samples(np.random.default_rng(0).normal(size=(50, 3)), np.ones(50)))
    whole = path.read_bytes()
    path.write_bytes(whole[:kept] if kept >= 0 else whole.replace(whole[200:230], bytes(30)))
    with pytest.raises(NetworkError, match=r"data\.npz: cannot be read"):
        read_samples(path)


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
