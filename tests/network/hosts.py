"""Links between hosts on the loopback interface: an authority, certificates, and enemies of all sorts."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

import zenoh
from tests.network.signers import NETWORK
from tests.network.world import Recorder

from flockwise.deploy.credentials import tls_files
from flockwise.deploy.identity import Authority, Identity, enroll
from flockwise.deploy.setup import free_addresses
from flockwise.net.transport import Place
from flockwise.net.zenoh.access import KeyExpressions, TlsFiles
from flockwise.net.zenoh.link import ZenohLink

MAX_BYTES = 2_000
SOON = 10.0  # seconds: how long anything may take on a busy machine


async def until(condition, seconds=SOON):
    """Wait for it; a test that waits in vain fails."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen in time")


class LoopbackHosts:
    """Hosts on this machine, with a certificate each: who runs where, and links between them.

    hosts: host → agents.
    """

    def __init__(self, folder: Path, hosts: dict[str, list[str]], *, authority: Authority | None = None):
        self.folder = folder
        self.hosts = hosts
        self.authority = Authority.new(NETWORK) if authority is None else authority
        self.addresses = dict(zip(hosts, free_addresses("127.0.0.1", len(hosts)), strict=True))
        self.identities = {host: self.enrolled(host, agents) for host, agents in hosts.items()}
        self.places = [
            Place(agent, host, self.addresses[host], self.identities[host].public_keys[agent])
            for host, agents in hosts.items()
            for agent in agents
        ]

    def enrolled(self, host, agents, *, folder=None) -> Identity:
        identity = enroll(self.authority, host, self.addresses[host], agents)
        identity.save(self.folder / (folder or host))
        return identity

    def files(self, host):
        return tls_files(self.folder / host)

    def link(self, host):
        link = ZenohLink(NETWORK, host, self.addresses[host], self.files(host), max_bytes=MAX_BYTES)
        link.learn(self.places)
        return link

    @asynccontextmanager
    async def running(self, edges):
        """All hosts, linked and plugged in: their links, and what each agent is told."""
        neighbors = {place.name: set() for place in self.places}
        for one, other in edges:
            neighbors[one].add(other)
            neighbors[other].add(one)
        links = {host: self.link(host) for host in self.hosts}
        agents = {place.name: Recorder() for place in self.places}
        for place in self.places:
            links[place.host].attach(place.name, agents[place.name], neighbors[place.name])
        try:
            for link in links.values():
                await link.refresh()
            await until(lambda: all(agents[name].up() == neighbors[name] for name in agents))
            yield links, agents
        finally:
            for link in links.values():
                await link.close()


@asynccontextmanager
async def enemy(files: TlsFiles | None, authority_file: Path, target: str, *, identifier: str | None = None):
    """A zenoh session of somebody who follows no rule of ours; without files, it has no certificate."""
    tls = {
        "root_ca_certificate": str(authority_file),
        "enable_mtls": files is not None,
        "verify_name_on_connect": True,
    }
    if files is not None:
        tls |= {"connect_private_key": str(files.key), "connect_certificate": str(files.certificate)}
    settings = {
        "mode": "peer",
        "listen": {"endpoints": []},
        "connect": {"endpoints": [f"tls/{target}"], "timeout_ms": -1, "exit_on_failure": False},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {"shared_memory": {"enabled": False}, "link": {"tls": tls}},
    }
    if identifier is not None:
        settings["id"] = identifier
    session = await asyncio.to_thread(zenoh.open, zenoh.Config.from_json5(json.dumps(settings)))
    try:
        yield session
    finally:
        await asyncio.to_thread(session.close)


def keys_of(host):
    return KeyExpressions(NETWORK, host)
