"""Kernels that only fill an array with one number, as memsets.

    kernel y_init:  y[j] = 0  for all j of y's box   --->   cuMemsetD32Async(y, 0, 70, stream)

A kernel is a memset iff it does nothing but initialise accumulators (Kind.INIT) of one array, all
of it, in memory without gaps, with a number of at most four bytes, or one that repeats after four.
Mostly it is the kernel before one that adds by atomics.  The plan keeps the kernel, so that
whatever verifies it sees the writes; what runs is decided when it is printed.

A kernel that fills two arrays stays one: two memsets would be two steps on the stream.
"""

from collections.abc import Sequence

import islpy as isl
import numpy as np

from tcdsl.codegen.c.expressions import identity_of
from tcdsl.codegen.cuda.source import Memset, Parameter
from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.isl_utils import within
from tcdsl.poly.loop_tree import statements_of
from tcdsl.poly.scop import Array, Kind, Scop, Statement
from tcdsl.schedule.plan import Kernel

MAX_WIDTH = 4  # bytes of what the driver repeats


def memset_of(scop: Scop, kernel: Kernel, target: Parameter) -> Memset | None:
    """Return the memset of *target*, the only array of *kernel*, that does the same, or None."""
    array = scop.arrays[target.name]
    statements = [scop.by_name[name] for name in statements_of(kernel.tree)]
    if not all(map(_fills, statements)):
        return None
    if not (is_dense(array) and _covers(statements, array)):
        return None
    number, *others = {_bytes_of(statement, array.dtype) for statement in statements}
    width, size_bytes = _width_of(number), array.size_bytes()
    if others or width is None or not size_bytes:
        return None
    value = int.from_bytes(number[:width], "little")
    return Memset(target, width, value, size_bytes // width, kernel.name)


def is_dense(array: Array) -> bool:
    """Return whether the elements of *array* are all that lies between its first and its last."""
    if array.strides is None:
        return True
    dims = zip(array.strides, array.shape, strict=True)
    known = [(s, n) for s, n in dims if isinstance(s, int) and isinstance(n, int)]
    if len(known) < array.rank:
        return False  # the rest is known only at the call
    step = 1
    for stride, extent in sorted(known):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _fills(statement: Statement) -> bool:
    """Return whether *statement* stores one number, and nothing beside it (as an argmax does)."""
    return statement.kind is Kind.INIT and statement.companion is None


def _covers(statements: Sequence[Statement], array: Array) -> bool:
    """Return whether *statements* together write every element of *array*."""
    relations = [s.write.relation.intersect_domain(s.domain) for s in statements]
    box = isl.Set.universe(relations[0].get_space().range())
    for dim, (origin, extent) in enumerate(zip(array.origin, array.shape, strict=True)):
        if not (isinstance(origin, int) and isinstance(extent, int)):
            return False
        box = within(box, isl.dim_type.set, dim, origin, origin + extent - 1)
    written = relations[0].range()
    for relation in relations[1:]:
        written = written.union(relation.range())
    return bool(box.is_subset(written))


def _bytes_of(statement: Statement, dtype: DType) -> bytes:
    """Return what *statement* stores in an element of *dtype*."""
    reduction = statement.reduction
    assert reduction is not None
    # 0, 1 and infinities are the same numbers in all floating-point types.
    assert reduction.dtype == dtype or (reduction.dtype.is_float and dtype.is_float)
    if dtype.is_compensated:  # a sum of nothing, and what rounding took from it
        return bytes(dtype.size_bytes)
    return np.array(identity_of(reduction.operator, dtype), dtype.numpy).tobytes()


def _width_of(value: bytes) -> int | None:
    """Return how many bytes of *value* the driver is to repeat, or None if it cannot."""
    width = min(len(value), MAX_WIDTH)
    return width if value == value[:width] * (len(value) // width) else None
