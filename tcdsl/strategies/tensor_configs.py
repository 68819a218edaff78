"""How products on tensor cores may be cut: tiles, stages, who brings operands, what blocks share.

The configurations of ``templates/tile_mma``, and what follows from one by counting: tiles, blocks,
terms of a block.  What they cost is the template's to say.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Feature
from tcdsl.lang.types.dtypes import DType
from tcdsl.records import dataclass
from tcdsl.schedule.stitching import MAX_TICKETS
from tcdsl.strategies.equal_shares import Shares, shares_of
from tcdsl.strategies.fragments import WarpTiles, swath_in_turn
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.tensor_operands import (
    BOX_BYTES_A_LINE,
    STEPS,
    are_columns_in_planes,
    axes_of,
    has_whole_atoms,
    has_whole_lines,
    holds_columns,
    in_registers,
    is_boxed,
    is_in_parts,
    operands_of,
    step_of,
    why_not_whole_rows,
)

# Results of a warp, rows and columns; warps of a block along rows and columns.
SHAPES = (
    (64, 64, 2, 4), (64, 64, 2, 2), (64, 32, 2, 2), (32, 64, 2, 2), (32, 32, 2, 2), (32, 32, 1, 4),
    (16, 32, 2, 2), (32, 16, 2, 2), (16, 16, 2, 2),
)  # fmt: skip
# The same of warps that multiply in fours (wgmma): 16 of 64 rows each.
GROUP_SHAPES = ((16, 256, 8, 1), (16, 128, 8, 1), (16, 128, 4, 1), (16, 64, 4, 1))
MOST_SUMS = 64 * 64  # of a warp, of all products
MOST_DOUBLES = 32 * 64  # as many registers as of 64 x 64 others
GROUP_STEP, WARPS = 64, 4
GROUP_STAGES = (4, 3, 2)  # of equal estimates the first: copies take as long as products
# Of those whose operands come in boxes, beside a producer's warp, and how many stages are tried.
BOX_SHAPES = (
    (16, 256, 8, 1), (16, 192, 8, 1), (16, 128, 8, 1), (16, 128, 4, 1), (16, 64, 4, 1),
    (16, 32, 4, 1),
)  # fmt: skip
JOINT_SHAPES = ((16, 64, 8, 1),)  # of several products, too: as many sums as of more columns
# Columns of a tile of which there are no more: the least of these that has them all.
NARROW = (8, 16, 24, 32, 48)
BOX_STAGES: Sequence[int] = (4, 6, 3, 8, 12, 2)  # two of sums of one step
# Of float32 in parts: as many accumulators again hold what was added before the step.
Shapes = Sequence[tuple[int, int, int, int]]
Space = tuple[tuple[tuple[int, int, int, int], ...], tuple[int, ...]]
SPLIT_SPACE: Space = ((16, 128, 4, 1), (16, 128, 8, 1), (16, 64, 4, 1)), (3, 4, 2)
PLANE_SPACE: Space = ((16, 128, 8, 1),), (4, 3, 2)
SWATH = 8
SWATH_FROM_MEMORY = gpu_thresholds.SWATH_FROM_MEMORY
CLUSTERS = ((2, 1), (1, 2), (2, 2))  # blocks along rows and columns
LEAST_STEPS = 4  # of a block that shares sums
SHARES_EACH = (1, 2)  # blocks of a multiprocessor that have equal shares of all steps
CACHE_SHARE = gpu_thresholds.EQUAL_SHARES_CACHE
THREADS, BOXES = "threads", "boxes"  # who brings operands
STAGES = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class ProductConfig:
    """How a product is cut: see :class:`WarpTiles`; *stages* steps are on the chip at once."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    step: int
    stages: int
    together: int = 1
    loader: str = THREADS
    swath: int = 1  # tiles of rows that neighbouring blocks have before they have other columns
    chunks: int = 1  # blocks that share the terms of a tile
    is_persistent: bool = False  # a block has tiles of all swaths, one after another
    is_finished: bool = False  # the last of the blocks that share a tile adds up their sums

    @property
    def tiles(self) -> WarpTiles:
        warps = self.warp_rows, self.warp_columns
        return WarpTiles(self.rows, self.columns, *warps, self.step, self.together)


@dataclass(frozen=True, slots=True)
class TensorConfig(ProductConfig):
    """How a product is cut whose blocks may be neighbours in a cluster."""

    # Blocks of a cluster along rows, and along columns: what they read alike each copies a part of.
    cluster_rows: int = 1
    cluster_columns: int = 1
    in_registers: bool = False  # rows' operand is computed there (register_operands.py)
    shares: int = 0  # blocks with as many steps each, whatever tiles these are of (equal_shares.py)

    @property
    def cluster(self) -> tuple[int, int]:
        return self.cluster_rows, self.cluster_columns


def _most_sums(element: DType) -> int:
    """Return how many sums of products of *element* the registers of a warp hold."""
    return MOST_DOUBLES if element.size_bytes == 8 else MOST_SUMS


def warp_shapes(element: DType, sums: int = 1) -> Shapes:
    """Return those of SHAPES whose results a warp holds, with so many *sums* at each place."""
    return [shape for shape in SHAPES if prod(shape[:2]) * sums <= _most_sums(element)]


def narrow_shapes(columns: int, shapes: Shapes) -> Shapes:
    """Return the narrow tiles of so many *columns*, with the rows of *shapes*; () if they are many.

    Columns beyond the results take the time and the shared memory of others.
    """
    width = next((n for n in NARROW if n >= columns), None)
    rows = dict.fromkeys((warps, across) for *_, warps, across in shapes if across == 1)
    return () if width is None else tuple((16, width, *warps) for warps in rows)


def configs_of(each: Sequence[Problem], sums: int) -> Iterator[TensorConfig]:
    """Yield configurations for the products *each*, of which threads hold so many *sums*."""
    problem = each[0]
    element = operands_of(problem)[0].dtype
    if is_in_parts(problem):
        in_planes = are_columns_in_planes(problem)
        every, depths = PLANE_SPACE if in_planes else SPLIT_SPACE
        of_parts = every if in_planes else _of_whole_atoms(each, every)
        for shape, stages in product(of_parts, depths):
            swath = _swath(each, shape[0] * shape[2])
            step = BOX_BYTES_A_LINE // element.size_bytes
            yield TensorConfig(*shape, step, stages, WARPS, BOXES, swath)
        return
    held = in_registers(problem)
    is_whole = all(why_not_whole_rows(one) is None for one in each) and not held
    most = _most_sums(element) // sums
    shapes = warp_shapes(element, sums) if is_whole else ()
    for shape, step, stages in product(shapes, STEPS, STAGES):
        if element.size_bytes == 8 and step < BOX_BYTES_A_LINE:  # less than an instruction
            continue
        yield TensorConfig(*shape, step // element.size_bytes, stages)
    if is_whole and problem.gpu.has(Feature.WARPGROUP_PRODUCTS) and element.is_half:
        shapes = [shape for shape in GROUP_SHAPES if prod(shape[:2]) <= most]
        for shape, stages in product(shapes, GROUP_STAGES):
            yield TensorConfig(*shape, GROUP_STEP, stages, WARPS)
    if all(map(is_boxed, each)):
        step = step_of(problem)
        of_several = JOINT_SHAPES if sums > 1 else ()
        whole = _of_whole_atoms(each, (*BOX_SHAPES, *of_several))
        shapes = [shape for shape in whole if prod(shape[:2]) <= most]
        shapes = [s for s in shapes if has_whole_lines(problem, s[0] * s[2])]
        for shape, stages in product(shapes, BOX_STAGES):
            swath = _swath(each, shape[0] * shape[2])
            plain = TensorConfig(*shape, step, stages, WARPS, BOXES, swath, in_registers=held)
            yield plain
            if (own := _swath_in_turn(each, plain)) > 0:
                yield replace(plain, swath=own, is_persistent=True)


def _of_whole_atoms(each: Sequence[Problem], shapes: Shapes) -> Shapes:
    """Return which of *shapes* have columns in whole atoms, narrower ones where columns are few."""
    axes = axes_of(each[0])
    assert axes is not None
    for own in (narrow_shapes(each[0].extent(axes[1]), shapes), shapes):
        fitting = [s for s in own if all(has_whole_atoms(one, s[1]) for one in each)]
        if fitting:
            return fitting
    return ()


def in_clusters(problem: Problem, config: TensorConfig) -> Iterator[TensorConfig]:
    """Yield *config* with blocks in clusters, of which each block has a tile of its own."""
    axes = axes_of(problem)
    assert axes is not None
    is_open = any(map(problem.is_open, axes[:2]))
    if (
        is_open
        or is_in_parts(problem)
        or in_registers(problem)
        or not problem.gpu.has(Feature.CLUSTERS)
    ):
        return
    for cluster in CLUSTERS:
        by_rows, by_columns = cluster
        has_all = all(
            size <= count
            for size, count in zip(cluster, _tiles_along(problem, config), strict=True)
        )
        is_whole = config.swath == 1 or config.swath % by_rows == 0
        if has_all and is_whole:
            yield replace(config, cluster_rows=by_rows, cluster_columns=by_columns)


def in_chunks(problem: Problem, configs: Iterable[TensorConfig]) -> Iterator[TensorConfig]:
    """Yield *configs*, and where tiles are few the same with blocks that share sums."""
    axes = axes_of(problem)
    assert axes is not None
    may_share = not axes[3] and _count_cut(problem) < len(problem.gpu.grid)
    is_alone = len(problem.group.members) == 1  # a kernel after it would add up the sums
    in_planes = are_columns_in_planes(problem)
    terms = problem.shapes[problem.lead].extents[axes[2]]
    for config in configs:
        yield config
        if config.is_persistent or not may_share:
            continue
        most = terms // (LEAST_STEPS * config.step)
        full = round(problem.gpu.multiprocessors / count_tiles(problem, config))
        wanted = (
            replace(config, chunks=min(n, most), swath=1) for n in (full // 2, full, 2 * full)
        )
        sizes = (chunk_of(problem, one) for one in wanted if one.chunks > 1)
        for chunks in sorted({-(-terms // size) for size in sizes} - {1}):  # of whole steps
            own = replace(config, chunks=chunks, swath=1)
            if is_alone:
                yield own
            if count_tiles(problem, config) <= MAX_TICKETS and not in_planes:  # see code_choices.py
                yield replace(own, is_finished=True)


def in_shares(problem: Problem, config: TensorConfig) -> Iterator[TensorConfig]:
    """Yield *config* with blocks that have equal shares of all steps, where tiles leave some idle.

    One or two blocks for each multiprocessor.  They read the same panels at different times, so
    that these must be in the second-level cache.
    """
    axes = axes_of(problem)
    assert axes is not None
    is_plain = config.loader == BOXES and config.chunks == 1 and not config.is_persistent
    is_apart = axes[3] or _count_cut(problem) > 2 or any(map(problem.is_open, problem.group.axes))
    if not is_plain or is_apart or is_in_parts(problem) or in_registers(problem):
        return
    if any(problem.lower(axis) for axis in axes[:2]) or not _is_in_cache(problem):
        return
    for each in SHARES_EACH:
        blocks = each * problem.gpu.multiprocessors
        own = replace(config, shares=blocks, swath=1)
        shares = equal_shares(problem, own)
        assert shares is not None
        warps = config.warp_rows * config.warp_columns
        are_whole = shares.each % shares.steps == 0  # tiles, which need no shares
        if not are_whole and shares.each >= LEAST_STEPS and shares.blocks * warps <= MAX_TICKETS:
            yield own


def _is_in_cache(problem: Problem) -> bool:
    """Return whether the second-level cache has room for both operands."""
    sizes = (array.size_bytes() or 0 for array in operands_of(problem))
    return sum(sizes) <= problem.gpu.l2_bytes * CACHE_SHARE


def chunk_of(problem: Problem, config: TensorConfig) -> int:
    """Return how many terms a block has: whole steps, all of them where none are shared."""
    axes = axes_of(problem)
    assert axes is not None
    terms = problem.shapes[problem.lead].extents[axes[2]]
    if config.chunks == 1:
        return terms
    return -(-terms // (config.chunks * config.step)) * config.step


def _swath_in_turn(each: Sequence[Problem], config: TensorConfig) -> int:
    """Return the swath of blocks that have several tiles, 0 where none do, or there are batches.

    All columns are read for each swath: where the cache cannot hold them, a swath has some tiles.
    """
    if _count_cut(each[0]) != 2:
        return 0
    swath = swath_in_turn(each[0].gpu, *_tiles_along(each[0], config))
    return swath if swath >= SWATH_FROM_MEMORY or holds_columns(each) else 0


def is_narrow(problem: Problem, config: TensorConfig) -> bool:
    """Return whether boxes fill narrow tiles that have all of few columns."""
    is_one = config.columns in NARROW and _tiles_along(problem, config)[1] == 1
    return is_one and config.loader == BOXES


def tiles_of_block(problem: Problem, config: TensorConfig) -> int:
    """Return how many tiles a block has, at most."""
    return -(-_tiles_along(problem, config)[0] // config.swath) if config.is_persistent else 1


def _tiles_along(problem: Problem, config: TensorConfig) -> list[int]:
    """Return the numbers of tiles along rows and columns."""
    axes = axes_of(problem)
    assert axes is not None
    sizes = [problem.extent(axis) for axis in axes[:2]]
    return [-(-n // size) for n, size in zip(sizes, config.tiles.block, strict=True)]


def count_tiles(problem: Problem, config: TensorConfig) -> int:
    """Return how many tiles the results have."""
    axes = axes_of(problem)
    assert axes is not None
    others = [problem.extent(axis) for axis in problem.parallel if axis not in axes[:2]]
    return prod(_tiles_along(problem, config)) * prod(others)


def _swath(each: Sequence[Problem], rows: int) -> int:
    """Return how many tiles of *rows* neighbouring blocks have: 1 where there are batches.

    All of fewer than that, if the cache cannot hold the factors of columns: each is read once then.
    """
    axes = axes_of(each[0])
    assert axes is not None
    count = -(-each[0].extent(axes[0]) // rows)
    if _count_cut(each[0]) != 2 or (count <= SWATH and holds_columns(each)):
        return 1
    return min(count, SWATH)


def fits_grid(problem: Problem, config: TensorConfig) -> bool:
    """Return whether the grid has an axis for each loop over blocks."""
    axes = axes_of(problem)
    assert axes is not None
    others = (problem.extent(axis) for axis in problem.parallel if axis not in axes[:2])
    counts = (*_tiles_along(problem, config), *others, config.chunks)
    return sum(count > 1 for count in counts) <= len(problem.gpu.grid)


def _count_cut(problem: Problem) -> int:
    """Return how many axes blocks are along."""
    return sum(problem.extent(axis) > 1 for axis in problem.parallel)


def equal_shares(problem: Problem, config: TensorConfig) -> Shares | None:
    """Return the shares of the blocks of *config*, None where these have whole tiles or chunks."""
    if not config.shares:
        return None
    rows, columns = _tiles_along(problem, config)
    steps = -(-chunk_of(problem, config) // config.step)
    return shares_of(config.shares, (rows, columns), steps, config.tiles.block, config.step)


def count_blocks(problem: Problem, config: TensorConfig) -> int:
    if (shares := equal_shares(problem, config)) is not None:
        return shares.blocks
    if config.is_persistent:
        return config.swath * _tiles_along(problem, config)[1]
    return count_tiles(problem, config) * config.chunks
