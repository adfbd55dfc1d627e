"""Vector registers in compiled code: several rows times one vector, with all sums in registers.

The compiler makes vector instructions of plain loops too, but it does not know that an agent's rows
are short and many: it adds up each row by itself, and what is left of it number by number. Here the
sums of several rows stay in registers and are added up together, and the rest of a row is one masked
vector, so nothing beyond its end is read.

A lane is one number of a register. All arrays are contiguous and of one type; `index` and `starts`
count numbers from an array's beginning; `count` is how many lanes are meant, or None for all.
"""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

# Rows whose sums are in registers at the same time: half of the 16 that a processor with AVX2 has.
ROWS_TOGETHER = 8
# Shuffles within this many bytes are the cheap ones.
_QUARTER_BYTES = 16
_INDEX = ir.IntType(32)


def _widest_vector() -> int:
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # llvmlite does not know this system
        return 16
    widths = {"avx512f": 64, "avx2": 32}
    return next((size for name, size in widths.items() if features.get(name)), 16)


VECTOR_BYTES = _widest_vector()


class Lanes(types.Type):
    """The type of a register full of floating-point numbers."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype, self.count = dtype, VECTOR_BYTES * 8 // dtype.bitwidth
        super().__init__(f"Lanes({dtype}, {self.count})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        number = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(number, kind.count))


class _Writer:
    """Writes instructions on vectors of one type."""

    def __init__(self, context, builder, lanes: Lanes) -> None:
        self._context, self._builder = context, builder
        self._bytes = lanes.dtype.bitwidth // 8
        self.vector = context.get_value_type(lanes)
        self.zeros = ir.Constant(self.vector, [0.0] * lanes.count)

    def load(self, kind, array, index, count):
        """The numbers from `index` on; where there is a count, its lanes and zeros after them."""
        pointer = self._place(kind, array, index)
        if count is None:
            return self._builder.load(pointer, align=self._bytes)
        arguments = [pointer, _INDEX(self._bytes), self._first(count), self.zeros]
        return self._call("masked.load", ".p0", self.vector, arguments)

    def load_rows(self, kind, array, starts, index, count):
        """The same of each row, one after the other, as they are asked for."""
        for start in _each(self._builder, starts):
            yield self.load(kind, array, self._builder.add(start, index), count)

    def store(self, values, kind, array, index, count=None):
        pointer = self._place(kind, array, index, values.type)
        if count is None:
            self._builder.store(values, pointer, align=self._bytes)
            return
        arguments = [values, pointer, _INDEX(self._bytes), self._first(count)]
        self._call("masked.store", ".p0", ir.VoidType(), arguments)

    def spread(self, number, vector=None):
        """The same number in every lane."""
        vector = vector or self.vector
        undefined = ir.Constant(vector, ir.Undefined)
        lowest = self._builder.insert_element(undefined, number, _INDEX(0))
        return self._builder.shuffle_vector(lowest, undefined, _order([0] * vector.count))

    def multiply_add(self, left, right, total):
        return self._call("fmuladd", "", self.vector, [left, right, total])

    def totals(self, vectors):
        """The sum of each vector's lanes; as many sums in a vector as there are lanes for them."""
        sums = 1
        while len(vectors) > 1 and sums < self.vector.count:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self._added(left, right, *self._halves(sums)) for left, right in pairs]
            sums *= 2
        return [self._folded(vector, sums) for vector in vectors]

    def _halves(self, sums):
        """Which lanes of two vectors, each with groups of so many sums, make groups of twice as many."""
        count, quarter = self.vector.count, _QUARTER_BYTES // self._bytes
        chunk = quarter if 2 * sums <= quarter else count
        halves = [], []
        for start in range(0, count, chunk):
            for half, lanes in zip((0, chunk // 2), halves, strict=True):
                for at in range(start + half, start + half + chunk // 2, sums):
                    lanes.extend(range(at, at + sums))
                    lanes.extend(range(count + at, count + at + sums))
        return halves

    def _folded(self, vector, sums):
        """The groups of a vector added up to one."""
        while vector.type.count > sums:
            half = vector.type.count // 2
            vector = self._added(vector, vector, list(range(half)), list(range(half, 2 * half)))
        return vector

    def _added(self, left, right, lanes, other_lanes):
        shuffled = (self._builder.shuffle_vector(left, right, _order(each)) for each in (lanes, other_lanes))
        return self._builder.fadd(*shuffled)

    def _first(self, count):
        """Which lanes are among the first `count`."""
        numbers = ir.VectorType(count.type, self.vector.count)
        order = ir.Constant(numbers, list(range(self.vector.count)))
        return self._builder.icmp_signed("<", order, self.spread(count, numbers))

    def _place(self, kind, array, index, vector=None):
        data = self._context.make_array(kind)(self._context, self._builder, array).data
        pointer = self._builder.gep(data, [index])
        return self._builder.bitcast(pointer, (vector or self.vector).as_pointer())

    def _call(self, name, suffix, result, arguments):
        name = f"llvm.{name}.v{self.vector.count}f{8 * self._bytes}{suffix}"
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self._builder.call(cgutils.get_or_insert_function(self._builder.module, kind, name), arguments)


def _fit(dtype, *arrays):
    """Whether whole vectors of this type may be read from and written to all of these arrays."""
    return all(array.layout == "C" and array.aligned and array.dtype == dtype for array in arrays)


def _order(lanes):
    return ir.Constant(ir.VectorType(_INDEX, len(lanes)), lanes)


def _count(signature, arguments):
    """The last argument: how many lanes, or None."""
    return None if isinstance(signature.args[-1], types.NoneType) else arguments[-1]


def _each(builder, values):
    return [builder.extract_value(values, row) for row in range(ROWS_TOGETHER)]


@intrinsic
def no_sums(typing_context, like):
    """Sums of nothing, one for each of ROWS_TOGETHER rows, in the type of this array's numbers."""
    lanes = Lanes(like.dtype)
    sums = types.UniTuple(lanes, ROWS_TOGETHER)

    def generate(context, builder, signature, arguments):
        return context.make_tuple(builder, sums, [_Writer(context, builder, lanes).zeros] * ROWS_TOGETHER)

    return sums(like), generate


@intrinsic
def add_products(typing_context, sums, rows, starts, vector, index, count):
    """Each sum plus the products of the vector, from `index` on, with the row that begins at its start."""
    if not _fit(sums.dtype.dtype, rows, vector):
        return None

    def generate(context, builder, signature, arguments):
        sums_before, row_array, row_starts, vector_array, at, _ = arguments
        writer, lanes = _Writer(context, builder, sums.dtype), _count(signature, arguments)
        factor = writer.load(vector, vector_array, at, lanes)
        pairs = zip(
            _each(builder, sums_before), writer.load_rows(rows, row_array, row_starts, at, lanes), strict=True
        )
        return context.make_tuple(
            builder, sums, [writer.multiply_add(row, factor, total) for total, row in pairs]
        )

    return sums(sums, rows, starts, vector, types.intp, count), generate


@intrinsic
def store_totals(typing_context, sums, target, index):
    """target[index + row] = the lanes of a row's sum added up."""
    if not _fit(sums.dtype.dtype, target):
        return None

    def generate(context, builder, signature, arguments):
        writer = _Writer(context, builder, sums.dtype)
        at = arguments[2]
        for totals in writer.totals(_each(builder, arguments[0])):
            writer.store(totals, target, arguments[1], at)
            at = builder.add(at, ir.IntType(64)(totals.type.count))
        return context.get_dummy_value()

    return types.void(sums, target, types.intp), generate


@intrinsic
def spread(typing_context, weights, index):
    """ROWS_TOGETHER numbers of an array, from `index` on, each in all lanes of a register."""
    if not _fit(weights.dtype, weights):
        return None
    lanes = Lanes(weights.dtype)
    spread_out = types.UniTuple(lanes, ROWS_TOGETHER)

    def generate(context, builder, signature, arguments):
        writer = _Writer(context, builder, lanes)
        data = context.make_array(weights)(context, builder, arguments[0]).data
        data = builder.gep(data, [arguments[1]])
        numbers = [builder.load(builder.gep(data, [_INDEX(row)])) for row in range(ROWS_TOGETHER)]
        return context.make_tuple(builder, spread_out, [writer.spread(number) for number in numbers])

    return spread_out(weights, types.intp), generate


@intrinsic
def add_weighted(typing_context, target, weights, rows, starts, index, count):
    """Add the weighted rows to the target, from `index` on."""
    if not _fit(weights.dtype.dtype, rows, target):
        return None

    def generate(context, builder, signature, arguments):
        target_array, row_weights, row_array, row_starts, at, _ = arguments
        writer, lanes = _Writer(context, builder, weights.dtype), _count(signature, arguments)
        total = writer.load(target, target_array, at, lanes)
        row_vectors = writer.load_rows(rows, row_array, row_starts, at, lanes)
        for weight, row in zip(_each(builder, row_weights), row_vectors, strict=True):
            total = writer.multiply_add(row, weight, total)
        writer.store(total, target, target_array, at, lanes)
        return context.get_dummy_value()

    return types.void(target, weights, rows, starts, types.intp, count), generate
