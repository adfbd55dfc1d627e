"""Small fits run on one thread: more of them would wait for each other for longer than they work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from numba import get_num_threads, set_num_threads
from threadpoolctl import threadpool_limits

# A pass over fewer numbers takes less than a millisecond.
SMALL: Final = 1_000_000


@contextmanager
def threads_for(n_numbers: int) -> Iterator[None]:
    """All threads for a table of so many numbers, or one if it is small."""
    if n_numbers > SMALL:
        yield
        return
    threads = get_num_threads()
    set_num_threads(1)
    try:
        with threadpool_limits(1, "blas"):
            yield
    finally:
        set_num_threads(threads)
