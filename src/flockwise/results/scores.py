"""How good predictions are on given rows: accuracy, AUC, log loss, RMSE and R²."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from flockwise.errors import DataError
from flockwise.objective.losses import Loss, has_two_classes, loss_name

ScoreName: TypeAlias = Literal["accuracy", "auc", "log_loss", "rmse", "r2"]
Floats: TypeAlias = NDArray[np.float64]

# A probability of 0 for what happened would make one sample's log loss infinite.
LEAST_PROBABILITY = 1e-15


def score(name: str | None, loss: Loss, scores: Floats, targets: Floats) -> float:
    """One number for these rows; NaN where it is undefined, such as AUC with one class alone."""
    name = loss.metric if name is None else name
    if name not in get_args(ScoreName):
        raise DataError(f"metric must be one of {', '.join(get_args(ScoreName))}, got metric={name!r}")
    needs_classes, judge = _SCORES[name]
    if needs_classes != (loss.metric == "accuracy"):
        raise DataError(f"metric={name!r} does not fit loss {loss_name(loss)!r}")
    if not len(targets):
        return float("nan")
    return judge(loss, scores, targets)


def probabilities(loss: Any, scores: Floats) -> Floats:
    """One column per class; refused for losses that predict numbers."""
    made = getattr(loss, "probabilities", None)
    if made is None:
        raise DataError(f"loss {loss_name(loss)!r} gives no probabilities")
    return made(scores)


def _accuracy(loss: Loss, scores: Floats, targets: Floats) -> float:
    return float((loss.predict(scores) == targets).mean())


def _auc(loss: Loss, scores: Floats, targets: Floats) -> float:
    """The share of pairs of both classes that the score orders rightly; ties count half (Mann, Whitney)."""
    if not has_two_classes(loss):
        raise DataError("metric='auc' is for two classes")
    from scipy.stats import rankdata  # slow to import

    positive = targets > 0
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return float("nan")
    ranks = rankdata(scores[:, 0])
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def _log_loss(loss: Loss, scores: Floats, targets: Floats) -> float:
    classes = (targets > 0).astype(int) if has_two_classes(loss) else targets.astype(int)
    of_truth = probabilities(loss, scores)[np.arange(len(targets)), classes]
    return float(-np.log(np.maximum(of_truth, LEAST_PROBABILITY)).mean())


def _rmse(loss: Loss, scores: Floats, targets: Floats) -> float:
    return float(np.sqrt(((loss.predict(scores) - targets) ** 2).mean()))


def _r2(loss: Loss, scores: Floats, targets: Floats) -> float:
    spread = ((targets - targets.mean()) ** 2).sum()
    if spread == 0:
        return float("nan")
    return float(1 - ((loss.predict(scores) - targets) ** 2).sum() / spread)


# Whether it judges classes, and how.
_SCORES: dict[str, tuple[bool, Callable[[Loss, Floats, Floats], float]]] = {
    "accuracy": (True, _accuracy),
    "auc": (True, _auc),
    "log_loss": (True, _log_loss),
    "rmse": (False, _rmse),
    "r2": (False, _r2),
}
