"""Losses ℓ(θ; x, y) = φ(scores, y) of linear scores: value, slope, smoothness and gradient bound together.

A loss is a NamedTuple: its fields are its parameters, its methods are plain Python that the
reference engine calls as they are and the compiled kernels compile as they are. A new loss is one
such class, registered so a configuration can name it.

With one score s = θᵀx per sample a loss has `value(score, target)` and `slope(score, target)`,
the derivative φ'(s, y); the gradient is φ'(s, y)·x. With several scores (softmax) the model is
a stack of `outputs` blocks of one weight per feature, and `slopes(scores, target, out)` writes
one derivative per score; the gradient is their outer product with x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.checks import Allowed, Positive
from flockwise.errors import ObjectiveError
from flockwise.privacy.mechanisms import Norm
from flockwise.registry import Registry


@runtime_checkable
class Loss(Protocol):
    """A loss as the objective, the engines and the gate use it."""

    @property
    def outputs(self) -> int:
        """Scores per sample: the model has outputs × features coordinates."""
        ...

    @property
    def curvature(self) -> float:
        """The largest second derivative of φ in the scores; smoothness is curvature·λ_max(XᵀX/m)."""
        ...

    def slope_bound(self, norm: Norm) -> float:
        """The largest norm of φ's derivative in the scores; infinite if it has no bound."""
        ...

    def predict(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Predictions from scores of shape (samples, outputs)."""
        ...

    def valid_targets(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        """Which targets this loss accepts."""
        ...

    @property
    def expects(self) -> str:
        """The targets it accepts, in words, for error messages."""
        ...

    @property
    def metric(self) -> str:
        """How its predictions are judged: accuracy or rmse."""
        ...


LOSSES: Registry[type[Any]] = Registry("loss", ObjectiveError)


def sigmoid(x: float) -> float:
    """1 / (1 + exp(−x)); the kernels have arithmetic of their own for it (flockwise.objective.compiled)."""
    # The exponent is never positive, so nothing overflows.
    shrunk = math.exp(-abs(x))
    return (1.0 if x > 0 else shrunk) / (1.0 + shrunk)


def _signs(self: Any, scores: NDArray[Any]) -> NDArray[Any]:
    return np.where(scores[:, 0] >= 0, 1, -1).astype(scores.dtype)


def _are_signs(self: Any, targets: NDArray[Any]) -> NDArray[np.bool_]:
    return np.abs(targets) == 1


def _two_probabilities(self: Any, scores: NDArray[Any]) -> Floats:
    """Of −1 and of +1."""
    positive = 0.5 * (1 + np.tanh(0.5 * scores[:, 0].astype(np.float64)))
    return np.column_stack([1 - positive, positive])


def _first_score(self: Any, scores: NDArray[Any]) -> NDArray[Any]:
    return scores[:, 0]


def _are_finite(self: Any, targets: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(targets)


@LOSSES.register
class Logistic(NamedTuple):
    """log(1 + exp(−y·s)) for labels y in {−1, +1}."""

    name = "logistic"
    outputs = 1
    curvature = 0.25
    metric = "accuracy"
    expects = "-1 or +1"
    predict = _signs
    probabilities = _two_probabilities
    valid_targets = _are_signs

    def value(self, score: float, target: float) -> float:
        margin = target * score
        # The exponent is never positive, so nothing overflows.
        return math.log1p(math.exp(-abs(margin))) - min(margin, 0.0)

    def slope(self, score: float, target: float) -> float:
        return -target * sigmoid(-target * score)

    def slope_bound(self, norm: Norm) -> float:
        return 1.0


@LOSSES.register
class CappedLogistic(NamedTuple):
    """The logistic loss, continued as the line log(2) − y·s/2 on the wrong side of the separator.

    It stays convex, and one sample's slope is at most ½: half the noise of the logistic loss.
    """

    name = "capped_logistic"
    outputs = 1
    curvature = 0.25
    metric = "accuracy"
    expects = "-1 or +1"
    predict = _signs
    probabilities = _two_probabilities
    valid_targets = _are_signs

    def value(self, score: float, target: float) -> float:
        margin = target * score
        return math.log1p(math.exp(-max(margin, 0.0))) - 0.5 * min(margin, 0.0)

    def slope(self, score: float, target: float) -> float:
        return -target * min(sigmoid(-target * score), 0.5)

    def slope_bound(self, norm: Norm) -> float:
        return 0.5


@LOSSES.register
class Softmax(NamedTuple):
    """Multi-class cross-entropy −log softmax(s)_y for labels y in {0, …, classes − 1}."""

    classes: Annotated[int, Ge(2), Allowed("a whole number from 2 on")]
    name = "softmax"
    curvature = 0.5
    metric = "accuracy"

    def value_of_scores(self, scores: NDArray[Any], target: float) -> float:
        top = scores.max()
        total = 0.0
        for score in scores:
            total += math.exp(score - top)
        return math.log(total) + top - scores[int(target)]

    def slopes(self, scores: NDArray[Any], target: float, out: NDArray[Any]) -> None:
        top = scores.max()
        total = 0.0
        for k in range(scores.shape[0]):
            out[k] = math.exp(scores[k] - top)
            total += out[k]
        for k in range(scores.shape[0]):
            out[k] /= total
        out[int(target)] -= 1

    @property
    def outputs(self) -> int:
        return self.classes

    def slope_bound(self, norm: Norm) -> float:
        return 2.0 if norm == "l1" else math.sqrt(2.0)

    def predict(self, scores: NDArray[Any]) -> NDArray[Any]:
        return scores.argmax(axis=1).astype(scores.dtype)

    def probabilities(self, scores: NDArray[Any]) -> Floats:
        powers = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def valid_targets(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        return (targets == np.floor(targets)) & (targets >= 0) & (targets < self.classes)

    @property
    def expects(self) -> str:
        return f"a whole number from 0 to {self.classes - 1}"


@LOSSES.register
class Quadratic(NamedTuple):
    """(s − y)², as in the paper: no factor ½."""

    name = "quadratic"
    outputs = 1
    curvature = 2.0
    constant_curvature = 2.0
    metric = "rmse"
    expects = "a finite number"
    predict = _first_score
    valid_targets = _are_finite

    def value(self, score: float, target: float) -> float:
        return (score - target) ** 2

    def slope(self, score: float, target: float) -> float:
        return 2 * (score - target)

    def slope_bound(self, norm: Norm) -> float:
        return math.inf

    def bounded(self, width: float) -> Huber:
        """The same up to residuals of this width, with a bounded slope beyond."""
        return Huber(width)


@LOSSES.register
class Huber(NamedTuple):
    """(s − y)² up to `width`, then 2·width·|s − y| − width²: the quadratic loss with a bounded slope."""

    width: Positive = 1.0
    name = "huber"
    outputs = 1
    curvature = 2.0
    metric = "rmse"
    expects = "a finite number"
    predict = _first_score
    valid_targets = _are_finite

    def value(self, score: float, target: float) -> float:
        residual = abs(score - target)
        if residual <= self.width:
            return residual * residual
        return self.width * (2 * residual - self.width)

    def slope(self, score: float, target: float) -> float:
        return 2 * min(max(score - target, -self.width), self.width)

    def slope_bound(self, norm: Norm) -> float:
        return 2 * self.width

    @property
    def largest_residual(self) -> float:
        """Beyond it the slope is at its bound: a target farther away makes no difference any more."""
        return self.width


def check_loss(loss: Any) -> None:
    """Refuse what cannot be compiled, compared or trained."""
    if not isinstance(loss, Loss):
        raise ObjectiveError(f"loss must be a loss such as Logistic(), got {loss!r}")
    if not (isinstance(loss, tuple) and hasattr(loss, "_fields")):
        raise ObjectiveError(
            f"loss must be a NamedTuple, so it can be compiled and compared, got a "
            f"{type(loss).__name__}; write class {type(loss).__name__}(NamedTuple)"
        )
    needed = ("value", "slope") if loss.outputs == 1 else ("value_of_scores", "slopes")
    missing = [name for name in needed if not hasattr(loss, name)]
    if missing:
        raise ObjectiveError(f"a loss with {loss.outputs} output(s) needs {missing[0]}; {loss!r} has none")
    if loss.outputs < 1 or not loss.curvature > 0 or not loss.slope_bound("l2") > 0:
        raise ObjectiveError(f"{loss!r}: outputs, curvature and slope bound must be positive")


def loss_name(loss: Any) -> str:
    """Its name in a configuration; the name of its class if it was never registered."""
    return getattr(loss, "name", type(loss).__name__)


def loss_to_json(loss: Any) -> dict[str, Any]:
    """A loss as plain values: {"name": "huber", "width": 1.0}."""
    values = {name: getattr(loss, name) for name in loss._fields}
    return {"name": loss_name(loss)} | {
        name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()
    }


def loss_from_json(document: dict[str, Any]) -> Loss:
    """What loss_to_json wrote; a loss that is not registered has to be given again."""
    fields = dict(document)
    return LOSSES[fields.pop("name")](**fields)


def has_two_classes(loss: Loss) -> bool:
    """Whether it separates −1 from +1 by one score."""
    return loss.metric == "accuracy" and loss.outputs == 1


def gradient_bound(loss: Loss, feature_bound: float, norm: Norm) -> float:
    """L₀: the largest norm of one sample's gradient when every ‖x‖ in that norm is at most `feature_bound`.

    This is what Theorem 1 needs for its noise; "Lipschitz with respect to the L1 norm", as
    printed there, would bound the max norm instead.
    """
    return loss.slope_bound(norm) * feature_bound


def public_smoothness(loss: Loss, feature_bound: float) -> float:
    """A bound on the smoothness of the mean loss that looks at no data: curvature·R² for ‖x‖₂ ≤ R."""
    return loss.curvature * feature_bound**2


def sample_value(loss: Any, scores: NDArray[Any], target: float) -> float:
    """φ(scores, target), for losses of one score and of several alike."""
    if hasattr(loss, "value"):
        return loss.value(scores[0], target)
    return loss.value_of_scores(scores, target)


def sample_slopes(loss: Any, scores: NDArray[Any], target: float, out: NDArray[Any]) -> None:
    """The derivatives of φ in the scores, for losses of one score and of several alike."""
    if hasattr(loss, "slope"):
        out[0] = loss.slope(scores[0], target)
    else:
        loss.slopes(scores, target, out)


def coefficient_names(loss: Loss, feature_names: Sequence[str]) -> tuple[str, ...]:
    """What each coordinate of a model is: a feature, or a feature for one of several classes."""
    if loss.outputs == 1:
        return tuple(feature_names)
    return tuple(f"{name}[{k}]" for k in range(loss.outputs) for name in feature_names)
