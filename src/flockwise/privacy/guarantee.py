"""The guarantee of a run, in full: what is protected, against whom, how well, and what is taken as public."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from flockwise.notebook import html_table
from flockwise.privacy.budget import Budget, Budgets
from flockwise.privacy.origin import EVERYONE_ELSE, Adversary, Origin, Span, Spans, weakest
from flockwise.privacy.plan import Plan

NOT_PRIVATE: Final = "not differentially private"

# From here on a budget says little; explanations tell so.
LARGE_EPSILON: Final = 20.0
LARGE_DELTA: Final = 1e-2

THE_START: Final = "the start"
USUALLY_PUBLIC: Final = (
    "how many samples each agent has (m_i), and the cap on it",
    "every agent's budget and plan",
    "the graph and its weights (W)",
    "which features and labels there are, and their range",
    "the hyper-parameters: loss, penalty, trade-off, clipping bound, number of updates",
    THE_START,
)


@dataclass(frozen=True)
class Guarantee:
    """What every report has to say beside its numbers; made by `Guarantee.of` alone.

    epsilon, delta: the least and the largest total over agents. per_agent: each agent's own, by position,
    where they differ; where all have the same total it is empty. not_covered: what was derived from private
    data outside the mechanism, or may have been. declared: whose word the sensitivity is, where a part comes
    from another package. against: who learns almost nothing; assumes: what that rests on besides.
    if_all_collude: the least and the largest ε if everybody else colludes, where `against` does not allow
    that. simulated: whether the noise is pseudo-random; simulated_before: whether that of what was released
    before is. noise_multiplier: standard deviation of the first
    release's noise over its sensitivity, for the least budget; real_multiplier: the same for a real agent,
    which draws integers.
    """

    mechanism: str
    accountant: str
    epsilon: tuple[float, float]
    delta: tuple[float, float]
    per_agent: tuple[Budget, ...] = ()
    public: tuple[str, ...] = USUALLY_PUBLIC
    not_covered: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    released_before: tuple[str, ...] = ()
    against: str = EVERYONE_ELSE.words
    assumes: tuple[str, ...] = ()
    if_all_collude: Span | None = None
    simulated: bool = True
    simulated_before: bool = False
    neighboring: str = "one sample of one agent is replaced by any other"
    noise_multiplier: float | None = None
    real_multiplier: float | None = None

    @classmethod
    def of(
        cls,
        budgets: Budgets,
        *,
        mechanism: str,
        accountant: str,
        plan: Plan | None = None,
        dimension: int = 1,
        origins: Iterable[Origin] = (),
        declared: Iterable[str] = (),
        public: tuple[str, ...] = USUALLY_PUBLIC,
        adversary: Adversary = EVERYONE_ELSE,
        if_all_collude: Span | None = None,
        simulated: bool = True,
    ) -> Guarantee:
        """What agents with these budgets, one for all or one each, guarantee: each is protected by its own.

        mechanism: in words. plan: that of the least budget, whose noise is stated. origins: of all that the
        run took as given; what an earlier run released is added to the total, and the guarantee holds against
        no more than the weakest adversary of all runs.
        """
        known = tuple(origins)
        each = (budgets,) if isinstance(budgets, Budget) else tuple(budgets)
        paid = [origin for origin in known if origin.spent is not None]
        before = [origin.spent for origin in paid if origin.spent is not None]
        epsilon, delta = added([spans(each), *before])
        weaker = weakest([adversary, *(origin.against for origin in paid)])
        left = added_if_all_collude([(spans(each), if_all_collude), *map(_paid, paid)])
        by = (*declared, *(package for origin in known for package in origin.declared))
        first = None if plan is None else plan.event(1, 1.0, dimension, 2.0**-20 if plan.on_grid else None)
        return cls(
            mechanism=mechanism,
            accountant=accountant,
            epsilon=epsilon,
            delta=delta,
            per_agent=_totals(each, before) if len(set(each)) > 1 else (),
            public=public,
            not_covered=tuple(dict.fromkeys(origin.words for origin in known if not origin.is_covered)),
            declared=tuple(dict.fromkeys(by)),
            released_before=tuple(origin.what for origin in paid),
            against=weaker.words,
            assumes=weaker.assumptions,
            if_all_collude=left,
            simulated=simulated,
            simulated_before=any(origin.simulated for origin in paid),
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
        if self.if_all_collude is not None:
            label = (
                f"{label}, if only sums are opened; {_span('ε', self.if_all_collude)} if all others collude"
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

    def _repr_html_(self) -> str:
        """For a notebook."""
        rows = {
            "total for an agent": self.parameters,
            "unit": self.neighboring,
            "against": self.against.rstrip(","),
            "noise": f"{self.mechanism}, added up by the {self.accountant} accountant",
        }
        if self.if_all_collude is not None:
            rows["if all others collude"] = _span("ε", self.if_all_collude)
        lists = {"assumed": self.assumes, "NOT covered": self.not_covered, "not checked": self.declared}
        rows |= {name: "; ".join(words) for name, words in lists.items() if words}
        return html_table("What is guaranteed", rows)

    def _lines(self) -> Iterable[str]:
        yield (
            f"{self.against} learns almost the same whichever one of its samples is replaced: "
            f"({self.parameters}) differential privacy."
        )
        if max(self.epsilon) >= LARGE_EPSILON:
            yield f"{_span('ε', self.epsilon)} protects little: odds can change by a factor of e^ε."
        if max(self.delta) >= LARGE_DELTA:
            count = f"{math.ceil(1 / max(self.delta)):,}"
            yield f"{_span('δ', self.delta)} is large: an agent with {count} samples may publish one of them."
        for assumption in self.assumes:
            yield f"Assumed: {assumption}."
        if self.if_all_collude is not None:
            yield f"If all others collude, {_span('ε', self.if_all_collude)} is left at the same δ."
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
            yield "This is a simulation: its noise is pseudo-random and can be drawn again from the seed."
            if self.real_multiplier is not None:
                yield "Real agents draw theirs securely, on a grid."
        elif self.simulated_before:
            yield (
                "What was released before was drawn by a simulation: "
                "its noise can be drawn again from its seed."
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


def _totals(budgets: Sequence[Budget], before: Sequence[Spans]) -> tuple[Budget, ...]:
    """With the most that any agent has spent before."""
    totals = dict[Budget, Budget]()
    for own in set(budgets):
        (_, epsilon), (_, delta) = added([spans([own]), *before])
        totals[own] = Budget(epsilon, delta)
    return tuple(totals[own] for own in budgets)


def spans(budgets: Iterable[Budget]) -> Spans:
    """The least and the largest ε, and the least and the largest δ, over agents."""
    distinct = set(budgets)
    epsilons, deltas = [b.epsilon for b in distinct], [b.delta for b in distinct]
    return (min(epsilons), max(epsilons)), (min(deltas), max(deltas))


def added(spent: Iterable[Spans]) -> Spans:
    """Basic composition: the costs of runs that build on each other add up."""
    epsilons, deltas = zip(*spent, strict=True)
    return _sum(epsilons), _sum(deltas)


def added_if_all_collude(paid: Iterable[tuple[Spans, Span | None]]) -> Span | None:
    """The ε of several runs together if all others collude; None if no run's ε is larger then."""
    known = list(paid)
    if all(left is None for _, left in known):
        return None
    return _sum(epsilon if left is None else left for (epsilon, _), left in known)


def _paid(origin: Origin) -> tuple[Spans, Span | None]:
    assert origin.spent is not None
    return origin.spent, origin.if_all_collude


def _sum(parts: Iterable[Span]) -> Span:
    lows, highs = zip(*parts, strict=True)
    return sum(lows), sum(highs)


def _real_multiplier(plan: Plan | None, dimension: int) -> float | None:
    """The noise of a real agent, to compare a simulated one with; None for a plan of a real agent."""
    if plan is None or plan.on_grid:
        return None
    real = plan.for_real_agents()
    return None if real is None else real.event(1, 1.0, dimension, 2.0**-20).noise_std


def _span(letter: str, values: Span) -> str:
    low, high = values
    return f"{letter} = {low:.4g}" if low == high else f"{letter} from {low:.4g} to {high:.4g}"
