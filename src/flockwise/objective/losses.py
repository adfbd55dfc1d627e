"""Losses ℓ(θ; x, y) = φ(scores, y) of linear scores: value, slope, smoothness and gradient bound together.

A loss is a NamedTuple: its fields are its parameters, its methods are plain Python that the
reference engine calls as they are and the numba kernels compile as they are. A new loss is one
such class; nothing has to be registered.

With one score s = θᵀx per sample a loss has `value(score, target)` and `slope(score, target)`,
the derivative φ'(s, y); the gradient is φ'(s, y)·x. With several scores (softmax) the model is
a stack of `outputs` blocks of one weight per feature, and `slopes(scores, target, out)` writes
one derivative per score; the gradient is their outer product with x.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numba import types
from numba.extending import overload, register_jitable
from numpy.typing import NDArray

from flockwise.errors import ObjectiveError
from flockwise.objective.sigmoid import sigmoid
from flockwise.privacy.mechanisms import Norm


@runtime_checkable
class Loss(Protocol):
    """What the objective, the engines and the gate ask of a loss."""

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
    def metric(self) -> Literal["accuracy", "rmse"]:
        """How its predictions are judged."""
        ...


class Logistic(NamedTuple):
    """log(1 + exp(−y·s)) for labels y in {−1, +1}."""

    def value(self, score: float, target: float) -> float:
        margin = target * score
        # The exponent is never positive, so that nothing overflows.
        return math.log1p(math.exp(-abs(margin))) - min(margin, 0.0)

    def slope(self, score: float, target: float) -> float:
        return -target * sigmoid(-target * score)

    @property
    def outputs(self) -> int:
        return 1

    @property
    def curvature(self) -> float:
        return 0.25

    def slope_bound(self, norm: Norm) -> float:
        return 1.0

    def predict(self, scores: NDArray[Any]) -> NDArray[Any]:
        return np.where(scores[:, 0] >= 0, 1, -1).astype(scores.dtype)

    def valid_targets(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        return np.abs(targets) == 1

    @property
    def expects(self) -> str:
        return "-1 or +1"

    @property
    def metric(self) -> Literal["accuracy", "rmse"]:
        return "accuracy"


class CappedLogistic(NamedTuple):
    """The logistic loss, continued as the line log(2) − y·s/2 on the wrong side of the separator.

    It stays convex, and one point's slope is at most ½: half the noise of the logistic loss.
    """

    def value(self, score: float, target: float) -> float:
        margin = target * score
        return math.log1p(math.exp(-max(margin, 0.0))) - 0.5 * min(margin, 0.0)

    def slope(self, score: float, target: float) -> float:
        return -target * min(sigmoid(-target * score), 0.5)

    @property
    def outputs(self) -> int:
        return 1

    @property
    def curvature(self) -> float:
        return 0.25

    def slope_bound(self, norm: Norm) -> float:
        return 0.5

    def predict(self, scores: NDArray[Any]) -> NDArray[Any]:
        return np.where(scores[:, 0] >= 0, 1, -1).astype(scores.dtype)

    def valid_targets(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        return np.abs(targets) == 1

    @property
    def expects(self) -> str:
        return "-1 or +1"

    @property
    def metric(self) -> Literal["accuracy", "rmse"]:
        return "accuracy"


class Softmax(NamedTuple):
    """Multi-class cross-entropy −log softmax(s)_y for labels y in {0, …, classes − 1}."""

    classes: int

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

    @property
    def curvature(self) -> float:
        return 0.5

    def slope_bound(self, norm: Norm) -> float:
        return 2.0 if norm == "l1" else math.sqrt(2.0)

    def predict(self, scores: NDArray[Any]) -> NDArray[Any]:
        return scores.argmax(axis=1).astype(scores.dtype)

    def valid_targets(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        return (targets == np.floor(targets)) & (targets >= 0) & (targets < self.classes)

    @property
    def expects(self) -> str:
        return f"a whole number from 0 to {self.classes - 1}"

    @property
    def metric(self) -> Literal["accuracy", "rmse"]:
        return "accuracy"


class Quadratic(NamedTuple):
    """(s − y)², as in the paper: no factor ½."""

    def value(self, score: float, target: float) -> float:
        return (score - target) ** 2

    def slope(self, score: float, target: float) -> float:
        return 2 * (score - target)

    @property
    def outputs(self) -> int:
        return 1

    @property
    def curvature(self) -> float:
        return 2.0

    def slope_bound(self, norm: Norm) -> float:
        return math.inf

    def predict(self, scores: NDArray[Any]) -> NDArray[Any]:
        return scores[:, 0]

    def valid_targets(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        return np.isfinite(targets)

    @property
    def expects(self) -> str:
        return "a finite number"

    @property
    def metric(self) -> Literal["accuracy", "rmse"]:
        return "rmse"


class Huber(NamedTuple):
    """(s − y)² up to `width`, then 2·width·|s − y| − width²: the quadratic loss with a bounded slope."""

    width: float = 1.0

    def value(self, score: float, target: float) -> float:
        residual = abs(score - target)
        if residual <= self.width:
            return residual * residual
        return self.width * (2 * residual - self.width)

    def slope(self, score: float, target: float) -> float:
        return 2 * min(max(score - target, -self.width), self.width)

    @property
    def outputs(self) -> int:
        return 1

    @property
    def curvature(self) -> float:
        return 2.0

    def slope_bound(self, norm: Norm) -> float:
        return 2 * self.width

    def predict(self, scores: NDArray[Any]) -> NDArray[Any]:
        return scores[:, 0]

    def valid_targets(self, targets: NDArray[Any]) -> NDArray[np.bool_]:
        return np.isfinite(targets)

    @property
    def expects(self) -> str:
        return "a finite number"

    @property
    def metric(self) -> Literal["accuracy", "rmse"]:
        return "rmse"


def gradient_bound(loss: Loss, feature_bound: float, norm: Norm) -> float:
    """L₀: the largest norm of one point's gradient when every ‖x‖ in that norm is at most `feature_bound`.

    This is what Theorem 1 needs for its noise; "Lipschitz with respect to the L1 norm", as
    printed there, would bound the max norm instead.
    """
    return loss.slope_bound(norm) * feature_bound


def public_smoothness(loss: Loss, feature_bound: float) -> float:
    """A bound on the smoothness of the mean loss that looks at no data: curvature·R² for ‖x‖₂ ≤ R."""
    return loss.curvature * feature_bound**2


LOSS_NAMES = ("logistic", "capped_logistic", "softmax", "quadratic", "huber")


def loss_by_name(name: str, *, classes: int = 2, width: float = 1.0) -> Loss:
    """The loss that a configuration file names."""
    match name:
        case "logistic":
            return Logistic()
        case "capped_logistic":
            return CappedLogistic()
        case "softmax":
            return Softmax(classes)
        case "quadratic":
            return Quadratic()
        case "huber":
            return Huber(width)
    raise ObjectiveError(f"loss must be one of {', '.join(LOSS_NAMES)}, got loss={name!r}")


# From here on: how the numba kernels call a loss. Each function below is plain Python, and the
# overload beneath it tells numba to compile the method of the loss's own class instead.


def loss_value(loss: Any, score: float, target: float) -> float:
    return loss.value(score, target)


def loss_slope(loss: Any, score: float, target: float) -> float:
    return loss.slope(score, target)


def loss_value_of_scores(loss: Any, scores: NDArray[Any], target: float) -> float:
    return loss.value_of_scores(scores, target)


def loss_slopes(loss: Any, scores: NDArray[Any], target: float, out: NDArray[Any]) -> None:
    loss.slopes(scores, target, out)


def _method_of(loss_type: types.Type, name: str) -> Any:
    """The method of the loss's class as something numba can call: a copy without annotations."""
    function = getattr(getattr(loss_type, "instance_class", None), name)
    return register_jitable(FunctionType(function.__code__, function.__globals__, name))


@overload(loss_value)
def _compile_value(loss, score, target):  # noqa: ANN001, ANN202
    method = _method_of(loss, "value")
    return lambda loss, score, target: method(loss, score, target)


@overload(loss_slope)
def _compile_slope(loss, score, target):  # noqa: ANN001, ANN202
    method = _method_of(loss, "slope")
    return lambda loss, score, target: method(loss, score, target)


@overload(loss_value_of_scores)
def _compile_value_of_scores(loss, scores, target):  # noqa: ANN001, ANN202
    method = _method_of(loss, "value_of_scores")
    return lambda loss, scores, target: method(loss, scores, target)


@overload(loss_slopes)
def _compile_slopes(loss, scores, target, out):  # noqa: ANN001, ANN202
    method = _method_of(loss, "slopes")
    return lambda loss, scores, target, out: method(loss, scores, target, out)
