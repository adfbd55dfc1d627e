"""Hostile peers over real sockets and certificates: what each tries, and the counter that shows it.

docs/threat-model.md has the list, in this order. At the door: who has no business here. On the wire: hosts
with a certificate that say what they may not. Among neighbors: an agent of the network that lies. What is
in a message is tried out by the million in test_fuzz.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import select
import socket
import ssl
import subprocess
import sys
import threading
from asyncio.subprocess import PIPE
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zenoh
from tests.network.hosts import MAX_BYTES, NETWORK, LoopbackHosts, enemy, keys_of, until
from tests.network.processes import DIMENSION, TOLERANCE, Processes, RealNetwork, wait_for
from tests.network.signers import Signer
from tests.network.world import Recorder

import flockwise.runtime
from flockwise.deploy.credentials import tls_files
from flockwise.deploy.folder import AgentFolder
from flockwise.deploy.identity import Authority
from flockwise.deploy.setup import free_addresses
from flockwise.net.names import split_address
from flockwise.net.wire import FRAME
from flockwise.net.zenoh import presence
from flockwise.net.zenoh.access import MOST_STRANGE_LINKS, KeyExpressions
from flockwise.net.zenoh.door import MOST_WAITING, Door, Openness
from flockwise.net.zenoh.link import SHARE
from flockwise.privacy.messages import HEADER, MAGIC

HOSTS = {"north": ["anna", "ada"], "east": ["ben"], "south": ["carl"]}
EDGES = [("anna", "ada"), ("anna", "ben"), ("ben", "carl"), ("ada", "carl")]
# Connects as often as it can, says how often that was, and holds all of it without a word.
CROWD_SIZE = 1500
CROWD = f"""
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({CROWD_SIZE} + 100,) * 2)
host, port = sys.argv[1].split(":")
held = []
try:
    while len(held) < {CROWD_SIZE}:
        held.append(socket.create_connection((host, int(port)), 2, (sys.argv[2], 0)))
except TimeoutError:
    pass
print(len(held), flush=True)
sys.stdin.read()
"""
QUIET = 0.3  # seconds: what has not come by then is taken not to come
GIGABYTE = 2**30


def run(main):
    return asyncio.run(main())


def session_of(link):
    assert link._session is not None
    return link._session


# At the door


async def knock(is_counted, address, authority_file, files=None):
    """As a zenoh peer that tries again for as long as it is let."""
    async with enemy(files, authority_file, address) as session:
        await asyncio.sleep(1.5)
        await until(is_counted, 30)
        assert not session.info.peers_zid()


async def shout(is_counted, address):
    """As somebody who does not even speak TLS."""
    with socket.create_connection(address.split(":")) as stream:
        stream.sendall(random.Random(0).randbytes(10_000))
        await until(is_counted, 30)


@pytest.mark.network
def test_a_connection_without_a_certificate_of_the_network_is_counted_and_changes_nothing(tmp_path):
    """Real processes; at the end every agent holds the last models of its neighbors and of nobody else."""
    network = RealNetwork(tmp_path / "net", free_addresses("127.0.0.1", 3), tick_rate=100.0)
    ours = tls_files(network.path("agent0") / "identity").authority
    theirs = LoopbackHosts(tmp_path / "theirs", {"agent1": ["agent1"]}, authority=Authority.new(NETWORK))
    address = json.loads((network.folder / "authority" / "network.json").read_text())["addresses"][0]
    tries = {
        "peer sent no certificates": lambda counted: knock(counted, address, ours),
        # It trusts our authority, or it would not even try; but its own certificate is of the other one.
        "invalid peer certificate": lambda counted: knock(counted, address, ours, theirs.files("agent1")),
        "corrupt message": lambda counted: shout(counted, address),
    }

    def victim():
        return json.loads((network.path("agent0") / "state" / "status.json").read_text())

    def is_counted(before, reason):
        log = (network.path("agent0") / "state" / "events.log").read_text()
        return victim()["refused"] > before and reason in log

    with Processes(network) as processes:
        processes.start(*network.names)
        wait_for(network.all_meet, 60, "all meet")
        for reason, attack in tries.items():
            asyncio.run(attack(partial(is_counted, victim()["refused"], reason)))
        wait_for(lambda: network.gap() <= TOLERANCE, 60, "all learn as if nothing had happened")
        assert network.all_meet()
        processes.stop()
    assert victim()["strangers"] == 0
    assert victim()["agents"][0]["dropped"] == {}
    network.assert_whole()
    network.assert_nobody_is_ahead()
    assert set(network.held_by("agent0")) == {"agent1", "agent2"}


# On the wire


@asynccontextmanager
async def hostile_south(world):
    """A running network in which the host of the south is an enemy, linked to the north under its name."""
    async with world.running(EDGES) as (links, agents):
        await links["south"].close()
        async with enemy(
            world.files("south"), world.files("north").authority, world.addresses["north"]
        ) as session:
            await until(lambda: len(session.info.peers_zid()) == 1)
            yield links, agents, session


class Silence:
    """Connections of a host with a certificate that go no further than TLS."""

    def __init__(self, files, address, enough):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.load_verify_locations(files.authority)
        self.context.load_cert_chain(files.certificate, files.key)
        self.address, self.enough = split_address(address), enough
        self.held = []

    def hold(self, count):
        """So many, and another one for each that is closed, until it is enough."""
        while not self.enough.wait(0.02):
            while len(self.held) < count:
                connection = socket.create_connection(self.address, source_address=("127.0.0.9", 0))
                self.held.append(self.context.wrap_socket(connection, server_hostname=self.address[0]))
            readable = set(select.select(self.held, [], [], 0)[0])
            for ended in [one for one in readable if not is_open(one)]:
                self.held.remove(ended)
        for one in self.held:
            one.close()


def is_open(link):
    link.setblocking(False)
    try:
        return bool(link.recv(1))
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False


class TestEnemies:
    """Hosts of all sorts: whatever they say, no agent hears a word of it."""

    @staticmethod
    async def speak(session, host="east", agent="ben"):
        """Everything that an enemy might try under somebody's name."""
        keys = keys_of(host)
        token = session.liveliness().declare_token(keys.alive(agent, "one"))
        for _ in range(20):
            session.put(keys.model(agent), b"forged")
            session.put(keys.greeting(agent, "anna"), b"forged")
            await asyncio.sleep(0.02)
        token.undeclare()
        await asyncio.sleep(QUIET)

    def test_without_a_certificate_there_is_no_link(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, HOSTS)
            async with (
                world.running(EDGES) as (links, agents),
                enemy(None, world.files("north").authority, world.addresses["north"]) as session,
            ):
                await self.speak(session)
                assert not session.info.peers_zid()
                return [agent.heard() for agent in agents.values()], links["north"].strangers

        assert run(main) == ([[]] * 4, 0)

    def test_a_certificate_of_another_authority_opens_no_link(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path / "ours", HOSTS)
            theirs = LoopbackHosts(tmp_path / "theirs", HOSTS, authority=Authority.new(NETWORK))
            # It trusts our authority, or it would not even try; but its own certificate is of the other one.
            async with (
                world.running(EDGES) as (links, agents),
                enemy(
                    theirs.files("east"), world.files("north").authority, world.addresses["north"]
                ) as session,
            ):
                await self.speak(session)
                assert not session.info.peers_zid()
                return [agent.heard() for agent in agents.values()], links["north"].strangers

        assert run(main) == ([[]] * 4, 0)

    def test_a_host_that_is_not_a_neighbor_is_counted_and_cannot_send_or_receive(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, {**HOSTS, "west": ["mallory"]})
            overheard = []
            async with (
                world.running(EDGES) as (links, agents),
                enemy(
                    world.files("west"), world.files("north").authority, world.addresses["north"]
                ) as session,
            ):
                watching = session.declare_subscriber(
                    "**", zenoh.handlers.Callback(overheard.append), allowed_origin=zenoh.Locality.REMOTE
                )
                await until(lambda: links["north"].strangers == 1)
                await self.speak(session)
                await self.speak(session, host="west", agent="mallory")
                links["north"].publish("anna", b"not for everyone")
                await until(lambda: agents["ben"].heard())
                await asyncio.sleep(QUIET)
                watching.undeclare()
                return agents["anna"].heard(), agents["anna"].up(), overheard

        assert run(main) == ([], {"ada", "ben"}, [])

    @pytest.mark.network
    @pytest.mark.parametrize("source", ["127.0.0.9", "127.0.0.1"])
    def test_idle_connections_shut_the_door_and_neighbors_come_in_all_the_same(self, tmp_path, source):
        """They have no certificate and say nothing. More would wait than the process has descriptors.

        Those from elsewhere do not keep neighbors out. Those from a neighbor's own address do, for a while;
        but the host dials the neighbor itself.
        """
        is_elsewhere = source == "127.0.0.9"

        async def main():
            world = LoopbackHosts(tmp_path, {"north": ["anna"], "east": ["ben"]})
            link, anna, events = world.link("north"), Recorder(), []
            link._log = lambda event, **fields: events.append(fields.get("text"))
            if is_elsewhere:  # the north cannot dial the east: nobody listens where it looks
                link.learn([replace(world.places[1], address="127.0.0.1:1")])
            link.attach("anna", anna, ["ben"])
            await link.refresh()
            before = len(os.listdir("/proc/self/fd"))
            crowd = Path(tmp_path / "crowd.py")
            crowd.write_text(CROWD)
            attack = await asyncio.create_subprocess_exec(
                sys.executable, crowd, world.addresses["north"], source, stdin=PIPE, stdout=PIPE
            )
            late, ben = world.link("east"), Recorder()
            late.attach("ben", ben, ["anna"])
            try:
                assert attack.stdout is not None
                inside = int(await attack.stdout.readline())
                assert MOST_WAITING // 2 < inside < CROWD_SIZE / 2, "the kernel lets no more in"
                assert len(os.listdir("/proc/self/fd")) < before + CROWD_SIZE / 2
                assert "open" not in events
                assert link.door == ("open to neighbors" if is_elsewhere else "shut")
                assert not is_elsewhere or "shut" not in events, (
                    "a crowd from elsewhere shuts no neighbor out"
                )
                await late.refresh()
                await until(lambda: "ben" in anna.up(), 30)
                assert not is_elsewhere or "open" not in events, "it came in while others could not"
                await until(lambda: "open" in events, 40)
            finally:
                attack.terminate()
                await attack.wait()
                await late.close()
                await link.close()

        run(main)

    @pytest.mark.network
    def test_strangers_that_show_a_certificate_and_then_say_nothing_keep_no_neighbor_out(self, tmp_path):
        """They are too few for the door to shut, and come back as soon as they are closed."""

        async def main():
            world = LoopbackHosts(tmp_path, {"north": ["anna"], "east": ["ben"], "stranger": ["eve"]})
            link, anna = world.link("north"), Recorder()
            # The north cannot dial the east: nobody listens where it looks.
            link.learn([replace(world.places[1], address="127.0.0.1:1")])
            link.attach("anna", anna, ["ben"])
            await link.refresh()
            enough = threading.Event()
            async with AsyncExitStack() as opened:
                opened.push_async_callback(link.close)
                crowd = Silence(world.files("stranger"), world.addresses["north"], enough)
                holding = asyncio.create_task(asyncio.to_thread(crowd.hold, MOST_WAITING - 10))
                opened.push_async_callback(asyncio.wait, [holding])
                opened.callback(enough.set)
                await until(lambda: len(crowd.held) == MOST_WAITING - 10, 30)
                late, ben = world.link("east"), Recorder()
                opened.push_async_callback(late.close)
                late.attach("ben", ben, ["anna"])
                await late.refresh()
                await until(lambda: "anna" in ben.up(), 30)
                return link.strangers

        assert run(main) == 0

    @pytest.mark.network
    def test_a_crowd_that_is_faster_than_the_door_takes_all_descriptors_for_a_while_only(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, {"north": ["anna"], "east": ["ben"]})
            link, anna = world.link("north"), Recorder()
            link.attach("anna", anna, ["ben"])
            await link.refresh()
            crowd = Path(tmp_path / "crowd.py")
            crowd.write_text(CROWD)
            allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            command = [sys.executable, crowd, world.addresses["north"], "127.0.0.9"]
            with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as attack:
                try:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, most))
                    # Nobody looks meanwhile: the loop is busy with this.
                    assert attack.stdout is not None
                    attack.stdout.readline()
                    with pytest.raises(OSError, match="Too many open files"):
                        os.listdir("/proc/self/fd")
                    attack.kill()
                    await until(lambda: link.door != "open")
                    await until(lambda: link.door == "open", 60)
                finally:
                    attack.kill()
                    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
            late, ben = world.link("east"), Recorder()
            late.attach("ben", ben, ["anna"])
            await late.refresh()
            await until(lambda: "anna" in ben.up(), 30)
            await late.close()
            await link.close()

        run(main)

    def test_a_door_whose_listener_cannot_be_found_stays_open(self):
        (nowhere,) = free_addresses("127.0.0.1", 1)
        door = Door(nowhere, [], list, print)
        door.look()
        assert door.openness is Openness.OPEN
        door.close()

    @pytest.mark.network
    def test_a_stranger_with_a_certificate_cannot_take_the_places_of_neighbors(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, {"north": ["anna"], "east": ["ben"], "stranger": ["eve"]})
            link, anna = world.link("north"), Recorder()
            link.attach("anna", anna, ["ben"])
            await link.refresh()
            places = session_of(link).settings["transport"]["unicast"]["max_sessions"]
            async with AsyncExitStack() as enemies:
                for _ in range(places + 4):
                    files, target = world.files("stranger"), world.addresses["north"]
                    await enemies.enter_async_context(enemy(files, files.authority, target))
                await until(lambda: link.strangers >= places, 30)
                info = session_of(link)._session.info
                await until(lambda: len(info.links()) <= 2 * MOST_STRANGE_LINKS)
                late, ben = world.link("east"), Recorder()
                late.attach("ben", ben, ["anna"])
                await late.refresh()
                await until(lambda: "anna" in ben.up(), 30)
                await late.close()
            await link.close()

        run(main)

    def test_a_neighboring_host_cannot_speak_under_another_hosts_name(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, HOSTS)
            async with hostile_south(world) as (_, agents, session):
                await self.speak(session, host="east", agent="ben")
                return agents["anna"].heard(), agents["ada"].heard(), agents["anna"].up()

        assert run(main) == ([], [], {"ada", "ben"})

    def test_odd_keys_below_its_own_name_are_counted_and_nobody_turns_deaf(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, HOSTS)
            async with hostile_south(world) as (links, agents, session):
                root = keys_of("south").model("carl").rsplit("/", 2)[0]
                tokens = []  # held on to, for a token that nobody holds is gone
                for odd in ("**", "*/*", "model/*", "to/*/*"):
                    session.put(f"{root}/{odd}", b"to all and nobody")
                    tokens.append(session.liveliness().declare_token(f"{root}/{odd}"))
                await until(lambda: links["north"].traffic.keys_refused >= 4)
                links["east"].publish("ben", b"an honest word")
                await until(lambda: agents["anna"].heard())
                return agents["anna"].heard()

        assert [event[-1] for event in run(main)] == [b"an honest word"]

    def test_a_neighbor_that_floods_signs_of_presence_and_leaves_is_gone(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, HOSTS)
            async with world.running(EDGES) as (links, agents):
                await links["south"].close()
                async with enemy(
                    world.files("south"), world.files("north").authority, world.addresses["north"]
                ) as session:
                    await until(lambda: len(session.info.peers_zid()) == 1)
                    keys = keys_of("south")
                    tokens = [
                        session.liveliness().declare_token(keys.alive("carl", f"{k:016x}"))
                        for k in range(1200)
                    ]
                    await until(lambda: "carl" in agents["ada"].up())
                    held = len(links["north"]._remote._tokens["carl"])
                    del tokens
                await until(lambda: "carl" not in agents["ada"].up())
                return held, agents["anna"].up()

        held, others = run(main)
        assert held <= presence.MOST_SESSIONS
        assert others == {"ada", "ben"}

    def test_a_neighbor_that_speaks_without_a_sign_of_presence_is_gone_with_its_link(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, HOSTS)
            async with world.running(EDGES) as (links, agents):
                await links["south"].close()
                await until(lambda: "carl" not in agents["ada"].up())
                links["north"]._remote._gone_at.clear()  # as if it had left long ago
                async with enemy(
                    world.files("south"), world.files("north").authority, world.addresses["north"]
                ) as session:
                    await until(lambda: len(session.info.peers_zid()) == 1)
                    session.put(keys_of("south").greeting("carl", "ada"), b"I am here")
                    await until(lambda: "carl" in agents["ada"].up())
                await until(lambda: "carl" not in agents["ada"].up())

        run(main)

    def test_a_neighboring_host_that_speaks_for_an_agent_of_another_one_is_counted(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, HOSTS)
            async with hostile_south(world) as (links, agents, session):
                await self.speak(session, host="south", agent="ben")
                await until(lambda: links["north"].dropped("anna").total() >= 40)
                await asyncio.sleep(QUIET)
                return agents["anna"].heard(), agents["anna"].up(), links["north"].dropped("anna")

        heard, up, dropped = run(main)
        assert (heard, up) == ([], {"ada", "ben"})
        # Twenty models that anna would listen to, and twenty greetings to her.
        assert dropped == {"stolen_name": 40}

    def test_greetings_to_made_up_names_take_no_memory(self, tmp_path):
        async def main():
            world = LoopbackHosts(tmp_path, HOSTS)
            async with hostile_south(world) as (links, _, session):
                for sender in ("ben", "carl", "nobody"):
                    for i in range(500):
                        session.put(keys_of("south").greeting(sender, f"ghost{i}"), b"boo")
                inbox = session_of(links["north"]).inbox
                await until(lambda: links["north"].traffic.messages_in >= 100)
                await asyncio.sleep(QUIET)
                await until(lambda: not len(inbox))
                return set(links["north"]._dropped), len(inbox)

        assert run(main) == (set(), 0)

    def test_a_stolen_session_identifier_gives_no_rights(self, tmp_path):
        """zenoh lets a second link join a session by its identifier: only its owner must be able to.

        Only north dials here: while nobody has dialled north from east's session, that link is still free.
        """

        async def main():
            world = LoopbackHosts(tmp_path, {"north": ["anna"], "east": ["ben"], "west": ["mallory"]})
            links = {"north": world.link("north"), "east": world.link("east")}
            agents = {"anna": Recorder(), "ben": Recorder()}
            (nowhere,) = free_addresses("127.0.0.1", 1)
            anna = next(place for place in world.places if place.name == "anna")
            links["east"].learn([replace(anna, address=nowhere)])
            links["north"].attach("anna", agents["anna"], ["ben"])
            links["east"].attach("ben", agents["ben"], ["anna"])
            async with AsyncExitStack() as opened:
                for link in links.values():
                    await link.refresh()
                    opened.push_async_callback(link.close)
                await until(lambda: agents["anna"].up() and agents["ben"].up())
                identifier = str(session_of(links["east"])._session.zid())
                async with enemy(
                    world.files("west"),
                    world.files("north").authority,
                    world.addresses["north"],
                    identifier=identifier,
                ) as session:
                    await self.speak(session)
                links["east"].publish("ben", b"genuine")
                await until(lambda: agents["anna"].heard())
                return agents["anna"].heard()

        assert run(main) == [("model", "ben", b"genuine")]

    def test_of_a_message_that_is_too_long_only_the_beginning_is_looked_at(self, tmp_path):
        """Above its own limit zenoh drops it, tells nobody, and keeps the link: there is nothing to count."""

        async def main():
            async with LoopbackHosts(tmp_path, HOSTS).running(EDGES) as (links, agents):
                links["east"].publish("ben", b"x" * 60_000)
                links["east"].publish("ben", b"x" * 20_000_000)
                links["east"].publish("ben", b"short")
                await until(lambda: ("model", "ben", b"short") in agents["anna"].events)
                return [len(data) for _, _, data in agents["anna"].heard()], agents["anna"].up()

        assert run(main) == ([MAX_BYTES + 1, len(b"short")], {"ada", "ben"})

    def test_a_flood_is_counted_and_others_are_heard(self, tmp_path):
        async def main():
            async with LoopbackHosts(tmp_path, HOSTS).running(EDGES) as (links, agents):
                inbox = session_of(links["north"]).inbox
                session = session_of(links["east"])
                flood = asyncio.to_thread(
                    lambda: [session.publish("ben", b"f" * 1000) for _ in range(20_000)]
                )
                task = asyncio.create_task(flood)
                most = 0
                while not task.done():
                    most = max(most, len(inbox))
                    links["south"].publish("carl", b"honest")
                    await asyncio.sleep(0.01)
                await task
                await until(lambda: ("model", "carl", b"honest") in agents["ada"].events)
                await until(lambda: links["north"].dropped("anna")["flooded"] > 0)
                return most, agents["ada"].heard()

        most, heard = run(main)
        # One share for each of the two agents that send to this host, and their comings and goings.
        assert most <= 4 * SHARE
        assert set(heard) == {("model", "carl", b"honest")}


# Among neighbors


class Liar:
    """A neighbor with a certificate and a key of the network, that says what it likes."""

    def __init__(self, network, name, session):
        self.signer = Signer(name)
        self.signer.key = AgentFolder.read(network.path(name)).signing_key()
        self.stranger = Signer("somebody else")
        self._session, self._key = session, KeyExpressions(NETWORK, name).model(name)

    def honest(self, number):
        return self.model(number, np.full(DIMENSION, number / 10))

    def model(self, number, vector, **fields):
        return self.signer.model(number, vector, **fields)

    def say(self, data):
        self._session.put(self._key, data)


def with_value(value):
    vector = np.full(DIMENSION, 0.1)
    vector[1] = value
    return vector


# What was said before: honest messages 1 and 2. How often it is tried: no more than a neighbor may send.
TRIES = 20
GOOD = np.full(DIMENSION, 0.3)
GARBAGE = [random.Random(i).randbytes(100) for i in range(TRIES)]
CLAIMS = {
    "in the envelope": FRAME + b"\x92\xc6" + GIGABYTE.to_bytes(4, "big") + b"body",
    "of a text": FRAME + b"\x92\xdb" + GIGABYTE.to_bytes(4, "big") + b"body",
    "of a list": FRAME + b"\xdd" + GIGABYTE.to_bytes(4, "big"),
}
ATTACKS = {
    "garbage bytes": ("malformed", lambda liar: GARBAGE),
    "a message cut short": ("malformed", lambda liar: [liar.model(3, GOOD)[:-9]] * TRIES),
    "a claim of a gigabyte": ("malformed", lambda liar: [*CLAIMS.values()]),
    "a claim of a gigabyte of coordinates, signed": (
        "malformed",
        lambda liar: [
            liar.model(3, GOOD, payload=HEADER.pack(MAGIC, 3, GIGABYTE // 8) + GOOD.tobytes()),
        ],
    ),
    "more bytes than a message has": ("oversized", lambda liar: [bytes(60_000)] * TRIES),
    "not a number": ("not_finite", lambda liar: [liar.model(3, with_value(np.nan))] * TRIES),
    "infinity": ("not_finite", lambda liar: [liar.model(3, with_value(-np.inf))] * TRIES),
    "1e300": ("too_large", lambda liar: [liar.model(3, with_value(1e300))] * TRIES),
    "too few coordinates": ("wrong_dimension", lambda liar: [liar.model(3, GOOD[1:])] * TRIES),
    "another agent's name": ("stolen_name", lambda liar: [liar.model(3, GOOD, sender="agent1")] * TRIES),
    "another one's key": (
        "bad_signature",
        lambda liar: [liar.stranger.model(3, GOOD, sender="agent2")] * TRIES,
    ),
    "a message of another network": (
        "wrong_network",
        lambda liar: [liar.model(3, GOOD, network="forest")] * TRIES,
    ),
    "a private model where models are not": (
        "wrong_label",
        lambda liar: [liar.model(3, GOOD, privacy="dp")] * TRIES,
    ),
    "a replay": ("replayed", lambda liar: [liar.honest(1)] * TRIES),
    "two messages under one number": ("equivocation", lambda liar: [liar.model(2, GOOD)] * TRIES),
    "a flood": ("flooded", lambda liar: [liar.honest(2)] * 3000),
}


@dataclass
class Outcome:
    """Of a run with a liar: what the honest agents sent last, what their victim holds and what it counted."""

    models: np.ndarray
    held: dict[str, bytes]
    sent: bytes
    dropped: dict[str, int]


@asynccontextmanager
async def beside_a_liar(folder):
    """Two honest agents, in this process but over real links, and a third that has said 1 and 2."""
    network = RealNetwork(folder, free_addresses("127.0.0.1", 3), tick_rate=100.0)
    files = tls_files(network.path("agent2") / "identity")
    async with (
        flockwise.runtime.RealAgent(network.path("agent0")) as victim,
        flockwise.runtime.RealAgent(network.path("agent1")) as other,
    ):
        await until(lambda: victim.status.neighbors_up == other.status.neighbors_up == 1)
        async with AsyncExitStack() as links:
            liars = []
            for agent in (victim, other):
                address = agent._participant.neighborhood.place.address
                session = await links.enter_async_context(enemy(files, files.authority, address))
                await until(lambda session=session: len(session.info.peers_zid()) == 1)
                liar = Liar(network, "agent2", session)
                for number in (1, 2):
                    liar.say(liar.honest(number))
                intake = agent._participant.node.intake
                await until(lambda intake=intake: intake.last_number("agent2") == 2)
                liars.append(liar)
            yield victim, other, liars[0]


async def outcome(victim, other):
    """Once both have learned for long enough to be where they end."""
    so_far = min(victim.status.updates, other.status.updates)
    await until(lambda: min(victim.status.updates, other.status.updates) >= so_far + 200, seconds=60)
    node = victim._participant.node
    other._participant.node.agent.next_tick = None  # its last message is the one that the victim is to hold
    sent = other._participant.node.sent
    await until(lambda: node.intake.last_number("agent1") == sent.number)
    return Outcome(
        np.stack([victim.released, other.released]),
        {name: node.intake.last_data(name) for name in ("agent1", "agent2")},
        sent.data,
        dict(victim.status.dropped),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What becomes of the two where the third has said its honest words and nothing else."""

    async def main():
        async with beside_a_liar(tmp_path_factory.mktemp("honest") / "net") as (victim, other, _):
            return await outcome(victim, other)

    return run(main)


@pytest.mark.network
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_neighbor_that_lies_is_counted_and_changes_nothing(tmp_path, undisturbed, attack):
    reason, messages = ATTACKS[attack]

    async def main():
        async with beside_a_liar(tmp_path / "net") as (victim, other, liar):
            hostile = messages(liar)
            for data in hostile:
                liar.say(data)
            least = 1 if reason == "flooded" else len(hostile)
            await until(lambda: victim.status.dropped.get(reason, 0) >= least)
            return await outcome(victim, other), liar.honest(2)

    found, honest = run(main)
    assert set(found.dropped) == {reason}
    assert found.held == {"agent1": found.sent, "agent2": honest}
    np.testing.assert_allclose(found.models, undisturbed.models, rtol=0, atol=1e-6)
    assert undisturbed.dropped == {}


@pytest.mark.network
def test_an_honest_neighbor_that_says_something_else_changes_the_models(tmp_path, undisturbed):
    """Else the test above would show nothing."""

    async def main():
        async with beside_a_liar(tmp_path / "net") as (victim, other, liar):
            liar.say(liar.model(3, np.full(DIMENSION, -0.5)))
            return await outcome(victim, other)

    found = run(main)
    assert np.abs(found.models - undisturbed.models).max() > 1e-3
