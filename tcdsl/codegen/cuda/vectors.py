"""Which accesses of a vector loop move whole vectors.

    for v in 0:4   y[4*q + v] = 2 * x[4*q + v]     --->    vector loads and stores of 4 elements

An access of a loop over ``v = (x_p - shift) % V`` moves a vector iff neighbours in *v* are
neighbours in memory, the element at v = 0 is at a multiple of V in every instance, and every
instance makes the access (a guarded one would touch what it must not), or it is a read that all
lanes of a vector make or none.  The array's pointer must then be a multiple of the vector's bytes,
which the call checks.

Where v = 0 is always K beyond a multiple of V, a read is of two vectors, of which lanes are picked:

    y[4*q + v] += x[4*q + v + 3]      lanes 3 | 0 1 2 of x[4*q .. 4*q + 3] | x[4*q + 4 .. 4*q + 7]

of memory that nothing writes, if all of both lies in the array.  The taps of a window have most of
their vectors in common, which CUDA's compiler loads once.  After Eichenberger, Wu and O'Brien,
Vectorization for SIMD architectures with alignment constraints, PLDI 2004,
doi:10.1145/996841.996853.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import islpy as isl

from tcdsl.codegen.cuda.copies import copy_of, is_whole
from tcdsl.costmodel.locality import access_stride, array_strides, runs_of, stride_rests
from tcdsl.lang.comprehension import Binary, Call, Expr, walk
from tcdsl.poly.accesses import builder_of, evaluated, guarded_loads, row_start
from tcdsl.poly.isl_utils import constant_bounds, val
from tcdsl.poly.loop_tree import AnyCoordinate, Coordinate, Loop, statements_of, values_of
from tcdsl.poly.scop import Access, Array, Interleaved, Kind, Scop, Statement, Storage
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Placement, is_private, local_functions

WIDTHS_BYTES = (2, 4, 8, 16)
_CHECKED = (Kind.ASSIGN, Kind.UPDATE, Kind.INIT, Kind.FOLD)


def vector_accesses(
    scop: Scop, statement: Statement, loop: Loop, width: int, placements: Mapping[str, Placement]
) -> frozenset[int]:
    """Return the positions (writes first) of the accesses that move *width* elements at once.

    Registers have no addresses; what is in shared memory is addressed within its tile.
    """
    if statement.kind not in _CHECKED or statement.is_atomic:
        return frozenset()
    found = set()
    accesses = (*statement.writes, *statement.reads)
    for position, access in enumerate(accesses):
        if is_private(access.array, placements):
            continue
        if position < len(statement.writes) and statement.conditions:
            continue
        there = access.relation.domain()
        is_everywhere = bool(statement.domain.is_subset(there))
        is_read = position >= len(statement.writes)
        if (
            not is_everywhere
            and not _is_copied(statement, there, loop, placements)
            and not (
                is_read
                and access.array not in placements
                and _is_guarded(scop, statement, access, loop)
            )
        ):
            continue
        if _is_vector(scop, statement, access, loop, width, placements.get(access.array)):
            found.add(position)
    # Of what is not everywhere, asynchronous copies alone move vectors: memory to memory.
    return frozenset(found - {1} if _is_partial(statement) and 0 not in found else found)


def window_offset(
    scop: Scop, statement: Statement, access: Access, loop: Loop, width: int
) -> int | None:
    """Return how far beyond a multiple of *width* lane 0 of *loop* always reads.

    None if that varies, or a vector around what it reads is not all in the array, or moves by no
    instruction, or other instances write there.
    """
    array, lane = scop.arrays[access.array], loop.coordinates[statement.name]
    if statement.kind not in _CHECKED or statement.is_atomic or lane.position < 0:
        return None
    if (
        array.storage is not Storage.ARGUMENT
        or array.strides is not None
        or array.shift is not None
    ):
        return None
    if not access.is_exact or width * array.dtype.size_bytes not in WIDTHS_BYTES:
        return None
    if scop.writers_of(access.array):
        return None
    shape = [extent for extent in array.shape if isinstance(extent, int)]
    if not statement.domain.is_subset(access.relation.domain()) or _divides(access):
        return None
    address = address_of(scop, statement, access, array)
    if len(shape) < len(array.shape) or address is None or not _grows(address, lane.position):
        return None
    space = statement.domain.get_space()
    first = isl.PwAff.from_aff(lane.function(space)).zero_set().intersect(statement.domain)
    found = isl.Map.from_pw_aff(address).intersect_domain(first).range()
    low, high = constant_bounds(found, 0) or (-1, -1)
    offset = low % width
    rest = isl.Map.from_pw_aff(address.mod_val(val(width))).intersect_domain(first).range()
    is_inside = low >= 0 and high - offset + 2 * width <= prod(shape)
    return offset if is_inside and constant_bounds(rest, 0) == (offset, offset) else None


def _is_guarded(scop: Scop, statement: Statement, access: Access, loop: Loop) -> bool:
    """Return whether all lanes of each vector of *loop* read what *access* is of, or none does.

    Some do: where none does the array may be empty, and has no vector to load in their place.
    """
    lane = loop.coordinates[statement.name]
    if lane.position < 0 or _is_partial(statement) or statement.conditions:
        return False
    if access.relation.is_empty():
        return False
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    truths = (builder.truth(one) for guards in guards_of(statement, access) for one in guards)
    if not all(truth.below.is_equal(truth.above) for truth in truths):
        return False  # what data say differs from lane to lane
    return is_whole(statement, access.relation.domain(), lane)


def guards_of(statement: Statement, access: Access) -> list[tuple[Expr, ...]]:
    """Return the conditions under which *statement* makes the read *access*: of one or another."""
    return guarded_loads(*evaluated(statement)).get((access.array, access.subscripts), [()])


def _is_partial(statement: Statement) -> bool:
    copied = copy_of(statement)
    return copied is not None and copied.condition is not None


def _is_copied(
    statement: Statement, there: isl.Set, loop: Loop, placements: Mapping[str, Placement]
) -> bool:
    """Return whether asynchronous copies bring what is *there*, whole vectors of *loop* or none."""
    placement = placements.get(statement.write.array)
    if placement is None or not placement.is_staged or not _is_partial(statement):
        return False
    lane = loop.coordinates[statement.name]
    return lane.position >= 0 and is_whole(statement, there, lane)


def _is_vector(
    scop: Scop,
    statement: Statement,
    access: Access,
    loop: Loop,
    width: int,
    placement: Placement | None,
) -> bool:
    array = scop.arrays[access.array]
    lane = loop.coordinates[statement.name]
    if not access.is_exact or width * array.dtype.size_bytes not in WIDTHS_BYTES:
        return False
    if lane.position < 0 or any(stride is None for stride in array.strides or ()):
        return False
    index = statement.indices[lane.position]
    has_digits = placement is None and _divides(access)
    if access_stride(array, access, index) != 1 and not has_digits:
        return False
    if placement is not None:
        address = _address_in_tile(scop, statement, access, placement)
    else:
        address = address_of(scop, statement, access, array, width)
    if address is None:
        return False
    space = statement.domain.get_space()
    first = isl.PwAff.from_aff(lane.function(space)).zero_set().intersect(statement.domain)
    is_aligned = bool(first.is_subset(address.mod_val(val(width)).zero_set()))
    has_digits = has_digits or placement is not None or array.shift is not None
    has_digits = has_digits or bool(runs_of(array, access, index))
    return is_aligned and (
        _grows(address, lane.position)
        or (has_digits and _is_together(statement, address, lane, width))
    )


def is_run(
    scop: Scop, statement: Statement, access: Access, columns: Coordinate, width: int
) -> bool:
    """Return whether *access* is to runs of *width* neighbours, which begin at multiples of it.

    :arg columns: whose dimension they are neighbours along, counted from its shift.
    """
    array, index = scop.arrays[access.array], statement.indices[columns.position]
    if not statement.domain.is_subset(access.relation.domain()):
        return False
    if not access.is_exact or statement.conditions or access_stride(array, access, index) != 1:
        return False
    address = address_of(scop, statement, access, array, width)
    if address is None or not _grows(address, columns.position):
        return False
    place = Coordinate(columns.position, columns.shift, 1, width)
    own = isl.PwAff.from_aff(place.function(statement.domain.get_space()))
    return bool(statement.domain.is_subset(address.mod_val(val(width)).eq_set(own)))


def _divides(access: Access) -> bool:
    """Return whether a subscript has a quotient or a remainder: of one index's several digits.

    Or a bound of an index, as it has beyond an array's open end.
    """
    exprs = (node for subscript in access.subscripts for node in walk(subscript))
    return any(
        (isinstance(node, Binary) and node.op in ("/", "%"))
        or (isinstance(node, Call) and node.function == "min")
        for node in exprs
    )


def address_of(
    scop: Scop, statement: Statement, access: Access, array: Array, width: int = 0
) -> isl.PwAff | None:
    """Return the element's distance from the array's pointer, in elements.

    :arg width: modulo which strides that are functions of open sizes must be known; the distance is
        one modulo that, for those at the greatest sizes stand for them.  0: None then.
    """
    if any(not isinstance(x, int) for x in array.origin):
        return None
    strides = array_strides(array)
    if _has_open_strides(array) and not (width and _are_known(array, strides, width)):
        return None
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    total: isl.PwAff | None = None
    row: list[isl.PwAff] = []
    for subscript, stride, own, origin in zip(
        access.subscripts, strides, array.strides or strides, array.origin, strict=True
    ):
        function = builder.affine(subscript)
        if function is None or not isinstance(origin, int):
            return None
        index = function.add_constant_val(val(-origin))
        term = index.scale_val(val(stride))
        if isinstance(own, Interleaved):
            between = own.outer - own.run * own.step
            runs = index.scale_down_val(val(own.run)).floor()
            term = term.add(runs.scale_val(val(between)))
        total = term if total is None else total.add(term)
        row.append(index)
    if array.shift is not None and total is not None:
        total = total.sub(row_start(array.shift, row[:-1]))
    return total


def _are_known(array: Array, most: Sequence[int], width: int) -> bool:
    """Return whether the strides of *array* are those at the greatest sizes, modulo *width*."""
    return stride_rests(array, width) == tuple(stride % width for stride in most)


def _has_open_strides(array: Array) -> bool:
    """Return whether strides of *array* are functions of open sizes."""
    if array.strides is not None:
        return any(isinstance(stride, isl.PwAff) for stride in array.strides)
    return any(not isinstance(extent, int) for extent in array.shape[1:])


def _address_in_tile(
    scop: Scop, statement: Statement, access: Access, placement: Placement
) -> isl.PwAff | None:
    """Return the element's distance from the start of a shared array, in elements."""
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    functions: dict[int, isl.PwAff] = {}
    for position, subscript in enumerate(access.subscripts):
        function = builder.affine(subscript)
        if function is None:
            return None
        functions[position] = function
    total: isl.PwAff | None = None
    stride = 1
    local = local_functions(placement, access, statement, functions)
    for function, extent in zip(reversed(local), reversed(placement.extents), strict=True):
        term = function.scale_val(val(stride)) if extent > 1 else None
        if term is not None:
            total = term if total is None else total.add(term)
        stride *= extent
    return total


def _is_together(statement: Statement, address: isl.PwAff, lane: AnyCoordinate, width: int) -> bool:
    """Return whether instances that differ in *lane* alone are in one run of *width* elements.

    Lane l is at l from the run's start, and the runs' numbers depend on what is not the lane.
    """
    domain = statement.domain
    offset = lane.function(domain.get_space())
    in_place = address.mod_val(val(width)).eq_set(isl.PwAff.from_aff(offset))
    if not domain.is_subset(in_place):
        return False
    start = isl.MultiAff.identity_on_domain_space(domain.get_space())
    start = start.set_at(lane.position, start.get_at(lane.position).sub(offset))
    starts = isl.Map.from_multi_aff(start).intersect_domain(domain)
    runs = isl.Map.from_pw_aff(address.scale_down_val(val(width)).floor())
    return bool(starts.reverse().apply_range(runs).is_single_valued())


def _grows(address: isl.PwAff, position: int) -> bool:
    """Return whether the address is one affine function, with coefficient 1 at *position*.

    Quotients in it are of other indices.
    """
    pieces = address.get_pieces()
    if len(pieces) != 1:
        return False
    ((_, aff),) = pieces
    divs = (aff.get_div(number) for number in range(aff.dim(isl.dim_type.div)))
    if any(div.involves_dims(isl.dim_type.in_, position, 1) for div in divs):
        return False
    coefficient = aff.get_coefficient_val(isl.dim_type.in_, position)
    return bool(coefficient.is_one())


def may_be_parted(mapped: Mapped, lanes: Loop) -> bool:
    """Return whether isl may print lanes of one vector in several loops.

    It does not where all statements in *lanes* run for the same values of the loops around them,
    and these are one basic set: no other lanes are to be told apart.
    """
    found = []
    for name in statements_of(lanes.body):
        path = mapped.paths[name]
        found.append(values_of(mapped.scop, name, path[: path.index(lanes) + 1]).range().coalesce())
    first = found[0]
    return first.n_basic_set() > 1 or not all(first.is_equal(other) for other in found[1:])


def iterations_without(
    mapped: Mapped, lanes: Loop, lane: int, iterations: Loop, step: int
) -> range | None:
    """Return where in *iterations*, *step* of them at once, vectors may lack *lane*.

    That is between the first such iteration and the last; None if they are not bounded.  Where a
    loop around *lanes* runs for the sake of other statements, vectors lack all lanes.
    """
    statements = [mapped.scop.by_name[name] for name in statements_of(lanes.body)]
    found = [
        _iterations_without(statement, lanes, lane, iterations, step) for statement in statements
    ]
    found += _iterations_of_others(mapped, lanes, iterations, step)
    known = [iterations for iterations in found if iterations is not None]
    if len(known) < len(found):
        return None
    some = [iterations for iterations in known if iterations]
    if not some:
        return range(0)
    return range(min(r.start for r in some), max(r.stop for r in some))


def _iterations_of_others(
    mapped: Mapped, lanes: Loop, iterations: Loop, step: int
) -> Iterator[range | None]:
    """Yield in which iterations others run in the loops around *lanes*, and no lane is there."""
    inside = list(statements_of(lanes.body))
    around = mapped.paths[inside[0]][: mapped.paths[inside[0]].index(lanes)]
    for other, path in mapped.paths.items():
        shared = [a for a, b in zip(around, path, strict=False) if a is b]
        if other in inside or iterations not in shared:
            continue
        for name in inside:
            ran, own = (values_of(mapped.scop, n, shared).range() for n in (other, name))
            lacking = ran.subtract(own)
            if not lacking.is_empty():
                bounds = constant_bounds(lacking, shared.index(iterations))
                yield None if bounds is None else range(bounds[0] // step, bounds[1] // step + 1)


def _iterations_without(
    statement: Statement, lanes: Loop, lane: int, iterations: Loop, step: int
) -> range | None:
    domain = statement.domain
    space = domain.get_space()
    coordinate = lanes.coordinates[statement.name]
    if coordinate.position < 0 or statement.name not in iterations.coordinates:
        return None
    # { x -> the instance that is at *lane* of the vector of x }
    there = isl.MultiAff.identity_on_domain_space(space)
    own = there.get_at(coordinate.position).sub(coordinate.function(space))
    there = there.set_at(coordinate.position, own.add_constant_val(val(lane)))
    has_lane = domain.apply(isl.Map.from_multi_aff(there).reverse())
    function = isl.PwAff.from_aff(iterations.coordinates[statement.name].function(space))
    iteration = isl.Map.from_pw_aff(function.scale_down_val(val(step)).floor())
    missing = domain.subtract(has_lane).apply(iteration)
    if missing.is_empty():
        return range(0)
    bounds = constant_bounds(missing, 0)
    return None if bounds is None else range(bounds[0], bounds[1] + 1)
