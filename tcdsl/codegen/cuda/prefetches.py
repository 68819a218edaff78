"""What a block will load in the next iteration of a loop, asked of the second-level cache now.

    for i in the block's rows              for i in the block's rows
      load x[i,:]                            if i+1 is one of them: prefetch x[i+1,:]
      fold, compute, store         --->      load x[i,:]
                                             fold, compute, store

Let L be a serial loop below loops over blocks alone, whose values (o, k) say which block and which
iteration it is, and R the relation from (o, k) to the addresses of an array that statements of L
load.  There is a prefetch iff R(o, k) is a run of addresses of one length, for every (o, k) that L
has, whose first is affine in (o, k) and grows with k, and L does not write the array.  That is
legal: R(o, k+1) is what the block loads if L has k+1.
The memory is at work while the block folds and computes, which few blocks on a multiprocessor do
not make up for.  Each block of a cluster asks for an equal part of the run, whoever loads that.
How much all blocks may ask for is the kernel's (costmodel/prefetches).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import prod

import islpy as isl

from tcdsl.codegen.cuda.vectors import address_of
from tcdsl.costmodel.prefetches import LEAST_BYTES
from tcdsl.poly.isl_utils import constant_bounds, within
from tcdsl.poly.loop_tree import Loop, LoopKind, Node, statements_of, values_of
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Placement

UNIT_BYTES = 16  # addresses and lengths are multiples


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Bytes of *array* from element ``constant + sum of factor * value`` over loops, next time."""

    array: str
    constant: int
    factors: Mapping[str, int]  # loop -> its factor
    size_bytes: int


def prefetches_of(
    mapped: Mapped, placements: Mapping[str, Placement], most_bytes: int
) -> Mapping[str, Sequence[Prefetch]]:
    """Return { serial loop below loops over blocks -> what is loaded in its next iteration }.

    :arg most_bytes: of all blocks together.
    """
    if not most_bytes:
        return {}
    around, below = _below_blocks(mapped.tree)
    serial = [n for n in below if isinstance(n, Loop) and n.kind is LoopKind.SERIAL]
    if not all(loop.has_one_iteration for loop in around):
        return {}
    found = {
        loop.name: [
            prefetch
            for prefetch in _of(mapped.scop, [*around, loop], placements)
            if prefetch.size_bytes % (UNIT_BYTES * mapped.cluster) == 0
        ]
        for loop in serial
    }
    blocks = prod(mapped.grid)
    return {
        name: ps
        for name, ps in found.items()
        if blocks * sum(p.size_bytes for p in ps) <= most_bytes
    }


def _below_blocks(tree: Node) -> tuple[list[Loop], tuple[Node, ...]]:
    """Return the loops over blocks around all of *tree*, and what is below them."""
    around = []
    while isinstance(tree, Loop) and tree.kind is LoopKind.BLOCK:
        around.append(tree)
        tree = tree.body
    return around, tree.children if isinstance(tree, Children) else (tree,)


def _of(
    scop: Scop, path: Sequence[Loop], placements: Mapping[str, Placement]
) -> Iterator[Prefetch]:
    every = _values(scop, path)
    for array, loaded in _loaded(scop, path, placements).items():
        run = _run_of(loaded)
        if run is None or not every.is_subset(loaded.domain()):
            continue
        constant, factors, elements = run
        size = scop.arrays[array].dtype.size_bytes
        is_aligned = all(n * size % UNIT_BYTES == 0 for n in (constant, *factors, elements))
        if is_aligned and factors[-1] > 0 and elements * size >= LEAST_BYTES:
            names = [loop.name for loop in path]
            yield Prefetch(array, constant, dict(zip(names, factors, strict=True)), elements * size)


def _loaded(
    scop: Scop, path: Sequence[Loop], placements: Mapping[str, Placement]
) -> dict[str, isl.Map]:
    """Return { array -> { [values of *path*] -> [addresses that its last loop loads] } }."""
    found: dict[str, isl.Map] = {}
    statements = [scop.by_name[name] for name in statements_of(path[-1].body)]
    unknown = {write.array for statement in statements for write in statement.writes}
    for statement in statements:
        name = statement.name
        values = values_of(scop, name, path)
        for access in statement.reads:
            if access.array in placements:
                continue
            address = address_of(scop, statement, access, scop.arrays[access.array])
            if address is None or not access.is_exact:
                unknown.add(access.array)
                continue
            addresses = isl.Map.from_pw_aff(address).intersect_domain(access.relation.domain())
            loaded = values.reverse().apply_range(addresses)
            before = found.get(access.array)
            found[access.array] = loaded if before is None else before.union(loaded)
    return {array: loaded for array, loaded in found.items() if array not in unknown}


def _values(scop: Scop, path: Sequence[Loop]) -> isl.Set:
    """Return the values of *path* for which its last loop runs anything."""
    ran = (values_of(scop, name, path).range() for name in statements_of(path[-1].body))
    return reduce(isl.Set.union, ran)


def _run_of(loaded: isl.Map) -> tuple[int, list[int], int] | None:
    """Return c, f and n such that *loaded* is ``{ v -> a : c + f v <= a < c + f v + n }``."""
    pieces = loaded.dim_min(0).get_pieces()
    if not pieces:
        return None
    _, first = pieces[0]
    if first.involves_dims(isl.dim_type.div, 0, first.dim(isl.dim_type.div)):
        return None
    offsets = loaded.sum(isl.Map.from_aff(first.neg()))  # { v -> a - c - f v }
    bounds = constant_bounds(offsets.range(), 0)
    if bounds is None or bounds[0] != 0:
        return None
    all_offsets = within(
        isl.Set.universe(offsets.get_space().range()), isl.dim_type.set, 0, *bounds
    )
    if not offsets.is_equal(isl.Map.from_domain_and_range(loaded.domain(), all_offsets)):
        return None
    count = first.dim(isl.dim_type.in_)
    numbers = [first.get_constant_val()]
    numbers += [first.get_coefficient_val(isl.dim_type.in_, dim) for dim in range(count)]
    if not all(number.is_int() for number in numbers):
        return None
    constant, *factors = (number.to_python() for number in numbers)
    return constant, factors, bounds[1] + 1
