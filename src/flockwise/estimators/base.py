"""What both estimators share: reading a table and fitting one model per agent."""

from __future__ import annotations

import secrets
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    validate_data,
)

from flockwise.arrays import Floats
from flockwise.data.labels import encode_labels, label_array
from flockwise.errors import DataError, FlockwiseWarning, GraphError, ObjectiveError, PrivacyError
from flockwise.estimators import preparation
from flockwise.estimators.columns import (
    Columns,
    agent_column,
    columns_of_array,
    columns_of_frame,
    is_frame,
    library_of,
)
from flockwise.estimators.fitting import Alone, Fitted, alone_models, default_weight, fit_ways, ways
from flockwise.estimators.learned import LearnedModels
from flockwise.estimators.resemblance import Profiles, given_graph, models_graph
from flockwise.estimators.rows import FitRows
from flockwise.estimators.targets import Targets, check_no_gaps, check_numbers
from flockwise.estimators.threads import threads_for
from flockwise.estimators.validation import (
    AgentGains,
    GraphOf,
    choose_alone,
    fold_by_fold,
    fold_of_rows,
    gain_of,
    validate,
)

# The name of the only agent where rows are not told apart.
EVERYONE = "everyone"
METHODS = ("auto", "prior", "graph", "both")


@dataclass(kw_only=True, eq=False, repr=False)
class PersonalizedEstimator(LearnedModels, BaseEstimator):
    """One linear model per agent, learned together; what is predicted is for the two estimators to say.

    The parameters are told in `PersonalizedClassifier` and `PersonalizedRegressor`.
    """

    agent: str | None = None
    prepare: str | None = "auto"
    method: str = "auto"
    graph: Any = None
    profiles: Any = None
    tradeoff: float | str = "auto"
    l2: float | str = "auto"
    budget: Any = None
    bounds: Any = None
    categories: Any = None
    inner_folds: int = 5
    random_state: Any = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self.prepare == "auto"
        return tags

    def __sklearn_clone__(self) -> Any:
        made: Any = super().__sklearn_clone__()
        # A search or a cross-validation fits clones: what is chosen among several fits is in no guarantee.
        made._is_clone = True
        return made

    # The two estimators say what their targets are.

    @property
    def _is_regressor(self) -> bool:
        return self.__sklearn_tags__().estimator_type == "regressor"

    def _read_targets(self, y: Any, weights: Floats) -> Targets:
        raise NotImplementedError

    def _weighted_by_class(self, y: Any, weights: Floats) -> Floats:
        return weights

    # Fitting.

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Any:
        """Learn one model per agent.

        X: a frame of any kind of columns, or an array of numbers. groups: the agent of each row, unless
        `agent` names a column with them; without either all rows are one agent's.
        """
        self._check_parameters()
        columns = self._columns(X)
        n_rows = len(next(iter(columns.values())))
        check_no_gaps(y)
        if self._is_regressor:
            check_numbers(y)
        y = validate_data(self, y=y, y_numeric=self._is_regressor)
        validate_data(self, X, skip_check_array=True)
        check_consistent_length(X, y)
        labels = self._labels(X, groups, n_rows)
        self._check_agents(labels)
        weights = self._weights(X, y, sample_weight)
        kept = weights > 0
        if not kept.any():
            raise ValueError("sample_weight is zero for every row; give at least one row a weight above 0")
        columns = {name: values[kept] for name, values in columns.items()}
        codes, agents = _agents(labels, self.agent or "groups", n_rows)
        self._names = agents
        self.agents_ = (
            np.array(agents, dtype=object) if _is_text(labels) else np.array(list(map(int, agents)))
        )
        self._frames, self._has_agents = library_of(X), labels is not None
        self._preparation = self._prepared(columns, weights[kept])
        targets = self._read_targets(y[kept], weights[kept])
        centers, units = self._preparation.scales
        features = (self._preparation(columns) - centers) / units
        names = self._preparation.names
        rows = FitRows.packed(
            features, targets.values, weights[kept], codes[kept], agents, names, targets.loss
        )
        with threads_for(rows.features.size):
            self._fit_rows(rows, targets)
        return self

    def _check_parameters(self) -> None:
        _check_choice("method", self.method, METHODS)
        _check_choice("prepare", self.prepare, ("auto", None))
        for name in ("tradeoff", "l2"):
            value = getattr(self, name)
            if value != "auto" and not (isinstance(value, int | float | np.number) and 0 < value < np.inf):
                raise ObjectiveError(f'{name} must be "auto" or a number above 0, got {name}={value!r}')
        if not (isinstance(self.inner_folds, int | np.integer) and self.inner_folds >= 0):
            raise DataError(f"inner_folds must be a whole number from 0 on, got {self.inner_folds!r}")
        if self.graph is None and (self.tradeoff != "auto" or self.method in ("graph", "both")):
            raise GraphError(
                f"method={self.method!r} and tradeoff={self.tradeoff!r} need neighbors: give "
                'graph="models", graph="profiles" with profiles=, a matrix or edges'
            )
        if self.profiles is not None and not _is(self.graph, "profiles"):
            raise GraphError('profiles= is used with graph="profiles" alone; set it, or leave profiles out')

    def _check_agents(self, labels: pa.ChunkedArray | None) -> None:
        if labels is not None:
            return
        how = 'name the column with them, as in agent="patient", or give groups='
        if self.graph is not None:
            raise GraphError(f"graph= joins agents, and the rows are not told apart; {how}")
        if self.budget is not None:
            raise PrivacyError(f"budget= protects what agents send, and a single agent sends nothing; {how}")

    def _columns(self, X: Any) -> Columns:
        if is_frame(X):
            return columns_of_frame(X, self.agent)
        if self.agent is not None:
            raise DataError(
                f"agent={self.agent!r} names a column of a frame, and X is an array; give groups=, or a "
                'frame (in a pipeline, from transformers with .set_output(transform="pandas"))'
            )
        finite: Any = "allow-nan" if self.prepare == "auto" else True
        table = check_array(X, dtype="float64", ensure_all_finite=finite, estimator=self, input_name="X")
        return columns_of_array(table)

    def _labels(self, X: Any, groups: Any, n_rows: int) -> pa.ChunkedArray | None:
        if self.agent is not None:
            if groups is not None:
                raise DataError(f"the agents are in column {self.agent!r} already; leave groups out")
            return agent_column(X, self.agent)
        if groups is None:
            return None
        if len(groups) != n_rows:
            raise DataError(f"groups must name one agent for each of the {n_rows} rows, got {len(groups)}")
        return label_array(groups)

    def _weights(self, X: Any, y: Any, sample_weight: Any) -> Floats:
        if self.budget is not None:
            from flockwise.estimators.private import check_private  # brings engines and planner

            check_private(self, sample_weight)
        weights = _check_sample_weight(sample_weight, X if not is_frame(X) else y, ensure_non_negative=True)
        return self._weighted_by_class(y, weights.astype(np.float64))

    def _prepared(self, columns: Columns, weights: Floats) -> preparation.Preparation:
        if self.budget is not None:
            return preparation.public(columns, self.bounds, self.categories)
        if self.bounds is not None or self.categories is not None:
            raise DataError(
                "bounds= and categories= are for private fits: give budget= too, or leave them out"
            )
        return (
            preparation.as_they_are(columns)
            if self.prepare is None
            else preparation.learned(columns, weights)
        )

    def _fit_rows(self, rows: FitRows, targets: Targets) -> None:
        self.guarantee_ = None
        self._gain: AgentGains | None = None
        self._counts = rows.counts
        self._error_scale = targets.scale
        seed = int(check_random_state(0 if self.random_state is None else self.random_state).randint(2**31))
        weight = default_weight(rows.loss) if self.l2 == "auto" else float(self.l2)
        if self.budget is not None:
            alone, own, common = self._fit_private(rows, weight, seed)
        elif not self._has_agents:
            own = alone_models(rows, Alone(weight))
            alone, common = own, own[0]
            self.method_, self.tradeoff_ = "pooled", None
        else:
            alone, fitted = self._fit_together(rows, weight, seed)
            own, common = fitted.models, fitted.common
            self.method_, self.tradeoff_ = fitted.method, fitted.tradeoff
        self.models_ = self._in_units(own, targets)
        self.local_models_ = self._in_units(alone, targets)
        self.population_model_ = self._in_units(common[None], targets)[0]

    def _fit_together(self, rows: FitRows, weight: float, seed: int) -> tuple[Floats, Fitted]:
        graph_of = self._graph_of(rows.agents)
        tradeoff = None if self.tradeoff == "auto" else float(self.tradeoff)
        method: Any = self.method
        known_weight = weight if self.l2 != "auto" else None
        chosen, alone = ways(method, tradeoff, self.graph is not None), Alone(weight)
        folds = self._folds(rows, seed)
        if folds is not None:
            with fold_by_fold(folds) as step:
                validated = validate(rows, chosen, known_weight, graph_of, folds, step)
            chosen, alone, self._gain = [validated.way], validated.alone, validated.gain
        elif len(chosen) > 1:
            raise ObjectiveError(
                f"inner_folds={self.inner_folds}: choosing a method or μ needs inner validation, and agents "
                "with two rows; set inner_folds=5, or say method= and tradeoff="
            )
        [fitted] = fit_ways(rows, chosen, graph_of(rows, alone), alone)
        return alone_models(rows, alone), fitted

    def _folds(self, rows: FitRows, seed: int) -> NDArray[np.int64] | None:
        """The folds of inner validation, if there is one."""
        n_folds = min(self.inner_folds, int(rows.counts.max()))
        return fold_of_rows(rows, n_folds, seed) if n_folds >= 2 else None

    def _fit_private(self, rows: FitRows, weight: float, seed: int) -> tuple[Floats, Floats, Floats]:
        from flockwise.estimators.private import (
            PrivateFit,
            guarantee_of,
            is_clearly_worse,
            reason_to_stay_alone,
        )

        fit = PrivateFit.planned(
            self, rows, self._preparation.feature_bound, self._graph_of(rows.agents)(rows, Alone(weight))
        )
        noise = secrets.randbits(63) if self.random_state is None else seed
        run = fit.run(rows, noise)
        why = reason_to_stay_alone(run)
        alone, folds = Alone(weight), self._folds(rows, seed)
        if folds is not None:
            with fold_by_fold(folds) as step:
                alone, errors = choose_alone(rows, None if self.l2 == "auto" else weight, folds, step)
                together = errors if why is not None else fit.errors(rows, folds, alone, noise + 1, step)
            self._gain = gain_of(rows, errors, together)
            if is_clearly_worse(self._gain):
                words = "within this budget models are clearly worse than those that agents learn alone: see "
                warnings.warn(f"{words}gain_, and use local_models_", FlockwiseWarning, stacklevel=4)
        local = alone_models(rows, alone)
        if run is not None:
            self.guarantee_ = guarantee_of(run, is_clone=getattr(self, "_is_clone", False))
        if run is None or fit.candidate is None or why is not None:
            words = f"each agent keeps the model that it learned alone, because {why}"
            warnings.warn(words, FlockwiseWarning, stacklevel=4)
            self.method_, self.tradeoff_ = "alone", None
            return local, local, np.zeros(local.shape[1])
        self.method_, self.tradeoff_ = fit.candidate.words, fit.candidate.tradeoff
        return local, np.asarray(run.own_models), np.asarray(run.models).mean(axis=0)

    def _graph_of(self, agents: tuple[str, ...]) -> GraphOf:
        """The graph among agents, which may depend on the rows that they know."""
        self._profiles = Profiles.of(self.profiles, self.agent) if _is(self.graph, "profiles") else None
        if self.graph is None:
            return lambda rows, alone: None
        if _is(self.graph, "models"):
            return lambda rows, alone: models_graph(alone_models(rows, alone), agents)
        fixed = given_graph(self.graph, agents) if self._profiles is None else self._profiles.graph(agents)
        return lambda rows, alone: fixed

    def _in_units(self, models: Floats, targets: Targets) -> Floats:
        """Models for numbers as they are in the data, from models for scaled ones."""
        centers, units = self._preparation.scales
        blocks = models.reshape(len(models), targets.loss.outputs, -1)
        if targets.loss.outputs > 1:
            # The same added to all scores changes no probability: of all such models the one whose sum is 0.
            blocks = blocks - blocks.mean(axis=1, keepdims=True)
        weights = blocks[..., :-1] * (targets.scale / units)
        intercepts = targets.center + targets.scale * blocks[..., -1] - weights @ centers
        return np.concatenate([weights, intercepts[..., None]], axis=-1).reshape(models.shape)


def _agents(
    labels: pa.ChunkedArray | None, column: str, n_rows: int
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if labels is None:
        return np.zeros(n_rows, dtype=np.int64), (EVERYONE,)
    return encode_labels(labels, column)


def _is_text(labels: pa.ChunkedArray | None) -> bool:
    """Whether agents have names; else they have numbers."""
    if labels is None:
        return True
    kind = labels.type.value_type if pa.types.is_dictionary(labels.type) else labels.type
    return not pa.types.is_integer(kind)


def _check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise DataError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {name}={value!r}")


def _is(graph: Any, kind: str) -> bool:
    return isinstance(graph, str) and graph == kind
