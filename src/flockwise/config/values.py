"""The kinds of value that only a configuration file knows: files, folders, names and switches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from flockwise.checks import Allowed
from flockwise.data.tables import SUFFIXES


class Section(BaseModel):
    """One [section]: no unknown keys, no conversions between kinds of value, no infinities."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def existing_table(value: Any, info: ValidationInfo) -> Path:
    """The file that a configuration names, relative to the folder of the configuration itself."""
    if not isinstance(value, str) or Path(value).suffix.lower() not in SUFFIXES:
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


Name: TypeAlias = Annotated[str, Field(min_length=1), Allowed("a name in quotes")]
Names: TypeAlias = Annotated[list[str], Field(min_length=1), Allowed("a list of column names")]
Flag: TypeAlias = Annotated[bool, Allowed("true or false")]
Table: TypeAlias = Annotated[
    Path, BeforeValidator(existing_table), Allowed("an existing .csv or .parquet file")
]
Folder: TypeAlias = Annotated[
    Path, BeforeValidator(existing_folder), Allowed("an existing folder, in quotes")
]
FloatType: TypeAlias = Literal["float64", "float32"]
