"""Intermediate results on disk, so that a long run can be stopped at any time and goes on where it was."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from flockwise.files import write_whole

# Told before each step: steps done, steps in all if known, and the name of the next one.
Progress: TypeAlias = Callable[[int, int | None, str], None]

FOLDER = ".work"


def _silent(done: int, total: int | None, key: str) -> None:
    pass


class Workbook:
    """The steps of one experiment in folder/.work/NAME, each written as soon as it is there.

    A step is a function of plain values (numbers, strings, tuples, frozen dataclasses of them) that
    returns what JSON can hold. It is computed again when its arguments or the code of the file that it is
    written in have changed; after any other change to the code, remove the folder.
    """

    def __init__(self, folder: Path, name: str, progress: Progress = _silent) -> None:
        self._folder = folder / FOLDER / name
        self._progress = progress
        self._total: int | None = None
        self._done = 0
        self.seconds = 0.0
        """Of processor time, that all steps have taken, whenever they were computed."""

    def expect(self, steps: int) -> None:
        """So many steps are still to come: the bar can then say how far the run is."""
        self._total = self._done + steps

    def compute(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(*arguments), or what it returned when it was computed before under this key."""
        self._progress(self._done, self._total, key)
        path = self._folder / f"{key}.json"
        print_of_step = _fingerprint(function, arguments)
        saved = _saved(path, print_of_step)
        if saved is None:
            started = time.process_time()
            value = function(*arguments)
            saved = {
                "step": print_of_step,
                "seconds": round(time.process_time() - started, 3),
                "value": value,
            }
            text = json.dumps(saved, allow_nan=False)
            write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
            # What a fresh run gets is what a resumed one would: lists for tuples, text for keys.
            saved = json.loads(text)
        self._done += 1
        self.seconds += saved["seconds"]
        return saved["value"]


def _fingerprint(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Changes with the arguments and with the file that the function is written in."""
    words = f"{function.__qualname__}{arguments!r}\n{_code(function.__module__)}"
    return hashlib.sha256(words.encode()).hexdigest()


@lru_cache(maxsize=64)
def _code(module: str) -> str:
    """Without comments and layout. Read once: a file that is edited meanwhile is not the one that runs."""
    return ast.dump(ast.parse(inspect.getsource(sys.modules[module])))


def _saved(path: Path, print_of_step: str) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    saved = json.loads(path.read_text(encoding="utf-8"))
    return saved if saved["step"] == print_of_step else None
