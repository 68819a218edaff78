"""The parameters of a kernel, and what may be said of the arrays that they point to."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tcdsl.codegen.cuda.boxes import map_name, tensor_map
from tcdsl.codegen.cuda.plan import PlanText
from tcdsl.codegen.cuda.source import Parameter, ParameterKind
from tcdsl.costmodel.chip import VECTOR_BYTES
from tcdsl.costmodel.reductions import is_streamed
from tcdsl.poly.loop_tree import statements_of
from tcdsl.poly.scop import PRODUCER, Kind, Scop, Statement, Storage
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.multicast import share_of
from tcdsl.schedule.plan import Kernel, arrays_of
from tcdsl.schedule.stitching import last_loop


def parameters_of(
    parent: PlanText, kernel: Kernel, awaited: AbstractSet[str] = frozenset()
) -> Iterator[Parameter]:
    """Yield the parameters of *kernel*: arrays, tickets, open sizes, the place of a fault.

    :arg awaited: arrays that other kernels may use while this one begins.
    """
    statements = [parent.scop.by_name[name] for name in statements_of(kernel.tree)]
    written = {access.array for s in statements for access in s.writes}
    boxed = [s for s in statements if s.role == PRODUCER and s.event is None]
    mapped = Mapped(parent.scop, kernel.tree)
    yield from (_map_of(parent, mapped, copy) for copy in boxed)
    loaded = {r.array for s in statements if s not in boxed for r in s.reads}
    for name in arrays_of(parent.plan, kernel):
        is_boxed = name not in loaded | written and any(s.reads[0].array == name for s in boxed)
        if name in parent.plan.placements or is_boxed:
            continue
        is_restricted = name not in awaited and _is_restricted(kernel, mapped, name, statements)
        restrict = "__restrict__ " if is_restricted else ""
        yield parent.parameter(parent.scop.arrays[name], restrict, is_read_only=name not in written)
    if kernel.name in parent.tickets:
        text = f"unsigned int *{parent.names.of('ticket', 'tickets')}"
        yield Parameter(text, ParameterKind.TICKETS, offset=parent.tickets[kernel.name][0])
    for position, integer in enumerate(parent.sizes.integers):
        text = f"const int64_t {parent.sizes.name(integer)}"
        yield Parameter(text, ParameterKind.INTEGER, integer[0], position)
    if any(statement.kind is Kind.CHECK for statement in statements):
        yield Parameter("int64_t *fault", ParameterKind.FAULT)


def _map_of(parent: PlanText, mapped: Mapped, copy: Statement) -> Parameter:
    """Return the tensor map of what *copy* reads as a parameter."""
    array = parent.scop.arrays[copy.reads[0].array]
    if array.storage is Storage.ARGUMENT:
        known = parent.alignments.get(array.argument, 1)
        parent.alignments[array.argument] = max(known, VECTOR_BYTES)
    text = f"const __grid_constant__ tc_map {map_name(parent.names, copy)}"
    own, parts = parent.parameter(array, is_read_only=True), share_of(mapped, copy.name).lines
    map_ = tensor_map(parent.scop, copy, parent.sizes.open_sizes, parts)
    return replace(own, declaration=text, map=map_)


def _is_restricted(
    kernel: Kernel, mapped: Mapped, name: str, statements: Sequence[Statement]
) -> bool:
    """Return whether no other thread changes what a thread sees of the array *name*.

    The CUDA compiler moves loads and stores through a __restrict__ pointer across a barrier,
    for nothing but this thread could change what it points to.  A block runs one part of a launch.
    """
    users = [s for s in statements if any(a.array == name for a in (*s.writes, *s.reads))]
    of_part = max(sum(s.name in part.paths for s in users) for part in mapped.parts)
    is_written = any(a.array == name for s in users for a in s.writes)
    has_barrier = any(s.kind is Kind.BARRIER for s in statements) or last_loop(kernel.tree)
    return not is_written or not (
        any(s.is_atomic for s in users) or (bool(has_barrier) and of_part > 1)
    )


def streamed_arrays(scop: Scop, kernel: Kernel) -> frozenset[str]:
    """Return the arrays that a reduction of *kernel* loads, each element once.

    No other kernel reads them either: it would find less of them in the second-level cache.
    """
    if not kernel.code.streaming:
        return frozenset()
    statements = [scop.by_name[name] for name in statements_of(kernel.tree)]
    touched = [a.array for s in scop.statements for a in (*s.writes, *s.reads)]
    found = {
        read.array
        for s in statements
        if s.kind is Kind.UPDATE
        for read in s.reads
        if touched.count(read.array) == 1
        and scop.arrays[read.array].storage is Storage.ARGUMENT
        and len(read.subscripts) == len(s.indices)
    }
    sizes = [scop.arrays[name].size_bytes() or 0 for name in found]
    return frozenset(found) if is_streamed(sum(sizes)) else frozenset()
