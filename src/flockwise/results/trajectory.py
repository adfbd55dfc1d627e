"""What a run leaves behind: the models, the records along the way, and all it needs to go on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from flockwise.errors import DataError, ResumeError
from flockwise.files import write_whole
from flockwise.objective import CappedLogistic, Huber, Logistic, Loss, Quadratic, Softmax
from flockwise.privacy.guarantee import Guarantee
from flockwise.results.own import OwnModels

BUILT_IN_LOSSES = {kind.__name__: kind for kind in (Logistic, CappedLogistic, Softmax, Quadratic, Huber)}
FORMAT = 1
OPTIONAL_ARRAYS = ("agent_metrics", "own_models", "own_metrics")


@dataclass(frozen=True)
class Record:
    """The run at one moment of simulated time: all ticks up to it are done, none after.

    time is in mean intervals between two ticks of an agent; metric and metric_sd are the mean and
    the standard deviation over agents on test data; vectors are models sent along an edge.
    """

    time: float
    ticks: int
    objective: float
    metric: float
    metric_sd: float
    vectors: int
    bytes: int


RECORD_FIELDS = tuple(Record.__dataclass_fields__)


@dataclass(frozen=True)
class Trajectory:
    """One run of one method: its final models and its records.

    In a private run `models` are what the agents released, for which `guarantee` holds; `own_models` are
    what each agent made of them with its own data. Those are never sent, and no guarantee holds for them.
    """

    method: str
    models: NDArray[Any]
    records: tuple[Record, ...]
    loss: Loss
    agent_names: Sequence[str]
    updates: NDArray[np.int64]
    agent_metrics: NDArray[np.float64] | None
    problem_fingerprint: str
    settings: Mapping[str, Any]
    stopped: str
    state: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    own_models: OwnModels | None = None
    own_metrics: NDArray[np.float64] | None = None
    guarantee: Guarantee | None = None

    def column(self, name: str) -> NDArray[Any]:
        """One field of all records, as an array."""
        if name not in RECORD_FIELDS:
            raise DataError(f"no record field {name!r}; there are {', '.join(RECORD_FIELDS)}")
        return np.array([getattr(record, name) for record in self.records])

    @property
    def final(self) -> Record:
        """The last record."""
        return self.records[-1]

    def predict(self, features: ArrayLike, agents: ArrayLike) -> NDArray[Any]:
        """Predictions for rows of features by the model of its agent (index or name, or one for all)."""
        rows = np.atleast_2d(np.asarray(features, self.models.dtype))
        indices = self._indices(agents)
        if indices.shape not in ((), (1,), (len(rows),)):
            raise DataError(
                f"agents must be one, or one for each of the {len(rows)} rows; got {indices.size}"
            )
        indices = np.broadcast_to(indices, (len(rows),))
        blocks = self.models.reshape(len(self.models), self.loss.outputs, -1)
        if rows.shape[1] != blocks.shape[2]:
            raise DataError(f"features must have {blocks.shape[2]} columns, got {rows.shape[1]}")
        return self.loss.predict(np.einsum("rf,rof->ro", rows, blocks[indices]))

    def _indices(self, agents: ArrayLike) -> NDArray[np.int64]:
        wanted = np.asarray(agents)
        if wanted.dtype.kind in "iu":
            wrong = (wanted < 0) | (wanted >= len(self.models))
            if wrong.any():
                raise DataError(f"no agent {wanted[wrong].flat[0]}; agents are 0 to {len(self.models) - 1}")
            return wanted.astype(np.int64)
        position = {name: i for i, name in enumerate(self.agent_names)}
        unknown = [name for name in wanted.ravel().tolist() if name not in position]
        if unknown:
            raise DataError(f"no agent named {unknown[0]!r} in this run")
        return np.array([position[name] for name in wanted.ravel().tolist()]).reshape(wanted.shape)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """The models as a table: one row per agent, one column per coordinate."""
        columns = {"agent": pa.array(list(self.agent_names), pa.string())}
        columns |= {f"coefficient_{d}": pa.array(self.models[:, d]) for d in range(self.models.shape[1])}
        write_whole(path, lambda part: pq.write_table(pa.table(columns), part))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Everything, in one file without executable content; load it with `Trajectory.load`."""
        arrays = {f"state_{name}": array for name, array in self.state.items()}
        arrays |= {"models": self.models, "updates": self.updates}
        arrays["records"] = np.array(
            [[getattr(record, name) for name in RECORD_FIELDS] for record in self.records], np.float64
        )
        arrays["agent_names"] = np.array(list(self.agent_names), dtype=np.str_)
        for name in OPTIONAL_ARRAYS:
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        about = {
            "format": FORMAT,
            "method": self.method,
            "loss": [type(self.loss).__name__, [_plain(field) for field in self.loss]],  # type: ignore[attr-defined]
            "problem_fingerprint": self.problem_fingerprint,
            "settings": dict(self.settings),
            "stopped": self.stopped,
            "guarantee": None if self.guarantee is None else asdict(self.guarantee),
        }
        arrays["about"] = np.array(json.dumps(about))
        write_whole(path, lambda part: _save_arrays(part, arrays))

    @staticmethod
    def load(path: str | os.PathLike[str], *, loss: Loss | None = None) -> Trajectory:
        """A saved run; a loss that is not one of Flockwise's own has to be given again."""
        try:
            with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(str(arrays.pop("about")))
            if about["format"] != FORMAT:
                raise ResumeError(f"{path} has format {about['format']}, this version reads {FORMAT}")
            return Trajectory._from_parts(about, arrays, loss)
        except (FileNotFoundError, ResumeError):
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile) as error:
            raise ResumeError(f"{path} is not a saved run: {error!r}") from error

    @staticmethod
    def _from_parts(about: dict[str, Any], arrays: dict[str, NDArray[Any]], loss: Loss | None) -> Trajectory:
        return Trajectory(
            method=about["method"],
            models=arrays["models"],
            records=tuple(_record(row) for row in arrays["records"]),
            loss=loss or _built_in_loss(*about["loss"]),
            agent_names=tuple(arrays["agent_names"].tolist()),
            updates=arrays["updates"],
            agent_metrics=arrays.get("agent_metrics"),
            own_models=arrays["own_models"].view(OwnModels) if "own_models" in arrays else None,
            own_metrics=arrays.get("own_metrics"),
            problem_fingerprint=about["problem_fingerprint"],
            settings=about["settings"],
            stopped=about["stopped"],
            guarantee=_guarantee(about.get("guarantee")),
            state={k.removeprefix("state_"): v for k, v in arrays.items() if k.startswith("state_")},
        )


def _record(row: NDArray[np.float64]) -> Record:
    values = dict(zip(RECORD_FIELDS, row.tolist(), strict=True))
    return Record(**(values | {name: int(values[name]) for name in ("ticks", "vectors", "bytes")}))


def _built_in_loss(name: str, parameters: list[Any]) -> Loss:
    if name not in BUILT_IN_LOSSES:
        raise ResumeError(f"the run used the loss {name}: give it again as Trajectory.load(path, loss=…)")
    return BUILT_IN_LOSSES[name](*parameters)


def _guarantee(fields: dict[str, Any] | None) -> Guarantee | None:
    if fields is None:
        return None
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
    return Guarantee(**values)


def _plain(number: Any) -> Any:
    """A NumPy number as Python's own, for JSON."""
    return number.item() if isinstance(number, np.generic) else number


def _save_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
