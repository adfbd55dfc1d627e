"""Names of networks, agents and hosts, and addresses of hosts.

Names become parts of zenoh's keys, of certificates and of paths. So they hold no character that has a
meaning in any of these.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, TypeAlias

from flockwise.errors import NetworkError

MAX_NAME: Final = 63  # what one label of a domain name may hold
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", re.ASCII)
MAX_PORT: Final = 2**16 - 1

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def check_name(name: str, what: str = "name") -> str:
    """The name, if it can be one."""
    if not NAME.fullmatch(name):
        raise NetworkError(
            f"{what}={name!r}: a name has 1 to {MAX_NAME} letters, digits, dots, dashes or underscores "
            "(ASCII) and begins with a letter or a digit; rename it"
        )
    return name


def check_host(host: str) -> str:
    """The name, if a host may have it.

    When zenoh dials, it trusts the public authorities of the web besides the network's own, and they certify
    any domain to its owner. A name without a dot is not a domain.
    """
    check_name(host, "host")
    if "." in host:
        raise NetworkError(
            f"host={host!r}: a host name has no dots, or a public authority could certify it to others"
        )
    return host


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port"; an IPv6 address stands in brackets, as in "[::1]:7447"."""
    host, colon, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port[:6]) <= MAX_PORT
    if host.startswith("[") and host.endswith("]"):
        host, is_host = host[1:-1], ":" in host and is_dialled(host[1:-1])
    else:
        is_host = ":" not in host and is_dialled(host)
    if not (colon and is_port and is_host):
        raise NetworkError(
            f"address={address!r}: an address is host:port, as in 192.0.2.7:7447, peer.example:7447 "
            "or [::1]:7447"
        )
    number = ip_address(host)
    return host if number is None else str(number), int(port)


def is_dialled(host: str) -> bool:
    """Whether this is the number or name of one host; a pattern such as *.org is neither."""
    return ip_address(host) is not None or HOST_NAME.fullmatch(host) is not None


def ip_address(host: str) -> IpAddress | None:
    """The number of a host; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
