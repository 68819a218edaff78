"""A multiply-accumulate of tensor cores: one call for all that its COLLECTIVE loops run.

    for c6, c7, c8, c9, lane:                  tc_mma<true, 4, 8, 2, 32, true, 128, false>(
      part[m, n] += A.tile[m, k]                   part, A.tile, 2048 * c4, B.tile, 64 * c5)
                    * B.tile[k, n]

The loops must be whole: then the call's sizes are theirs, and each tile begins where all of them
are 0.  Who holds which result is decided by coordinates (strategies/fragments.py) and by the
instruction; that they agree is checked here, where both are known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import ZERO, simplified, substituted, template
from tcdsl.codegen.ast.nodes import Code, Evaluate, Name
from tcdsl.codegen.c.expressions import suffix
from tcdsl.codegen.cuda.statements import CudaStatementPrinter
from tcdsl.codegen.passes.iterations import covers
from tcdsl.costmodel.chip import WARP
from tcdsl.errors import INTERNAL
from tcdsl.lang.comprehension import Expr, Index, indices_in, walk
from tcdsl.lang.types.dtypes import BFLOAT16
from tcdsl.poly.loop_tree import AffineCoordinate, Coordinate, Loop, LoopKind, X, Z
from tcdsl.poly.scop import Access, Accumulation, Kind, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.column_planes import N_PLANES, is_planes, planes_of
from tcdsl.schedule.placement import Placement, Placements, Space

ROWS, COLUMNS, BYTES = 16, 8, 32  # of an instruction; bytes along the terms: see mma.cuh
WARPS = 4  # that multiply 64 rows together, see wgmma.cuh


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a warp multiplies: dimensions of the statement, and how many values of each."""

    row: tuple[int, int]
    column: tuple[int, int]
    term: tuple[int, int]
    threads: int
    groups: int = 0  # of four warps, where these multiply together: with the same columns


def fragment_of(statement: str, path: Sequence[Loop]) -> Fragment | None:
    """Return what the COLLECTIVE loops of *path* and its threads multiply at once.

    None unless the threads have the results that the instruction gives them.
    """
    ways = [(loop, (loop.coordinates[statement], loop.extent or 0)) for loop in path]
    threads = [way for loop, way in ways if loop.kind is LoopKind.THREAD and loop.axis == X]
    match threads, [way for loop, way in ways if loop.kind is LoopKind.COLLECTIVE]:
        case (
            [(AffineCoordinate(((4, Coordinate(row, low, 1, 8)),
                                (1, Coordinate(column, left, 2, 4))), 0, 1, 0), 32)],
            [(Coordinate(term, _, 1, terms), all_terms),
             (Coordinate() as halves, rows),
             (Coordinate() as eights, columns),
             (Coordinate() as pair, 2)],
        ) if (
            terms == all_terms
            and halves == Coordinate(row, low, 8, rows)
            and eights == Coordinate(column, left, 8, columns)
            and pair == Coordinate(column, left, 1, 2)
            and (not _is_group(path) or _has_groups(statement, path, Coordinate(row, low, 16)))
        ):  # fmt: skip
            together = max(loop.width for loop in path if loop.kind is LoopKind.COLLECTIVE)
            along = (loop for loop in path if loop.kind is LoopKind.THREAD and loop.axis == Z)
            warps = max((loop.width for loop in along), default=0)
            return Fragment(
                (row, 8 * rows), (column, 8 * columns), (term, terms), together, warps // WARPS
            )
    return None


def _is_group(path: Sequence[Loop]) -> bool:
    """Return whether the threads of four warps multiply together."""
    return any(loop.kind is LoopKind.COLLECTIVE and loop.width > WARP for loop in path)


def _has_groups(statement: str, path: Sequence[Loop], row: Coordinate) -> bool:
    """Return whether warps are along z alone, in fours, and each has the next 16 of *row*."""
    warps = [loop for loop in path if loop.kind is LoopKind.THREAD and loop.axis != X]
    if len(warps) != 1 or warps[0].axis != Z or warps[0].width % WARPS:
        return False
    return warps[0].coordinates[statement] == replace(row, mod=warps[0].width)


def is_whole(node: loop_ast.AstNode, loops: Mapping[str, Loop], loop: Loop | None = None) -> bool:
    """Return whether *node* is one statement in loops that run all of their iterations.

    :arg loop: whose mark is above.
    """
    match node:
        case loop_ast.Leaf():
            return True
        case loop_ast.Mark(name=name, body=body):
            return is_whole(body, loops, loops[name])
        case loop_ast.For(init=init, body=body):
            is_all = loop is not None and init == ZERO and covers(node, loop.extent or 0)
            return is_all and is_whole(body, loops)
        case _:
            return False


def product(printer: CudaStatementPrinter, node: loop_ast.AstNode, fragment: Fragment) -> Evaluate:
    """Return the call for the statement of *printer*, which is below the whole loops *node*."""
    statement, placements = printer.statement, printer.context.placements
    zeros: dict[str, Code] = dict.fromkeys(variables_of(node), ZERO)
    first = printer.moved(lambda at: simplified(substituted(at, zeros)))
    sums = Name(printer.names.of("array", statement.write.array))
    dims = fragment.row[0], fragment.column[0]
    rows, columns = (_operand(statement, dim, placements) for dim in dims)
    terms = statement.indices[fragment.term[0]]
    arguments: list[Code] = [sums]
    is_group = fragment.threads > WARP
    sizes: list[int | str] = [fragment.row[1] // ROWS, fragment.column[1] // COLUMNS]
    if is_group:
        sizes = [fragment.column[1]]
    types = [printer.scop.arrays[read.array].dtype for read in (rows, columns)]
    sizes.append(fragment.term[1] * types[0].size_bytes // BYTES)
    in_registers = rows.array == statement.register_operand
    if in_registers:
        if reason := _why_not_in_fragments(printer, rows, fragment):
            raise INTERNAL(where=f"printing {statement.name}", what=reason, repro="the program")
        arguments.append(Name(printer.names.of("array", rows.array)))
    for read in (columns,) if in_registers else (rows, columns):
        tile = placements[read.array]
        lines = [tile.rows] if is_group else []
        sizes += [tile.extents[-1], *lines, int(terms in indices_in(read.subscripts[-1]))]
        name = Name(printer.names.of("array", read.array))
        arguments += [name, first.offset_in_tile(read, tile)]
    function = "tc_wgmma" if is_group else "tc_mma"
    if in_registers:
        function = "tc_wgmma_from"
        sizes.insert(0, int(types[0] == BFLOAT16))
    elif statement.accumulation is Accumulation.SPLIT:
        function, sizes[1] = "tc_wgmma_f32", fragment.groups
        if any(is_planes(read.array) for read in statement.reads):
            function, sizes = "tc_wgmma_planes", [sizes[0], *sizes[2:]]
        narrow = [printer.scop.arrays[read.array].is_narrow for read in (rows, columns)]
        if any(narrow):  # the factors with low parts: of rows 1, of columns 2
            sizes.append(sum(part for part, own in zip((1, 2), narrow, strict=True) if not own))
    elif types[0].is_half:
        sizes.insert(0, int(types[0] == BFLOAT16))
    else:
        function += "_of"
        sizes.insert(0, "_".join(["tc_of", *map(suffix, types)]))
    function += "_promoted" if statement.accumulation is Accumulation.PROMOTED else ""
    call = template(function, sizes, *arguments)
    return Evaluate(replace(call, participants="xz" if is_group else "x"))


def _why_not_in_fragments(
    printer: CudaStatementPrinter, read: Access, fragment: Fragment
) -> str | None:
    """Return why threads have not the parts of the operand *read* that the instruction takes.

    A thread has pairs of terms of two rows in registers, in the order of tc_wgmma_from.
    """
    own = printer.context.placements.get(read.array)
    slots = [[(8, 2)], [(8, fragment.term[1] // 8), (1, 2)]]
    dims = [] if own is None else [dim.parts for dim in own.dims if dim.extent > 1]
    places = [[part for part in parts if part[1] != 1] for parts in dims]
    if own is None or own.space is not Space.PRIVATE or places != slots:
        return f"{read.array} does not lie in registers as instructions take it"
    for name, path in printer.mapped.paths.items():
        writer = printer.scop.by_name[name]
        if writer.write.array != read.array or writer.kind is Kind.BARRIER:
            continue
        at = [_position(writer, subscript) for subscript in writer.write.subscripts[-2:]]
        threads = [loop for loop in path if loop.kind is LoopKind.THREAD]
        lane = AffineCoordinate(((4, Coordinate(at[0], 0, 1, 8)), (1, Coordinate(at[1], 0, 2, 4))))
        warp = Coordinate(at[0], 0, 16, WARPS * fragment.groups)
        if {loop.axis: loop.coordinates[name] for loop in threads} != {X: lane, Z: warp}:
            return f"the threads that compute {read.array} are not those that multiply it"
    return None


def _position(statement: Statement, subscript: Expr) -> int:
    """Return which index of *statement* the *subscript* is, -1 if none."""
    is_index = isinstance(subscript, Index) and subscript.name in statement.indices
    return statement.indices.index(subscript.name) if is_index else -1  # type: ignore[union-attr]


def variables_of(node: loop_ast.AstNode) -> Iterator[str]:
    """Yield the variables of the loops of *node*."""
    match node:
        case loop_ast.For(variable=variable, body=body):
            yield variable
            yield from variables_of(body)
        case loop_ast.Mark(body=body):
            yield from variables_of(body)


def _operand(statement: Statement, dim: int, placements: Placements) -> Access:
    """Return the read of *statement* in whose tile elements differ along dimension *dim*."""
    index = statement.indices[dim]
    found = [
        read
        for read in statement.reads
        if any(index in indices_in(s) for s in _inside(read, placements[read.array]))
    ]
    if (value := statement.value) is not None and len(found) == N_PLANES:
        high = next(own[0] for node in walk(value) if (own := planes_of(node)) is not None)
        found = [read for read in found if read.subscripts == high.subscripts]
    (one,) = found
    return one


def _inside(read: Access, tile: Placement) -> list[Expr]:
    """Return the subscripts that differ in the tile of one iteration."""
    several = [dim.extent > 1 for dim in tile.dims]
    if tile.ring is not None:
        several[tile.ring.dim] = False
    return [s for s, is_one in zip(read.subscripts, several, strict=True) if is_one]
