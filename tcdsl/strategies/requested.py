"""What ``Options(tile=..., vectorise=False)`` change in a GPU kernel's schedule.

    tile=(4, 64)       a block takes 4 x 64 iterations of the two outermost loops that blocks share
    vectorise=False    one element at a time: for lanes of a vector  --->  unrolled loops

Sizes that a block's threads do not reach in ``MAX_REPEAT`` turns each are cut to what they reach.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.strategies.block_sizes import BLOCK_THREADS, WARP
from tcdsl.strategies.lowering import Lane
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Tile

MAX_REPEAT = 8  # turns of a thread, which are unrolled


def resized(
    problem: Problem, tiles: Sequence[Tile], lanes: Mapping[str, Lane]
) -> tuple[list[Tile], tuple[str, ...]]:
    """Return *tiles* with the sizes that ``Options.tile`` asks for, and what to tell the user.

    :arg lanes: the axes that members share among threads by themselves.
    """
    asked = zip(problem.parallel, problem.options.tile, strict=False)
    sizes = {problem.name_of(axis): size for axis, size in asked}
    if not sizes:
        return list(tiles), ()
    taken = {lane.axis: lane.threads for lane in lanes.values()}
    found = []
    budget = max(1, BLOCK_THREADS // prod(taken.values()))
    free = [axis for axis in (0, 1) if axis not in taken]
    # All threads meet in the folds of a block: none may have fewer turns than another.
    meets = any(axis or threads > WARP for axis, threads in taken.items())
    for tile in tiles:
        size = min(sizes.get(problem.name_of(tile.axis), 0), tile.extent)
        if not size and tile.thread_axis < 0:
            found.append(tile)
            continue
        size = size or tile.block
        vector = next((v for v in (tile.vector, 2) if v <= tile.vector and size % v == 0), 1)
        threads = min(-(-size // vector), budget) if free else 1
        repeat = min(-(-size // (threads * vector)), MAX_REPEAT)
        if meets and repeat > 1 and threads > 1:
            repeat = 1
        axis = free.pop(0) if threads > 1 else -1
        budget //= threads
        found.append(replace(
            tile, thread_axis=axis, threads=threads, repeat=repeat, vector=vector
        ))  # fmt: skip
    return found, (f"tiles as asked: {problem.options.tile}",)
