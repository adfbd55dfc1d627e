"""Where models came from, as their tables say it: in files, Arrow tables and data frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from flockwise.privacy.origin import Origin

KEY: Final = "flockwise"


def table_metadata(about: Mapping[str, Any], origin: Origin) -> dict[str, str]:
    """Metadata of an Arrow table or a Parquet file; pandas shows the same as `attrs`."""
    document = {**about, "origin": origin.to_json()}
    frame = {"index_columns": [], "column_indexes": [], "columns": [], "attributes": {KEY: document}}
    return {KEY: json.dumps(document), "pandas": json.dumps(frame)}


def exported_origin(table: Any) -> Origin | None:
    """The origin that a table of exported models states; None for all other tables."""
    attributes = getattr(table, "attrs", None)
    if isinstance(attributes, Mapping) and KEY in attributes:
        return Origin.from_json(attributes[KEY]["origin"])
    metadata = getattr(getattr(table, "schema", None), "metadata", None)
    if isinstance(metadata, Mapping) and KEY.encode() in metadata:
        return Origin.from_json(json.loads(metadata[KEY.encode()])["origin"])
    return None
