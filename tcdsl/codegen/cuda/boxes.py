"""Copies of whole boxes by one thread, the tensor maps that they read, and a pipeline's events.

    for c4, c5:                            tc_copy_box<4, 64, 128>(
      A.tile[c2 % 4, c4, c5] =      --->       A.tile + (c2 % 4) * 8192, A.map, w_barriers, c2,
        A[128 c0 + c4, 64 c2 + c5]             64 * c2, 128 * c0);

The loops must be whole.  Where the array has no element a box has zeros, as a padded copy does.
Of a tile whose lines are digits of one number (poly/bulk_copies.py) there is a request for each
128 bytes of its lines: of a box, or of rows of pixels::

    for c4, c5:                            tc_copy_pixels<4, 128>(
      I.tile[c2 % 4, c4, c5] =      --->       I.tile + (c2 % 4) * 8192, I.map, w_barriers, c2,
        I[n, h + r - 1, w + s - 1, c]          64 * c, w - 1, h - 1, n, s, r);
"""

from collections.abc import Sequence
from math import prod

import islpy as isl

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import (
    ZERO,
    as_factor,
    binary,
    call,
    chain,
    code,
    paren,
    simplified,
    substituted,
    template,
)
from tcdsl.codegen.ast.loop_ast import REQUEST
from tcdsl.codegen.ast.nodes import Code, Evaluate, Name, Node
from tcdsl.codegen.cuda.counts import Counts
from tcdsl.codegen.cuda.grids import extent_counts
from tcdsl.codegen.cuda.products import variables_of
from tcdsl.codegen.cuda.source import TFLOAT32, TensorMap
from tcdsl.codegen.cuda.statements import CudaStatementPrinter
from tcdsl.codegen.names import Names
from tcdsl.costmodel.locality import array_strides
from tcdsl.errors import INTERNAL
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.poly.bulk_copies import is_box, walked, why_not_brought
from tcdsl.poly.isl_utils import Extent, greatest
from tcdsl.poly.loop_tree import Coordinate
from tcdsl.poly.scop import Accumulation, Array, BulkCopy, EventKind, Scop, Statement
from tcdsl.schedule.multicast import share_of
from tcdsl.schedule.pipelines import Pipeline
from tcdsl.schedule.signals import warps_of

LINE_BYTES = 128  # of one line of a box, and of an atom: see device/cuda/wgmma.cuh
BARRIERS = "w_barriers"
BARRIER_BYTES = 8
_SIGNALS = {EventKind.SIGNAL: "tc_signal", EventKind.AWAIT_SIGNAL: "tc_await_signal"}


def tensor_map(scop: Scop, copy: Statement, sizes: Sequence[str], parts: int = 1) -> TensorMap:
    """Return the map of what *copy* reads, with its boxes; of open *sizes*, functions of them.

    :arg parts: of the lines of a box, where each block of a cluster copies one.
    """
    if copy.bulk is not None:
        return _map_of_lines(scop, copy, copy.bulk, sizes)
    array, tile = (scop.arrays[one.array] for one in (copy.reads[0], copy.write))
    element = array.dtype.size_bytes
    most, box = (tuple(map(_number, own)) for own in (array.shape, tile.shape[-array.rank :]))
    strides = tuple(element * stride for stride in array_strides(array)[:-1])
    lines = _lines_of(box)
    box = (*box[:lines], box[lines] // parts, *box[lines + 1 : -1], LINE_BYTES // element)
    dtype, counts = _type_of(scop, copy), _counts(array.shape[::-1], sizes)
    has_open_rows = any(not isinstance(extent, int) for extent in array.shape[1:])
    # Of an open length are rows that lie together, or are the copies of rewrites/scop/repacking.
    is_known = array.strides is None or any(isinstance(s, isl.PwAff) for s in array.strides)
    assert not has_open_rows or is_known, "why_no_box"
    own = element if has_open_rows else 0
    return TensorMap(dtype, most[::-1], strides[::-1], box[::-1], counts, element=own)


def _lines_of(box: Sequence[int]) -> int:
    """Return along which dimension of *box*, the innermost last, its lines are."""
    return next((dim for dim, size in enumerate(box[:-1]) if size > 1), len(box) - 2)


def _counts(extents: Sequence[Extent], sizes: Sequence[str]) -> tuple[Counts, ...]:
    """Return *extents* as functions of the open *sizes*; none if all are numbers."""
    is_open = any(not isinstance(extent, int) for extent in extents)
    return tuple(extent_counts(extent, sizes) for extent in extents) if is_open else ()


def _type_of(scop: Scop, copy: Statement) -> str:
    """Return as what *copy* brings elements: those multiplied as tf32 are rounded to it.

    What threads compute an operand of comes as it is.
    """
    own, dtype = copy.write.array, scop.arrays[copy.reads[0].array].dtype
    readers = (s for s in scop.statements if any(read.array == own for read in s.reads))
    is_direct = all(
        reader.accumulates and reader.accumulation is Accumulation.DIRECT for reader in readers
    )
    return TFLOAT32 if dtype == FLOAT32 and is_direct else dtype.name


def _map_of_lines(
    scop: Scop, copy: Statement, bulk: BulkCopy, open_sizes: Sequence[str]
) -> TensorMap:
    """Return the map of what *copy* reads, whose lines' places are *bulk*."""
    array, tile = (scop.arrays[one.array] for one in (copy.reads[0], copy.write))
    element, lines = array.dtype.size_bytes, _number(tile.shape[-2])
    dims = walked(array, array_strides(array), bulk)
    extents = (array.shape[bulk.near], *(one.size for one in dims))
    sizes, counts = tuple(map(_number, extents)), _counts(extents, open_sizes)
    strides = tuple(element * one.stride for one in dims)
    at_once = LINE_BYTES // element
    if is_box(dims):
        box = (at_once, *(1 for _ in dims[1:]), lines)
        return TensorMap(_type_of(scop, copy), sizes, strides, box, counts)
    lower, upper = zip(*(one.corners for one in dims[:-1]), strict=True)
    steps = tuple(one.of.step for one in dims[:-1])
    pixels = (at_once, lines)
    return TensorMap(_type_of(scop, copy), sizes, strides, pixels, counts, (lower, upper), steps)


def _number(extent: Extent) -> int:
    number = greatest(extent)
    assert number is not None, "sizes are bounded on a GPU"
    return number


def map_name(names: Names, copy: Statement) -> str:
    """Return what the map of *copy* is called.

    Boxes of one array differ, and copies of several arrays may fill one tile.
    """
    return names.of("map", f"{copy.name.removesuffix('_copy')}.map")


def box_copies(
    printer: CudaStatementPrinter, node: loop_ast.AstNode, pipeline: Pipeline
) -> list[Evaluate]:
    """Return the calls for the copy of *printer*, which is below the whole loops *node*."""
    stages, barriers = pipeline.stages, barriers_from(pipeline.first)
    statement = printer.statement
    tile = printer.context.placements[statement.write.array]
    zeros: dict[str, Code] = dict.fromkeys(variables_of(node), ZERO)
    first = printer.moved(lambda at: simplified(substituted(at, zeros)))
    coordinate = pipeline.path[-1].coordinates[statement.name]
    assert isinstance(coordinate, Coordinate) and (coordinate.shift, coordinate.div) == (0, 1)
    use = first.leaf.iterators[coordinate.position]
    to = Name(printer.names.of("array", statement.write.array))
    place = binary(to, "+", first.offset_in_tile(statement.write, tile))
    map_ = map_name(printer.names, statement)
    if statement.bulk is None:
        sizes = [stages, tile.extents[-1], tile.rows]
        share = share_of(printer.mapped, statement.name)
        if share.parts > 1:
            own = printer.scop.arrays[statement.write.array].shape
            rank = printer.scop.arrays[statement.reads[0].array].rank
            lines = _lines_of(tuple(map(_number, own[-rank:])))
            sizes += [share.parts, share.stride]
            sizes += [rank - 1 - lines] if share.lines > 1 else []
        indices = _indices(first, printer.scop.arrays[statement.reads[0].array])
        copy = template("tc_copy_box", sizes, place, map_, barriers, use, *indices)
        return [Evaluate(copy)]
    if reason := why_not_brought(printer.scop, statement):
        raise INTERNAL(where=f"printing {statement.name}", what=reason, repro="the program")
    array = printer.scop.arrays[statement.reads[0].array]
    at_once = LINE_BYTES // array.dtype.size_bytes
    function, sizes = "tc_copy_box", [stages, at_once, tile.rows]
    if not is_box(walked(array, array_strides(array), statement.bulk)):
        function, sizes = "tc_copy_pixels", [stages, tile.rows]
    found = []
    for begin in range(0, tile.extents[-1], at_once):
        values = {**zeros, list(zeros)[-1]: code(begin)}
        at = [simplified(substituted(own, values)) for own in printer.leaf.local[REQUEST]]
        to_ = binary(place, "+", begin * tile.rows) if begin else place
        found.append(Evaluate(template(function, sizes, to_, map_, barriers, use, *at)))
    return found


def barriers_from(first: int) -> Code:
    """Return where the barriers of a pipeline are, from number *first* on."""
    return binary(Name(BARRIERS), "+", first) if first else Name(BARRIERS)


def _indices(first: CudaStatementPrinter, array: Array) -> list[Code]:
    """Return where the box of the copy of *first* begins, the innermost dimension first."""
    subscripts = first.outside_subscripts(first.statement.reads[0])
    return [
        simplified(at if origin == 0 else binary(at, "-", _number(origin)))
        for at, origin in zip(subscripts[::-1], array.origin[::-1], strict=True)
    ]


def _sum(factors: Sequence[int], values: Sequence[Code]) -> Code:
    """Return the sum of *values*, each added, taken off or left out, and a number."""
    *of_values, constant = factors
    pairs = list(zip(of_values, values, strict=True))
    total = chain("+", [constant, *(value for factor, value in pairs if factor == 1)])
    for factor, value in pairs:
        assert factor in (-1, 0, 1), "schedule/signals.py"
        total = binary(total, "-", paren(value)) if factor == -1 else total
    return simplified(total)


def event_nodes(printer: CudaStatementPrinter, sums: Sequence[str]) -> list[Node]:
    """Return the event of *printer*; products in flight add to *sums*."""
    event = printer.statement.event
    assert event is not None
    if event.kind is EventKind.END:
        return [Evaluate(call("tc_end_products", one)) for one in sums]
    if event.kind in _SIGNALS:
        flags, warps = Name(printer.names.of("ticket", "tickets")), warps_of(printer.mapped)
        flag = _sum(event.flag, printer.leaf.iterators)
        return [Evaluate(template(_SIGNALS[event.kind], [warps], flags, flag))]
    barriers = barriers_from(event.first)
    use, *inner = printer.leaf.iterators[-1 - len(event.extents) :]
    for extent, iterator in zip(event.extents, inner, strict=True):
        use = binary(binary(extent, "*", as_factor(use)), "+", as_factor(iterator))
    if event.kind is EventKind.ACQUIRE:
        sizes = [event.stages, event.size_bytes]
        return [Evaluate(template("tc_acquire", sizes, barriers, use))]
    if event.kind is EventKind.AWAIT:
        return [Evaluate(template("tc_await", [event.stages], barriers, use))]
    use = binary(use, "-", event.lag) if event.lag else use
    blocks = prod(printer.mapped.neighbours)
    sizes = [event.stages] if blocks == 1 else [event.stages, blocks]
    release = Evaluate(template("tc_release", sizes, barriers, use))
    return [Evaluate(template("tc_leave_products", [event.left])), release]
