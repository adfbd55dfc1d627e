"""Settings that every roster carries, the same for all agents, and what agents guarantee under them.

An agent's own settings (its samples, its budget) are in its own folder and in no roster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from flockwise.checks import Count, Positive, check_fields
from flockwise.deploy.folder import NoBudget, OwnBudget
from flockwise.deploy.roster import SignedNeighborhood
from flockwise.errors import FlockwiseError, NetworkError
from flockwise.net.wire import PrivacyLabel
from flockwise.objective import Objective
from flockwise.privacy.guarantee import NOT_PRIVATE, USUALLY_PUBLIC, Guarantee
from flockwise.privacy.mechanisms import MECHANISMS
from flockwise.privacy.origin import Origin
from flockwise.privacy.plan import Plan
from flockwise.protocol import PROTOCOLS
from flockwise.protocol.aggregation import Neighbors
from flockwise.registry import declared_by, part_from_json, part_to_json
from flockwise.release.statistic import STATISTICS, declaring_parts

# No coordinate of a model is larger: far above any model that learning ends with, and far below overflow.
MAGNITUDE_BOUND: Final = 1e6
# How much longer than the objective allows a model may be: agents may gather more samples than was planned,
# and releases have noise, by budgets that others do not know.
ROOM: Final[Mapping[PrivacyLabel, float]] = {"none": 10.0, "dp": 100.0}
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
    neighbors: which mean of its neighbors' models an agent learns from (flockwise.protocol.aggregation).
    statistic, protocol: what agents release once, and what they talk about after it; with None they run
        coordinate descent.
    round_timeout: seconds without a sign of life after which a conversation goes on without a neighbor.
    origins: what the network was made of besides public facts, such as a graph from models: a guarantee adds
        up what was spent on it, or says that it does not cover it. Seeds are left out: all agents read them,
        and a seed draws the noise of its release again.
    feature_names: of every agent's samples, in their order; empty where nobody has named them.
    has_intercept: whether the last feature was added and is 1 in every sample.
    """

    objective: Objective
    privacy: PrivacyLabel = "none"
    updates: Count | None = None
    neighbors: Neighbors = "mean"
    statistic: Any = None
    protocol: Any = None
    magnitude_bound: Positive = MAGNITUDE_BOUND
    round_timeout: Positive = ROUND_TIMEOUT
    origins: tuple[Origin, ...] = ()
    feature_names: tuple[str, ...] = ()
    has_intercept: bool = False

    def __post_init__(self) -> None:
        check_fields(self, NetworkError)
        without_seeds = tuple(replace(one, parts=(), seeds=frozenset()) for one in self.origins)
        object.__setattr__(self, "origins", without_seeds)
        if self.objective.max_samples is None:
            raise NetworkError("objective.max_samples: missing; agents on their own know no other cap on m_i")
        if self.is_private and self.protocol is None and self.objective.feature_bound is None:
            raise NetworkError(
                "objective.feature_bound: missing; without it an agent's step size comes from its samples, "
                "and every release would leak them"
            )
        if (self.protocol is None) != (self.statistic is None) or (self.converses and not self.is_private):
            raise NetworkError("agents that talk release a statistic first: give both, and privacy = 'dp'")
        if self.converses and self.neighbors != "mean":
            raise NetworkError(f"neighbors={self.neighbors!r}: agents that talk take means of relays alone")

    @property
    def is_private(self) -> bool:
        return self.privacy == "dp"

    @property
    def converses(self) -> bool:
        """Whether agents release once and then talk, instead of learning step by step."""
        return self.protocol is not None

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What no guarantee covers, in words."""
        return tuple(one.words for one in self.origins if not one.is_covered)

    def largest_relay(self, dimension: int) -> int:
        """The most coordinates of a relay; 0 where there are none."""
        return self.protocol.largest_relay(dimension) if self.converses else 0

    @classmethod
    def of(cls, neighborhood: SignedNeighborhood) -> Self:
        """As the authority signed it."""
        return cls.from_json(neighborhood.settings, f"agent {neighborhood.agent!r}")

    def to_json(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"objective": self.objective.to_json()}
        values |= {
            "origins": [one.to_json() for one in self.origins],
            "feature_names": list(self.feature_names),
        }
        if self.converses:
            values |= {"statistic": part_to_json(self.statistic), "protocol": part_to_json(self.protocol)}
        return values

    @classmethod
    def from_json(cls, document: Mapping[str, Any], whose: str) -> Self:
        """Nothing is left aside: a setting that this version does not know may change what is learned."""
        try:
            values = dict(document)
            values["objective"] = Objective.from_json(values["objective"])
            values["origins"] = tuple(Origin.from_json(one) for one in values["origins"])
            values["feature_names"] = tuple(values["feature_names"])
            for name, registry in (("statistic", STATISTICS), ("protocol", PROTOCOLS)):
                if values[name] is not None:
                    values[name] = part_from_json(registry, values[name])
            return cls(**values)
        except (FlockwiseError, KeyError, TypeError, ValueError) as error:
            raise NetworkError(
                f"{whose}: the settings in the roster cannot be used: {error}; the network was made by "
                "another version of Flockwise, or by another program"
            ) from error


def magnitude_bound(objective: Objective, privacy: PrivacyLabel) -> float:
    """What agents that learn step by step take for the largest coordinate of a model; public."""
    return min(MAGNITUDE_BOUND, ROOM[privacy] * objective.largest_norm)


def check_budget(agent: str, settings: NetworkSettings, budget: OwnBudget) -> None:
    """An agent's own settings have to fit what the agents of this network release."""
    if not settings.converses:
        if budget.clip is None:
            raise NetworkError(
                f"agent {agent!r}: clip: missing; say what one sample's gradient is clipped to, "
                "for instance the clip in a neighbor's agent.toml"
            )
        return
    mechanism = settings.statistic.mechanism
    wanted = (1, None, mechanism, "one_budget")
    if (budget.updates, budget.clip, budget.mechanism, budget.growth) != wanted:
        raise NetworkError(
            f"agent {agent!r}: in this network an agent releases once, with {mechanism} noise: its budget "
            f'has to be for updates = 1, mechanism = "{mechanism}", growth = "one_budget", without a clip'
        )


def _declaring(settings: NetworkSettings, plans: Iterable[Plan]) -> Iterator[Any]:
    """All parts by whose word the sensitivity holds."""
    if settings.converses:
        yield from declaring_parts(settings.statistic, settings.objective.loss)
    yield from (MECHANISMS[plan.mechanism] for plan in plans)


def promise(
    settings: NetworkSettings, privacies: Sequence[NoBudget | OwnBudget], *, secure: bool = True
) -> str:
    """What agents with these own settings guarantee, in plain words. secure: whether their noise is.

    Whatever an agent's samples grow to, its (ε, δ) holds for each of them.
    """
    if not settings.is_private:
        return f"{NOT_PRIVATE.capitalize()}: models are sent as they are, and every message says so."
    budgets = [own for privacy in privacies if (own := privacy.own_budget) is not None]
    if not budgets:
        return "No agent folder found here; each agent's guarantee is stated in its own folder."
    kind = "secure discrete" if secure else "simulated"
    plans = [own.plan(on_grid=secure) for own in dict.fromkeys(budgets)]
    noises = sorted({f"{kind} {MECHANISMS[plan.mechanism].words}" for plan in plans})
    words = Guarantee.of(
        [own.budget for own in budgets],
        mechanism=" and ".join(noises),
        accountant=" and ".join(sorted({plan.accountant for plan in plans})),
        plan=min(plans, key=lambda plan: plan.budget.epsilon),
        origins=settings.origins,
        declared=filter(None, map(declared_by, _declaring(settings, plans))),
        public=(*USUALLY_PUBLIC, *PUBLIC),
        simulated=not secure,
    ).explain()
    return f"{words}\n{BY_BATCHES}" if any(own.has_batches for own in budgets) else words
