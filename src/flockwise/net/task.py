"""What a network learns: the public settings that every roster carries, the same for all agents.

An agent's own settings (its points, its budget) stand in its own folder and in no roster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, Self, TypeAlias

from flockwise.errors import MissingExtra, NetworkError
from flockwise.method.release_once import PROPAGATION_TRADEOFF
from flockwise.net.learner import Settings
from flockwise.net.roster import Neighborhood, Setting
from flockwise.net.wire import PrivacyLabel
from flockwise.objective import loss_by_name

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("a real network", "net") from error

Method: TypeAlias = Literal["cd", "release_once", "lowpass"]

# No coordinate of a model is larger: far above any model that learning ends with, and far below overflow.
MAGNITUDE_BOUND: Final = 1e6
# Seconds. Long enough for a process to be started again: who is given up is missing in everyone's means.
ROUND_TIMEOUT: Final = 60.0


@dataclass(frozen=True)
class Task:
    """The keys of [objective] in a configuration, whether models are private, and when agents stop.

    updates: after so many an agent wakes no more; None goes on for ever.
    leaks: what the network was made of that tells of private data, such as its graph; one per line.
    method: what agents do: coordinate descent, or one release and a conversation about it.
    round_timeout: seconds without a sign of life after which a conversation goes on without a neighbor.
    smoothing: μ of the propagation after one release.
    """

    loss: str
    tradeoff: float
    max_samples: int
    privacy: PrivacyLabel
    feature_bound: float | None = None
    l2: float | None = None
    classes: int = 2
    width: float = 1.0
    updates: int | None = None
    magnitude_bound: float = MAGNITUDE_BOUND
    leaks: str = ""
    method: Method = "cd"
    round_timeout: float = ROUND_TIMEOUT
    smoothing: float = PROPAGATION_TRADEOFF

    @classmethod
    def of(cls, neighborhood: Neighborhood) -> Self:
        """As the authority signed it."""
        return cls.from_settings(neighborhood.settings, f"agent {neighborhood.agent!r}")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Setting], whose: str) -> Self:
        try:
            return msgspec.convert(_known(settings), cls)
        except (msgspec.ValidationError, TypeError) as error:
            raise NetworkError(
                f"{whose}: the settings in the roster cannot be used: {error}; the network was made by "
                "another version of Flockwise, or by another program"
            ) from error

    def to_settings(self) -> dict[str, Setting]:
        return asdict(self)

    @property
    def known_leaks(self) -> tuple[str, ...]:
        """Outside every guarantee."""
        return tuple(self.leaks.splitlines())

    def learning(self) -> Settings:
        """What an agent's update is made of."""
        loss = loss_by_name(self.loss, classes=self.classes, width=self.width)
        return Settings(loss, self.tradeoff, self.max_samples, self.feature_bound, self.l2)


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing is left aside: a setting that this version does not know may change what is learned."""
    unknown = settings.keys() - {field.name for field in fields(Task)}
    if unknown:
        raise TypeError(f"it does not know {min(unknown)!r}")
    return dict(settings)
