"""Alignment shift: rows that begin anywhere are numbered from the vector that they begin in.

    x of rows of 5, vectors of 4        i = 0  | 0 1 2 3 | 4 . . . |
                                        i = 1  | . 0 1 2 | 3 4 . . |          w = j + m(i)
                                        i = 2  | . . 0 1 | 2 3 4 . |       m(i) = (5 i) % 4

    s(i) +=! x(i,j)           j in [0, 5)
        --->
    s(i) +=! x'(i,w)          w in [m(i), 5 + m(i)),     x'(i,w) = memory[5 i - m(i) + w]

5 i - m(i) is a multiple of 4, so that neighbours w, 4 of them from a multiple of 4 on, are a vector
of memory, whatever the length of a row.  The price is a row's first and last vector, which are
whole for some rows only.  Of an open length its remainder is known (4 q + 1): m is the same for all
lengths of a class (lang/size_class).

All accesses to a row are shifted by its own m: those of an argument's strides, and those of
temporaries of its shape, which are as dense as before.  What else a statement does with j, it does
with w - m(i).  Where a row is read otherwise (a gather) and never written, that reads the argument
as it was; x' is then a second name of its memory.  So do statements that have no use for rows,
contractions whose operands come in tiles: shifted, their strides would depend on i.

Legal iff the rows of all arrays of a statement along j have the same m, a result along j is such a
row too, and the statement is no recurrence, nor finds an index, nor skips elements (where j % 3 is
0, isl has lost lanes of vectors that rows begin in): the map of instances is a bijection
that keeps the order of those which differ in j alone, and dependences between others are the
scop's, which is analysed after it.

As in loop skewing: Wolfe, "Loop skewing: the wavefront method revisited", 1986,
doi:10.1007/BF01407876; here it aligns rows instead of wavefronts.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, walk
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.ranges.open_sizes import is_same_extent, times
from tcdsl.lang.rewrite import minus as minus_expr
from tcdsl.lang.rewrite import plus as plus_expr
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.accesses import builder_of
from tcdsl.poly.isl_utils import (
    Extent,
    is_unbounded,
    map_from_functions,
    plus,
    rest_of,
    whole_tiles,
)
from tcdsl.poly.scop import Access, AlignmentShift, Array, Kind, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_accesses

WhyNot = Callable[[Array], str | None]


@dataclass(frozen=True, slots=True)
class Rows:
    """What is shifted together: per array its factors, per statement the index along rows."""

    width: int
    factors: Mapping[str, tuple[int, ...]]
    lanes: Mapping[str, str]


def shifted(scop: Scop, why_not: WhyNot, vector_bytes: int, apart: Collection[str] = ()) -> Scop:
    """Return *scop* with those rows shifted that reductions read and *why_not* has nothing against.

    Of an open length those too that nothing reduces: such rows are no one index with what is around
    them (costmodel/flattening), which has vectors without a shift.

    :arg vector_bytes: that an access moves at most.
    :arg apart: statements that have no rows to be shifted: they read arguments as they are.
    """
    if is_unbounded(scop.context):
        return scop  # the length of a row must be known modulo a vector
    for statement in scop.statements:
        for read in statement.reads if statement.name not in apart else ():
            index = _row_index(read)
            array = scop.arrays[read.array]
            is_open = bool(array.shape) and not isinstance(array.shape[-1], int)
            if index not in statement.reduced and not (is_open and index in statement.left):
                continue
            if array.storage is not Storage.ARGUMENT:
                continue
            if array.shift is not None or why_not(array) is not None:
                continue
            rows = _Closure(scop, vector_bytes, apart).of(array)
            if rows is not None:
                return shifted(_apply(scop, rows), why_not, vector_bytes, apart)
    return scop


def unaligned(array: Array, width: int) -> tuple[int, ...] | None:
    """Return the strides of all but the last dimension of *array*, modulo *width*.

    None where its last dimension has no neighbours in memory, or all rows begin at vectors.
    """
    strides = _strides(array)
    if strides is None or len(strides) < 2:
        return None
    if not isinstance(strides[-1], int) or strides[-1] != 1:
        return None
    rests = [rest_of(stride, width) for stride in strides[:-1]]
    factors = tuple(rest for rest in rests if rest is not None)
    return factors if any(factors) and len(factors) == len(rests) else None


def _strides(array: Array) -> tuple[Extent, ...] | None:
    """Return the strides of *array*, functions of one open size at most, None if they are none."""
    if any(not isinstance(x, int) or x for x in array.origin):
        return None
    if array.strides is not None:
        known = tuple(s for s in array.strides if isinstance(s, (int, isl.PwAff)))
        return known if len(known) == array.rank else None
    found: list[Extent] = [1]
    for extent in reversed(array.shape[1:]):
        if not isinstance(found[-1], int) and not isinstance(extent, int):
            return None
        found.append(times(extent, found[-1]))
    return tuple(reversed(found))


def _row_index(access_: Access) -> str:
    """Return the index along the last dimension of *access_*, or nothing."""
    if not access_.is_exact or len(access_.subscripts) < 2:
        return ""
    *outer, last = access_.subscripts
    if not isinstance(last, Index) or any(last in walk(subscript) for subscript in outer):
        return ""
    return last.name


@dataclass()
class _Closure:
    """All that must be shifted with an array: what its statements read and write along its rows."""

    scop: Scop
    vector_bytes: int
    apart: Collection[str]
    factors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    lanes: dict[str, str] = field(default_factory=dict)

    def of(self, array: Array) -> Rows | None:
        """Return what is shifted with *array*, None if that is not legal."""
        width = self.vector_bytes // array.dtype.size_bytes
        while True:
            self.factors, self.lanes = {}, {}
            found = unaligned(array, width)
            if found is None or not self._add(array, found, width):
                return None
            least = min(self.scop.arrays[name].dtype.size_bytes for name in self.factors)
            if self.vector_bytes // least <= width:
                return Rows(width, self.factors, self.lanes)
            width = self.vector_bytes // least  # a multiple: of narrower elements

    def _add(self, array: Array, factors: tuple[int, ...], width: int) -> bool:
        """Shift *array* and what follows from it; return whether that is legal."""
        self.factors[array.name] = factors
        pending = [array.name]
        while pending:
            name = pending.pop()
            for statement in self.scop.statements:
                mine = [a for a in (*statement.writes, *statement.reads) if a.array == name]
                indices = {_row_index(a) for a in mine}
                if not mine:
                    continue
                is_apart = statement.name in self.apart
                if (is_apart or indices == {""}) and not self.scop.writers_of(name):
                    continue  # it reads the argument as it is
                if is_apart:
                    return False
                if len(indices) > 1 or indices == {""}:
                    return False
                if not self._join(statement, indices.pop(), width, pending):
                    return False
        return True

    def _join(self, statement: Statement, index: str, width: int, pending: list[str]) -> bool:
        """Shift *statement* along *index*; return whether that is legal."""
        if self.lanes.setdefault(statement.name, index) != index:
            return False
        if statement.kind not in (Kind.ASSIGN, Kind.UPDATE) or statement.companion is not None:
            return False
        if any(read.array == statement.write.array for read in statement.reads):
            return False
        if any(part.dim(isl.dim_type.div) for part in statement.domain.get_basic_sets()):
            return False
        for one in (*statement.writes, *statement.reads):
            if _row_index(one) != index or one.array in self.factors:
                continue
            array = self.scop.arrays[one.array]
            own = self._factors(array, width)
            if own is not None:
                self.factors[array.name] = own
                pending.append(array.name)
        if index in statement.left and (
            statement.kind is not Kind.ASSIGN or statement.write.array not in self.factors
        ):
            return False
        return self._have_one_offset(statement, width)

    def _factors(self, array: Array, width: int) -> tuple[int, ...] | None:
        """Return the factors of *array*, None if not shifted: temporaries follow arguments."""
        if array.storage is Storage.ARGUMENT:
            return unaligned(array, width)
        like = {f for n, f in self.factors.items() if self._is_alike(array, self.scop.arrays[n])}
        return like.pop() if len(like) == 1 and array.strides is None else None

    @staticmethod
    def _is_alike(one: Array, other: Array) -> bool:
        return one.rank == other.rank and all(map(is_same_extent, one.shape, other.shape))

    def _have_one_offset(self, statement: Statement, width: int) -> bool:
        """Return whether all shifted rows of *statement* are at the same offset in vectors."""
        builder = builder_of(statement.indices, statement.name, self.scop.sizes)
        found: isl.PwAff | None = None
        for one in (*statement.writes, *statement.reads):
            if one.array not in self.factors or _row_index(one) != self.lanes[statement.name]:
                continue
            offset = builder.affine(_offset(one.subscripts, self.factors[one.array], width))
            if offset is None:
                return False
            if found is not None and not statement.domain.is_subset(found.eq_set(offset)):
                return False
            found = offset
        return found is not None


def _offset(subscripts: Sequence[Expr], factors: Sequence[int], width: int) -> Expr:
    """Return m: by how much the row at *subscripts* begins after the start of a vector."""
    total: Expr = Const(0, INT32)
    for subscript, factor in zip(subscripts, factors, strict=False):
        if factor:
            own = _modulo(subscript, width)  # sums of such never overflow
            term = own if factor == 1 else Binary("*", own, Const(factor, INT32), INT32)
            total = plus_expr(total, term)
    return total if sum(factors) == 1 else _modulo(total, width)


def _modulo(expr: Expr, width: int) -> Expr:
    return Binary("%", expr, Const(width, INT32), INT32)


def _apply(scop: Scop, rows: Rows) -> Scop:
    """Return *scop* with *rows* shifted."""
    arrays = dict(scop.arrays)
    names: dict[str, str] = {}
    written = {w.array for s in scop.statements for w in s.writes}
    for name, factors in rows.factors.items():
        array = arrays[name]
        *outer, length = array.shape
        shape = (*outer, whole_tiles(plus(length, rows.width - 1), rows.width))
        if array.storage is not Storage.ARGUMENT:
            names[name] = name
            arrays[name] = replace(array, shape=shape)
            continue
        names[name] = f"{name}.rows" if name not in written else name
        arrays[names[name]] = replace(
            array, name=names[name], memory=array.memory or name, shape=shape,
            strides=_strides(array), shift=AlignmentShift(factors, rows.width, length),
        )  # fmt: skip
    wide = replace(scop, arrays=arrays)
    statements = tuple(
        _shifted(wide, s, rows, names) if s.name in rows.lanes else s for s in scop.statements
    )
    return replace(wide, statements=statements)


def _shifted(scop: Scop, statement: Statement, rows: Rows, names: Mapping[str, str]) -> Statement:
    """Return *statement* over w instead of j; *names* are those of the shifted arrays."""
    lane = rows.lanes[statement.name]
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    row = next(
        a for a in (*statement.writes, *statement.reads)
        if a.array in rows.factors and _row_index(a) == lane
    )  # fmt: skip
    offset = _offset(row.subscripts, rows.factors[row.array], rows.width)
    old = minus_expr(Index(lane), offset)

    def change(node: Expr) -> Expr:
        if node == Index(lane):
            return old
        if isinstance(node, Load) and node.tensor in rows.factors:
            *outer, last = node.subscripts
            if last == old:
                return replace(node, tensor=names[node.tensor], subscripts=(*outer, Index(lane)))
        return node

    def changed(exprs: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(rewrite(expr, change) for expr in exprs)

    write = statement.write
    array, subscripts = write.array, changed(write.subscripts)
    if array in rows.factors:
        array, subscripts = names[array], (*changed(write.subscripts[:-1]), Index(lane))
    domain = _moved(statement, builder, lane, offset)
    new = replace(
        statement,
        domain=domain,
        value=None if statement.value is None else rewrite(statement.value, change),
        conditions=changed(statement.conditions),
    )
    return with_own_accesses(scop, new, array, subscripts)


def _moved(statement: Statement, builder: Builder, lane: str, offset: Expr) -> isl.Set:
    """Return the domain of *statement* over w in place of the index *lane*."""
    functions = [
        builder.affine(plus_expr(Index(index), offset) if index == lane else Index(index))
        for index in statement.indices
    ]
    moved = map_from_functions(builder.space, functions, statement.name)
    return statement.domain.apply(moved).coalesce()
