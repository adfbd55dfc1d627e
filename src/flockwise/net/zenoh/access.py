"""The settings of a host's zenoh session: which hosts it dials and lets in, and what each may send.

zenoh takes the name of a host from its certificate: it is the common name. Everything that a host publishes
lies below its own name. So one rule per neighboring host is enough, and the key alone shows a host that
sends for an agent of another one.

    flockwise/NETWORK/HOST/model/AGENT          what an agent publishes
    flockwise/NETWORK/HOST/to/NEIGHBOR/AGENT    a greeting
    flockwise/NETWORK/HOST/alive/AGENT/SESSION  exists while the agent is up (a liveliness token)

The kind comes before the agent: for every message zenoh looks through all that is declared beside its key,
and only the tokens, one per agent, are many. A host that opens a new session has two tokens per agent for a
while: others may notice the end of the old one after the new one has come.

The default is to deny. All hosts subscribe to everything, twice, however many agents there are. But a host
is sent only the models of its agents' neighbors and greetings to its agents. So subscriptions do not show
which agents are neighbors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flockwise.net.names import check_host, check_name, split_address

PREFIX: Final = "flockwise"
LEASE_MS: Final = 10_000  # after so long zenoh drops a peer that hangs
RETRY: Final = {"period_init_ms": 100, "period_max_ms": 2_000, "period_increase_factor": 2.0}
LISTEN_TIMEOUT_MS: Final = 5_000  # a port may be held for a moment by the session before
# A connection that has no certificate to show by then is closed, and so is one that opens no session then.
MS_TO_COME_IN: Final = 5_000
# How many may be about to open a session: more than the door lets wait (flockwise.net.zenoh.door). Else a few
# that have a certificate and say nothing would keep neighbors out.
MOST_COMING_IN: Final = 1024
BATCHES_IN_QUEUE: Final = 16  # of 64 kB and per link: more than any burst that a host sends at once
MICROSECONDS_BEFORE_DROP: Final = 500
LEAST_MESSAGE_LIMIT: Final = 2**16  # zenoh delivers anything below one batch in any case
# Of one host: it has a session with two links, and for a while the one before it, dialed from either end.
MOST_LINKS: Final = 8
# Of one host with a certificate that is no neighbor, and of all of these. They can say and hear nothing.
MOST_STRANGE_LINKS: Final = 2
MOST_STRANGERS: Final = 8
SPEAKING: Final = ["put", "liveliness_token"]
LISTENING: Final = ["declare_subscriber", "liveliness_query", "declare_liveliness_subscriber"]


@dataclass(frozen=True)
class TlsFiles:
    """Where the files for an encrypted connection are, for the library that opens it."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class NeighborHost:
    """Another host: its address, and its agents and ours that are neighbors of each other."""

    address: str
    theirs: set[str] = field(default_factory=set)
    ours: set[str] = field(default_factory=set)


class KeyExpressions:
    """The keys of one network, as seen from one host."""

    def __init__(self, network: str, host: str) -> None:
        self._root = f"{PREFIX}/{check_name(network, 'network')}"
        self._own = f"{self._root}/{check_host(host)}"

    def model(self, agent: str) -> str:
        return f"{self._own}/model/{agent}"

    def greeting(self, agent: str, neighbor: str) -> str:
        return f"{self._own}/to/{neighbor}/{agent}"

    def alive(self, agent: str, session: str) -> str:
        return f"{self._own}/alive/{agent}/{session}"

    def greetings_to(self, neighbor: str) -> str:
        return f"{self._own}/to/{neighbor}/*"

    def all_from(self, host: str) -> str:
        return f"{self._root}/{host}/**"

    @property
    def all_messages(self) -> tuple[str, ...]:
        """What to subscribe to: messages under any name. Those under stolen names arrive, and are counted."""
        return f"{self._root}/*/model/*", f"{self._root}/*/to/*/*"

    @property
    def all_alive(self) -> str:
        return f"{self._root}/*/alive/*/*"


def endpoint(address: str) -> str:
    split_address(address)
    return f"tls/{address}"


def address_in(locator: str) -> str:
    """The host:port of what zenoh calls a locator."""
    return locator.partition("/")[2].partition("?")[0]


def session_settings(
    keys: KeyExpressions, listen: str, files: TlsFiles, hosts: Mapping[str, NeighborHost], max_bytes: int
) -> dict[str, Any]:
    """zenoh's configuration. Both ends of a connection dial: either may be the one that cannot be reached."""
    dialled = sorted({endpoint(host.address) for host in hosts.values()})
    return {
        "mode": "peer",
        "listen": {
            "endpoints": [f"{endpoint(listen)}#tls_handshake_timeout_ms={MS_TO_COME_IN}"],
            "timeout_ms": LISTEN_TIMEOUT_MS,
            "exit_on_failure": True,
            "retry": RETRY,
        },
        "connect": {"endpoints": dialled, "timeout_ms": -1, "exit_on_failure": False, "retry": RETRY},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "open": {"return_conditions": {"connect_scouted": False, "declares": False}},
        "adminspace": {"enabled": False},
        "transport": {
            "shared_memory": {"enabled": False},
            # With two links, zenoh asks for a proof that the second one comes from the same session. With one
            # it does not, and anybody who knows a session's identifier takes over the rights of its host.
            "unicast": {
                "accept_timeout": MS_TO_COME_IN,
                "accept_pending": MOST_COMING_IN,
                "max_links": 2,
                "max_sessions": MOST_LINKS * len(hosts) + 2 * MOST_STRANGERS,
            },
            "link": {
                "protocols": ["tls"],
                "tls": _tls(files),
                "tx": {
                    "lease": LEASE_MS,
                    "queue": {
                        "size": {"data": BATCHES_IN_QUEUE},
                        "congestion_control": {"drop": {"wait_before_drop": MICROSECONDS_BEFORE_DROP}},
                    },
                },
                "rx": {"max_message_size": max(2 * max_bytes, LEAST_MESSAGE_LIMIT)},
            },
        },
        "access_control": _access_control(keys, hosts),
    }


def _tls(files: TlsFiles) -> dict[str, Any]:
    key, certificate = str(files.key), str(files.certificate)
    return {
        "root_ca_certificate": str(files.authority),
        "enable_mtls": True,
        "verify_name_on_connect": True,
        "close_link_on_expiration": True,
        "listen_private_key": key,
        "listen_certificate": certificate,
        "connect_private_key": key,
        "connect_certificate": certificate,
    }


def _access_control(keys: KeyExpressions, hosts: Mapping[str, NeighborHost]) -> dict[str, Any]:
    rules, subjects, policies = [], [], []
    for host, edges in sorted(hosts.items()):
        heard = [key for agent in sorted(edges.ours) for key in (keys.model(agent), keys.alive(agent, "*"))]
        heard += [keys.greetings_to(agent) for agent in sorted(edges.theirs)]
        interests = [*keys.all_messages, keys.all_alive]
        own = [
            _rule(f"{host} speaks", ["ingress"], SPEAKING, [keys.all_from(host)]),
            _rule(f"{host} hears", ["egress"], SPEAKING, heard),
            _rule(f"{host} listens", ["ingress", "egress"], LISTENING, interests),
        ]
        rules += own
        subjects.append({"id": host, "cert_common_names": [host]})
        policies.append({"rules": [rule["id"] for rule in own], "subjects": [host]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }


def _rule(name: str, flows: list[str], messages: list[str], keys: list[str]) -> dict[str, Any]:
    return {"id": name, "permission": "allow", "flows": flows, "messages": messages, "key_exprs": keys}
