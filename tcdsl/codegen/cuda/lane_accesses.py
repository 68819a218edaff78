"""What a loop over lanes touches, and which of that is moved in vectors.

An array that is written has vectors only if all that is touched of it is one vector: then what a
lane reads is what the lane wrote; or if it is only written, a vector by each statement: these are
the same or apart, and stored in the order of the statements.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import both, vector_type
from tcdsl.codegen.ast.nodes import Code, Index
from tcdsl.codegen.c.expressions import c_type
from tcdsl.codegen.cuda.kernel import VECTOR_BYTES, KernelText
from tcdsl.codegen.cuda.lane_vectors import Lanes, LaneVector, any_of, with_shared_loads
from tcdsl.codegen.cuda.statements import CudaStatementPrinter
from tcdsl.codegen.cuda.vectors import guards_of, vector_accesses, window_offset
from tcdsl.poly.loop_tree import Loop
from tcdsl.poly.scop import Access, Kind, Statement, Storage
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class LaneAccess:
    """An access of a statement in a loop over lanes, as lane zero makes it."""

    array: str
    element: Code
    statement: str
    is_vector: bool
    is_write: bool
    there: isl.Set | None = None  # the instances that make it, of a load that may be a vector's
    guard: Code | None = None  # under which that load is made, None if always
    offset: int = 0  # of the load's first lane in the vector that it is in

    @property
    def place(self) -> tuple[str, Code]:
        return self.array, self.element


Place = tuple[str, Code]  # an array, and its element at lane zero


def vectors_of(
    text: KernelText, leaves: Sequence[loop_ast.Leaf], variable: str, loop: Loop, lanes: Lanes
) -> list[LaneVector]:
    """Return the vectors of *leaves*: where not all lanes are there, none that are guarded."""
    accesses = [one for leaf in leaves for one in _accesses(text, leaf, variable, loop, lanes)]
    narrow = _narrow_arrays(accesses)
    loads: Mapping[Place, list[LaneAccess]] = defaultdict(list)
    for access in accesses:
        if access.there is not None:
            loads[access.place].append(access)
    vectors: dict[Place, LaneVector] = {}
    for access in accesses:
        if access.array in narrow or not access.is_vector:
            continue
        own = loads[access.place]
        if access.place not in vectors:
            vectors[access.place] = _vector(text, access, loop.extent or 0, own)
        vectors[access.place].is_stored |= access.is_write
        if {one.statement for one in own} - {access.statement}:
            vectors[access.place].there = None
    return with_shared_loads(text.scop, list(vectors.values()))


def _accesses(
    text: KernelText, leaf: loop_ast.Leaf, variable: str, loop: Loop, lanes: Lanes
) -> Iterator[LaneAccess]:
    """Yield the accesses of *leaf* to memory, reads first; an update reads what it writes."""
    statement, width = text.scop.by_name[leaf.statement], loop.extent or 0
    wide = vector_accesses(text.scop, statement, loop, width, text.placements)
    first = text.printer(leaf).at_lane_zero(variable)
    n_writes = len(statement.writes)
    numbered = list(enumerate((*statement.writes, *statement.reads)))
    for position, access in [*numbered[n_writes:], *numbered[:n_writes]]:
        if text.is_private(access.array):
            continue
        found = LaneAccess(
            access.array, first.outside_element(access), statement.name,
            is_vector=position in wide and _is_aligned(text, access, width),
            is_write=position < n_writes,
        )  # fmt: skip
        if found.is_vector and not found.is_write:
            guard = _guard(first, access, lanes)
            is_vector = guard is None or not lanes.ends
            there = access.relation.domain()
            found = replace(found, is_vector=is_vector, there=there, guard=guard)
        elif not found.is_write and _may_be_window(text, first, access, lanes, width):
            offset = window_offset(text.scop, statement, access, loop, width)
            found = replace(found, is_vector=bool(offset), offset=offset or 0)
        if found.is_write and statement.accumulates and not _is_first(statement):
            yield replace(found, is_write=False)
        yield found


def _may_be_window(
    text: KernelText, first: CudaStatementPrinter, access: Access, lanes: Lanes, width: int
) -> bool:
    """Return whether two vectors around what *access* reads may be loaded, if all is there.

    Asynchronous copies move one vector as it is in memory: lanes of two are picked in registers.
    """
    is_changing = access.array in text.context.changing.get(first.statement.name, ())
    is_loaded = not (lanes.ends or is_changing or first.is_staging)
    return is_loaded and _is_aligned(text, access, width)


def _narrow_arrays(accesses: Sequence[LaneAccess]) -> set[str]:
    """Return the arrays that are written, and not in vectors."""
    written = {access.array for access in accesses if access.is_write}
    read = {access.array for access in accesses if not access.is_write}
    narrow = {access.array for access in accesses if not access.is_vector} & written
    for array in written:
        touched = [access.element for access in accesses if access.array == array]
        places = set(touched)
        is_one_of_each = array not in read and len(places) == len(touched)
        if len(places) > 1 and not is_one_of_each:
            narrow.add(array)
    return narrow


def _vector(
    text: KernelText, access: LaneAccess, width: int, loads: Sequence[LaneAccess]
) -> LaneVector:
    """Return the vector of *access*, the first of its place, of which *loads* are all loads."""
    element, dtype = access.element, text.scop.arrays[access.array].dtype
    assert isinstance(element, Index), "a vector is in memory"
    align(text, access.array, width * dtype.size_bytes)
    name = f"w_vector{text.n_vectors}"
    text.n_vectors += 1
    there = {one.statement: one.there for one in loads}
    return LaneVector(
        access.array, element, name, vector_type(c_type(dtype), width), width,
        not access.is_write, access.statement,
        is_streamed=access.array in text.streamed,
        is_changing=access.array in text.context.changing.get(access.statement, ()),
        guard=any_of([one.guard for one in loads] or [None]),
        there=there.get(access.statement), offset=access.offset,
    )  # fmt: skip


def _guard(first: CudaStatementPrinter, access: Access, lanes: Lanes) -> Code | None:
    """Return the condition under which lane zero, which is *first*, makes the read *access*."""
    if first.statement.domain.is_subset(access.relation.domain()):
        return None
    ways, known = guards_of(first.statement, access), lanes.conditions.get(first.statement.name)
    return any_of([both([first.outside(one, known) for one in guards]) for guards in ways])


def _is_aligned(text: KernelText, access: Access, width: int) -> bool:
    array = text.scop.arrays[access.array]
    size_bytes = width * array.dtype.size_bytes
    return size_bytes <= text.parent.known_alignments.get(array.argument, VECTOR_BYTES)


def align(text: KernelText, array: str, size_bytes: int) -> None:
    """Let *array* begin at a multiple of *size_bytes*."""
    if array in text.placements:
        text.wide_shared.add(array)
    elif text.scop.arrays[array].storage is Storage.ARGUMENT:
        argument = text.scop.arrays[array].argument
        known = text.parent.alignments.get(argument, 1)
        text.parent.alignments[argument] = max(known, size_bytes)


def _is_first(statement: Statement) -> bool:
    """Return whether *statement* is the fold that gives an accumulator its first value."""
    reduction = statement.reduction
    return statement.kind is Kind.FOLD and reduction is not None and reduction.initialise
