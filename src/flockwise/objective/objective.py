"""The objective as public settings: configuration, roster and problem share them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.checks import Count, NotNegative, Positive, check_fields
from flockwise.errors import ObjectiveError
from flockwise.objective.losses import (
    Logistic,
    Loss,
    check_loss,
    gradient_bound,
    loss_from_json,
    loss_to_json,
    public_smoothness,
)

Penalty: TypeAlias = NotNegative | tuple[float, ...] | Literal["auto"] | None

# The confidence of an agent without data, as a share of that of an agent with one sample.
CONFIDENCE_WITHOUT_DATA = 0.1


@dataclass(frozen=True, eq=False)
class Objective:
    """The public side of Eq. (2); nothing here is computed from anybody's data.

    tradeoff: μ. Large: agents trust their own data; small: they agree with their neighbors.
    l2: λ, one number for all agents or one each; by default 1/max(m_i, 1). "auto" has it chosen by
        cross-validation on everybody's samples before a run (`choose_l2`); in private runs it is the default.
    max_samples: the public cap on m_i that confidences are measured against; by default the largest m_i.
    feature_bound: a public bound on ‖x‖₂. Longer samples are scaled down to it in updates and releases, with
        their targets if these are numbers, and step sizes come from it and from no data. Local and own models
        use the data as they are.
    target_range: a public range of real-valued targets; those outside count as its ends in what is released.
    """

    loss: Loss = Logistic()
    tradeoff: Positive = 1.0
    l2: Penalty = None
    max_samples: Count | None = None
    feature_bound: Positive | None = None
    target_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_loss(self.loss)
        if isinstance(self.l2, np.ndarray | list):
            object.__setattr__(self, "l2", tuple(np.asarray(self.l2, np.float64).tolist()))
        check_fields(self, ObjectiveError)
        if isinstance(self.l2, tuple) and not all(math.isfinite(value) and value >= 0 for value in self.l2):
            raise ObjectiveError("l2 of every agent must be a finite number from 0 on")
        if self.target_range is not None:
            low, high = self.target_range
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ObjectiveError(
                    f"target_range must be two finite numbers, the smaller first, got {self.target_range!r}"
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Objective) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        """With the kind of loss: losses without parameters are empty tuples, all of them equal."""
        return (type(self.loss), *(getattr(self, field.name) for field in fields(self)))

    def penalties(self, sample_counts: NDArray[np.integer]) -> Floats:
        """λ_i of agents with so many samples."""
        if self.l2 is None:
            return 1.0 / np.maximum(sample_counts, 1)
        if self.l2 == "auto":
            raise ObjectiveError('l2="auto" is still to be chosen: call choose_l2(problem) first')
        penalties = np.asarray(self.l2, dtype=np.float64)
        if penalties.shape not in ((), (len(sample_counts),)):
            raise ObjectiveError(
                f"l2 must be one number or one per agent ({len(sample_counts)}), got {len(penalties)}"
            )
        return np.broadcast_to(penalties, (len(sample_counts),)).copy()

    def confidences(self, sample_counts: NDArray[np.integer], cap: int) -> Floats:
        """c_i = m_i / cap, at most 1, and a small constant without data."""
        counts = np.minimum(sample_counts, cap)
        return np.where(counts > 0, counts, CONFIDENCE_WITHOUT_DATA) / cap

    def in_range(self, targets: NDArray[Any]) -> NDArray[Any]:
        """Targets as all that is exchanged uses them: real-valued ones within their public range, if any."""
        if self.target_range is None or self.loss.metric == "accuracy":
            return targets
        return np.clip(targets, *self.target_range)

    @property
    def public_curvature(self) -> float | None:
        """A bound on the curvature of the mean loss that looks at no data; None without a feature bound."""
        return None if self.feature_bound is None else public_smoothness(self.loss, self.feature_bound)

    @property
    def largest_norm(self) -> float:
        """No model of Eq. (4) from zeros is longer, whatever anybody's samples are; infinite without bounds.

        With slopes of the data of at most G, a step from a ball of radius G/(2λ) ends in it.
        """
        if self.feature_bound is None or self.max_samples is None or self.l2 == "auto":
            return math.inf
        each = self.l2 if isinstance(self.l2, tuple) else self.penalties(np.array([self.max_samples]))
        least = float(min(each))
        return gradient_bound(self.loss, self.feature_bound, "l2") / (2 * least) if least > 0 else math.inf

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a roster or a file."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        # Of a chosen μ the number alone: where it comes from is stated beside the settings.
        return values | {"loss": loss_to_json(self.loss), "tradeoff": float(self.tradeoff)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Objective:
        """What to_json wrote."""
        unknown = document.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise ObjectiveError(f"an objective has no setting {min(unknown)!r}")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document.items()}
        values["loss"] = loss_from_json(document["loss"])
        return cls(**values)
