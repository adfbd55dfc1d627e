"""Where models came from, as their tables say it: in files, Arrow tables and data frames."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final

import numpy as np

from flockwise.privacy.origin import Origin, worse

KEY: Final = "flockwise"


def table_metadata(about: Mapping[str, Any], origin: Origin) -> dict[str, str]:
    """Metadata of an Arrow table or a Parquet file; pandas shows the same as `attrs`."""
    return _metadata({**about, "origin": origin.to_json()})


def sealed(table: Any) -> Any:
    """The Arrow table, with a digest by which it is known to be unchanged."""
    document = json.loads(table.schema.metadata[KEY.encode()])
    return table.replace_schema_metadata(_metadata({**document, "digest": _digest(table)}))


def exported_origin(table: Any) -> Origin | None:
    """The origin that a table of exported models states; None for all other tables.

    It is unknown at best if the table holds anything else than what was exported.
    """
    document = _document(table)
    if document is None:
        return None
    origin = Origin.from_json(document["origin"])
    if document.get("digest", "") == _digest(table):
        return origin
    return replace(
        origin, what=f"{origin.what}, changed since the export", status=worse(origin.status, "unknown")
    )


def _metadata(document: Mapping[str, Any]) -> dict[str, str]:
    frame = {"index_columns": [], "column_indexes": [], "columns": [], "attributes": {KEY: document}}
    return {KEY: json.dumps(document), "pandas": json.dumps(frame)}


def _document(table: Any) -> Mapping[str, Any] | None:
    attributes = getattr(table, "attrs", None)
    metadata = getattr(getattr(table, "schema", None), "metadata", None)
    if isinstance(metadata, Mapping):
        if KEY.encode() in metadata:
            return json.loads(metadata[KEY.encode()])
        # A data frame that became a table.
        attributes = json.loads(metadata.get(b"pandas", "{}")).get("attributes")
    return attributes.get(KEY) if isinstance(attributes, Mapping) else None


def _digest(table: Any) -> str | None:
    """Of names and values, in any order of the columns; None for no table, or one to be read only once."""
    # Imported here: an agent that exports nothing needs no Arrow.
    import pyarrow as pa

    if isinstance(table, pa.RecordBatchReader):
        return None
    try:
        found = pa.table(table)
    except (pa.ArrowException, ValueError, TypeError):
        return None
    digest = hashlib.sha256()
    for name, column in sorted(zip(found.column_names, found.columns, strict=True), key=itemgetter(0)):
        if pa.types.is_floating(column.type):
            values = column.to_numpy().astype(np.float64).tobytes()
        else:
            values = json.dumps(column.to_pylist(), default=str).encode()
        digest.update(json.dumps([name, len(values)]).encode() + values)
    return digest.hexdigest()
