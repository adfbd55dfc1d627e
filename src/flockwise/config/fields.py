"""The kinds of value a configuration knows; the description of each completes "allowed: …" in an error."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

TABLE_SUFFIXES = (".csv", ".parquet")


class Section(BaseModel):
    """One [section]: no unknown keys, no conversions between kinds of value, no infinities."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def existing_table(value: Any, info: ValidationInfo) -> Path:
    """The file that a configuration names, relative to the folder of the configuration itself."""
    if not isinstance(value, str) or Path(value).suffix.lower() not in TABLE_SUFFIXES:
        raise PydanticCustomError("not_a_table", "not a table")
    path = _folder(info) / value
    if not path.is_file():
        raise PydanticCustomError("no_such_file", "there is no file {path}", {"path": str(path)})
    return path


def existing_folder(value: Any, info: ValidationInfo) -> Path:
    """The folder that a configuration names, relative to its own."""
    if not isinstance(value, str):
        raise PydanticCustomError("not_a_folder", "not a folder")
    path = _folder(info) / value
    if not path.is_dir():
        raise PydanticCustomError("no_such_file", "there is no folder {path}", {"path": str(path)})
    return path


def _folder(info: ValidationInfo) -> Path:
    return (info.context or {}).get("folder", Path())


Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**64, description="a whole number from 0 to below 2^64")]
Count: TypeAlias = Annotated[int, Field(ge=1, description="a whole number from 1 on")]
CountFromZero: TypeAlias = Annotated[int, Field(ge=0, description="a whole number from 0 on")]
Positive: TypeAlias = Annotated[float, Field(gt=0, description="a number above 0")]
NotNegative: TypeAlias = Annotated[float, Field(ge=0, description="a number from 0 on")]
Delay: TypeAlias = Annotated[float, Field(ge=0, lt=1e6, description="a number from 0 to below 1e6")]
OfflineLength: TypeAlias = Annotated[
    float, Field(ge=1e-6, lt=1e6, description="a number from 1e-6 to below 1e6")
]
Duration: TypeAlias = Annotated[float, Field(ge=1e-6, le=1e6, description="a number from 1e-6 to 1e6")]
Probability: TypeAlias = Annotated[float, Field(ge=0, le=1, description="a number from 0 to 1")]
ShareBelowOne: TypeAlias = Annotated[float, Field(ge=0, lt=1, description="a number from 0 to below 1")]
ShareInside: TypeAlias = Annotated[
    float, Field(gt=0, lt=1, description="a number between 0 and 1, both excluded")
]
Contraction: TypeAlias = Annotated[float, Field(gt=0, le=1, description="a number above 0 and at most 1")]
Name: TypeAlias = Annotated[str, Field(min_length=1, description="a name in quotes")]
Names: TypeAlias = Annotated[list[str], Field(min_length=1, description="a list of column names")]
Flag: TypeAlias = Annotated[bool, Field(description="true or false")]
Table: TypeAlias = Annotated[
    Path, BeforeValidator(existing_table), Field(description="an existing .csv or .parquet file")
]
Folder: TypeAlias = Annotated[
    Path, BeforeValidator(existing_folder), Field(description="an existing folder, in quotes")
]
FloatType: TypeAlias = Literal["float64", "float32"]
