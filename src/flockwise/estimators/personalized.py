"""PersonalizedClassifier and PersonalizedRegressor: one model per agent in the tools of scikit-learn.

Five lines from a messy table to a model for every patient, and to what learning together gains:

    visits = pandas.read_csv("visits.csv")  # numbers, text and gaps; patients with 3 rows, others with 80
    X, y = visits.drop(columns="eased"), visits["eased"]
    model = flockwise.PersonalizedClassifier(agent="patient").fit(X, y)
    print(model.predict_proba(X), model.coef_frame_)
    print(model.gain_.sort_values("gain"))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from flockwise.arrays import Floats
from flockwise.errors import DataError, ObjectiveError, PrivacyError
from flockwise.estimators.base import PersonalizedEstimator
from flockwise.estimators.targets import Targets
from flockwise.objective import Logistic, Quadratic, Softmax
from flockwise.results.metrics import probabilities


@dataclass(kw_only=True, eq=False, repr=False)
class PersonalizedClassifier(ClassifierMixin, PersonalizedEstimator):
    """A linear classifier for each agent, learned together with the others; two classes or more.

    agent: the column of a frame that says whose row it is. Without it `fit` takes groups=, and without either
        this is a logistic regression.
    prepare: "auto" turns text into one column per category, fills gaps with the mean and marks them, and
        scales numbers. None takes numbers as they are.
    method: "prior" pulls models to what all agents have in common, as far as agents are alike (a mixed
        model); "graph" pulls them to their neighbors' (Eq. 2); "both" does both. "auto" takes the prior
        without a graph, and with one what inner validation finds best.
    graph: who resembles whom: "models" compares what agents learn alone, "profiles" the rows of `profiles`;
        or your own matrix (a frame named by agents) or edges (agent, agent, weight).
    profiles: a frame with one row of public facts per agent, named in the column `agent` or in the index.
    tradeoff: μ of Eq. (2), how much an agent's own rows count against its neighbors.
    l2: the weight of the penalty Σ ℓ + l2·‖θ‖² on models that agents learn alone; "auto" chooses it by inner
        validation, and is scikit-learn's default without agents.
    class_weight: as in scikit-learn.
    classes: the labels that there may be, ["no", "yes"], whichever of them y holds; known without the data in
        a private fit, which takes two. By default those in y.
    budget: a `flockwise.Budget` makes the fit private for every row; see `guarantee_`. It needs bounds,
        categories and classes.
    bounds, categories: of a private fit, {column: (low, high)} and {column: [category, …]}, known without
        the data. Other categories count as the first in the list; None in a list stands for gaps.
    inner_folds: folds of the inner validation inside the agents; 0 does without, and without `gain_`.
    random_state: decides the folds, and the noise of a private fit, which is secret without it.

    Learned are `agents_`, and in that order `models_` and `local_models_`, learned alone: one row each, the
    coefficients of `coef_frame_`. `population_model_` is for agents that were not in fit. `gain_` is a frame
    with what learning together gains each agent, by inner validation. `method_` and `tradeoff_` are what was
    chosen ("alone": agents keep their local models; "pooled": one model, as no agents were named);
    `guarantee_` is what holds of a private fit, and None of any other. It covers what agents send:
    `population_model_` after a private fit, and neither `models_` nor `gain_`, which stay at home.
    """

    class_weight: Any = None
    classes: Any = None

    def predict(self, X: Any, groups: Any = None) -> NDArray[Any]:
        """The class of each row, by the model of its agent."""
        scores = self._scores(X, groups)
        return self.classes_[scores.argmax(axis=1) if self._has_many else (scores[:, 0] > 0).astype(int)]

    def predict_proba(self, X: Any, groups: Any = None) -> Floats:
        """The probability of each class, in the order of `classes_`."""
        scores = self._scores(X, groups)
        return probabilities(self._loss, scores)

    def decision_function(self, X: Any, groups: Any = None) -> Floats:
        """The score of the second class where there are two, else one score per class."""
        scores = self._scores(X, groups)
        return scores if self._has_many else scores[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """The accuracy over all rows."""
        from sklearn.metrics import accuracy_score  # slow to import, and a fit needs none of it

        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _weighted_by_class(self, y: NDArray[Any], weights: Floats) -> Floats:
        check_classification_targets(y)
        if self.class_weight is None:
            return weights
        if self.class_weight != "balanced":
            return weights * compute_sample_weight(self.class_weight, y)
        # All classes count the same in the end, whatever the rows weigh.
        codes = np.unique(y, return_inverse=True)[1]
        totals = np.bincount(codes, weights)
        known = totals > 0
        return weights * np.where(known, weights.sum() / known.sum() / np.where(known, totals, 1), 0)[codes]

    def _read_targets(self, y: NDArray[Any], weights: Floats) -> Targets:
        self.classes_, codes = self._listed_codes(y) if self.classes is not None else self._codes(y)
        if not self._has_many:
            return Targets((2 * codes - 1).astype(np.float64), Logistic())
        return Targets(codes.astype(np.float64), Softmax(len(self.classes_)))

    def _codes(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The classes in y, and which one each row has."""
        if self.budget is not None:
            raise PrivacyError(
                'which labels occur would leak with a budget; give classes=, as in classes=["no", "yes"], '
                "known without the data"
            )
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"there is only one class in y, {classes.tolist()[0]!r}; "
                "a classifier needs rows of two classes"
            )
        return classes, codes

    def _listed_codes(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The classes that were listed, and which one each row has. An error shows no label but these."""
        try:
            classes = np.unique(list(self.classes))
        except TypeError:
            raise ObjectiveError(
                f"classes must list labels of one kind, all texts or all numbers, got {self.classes!r}; "
                'give them as in classes=["no", "yes"]'
            ) from None
        if len(classes) < 2 or (len(classes) > 2 and self.budget is not None):
            raise ObjectiveError(
                f"classes must list two labels or more, and a private fit takes two, got {self.classes!r}; "
                "fit one class against the rest"
            )
        places = {label: place for place, label in enumerate(classes.tolist())}
        codes = np.array([places.get(label, -1) for label in y.tolist()], np.int64)
        if (codes < 0).any():
            raise DataError(
                f"y holds a label that is none of classes={classes.tolist()!r}; list it or leave it out"
            )
        return classes, codes

    @property
    def _has_many(self) -> bool:
        return len(self.classes_) > 2

    @property
    def _loss(self) -> Logistic | Softmax:
        return Softmax(len(self.classes_)) if self._has_many else Logistic()

    @property
    def _output_names(self) -> list[str]:
        return [str(label) for label in self.classes_] if self._has_many else []


@dataclass(kw_only=True, eq=False, repr=False)
class PersonalizedRegressor(RegressorMixin, PersonalizedEstimator):
    """A linear model of a number for each agent, learned together with the others.

    target_range: of a private fit, the smallest and the largest target, known without the data.

    All other parameters and all attributes are those of `PersonalizedClassifier`; without agents this is a
    ridge regression.
    """

    target_range: tuple[float, float] | None = None

    def predict(self, X: Any, groups: Any = None) -> Floats:
        """The number for each row, by the model of its agent."""
        return self._scores(X, groups)[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """R² over all rows."""
        from sklearn.metrics import r2_score  # as above

        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _read_targets(self, y: NDArray[Any], weights: Floats) -> Targets:
        numbers = y.astype(np.float64)
        center, scale = self._scale_of(numbers, weights)
        return Targets((numbers - center) / scale, Quadratic(), center, scale)

    def _scale_of(self, y: Floats, weights: Floats) -> tuple[float, float]:
        if self.budget is None:
            if self.target_range is not None:
                raise ObjectiveError("target_range= is for private fits: give budget= too, or leave it out")
            center = float(np.average(y, weights=weights))
            return center, float(np.sqrt(np.average((y - center) ** 2, weights=weights))) or 1.0
        if self.target_range is None:
            raise PrivacyError(
                "a scale taken from the targets would leak with a budget; give target_range=(low, high), "
                "known without the data"
            )
        low, high = map(float, self.target_range)
        if not low < high:
            raise PrivacyError(
                f"target_range must be two numbers, the smaller first, got {self.target_range!r}"
            )
        return (low + high) / 2, (high - low) / 2
