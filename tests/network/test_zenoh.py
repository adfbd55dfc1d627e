"""Hosts with real sockets and real certificates hear their neighbors, and nobody gets in who should not."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import zenoh
from tests.network.hosts import MAX_BYTES, NETWORK, Recorder, World, enemy, free_ports, keys_of, until

from murmura.errors import NetworkError
from murmura.net.identity import Authority, TlsFiles
from murmura.net.zenoh_link import SHARE
from murmura.net.zenoh_settings import Neighborhoods, check_host, endpoint, session_settings

HOSTS = {"north": ["anna", "ada"], "east": ["ben"], "south": ["carl"]}
EDGES = [("anna", "ada"), ("anna", "ben"), ("ben", "carl"), ("ada", "carl")]
QUIET = 0.3  # seconds: what has not come by then is taken not to come


def run(main):
    return asyncio.run(main())


def session_of(link):
    assert link._session is not None
    return link._session


def test_neighbors_hear_each_other_and_nobody_else(tmp_path):
    async def main():
        async with World(tmp_path, HOSTS).running(EDGES) as (links, agents):
            for host, names in HOSTS.items():
                for name in names:
                    links[host].publish(name, b"model of " + name.encode())
            links["north"].send("anna", "ben", b"hello ben")
            links["north"].send("anna", "ada", b"hello ada")
            await until(lambda: sum(len(agent.heard()) for agent in agents.values()) >= 10)
            await asyncio.sleep(QUIET)
            return {name: sorted(agent.heard()) for name, agent in agents.items()}, links["north"].traffic

    heard, traffic = run(main)
    models = {name: ("model", name, b"model of " + name.encode()) for name in ("anna", "ada", "ben", "carl")}
    assert heard == {
        "anna": [models["ada"], models["ben"]],
        "ada": [("greeting", "anna", b"hello ada"), models["anna"], models["carl"]],
        "ben": [("greeting", "anna", b"hello ben"), models["anna"], models["carl"]],
        "carl": [models["ada"], models["ben"]],
    }
    # Agents of one host do not need the network.
    assert (traffic.messages_out, traffic.messages_in) == (3, 2)


def test_who_leaves_is_seen_to_go_and_who_returns_to_come(tmp_path):
    async def main():
        world = World(tmp_path, HOSTS)
        async with world.running(EDGES) as (links, agents):
            await links["east"].close()
            await until(lambda: "ben" not in agents["anna"].up() | agents["carl"].up())
            back = world.link("east")
            back.attach("ben", agents["ben"], ["anna", "carl"])
            links["east"] = back
            await back.refresh()
            await until(lambda: "ben" in agents["anna"].up() & agents["carl"].up())
            links["north"].detach("ada")
            await until(lambda: "ada" not in agents["anna"].up() | agents["carl"].up())

    run(main)


def test_new_neighbors_are_heard_after_the_session_was_opened_anew(tmp_path):
    async def main():
        async with World(tmp_path, HOSTS).running(EDGES) as (links, agents):
            assert not await links["north"].refresh()  # nothing new, nothing done
            links["north"].attach("anna", agents["anna"], ["ada", "ben", "carl"])
            links["south"].attach("carl", agents["carl"], ["ada", "anna"])
            links["east"].attach("ben", agents["ben"], ["anna"])
            for link in links.values():
                assert await link.refresh()
            await until(lambda: agents["anna"].up() == {"ada", "ben", "carl"})
            await until(lambda: agents["carl"].up() >= {"ada", "anna"})
            links["south"].publish("carl", b"new")
            links["north"].publish("anna", b"new")
            await until(lambda: ("model", "carl", b"new") in agents["anna"].events)
            await until(lambda: ("model", "anna", b"new") in agents["carl"].events)
            await asyncio.sleep(QUIET)
            return agents["ben"].heard()

    assert run(main) == [("model", "anna", b"new")]


def test_a_new_session_gives_up_the_old_one_and_takes_the_same_port(tmp_path):
    async def main():
        async with World(tmp_path, {"north": ["anna"], "east": ["ben"]}).running([("anna", "ben")]) as (
            links,
            agents,
        ):
            for _ in range(5):
                links["north"].attach("anna", agents["anna"], [])
                await links["north"].refresh()
                links["north"].attach("anna", agents["anna"], ["ben"])
                await links["north"].refresh()
                await until(lambda: "ben" in agents["anna"].up() and "anna" in agents["ben"].up())

    run(main)


class TestEnemies:
    """Whatever they say, no agent hears a word of it."""

    @staticmethod
    async def speak(session, host="east", agent="ben"):
        """Everything that an enemy might try under somebody's name."""
        keys = keys_of(host)
        token = session.liveliness().declare_token(keys.alive(agent))
        for _ in range(20):
            session.put(keys.model(agent), b"forged")
            session.put(keys.greeting(agent, "anna"), b"forged")
            await asyncio.sleep(0.02)
        token.undeclare()
        await asyncio.sleep(QUIET)

    def test_without_a_certificate_there_is_no_link(self, tmp_path):
        async def main():
            world = World(tmp_path, HOSTS)
            async with (
                world.running(EDGES) as (links, agents),
                enemy(None, world.files("north").authority, world.address("north")) as session,
            ):
                await self.speak(session)
                assert not session.info.peers_zid()
                return [agent.heard() for agent in agents.values()], links["north"].strangers

        assert run(main) == ([[]] * 4, 0)

    def test_a_certificate_of_another_authority_opens_no_link(self, tmp_path):
        async def main():
            world = World(tmp_path / "ours", HOSTS)
            theirs = World(tmp_path / "theirs", HOSTS, authority=Authority.new(NETWORK))
            # It trusts our authority, or it would not even try; but its own certificate is of the other one.
            async with (
                world.running(EDGES) as (links, agents),
                enemy(
                    theirs.files("east"), world.files("north").authority, world.address("north")
                ) as session,
            ):
                await self.speak(session)
                assert not session.info.peers_zid()
                return [agent.heard() for agent in agents.values()], links["north"].strangers

        assert run(main) == ([[]] * 4, 0)

    def test_a_host_that_is_no_neighbor_is_counted_and_hears_and_says_nothing(self, tmp_path):
        async def main():
            world = World(tmp_path, {**HOSTS, "west": ["mallory"]})
            overheard = []
            async with (
                world.running(EDGES) as (links, agents),
                enemy(world.files("west"), world.files("north").authority, world.address("north")) as session,
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

    def test_a_neighboring_host_cannot_speak_under_another_hosts_name(self, tmp_path):
        async def main():
            world = World(tmp_path, HOSTS)
            async with world.running(EDGES) as (links, agents):
                await links["south"].close()
                async with enemy(
                    world.files("south"), world.files("north").authority, world.address("north")
                ) as session:
                    await until(lambda: len(session.info.peers_zid()) == 1)
                    await self.speak(session, host="east", agent="ben")
                    return agents["anna"].heard(), agents["ada"].heard(), agents["anna"].up()

        assert run(main) == ([], [], {"ada", "ben"})

    def test_a_neighboring_host_that_speaks_for_an_agent_of_another_one_is_counted(self, tmp_path):
        async def main():
            world = World(tmp_path, HOSTS)
            async with world.running(EDGES) as (links, agents):
                await links["south"].close()
                async with enemy(
                    world.files("south"), world.files("north").authority, world.address("north")
                ) as session:
                    await until(lambda: len(session.info.peers_zid()) == 1)
                    await self.speak(session, host="south", agent="ben")
                    return agents["anna"].heard(), agents["anna"].up(), links["north"].dropped("anna")

        heard, up, dropped = run(main)
        assert (heard, up) == ([], {"ada", "ben"})
        # Twenty models that anna would listen to, and twenty greetings to her.
        assert dropped == {"stolen_name": 40}

    def test_greetings_to_made_up_names_take_no_memory(self, tmp_path):
        async def main():
            world = World(tmp_path, HOSTS)
            async with world.running(EDGES) as (links, _):
                await links["south"].close()
                async with enemy(
                    world.files("south"), world.files("north").authority, world.address("north")
                ) as session:
                    await until(lambda: len(session.info.peers_zid()) == 1)
                    for sender in ("ben", "carl", "nobody"):
                        for i in range(500):
                            session.put(keys_of("south").greeting(sender, f"ghost{i}"), b"boo")
                    await until(lambda: links["north"].traffic.messages_in >= 100)
                    await asyncio.sleep(QUIET)
                    return set(links["north"]._dropped), len(session_of(links["north"]).inbox)

        assert run(main) == (set(), 0)

    def test_a_stolen_session_identifier_gives_no_rights(self, tmp_path):
        """zenoh lets a second link join a session by its identifier: only its owner must be able to.

        Only north dials here: while nobody has dialled north from east's session, that link is still free.
        """

        async def main():
            world = World(tmp_path, {"north": ["anna"], "east": ["ben"], "west": ["mallory"]})
            links = {"north": world.link("north"), "east": world.link("east")}
            agents = {"anna": Recorder(), "ben": Recorder()}
            (nowhere,) = free_ports(1)
            anna = next(place for place in world.places if place.name == "anna")
            links["east"].learn([replace(anna, address=f"127.0.0.1:{nowhere}")])
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
                    world.address("north"),
                    identifier=identifier,
                ) as session:
                    await self.speak(session)
                links["east"].publish("ben", b"genuine")
                await until(lambda: agents["anna"].heard())
                return agents["anna"].heard()

        assert run(main) == [("model", "ben", b"genuine")]

    def test_of_a_message_that_is_too_long_only_the_beginning_is_looked_at(self, tmp_path):
        async def main():
            async with World(tmp_path, HOSTS).running(EDGES) as (links, agents):
                links["east"].publish("ben", b"x" * 60_000)
                links["east"].publish("ben", b"x" * 20_000_000)
                links["east"].publish("ben", b"short")
                await until(lambda: ("model", "ben", b"short") in agents["anna"].events)
                return [len(data) for _, _, data in agents["anna"].heard()], agents["anna"].up()

        assert run(main) == ([MAX_BYTES + 1, len(b"short")], {"ada", "ben"})

    def test_a_flood_is_counted_and_others_are_heard(self, tmp_path):
        async def main():
            async with World(tmp_path, HOSTS).running(EDGES) as (links, agents):
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


class TestSettings:
    FILES = TlsFiles.of
    NEIGHBORS = Neighborhoods(
        {"east": "10.0.0.2:7447"}, {"east": frozenset({"ben"})}, {"east": frozenset({"anna"})}
    )

    def settings(self, tmp_path):
        return session_settings(
            keys_of("north"), "10.0.0.1:7447", TlsFiles.of(tmp_path), self.NEIGHBORS, MAX_BYTES
        )

    def test_zenoh_accepts_them(self, tmp_path):
        zenoh.Config.from_json5(json.dumps(self.settings(tmp_path)))

    def test_only_neighbors_are_dialled_and_nobody_is_looked_for(self, tmp_path):
        settings = self.settings(tmp_path)
        assert settings["connect"]["endpoints"] == ["tls/10.0.0.2:7447"]
        assert settings["transport"]["link"]["protocols"] == ["tls"]
        assert settings["transport"]["link"]["tls"]["enable_mtls"]
        assert not settings["scouting"]["multicast"]["enabled"]
        assert not settings["scouting"]["gossip"]["enabled"]

    def test_what_is_not_allowed_is_denied(self, tmp_path):
        control = self.settings(tmp_path)["access_control"]
        assert control["enabled"]
        assert control["default_permission"] == "deny"
        speaks = {
            (f, k)
            for r in control["rules"]
            if "put" in r["messages"]
            for f in r["flows"]
            for k in r["key_exprs"]
        }
        assert speaks == {
            ("ingress", "murmura/meadow/east/**"),
            ("egress", "murmura/meadow/north/model/anna"),
            ("egress", "murmura/meadow/north/alive/anna"),
            ("egress", "murmura/meadow/north/to/ben/*"),
        }
        assert [subject["cert_common_names"] for subject in control["subjects"]] == [["east"]]

    @pytest.mark.parametrize("name", ["example.org", "a/b", "*", "", "north$", "@north"])
    def test_a_host_cannot_be_called_anything(self, name):
        with pytest.raises(NetworkError, match="host="):
            check_host(name)

    def test_an_address_is_checked(self):
        with pytest.raises(NetworkError, match="address="):
            endpoint("tcp/10.0.0.1:7447#key=value")


def test_a_neighbor_without_a_place_is_refused(tmp_path):
    link = World(tmp_path, {"north": ["anna"]}).link("north")
    with pytest.raises(NetworkError, match="on which host its neighbor 'zoe' runs"):
        link.attach("anna", Recorder(), ["zoe"])


def test_two_addresses_for_one_host_are_refused(tmp_path):
    async def main():
        world = World(tmp_path, {"north": ["anna"], "east": ["ben", "bob"]})
        link = world.link("north")
        ben, bob = (place for place in world.places if place.host == "east")
        link.learn([replace(bob, address="127.0.0.1:9")])
        link.attach("anna", Recorder(), [ben.name, bob.name])
        await link.refresh()

    with pytest.raises(NetworkError, match="host 'east' has two addresses"):
        run(main)


def test_a_port_that_is_taken_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("murmura.net.zenoh_settings.LISTEN_TIMEOUT_MS", 100)

    async def main():
        world = World(tmp_path, {"north": ["anna"], "east": ["ben"]})
        async with world.running([("anna", "ben")]):
            again = world.link("north")
            again.attach("anna", Recorder(), ["ben"])
            await again.refresh()

    with pytest.raises(NetworkError, match="host 'north' cannot listen at"):
        run(main)
