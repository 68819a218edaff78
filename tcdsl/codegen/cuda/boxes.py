"""Copies of whole boxes by one thread, the tensor maps that they read, and a pipeline's events.

    for c4, c5:                            tc_copy_box<4, 64, 128>(
      A.tile[c2 % 4, c4, c5] =      --->       A.tile + (c2 % 4) * 8192, A.map, w_barriers, c2,
        A[128 c0 + c4, 64 c2 + c5]             64 * c2, 128 * c0);

The loops must be whole.  Where the array has no element a box has zeros, as a padded copy does.
"""

from collections.abc import Sequence

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import ZERO, as_factor, binary, call, simplified, substituted, template
from tcdsl.codegen.ast.nodes import Code, Evaluate, Name, Node
from tcdsl.codegen.cuda.grids import extent_counts
from tcdsl.codegen.cuda.products import variables_of
from tcdsl.codegen.cuda.source import TFLOAT32, TensorMap
from tcdsl.codegen.cuda.statements import CudaStatementPrinter
from tcdsl.codegen.names import Names
from tcdsl.costmodel.locality import array_strides
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.poly.isl_utils import Extent, greatest
from tcdsl.poly.loop_tree import Coordinate, Loop
from tcdsl.poly.scop import Accumulation, EventKind, Scop, Statement

LINE_BYTES = 128  # of one line of a box, and of an atom: see device/cuda/wgmma.cuh
BARRIERS = "w_barriers"
BARRIER_BYTES = 8


def tensor_map(scop: Scop, copy: Statement, sizes: Sequence[str]) -> TensorMap:
    """Return the map of what *copy* reads, with its boxes; of open *sizes*, functions of them."""
    array, tile = (scop.arrays[one.array] for one in (copy.reads[0], copy.write))
    element = array.dtype.size_bytes
    most, box = (tuple(map(_number, own)) for own in (array.shape, tile.shape[-array.rank :]))
    strides = tuple(element * stride for stride in array_strides(array)[:-1])
    box = (*box[:-1], LINE_BYTES // element)
    is_open = any(not isinstance(extent, int) for extent in array.shape)
    counts = [extent_counts(extent, sizes) for extent in array.shape[::-1] if is_open]
    dtype = array.dtype.name
    if array.dtype == FLOAT32 and _is_rounded(scop, copy):
        dtype = TFLOAT32
    return TensorMap(dtype, most[::-1], strides[::-1], box[::-1], tuple(counts))


def _is_rounded(scop: Scop, copy: Statement) -> bool:
    """Return whether what *copy* brings is multiplied as tf32, to which copies round it."""
    own = copy.write.array
    readers = (s for s in scop.statements if any(read.array == own for read in s.reads))
    return all(reader.accumulation is Accumulation.DIRECT for reader in readers)


def _number(extent: Extent) -> int:
    number = greatest(extent)
    assert number is not None, "sizes are bounded on a GPU"
    return number


def map_name(names: Names, copy: Statement) -> str:
    """Return what the map of *copy* is called.

    Boxes of one array differ, and copies of several arrays may fill one tile.
    """
    return names.of("map", f"{copy.name.removesuffix('_copy')}.map")


def box_copy(
    printer: CudaStatementPrinter, node: loop_ast.AstNode, step: Loop, stages: int
) -> Evaluate:
    """Return the call for the copy of *printer*, which is below the whole loops *node*.

    :arg step: the loop that takes the *stages* in turn.
    """
    statement = printer.statement
    tile = printer.context.placements[statement.write.array]
    zeros: dict[str, Code] = dict.fromkeys(variables_of(node), ZERO)
    first = printer.moved(lambda at: simplified(substituted(at, zeros)))
    array = printer.scop.arrays[statement.reads[0].array]
    indices = [
        simplified(at if origin == 0 else binary(at, "-", _number(origin)))
        for at, origin in zip(
            first.outside_subscripts(statement.reads[0]), array.origin, strict=True
        )
    ]
    coordinate = step.coordinates[statement.name]
    assert isinstance(coordinate, Coordinate) and (coordinate.shift, coordinate.div) == (0, 1)
    use = first.leaf.iterators[coordinate.position]
    to = Name(printer.names.of("array", statement.write.array))
    place = binary(to, "+", first.offset_in_tile(statement.write, tile))
    map_ = map_name(printer.names, statement)
    sizes = [stages, tile.extents[-1], tile.rows]
    return Evaluate(template("tc_copy_box", sizes, place, map_, BARRIERS, use, *indices[::-1]))


def event_nodes(printer: CudaStatementPrinter, sums: Sequence[str]) -> list[Node]:
    """Return the event of *printer*; products in flight add to *sums*."""
    event = printer.statement.event
    assert event is not None
    if event.kind is EventKind.END:
        return [Evaluate(call("tc_end_products", one)) for one in sums]
    use = printer.leaf.iterators[-1]
    if event.steps:
        around = as_factor(printer.leaf.iterators[-2])
        use = binary(binary(event.steps, "*", around), "+", as_factor(use))
    if event.kind is EventKind.ACQUIRE:
        sizes = [event.stages, event.size_bytes]
        return [Evaluate(template("tc_acquire", sizes, BARRIERS, use))]
    if event.kind is EventKind.AWAIT:
        return [Evaluate(template("tc_await", [event.stages], BARRIERS, use))]
    use = binary(use, "-", event.lag) if event.lag else use
    release = Evaluate(template("tc_release", [event.stages], BARRIERS, use))
    return [Evaluate(template("tc_leave_products", [event.left])), release]
