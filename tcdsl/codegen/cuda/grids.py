"""How many blocks a kernel needs at given open sizes: its grid, from the call.

    BLOCK.x[128] over (b * N + n) / 128,  B in 17..256      grid.x = (N * B - 1) / 128 + 1 <= 128

The loops' widths are those at the greatest sizes.  A block whose number is no iteration of any
statement would do nothing, and is not launched.  Where the blocks of a kernel are counted, for the
last of them, or all, to go on (schedule/stitching, grid_phases), all are launched.
"""

from collections.abc import Sequence

import islpy as isl

from tcdsl.codegen.cuda.counts import Count, Counts
from tcdsl.poly.isl_utils import Extent
from tcdsl.poly.loop_tree import Loop, LoopKind, loops_of
from tcdsl.poly.scop import Scop
from tcdsl.schedule.grid_phases import has_phases
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.stitching import last_loop


def grid_counts(mapped: Mapped, sizes: Sequence[str]) -> tuple[Counts, Counts, Counts]:
    """Return for x, y and z what the grid's extent is at least; nothing where it is as it is.

    :arg sizes: the open sizes, in the order in which a call gives them.
    """
    if not sizes or last_loop(mapped.tree) is not None or has_phases(mapped.scop, mapped.tree):
        return (), (), ()
    loops = [loop for loop in loops_of(mapped.tree) if loop.kind is LoopKind.BLOCK]
    x, y, z = (
        _counts(mapped, [loop for loop in loops if loop.axis == axis], sizes) for axis in range(3)
    )
    return x, y, z


def extent_counts(extent: Extent, sizes: Sequence[str]) -> Counts:
    """Return *extent*, a number or a function of the open *sizes*, as counts."""
    if isinstance(extent, int):
        return (Count(1, extent, ()),)
    pieces = extent.gist_params(extent.domain()).get_pieces()
    return tuple(dict.fromkeys(_count(aff, sizes) for _, aff in pieces))


def _counts(mapped: Mapped, loops: Sequence[Loop], sizes: Sequence[str]) -> Counts:
    found: dict[Count, None] = {}
    for loop in loops:
        for statement, coordinate in loop.coordinates.items():
            domain = mapped.scop.by_name[statement].domain
            function = isl.PwAff.from_aff(coordinate.function(domain.get_space()))
            last = domain.apply(isl.Map.from_pw_aff(function)).dim_max(0)
            # Of several pieces the largest value is enough: no block less than are needed.
            for _, aff in _simple(mapped.scop, last).get_pieces():
                found[_count(aff.add_constant_val(isl.Val(1)), sizes)] = None
    return tuple(found)


def _simple(scop: Scop, function: isl.PwAff) -> isl.PwAff:
    return function.coalesce().gist_params(scop.context)


def _count(aff: isl.Aff, sizes: Sequence[str]) -> Count:
    """Return the quasi-affine *aff* of the *sizes* as plain data."""
    denominator = int(aff.get_denominator_val().to_python())
    terms: list[tuple[int, int | Count]] = []
    for position, name in enumerate(aff.get_var_names(isl.dim_type.param)):
        factor = _coefficient(aff, isl.dim_type.param, position, denominator)
        if factor:
            terms.append((factor, sizes.index(name)))
    for position in range(aff.dim(isl.dim_type.div)):
        factor = _coefficient(aff, isl.dim_type.div, position, denominator)
        if factor:
            terms.append((factor, _count(aff.get_div(position), sizes)))
    constant = int((aff.get_constant_val() * isl.Val(denominator)).to_python())
    return Count(denominator, constant, tuple(terms))


def _coefficient(aff: isl.Aff, kind: isl.dim_type, position: int, denominator: int) -> int:
    return int((aff.get_coefficient_val(kind, position) * isl.Val(denominator)).to_python())
