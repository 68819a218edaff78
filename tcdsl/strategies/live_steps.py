"""Steps of a masked sum's tiles that have a term: all others are neither copied nor multiplied.

    C(m,n) +=! (k <= m ? A(m,k) : 0) * B(k,n)        blocks of 128 rows, steps of 64 terms

       k >
    m  # # . . . .        a step is live iff its tile has an instance whose mask holds:
    v  # # # # . .        64 k0 <= 128 m0 + 127.  Of a triangle that is about half of all,
       # # # # # #        of a band the band's

The live instances are those at which no factor is 0 because of its mask; of a factor that is
computed into an array first, whose element is none that its copy masks.  Legal iff the sum is
masked (``rewrites/scop/masked_sums``): its terms that are 0 may be left out.

A producer's stages are counted from 0 on.  So the steps of a block are counted from its first live
one, where that is a linear function of the block, as of an upper triangle: k0 - 2 m0 >= 0.  Else
(a band, which begins at max(0, 2 m0 - 4)) all steps before a live one are taken for live.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import islpy as isl

from tcdsl.poly.accesses import access, builder_of
from tcdsl.poly.footprints import outer_map
from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate
from tcdsl.poly.scop import Scop, Statement
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.masked_sums import unmasked
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.tensor_tree import TensorKernel
from tcdsl.strategies.tile_copies import around_of

PARTS = 32  # of an extent, at most, that an estimate looks at


def live_instances(scop: Scop, statement: Statement) -> isl.Set:
    """Return the instances of *statement* at which no factor is 0 because of its mask."""
    return unmasked(scop, statement) if statement.is_masked else statement.domain


def with_live_steps(
    kernel: TensorKernel, *, is_counted: bool, may_shift: bool = False
) -> TensorKernel:
    """Return *kernel*, which has no copies yet, with the product's live steps alone.

    :arg is_counted: a producer counts stages: steps run from 0 on.
    :arg may_shift: copies may be at any linear function of blocks and steps.
    """
    statement = kernel.scop.by_name[kernel.name]
    if not statement.is_masked:
        return kernel
    around = [coordinate for coordinate, _ in around_of(kernel, kernel.name)]
    tiles = _live_tiles(kernel.scop, statement, around)
    first = _first_steps(tiles) if is_counted and may_shift else None
    if first is not None:
        kernel = _counted_from(kernel, around, first)
    elif is_counted:
        tiles = _from_first(tiles)
    tile = outer_map(statement, around)
    domain = statement.domain.intersect(tiles.apply(tile.reverse())).coalesce()
    new = with_own_reads(kernel.scop, _on(kernel.scop, statement, domain))
    own = (new if s is statement else s for s in kernel.scop.statements)
    return replace(kernel, scop=kernel.scop.with_statements(tuple(own)))


def _on(scop: Scop, statement: Statement, domain: isl.Set) -> Statement:
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    write = access(builder, statement.write.array, statement.write.subscripts, scop.arrays, domain)
    return replace(statement, domain=domain, write=write)


def _live_tiles(scop: Scop, statement: Statement, around: Sequence[AnyCoordinate]) -> isl.Set:
    """Return the tiles that have a live instance, by the coordinates *around*."""
    return live_instances(scop, statement).apply(outer_map(statement, around)).coalesce()


def _first_steps(tiles: isl.Set) -> tuple[list[int], int] | None:
    """Return the first step of a block as factors of its coordinates and a constant, or None."""
    n_blocks, in_ = tiles.dim(isl.dim_type.set) - 1, isl.dim_type.in_
    steps = isl.Map.from_range(tiles).move_dims(in_, 0, isl.dim_type.out, 0, n_blocks)
    pieces = steps.dim_min(0).get_pieces()
    if len(pieces) != 1:
        return None
    aff = pieces[0][1]
    values = [aff.get_coefficient_val(in_, dim) for dim in range(n_blocks)]
    values.append(aff.get_constant_val())
    if aff.dim(isl.dim_type.div) or not all(value.is_int() for value in values):
        return None
    *factors, constant = (int(value.to_python()) for value in values)
    return (factors, constant) if any(factors) or constant else None


def _counted_from(
    kernel: TensorKernel, around: Sequence[AnyCoordinate], first: tuple[list[int], int]
) -> TensorKernel:
    """Return *kernel* with the steps of a block counted from its *first* live one."""
    level, (factors, constant) = kernel.step[kernel.name], first
    terms = [(1, level.coordinate)]
    terms += [(-n, own) for n, own in zip(factors, around, strict=False) if n]
    own = replace(level, coordinate=AffineCoordinate(tuple(terms), constant))
    return replace(kernel, step={**kernel.step, kernel.name: own})


def _from_first(tiles: isl.Set) -> isl.Set:
    """Return *tiles*, whose last coordinate is the step, with all steps from 0 on before each."""
    last = tiles.dim(isl.dim_type.set) - 1
    space = tiles.get_space()
    same = isl.Map.identity(space.map_from_set())
    free = same.project_out(isl.dim_type.out, last, 1).add_dims(isl.dim_type.out, 1)
    local = isl.LocalSpace.from_space(space)
    step = isl.Map.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.set, last))
    earlier = free.intersect(step.lex_ge_map(step))
    return tiles.apply(earlier).lower_bound_val(isl.dim_type.set, last, isl.Val(0)).coalesce()


@analysis
def live_share(
    problem: Problem,
    sizes: tuple[tuple[int, int], ...],
    is_counted: bool,
    may_shift: bool = False,
) -> float:
    """Return which part of a masked sum's tiles has a term: see :func:`with_live_steps`.

    :arg sizes: dimensions of the lead, the last one that of the terms, and a tile's values of each.
    """
    statement = problem.scop.by_name[problem.lead]
    if not statement.is_masked:
        return 1.0
    bounds: Mapping[int, tuple[int, int]] = {
        dim: found
        for dim, _ in sizes
        if (found := constant_bounds(statement.domain, dim)) is not None
    }
    if len(bounds) < len(sizes):
        return 1.0
    coarse = [
        Coordinate(dim, 0, max(size, -(-(bounds[dim][1] + 1) // PARTS))) for dim, size in sizes
    ]
    live = _live_tiles(problem.scop, statement, coarse)
    if is_counted and not (may_shift and _first_steps(live) is not None):
        live = _from_first(live)
    every = prod(-(-(bounds[one.position][1] + 1) // one.div) for one in coarse)
    return float(live.count_val().to_python()) / every
