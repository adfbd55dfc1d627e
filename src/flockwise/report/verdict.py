"""The sentence on top of a report, and the light beside it: green, amber or red, with the reasons."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from flockwise.arrays import Floats
from flockwise.method.base import label_of
from flockwise.privacy.guarantee import Guarantee
from flockwise.report.comparison import Comparison

Light: TypeAlias = Literal["green", "amber", "red"]

# A mean further from zero than this many standard errors is taken as a difference.
CLEAR = 2.0
# Agents whose gain is shown as zero count as equal: half of a tenth of a point, or of a percent.
SHOWN = 0.05
NOT_JUDGED = "Not judged: there are no {}, so nobody can say here whether collaboration helps."


@dataclass(frozen=True)
class Gain:
    """What agents gain against learning alone, in points of accuracy or in percent of the mean error alone.

    mean, error: over agents, and its standard error. better, equal, worse: how many agents are.
    """

    metric: str
    mean: float
    error: float
    better: int
    equal: int
    worse: int

    @classmethod
    def of(cls, gains: Floats, alone: Floats, metric: str) -> Gain:
        """gains, alone: one value for each agent; NaN where an agent has no test samples."""
        known = gains[~np.isnan(gains)]
        known = known * 100 / (1.0 if metric == "accuracy" else max(float(np.nanmean(alone)), 1e-300))
        error = float(known.std(ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else math.nan
        better, worse = int((known > SHOWN).sum()), int((known < -SHOWN).sum())
        return cls(metric, float(known.mean()), error, better, len(known) - better - worse, worse)

    @property
    def side(self) -> int:
        """1: agents are better off on average, −1: worse off, 0: no clear difference."""
        return int(np.sign(self.mean)) if abs(self.mean) > CLEAR * self.error else 0

    @property
    def words(self) -> str:
        """+2.1 ± 0.4 points of accuracy."""
        error = "" if math.isnan(self.error) else f" ± {self.error:.1f}"
        if self.metric == "accuracy":
            return f"{self.mean:+.1f}{error} points of accuracy"
        return f"{-self.mean:+.1f}{error} % error (RMSE)"

    @property
    def counts(self) -> str:
        agents = "agent" if self.better == 1 else "agents"
        return f"{self.better:,} {agents} better, {self.equal:,} equal, {self.worse:,} worse"


@dataclass(frozen=True)
class Verdict:
    """Whether a run was worth it. reasons: why the light is not green, a sentence each."""

    run: str
    light: Light
    sentence: str
    gain: Gain | None = None
    promise: str | None = None
    reasons: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return asdict(self)


def verdicts(comparison: Comparison) -> tuple[Verdict, ...]:
    """The verdict on the main run, and then on each private run."""
    found = comparison.gains()
    if found is None:
        missing = "local models to compare" if comparison.is_tested else "test samples"
        return (Verdict("", "amber", NOT_JUDGED.format(missing), reasons=tuple(_all_caveats(comparison))),)
    main, _ = found
    others = [name for name in comparison.guarantees if name != main]
    return tuple(_verdict(comparison, name) for name in (main, *others))


def _verdict(comparison: Comparison, name: str) -> Verdict:
    alone, guarantee = comparison.alone, comparison.runs[name].guarantee
    assert alone is not None
    gain = Gain.of(comparison.gains_of(name), alone, comparison.metric)
    what = "collaboration" if guarantee is None else "private collaboration"
    if guarantee is not None and len(comparison.guarantees) > 1:
        what = f"{what} by {label_of(comparison.runs[name].method)}"
    reasons = [*_better_baselines(comparison, name), *_caveats(comparison, name)]
    advice = comparison.runs[name].settings.get("advice")
    if advice is not None:  # the method itself has found that it does not help
        sentence = f"{advice[:1].upper()}{advice[1:]}."
        reasons.insert(0, "Agents use their local models.")
    elif gain.side > 0:
        helps = (
            "helps"
            if gain.better >= gain.worse
            else "helps on average, and makes more agents worse than better"
        )
        sentence = f"{what[0].upper()}{what[1:]} {helps}: {gain.words}; {gain.counts}."
    elif gain.side < 0:
        sentence = f"Keep your local models: {what} makes them worse, {gain.words}; {gain.counts}."
    else:
        sentence = f"Keep your local models: {what} makes no clear difference, {gain.words}; {gain.counts}."
        reasons.insert(0, f"The difference is within {CLEAR:g} standard errors.")
    light = "red" if gain.side < 0 else "amber" if reasons else "green"
    return Verdict(
        name, light, sentence, gain, None if guarantee is None else promise(guarantee), tuple(reasons)
    )


def promise(guarantee: Guarantee) -> str:
    """ε and δ with their unit and adversary."""
    against = guarantee.against.rstrip(",")
    against = against[:1].lower() + against[1:]
    return f"{guarantee.parameters} per sample ({guarantee.neighboring}), against {against}"


def caveats(guarantee: Guarantee) -> Iterator[str]:
    """What stands beside a guarantee: leaks first, then assumptions."""
    for leak in guarantee.not_covered:
        yield f"The guarantee does not cover {leak}."
    for assumption in guarantee.assumes:
        yield f"Assumed: {assumption}."
    if guarantee.if_all_collude is not None:
        low, high = guarantee.if_all_collude
        span = f"{high:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
        yield f"If all other agents collude, ε = {span} is left."
    if guarantee.declared:
        yield f"Not checked by Flockwise: the {guarantee.whose_word}."


def _caveats(comparison: Comparison, name: str) -> Iterator[str]:
    guarantee, gap = comparison.runs[name].guarantee, comparison.runs[name].gap
    if gap is not None and gap.is_far:
        yield f"{gap.words[:1].upper()}{gap.words[1:]}."
    if guarantee is not None:
        yield from caveats(guarantee)
    else:
        yield "Not private: agents send their models as they are, and a model can leak its data."


def _all_caveats(comparison: Comparison) -> Iterator[str]:
    for name in comparison.collaborative:
        yield from _caveats(comparison, name)


def _better_baselines(comparison: Comparison, name: str) -> Iterator[str]:
    """Baselines that do better than the run, on average over agents."""
    scores = comparison.agent_scores(name)
    assert scores is not None
    sign = 1 if comparison.metric == "accuracy" else -1
    for other in comparison.pooled:
        theirs = comparison.runs[other].agent_metrics
        if theirs is not None and sign * float(np.nanmean(theirs - scores)) > 0:
            yield f"Better still, where all data may be in one place: {comparison.label(other)}."
