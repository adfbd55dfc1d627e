"""The guarantee of a run, in full: what is protected, against whom, how well, and what is taken as public."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from flockwise.privacy.budget import Budget
from flockwise.privacy.plan import Plan

NOT_PRIVATE = "not differentially private"

USUALLY_PUBLIC = (
    "how many samples each agent has (m_i), and the cap on it",
    "every agent's budget and plan",
    "the graph and its weights (W)",
    "which features and labels there are, and their range",
    "the hyper-parameters: loss, penalty, trade-off, clipping bound, number of updates",
    "the start",
)


@dataclass(frozen=True)
class Guarantee:
    """What every report has to say beside its numbers.

    epsilon, delta: the least and the largest budget over agents. leaks: what was derived from private
    data outside the mechanism. enforced: whether the sensitivity holds for any data, by clipping or by
    the loss itself. simulated: whether the noise is pseudo-random. noise_multiplier: standard deviation
    of the first release's noise over its sensitivity, for the least budget; real_multiplier: the same for
    a real agent, which draws integers.
    """

    mechanism: str
    accountant: str
    epsilon: tuple[float, float]
    delta: tuple[float, float]
    public: tuple[str, ...] = USUALLY_PUBLIC
    leaks: tuple[str, ...] = ()
    enforced: bool = True
    simulated: bool = True
    neighboring: str = "one sample of one agent is replaced by any other"
    noise_multiplier: float | None = None
    real_multiplier: float | None = None

    @classmethod
    def of(
        cls,
        plans: Sequence[Plan],
        *,
        public: Sequence[str] = USUALLY_PUBLIC,
        leaks: Sequence[str] = (),
        enforced: bool = True,
        simulated: bool = True,
    ) -> Self:
        """What these plans, one per agent, guarantee together: each agent is protected by its own."""
        epsilon, delta = spans(plan.budget for plan in plans)
        mechanisms = {_words(event.name) for plan in set(plans) for event in set(plan.events)}
        return cls(
            mechanism=" and ".join(sorted(mechanisms)),
            accountant=" and ".join(sorted({plan.accountant_name for plan in plans})),
            epsilon=epsilon,
            delta=delta,
            public=tuple(public),
            leaks=tuple(leaks),
            enforced=enforced,
            simulated=simulated,
        )

    @property
    def is_private(self) -> bool:
        """Whether the stated (ε, δ) covers everything that leaves the agents."""
        return self.enforced and not self.leaks

    @property
    def label(self) -> str:
        """One line."""
        if not self.enforced:
            return f"{NOT_PRIVATE}: the sensitivity is not enforced"
        label = (
            f"({self._parameters}) differentially private, {self.mechanism}, accounted by {self.accountant}"
        )
        return f"{label}, leaks apart: {'; '.join(self.leaks)}" if self.leaks else label

    def explain(self) -> str:
        """Plain words, a few short lines."""
        lines = [self._first_line(), f"Neighboring data sets: {self.neighboring}."]
        lines.append(
            f"Noise: {self.mechanism}, added before anything leaves an agent; all releases of an agent "
            f"composed by the {self.accountant} accountant."
        )
        if self.simulated:
            lines.append(
                "This is a simulation: its noise is pseudo-random and can be drawn again from the seed. "
                "Real agents draw theirs securely, on a grid."
            )
        if self.noise_multiplier is not None:
            lines.append(self._noise_line(self.noise_multiplier))
        if self.leaks:
            lines.append("NOT covered, because derived from private data: " + "; ".join(self.leaks) + ".")
        lines.append("Taken as public: " + "; ".join(self.public) + ".")
        lines.append("An agent's own model is for itself: it is not covered and must not be sent.")
        return "\n".join(lines)

    def _noise_line(self, multiplier: float) -> str:
        line = f"Standard deviation of the noise: {multiplier:.4g} times the sensitivity"
        if self.real_multiplier is None:
            return line + "; there is no such noise for real agents."
        return line + f", {self.real_multiplier:.4g} times for a real agent."

    def _first_line(self) -> str:
        if not self.enforced:
            return (
                f"{NOT_PRIVATE.upper()}: nothing bounds what one sample can change (no clipping, no bounded "
                f"loss), so that the noise meant for ({self._parameters}) guarantees nothing."
            )
        return (
            f"Whoever sees every message of an agent, all others colluding, learns almost the same whichever "
            f"one of its samples is replaced: ({self._parameters}) differential privacy."
        )

    @property
    def _parameters(self) -> str:
        return f"{_span('ε', self.epsilon)}, {_span('δ', self.delta)}"


def spans(budgets: Iterable[Budget]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The least and the largest ε, and the least and the largest δ, over agents."""
    distinct = set(budgets)
    epsilons, deltas = [b.epsilon for b in distinct], [b.delta for b in distinct]
    return (min(epsilons), max(epsilons)), (min(deltas), max(deltas))


def _span(letter: str, values: tuple[float, float]) -> str:
    low, high = values
    return f"{letter} = {low:.4g}" if low == high else f"{letter} from {low:.4g} to {high:.4g}"


def _words(mechanism: str) -> str:
    return {"laplace": "Laplace noise", "gaussian": "Gaussian noise", "knorm": "K-norm noise"}[mechanism]
