"""An agent read for its owner: its own model and predictions of it.

The agent is read from its folder and not run, so it may run meanwhile: nothing is sent, spent or changed. A
running agent writes what it hears every few seconds; what it heard since is not in the model yet.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, parquet

from flockwise.data.tables import read_table
from flockwise.deploy.folder import UNREADABLE, AgentFolder
from flockwise.deploy.keyfiles import write_file
from flockwise.deploy.settings import NetworkSettings
from flockwise.errors import DataError, LedgerError
from flockwise.net.journal import read_result
from flockwise.net.store import read_state
from flockwise.objective import Loss
from flockwise.objective.losses import coefficient_names
from flockwise.privacy.ledger import MemoryLedger, read_statement
from flockwise.privacy.noise import SecureNoise
from flockwise.privacy.origin import Origin
from flockwise.privacy.tracked import origin_of
from flockwise.results.export import ABOUT_NOT_RELEASED, ABOUT_OWN, models_table
from flockwise.results.frames import Trained, rows_of
from flockwise.runtime.durable import define_agent
from flockwise.runtime.newest import ledger_folder
from flockwise.runtime.participant import Participant
from flockwise.runtime.testing import AgentMemory, ManualTime, MemoryNetwork, MemoryStore

ARRAYS: Final = ".npz"
SENT: Final = Origin("the model that an agent without privacy sends", "private")


def read_agent(folder: AgentFolder) -> Participant:
    """The agent as its disk has it, in memory and on no network."""
    definition, memory = define_agent(folder), AgentMemory(folder.name)
    state = read_state(folder.state)
    memory.store = MemoryStore(state)
    if definition.budget is not None and len(definition.samples.targets):
        places = range(1 + len(state.batches)) if definition.budget.has_batches else range(1)
        memory.ledgers = [_read_ledger(ledger_folder(folder.state, place)) for place in places]
    result = read_result(folder.state)
    if result is not None:
        memory.journal.end(result)
    time = ManualTime()
    participant = Participant(definition, memory.resources(MemoryNetwork(), time, SecureNoise()))
    participant.node.start(time.now())
    return participant


def predict_rows(folder: AgentFolder, file: Path) -> NDArray[Any]:
    """By the own model, one label or value for each row of a .csv, .parquet or .npz file."""
    return read_agent(folder).predict(read_features(folder, file))


def own_model_table(folder: AgentFolder) -> pa.Table:
    """The own model as a table with one row, which says that it must not be shown."""
    agent = read_agent(folder)
    model = agent.own_model()
    coefficients = coefficient_names(_loss(folder), _features(folder, len(model)).feature_names)
    origin = origin_of(model)
    about = ABOUT_NOT_RELEASED if origin is None else ABOUT_OWN
    return models_table([folder.name], coefficients, np.asarray(model)[None], about, origin or SENT)


def write_predictions(file: Path, predicted: NDArray[Any]) -> None:
    """Readable by their owner alone."""
    _write(file, ".csv", csv.write_csv, pa.table({"prediction": predicted}))


def write_model(file: Path, model: pa.Table) -> None:
    """Readable by its owner alone. CSV could not say what it is."""
    _write(file, ".parquet", parquet.write_table, model)


def _write(file: Path, suffix: str, write: Callable[[pa.Table, BytesIO], Any], table: pa.Table) -> None:
    if file.suffix.lower() != suffix:
        raise DataError(f"{file}: name a {suffix} file")
    content = BytesIO()
    write(table, content)
    write_file(file, content.getvalue(), is_secret=True)


def read_features(folder: AgentFolder, file: Path) -> NDArray[np.float64]:
    """Rows of a table, by the names of its columns, or the array `features` of an .npz file, by position."""
    trained = _features(folder, folder.neighborhood.dimension)
    try:
        data = _read_array(file) if file.suffix.lower() == ARRAYS else read_table(file)
        return rows_of(data, 0, None, None, trained).features
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


def _read_array(file: Path) -> NDArray[Any]:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return np.asarray(arrays["features"], np.float64)
    except UNREADABLE as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else type(error).__name__
        raise DataError(f"cannot be read ({what}); it must hold the array 'features' of numbers") from None


def _features(folder: AgentFolder, dimension: int) -> Trained:
    """What new rows have to bring. Where nobody named the features they are called x0, x1, …"""
    settings = NetworkSettings.of(folder.neighborhood)
    count = dimension // settings.objective.loss.outputs
    names = settings.feature_names or tuple(f"x{place}" for place in range(count))
    return Trained((folder.name,), names, settings.has_intercept)


def _loss(folder: AgentFolder) -> Loss:
    return NetworkSettings.of(folder.neighborhood).objective.loss


def _read_ledger(folder: Path) -> MemoryLedger:
    """A ledger in memory with the same entries; one that is damaged is refused."""
    statement = read_statement(folder)
    if statement.problems:
        raise LedgerError(f"{folder}: the ledger is damaged ({statement.problems[0]})")
    ledger = MemoryLedger(statement.account.agent)
    if statement.account.plan is not None:
        ledger.grant(statement.account.plan)
    for row in statement.rows:
        ledger.record(row.entry())
    return ledger
