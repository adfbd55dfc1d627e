"""Enough descriptors for a process of agents: one that has none left can write neither ledger nor status.

Where none is left, zenoh also closes no connection any more: it tries again and again to take the next one.
So a few are kept back, for when a crowd has come too fast (flockwise.net.zenoh.door).
"""

from __future__ import annotations

from typing import Final

from flockwise.errors import NetworkError

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None

# Files of one agent, with those that SQLite keeps beside them, and links to its neighbors.
OF_AN_AGENT: Final = 16
# For the process itself, for what waits at its door, and for a crowd that comes between two looks at it.
OF_A_PROCESS: Final = 1024
# Of these, more than the kernel keeps for zenoh to take.
KEPT_BACK: Final = 256


def reserve_descriptors(n_agents: int) -> None:
    """Take what the system allows this process, but for a few; if that is too little, say so now."""
    if resource is None:
        return
    needed = OF_A_PROCESS + OF_AN_AGENT * n_agents
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        most = max(needed, allowed)
    if most < needed:
        raise NetworkError(
            f"this process may open {most:,} files and connections, and needs {needed:,} for {n_agents:,} "
            "agents; raise the limit (ulimit -Hn, or LimitNOFILE= in the unit), or use more processes"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (most - KEPT_BACK, most))


def use_reserve() -> int:
    """Allow a few more, where the system does; returns how many were allowed before. On Linux alone."""
    assert resource is not None
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(allowed + KEPT_BACK, most), most))
    return allowed


def give_reserve_back(allowed: int) -> None:
    assert resource is not None
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
