"""The bytes that a kernel moves, if it touches every element once."""

from collections.abc import Collection, Mapping
from math import prod

from tcdsl.costmodel.locality import Shape
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.schedule.fusion import Group


def moved_bytes(scop: Scop, group: Group, shapes: Mapping[str, Shape]) -> int:
    """Return the bytes that *group* loads and stores, if it touches every element once."""
    sizes: dict[str, int] = {}
    for name in group.members:
        shape = shapes[name]
        statement = shape.statement
        accesses = (*statement.writes, *statement.reads)
        for access, row in zip(accesses, shape.strides, strict=True):
            count = prod(e for e, stride in zip(shape.extents, row, strict=True) if stride)
            count *= scop.arrays[access.array].dtype.size_bytes
            sizes[access.array] = max(sizes.get(access.array, 0), count)
    inside = set(group.members)
    return sum(size for array, size in sizes.items() if not is_inside(scop, array, inside))


def is_inside(scop: Scop, array: str, members: Collection[str]) -> bool:
    """Return whether *array* is a temporary that only *members* use."""
    users = scop.users.get(array, ())
    is_scratch = scop.arrays[array].storage is Storage.SCRATCH
    return is_scratch and all(s.kind is Kind.INIT or s.name in members for s in users)
