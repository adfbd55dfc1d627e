"""Certificates of hosts: where they are, when they end, and how the authority renews them.

A renewed certificate is for the same host and the same key, so nothing is asked of a device, and one that
has ended can be renewed as well. The authority keeps a copy of each for this.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from flockwise.deploy.certificates import certificate_from_pem
from flockwise.deploy.credentials import TLS_FILE
from flockwise.deploy.folder import IDENTITY_FOLDER, is_here
from flockwise.deploy.identity import Authority
from flockwise.deploy.keyfiles import read_file, write_file
from flockwise.deploy.network_plan import (
    AGENTS_FOLDER,
    AUTHORITY_FOLDER,
    DEVICES_FOLDER,
    HOSTS_FOLDER,
    NetworkPlan,
)
from flockwise.errors import IdentityError

CERTIFICATES_FOLDER: Final = "certificates"
RENEW_WITHIN: Final = timedelta(days=60)


def end_of(certificate: Path) -> datetime | None:
    """None if no certificate is in this file."""
    try:
        return certificate_from_pem(certificate.read_bytes()).not_valid_after_utc
    except (OSError, IdentityError):
        return None


def ends_in(folder: Path) -> dict[str, datetime]:
    """When the certificates of the hosts that run the network end, as far as they are here."""
    plan = NetworkPlan.read(folder)
    hosts = sorted({place.host for place in plan.places if place.name not in plan.removed})
    ends = {host: end_of(find_certificate(folder, host)) for host in hosts}
    return {host: end for host, end in ends.items() if end is not None}


def renew(folder: Path, within: timedelta = RENEW_WITHIN) -> dict[str, datetime]:
    """Renew what ends within this time, or has ended; the new ends, by host.

    An agent that a gateway runs has a certificate of its own as well, for when it runs by itself.
    """
    authority, plan = Authority.read(folder / AUTHORITY_FOLDER), NetworkPlan.read(folder)
    renewed, latest = {}, datetime.now(UTC) + within
    for host in [*plan.gateways, *plan.members]:
        certificate = read_file(find_certificate(folder, host))
        if certificate_from_pem(certificate).not_valid_after_utc <= latest:
            put_certificate(folder, host, authority.renew(certificate))
            renewed[host] = certificate_from_pem(
                read_file(find_certificate(folder, host))
            ).not_valid_after_utc
    return renewed


def find_certificate(folder: Path, host: str) -> Path:
    """Where the newest certificate of a host is; of one elsewhere there is a copy."""
    home = _home(folder, host)
    return _copy(folder, host) if home is None else home / IDENTITY_FOLDER / TLS_FILE


def put_certificate(folder: Path, host: str, certificate: bytes) -> None:
    """Into the host's folder, or among what is carried to its device."""
    home = _home(folder, host)
    target = folder / DEVICES_FOLDER / host if home is None else home / IDENTITY_FOLDER
    write_file(target / TLS_FILE, certificate)
    keep_certificate(folder, host, certificate)


def keep_certificate(folder: Path, host: str, certificate: bytes) -> None:
    """A copy with the authority: the host's folder may go elsewhere."""
    write_file(_copy(folder, host), certificate)


def _home(folder: Path, host: str) -> Path | None:
    homes = (folder / kind / host for kind in (HOSTS_FOLDER, AGENTS_FOLDER))
    return next((home for home in homes if is_here(home) and (home / IDENTITY_FOLDER).is_dir()), None)


def _copy(folder: Path, host: str) -> Path:
    return folder / AUTHORITY_FOLDER / CERTIFICATES_FOLDER / f"{host}.pem"
