"""Models that stay in the files which shards wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import DTypeLike, NDArray

from flockwise.data.stored import opened, positions_among
from flockwise.errors import DataError
from flockwise.files import write_whole
from flockwise.privacy.origin import Origin
from flockwise.privacy.tracked import tracked
from flockwise.results.export import filled_table


def write_models(
    file: str | Path, schema: pa.Schema, names: Sequence[str], models: NDArray[Any], *, is_secret: bool
) -> None:
    """One shard's part, whole or not at all."""
    table = filled_table(schema, names, models)
    write_whole(file, lambda part: pq.write_table(table, part, write_page_checksum=True), is_secret=is_secret)


@dataclass(frozen=True, eq=False)
class StoredModels:
    """Everyone's models in files named `<stem>-*.parquet`; as an array they are read, all together."""

    folder: str
    stem: str
    agent_names: tuple[str, ...]
    dimension: int
    dtype: np.dtype[Any]
    origin: Origin

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.agent_names), self.dimension

    @property
    def files(self) -> list[Path]:
        return sorted(Path(self.folder).glob(f"{self.stem}-*.parquet"))

    def __len__(self) -> int:
        return len(self.agent_names)

    def __getitem__(self, key: Any) -> Any:
        return self._read[key]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self._read, dtype)

    @cached_property
    def _read(self) -> NDArray[Any]:
        models, found = np.empty(self.shape, self.dtype), np.zeros(len(self), bool)
        names = pa.array(self.agent_names, pa.string())
        for file in self.files:
            with opened(file) as stream:
                table = stream.read()
            places = positions_among(names, table.column(0).combine_chunks())
            if len(places) and places.min() < 0:
                raise DataError(f"{file}: there is an agent in it that had no part in the run")
            for k in range(self.dimension):
                models[places, k] = table.column(k + 1).to_numpy()
            found[places] = True
        if not found.all():
            missing = self.agent_names[int(np.argmin(found))]
            raise DataError(f"agent {missing!r} has no model in {self.folder}/{self.stem}-*.parquet")
        models.flags.writeable = False
        return tracked(models, self.origin)
