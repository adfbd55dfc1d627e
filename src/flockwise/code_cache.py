"""Keep compiled code on disk: the second process starts in a second instead of a quarter of a minute.

    @compiled(nogil=True)
    def kernel(loss, samples): ...

The name of a file is a hash of all that its code was made from: the package's compiled modules and the
modules they import from, the signature, the code of each class in it that comes from elsewhere (a loss of
your own), the processor, and the versions of Python and numba. So a file is never out of date; at worst it
is not found. numba's own cache looks at one source file alone, and two processes that write at once can
mix up its files.

The files are in FLOCKWISE_CACHE if it is set, else in the user's cache folder. Python's pickle reads them,
so a folder that others can write to is not used.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
from numba import config, njit, types
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from flockwise.errors import FlockwiseError, SimulationError

PACKAGE = __name__.partition(".")[0]
# The versions of these are part of every name, or their code is never inlined into ours.
KNOWN_PACKAGES = frozenset(sys.stdlib_module_names) | {PACKAGE, "numba", "numpy", "llvmlite"}
# These change nothing in the code.
IRRELEVANT = {"NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR", "NUMBA_THREADING_LAYER"}
DAYS_KEPT = 60
SUFFIX = ".nbc"
CONSTANTS = (bool, int, float, complex, str, bytes, type(None))

# Called once, before this process compiles for the first time.
on_first_compilation: Callable[[], None] | None = None


def nothing_compiles() -> FlockwiseError | None:
    """What to tell a user who has switched the compiler off; None if it is on."""
    if not config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    return SimulationError(
        "NUMBA_DISABLE_JIT is set, and this needs compiled code: unset it; engine='reference' runs methods "
        "without privacy uncompiled"
    )


def compiled(**options: Any) -> Callable[[FunctionType], Any]:
    """numba's njit for a function that Python calls, with its code kept on disk."""

    def compile_and_keep(function: FunctionType) -> Any:
        dispatcher = njit(**options)(function)
        if isinstance(dispatcher, Dispatcher):  # not with NUMBA_DISABLE_JIT
            cache = CodeCache(
                function, repr(sorted((name, _ordered(value)) for name, value in options.items()))
            )
            dispatcher._cache = cache  # pyright: ignore[reportAttributeAccessIssue]
        return dispatcher

    return compile_and_keep


def _ordered(option: Any) -> Any:
    """The order of a set of names differs from process to process."""
    return sorted(option) if isinstance(option, set) else option


class CodeCache(_Cache):
    """The code of one function, a file for each signature."""

    def __init__(self, function: FunctionType, options: str) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._options = options
        self._is_enabled = True

    @property
    def cache_path(self) -> Any:
        return cache_folder()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        content = None if path is None else _read(path)
        if content is None:
            _announce()
            return None
        return CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, sig: Any, data: Any) -> None:
        path = self._path(sig, data.codegen)
        if path is None or data.lifted or data.library.has_dynamic_globals:
            return
        try:
            _write(path, dumps(data._reduce()))
        except OSError:  # the disk is full or not ours: the next process compiles again
            return

    def enable(self) -> None:
        self._is_enabled = True

    def disable(self) -> None:
        self._is_enabled = False

    def flush(self) -> None:
        """Nothing to do: a file never goes out of date."""

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        """Where the code for a signature is kept; None if it cannot be kept."""
        if not self._is_enabled:
            return None
        try:
            classes = [code_of(kind) for kind in sorted(set(_foreign_classes(signature)), key=str)]
        except Unkeepable:
            return None
        parts = (self._name, self._options, str(signature), codegen.magic_tuple(), package_code(), classes)
        folder = cache_folder()
        return None if folder is None else folder / f"{self._name}-{_digest(repr(parts))}{SUFFIX}"


class Unkeepable(Exception):
    """Code that refers to something whose changes would go unseen."""


def cache_folder() -> Path | None:
    """Where compiled code is kept; None if there is no folder that only this user can write to."""
    given, base = os.environ.get("FLOCKWISE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(given) if given else Path(base or Path.home() / ".cache") / PACKAGE
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    except (OSError, RuntimeError):  # a disk that cannot be written; a user without a home
        return None
    is_ours = os.name == "nt" or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
    return folder if is_ours else None


@lru_cache(maxsize=1)
def package_code() -> str:
    """A hash of the compiled modules, of the modules they import from, and of what compiles them."""
    root = Path(__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    compiles = {path for path, text in texts.items() if "numba" in text or "code_cache" in text}
    imports = re.compile(rf"^\s*from {PACKAGE}\.([\w.]+) import", re.MULTILINE)
    homes = {root / name.replace(".", "/") for path in compiles for name in imports.findall(texts[path])}
    used = compiles | {home.with_suffix(".py") for home in homes} | {home / "__init__.py" for home in homes}
    settings = sorted(
        item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] not in IRRELEVANT
    )
    versions = (numba.__version__, llvmlite.__version__, sys.version, settings)
    sources = [(str(path.relative_to(root)), texts[path]) for path in sorted(used & texts.keys())]
    return _digest(repr((versions, sources)))


def code_of(kind: type) -> str:
    """A hash of the code of a class and of all functions and constants that it refers to."""
    found: Any = None if kind.__module__ == "__main__" else sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not kind:
        raise Unkeepable(f"another process cannot import {kind.__qualname__}")
    return _digest(repr(list(_parts(kind, set()))))


def _foreign_classes(signature: Any) -> Iterator[type]:
    """The classes of named tuples in a signature that are not this package's own."""
    for argument in signature if isinstance(signature, tuple) else signature.args:
        if isinstance(argument, types.BaseTuple):
            kind = getattr(argument, "instance_class", None)
            if kind is not None and kind.__module__.partition(".")[0] != PACKAGE:
                yield kind
            yield from _foreign_classes(tuple(getattr(argument, "types", ())))


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """All that a value's code depends on, as plain values."""
    if isinstance(value, Dispatcher):
        value = value.py_func
    if isinstance(value, CONSTANTS):
        yield type(value).__name__, value
    elif isinstance(value, tuple | list | frozenset) and type(value).__module__ == "builtins":
        for item in value:
            yield from _parts(item, seen)
    elif id(value) in seen or _is_known(value):
        yield getattr(value, "__qualname__", getattr(value, "__name__", None))
    elif isinstance(value, FunctionType):
        seen.add(id(value))
        yield from _parts(value.__defaults__, seen)
        yield from _parts(tuple(cell.cell_contents for cell in value.__closure__ or ()), seen)
        yield from _code_parts(value.__code__, value.__globals__, seen)
    elif isinstance(value, type):
        seen.add(id(value))
        for base in value.__mro__[1:]:
            yield from _parts(base, seen)
        for name, attribute in sorted(vars(value).items()):
            attribute = getattr(attribute, "__func__", attribute)
            if isinstance(attribute, (FunctionType, Dispatcher, tuple, *CONSTANTS)):
                yield name
                yield from _parts(attribute, seen)
    else:
        raise Unkeepable(f"{value!r} may change unseen")


def _code_parts(code: CodeType, names: dict[str, Any], seen: set[int]) -> Iterator[Any]:
    """A function's instructions and constants, and what its global names stand for."""
    yield code.co_name, code.co_code, code.co_names, code.co_varnames
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant, names, seen)
        else:
            yield from _parts(constant, seen)
    for name in code.co_names:
        value = names.get(name)
        if isinstance(value, ModuleType) and not _is_known(value):
            for attribute in code.co_names:
                if hasattr(value, attribute):
                    yield from _parts(getattr(value, attribute), seen)
        elif name in names:
            yield name
            yield from _parts(value, seen)


def _is_known(value: Any) -> bool:
    """Whether it belongs to a package whose version or code is in every file's name."""
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(value, BuiltinFunctionType) or (
        module is not None and module.partition(".")[0] in KNOWN_PACKAGES and module != "__main__"
    )


def _announce() -> None:
    global on_first_compilation
    listener, on_first_compilation = on_first_compilation, None
    if listener is not None:
        listener()


def _read(path: Path) -> bytes | None:
    """The content of the file; None if it is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content[32:] if hashlib.sha256(content[32:]).digest() == content[:32] else None


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing, also when two processes write at once."""
    _remove_old(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(hashlib.sha256(content).digest() + content)
    os.replace(name, path)


@lru_cache(maxsize=1)
def _remove_old(folder: Path) -> None:
    """Remove code that was compiled long ago, mostly of older versions; no other file."""
    oldest = time.time() - DAYS_KEPT * 24 * 3600
    for path in folder.glob(f"{PACKAGE}.*{SUFFIX}"):
        if path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
