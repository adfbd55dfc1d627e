"""A barrier for compiled threads that run outside the interpreter's lock.

Python's own primitives cost tens of microseconds a hand-over, as much as dozens of updates. This
one costs less than one update when all threads run, and gives the processor away when they do not.
"""

from __future__ import annotations

import sys

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

SPINS_BEFORE_YIELDING = 2000
ARRIVED, GENERATION = 0, 8  # in the barrier's array, a cache line apart
BARRIER_SIZE = 16

# By its name, not its address: code with an address in it cannot be kept on disk.
give_way = types.ExternalFunction(
    "SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32()
)


@intrinsic
def atomic_add(typing_context, array, index, amount):
    """Add to an element in one step that all threads see in the same order; returns the old value."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", builder.gep(data, [arguments[1]]), arguments[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def atomic_load(typing_context, array, index):
    """Read an element as the other threads have left it."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.gep(data, [arguments[1]])
        return builder.load_atomic(pointer, "seq_cst", 8, typ=ir.IntType(64))

    return types.int64(array, types.intp), generate


@njit(nogil=True)
def wait_for_all(barrier, parts):
    """Return when all `parts` threads have called this; `barrier` is an int64 array of BARRIER_SIZE zeros."""
    if parts == 1:
        return
    generation = atomic_load(barrier, GENERATION)  # pyright: ignore[reportCallIssue]
    if atomic_add(barrier, ARRIVED, 1) == parts - 1:
        atomic_add(barrier, ARRIVED, -parts)
        atomic_add(barrier, GENERATION, 1)
        return
    spins = 0
    while atomic_load(barrier, GENERATION) == generation:
        spins += 1
        if spins > SPINS_BEFORE_YIELDING:
            give_way()
