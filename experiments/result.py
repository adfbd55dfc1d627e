"""What an experiment found: rows beside published values, curves to draw, claims, and what is guaranteed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

Variant: TypeAlias = Literal["published", "honest", "baseline"]
Model: TypeAlias = Literal["released", "own"]

NOT_COMPARABLE = "not comparable"
# Larger is better for these, smaller for all other metrics.
REWARDS = frozenset({"accuracy", "gain"})
# How exactly a published value is known: accuracies were read off figures by eye, RMSEs are printed.
READING = {"accuracy": 0.005, "gain": 0.01, "rmse": 0.00005}
RELATIVE_READING = 0.05  # of all other metrics, read off figures as well
PAPER_RUNS = 5
# The published values fit test labels that are flipped as often as training labels. An accuracy a on clean
# labels is .05 + .9·a on such ones, in expectation over the flips; a gain shrinks by the same factor.
LABEL_NOISE = 0.05
ON_NOISY_LABELS = {"accuracy": (LABEL_NOISE, 1 - 2 * LABEL_NOISE), "gain": (0.0, 1 - 2 * LABEL_NOISE)}


@dataclass(frozen=True)
class Row:
    """One number of ours, beside the published one where there is one.

    what: "local", "collaborative", "admm", "private", … variant: "published" is the paper's own recipe, or
    noise without a guarantee; "honest" has a guarantee that holds; "baseline" is what others are judged by.
    model: "released" ones were sent to neighbors, "own" ones never leave their agent.
    ours, sd: mean and standard deviation over `runs` instances, of means over agents; accuracies on clean
        labels.
    value: which published value this row reproduces by the paper's own protocol, as in published.VALUES.
        Rows with `paper` and without `value` show something else beside it, and are not counted.
    more: further keys of the JSON, such as "x" (the place on the horizontal axis) or "rho".
    comparable: False where the published number measures something else.
    """

    what: str
    agents: int
    dimension: int
    variant: Variant
    model: Model
    metric: str
    ours: float
    sd: float | None = None
    runs: int = 1
    epsilon: float | None = None
    delta: float | None = None
    paper: float | None = None
    comparable: bool = True
    value: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.paper is not None and not self.comparable:
            return NOT_COMPARABLE
        _, scale = ON_NOISY_LABELS.get(self.metric, (0.0, 1.0))
        sd = None if self.sd is None else scale * self.sd
        return verdict(self.metric, self.paper, self.as_published, sd, self.runs)

    @property
    def as_published(self) -> float:
        """Ours as the paper measures: accuracies on noisy test labels."""
        shift, scale = ON_NOISY_LABELS.get(self.metric, (0.0, 1.0))
        return shift + scale * self.ours

    def document(self) -> dict[str, Any]:
        """As it stands in the JSON file."""
        return {
            "what": self.what,
            "agents": self.agents,
            "dimension": self.dimension,
            "variant": self.variant,
            "model": self.model,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "metric": self.metric,
            "paper": self.paper,
            "ours": _plain(self.ours),
            "sd": _plain(self.sd),
            "runs": self.runs,
            "verdict": self.verdict,
            **self._judged,
            **self.more,
        }

    @property
    def _judged(self) -> dict[str, Any]:
        """What a row with a published value has besides."""
        found: dict[str, Any] = {} if self.value is None else {"value": self.value}
        if self.paper is not None and self.metric in ON_NOISY_LABELS:
            kept = replace(self, ours=float(f"{self.ours:.6g}"))  # as the page keeps it, and tells it again
            found["noisy"] = _plain(round(kept.as_published, 4))
        return found


def verdict(metric: str, paper: float | None, ours: float, sd: float | None, runs: int) -> str:
    """Whether ours agrees with the published value, within its reading error and two standard errors.

    The published mean is over five instances; it is given the spread that ours has. "" without a
    published value.
    """
    if paper is None or not math.isfinite(ours):
        return ""
    reading = READING.get(metric, RELATIVE_READING * abs(paper))
    standard_error = (sd or 0.0) * math.sqrt(1 / runs + 1 / PAPER_RUNS)
    difference = ours - paper if metric in REWARDS else paper - ours
    if abs(difference) <= reading + 2 * standard_error:
        return "holds"
    return "better" if difference > 0 else "worse"


def summary(values: Sequence[float]) -> dict[str, Any]:
    """`ours`, `sd` and `runs` of a Row, from one value per instance."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"ours": float(np.mean(values)), "sd": spread, "runs": len(values)}


@dataclass(frozen=True)
class Curve:
    """A line to draw: mean over instances at each x, under a name that its picture knows."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    more: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "x": _plain(self.x), "y": _plain(self.y), **self.more}


@dataclass(frozen=True)
class Claim:
    """A statement: the paper's, ours, or what explains the paper; and whether these numbers bear it out.

    words: a sentence that is true if it holds, without numbers that a run could change.
    """

    words: str
    holds: bool
    about: Literal["paper", "ours", "cause"] = "paper"

    def document(self) -> dict[str, Any]:
        return {"words": self.words, "holds": bool(self.holds), "about": self.about}


@dataclass(frozen=True)
class Result:
    """All that an experiment found, as NAME.json holds it.

    seeds: of the instances reported. guarantees: in plain words, of the private runs. settings: what a
    reader has to know to repeat it, such as the trade-off.
    """

    name: str
    seeds: Sequence[int]
    rows: Sequence[Row]
    guarantees: Sequence[str] = ()
    curves: Sequence[Curve] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    claims: Sequence[Claim] = ()

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "seeds": [int(seed) for seed in self.seeds],
            "rows": [row.document() for row in self.rows],
            "guarantees": list(self.guarantees),
            "claims": [claim.document() for claim in self.claims],
            "settings": _plain(self.settings),
            "curves": [curve.document() for curve in self.curves],
        }

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Result:
        """The inverse of `document`; verdicts are made anew. What is empty may have been left out."""
        return Result(
            name=document["name"],
            seeds=document["seeds"],
            rows=[_row(row) for row in document["rows"]],
            guarantees=document.get("guarantees", ()),
            curves=[_curve(curve) for curve in document.get("curves", ())],
            settings=document["settings"],
            claims=[Claim(**claim) for claim in document["claims"]],
        )

    def find(self, **wanted: Any) -> Row:
        """The one row with these values."""
        found = self.where(**wanted)
        if len(found) != 1:
            raise LookupError(f"{self.name}: {len(found)} rows with {wanted}")
        return found[0]

    def where(self, **wanted: Any) -> list[Row]:
        """All rows with these values, in order."""
        return [row for row in self.rows if wanted.items() <= _comparable(row).items()]

    def curve(self, name: str) -> Curve:
        found = [curve for curve in self.curves if curve.name == name]
        if len(found) != 1:
            raise LookupError(f"{self.name}: {len(found)} curves with name={name!r}")
        return found[0]


def _comparable(row: Row) -> dict[str, Any]:
    return {key: value for key, value in row.document().items() if not isinstance(value, list | dict)}


def _row(document: Mapping[str, Any]) -> Row:
    fields = [name for name in Row.__dataclass_fields__ if name not in ("more", "comparable")]
    more = {key: value for key, value in document.items() if key not in (*fields, "verdict", "noisy")}
    values: dict[str, Any] = {name: document.get(name) for name in fields}
    values["ours"] = math.nan if values["ours"] is None else values["ours"]
    return Row(**values, comparable=document["verdict"] != NOT_COMPARABLE, more=more)


def _curve(document: Mapping[str, Any]) -> Curve:
    more = {key: value for key, value in document.items() if key not in ("name", "x", "y")}
    return Curve(document["name"], document["x"], document["y"], more)


def _plain(value: Any) -> Any:
    """JSON knows no NumPy and no NaN."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
