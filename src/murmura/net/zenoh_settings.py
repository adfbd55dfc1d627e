"""How a host's zenoh session is set up: whom it dials, whom it lets in, and what each may say.

Who a peer is, zenoh takes from its certificate: the common name is the host's. What a host may say is told by
the key: everything that it publishes lies below its own name, so that one rule per neighboring host is enough,
and a host that speaks for an agent of another one is found out by the key alone.

    murmura/NETWORK/HOST/AGENT/model          what an agent publishes
    murmura/NETWORK/HOST/AGENT/to/NEIGHBOR    a greeting
    murmura/NETWORK/HOST/AGENT/alive          there while the agent is (a liveliness token)

The default is to deny. A host is sent only what concerns its own agents: models of their neighbors, greetings
to them, and no word of who else is neighbor to whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from murmura.errors import NetworkError
from murmura.net.identity import TlsFiles
from murmura.net.names import check_name, split_address

PREFIX: Final = "murmura"
LEASE_MS: Final = 10_000  # a peer that hangs is given up after so long
RETRY: Final = {"period_init_ms": 100, "period_max_ms": 2_000, "period_increase_factor": 2.0}
LISTEN_TIMEOUT_MS: Final = 5_000  # a port may be held for a moment by the session before
BATCHES_IN_QUEUE: Final = 16  # of 64 kB and per link: more than any burst that a host sends at once
MICROSECONDS_BEFORE_DROP: Final = 500
LEAST_MESSAGE_LIMIT: Final = 2**16  # zenoh delivers anything below one batch in any case
SECOND_LINK: Final = 2


@dataclass(frozen=True)
class Neighborhoods:
    """Who on this host talks with whom elsewhere: per other host, its agents and ours that are neighbors."""

    addresses: Mapping[str, str]
    theirs: Mapping[str, frozenset[str]]
    ours: Mapping[str, frozenset[str]]


class Keys:
    """The keys of one network, as seen from one host."""

    def __init__(self, network: str, host: str) -> None:
        self._root = f"{PREFIX}/{check_name(network, 'network')}"
        self._own = f"{self._root}/{check_host(host)}"

    def model(self, agent: str) -> str:
        return f"{self._own}/{agent}/model"

    def greeting(self, agent: str, neighbor: str) -> str:
        return f"{self._own}/{agent}/to/{neighbor}"

    def alive(self, agent: str) -> str:
        return f"{self._own}/{agent}/alive"

    # What to listen to has a place for any host: a stolen name shall arrive, to be counted.
    def models_of(self, neighbor: str) -> str:
        return f"{self._root}/*/{neighbor}/model"

    def greetings_to(self, agent: str) -> str:
        return f"{self._root}/*/*/to/{agent}"

    @property
    def all_alive(self) -> str:
        return f"{self._root}/*/*/alive"

    def all_by(self, agent: str) -> str:
        return f"{self._own}/{agent}/**"

    def all_from(self, host: str) -> str:
        return f"{self._root}/{host}/**"

    @property
    def all(self) -> str:
        return f"{self._root}/**"


def check_host(host: str) -> str:
    """The name, if a host may have it.

    zenoh trusts the public authorities of the web besides the network's own when it dials, and they certify
    any domain to its owner. A name without a dot is nobody's domain.
    """
    check_name(host, "host")
    if "." in host:
        raise NetworkError(
            f"host={host!r}: the name of a host has no dots, so that no public authority certifies it to anyone"
        )
    return host


def endpoint(address: str) -> str:
    split_address(address)
    return f"tls/{address}"


def session_settings(
    keys: Keys, listen: str, files: TlsFiles, neighborhoods: Neighborhoods, max_bytes: int
) -> dict[str, Any]:
    """zenoh's configuration. Both ends of a link dial: either may be the one that cannot be reached."""
    dialled = sorted({endpoint(address) for address in neighborhoods.addresses.values()})
    return {
        "mode": "peer",
        "listen": {
            "endpoints": [endpoint(listen)],
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
            # More than one link makes zenoh ask for a proof that a second link comes from the same session.
            # With one it does not, and whoever knows a session's identifier takes over the rights of its host.
            "unicast": {"max_links": SECOND_LINK, "max_sessions": 4 * len(neighborhoods.addresses) + 16},
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
        "access_control": _access_control(keys, neighborhoods),
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


def _access_control(keys: Keys, neighborhoods: Neighborhoods) -> dict[str, Any]:
    rules, subjects, policies = [], [], []
    for host in sorted(neighborhoods.addresses):
        theirs, ours = sorted(neighborhoods.theirs[host]), sorted(neighborhoods.ours[host])
        subscriptions = [keys.models_of(agent) for agent in theirs] + [keys.greetings_to(a) for a in ours]
        own = [
            _rule(f"{host} speaks", "ingress", ["put", "liveliness_token"], [keys.all_from(host)]),
            _rule(f"{host} asks", "ingress", ["declare_subscriber", *LIVELINESS], [keys.all]),
            _rule(f"{host} hears", "egress", ["put", "liveliness_token"], [keys.all_by(a) for a in ours]),
            _rule(f"{host} is asked", "egress", ["declare_subscriber"], subscriptions),
            _rule(f"{host} is watched", "egress", LIVELINESS, [keys.all_alive]),
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


LIVELINESS: Final = ["liveliness_query", "declare_liveliness_subscriber"]


def _rule(name: str, flow: str, messages: list[str], keys: Iterable[str]) -> dict[str, Any]:
    return {
        "id": name,
        "permission": "allow",
        "flows": [flow],
        "messages": messages,
        "key_exprs": list(keys),
    }
