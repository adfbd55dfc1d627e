"""Models that were learned: predictions with them, and frames of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from flockwise.arrays import Floats
from flockwise.data.checks import quoted
from flockwise.data.labels import encode_labels
from flockwise.errors import DataError, FlockwiseWarning
from flockwise.estimators import preparation
from flockwise.estimators.columns import Columns, frame_of
from flockwise.estimators.resemblance import Profiles
from flockwise.estimators.rows import scores_of
from flockwise.estimators.validation import AgentGains


class LearnedModels:
    """The half of an estimator that works after `fit`: one model per agent, in the units of the data."""

    agent: str | None
    prepare: str | None
    budget: Any
    agents_: NDArray[Any]
    _names: tuple[str, ...]
    models_: Floats
    population_model_: Floats
    method_: str
    _has_agents: bool
    _frames: str
    _preparation: preparation.Preparation
    _profiles: Profiles | None
    _gain: AgentGains | None
    _counts: NDArray[np.int64]
    _error_scale: float

    def _columns(self, X: Any) -> Columns:
        raise NotImplementedError

    def _labels(self, X: Any, groups: Any, n_rows: int) -> pa.ChunkedArray | None:
        raise NotImplementedError

    @property
    def _output_names(self) -> list[str]:
        """A name for each score of a row, if there are several."""
        return []

    def _scores(self, X: Any, groups: Any) -> Floats:
        check_is_fitted(self)
        columns = self._columns(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        if self.prepare is None and self.budget is None:
            preparation.as_they_are(columns)  # refuses gaps
        self._warn_of_new_categories(columns)
        numbers = self._preparation(columns)
        models, places = self._models_for(self._labels(X, groups, len(numbers)), len(numbers))
        return scores_of(numbers, models, places)

    def _warn_of_new_categories(self, columns: Columns) -> None:
        count, names = self._preparation.new_categories(columns)
        if count:
            n_rows = len(next(iter(columns.values())))
            warnings.warn(
                f"{count:,} of {n_rows:,} rows hold categories that were not in fit, in {quoted(names, 3)}: "
                f"they count as {preparation.OTHER!r} where there is one, and else as the first category",
                FlockwiseWarning,
                stacklevel=4,
            )

    def _models_for(self, labels: pa.ChunkedArray | None, n_rows: int) -> tuple[Floats, NDArray[np.int64]]:
        """Models, and which one is for each row."""
        if labels is None and not self._has_agents:
            return self.models_, np.zeros(n_rows, dtype=np.int64)
        if labels is None:
            raise DataError("say whose rows these are: give groups=, one agent for each row")
        if not self._has_agents:
            raise DataError("the fit knew no agents: leave groups out, or fit with groups")
        codes, names = encode_labels(labels, self.agent or "groups")
        position = {name: place for place, name in enumerate(self._names)}
        new = [name for name in names if name not in position]
        models = np.vstack([self.models_, *(self._first_model(name)[None] for name in new)])
        position |= {name: len(self.agents_) + place for place, name in enumerate(new)}
        places = np.array([position[name] for name in names])[codes]
        if new:
            count = int((places >= len(self.agents_)).sum())
            warnings.warn(
                f"{count:,} of {n_rows:,} rows are of agents that were not in fit, {len(new):,} in all "
                f"({quoted(new, 3)}): they get {self._first_words}",
                FlockwiseWarning,
                stacklevel=4,
            )
        return models, places

    @property
    def _starts_from_profiles(self) -> bool:
        return self._profiles is not None and self.method_ in ("graph", "both")

    @property
    def _first_words(self) -> str:
        if self._starts_from_profiles:
            return "the mean model of the agents with the nearest profiles, or the population's without one"
        return "the model of the population"

    def _first_model(self, name: str) -> Floats:
        """For an agent that was not in fit."""
        near = None
        if self._profiles is not None and self._starts_from_profiles:
            near = self._profiles.start(name, self._names, self.models_)
        return self.population_model_ if near is None else near

    @property
    def coef_frame_(self) -> Any:
        """Every agent's model, one row each: coefficients by name, in the units of the data."""
        check_is_fitted(self)
        return frame_of(self._frames, {"agent": self.agents_, **self._named(self.models_)}, "agent")

    def _named(self, models: Floats) -> dict[str, Floats]:
        names = [*self._preparation.names, "intercept"]
        outputs = models.shape[1] // len(names)
        if outputs > 1:
            names = [f"{name} [{label}]" for label in self._output_names for name in names]
        return {name: models[:, place] for place, name in enumerate(names)}

    @property
    def gain_(self) -> Any:
        """Per agent, from inner validation: how good its own model is, and the one learned together.

        alone, together: accuracy, or RMSE in the target's units. gain: positive where the model learned
        together is better. Rows count with their weights. With a graph the same rows also chose the method,
        which flatters it a little. After a private fit a column says that the guarantee covers none of this.
        """
        check_is_fitted(self)
        if self._gain is None:
            raise AttributeError(
                "gain_ needs agents, one of them with two rows, and inner_folds of at least 2"
            )
        columns: dict[str, Any] = {"agent": self.agents_, "rows": self._counts}
        for name in ("alone", "together", "gain", "standard_error"):
            columns[name] = getattr(self._gain, name) * self._error_scale
        if self.budget is not None:
            columns["covered_by_guarantee"] = np.zeros(len(self.agents_), dtype=bool)
        return frame_of(self._frames, columns, "agent")
