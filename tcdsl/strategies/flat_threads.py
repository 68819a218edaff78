"""Threads along the innermost shared axis; what is left of each member is in a thread.

    z(i,j) = x(i,j) + y(j)       blocks over i and tiles of j, threads.x along j, 16 bytes each
    C(m,n) +=! A(m,k)*B(k,n)     the same, with k in each thread

Where that axis is short, threads.y are along the next one.  Blocks are smaller where there would be
too few of them, and a thread takes a second vector only if the chip stays full.
"""

from tcdsl.lang.comprehension import Call, walk
from tcdsl.strategies import block_sizes
from tcdsl.strategies.block_sizes import power_of_two
from tcdsl.strategies.group_axes import GroupAxes
from tcdsl.strategies.sketch import Axis, Sketch, Tile

MIN_VECTORED = 1 << 12  # values for which fewer threads may do


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
    return axes.assembled(tiles, {}, None)


def _threads_of_block(axes: GroupAxes, threads: int) -> int:
    """Return how many threads a block has: fewer where there would be too few blocks."""
    share = threads // (2 * axes.gpu.multiprocessors)
    most = block_sizes.BLOCK_THREADS
    return max(min(block_sizes.WARP, most), min(most, power_of_two(share)))


def _repeat(axes: GroupAxes, total: int, vector: int, groups: int, threads: int) -> int:
    """Return how many vectors a thread takes: several only if the chip stays full.

    Functions take registers, which with one vector let more threads hide what they take.
    """
    values = [axes.shapes[name].statement.value for name in axes.group.members]
    if any(isinstance(node, Call) for value in values if value for node in walk(value)):
        return 1
    if groups >= 2 * threads and total // vector >= 4 * axes.gpu.threads:
        return 2
    return 1
