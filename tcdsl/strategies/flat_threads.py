"""Threads along the innermost shared axis; what is left of each member is in a thread.

    z(i,j) = x(i,j) + y(j)       blocks over i and tiles of j, threads.x along j, 16 bytes each
    C(m,n) +=! A(m,k)*B(k,n)     the same, with k in each thread

Where that axis is short, threads.y are along the next one.  Blocks are smaller where there would be
too few of them, and a thread takes a second vector only if the chip stays full.
"""

from dataclasses import replace

from tcdsl.lang.comprehension import Call, walk
from tcdsl.poly.scop import Storage
from tcdsl.strategies import block_sizes
from tcdsl.strategies.block_sizes import power_of_two
from tcdsl.strategies.group_axes import GroupAxes
from tcdsl.strategies.sketch import VECTOR_BYTES, Axis, Sketch, Tile
from tcdsl.transforms.exponential_sums import ADDEND, NONPOSITIVE

MIN_VECTORED = 1 << 12  # values for which fewer threads may do
_SHORT = {NONPOSITIVE, ADDEND}  # functions of a few instructions


def flat_sketch(axes: GroupAxes, inner: Axis, vector: int) -> Sketch:
    """Return the sketch of threads along *inner*.

    :arg vector: how many neighbours along it a thread can take at once.
    """
    others = [axis for axis in axes.parallel if axis is not inner]
    total, rest = axes.results, axes.most_rest
    if total < MIN_VECTORED or (rest > 1 and total // vector < axes.gpu.threads // 2):
        vector = 1
    groups = -(-axes.extent(inner) // vector)
    most = _threads_of_block(axes, total // vector)
    x = min(most, power_of_two(groups))
    y = 1
    if x < most and others:
        y = min(most // x, power_of_two(axes.extent(others[-1])))
    repeat = _repeat(axes, total, vector, groups, x) if rest == 1 else 1
    tiles = [Tile(inner, axes.extent(inner), axes.lower(inner), 0, x, repeat, vector)]
    if y > 1:
        axis = others.pop()
        tiles.append(Tile(axis, axes.extent(axis), axes.lower(axis), 1, y))
    tiles += [axes.tile(axis) for axis in reversed(others)]
    axes.why.append(f"threads along {axes.name_of(inner)}, neighbours in memory")
    return replace(axes.assembled(tiles, {}, None), template="flat")


def _threads_of_block(axes: GroupAxes, threads: int) -> int:
    """Return how many threads a block has: fewer where there would be too few blocks."""
    share = threads // (2 * axes.gpu.multiprocessors)
    most = block_sizes.BLOCK_THREADS
    return max(min(block_sizes.WARP, most), min(most, power_of_two(share)))


def _repeat(axes: GroupAxes, total: int, vector: int, groups: int, threads: int) -> int:
    """Return how many vectors a thread takes: several only if the chip stays full.

    Functions take registers, which with one vector let more threads hide what they take.  Not so
    where they are short and the vectors of arguments are, too: softmax of (64, 2^20) in bfloat16,
    whose exponentials are float32, takes 119 us with one vector of 8 bytes, 108 with two
    (float32, of 16 bytes: 200 and 202).
    """
    values = [axes.shapes[name].statement.value for name in axes.group.members]
    calls = {n.function for value in values if value for n in walk(value) if isinstance(n, Call)}
    if calls and not (calls <= _SHORT and vector * _argument_bytes(axes) < VECTOR_BYTES):
        return 1
    if groups >= 2 * threads and total // vector >= 4 * axes.gpu.threads:
        return 2
    return 1


def _argument_bytes(axes: GroupAxes) -> int:
    """Return the bytes of an element of an argument of the group, the widest of them."""
    statements = [axes.shapes[name].statement for name in axes.group.members]
    names = {a.array for s in statements for a in (*s.writes, *s.reads)}
    arrays = [axes.scop.arrays[name] for name in names]
    sizes = [a.dtype.size_bytes for a in arrays if a.storage is Storage.ARGUMENT]
    return max(sizes, default=VECTOR_BYTES)
