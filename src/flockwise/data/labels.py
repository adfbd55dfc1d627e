"""Agent labels, one per row and in any order → positions of agents, and the rows of each together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flockwise.data.checks import cell_error, distinct, quoted
from flockwise.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


def names_of(agents: Iterable[str | int]) -> tuple[str, ...]:
    """Agents given by the caller as text or integers: 17 and "17" are the same agent."""
    return distinct(map(_as_text, agents), "agent")


def is_numbered(names: Sequence[str]) -> bool:
    """Whether every agent is called by its position: "0", "1", …"""
    return names[-1] == str(len(names) - 1) and tuple(names) == tuple(map(str, range(len(names))))


def unless_numbered(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names that say more than the order of the agents does; None for "0", "1", …"""
    return None if names is None or is_numbered(names) else tuple(names)


def encode_labels(
    labels: pa.ChunkedArray, column: str, names: Sequence[str] | None = None, before: int = 0
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The position of each row's agent, and the agents' names in that order.

    Without `names`, agents are sorted (as numbers when all labels are whole numbers), whatever the order
    of the rows. before: rows ahead of these, for messages.
    """
    codes, found = _factorize(labels, column, before)
    ordered = tuple(sorted_labels(found)) if names is None else tuple(names)
    position = {name: place for place, name in enumerate(ordered)}
    for code, name in enumerate(found):
        if name not in position:
            row = int(np.argmax(codes == code))
            known = f"is not one of the agents given ({quoted(ordered)}); add it there or drop its rows"
            raise cell_error(name, column, before + row, known)
    recode = np.array([position[name] for name in found], dtype=np.int64)
    return recode[codes], ordered


def label_array(agents: Any) -> pa.ChunkedArray:
    """Labels from a NumPy array or a list, ready for `encode_labels`."""
    import pyarrow as pa  # large, and no business of a real agent

    try:
        values = np.asarray(agents)
        if values.ndim != 1:
            raise DataError(f"agents must hold one label per row, got an array of shape {values.shape}")
        converted = pa.array(values, from_pandas=values.dtype.kind in "Of")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"agents holds labels of several kinds; use text or integers throughout ({error})"
        ) from None
    # Long text comes back in chunks already.
    return converted if isinstance(converted, pa.ChunkedArray) else pa.chunked_array([converted])


def packing_order(
    codes: NDArray[np.int64], n_agents: int
) -> tuple[NDArray[np.int64] | slice, NDArray[np.int64]]:
    """The rows in agent order (the order within an agent is kept), and where each agent's rows begin."""
    offsets = np.zeros(n_agents + 1, dtype=np.int64)
    np.cumsum(np.bincount(codes, minlength=n_agents), out=offsets[1:])
    if np.all(codes[1:] >= codes[:-1]):
        return slice(None), offsets
    return np.argsort(codes, kind="stable"), offsets


def _factorize(labels: pa.ChunkedArray, column: str, before: int) -> tuple[NDArray[Any], list[str]]:
    labels = plain_labels(labels, column)
    missing = labels.is_null().to_numpy()
    if missing.any():
        raise _missing_label(column, before + int(np.argmax(missing)))
    # Encoded before the chunks are joined: joined text may exceed the 2 GiB of one Arrow array.
    encoded = labels.dictionary_encode().combine_chunks()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    found = [str(value) for value in encoded.dictionary.to_pylist()]
    if "" in found:
        raise _missing_label(column, before + int(np.argmax(codes == found.index(""))))
    return codes, found


def plain_labels(labels: pa.ChunkedArray, column: str) -> pa.ChunkedArray:
    """Text or integers, whatever encoding they came in."""
    import pyarrow as pa  # as above

    kind = labels.type
    if pa.types.is_dictionary(kind):
        categories = (plain_labels(pa.chunked_array([chunk.dictionary]), column) for chunk in labels.chunks)
        pairs = zip(categories, labels.chunks, strict=True)
        return pa.chunked_array([known.combine_chunks().take(chunk.indices) for known, chunk in pairs])
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return labels
    if pa.types.is_string_view(kind):
        # Arrow cannot encode views.
        return labels.cast(pa.large_string())
    if pa.types.is_null(kind):
        raise _missing_label(column, 0)
    if labels.null_count:  # whole numbers with a gap are no longer whole numbers in pandas
        raise _missing_label(column, int(np.argmax(labels.is_null().to_numpy())))
    raise DataError(f"column {column!r}: agents must be text or integers, got {kind}; convert the column")


def _as_text(label: Any) -> Any:
    # Anything else stays as it is and is refused as a name.
    return str(label) if isinstance(label, (int, np.integer)) else label


def _missing_label(column: str, row: int) -> DataError:
    return cell_error(None, column, row, "the agent is missing; fill it or drop the row")


def sorted_labels(labels: list[str]) -> list[str]:
    if all(WHOLE_NUMBER.fullmatch(label) for label in labels):
        return sorted(labels, key=int)
    return sorted(labels)
