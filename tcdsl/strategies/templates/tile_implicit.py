"""Sums of products on tensor cores whose operands are packed: convolutions and their gradients.

    O(n,h,w,f) +=! (h+r >= 1 && ... ? I(n,h+r-1,w+s-1,c) : 0) * K(f,r,s,c)
    ---> rows (n,h,w), columns f, terms (r,s,c): tiles as of ``tile_mma``, each element fetched by
         its own address, zeros where the guard does not hold

For what ``tile_mma`` does not take or takes slower: guards, windows, several long reduced indices,
rows that are short in each index.  Where tiles are few, blocks share the terms (split-K): each
stores its sums, a kernel after it adds them in order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import ceil, inf, prod
from typing import Any

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Feature
from tcdsl.costmodel.estimate import estimate, fastest
from tcdsl.costmodel.packing import Copied, with_loaders, with_parts
from tcdsl.costmodel.tensor_tiles import PART_BYTES, TensorWork
from tcdsl.costmodel.tiles import Product
from tcdsl.costmodel.work import Work
from tcdsl.lang.comprehension import Operator
from tcdsl.lang.types.dtypes import FLOAT32, DType
from tcdsl.poly.scop import Kind, Storage
from tcdsl.schedule.stitching import MAX_TICKETS
from tcdsl.strategies import implicit_threads, tensor_configs
from tcdsl.strategies.alternatives import least_seconds
from tcdsl.strategies.bulk_tiles import bulk_tile_of
from tcdsl.strategies.contracted import why_not_contracted
from tcdsl.strategies.fragments import swath_in_turn
from tcdsl.strategies.implicit_kernel import chunk_size, classes_for
from tcdsl.strategies.implicit_product import (
    LEAST_EXTENT,
    Classes,
    classes_of,
    factor_type,
    factors_of,
    flat_classes_of,
    why_not_named,
)
from tcdsl.strategies.implicit_threads import why_not_on_threads, work_on_threads
from tcdsl.strategies.live_steps import live_share
from tcdsl.strategies.problem import Problem, analysis, nameless_analysis
from tcdsl.strategies.schedule import Implicit, Schedule
from tcdsl.strategies.stored_runs import stored_bytes
from tcdsl.strategies.template import Template
from tcdsl.strategies.templates import column, row, tile_mma, tile_simt
from tcdsl.strategies.tensor_configs import ProductConfig, Shapes
from tcdsl.strategies.tensor_types import (
    SPLIT_TERMS,
    are_multiplied,
    has_groups,
    is_split,
    loads_of,
    unit_of,
    why_not_made,
)

NAME = "tile_implicit"
# Of those whose operands come in boxes, beside a producer's warp.
BOX_SHAPES: Shapes = (
    *tensor_configs.BOX_SHAPES, (16, 64, 8, 1), (16, 64, 12, 1), (16, 128, 12, 1), (16, 192, 12, 1),
)  # fmt: skip
CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
LEAST_STEPS = 4  # of a chunk
FULL = 3  # blocks for a multiprocessor, of those that share sums
STEP_BYTES = 128  # along the terms
# Of float32 in parts, by four warps together each, and how many stages are tried.
SPLIT_SHAPES = ((16, 64, 4, 1), (16, 64, 8, 1), (16, 128, 4, 1), (16, 128, 8, 1))
SPLIT_STAGES = (3, 2, 4)
FEW = 12  # rows, columns or terms: threads may be faster than tiles that are mostly empty
SURELY = gpu_thresholds.SLOWER_THAN_IMPLICIT
OTHERS: tuple[Template[Any], ...] = (tile_mma.TEMPLATE, tile_simt.TEMPLATE)
Way = tuple[int, Shapes, Sequence[int], Sequence[int]]


def why_not(problem: Problem) -> str | None:
    """Return why *problem* is not made so, or None."""
    if reason := why_not_contracted(problem) or _why_not_factors(problem):
        return reason
    classes = classes_of(problem)
    if classes is None:
        return "its indices have no classes: rows, columns and terms"
    if reason := why_not_named(problem):
        return reason
    reason = _why_not_on_tensor_cores(problem)
    if reason and why_not_on_threads(factor_type(problem), classes) is not None:
        return reason
    is_plain = classes.steps is None and all(len(one.indices) == 1 for one in classes.all)
    if is_plain and tile_mma.why_not(problem) is None:
        return "it is a plain product: tile_mma"
    return None if _first(problem) is not None else "no tile fits"


@nameless_analysis
def is_likely(problem: Problem) -> bool:
    """Return whether no other template is estimated to be as fast."""
    classes = classes_of(problem)
    assert classes is not None, "why_not"
    least_extent = min(one.extent for one in (classes.row, classes.column, classes.term))
    others = OTHERS if least_extent >= FEW else (*OTHERS, row.TEMPLATE, column.TEMPLATE)
    first = _first(problem)
    assert first is not None, "why_not"
    return least_seconds(problem, others) > SURELY * first[0]


def _why_not_factors(problem: Problem) -> str | None:
    statement = problem.shapes[problem.lead].statement
    factors, reduction = factors_of(statement), statement.reduction
    if factors is None or reduction is None or reduction.operator is not Operator.ADD:
        return "it adds no products of two elements"
    loads = [factor.load for factor in factors]
    types = [problem.scop.arrays[load.tensor].dtype for load in loads]
    if not are_multiplied(types, reduction.dtype):
        return "tensor cores multiply no factors of these types"
    return None


@analysis
def _why_not_on_tensor_cores(problem: Problem) -> str | None:
    """Return why tensor cores do not multiply the factors, or None."""
    statement, classes = problem.shapes[problem.lead].statement, classes_of(problem)
    assert classes is not None and statement.reduction is not None, "why_not"
    factors = factors_of(statement)
    assert factors is not None, "why_not"
    types = [factor.load.dtype for factor in factors]
    if reason := why_not_made(types, statement.reduction.dtype, problem.gpu, problem.options):
        return reason
    if min(one.extent for one in (classes.row, classes.column, classes.term)) < LEAST_EXTENT:
        return "most of a tile would be empty"
    if _is_split(problem) and _terms(classes) - _steps(classes) < SPLIT_TERMS:
        return "its sums are too short to be as accurate in three products of tf32"
    return None


def _is_split(problem: Problem) -> bool:
    """Return whether each product of *problem* is made as several, of parts of its factors."""
    return is_split(factor_type(problem), problem.options)


def _terms(classes: Classes) -> int:
    """Return how many products a sum has."""
    return classes.term.extent * (1 if classes.steps is None else classes.steps.extent)


def _steps(classes: Classes) -> int:
    """Return in how many steps a sum of float32 is made."""
    steps = 1 if classes.steps is None else classes.steps.extent
    return -(-classes.term.extent // (STEP_BYTES // FLOAT32.size_bytes)) * steps


def space(problem: Problem) -> Iterator[ProductConfig]:
    """Yield the configurations, first those that are estimated to take the least time."""
    first = _first(problem)
    if first is not None:
        yield first[1]
        yield from _ranked(problem)[1:]


@nameless_analysis
def _first(problem: Problem) -> tuple[float, ProductConfig] | None:
    """Return the least seconds and who takes them: the first that :func:`_ranked` returns."""
    every = list(_offered(problem))
    seconds, number = fastest([work for _, work in every], problem.gpu)
    return (seconds, every[number][0]) if seconds < inf else None


def _ranked(problem: Problem) -> list[ProductConfig]:
    """Return what fits, the fastest first."""
    timed = [(estimate(work, problem.gpu).seconds, c) for c, work in _offered(problem)]
    found = [(seconds, config) for seconds, config in timed if seconds < inf]
    return [config for _, config in sorted(found, key=lambda pair: pair[0])]


def _offered(problem: Problem) -> Iterator[tuple[ProductConfig, Work]]:
    """Yield configurations for whose shared memory there is room, and what they cost."""
    room = problem.gpu.shared_bytes_per_block
    for config in _configs(problem):
        classes = classes_for(problem, config.chunks)
        steps = chunk_size(classes, config.step, config.chunks) // config.step
        steps *= 1 if classes.steps is None else classes.steps.extent
        steps *= _tiles_of_block(classes, config)
        if config.stages - 1 > steps or (config.chunks > 1 and steps < LEAST_STEPS):
            continue
        if not _has_whole_atoms(problem, classes, config):
            continue
        work = _work(problem, config)
        if work.shared_bytes <= room:
            yield config, work


def _has_whole_atoms(problem: Problem, classes: Classes, config: ProductConfig) -> bool:
    """Return whether lines of the columns' tile are made of atoms, where four warps read it."""
    line_bytes = config.tiles.block[1] * factor_type(problem).size_bytes
    is_along = classes.loaded[1].is_along_terms
    return is_along or config.together <= 1 or line_bytes % STEP_BYTES == 0


def _narrowed(problem: Problem, shapes: Shapes) -> Shapes:
    """Return *shapes*, or where columns are few narrow ones, if lines go along the terms."""
    classes = classes_of(problem)
    assert classes is not None, "why_not"
    if not classes.loaded[1].is_along_terms:
        return shapes
    return tensor_configs.narrow_shapes(classes.column.extent, shapes) or shapes


def _ways(problem: Problem) -> Iterator[Way]:
    """Yield how many warps multiply together, what each has, and which steps and stages fit."""
    factor, classes = factor_type(problem), classes_of(problem)
    assert classes is not None, "why_not"
    steps = (STEP_BYTES // factor.size_bytes,)
    if _why_not_on_tensor_cores(problem) is None and _is_split(problem):
        yield tensor_configs.WARPS, _narrowed(problem, SPLIT_SHAPES), steps, SPLIT_STAGES
    elif _why_not_on_tensor_cores(problem) is None:
        yield 1, tensor_configs.warp_shapes(factor), steps, tensor_configs.STAGES
        if problem.gpu.has(Feature.WARPGROUP_PRODUCTS) and factor.is_half:
            yield (
                tensor_configs.WARPS,
                _narrowed(problem, tensor_configs.GROUP_SHAPES),
                steps,
                tensor_configs.GROUP_STAGES,
            )
    if why_not_on_threads(factor, classes) is None:
        yield 0, implicit_threads.SHAPES, implicit_threads.STEPS, implicit_threads.STAGES


def _configs(problem: Problem) -> Iterator[ProductConfig]:
    yield from _boxed_configs(problem)
    for together, shapes, steps, all_stages in _ways(problem):
        for shape, step, stages in product(shapes, steps, all_stages):
            config = ProductConfig(*shape, step, stages, together)
            yield config
            if len(problem.group.members) == 1:
                yield from (replace(config, chunks=n) for n in _chunks(problem, config))


def _boxed_configs(problem: Problem) -> Iterator[ProductConfig]:
    """Yield the configurations whose operands requests of a producer bring."""
    gpu, dtype, classes = problem.gpu, factor_type(problem), classes_of(problem)
    has_boxes = gpu.has(Feature.WARPGROUP_PRODUCTS) and gpu.has(Feature.BULK_COPY)
    if not has_boxes or classes is None or _why_not_on_tensor_cores(problem) is not None:
        return
    rows, columns = (loaded.is_along_terms for loaded in classes.loaded)
    shapes, all_stages = BOX_SHAPES, tensor_configs.BOX_STAGES
    if _is_split(problem):
        shapes, all_stages = SPLIT_SHAPES, SPLIT_STAGES
    elif not has_groups(dtype, problem.options, is_along=(rows, columns)):
        return
    for shape, stages in product(_narrowed(problem, shapes), all_stages):
        step = STEP_BYTES // dtype.size_bytes
        config = ProductConfig(*shape, step, stages, tensor_configs.WARPS, tensor_configs.BOXES)
        if _why_not_boxed(problem, config) is None:
            yield config
            if (swath := _swath_in_turn(problem, config)) > 0:
                yield replace(config, swath=swath, is_persistent=True)
        for chunks in _chunks(problem, config):
            own = replace(config, chunks=chunks)
            if _why_not_boxed(problem, own) is not None:
                continue
            if len(problem.group.members) == 1:  # a kernel after it adds up the sums
                yield own
            if _tiles(classes_for(problem, chunks), config) <= MAX_TICKETS:
                yield replace(own, is_finished=True)


def _why_not_boxed(problem: Problem, config: ProductConfig) -> str | None:
    """Return why requests do not bring the tiles of *config*, or None."""
    classes = classes_for(problem, config.chunks)
    for number, size in enumerate(config.tiles.block):
        bulk = bulk_tile_of(problem, config.chunks > 1, number)
        if isinstance(bulk, str):
            return bulk
        if not classes.loaded[number].is_along_terms:
            within = size
        elif config.chunks > 1:  # the last one's steps go beyond the terms unless it is whole
            within = chunk_size(classes, config.step, config.chunks)
        else:
            within = config.step
        if within % config.step or (bulk.whole and bulk.whole % within):
            return "a line has no whole atoms"
    return None


def _swath_in_turn(problem: Problem, config: ProductConfig) -> int:
    """Return the swath of blocks that have several tiles, 0 where none do, or there are batches."""
    classes = classes_for(problem, config.chunks)
    if any(batch.extent > 1 for batch in classes.batches):
        return 0
    return swath_in_turn(problem.gpu, *_counts(classes, config))


def _chunks(problem: Problem, config: ProductConfig) -> Iterator[int]:
    """Yield how many blocks may share the terms: as many as fill the chip some times over."""
    if flat_classes_of(problem) is None:  # an open size ends an index that would not be the slowest
        return
    classes = classes_for(problem, 2)
    tiles = _tiles(classes, config)
    if sum(n > 1 for n in (*_counts(classes, config), *(b.extent for b in classes.batches))) > 2:
        return
    own = (n * problem.gpu.multiprocessors // tiles for n in range(1, FULL + 1))
    for chunks in sorted({*CHUNKS, *own} - {0, 1}):
        count = -(-classes.term.extent // chunk_size(classes, config.step, chunks))
        if count == chunks and _is_filled(problem, tiles * chunks):
            yield chunks


def _is_filled(problem: Problem, blocks: int) -> bool:
    """Return whether *blocks* that share terms are enough for the chip, and not too many."""
    return problem.gpu.multiprocessors <= 2 * blocks <= 2 * FULL * problem.gpu.multiprocessors


def _counts(classes: Classes, config: ProductConfig) -> list[int]:
    sides = zip((classes.row, classes.column), config.tiles.block, strict=True)
    return [-(-side.extent // size) for side, size in sides]


def _tiles_of_block(classes: Classes, config: ProductConfig) -> int:
    """Return how many tiles a block has, at most."""
    return -(-_counts(classes, config)[0] // config.swath) if config.is_persistent else 1


def _tiles(classes: Classes, config: ProductConfig) -> int:
    return prod(_counts(classes, config)) * prod(batch.extent for batch in classes.batches)


def _work(problem: Problem, config: ProductConfig) -> Work:
    """Return what the kernel costs, and what adds up its chunks."""
    classes = classes_for(problem, config.chunks)
    read_bytes, written_bytes = _moved_bytes(problem)
    terms = chunk_size(classes, config.step, config.chunks)
    terms *= 1 if classes.steps is None else classes.steps.extent
    terms = _live_terms(problem, config, terms)
    dtype = factor_type(problem)
    blocks = _tiles(classes, config) * config.chunks
    results = _results(classes)
    sizes = [float(blocks) * terms * size for size in config.tiles.block]
    if not config.together:
        own = Product(_tiles(classes, config), _terms(classes), dtype.size_bytes, results, False)
        copies = list(zip(sizes, classes.loaded, strict=True))
        work = work_on_threads(own, config.tiles, config.stages, config.chunks, copies, problem.gpu)
        return replace(work, read_bytes=float(read_bytes), written_bytes=float(written_bytes))
    is_boxed = config.loader == tensor_configs.BOXES
    if config.is_persistent:
        blocks = config.swath * _counts(classes, config)[1]
    shared = results * config.chunks if config.chunks > 1 else 0
    plain = TensorWork(
        blocks, (config.warp_rows, config.warp_columns), config.rows, config.columns,
        terms, config.step, config.stages, config.together, unit_of(dtype), 16,
        written_bytes, read_bytes,
        dtype.size_bytes, _loads(dtype, classes), is_boxed,
        PART_BYTES * shared if is_boxed else 0.0,
        _tiles_of_block(classes, config), _is_split(problem),
        problem.shapes[problem.lead].statement.is_promoted,
        config.chunks if config.is_finished else 0,
        stored=0.0 if shared and not config.is_finished else stored_bytes(problem, classes),
    ).work(problem.gpu)  # fmt: skip
    if is_boxed:
        return plain
    if _is_split(problem):
        products = sizes[0] * config.tiles.block[1]
        plain = with_parts(plain, products)
    copied = [
        Copied(size, loaded.vector, loaded.is_along_terms, loaded.apart)
        for size, loaded in zip(sizes, classes.loaded, strict=True)
    ]
    return with_loaders(plain, copied, dtype.size_bytes, shared, problem.gpu)


def _live_terms(problem: Problem, config: ProductConfig, terms: int) -> int:
    """Return how many of *terms* an average block multiplies, of a masked sum the live steps'."""
    classes, names = classes_for(problem, config.chunks), problem.shapes[problem.lead].statement
    sides = classes.row, classes.column, classes.term
    if config.is_persistent or any(len(side.indices) > 1 for side in sides):
        return terms
    dims = (names.indices.index(side.indices[0]) for side in sides)
    sizes = tuple(zip(dims, (*config.tiles.block, config.step), strict=True))
    share = live_share(problem, sizes, config.loader == tensor_configs.BOXES, False)
    return max(1, ceil(terms * share / config.step)) * config.step


def _loads(dtype: DType, classes: Classes) -> tuple[int, int]:
    """Return the instructions with which a thread gets its part of 16 rows, and 16 columns."""
    rows, columns = (loads_of(dtype, is_along=one.is_along_terms) for one in classes.loaded)
    return rows, columns


@analysis
def _moved_bytes(problem: Problem) -> tuple[int, int]:
    """Return the bytes that the kernel reads of arrays, and those that it writes."""
    members = [problem.scop.by_name[name] for name in problem.group.members]
    written = {access.array for s in members for access in s.writes}
    read = {access.array for s in members for access in s.reads} - written
    return sum(_moved(problem, n) for n in read), sum(_moved(problem, n) for n in written)


def _moved(problem: Problem, name: str) -> int:
    """Return the bytes of the array *name* that the kernel moves: none of what it alone uses."""
    array, members = problem.scop.arrays[name], problem.group.members
    users = problem.scop.users.get(name, ())
    own = [s for s in users if s.kind is not Kind.INIT and s.name not in members]
    if array.storage is Storage.SCRATCH and not own and len(users) > 1:
        return 0
    size = array.size_bytes() or 0
    if any(write.array == name for n in members for write in problem.scop.by_name[n].writes):
        return min(size, problem.results * array.dtype.size_bytes)
    return size


def _results(classes: Classes) -> int:
    return prod(one.extent for one in (*classes.batches, classes.row, classes.column))


def schedule(problem: Problem, config: ProductConfig) -> Schedule:
    """Return the schedule that *config* asks for."""
    classes = classes_for(problem, config.chunks)
    rows, columns = config.tiles.block
    groups = [one for one in (classes.steps, classes.term) if one is not None]
    along = " and ".join(f"({', '.join(one.indices)})" for one in groups)
    why = [
        f"{rows} x {columns} results a block, {config.rows} x {config.columns} a warp: rows along"
        f" ({', '.join(classes.row.indices)}), columns along ({', '.join(classes.column.indices)})",
        f"steps of {config.step} along {along}, {config.stages} of them in shared memory",
    ]
    if config.loader == tensor_configs.BOXES:
        why.append("a producer warp issues bulk copies of operands (TMA)")
    if config.is_persistent:
        why.append("persistent blocks, each with several tiles")
    if config.chunks > 1:
        why.append(f"{config.chunks} blocks share the terms of a result")
    if config.is_finished:
        why.append("the last of them adds up their sums")
    members = problem.group.members
    return Schedule(
        members, (), dict.fromkeys(members, ()), why=tuple(why), work=_work(problem, config),
        implicit=Implicit(
            config.tiles, config.stages, config.chunks, config.loader == tensor_configs.BOXES,
            config.swath, config.is_persistent, config.is_finished,
        ),
    )  # fmt: skip


TEMPLATE = Template(NAME, ProductConfig, why_not, space, schedule, is_likely)
