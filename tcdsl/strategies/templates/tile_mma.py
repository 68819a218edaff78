"""Contractions on tensor cores: operands in shared memory, results in fragments.

    C(m,n) +=! A(m,k) * B(k,n)                     of the types of tensor_types.py
    O(n,w,f) +=! I(n,w+r,c) * K(f,r,c)             rows w, columns f, terms c; steps over r, too

One operand mentions the rows' index and not the columns', the other the reverse; both mention the
terms' index; other reduced indices are steps of their own, what else there is goes to blocks.
Which dimension of an operand has neighbours in memory does not matter: a turned matrix is loaded as
fast.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf, prod
from typing import Any

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Feature
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.tensor_tiles import PART_BYTES, TensorWork
from tcdsl.costmodel.work import Work
from tcdsl.poly.scop import Kind
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.padding import why_not_padded
from tcdsl.rewrites.scop.rfactor import why_not_rfactored
from tcdsl.schedule.stitching import MAX_TICKETS
from tcdsl.strategies.alternatives import least_seconds
from tcdsl.strategies.fragments import WarpTiles, swath_in_turn, vector_of
from tcdsl.strategies.joint_products import (
    each_product,
    factors_of,
    is_one_sum,
    products_of,
    why_not_before,
    why_not_joint,
    with_one_product,
)
from tcdsl.strategies.problem import Problem, nameless_analysis, own_analysis
from tcdsl.strategies.sketch import Sketch, Tensor, Terms
from tcdsl.strategies.template import Template
from tcdsl.strategies.templates import column, row, tile_simt
from tcdsl.strategies.tensor_operands import (
    BOX_BYTES_A_LINE,
    STEPS,
    are_columns_in_planes,
    axes_of,
    has_index,
    has_whole_atoms,
    holds_columns,
    is_boxed,
    is_in_parts,
    loads_for,
    operands_of,
    why_not_copied,
    why_not_factors,
    why_not_split,
    why_not_whole_rows,
)
from tcdsl.strategies.tensor_types import (
    is_truncated,
    unit_of,
)
from tcdsl.strategies.tile_folds import (
    fold_steps,
    folds_of,
    is_of_columns,
    part_bytes,
    parts_of,
    shared_axis,
    why_not_folded,
    without_folds,
)
from tcdsl.strategies.traffic import is_inside

NAME = "tile_mma"
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
BOX_STAGES = (4, 6, 3, 8, 12)
# Of float32 in parts: as many accumulators again hold what was added before the step.
Space = tuple[tuple[tuple[int, int, int, int], ...], tuple[int, ...]]
SPLIT_SPACE: Space = ((16, 128, 4, 1), (16, 128, 8, 1), (16, 64, 4, 1)), (3, 4, 2)
PLANE_SPACE: Space = ((16, 128, 8, 1),), (4, 3, 2)
SWATH = 8
SWATH_FROM_MEMORY = 4  # at least, of columns that the second-level cache does not hold (H100)
LEAST_STEPS = 4  # of a block that shares sums
THREADS, BOXES = "threads", "boxes"  # who brings operands
STAGES = (2, 3, 4)
MIN_WORK = gpu_thresholds.TILED_MULTIPLICATIONS
OTHERS: tuple[Template[Any], ...] = (tile_simt.TEMPLATE, row.TEMPLATE, column.TEMPLATE)


@dataclass(frozen=True, slots=True)
class TensorConfig:
    """How a contraction is cut: see :class:`WarpTiles`; *stages* steps are on the chip at once."""

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


def why_not(problem: Problem) -> str | None:
    """Return why *problem* is not made on tensor cores, or None."""
    products, folds = without_folds(problem), folds_of(problem)
    one = with_one_product(products)
    if reason := _why_not_product(one):
        return reason
    axes = axes_of(one)
    assert axes is not None
    reasons = (
        *(_why_not_joint(products, name) for name in products_of(products)[1:]),
        *(why_not_folded(problem, name, *axes[:2]) for name in folds),
    )
    return next((reason for reason in reasons if reason), None)


def _why_not_joint(problem: Problem, name: str) -> str | None:
    """Return why the product *name* is not made with the lead of *problem*, or None."""
    one, own = with_one_product(problem), problem.of([name])
    if reason := _why_not_product(own):
        return f"{name}: {reason}"
    types = (operands_of(one)[0].dtype, operands_of(own)[0].dtype)
    if unit_of(types[0]) != unit_of(types[1]) or types[0].size_bytes != types[1].size_bytes:
        return f"{name} has factors of another type than {problem.lead}"
    products = [problem.scop.by_name[n] for n in (problem.lead, name)]
    if is_in_parts(own) or any(product.is_promoted for product in products):
        return "sums of steps have no registers beside those of several products"
    each = one, own
    if not all(map(is_boxed, each)) and any(why_not_whole_rows(product) for product in each):
        return "nobody brings the factors of all products in one way"
    axes = axes_of(own)
    assert axes is not None
    first, terms = _terms(one), Terms(name, *axes[2:])
    return why_not_joint(problem, first, axes[:2], terms) or why_not_before(problem)


def _terms(problem: Problem) -> Terms:
    """Return what the lead reduces."""
    axes = axes_of(problem)
    assert axes is not None
    return Terms(problem.lead, *axes[2:])


def _why_not_product(problem: Problem) -> str | None:
    """Return why *problem*, which reduces nothing of its product, is not made here, or None."""
    shape = problem.shapes[problem.lead]
    statement = shape.statement
    spans = dict(zip(statement.indices, ((0, extent) for extent in shape.extents), strict=True))
    if reason := why_not_rfactored(statement) or why_not_padded(statement, spans):
        return reason
    if shape.instances < MIN_WORK:
        return "it is small"
    if reason := why_not_factors(problem):
        return reason
    for name in problem.group.members:
        if name != problem.lead and problem.rest_of(name) > 1:
            return f"{name} has axes of its own"
        is_before = problem.scop.position(name) < problem.scop.position(problem.lead)
        if is_before or problem.shapes[name].statement.kind is Kind.CHECK:
            return f"{name} comes before it"
    if axes_of(problem) is None:
        return "no two operands share a reduced index"
    return why_not_copied(problem) or why_not_split(problem)


@nameless_analysis
def is_likely(problem: Problem) -> bool:
    """Return whether no other template is estimated to be faster than three products for one."""
    if not is_in_parts(problem):
        return True
    config = next(space(problem))
    own = estimate(_work(problem, config), problem.gpu).seconds
    return own <= least_seconds(problem, OTHERS)


def space(problem: Problem) -> Iterator[TensorConfig]:
    """Yield the configurations, first those that are estimated to take the least time."""
    yield from _ranked(problem)


@nameless_analysis
def _ranked(problem: Problem) -> list[TensorConfig]:
    """Return the configurations that fit, the fastest first."""
    whole, found, each = problem, [], each_product(without_folds(problem))
    room, problem = problem.gpu.shared_bytes_per_block, each[0]
    configs: Iterable[TensorConfig] = _configs(each, _count_sums(whole))
    if len(each) == 1 and not folds_of(whole):
        configs = _in_chunks(problem, configs)
    for config in configs:
        terms = _chunk(problem, config)
        if _count_sums(whole) < len(each):
            terms = sum(_whole_steps(one, config.step) for one in each)
        steps = -(-terms // config.step) * _turns(problem, config)
        if config.stages - 1 > steps:  # ahead of nothing
            continue
        if config.loader == THREADS and not _fits_grid(problem, config):
            continue  # copies by threads are in loops over blocks alone
        work = _work(whole, config)
        seconds = estimate(work, problem.gpu).seconds
        if seconds < inf and work.shared_bytes <= room:  # of equal ones that with fewer products
            made = _tiles(problem, config) * prod(config.tiles.block)
            found.append((seconds, made, config))
    return [config for *_, config in sorted(found, key=lambda one: one[:2])]


def _count_sums(problem: Problem) -> int:
    """Return how many sums threads hold at each place of a tile."""
    products = without_folds(problem)
    return 1 if is_one_sum(products) else len(products_of(products))


def _configs(each: Sequence[Problem], sums: int) -> Iterator[TensorConfig]:
    """Yield configurations for the products *each*, of which threads hold so many *sums*."""
    problem = each[0]
    element = operands_of(problem)[0].dtype
    if is_in_parts(problem):
        in_planes = are_columns_in_planes(problem)
        of_parts, depths = PLANE_SPACE if in_planes else SPLIT_SPACE
        for shape, stages in product(of_parts, depths):
            swath = _swath(each, shape[0] * shape[2])
            step = BOX_BYTES_A_LINE // element.size_bytes
            yield TensorConfig(*shape, step, stages, WARPS, BOXES, swath)
        return
    is_whole = all(why_not_whole_rows(one) is None for one in each)
    most = (MOST_DOUBLES if element.size_bytes == 8 else MOST_SUMS) // sums
    shapes = [shape for shape in SHAPES if is_whole and prod(shape[:2]) <= most]
    for shape, step, stages in product(shapes, STEPS, STAGES):
        if element.size_bytes == 8 and step < BOX_BYTES_A_LINE:  # less than an instruction
            continue
        yield TensorConfig(*shape, step // element.size_bytes, stages)
    if is_whole and problem.gpu.has(Feature.WARPGROUP_PRODUCTS) and element.is_half:
        shapes = [shape for shape in GROUP_SHAPES if prod(shape[:2]) <= most]
        for shape, stages in product(shapes, GROUP_STAGES):
            yield TensorConfig(*shape, GROUP_STEP, stages, WARPS)
    if all(map(is_boxed, each)):
        step = BOX_BYTES_A_LINE // element.size_bytes
        of_several = JOINT_SHAPES if sums > 1 else ()
        shapes = [shape for shape in (*BOX_SHAPES, *of_several) if prod(shape[:2]) <= most]
        shapes = [s for s in shapes if all(has_whole_atoms(one, s[1]) for one in each)]
        for shape, stages in product(shapes, BOX_STAGES):
            swath = _swath(each, shape[0] * shape[2])
            yield (plain := TensorConfig(*shape, step, stages, WARPS, BOXES, swath))
            if (own := _swath_in_turn(each, plain)) > 0:
                yield replace(plain, swath=own, is_persistent=True)


def _in_chunks(problem: Problem, configs: Iterable[TensorConfig]) -> Iterator[TensorConfig]:
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
        full = round(problem.gpu.multiprocessors / _tiles(problem, config))
        wanted = (
            replace(config, chunks=min(n, most), swath=1) for n in (full // 2, full, 2 * full)
        )
        sizes = (_chunk(problem, one) for one in wanted if one.chunks > 1)
        for chunks in sorted({-(-terms // size) for size in sizes} - {1}):  # of whole steps
            own = replace(config, chunks=chunks, swath=1)
            if is_alone:
                yield own
            if _tiles(problem, config) <= MAX_TICKETS and not in_planes:  # see code_choices.py
                yield replace(own, is_finished=True)


def _chunk(problem: Problem, config: TensorConfig) -> int:
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


def _turns(problem: Problem, config: TensorConfig) -> int:
    """Return how many tiles a block has, at most."""
    return -(-_tiles_along(problem, config)[0] // config.swath) if config.is_persistent else 1


def _tiles_along(problem: Problem, config: TensorConfig) -> list[int]:
    """Return the numbers of tiles along rows and columns."""
    axes = axes_of(problem)
    assert axes is not None
    sizes = [problem.extent(axis) for axis in axes[:2]]
    return [-(-n // size) for n, size in zip(sizes, config.tiles.block, strict=True)]


def _tiles(problem: Problem, config: TensorConfig) -> int:
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


def _fits_grid(problem: Problem, config: TensorConfig) -> bool:
    """Return whether the grid has an axis for each loop over blocks."""
    axes = axes_of(problem)
    assert axes is not None
    others = (problem.extent(axis) for axis in problem.parallel if axis not in axes[:2])
    counts = (*_tiles_along(problem, config), *others, config.chunks)
    return sum(count > 1 for count in counts) <= len(problem.gpu.grid)


def _count_cut(problem: Problem) -> int:
    """Return how many axes blocks are along."""
    return sum(problem.extent(axis) > 1 for axis in problem.parallel)


def _work(problem: Problem, config: TensorConfig) -> Work:
    members = [problem.scop.by_name[name] for name in problem.group.members]
    arrays = {access.array for s in members for access in (*s.writes, *s.reads)}
    written = {access.array for s in members for access in s.writes}
    inside = {name for name in arrays if is_inside(problem.scop, name, problem.group.members)}
    moved = {
        name: 0 if name in inside else problem.scop.arrays[name].size_bytes() or 0
        for name in arrays
    }
    whole, problem = problem, without_folds(problem)
    count, each, factors = _count_sums(whole), each_product(problem), _count_factors(problem)
    problem = each[0]
    shape, axes = problem.shapes[problem.lead], axes_of(problem)
    assert axes is not None and shape.statement.reduction is not None
    folds = folds_of(whole)
    parts = sum(part_bytes(whole, name, axes[0], config.tiles) for name in folds)
    n_folded = sum(is_of_columns(whole, name, axes[0]) for name in folds)
    terms = -(-_chunk(problem, config) // config.step) * config.step
    terms *= prod(shape.extents[dim] for dim in axes[3])
    if count < len(each):  # of one sum, one after another
        terms = sum(_whole_steps(one, config.step) for one in each)
    operands = [array for one in each for array in operands_of(one)]
    copy_bytes = min(vector_of(array) * array.dtype.size_bytes for array in operands)
    is_cut = config.together > 1 and is_truncated(operands[0].dtype, problem.options)
    return TensorWork(
        _blocks(problem, config), (config.warp_rows, config.warp_columns),
        config.rows, config.columns, terms, config.step, config.stages, config.together,
        unit_of(operands[0].dtype, is_truncated=is_cut), copy_bytes,
        sum(moved[name] for name in written) + parts, sum(moved[name] for name in arrays - written),
        operands[0].dtype.size_bytes, loads_for(problem),
        config.loader == BOXES,
        PART_BYTES * prod(map(problem.extent, problem.parallel)) * config.chunks
        if config.chunks > 1 else 0.0, _turns(problem, config), is_in_parts(problem),
        shape.statement.is_promoted or is_cut, config.chunks if config.is_finished else 0,
        count, factors, max(1, min(count, len(written - inside))),
        n_folded * fold_steps(config.tiles), are_columns_in_planes(problem),
    ).work(problem.gpu)  # fmt: skip


def _whole_steps(problem: Problem, step: int) -> int:
    """Return how many terms the steps of the lead have."""
    terms = _terms(problem)
    return -(-problem.shapes[terms.product].extents[terms.term] // step) * step


@own_analysis
def _count_factors(problem: Problem) -> tuple[int, int]:
    """Return how many tiles of rows and of columns a step has."""
    if is_one_sum(problem) or len(products_of(problem)) == 1:
        return 1, 1 + are_columns_in_planes(with_one_product(problem))
    axes, statements = axes_of(with_one_product(problem)), problem.shapes
    assert axes is not None
    row = shared_axis(problem, axes[0])
    factors = factors_of(problem, [_terms(one) for one in each_product(problem)])
    uses = (factor.uses[0] for factor in factors)
    rows = sum(
        has_index(
            statements[name].statement.reads[number], statements[name].statement.indices[row[name]]
        )
        for name, number in uses
    )
    return rows, len(factors) - rows


def _blocks(problem: Problem, config: TensorConfig) -> int:
    if config.is_persistent:
        return config.swath * _tiles_along(problem, config)[1]
    return _tiles(problem, config) * config.chunks


def schedule(problem: Problem, config: TensorConfig) -> Sketch:
    """Return the schedule that *config* asks for."""
    whole, products, folds = problem, without_folds(problem), folds_of(problem)
    problem = with_one_product(products)
    axes, terms = axes_of(problem), tuple(map(_terms, each_product(products)))
    assert axes is not None
    if is_one_sum(products):  # the first one's store is that of the sum
        terms = tuple(sorted(terms, key=lambda own: products.scop.position(own.product)))
    tiles = config.tiles
    rows, columns = tiles.block
    how = "; a producer warp issues bulk copies of operands (TMA)" if config.loader == BOXES else ""
    why: tuple[str, ...] = (
        f"{rows} x {columns} results a block, {config.rows} x {config.columns} a warp{how}",
        f"steps of {config.step} along {problem.shapes[problem.lead].statement.indices[axes[2]]},"
        f" {config.stages} of them in shared memory",
    )
    if len(terms) > 1:
        names = ", ".join(own.product for own in terms)
        how = "one after another, of one sum" if is_one_sum(products) else "which share steps"
        why = (*why, f"of the products {names}, {how}")
    if config.is_persistent:
        why = (*why, f"persistent blocks, each with {_turns(problem, config)} tiles")
    chunk = _chunk(problem, config) if config.chunks > 1 else 0
    if chunk:
        why = (*why, f"{config.chunks} blocks share the terms of a tile, {chunk} each")
    if config.is_finished:
        why = (*why, "the last of them adds up their sums")
    if folds:
        why = (*why, f"threads begin {', '.join(folds)}: a part for each warp's rows or columns")
    if are_columns_in_planes(problem):
        why = (*why, "parts of columns are in memory, those of rows in registers")
    members = whole.group.members
    return Sketch(
        members, (), dict.fromkeys(members, ()), why=why,
        partials={name: parts_of(whole, name, axes[:2], tiles) for name in folds},
        work=_work(whole, config),
        tensor=Tensor(
            shared_axis(products, axes[0]), shared_axis(products, axes[1]), terms, tiles,
            config.stages, config.loader == BOXES, config.swath, chunk, config.is_persistent,
            config.is_finished, is_one_sum(products), are_columns_in_planes(problem),
        ),
    )  # fmt: skip


TEMPLATE = Template(NAME, TensorConfig, why_not, space, schedule, is_likely)


def is_extended(problem: Problem) -> bool:
    """Return whether *problem* is made here, and is more than a product and what follows it.

    It reduces rows or columns of its product as well, or has several products.
    """
    has_more = folds_of(problem) or len(products_of(problem)) > 1
    return bool(has_more) and TEMPLATE.is_wanted(problem)
