"""Contractions on tensor cores: operands in shared memory, results in fragments.

    C(m,n) +=! A(m,k) * B(k,n)                     of the types of tensor_types.py
    O(n,w,f) +=! I(n,w+r,c) * K(f,r,c)             rows w, columns f, terms c; steps over r, too

One operand mentions the rows' index and not the columns', the other the reverse; both mention the
terms' index; other reduced indices are steps of their own, what else there is goes to blocks.
Which dimension of an operand has neighbours in memory does not matter: a turned matrix is loaded as
fast.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import ceil, inf, prod
from typing import Any

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import WARP
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.tensor_tiles import HeldOperand, TensorWork
from tcdsl.costmodel.work import Work
from tcdsl.rewrites.scop.padding import why_not_padded
from tcdsl.rewrites.scop.rfactor import has_terms, why_not_rfactored
from tcdsl.strategies.alternatives import least_seconds
from tcdsl.strategies.contracted import why_not_after
from tcdsl.strategies.fragments import vector_of
from tcdsl.strategies.joint_products import (
    each_product,
    factors_of,
    is_one_sum,
    products_of,
    why_not_before,
    why_not_joint,
    with_one_product,
)
from tcdsl.strategies.live_steps import live_share
from tcdsl.strategies.problem import Problem, nameless_analysis, own_analysis
from tcdsl.strategies.register_operands import (
    count_operations,
    is_along,
    is_in_registers,
    raw_bytes,
    raw_load,
    reads_of,
    with_operand,
)
from tcdsl.strategies.schedule import Schedule, Tensor, Terms
from tcdsl.strategies.template import Template
from tcdsl.strategies.templates import column, row, tile_simt
from tcdsl.strategies.tensor_configs import (
    BOXES,
    THREADS,
    TensorConfig,
    chunk_of,
    configs_of,
    count_blocks,
    count_tiles,
    equal_shares,
    fits_grid,
    in_chunks,
    in_clusters,
    in_shares,
    is_narrow,
    tiles_of_block,
)
from tcdsl.strategies.tensor_operands import (
    are_columns_in_planes,
    axes_of,
    has_index,
    in_registers,
    is_boxed,
    is_in_parts,
    loads_for,
    odd_lines,
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
    held_registers,
    is_of_columns,
    part_bytes,
    parts_of,
    shared_axis,
    why_not_folded,
    without_folds,
)
from tcdsl.strategies.traffic import is_inside

NAME = "tile_mma"
MOST_HELD = gpu_thresholds.TILE_HELD_REGISTERS
CLUSTERED = 2  # of the likeliest configurations, that are tried with clusters of blocks
_Ranked = tuple[float, int, TensorConfig]  # seconds, and the products that are made
MIN_WORK = gpu_thresholds.TILED_MULTIPLICATIONS
FEW_CONFIGS = 8  # of another template, that operands in registers are compared with
OTHERS: tuple[Template[Any], ...] = (tile_simt.TEMPLATE, row.TEMPLATE, column.TEMPLATE)


def why_not(problem: Problem) -> str | None:
    """Return why *problem* is not made on tensor cores, or None."""
    problem = with_operand(problem)
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
    if in_registers(one) and is_one_sum(problem):
        return "operands of one sum in registers"
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
    axes, lead_axes = axes_of(own), axes_of(one)
    assert axes is not None and lead_axes is not None
    if shared_axis(problem, lead_axes[0])[name] != axes[0][name]:
        return f"{name} has its rows where {problem.lead} has columns"
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
    if not has_terms(problem.scop, statement):
        return "some results have no terms"
    if shape.instances < MIN_WORK:
        return "it is small"
    if reason := why_not_factors(problem) or why_not_after(problem):
        return reason
    if axes_of(problem) is None:
        return "no two operands share a reduced index"
    return why_not_copied(problem) or why_not_split(problem)


@nameless_analysis
def is_likely(problem: Problem) -> bool:
    """Return whether no other template is estimated to be faster.

    That is asked of three products for one, and of operands that are computed in registers.
    """
    elements = with_operand(problem)
    if not is_in_parts(elements) and not in_registers(elements):
        return True
    config = next(space(problem), None)
    if config is None:
        return False
    own = estimate(_work(elements, config), problem.gpu).seconds
    each = FEW_CONFIGS if in_registers(elements) else 1
    return own <= least_seconds(problem, OTHERS, each)


def space(problem: Problem) -> Iterator[TensorConfig]:
    """Yield the configurations, first those that are estimated to take the least time."""
    yield from _ranked(problem)


@nameless_analysis
def _ranked(problem: Problem) -> list[TensorConfig]:
    """Return the configurations that fit, the fastest first."""
    problem = with_operand(problem)
    each = each_product(without_folds(problem))
    is_alone = len(each) == 1 and not folds_of(problem)
    configs: Iterable[TensorConfig] = configs_of(each, _count_sums(problem))
    found = _fitting(problem, each, in_chunks(each[0], configs) if is_alone else configs)
    likely = (config for *_, config in found if config.loader == BOXES)
    several = [own for one in islice(likely, CLUSTERED) for own in in_clusters(each[0], one)]
    if is_alone:
        firsts = {one.tiles: one for *_, one in reversed(found) if _has_plain_blocks(one)}
        several += [own for one in firsts.values() for own in in_shares(each[0], one)]
    # Blocks that wait for others start later, so that these come after the same ones without.
    found = sorted([*found, *_fitting(problem, each, several)], key=_seconds_and_products)
    # Equal shares are slower where they have been timed, whatever is predicted (docs/trials.md).
    found.sort(key=lambda one: one[2].shares > 0)
    return [config for *_, config in found]


def _has_plain_blocks(config: TensorConfig) -> bool:
    """Return whether each block of *config* has a tile, which a producer brings it."""
    return config.loader == BOXES and not config.is_persistent and config.chunks == 1


def _fitting(
    whole: Problem, each: Sequence[Problem], configs: Iterable[TensorConfig]
) -> list[_Ranked]:
    """Return those of *configs* that fit, for *each* product of *whole*, the fastest first."""
    found, problem = list[_Ranked](), each[0]
    for config in configs:
        if _held(whole, config) > MOST_HELD:
            continue
        terms = chunk_of(problem, config)
        if _count_sums(whole) < len(each):
            terms = sum(_whole_steps(one, config.step) for one in each)
        steps = -(-terms // config.step) * tiles_of_block(problem, config)
        if config.stages - 1 > steps:  # ahead of nothing
            continue
        if config.loader == THREADS and not fits_grid(problem, config):
            continue  # copies by threads are in loops over blocks alone
        work = _work(whole, config)
        seconds = estimate(work, problem.gpu).seconds
        # A narrow tile alone on its multiprocessor takes 1.2 to 1.3 of the time of two (H200).
        room = problem.gpu.shared_bytes_per_block // (2 if is_narrow(problem, config) else 1)
        if seconds < inf and work.shared_bytes <= room:
            made = count_tiles(problem, config) * prod(config.tiles.block)
            found.append((seconds, made, config))
    return sorted(found, key=_seconds_and_products)


def _seconds_and_products(one: _Ranked) -> tuple[float, int]:
    """Return by what configurations are ordered: of equal ones that with fewer products first."""
    return one[:2]


def _held(problem: Problem, config: TensorConfig) -> int:
    """Return how many registers of a thread hold sums, and what is reduced of them."""
    axes = axes_of(with_one_product(without_folds(problem)))
    assert axes is not None
    sums = _count_sums(problem) * config.rows * config.columns // WARP
    return sums + held_registers(problem, axes[0], config.tiles)


def _count_sums(problem: Problem) -> int:
    """Return how many sums threads hold at each place of a tile."""
    products = without_folds(problem)
    return 1 if is_one_sum(products) else len(products_of(products))


def _work(problem: Problem, config: TensorConfig) -> Work:
    members = [problem.scop.by_name[name] for name in problem.group.members]
    arrays = {access.array for s in members for access in (*s.writes, *s.reads)}
    arrays = {name for name in arrays if not is_in_registers(name)}
    for one in each_product(without_folds(problem)):
        arrays |= {*reads_of(one)}
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
    terms = -(-chunk_of(problem, config) // config.step) * config.step
    terms *= prod(shape.extents[dim] for dim in axes[3])
    if count < len(each):  # of one sum, one after another
        terms = sum(_whole_steps(one, config.step) for one in each)
    shares = equal_shares(problem, config)
    if shares is not None:
        terms = shares.each * shares.step
    elif len(each) == 1:
        terms = _live_terms(problem, config, terms)
    operands = [array for one in each for array in operands_of(one)]
    copy_bytes = min(vector_of(array) * array.dtype.size_bytes for array in operands)
    is_cut = config.together > 1 and is_truncated(operands[0].dtype, problem.options)
    return TensorWork(
        count_blocks(problem, config), (config.warp_rows, config.warp_columns),
        config.rows, config.columns, terms, config.step, config.stages, config.together,
        unit_of(operands[0].dtype, is_truncated=is_cut), copy_bytes,
        sum(moved[name] for name in written) + parts, sum(moved[name] for name in arrays - written),
        operands[0].dtype.size_bytes, loads_for(problem),
        config.loader == BOXES,
        4.0 * prod(map(problem.extent, problem.parallel)) * config.chunks
        if config.chunks > 1 else 0.0, tiles_of_block(problem, config), is_in_parts(problem),
        shape.statement.is_promoted or is_cut, config.chunks if config.is_finished else 0,
        count, factors, max(1, min(count, len(written - inside))),
        n_folded * fold_steps(config.tiles), are_columns_in_planes(problem), config.cluster,
        held=_held_operand(problem) if config.in_registers else None,
        tiles=0.0 if shares is None else max(1.0, shares.each / shares.steps),
        parts=0 if shares is None else shares.parts, odd=odd_lines(problem),
        narrow=sum(array.is_narrow for array in operands),
    ).work(problem.gpu)  # fmt: skip


def _live_terms(problem: Problem, config: TensorConfig, terms: int) -> int:
    """Return how many of *terms* an average block multiplies, of a masked sum the live steps'."""
    axes, lead = axes_of(problem), problem.lead
    assert axes is not None
    if config.is_persistent or prod(config.cluster) > 1:
        return terms
    rows, columns = config.tiles.block
    sizes = (axes[0][lead], rows), (axes[1][lead], columns), (axes[2], config.step)
    share = live_share(problem, sizes, config.loader == BOXES, True)
    return max(1, ceil(terms * share / config.step)) * config.step


def _held_operand(problem: Problem) -> HeldOperand:
    """Return what the operand in registers costs."""
    return HeldOperand(raw_bytes(problem), count_operations(problem), 1 if is_along(problem) else 6)


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


def schedule(problem: Problem, config: TensorConfig) -> Schedule:
    """Return the schedule that *config* asks for."""
    problem = with_operand(problem)
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
        why = (*why, f"persistent blocks, each with {tiles_of_block(problem, config)} tiles")
    if (shares := equal_shares(problem, config)) is not None:
        why = (*why, f"{shares.blocks} blocks with {shares.each} of the steps of all tiles each;"
                     " whose tile it is adds up the parts of others, in order")  # fmt: skip
    chunk = chunk_of(problem, config) if config.chunks > 1 else 0
    if chunk:
        why = (*why, f"{config.chunks} blocks share the terms of a tile, {chunk} each")
    if prod(config.cluster) > 1:
        along = " x ".join(map(str, config.cluster))
        why = (*why, f"clusters of {along} blocks; what several read each copies a part of, to all")
    if config.is_finished:
        why = (*why, "the last of them adds up their sums")
    if folds:
        why = (*why, f"threads begin {', '.join(folds)}: a part for each warp's rows or columns")
    if (load := raw_load(problem)) is not None:
        why = (*why, f"threads compute the operand of rows in registers, of {load.tensor}")
    if are_columns_in_planes(problem):
        why = (*why, "parts of columns are in memory, those of rows in registers")
    members = whole.group.members
    return Schedule(
        members, (), dict.fromkeys(members, ()), why=why,
        partials={name: parts_of(whole, name, axes[:2], tiles) for name in folds},
        work=_work(whole, config),
        tensor=Tensor(
            shared_axis(products, axes[0]), shared_axis(products, axes[1]), terms, tiles,
            config.stages, config.loader == BOXES, config.swath, chunk, config.is_persistent,
            config.is_finished, is_one_sum(products), are_columns_in_planes(problem),
            config.cluster, config.in_registers, shares,
        ),
    )  # fmt: skip


TEMPLATE = Template(NAME, TensorConfig, why_not, space, schedule, is_likely)


@nameless_analysis
def is_extended(problem: Problem) -> bool:
    """Return whether *problem* is made here, and is more than a product and what follows it.

    It reduces rows or columns of its product as well, or has several products.
    """
    has_more = folds_of(problem) or len(products_of(problem)) > 1
    return bool(has_more) and TEMPLATE.is_wanted(problem)
