"""Contractions: a register tile of accumulators, fed by vectors that every lane or row reuses.

    C(m,n) +=! A(m,k) * B(k,n)        threads over m / 64
                                        n / 32, m / 8
                                          acc[8][32] = 0
                                          for k: acc[m % 8][n % 32] += A[m,k] * B[k,n]
                                          C[m,n] = acc, and what else the kernel does to C

One dimension is the *vector*: along it every operand stands still or walks neighbours.  It may be
left-hand (lanes are results: B's n) or reduced (lanes are partial sums: ``A(m,k) * B(n,k)``).
One or two left-hand dimensions along which an operand stands still make the *rows* of the tile:
each loaded vector is used once a row.  The rest of the left-hand dimensions are outer loops, of the
reduced ones loops around the tile.

Rows that data choose, ``y(b,d) +=! table(word(e), d) where e in ptr(b):ptr(b + 1)``, reuse nothing
but their accumulators: the tile is one row, and as much of it as registers hold.  Short sums, and
sums of rows that lie one after another, take as long without.
"""

from collections.abc import Collection, Mapping
from math import prod
from weakref import WeakKeyDictionary

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Cpu
from tcdsl.costmodel.register_tiles import (
    best_tile,
    registers_of,
    steps_of_box,
    vector_operations,
)
from tcdsl.lang.comprehension import Binary, Index, Load, indices_in, multiplied
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT32, INT8, INT16, INT32, UINT8
from tcdsl.poly.data_ranges import data_ranges_of
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Access, Scop, ends_of, loads_of
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.materialisation import (
    box_elements,
    elements_of,
    materialise,
    operand_of,
    walks,
)
from tcdsl.rewrites.scop.packing import factor_of
from tcdsl.rewrites.scop.remainders import by_remainders, why_not_by_remainders
from tcdsl.rewrites.scop.rfactor import why_not_rfactored
from tcdsl.rewrites.scop.stored_operands import Operand
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.blocking import Dots

MIN_WORK = cpu_thresholds.TILED_MULTIPLICATIONS
MIN_REUSE = cpu_thresholds.TILED_USES
MIN_SPLIT = cpu_thresholds.SPLIT_INSTANCES
MIN_USES = cpu_thresholds.PACKED_USES
MIN_ROWS = cpu_thresholds.TILED_ROWS
ROW_VECTORS = cpu_thresholds.ROW_VECTORS
ALIKE_ROWS = cpu_thresholds.ALIKE_ROWS
FOLDED, REST = cpu_thresholds.FOLDED, cpu_thresholds.REST
PARTS, APART_TERMS = cpu_thresholds.PARTS, cpu_thresholds.APART_TERMS
FAR_SHARE, FAR = cpu_thresholds.FAR_SHARE, cpu_thresholds.FAR
NARROW_TERMS, NARROW_USES = cpu_thresholds.PANEL_TERMS, cpu_thresholds.NARROW_USES
WINDOW_TERMS, WINDOW_USES = cpu_thresholds.WINDOW_TERMS, cpu_thresholds.WINDOW_USES
BYTES = {INT8, UINT8}


@dataclass(frozen=True, slots=True)
class Tile:
    """The register tile: dimension -> how many values; *vector* is one of them or reduced."""

    vector: int
    lanes: int
    rows: Mapping[int, int]


def find_contraction(group: Group, shapes: Mapping[str, Shape]) -> str | None:
    """Return the member of *group* that is a contraction worth a register tile, or None."""
    found = [m for m in group.members if why_not_contraction(shapes[m]) is None]
    if len(found) != 1:
        return None
    # Along the tile's dimensions every member must have results of its own.
    aligned = {axis[found[0]] for axis in group.axes if group.has_parallel(axis, shapes)}
    shape = shapes[found[0]]
    left = {d for d, role in enumerate(shape.roles) if role is Role.PARALLEL}
    if any(d not in aligned and shape.extents[d] > 1 for d in left):
        return None
    return found[0]


def why_not_contraction(shape: Shape) -> str | None:
    """Return why a statement gets no register tile, or None if it does."""
    if shape not in _reasons:
        _reasons[shape] = _why_not_contraction(shape)
    return _reasons[shape]


# Of a shape: grouping and each template ask again.
_reasons: WeakKeyDictionary[Shape, str | None] = WeakKeyDictionary()
_tiles: WeakKeyDictionary[Shape, dict[Cpu, Tile | None]] = WeakKeyDictionary()


def _why_not_contraction(shape: Shape) -> str | None:
    statement = shape.statement
    if reason := why_not_rfactored(statement):
        return reason
    if shape.instances < MIN_WORK:
        return "it is small"
    if any(role is Role.ORDERED for role in shape.roles):
        return "it is a recurrence"
    if sums_gathered_rows(shape):
        return None
    if len(statement.reads) < 2 or statement.conditions:
        return "it has fewer than two operands"
    if sum(_uses(shape, read) >= MIN_REUSE for read in statement.reads) < 2:
        return "no two operands are reused"
    if choose_tile(shape, Cpu(1)) is None:
        return "no dimension is contiguous in all operands"
    return None


def sums_gathered_rows(shape: Shape) -> bool:
    """Return whether a sum over a range from data is of rows that other data choose."""
    ranges = data_ranges_of(shape.statement)
    if not ranges or shape.statement.value is None:
        return False
    last = shape.order[-1]
    reduced = [found.dim for found in ranges if shape.roles[found.dim] is Role.REDUCED]
    return (
        any(shape.counts[dim] >= MIN_ROWS for dim in reduced)
        and any(loads_of(*load.subscripts) for load in loads_of(shape.statement.value))
        and set(shape.statement.conditions) == {c for found in ranges for c in found.conditions}
        and shape.roles[last] is Role.PARALLEL
        and shape.extents[last] >= 4
        and shape.strides[0][last] == 1
        and not shape.is_ragged(last)
        and _is_vector(shape, last)
    )


def _uses(shape: Shape, read: Access) -> float:
    """Return how often, on average, an element of *read* is read (a sliding window counts too)."""
    extents = dict(zip(shape.statement.indices, shape.extents, strict=True))
    return shape.instances / max(1, box_elements(read.subscripts, extents))


def _operand_rows(shape: Shape) -> tuple[tuple[int, ...], ...]:
    return shape.strides[len(shape.statement.writes) :]


def choose_tile(shape: Shape, cpu: Cpu) -> Tile | None:
    """Return the register tile of a contraction, None if there is no vector dimension."""
    known = _tiles.setdefault(shape, {})
    if cpu not in known:
        known[cpu] = _choose_tile(shape, cpu)
    return known[cpu]


def _choose_tile(shape: Shape, cpu: Cpu) -> Tile | None:
    width = _width(shape, cpu)
    if sums_gathered_rows(shape):
        return Tile(shape.order[-1], _row_tile(shape.extents[shape.order[-1]], width), {})
    left = [d for d, r in enumerate(shape.roles) if r is Role.PARALLEL and shape.extents[d] > 1]
    found = [(_vector_score(shape, d, width), d) for d in range(len(shape.roles)) if (
        _is_vector(shape, d) if d in left else _is_dot_vector(shape, d)
    )]  # fmt: skip
    score, vector = max(found, default=(0.0, -1))
    if score == 0.0:
        return None
    if vector in left:
        return _left_tile(shape, vector, left, cpu)
    return _dot_tile(shape, vector, left, width)


def _width(shape: Shape, cpu: Cpu) -> int:
    assert shape.statement.reduction is not None
    return cpu.vector_bytes // shape.statement.reduction.dtype.size_bytes


def _vector_score(shape: Shape, dim: int, width: int) -> float:
    """Return what part of the vector unit's work is useful with *dim* in the lanes, 0 if unfit."""
    extent = shape.extents[dim]
    role = shape.roles[dim]
    if extent < 4 or role not in (Role.PARALLEL, Role.REDUCED):
        return 0.0
    terms = prod(e for e, r in zip(shape.extents, shape.roles, strict=True) if r is Role.REDUCED)
    if role is Role.REDUCED:
        # The lanes are folded once a result, and a tile loads nearly as often as it multiplies.
        whole = 1.0 if extent % width == 0 else REST
        useful = extent / (width * -(-extent // width))
        return FOLDED * whole * useful * terms / (terms + 64) if extent >= width else 0.0
    stored = 1.0 if shape.strides[0][dim] == 1 else terms / (terms + APART_TERMS)
    if extent < width:  # parts of a vector, which load and spread as many numbers as a whole one
        return stored * extent / (width * extent.bit_count())
    whole = 1.0 if extent % width == 0 else PARTS
    return stored * whole * extent / (width * vector_operations(extent, width))


def _is_dot_vector(shape: Shape, dim: int) -> bool:
    if shape.roles[dim] is not Role.REDUCED:
        return False
    return all(row[dim] == 1 for row in _operand_rows(shape))


def has_operands_to_copy(scop: Scop, shape: Shape, cpu: Cpu) -> bool:
    """Return whether operands of *shape*'s statement are worth arrays of their own."""
    return bool(_worth_materialising(scop, shape, cpu))


def materialise_operands(
    scop: Scop, shapes: Mapping[str, Shape], cpu: Cpu, kept: Collection[str] = ()
) -> Scop:
    """Give the operands of contractions arrays of their own where that makes a vector dimension.

    That is where the best vector dimension needs another layout, or where a guard or a conversion
    would be evaluated at every use.  Legal always: see rewrites/scop/materialisation.

    :arg kept: statements whose operands stay as they are.
    """
    for statement in scop.statements:
        if statement.name in kept:
            continue
        shape = shapes[statement.name]
        for operand, vector in _worth_materialising(scop, shape, cpu):
            scop = materialise(scop, statement.name, operand, vector) or scop
    return scop


def sums_by_remainders(scop: Scop) -> Scop:
    """Return *scop* with a sum for each remainder where a condition leaves most terms 0.

    Of gradients of strided layers: as written, a guard would be evaluated for each term, and all
    but one of stride^2 terms would be products with 0.  Sums of fewer terms are soon computed.
    """
    for statement in scop.statements:
        if why_not_by_remainders(scop, statement) is not None:
            continue
        if prod(ends_of(statement).values()) >= MIN_SPLIT:
            scop = by_remainders(scop, statement.name)
    return scop


_operands: WeakKeyDictionary[Shape, dict[Cpu, list[tuple[Operand, str]]]] = WeakKeyDictionary()


def _worth_materialising(scop: Scop, shape: Shape, cpu: Cpu) -> list[tuple[Operand, str]]:
    """Return the operands of *shape*'s statement to materialise, with the vector index."""
    known = _operands.setdefault(shape, {})
    if cpu not in known:
        known[cpu] = _find_operands(scop, shape, cpu)
    return known[cpu]


def _find_operands(scop: Scop, shape: Shape, cpu: Cpu) -> list[tuple[Operand, str]]:
    statement = shape.statement
    if why_not_rfactored(statement) or statement.conditions or shape.instances < MIN_WORK:
        return []
    if statement.library:
        return []
    if statement.value is None or any(role is Role.ORDERED for role in shape.roles):
        return []
    factors = multiplied(statement.value)
    if len(factors) < 2:
        return []
    rows = {
        (access.array, access.subscripts): row
        for access, row in zip(statement.reads, _operand_rows(shape), strict=True)
    }
    best: tuple[float, list[tuple[Operand, str]]] = (0.0, [])
    for dim, index in enumerate(statement.indices):
        score = _vector_score(shape, dim, _width(shape, cpu))
        needed: list[tuple[Operand, str]] = []
        for factor in dict.fromkeys(factors):
            if isinstance(factor, Load):
                stride = rows[factor.tensor, factor.subscripts][dim]
                if stride == 1 or (stride == 0 and shape.roles[dim] is Role.PARALLEL):
                    continue
            operand = operand_of(factor, scop)
            if operand is None and index not in indices_in(factor):
                continue  # it stands still, whatever computes it
            gain = 0.0 if operand is None else _gain(shape, operand, index, cpu)
            score *= gain
            if operand is not None:
                needed.append((operand, index))
        if score > best[0]:
            best = (score, needed)
    return best[1]


def dots_of(shape: Shape, cpu: Cpu) -> Dots | None:
    """Return the instruction that adds several products of narrow terms to each sum, if one does.

    Panels then hold the terms as they are (strategies/panels).
    """
    statement = shape.statement
    if not (isinstance(statement.value, Binary) and statement.value.op == "*"):
        return None
    one, other = map(factor_of, (statement.value.left, statement.value.right))
    if one is None or other is None or statement.reduction is None:
        return None
    sums, types = statement.reduction.dtype, (one.load.dtype, other.load.dtype)
    if sums in types or {one.expr.dtype, other.expr.dtype} != {sums}:
        return None
    if not _has_long_terms(shape, one.load, other.load):
        return None
    if sums == INT32 and {*types} <= BYTES:
        return Dots(4 if cpu.has_byte_dots else 2, 4, None)
    if sums == INT32 and {*types} <= BYTES | {INT16}:
        return Dots(2, 2, INT16)
    # FMA in its place takes as long as on panels of float32, but with few registers.
    if sums == FLOAT32 and {*types} == {BFLOAT16} and registers_of(cpu) == 32:
        return Dots(2 if cpu.has_bfloat16_dots else 1, 2, BFLOAT16)
    return None


def _has_long_terms(shape: Shape, one: Load, other: Load) -> bool:
    """Return whether products of *one* by *other* have long sums, for several rows and columns."""
    extents = dict(zip(shape.statement.indices, shape.extents, strict=True))
    reduced = [e for e, r in zip(shape.extents, shape.roles, strict=True) if r is Role.REDUCED]
    own = (
        [n for i, n in extents.items() if _reads(a, i) and not _reads(b, i)]
        for a, b in ((one, other), (other, one))
    )
    uses = min(max(counts, default=0) for counts in own)
    longest = max(reduced, default=0)
    if longest == prod(reduced):
        return uses >= NARROW_USES and longest >= NARROW_TERMS
    # Copies of a window across the terms cost what two bfloat16 terms at a time save.
    term = [i for i, r in zip(shape.statement.indices, shape.roles, strict=True)
            if r is Role.REDUCED and extents[i] == longest]  # fmt: skip
    are_along = all(load.subscripts[-1] == Index(term[-1]) for load in (one, other))
    is_long = longest >= WINDOW_TERMS and prod(reduced) >= NARROW_TERMS
    is_near = are_along or {one.dtype, other.dtype} <= BYTES
    return uses >= WINDOW_USES and is_long and is_near


def _reads(load: Load, index: str) -> bool:
    return index in indices_in(*load.subscripts)


def _gain(shape: Shape, operand: Operand, index: str, cpu: Cpu) -> float:
    """Return the part of the time that is left for the product if *operand* is materialised."""
    if not walks(operand, index):
        return 0.0
    extents = dict(zip(shape.statement.indices, shape.extents, strict=True))
    uses = shape.instances / max(1, elements_of(operand, extents))
    size_bytes = elements_of(operand, extents) * operand.expr.dtype.size_bytes
    near = 1.0 if size_bytes <= cpu.l3_bytes / FAR_SHARE else FAR
    return near * uses / (uses + 100) if uses >= MIN_USES else 0.0


def _is_vector(shape: Shape, dim: int) -> bool:
    """Return whether every operand stands still or walks neighbours along *dim*, and one walks."""
    strides = [row[dim] for row in _operand_rows(shape)]
    return set(strides) <= {0, 1} and 1 in strides


def _left_tile(shape: Shape, vector: int, left: list[int], cpu: Cpu) -> Tile:
    width = _width(shape, cpu)
    walking = [row for row in _operand_rows(shape) if row[vector] == 1]
    candidates = [d for d in left if d != vector and any(row[d] == 0 for row in walking)]
    if not candidates:
        return Tile(vector, _vector_tile(shape.extents[vector], width), {})
    tiles = {d: _tile_of_rows(shape, d, vector, cpu) for d in candidates}
    # Of an open dimension the last rows are slow: another one is better, if it is long enough.
    longest = max(candidates, key=lambda d: _row_length(shape, d))
    # What rows near in memory read stays in the first-level cache for the next tile: of 14 x 14
    # images, 16 channels a group, 12 pixels take 0.7 of the time of 16 images.
    most = ALIKE_ROWS * tiles[longest][0]
    near = (d for d in candidates if not shape.is_open(d) and tiles[d][0] <= most)
    row = max(near, key=shape.order.index, default=longest)
    _, rows, lanes = tiles[row]
    return Tile(vector, lanes, {row: rows})


def _row_length(shape: Shape, dim: int) -> tuple[int, bool, int]:
    return min(shape.extents[dim], 16), not shape.is_open(dim), shape.order.index(dim)


def _tile_of_rows(shape: Shape, row: int, vector: int, cpu: Cpu) -> tuple[float, int, int]:
    """Return how long a term of a result takes in the tile of rows along *row*, and that tile."""
    width = _width(shape, cpu)
    extents = shape.extents[row], shape.extents[vector]
    still = [strides[row] for strides in _operand_rows(shape) if strides[vector] == 0]
    row_bytes = max(still, default=0) * cpu.vector_bytes // width
    tile = best_tile(*extents, width, registers_of(cpu), row_bytes)
    steps = steps_of_box(*extents, tile, width, registers_of(cpu))
    return steps / prod(extents), *tile


def _vector_tile(extent: int, width: int) -> int:
    """Return the values in a tile without rows: all if few, else two whole vectors."""
    if extent <= 4 * width:
        return extent
    return next((n * width for n in (2, 3, 4, 1) if extent % (n * width) == 0), 2 * width)


def _row_tile(extent: int, width: int) -> int:
    """Return the values in a tile of one row, whose subscripts each of its tiles loads again."""
    if extent <= ROW_VECTORS * width:
        return extent
    whole = (n * width for n in range(ROW_VECTORS, ROW_VECTORS // 2, -1))
    return next((lanes for lanes in whole if extent % lanes == 0), ROW_VECTORS * width)


def _divisor(extent: int, most: int) -> int:
    """Return the largest divisor of *extent* from *most* down to its half, else *most*."""
    if extent <= most:
        return extent
    return next((n for n in range(most, most // 2, -1) if extent % n == 0), most)


def _row_preference(shape: Shape, dim: int) -> tuple[int, bool, int]:
    """Return a key: larger for a dimension that is long, and not open if it is long enough."""
    return min(shape.extents[dim], 4), not shape.is_open(dim), shape.extents[dim]


def _dot_tile(shape: Shape, vector: int, left: list[int], width: int) -> Tile:
    rows: dict[int, int] = {}
    for operand in _operand_rows(shape):
        still = [d for d in left if operand[d] == 0 and d not in rows]
        if still:
            best = max(still, key=lambda d: _row_preference(shape, d))
            rows[best] = _divisor(shape.extents[best], 4)
    return Tile(vector, width, dict(list(rows.items())[:2]))
