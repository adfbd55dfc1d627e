"""Settings that every roster carries, the same for all agents, and what agents guarantee under them.

An agent's own settings (its samples, its budget) are in its own folder and in no roster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from flockwise.checks import Count, Positive, check_fields
from flockwise.errors import FlockwiseError, NetworkError
from flockwise.net.folder import NoBudget, OwnBudget
from flockwise.net.roster import SignedNeighborhood
from flockwise.net.wire import PrivacyLabel
from flockwise.objective import Objective
from flockwise.privacy.guarantee import NOT_PRIVATE, USUALLY_PUBLIC, Guarantee
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.privacy.origin import Origin
from flockwise.protocol import PROTOCOLS
from flockwise.registry import part_from_json, part_to_json
from flockwise.release.statistic import STATISTICS

# No coordinate of a model is larger: far above any model that learning ends with, and far below overflow.
MAGNITUDE_BOUND: Final = 1e6
# Seconds. Long enough for a process to be started again: a neighbor that is given up is missing in all means.
ROUND_TIMEOUT: Final = 60.0

# Public in every network of real agents, besides all else.
PUBLIC: Final = ("how many samples arrive, and when", "when an agent runs, and when it sends")
BY_BATCHES: Final = (
    "Samples that arrived together have a budget of their own: no release uses those of two arrivals."
)


@dataclass(frozen=True)
class NetworkSettings:
    """What agents minimize, how they do it, and whether models are private.

    updates: after so many an agent wakes no more; None goes on for ever.
    statistic, protocol: what agents release once, and what they talk about after it; with None they run
        coordinate descent.
    round_timeout: seconds without a sign of life after which a conversation goes on without a neighbor.
    not_covered: what the network was made of that no guarantee covers, such as its graph.
    """

    objective: Objective
    privacy: PrivacyLabel = "none"
    updates: Count | None = None
    statistic: Any = None
    protocol: Any = None
    magnitude_bound: Positive = MAGNITUDE_BOUND
    round_timeout: Positive = ROUND_TIMEOUT
    not_covered: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, NetworkError)
        if self.objective.max_samples is None:
            raise NetworkError("objective.max_samples: missing; agents on their own know no other cap on m_i")
        if self.privacy == "dp" and self.protocol is None and self.objective.feature_bound is None:
            raise NetworkError(
                "objective.feature_bound: missing; without it an agent's step size comes from its samples, "
                "and every release would leak them"
            )
        if (self.protocol is None) != (self.statistic is None) or (self.converses and self.privacy == "none"):
            raise NetworkError("agents that talk release a statistic first: give both, and privacy = 'dp'")

    @property
    def converses(self) -> bool:
        """Whether agents release once and then talk, instead of learning step by step."""
        return self.protocol is not None

    @property
    def origins(self) -> tuple[Origin, ...]:
        return tuple(Origin(what, "private") for what in self.not_covered)

    def largest_relay(self, dimension: int) -> int:
        """The most coordinates of a relay; 0 where there are none."""
        return self.protocol.largest_relay(dimension) if self.converses else 0

    @classmethod
    def of(cls, neighborhood: SignedNeighborhood) -> Self:
        """As the authority signed it."""
        return cls.from_json(neighborhood.settings, f"agent {neighborhood.agent!r}")

    def to_json(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"objective": self.objective.to_json(), "not_covered": list(self.not_covered)}
        if self.converses:
            values |= {"statistic": part_to_json(self.statistic), "protocol": part_to_json(self.protocol)}
        return values

    @classmethod
    def from_json(cls, document: Mapping[str, Any], whose: str) -> Self:
        """Nothing is left aside: a setting that this version does not know may change what is learned."""
        try:
            values = dict(document)
            values["objective"] = Objective.from_json(values["objective"])
            values["not_covered"] = tuple(values["not_covered"])
            for name, registry in (("statistic", STATISTICS), ("protocol", PROTOCOLS)):
                if values[name] is not None:
                    values[name] = part_from_json(registry, values[name])
            return cls(**values)
        except (FlockwiseError, KeyError, TypeError, ValueError) as error:
            raise NetworkError(
                f"{whose}: the settings in the roster cannot be used: {error}; the network was made by "
                "another version of Flockwise, or by another program"
            ) from error


def promise(
    settings: NetworkSettings, privacies: Sequence[NoBudget | OwnBudget], *, secure: bool = True
) -> str:
    """What agents with these own settings guarantee, in plain words. secure: whether their noise is.

    Whatever an agent's samples grow to, its (ε, δ) holds for each of them.
    """
    if settings.privacy == "none":
        return f"{NOT_PRIVATE.capitalize()}: models are sent as they are, and every message says so."
    budgets = [privacy for privacy in privacies if isinstance(privacy, OwnBudget)]
    if not budgets:
        return "No agent folder found here; each agent's guarantee is stated in its own folder."
    kind = "secure discrete" if secure else "simulated"
    plans = [own.plan(on_grid=secure) for own in dict.fromkeys(budgets)]
    noises = sorted({f"{kind} {MECHANISMS[plan.mechanism].words}" for plan in plans})
    words = Guarantee.of(
        (own.budget for own in budgets),
        mechanism=" and ".join(noises),
        accountant=" and ".join(sorted({plan.accountant for plan in plans})),
        plan=min(plans, key=lambda plan: plan.budget.epsilon),
        origins=settings.origins,
        public=(*USUALLY_PUBLIC, *PUBLIC),
        simulated=not secure,
    ).explain()
    return f"{words}\n{BY_BATCHES}" if any(own.growth == "batches" for own in budgets) else words
