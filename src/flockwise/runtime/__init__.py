"""Running agents: hosts, participants, own models, status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flockwise.runtime.embedded import RealAgent

__all__ = ["RealAgent"]


def __getattr__(name: str) -> Any:
    """Imported when it is used: it needs the extra `net`, and much else that parts of this package do not."""
    if name == "RealAgent":
        from flockwise.runtime.embedded import RealAgent

        return RealAgent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
