"""Models as a table, which says what models they are and where they came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from flockwise.privacy.exported import sealed, table_metadata
from flockwise.privacy.origin import Origin

# What a file says of the models in it.
ABOUT_OWN: Final[Mapping[str, Any]] = {
    "which": "own",
    "note": "own models, made of private data without noise: they stay on the device and must not be shown",
}
ABOUT_NOT_RELEASED: Final[Mapping[str, Any]] = {
    "which": "models",
    "note": "models, made of private data without noise",
}


def agent_column(coefficients: Sequence[str]) -> str:
    """What the column of names is called: "agent", unless a feature is."""
    column = "agent"
    while column in coefficients:
        column += "_name"
    return column


def models_table(
    agents: Iterable[str],
    coefficients: Sequence[str],
    models: NDArray[Any],
    about: Mapping[str, Any],
    origin: Origin,
) -> pa.Table:
    """One row per agent, one column per coefficient; `about` and the origin go into the metadata."""
    values = np.asarray(models)
    return filled_table(models_schema(coefficients, values.dtype, about, origin), agents, values)


def models_schema(
    coefficients: Sequence[str], dtype: np.dtype[Any], about: Mapping[str, Any], origin: Origin
) -> pa.Schema:
    """Of such a table, before there are models."""
    number = pa.from_numpy_dtype(dtype)
    columns = [(agent_column(coefficients), pa.string()), *((name, number) for name in coefficients)]
    return pa.schema(columns, table_metadata(about, origin))


def filled_table(schema: pa.Schema, agents: Iterable[str], models: NDArray[Any]) -> pa.Table:
    """With these agents' models."""
    return sealed(pa.table([pa.array(list(agents), pa.string()), *models.T], schema=schema))
