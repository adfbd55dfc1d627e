"""Enough descriptors for a process of agents: one that has none left can write neither ledger nor status."""

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


def reserve_descriptors(n_agents: int) -> None:
    """Take all that the system allows this process; if that is too little, say so now."""
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
    if allowed < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
