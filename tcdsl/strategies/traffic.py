"""The bytes that a kernel moves: every element once, and how many passes go over it again."""

from collections.abc import Collection, Mapping
from math import prod

from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.parts import Box, boxes_of, count_apart
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.row_graphs import waiting_for


def moved_bytes(scop: Scop, group: Group, shapes: Mapping[str, Shape]) -> int:
    """Return the bytes that *group* loads and stores, if it touches every element once."""
    found: dict[str, dict[Box, float]] = {}
    for name in group.members:
        shape = shapes[name]
        statement = shape.statement
        accesses = (*statement.writes, *statement.reads)
        for access, row, box in zip(accesses, shape.strides, boxes_of(shape), strict=True):
            count = prod(e for e, stride in zip(shape.extents, row, strict=True) if stride)
            own = found.setdefault(access.array, {})
            own[box] = max(own.get(box, 0), count * scop.arrays[access.array].dtype.size_bytes)
    inside = set(group.members)
    return sum(
        int(count_apart(own.items()))
        for array, own in found.items()
        if not is_inside(scop, array, inside)
    )


def is_inside(scop: Scop, array: str, members: Collection[str]) -> bool:
    """Return whether *array* is a temporary that only *members* use."""
    users = scop.users.get(array, ())
    is_scratch = scop.arrays[array].storage is Storage.SCRATCH
    return is_scratch and all(s.kind is Kind.INIT or s.name in members for s in users)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The elements of one array that the kernel touches, and how often."""

    array: str
    footprint_bytes: float
    passes: int  # over it, by members that wait for one another
    is_read: bool
    is_written: bool


@analysis
def traffic_of(problem: Problem) -> list[Traffic]:
    """Return the arrays that the kernel does not keep to itself."""
    order = _passes(problem)
    boxes: dict[str, dict[Box, float]] = {}
    passes: dict[str, set[int]] = {}
    loads: set[str] = set()  # read before the kernel has written it
    writes: set[str] = set()
    before: set[str] = set()
    for name in problem.group.members:
        shape = problem.shapes[name]
        statement = shape.statement
        accesses = (*statement.writes, *statement.reads)
        for number, (access, row, box) in enumerate(
            zip(accesses, shape.strides, boxes_of(shape), strict=True)
        ):
            is_write = number < len(statement.writes)
            array = problem.scop.arrays[access.array]
            count = prod(e for e, stride in zip(shape.counts, row, strict=True) if stride)
            # Taps of a window have most elements in common.
            size = _at_most(problem.scop, access.array, float(count * array.dtype.size_bytes))
            own = boxes.setdefault(access.array, {})
            own[box] = max(own.get(box, 0.0), size)
            if is_write and not statement.is_rare:
                writes.add(access.array)
            if not is_write:
                passes.setdefault(access.array, set()).add(order[name])
                if access.array not in before:
                    loads.add(access.array)
        before |= {write.array for write in statement.writes}
    members = set(problem.group.members)
    return [
        Traffic(
            array, _at_most(problem.scop, array, count_apart(own.items())),
            len(passes.get(array, ())) or 1, array in loads, array in writes,
        )
        for array, own in boxes.items()
        if not is_inside(problem.scop, array, members)
    ]  # fmt: skip


def _at_most(scop: Scop, array: str, size: float) -> float:
    """Return *size*, or the bytes of *array* if these are fewer."""
    most = scop.arrays[array].size_bytes()
    return size if most is None else min(size, float(most))


@analysis
def _passes(problem: Problem) -> dict[str, int]:
    """Return how many reductions each member waits for, one after another."""
    found = dict.fromkeys(problem.group.members, 0)
    for name in problem.group.members:
        for later in waiting_for(name, problem.group, problem.shapes):
            found[later] += 1
    return found


@analysis
def footprints(problem: Problem) -> dict[str, float]:
    """Return the bytes of each array that the kernel does not keep to itself."""
    return {t.array: t.footprint_bytes for t in traffic_of(problem)}


@analysis
def waiting_temporaries(problem: Problem) -> list[tuple[str, float]]:
    """Return temporaries that are read only after a reduction in between, and their bytes."""
    members, passes = problem.group.members, _passes(problem)
    found: list[tuple[str, float]] = []
    for name in members:
        shape = problem.shapes[name]
        array = shape.statement.write.array
        readers = (
            other
            for other in members
            if any(read.array == array for read in problem.shapes[other].statement.reads)
        )
        if (
            shape.statement.kind is not Kind.UPDATE
            and any(passes[other] > passes[name] for other in readers)
            and is_inside(problem.scop, array, members)
        ):
            found.append((array, shape.instances * problem.scop.arrays[array].dtype.size_bytes))
    return found
