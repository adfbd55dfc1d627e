"""The result of a run: the models, the records along the way, and all it needs to go on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from flockwise.arrays import Floats
from flockwise.data import Population
from flockwise.errors import DataError, ResumeError
from flockwise.files import write_whole
from flockwise.notebook import html_table
from flockwise.objective import LOSSES, Loss
from flockwise.objective.losses import coefficient_names, loss_from_json, loss_to_json
from flockwise.privacy.budget import Budget
from flockwise.privacy.guarantee import Guarantee
from flockwise.privacy.tracked import UNTRACKED, TrackedModels, origin_of, own_models, run_models
from flockwise.results.export import (
    ABOUT_NOT_RELEASED,
    ABOUT_OWN,
    agent_column,
    filled_table,
    models_schema,
)
from flockwise.results.frames import FrameRows, Trained, rows_of, rows_of_population
from flockwise.results.metrics import ScoreName, mean_metric, probabilities, score
from flockwise.results.plots import RunPlots
from flockwise.solve.optimum import Gap
from flockwise.solve.prior import Prior

FORMAT = 1
OPTIONAL_ARRAYS = ("agent_metrics", "own_models", "own_metrics", "sample_counts")
RELEASED_NOTE = "released models"
# By the setting "models" of a run in which agents release one model after the other.
RELEASED = {
    "tail": "released models: the mean of the later half of those that each agent released",
    "last": "released models: the last that each agent released",
}

Which: TypeAlias = Literal["own", "released"]


@dataclass(frozen=True)
class Record:
    """The run at one moment of simulated time: all ticks up to it are done, none after.

    time is in mean intervals between two ticks of an agent; metric and metric_sd are the mean and
    the standard deviation over agents on test data; vectors are models sent along an edge; measures are
    means over agents of the judges that `simulate` was given.
    """

    time: float
    ticks: int
    objective: float
    metric: float
    metric_sd: float
    vectors: int
    bytes: int
    measures: Mapping[str, float] = field(default_factory=dict)


RECORD_FIELDS = tuple(name for name in Record.__dataclass_fields__ if name != "measures")


@dataclass(frozen=True, repr=False)
class Trajectory:
    """One run of one method: its final models and its records.

    In a private run `models` are what the agents released, for which `guarantee` holds; `own_models` are
    what each agent made of them with its own data. Those are never sent, and no guarantee holds for them.
    Where an agent released one model after the other, `models_are` says which of them `models` are.
    prior: what the agents' models have in common, if the method learned it; its mean is the model for an
    agent that took no part.
    sample_counts: training samples of each agent. alone: how agents fare with models that they learn alone;
    certified: how far models are from the optimum. Both are computed when asked for, and neither saved nor
    pickled. fingerprint: gives that of the problem.
    """

    method: str
    models: NDArray[Any]
    records: tuple[Record, ...]
    loss: Loss
    agent_names: Sequence[str]
    feature_names: Sequence[str]
    updates: NDArray[np.int64]
    agent_metrics: Floats | None
    fingerprint: Callable[[], str] = field(repr=False, compare=False)
    settings: Mapping[str, Any]
    stopped: str
    state: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    own_models: TrackedModels | None = None
    own_metrics: Floats | None = None
    guarantee: Guarantee | None = None
    has_intercept: bool = False
    prior: Prior | None = None
    sample_counts: NDArray[np.int64] | None = None
    alone: Callable[[], Floats] | None = field(default=None, repr=False, compare=False)
    certified: Callable[[NDArray[Any]], Gap] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        judged = "" if np.isnan(self.final.metric) else f", {self.loss.metric} {self._metric:.4f}"
        return f"Trajectory({self.method!r}, {len(self.models)} agents{judged}{self._privacy})"

    def _repr_html_(self) -> str:
        """For a notebook."""
        rows = {"method": self.method, "agents": f"{len(self.models):,}", "stopped by": self.stopped}
        if not np.isnan(self.final.metric):
            which = "" if self.own_models is None else " (own models)"
            rows[f"{self.loss.metric}{which}"] = f"{self._metric:.4f}"
        if self.guarantee is not None:
            rows |= {
                "guarantee": self.guarantee.label,
                "unit": self.guarantee.neighboring,
                "against": self.guarantee.against.rstrip(","),
                "models": self.models_are,
            }
        return html_table("A run", rows)

    def __getstate__(self) -> dict[str, Any]:
        """A pickled run leaves behind how to learn alone, which needs all the data."""
        left = {"alone": None, "certified": None}
        return {**self.__dict__, **left, "fingerprint": partial(str, self.problem_fingerprint)}

    @property
    def problem_fingerprint(self) -> str:
        """By which a resumed run knows its problem. It is made of all the data when asked for, or saved."""
        return self.fingerprint()

    @cached_property
    def gap(self) -> Gap | None:
        """How far the models are from the minimum of Eq. (2), certified: of coordinate descent without noise.

        It costs a gradient, and a Newton step where the run may be far. So it is computed when asked for, by
        reports, and at the end of a run that seemed to have settled or took 100 updates an agent: such a run
        that is far warns. A short trial that is far is nothing to warn of.
        """
        return None if self.certified is None else self.certified(self.models)

    @property
    def models_are(self) -> str:
        """What `models` are, in words."""
        if self.guarantee is None:
            return "models"
        return RELEASED.get(self.settings.get("models", ""), RELEASED_NOTE)

    @property
    def _privacy(self) -> str:
        if self.guarantee is None:
            return ""
        found = f", ({self.guarantee.parameters}) differentially private"
        if self.guarantee.declared:
            found = f"{found}, {self.guarantee.whose_word}"
        return found if self.guarantee.is_private else f"{found}, not all covered"

    @property
    def _metric(self) -> float:
        return self.final.metric if self.own_metrics is None else float(np.nanmean(self.own_metrics))

    def column(self, name: str) -> NDArray[Any]:
        """One field of all records, or one of your own measures, as an array."""
        if name in RECORD_FIELDS:
            return np.array([getattr(record, name) for record in self.records])
        everywhere = set.intersection(*(set(record.measures) for record in self.records))
        if name not in everywhere:
            known = ", ".join((*RECORD_FIELDS, *sorted(everywhere)))
            raise DataError(f"no field {name!r} in all records; there are {known}")
        return np.array([record.measures[name] for record in self.records])

    @property
    def final(self) -> Record:
        """The last record."""
        return self.records[-1]

    @property
    def plot(self) -> RunPlots:
        """Quick pictures: `run.plot()` and `run.plot.gain()`, `.by_size()`, `.budget()`, `.agents()`."""
        return RunPlots(self)

    def predict(
        self, features: Any, agents: Any = None, *, agent: str | None = None, which: Which | None = None
    ) -> NDArray[Any]:
        """Predictions for rows by the models of their agents.

        features: a population, whose features and agents are matched by name, a frame, whose columns are, or
            an array in the order of the training.
        agents: one agent (position or name), or one for each row; agent: the column of a frame with them.
            Where all names are whole numbers, an integer is a name, as in a column: 1 is agent "1".
        which: "own" or "released" models; by default own ones where there are any.
        """
        return self.loss.predict(self._scores(self._rows(features, agents, agent), which))

    def predict_proba(
        self, features: Any, agents: Any = None, *, agent: str | None = None, which: Which | None = None
    ) -> Floats:
        """Probabilities, one column per class (−1 then +1 for two classes); arguments as in `predict`."""
        return probabilities(self.loss, self._scores(self._rows(features, agents, agent), which))

    def score(
        self,
        data: Any,
        *,
        agent: str | None = None,
        target: str | None = None,
        metric: ScoreName | None = None,
        over: Literal["agents", "rows"] = "agents",
        which: Which | None = None,
    ) -> float:
        """How good the models are on a population, or on a frame with columns `agent` and `target`.

        metric: accuracy, auc, log_loss, rmse or r2; by default that of the loss. over: the mean over the
        agents for which it is defined, or one number for all rows together.
        """
        if isinstance(data, Population):
            rows = rows_of_population(data, self._trained)
        elif agent is None or target is None:
            raise DataError("score needs a Population, or a frame with agent= and target= naming its columns")
        else:
            rows = rows_of(data, None, agent, target, self._trained)
        assert rows.targets is not None
        if not self.loss.valid_targets(rows.targets).all():
            raise DataError(f"a target does not fit: {type(self.loss).__name__} expects {self.loss.expects}")
        scores = self._scores(rows, which)
        if over == "rows":
            return score(metric, self.loss, scores, rows.targets)
        order = np.argsort(rows.agents, kind="stable")
        ends = np.flatnonzero(np.diff(rows.agents[order])) + 1
        each = [score(metric, self.loss, scores[own], rows.targets[own]) for own in np.split(order, ends)]
        return mean_metric(np.array(each))

    def to_pandas(self, which: Which | None = None) -> Any:
        """The models as a data frame: one row per agent, one column per feature (and class)."""
        return self._table(which).to_pandas().set_index(agent_column(self.coefficient_names))

    def to_parquet(self, path: str | os.PathLike[str], which: Which | None = None) -> None:
        """The models as a table; the file says which ones it holds. A private run has to be told which.

        Own models are for the owner of the file alone.
        """
        table = self._table(which)
        write_whole(path, lambda part: pq.write_table(table, part), is_secret=which == "own")

    def _table(self, which: Which | None) -> pa.Table:
        if which is None and self.own_models is not None:
            raise DataError(
                'say which models: which="released", which may be shown, or which="own", which must not be'
            )
        models = self._models(which or "released")
        return filled_table(self.models_schema(which), self.agent_names, models)

    def models_schema(self, which: Which | None) -> pa.Schema:
        """The columns of a table of models, and what it says of them."""
        models = self.own_models if which == "own" else self.models
        assert models is not None
        origin = origin_of(models) or UNTRACKED
        return models_schema(
            self.coefficient_names, models.dtype, self._about_export(is_own=which == "own"), origin
        )

    def _about_export(self, *, is_own: bool) -> Mapping[str, Any]:
        """What a file says of the models in it; what is guaranteed is said of released ones alone."""
        if is_own:
            return ABOUT_OWN
        made = self.guarantee
        if made is None:
            return ABOUT_NOT_RELEASED
        return {
            "which": "released",
            "note": self.models_are,
            "epsilon": made.epsilon,
            "delta": made.delta,
            "not_covered": made.not_covered,
            "declared": made.declared,
            "against": made.against.rstrip(","),
            "assumes": made.assumes,
            "epsilon_if_all_collude": made.if_all_collude,
        }

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """What each coordinate of a model is: a feature, or a feature for one of several classes."""
        return coefficient_names(self.loss, self.feature_names)

    @property
    def _trained(self) -> Trained:
        return Trained(tuple(self.agent_names), tuple(self.feature_names), self.has_intercept)

    def _rows(self, features: Any, agents: Any, agent: str | None) -> FrameRows:
        if not isinstance(features, Population):
            return rows_of(features, agents, agent, None, self._trained)
        if agents is not None or agent is not None:
            raise DataError("a population says whose samples are whose; leave agents= and agent= out")
        return rows_of_population(features, self._trained)

    def _models(self, which: Which | None) -> NDArray[Any]:
        if which not in (None, "own", "released"):
            raise DataError(f'which must be "own" or "released", got which={which!r}')
        if which == "own" and self.own_models is None:
            raise DataError(f"method {self.method!r} has no own models: its models are not private")
        own = self.own_models if which in (None, "own") else None
        return np.asarray(self.models if own is None else own)

    def _scores(self, rows: FrameRows, which: Which | None) -> Floats:
        models = self._models(which).astype(np.float64)
        blocks = models.reshape(len(models), self.loss.outputs, -1)
        return np.einsum("rf,rof->ro", rows.features, blocks[rows.agents])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Everything, in one file without executable content; load it with `Trajectory.load`.

        A private run, which has own models, is for the owner of the file alone.
        """
        arrays = {f"state_{name}": array for name, array in self.state.items()}
        arrays |= {"models": np.asarray(self.models), "updates": self.updates}
        arrays["records"] = np.array(
            [[getattr(record, name) for name in RECORD_FIELDS] for record in self.records], np.float64
        )
        arrays["agent_names"] = np.array(list(self.agent_names), dtype=np.str_)
        arrays["feature_names"] = np.array(list(self.feature_names), dtype=np.str_)
        for name in OPTIONAL_ARRAYS:
            if getattr(self, name) is not None:
                arrays[name] = np.asarray(getattr(self, name))
        if self.prior is not None:
            arrays |= {"prior_mean": self.prior.mean, "prior_covariance": self.prior.covariance}
        about = {
            "format": FORMAT,
            "method": self.method,
            "loss": loss_to_json(self.loss),
            "problem_fingerprint": self.problem_fingerprint,
            "settings": dict(self.settings),
            "stopped": self.stopped,
            "has_intercept": self.has_intercept,
            "measures": [dict(record.measures) for record in self.records],
            "guarantee": None if self.guarantee is None else asdict(self.guarantee),
            "prior": None if self.prior is None else [self.prior.dispersion, self.prior.structure],
        }
        arrays["about"] = np.array(json.dumps(about))
        is_secret = self.guarantee is not None or self.own_models is not None
        write_whole(path, lambda part: _save_arrays(part, arrays), is_secret=is_secret)

    @staticmethod
    def load(path: str | os.PathLike[str], *, loss: Loss | None = None) -> Trajectory:
        """A saved run; a loss that is not registered has to be given again."""
        try:
            with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(str(arrays.pop("about")))
            if about["format"] != FORMAT:
                raise ResumeError(f"{path} has format {about['format']}, this version reads {FORMAT}")
            return _from_parts(about, arrays, loss)
        except (FileNotFoundError, ResumeError):
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile) as error:
            raise ResumeError(
                f"{path} is not a saved run: run.save(...) and `flockwise simulate` write them"
            ) from error


def _from_parts(about: dict[str, Any], arrays: dict[str, NDArray[Any]], loss: Loss | None) -> Trajectory:
    guarantee = _guarantee(about.get("guarantee"))
    if guarantee is None and "own_models" in arrays:
        raise ResumeError(
            "the file has own models and no guarantee, which private runs have both: not loaded"
        )
    names, seeds = tuple(arrays["agent_names"].tolist()), about["settings"]["seeds"]
    return Trajectory(
        method=about["method"],
        models=run_models(arrays["models"], about["method"], guarantee, seeds, names),
        records=tuple(_records(arrays["records"], about["measures"])),
        loss=loss or _registered_loss(about["loss"]),
        agent_names=names,
        feature_names=tuple(arrays["feature_names"].tolist()),
        updates=arrays["updates"],
        agent_metrics=arrays.get("agent_metrics"),
        own_models=own_models(arrays["own_models"], names) if "own_models" in arrays else None,
        own_metrics=arrays.get("own_metrics"),
        sample_counts=arrays.get("sample_counts"),
        fingerprint=partial(str, about["problem_fingerprint"]),
        settings=about["settings"],
        stopped=about["stopped"],
        guarantee=guarantee,
        has_intercept=about.get("has_intercept", False),
        prior=_prior(about.get("prior"), arrays),
        state={k.removeprefix("state_"): v for k, v in arrays.items() if k.startswith("state_")},
    )


def _records(rows: Floats, measures: list[dict[str, float]]) -> list[Record]:
    whole = ("ticks", "vectors", "bytes")
    values = [dict(zip(RECORD_FIELDS, row.tolist(), strict=True)) for row in rows]
    return [
        Record(**(one | {name: int(one[name]) for name in whole}), measures=more)
        for one, more in zip(values, measures, strict=True)
    ]


def _registered_loss(document: dict[str, Any]) -> Loss:
    if document["name"] not in LOSSES:
        name = document["name"]
        raise ResumeError(f"the run used the loss {name}: give it again as Trajectory.load(path, loss=…)")
    return loss_from_json(document)


def _guarantee(fields: dict[str, Any] | None) -> Guarantee | None:
    if fields is None:
        return None
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
    each = tuple(Budget(**budget) for budget in values.pop("per_agent", ()))
    return Guarantee(**values, per_agent=each)


def _prior(about: list[Any] | None, arrays: dict[str, NDArray[Any]]) -> Prior | None:
    return None if about is None else Prior(arrays["prior_mean"], arrays["prior_covariance"], *about)


def _save_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
