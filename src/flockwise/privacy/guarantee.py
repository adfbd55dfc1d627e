"""The guarantee of a run, in full: what is protected, against whom, how well, and what is taken as public."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from flockwise.privacy.budget import Budget
from flockwise.privacy.origin import Origin, Spans
from flockwise.privacy.plan import Plan

NOT_PRIVATE: Final = "not differentially private"

THE_START: Final = "the start"
USUALLY_PUBLIC: Final = (
    "how many samples each agent has (m_i), and the cap on it",
    "every agent's budget and plan",
    "the graph and its weights (W)",
    "which features and labels there are, and their range",
    "the hyper-parameters: loss, penalty, trade-off, clipping bound, number of updates",
    THE_START,
)
EVERYONE_ELSE: Final = "Whoever sees every message of an agent, all others colluding,"


@dataclass(frozen=True)
class Guarantee:
    """What every report has to say beside its numbers; made by `Guarantee.of` alone.

    epsilon, delta: the least and the largest total over agents. not_covered: what was derived from private
    data outside the mechanism, or may have been. declared: whose word the sensitivity is, where a part comes
    from another package. against: who learns almost nothing. simulated: whether the noise is pseudo-random.
    noise_multiplier: standard deviation of the first release's noise over its sensitivity, for the least
    budget; real_multiplier: the same for a real agent, which draws integers.
    """

    mechanism: str
    accountant: str
    epsilon: tuple[float, float]
    delta: tuple[float, float]
    public: tuple[str, ...] = USUALLY_PUBLIC
    not_covered: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    released_before: tuple[str, ...] = ()
    against: str = EVERYONE_ELSE
    simulated: bool = True
    neighboring: str = "one sample of one agent is replaced by any other"
    noise_multiplier: float | None = None
    real_multiplier: float | None = None

    @classmethod
    def of(
        cls,
        budgets: Iterable[Budget],
        *,
        mechanism: str,
        accountant: str,
        plan: Plan | None = None,
        dimension: int = 1,
        origins: Iterable[Origin] = (),
        declared: Iterable[str] = (),
        public: tuple[str, ...] = USUALLY_PUBLIC,
        simulated: bool = True,
    ) -> Guarantee:
        """What agents with these budgets guarantee: each is protected by its own.

        mechanism: in words. plan: that of the least budget, whose noise is stated. origins: of all that the
        run took as given; what an earlier run released is added to the total.
        """
        known = tuple(origins)
        epsilon, delta = added([spans(budgets), *(o.spent for o in known if o.spent is not None)])
        by = (*declared, *(package for origin in known for package in origin.declared))
        first = None if plan is None else plan.event(1, 1.0, dimension, 2.0**-20 if plan.on_grid else None)
        return cls(
            mechanism=mechanism,
            accountant=accountant,
            epsilon=epsilon,
            delta=delta,
            public=public,
            not_covered=tuple(dict.fromkeys(origin.words for origin in known if not origin.is_covered)),
            declared=tuple(dict.fromkeys(by)),
            released_before=tuple(origin.what for origin in known if origin.spent is not None),
            simulated=simulated,
            noise_multiplier=None if first is None else first.noise_std,
            real_multiplier=_real_multiplier(plan, dimension),
        )

    @property
    def is_private(self) -> bool:
        """Whether the stated (ε, δ) covers everything that leaves the agents."""
        return not self.not_covered

    @property
    def spent(self) -> Spans:
        return self.epsilon, self.delta

    @property
    def label(self) -> str:
        """One line."""
        label = (
            f"({self.parameters}) differentially private, {self.mechanism}, accounted by {self.accountant}"
        )
        if self.declared:
            label = f"{label}; {self.whose_word}"
        return f"{label}; not covered: {'; '.join(self.not_covered)}" if self.not_covered else label

    def also_declared_by(self, packages: Iterable[str]) -> Guarantee:
        """The same, by the word of these packages too."""
        return replace(self, declared=tuple(dict.fromkeys((*self.declared, *packages))))

    @property
    def whose_word(self) -> str:
        """By whose word it holds; empty where every part is Flockwise's own."""
        return f"sensitivity as declared by {', '.join(self.declared)}" if self.declared else ""

    def explain(self) -> str:
        """Plain words, a few short lines."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        yield (
            f"{self.against} learns almost the same whichever one of its samples is replaced: "
            f"({self.parameters}) differential privacy."
        )
        yield f"Neighboring data sets: {self.neighboring}."
        yield (
            f"Noise: {self.mechanism}, added before anything leaves an agent; all releases of an agent "
            f"composed by the {self.accountant} accountant."
        )
        if self.released_before:
            yield f"The total includes what was released before: {'; '.join(self.released_before)}."
        for package in self.declared:
            yield f"Sensitivity as declared by {package}: it was not checked by Flockwise."
        if self.simulated:
            yield (
                "This is a simulation: its noise is pseudo-random and can be drawn again from the seed. "
                "Real agents draw theirs securely, on a grid."
            )
        if self.noise_multiplier is not None:
            yield self._noise_line(self.noise_multiplier)
        if self.not_covered:
            named = "; ".join(self.not_covered)
            yield f"NOT covered, because derived from private data or of unknown origin: {named}."
        yield "Taken as public: " + "; ".join(self.public) + "."
        yield "An agent's own model is for itself: it is not covered and must not be sent."

    def _noise_line(self, multiplier: float) -> str:
        line = f"Standard deviation of the noise: {multiplier:.4g} times the sensitivity"
        if not self.simulated:
            return line + "."
        if self.real_multiplier is None:
            return line + "; there is no such noise for real agents."
        return line + f", {self.real_multiplier:.4g} times for a real agent."

    @property
    def parameters(self) -> str:
        """ε and δ, or their spans over agents."""
        return f"{_span('ε', self.epsilon)}, {_span('δ', self.delta)}"


def spans(budgets: Iterable[Budget]) -> Spans:
    """The least and the largest ε, and the least and the largest δ, over agents."""
    distinct = set(budgets)
    epsilons, deltas = [b.epsilon for b in distinct], [b.delta for b in distinct]
    return (min(epsilons), max(epsilons)), (min(deltas), max(deltas))


def added(spent: Iterable[Spans]) -> Spans:
    """Basic composition: the costs of runs that build on each other add up."""
    epsilons, deltas = zip(*spent, strict=True)
    return _sum(epsilons), _sum(deltas)


def _sum(parts: Iterable[tuple[float, float]]) -> tuple[float, float]:
    lows, highs = zip(*parts, strict=True)
    return sum(lows), sum(highs)


def _real_multiplier(plan: Plan | None, dimension: int) -> float | None:
    """What a real agent would add; for one that is real already there is nothing to compare."""
    if plan is None or plan.on_grid:
        return None
    real = plan.for_real_agents()
    return None if real is None else real.event(1, 1.0, dimension, 2.0**-20).noise_std


def _span(letter: str, values: tuple[float, float]) -> str:
    low, high = values
    return f"{letter} = {low:.4g}" if low == high else f"{letter} from {low:.4g} to {high:.4g}"
