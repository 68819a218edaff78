"""Rewrites as data: where each may be applied, why not elsewhere, and what becomes of the program.

A rewrite is a candidate: the search applies it where groups of the rewritten program are predicted
to take less time, and keeps why it did not where they would take more.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial

from tcdsl.costmodel.chip import Chip, Feature
from tcdsl.lang.comprehension import Index
from tcdsl.lang.types.dtypes import FLOAT8, FLOAT32, DType
from tcdsl.options import Options
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.added_sums import added, why_not_added
from tcdsl.rewrites.scop.column_planes import makes_planes
from tcdsl.rewrites.scop.common_subexpressions import why_not_shared, with_shared
from tcdsl.rewrites.scop.computed_factors import computed_first, why_not_computed_first
from tcdsl.rewrites.scop.extreme_places import place_after, why_not_after
from tcdsl.rewrites.scop.float16_parts import in_float16, why_not_in_float16
from tcdsl.rewrites.scop.masked_sums import masked, why_not_masked
from tcdsl.rewrites.scop.narrowing import narrowed, narrowed_together, why_not_narrowed_together
from tcdsl.rewrites.scop.outer_factors import why_not_outer, with_outer_factors
from tcdsl.rewrites.scop.part_sums import in_parts, why_not_in_parts
from tcdsl.rewrites.scop.placed_extremes import why_not_placed, with_place
from tcdsl.rewrites.scop.remainders import by_remainders, why_not_by_remainders
from tcdsl.rewrites.scop.repacking import repacked, why_not_repacked
from tcdsl.rewrites.scop.separate_sums import separate, why_not_separate
from tcdsl.rewrites.scop.stored_conditions import why_not_stored_first, with_stored_condition
from tcdsl.rewrites.scop.widening import why_not_widened, widened
from tcdsl.strategies.asked import asked_for
from tcdsl.strategies.operand_orders import (
    BYTES,
    WORDS,
    order_of_copy,
    orders_along,
    orders_of,
    with_order_of_copy,
    with_orders,
    with_orders_along,
)
from tcdsl.strategies.operand_planes import columns_for, with_columns_in_planes
from tcdsl.strategies.result_orders import order_of_result, with_ordered_result
from tcdsl.strategies.tensor_types import is_split


@dataclass(frozen=True, slots=True)
class Rewrite:
    """See the module's docstring; a site is the name of a statement or of an array.

    *instead*: another way to the same end, which is taken where it is as fast.  *stores_factors*:
    it stores what a product may compute in registers, as it does *instead*, if there is that.
    """

    name: str
    sites: Callable[[Scop], Iterable[str]]
    why_not: Callable[[Scop, str], str | None]
    apply: Callable[[Scop, str], Scop]
    is_reassociating: bool = False  # only where options.is_reassociated
    instead: Callable[[Scop, str], Scop] | None = None
    stores_factors: bool = False

    def ways(self, scop: Scop, site: str, *, in_registers: bool = False) -> list[Scop]:
        """Return what may become of *scop* at *site*, the best of equally fast ones first.

        :arg in_registers: whether factors there are asked for in registers, so that none is stored.
        """
        other = scop if self.instead is None else self.instead(scop, site)
        ways = [] if other is scop else [other]
        return ways if in_registers and self.stores_factors else [*ways, self.apply(scop, site)]


def _arg_reductions(scop: Scop) -> list[str]:
    return [
        s.name
        for s in scop.statements
        if s.kind is Kind.UPDATE and s.reduction is not None and s.reduction.operator.is_arg
    ]


def _interleaved_sums(scop: Scop) -> list[str]:
    """Return reductions of which one reads neighbours along a short index, results between."""
    updates = (s for s in scop.statements if s.kind is Kind.UPDATE and not s.library)
    return [s.name for s in updates if _is_interleaved(s)]


def _products(scop: Scop) -> list[str]:
    """Return sums of what two operands at least have."""
    return [s.name for s in scop.statements if s.kind is Kind.UPDATE and len(s.reads) > 1]


def _is_interleaved(statement: Statement) -> bool:
    """Return whether an index of the result lies between reduced ones in something that is read."""
    for read in statement.reads:
        names = [s.name for s in read.subscripts if isinstance(s, Index)]
        kinds = [name in statement.reduced for name in names]
        if read.is_exact and len(names) > 2 and names[-1:] == [*statement.reduced[-1:]]:
            first = kinds.index(True)
            if False in kinds[first:]:
                return True
    return False


def _in_other_orders(scop: Scop) -> list[str]:
    """Return products that copy no whole vectors; all of them first, which may share copies."""
    found = [s.name for s in scop.statements if orders_of(scop, s.name)]
    return [ALL, *found] if len(found) > 1 else found


def _why_not_ordered(scop: Scop, site: str) -> str | None:
    names = [s.name for s in scop.statements] if site == ALL else [site]
    is_any = any(orders_of(scop, name) for name in names)
    return None if is_any else "whole vectors are copied"


def _ordered(scop: Scop, site: str) -> Scop:
    for name in [s.name for s in scop.statements] if site == ALL else [site]:
        scop = with_orders(scop, name)
    return scop


def _why_not_along(types: Collection[DType], scop: Scop, name: str) -> str | None:
    return None if orders_along(scop, name, types) else "its operands are as tensor cores read them"


def _ordered_with_results(scop: Scop, site: str) -> Scop:
    """Return *scop* with the products at *site* in order, results too where one factor has all.

    *scop* itself where none has.  Requests of channels that lie last took 102 us, of images that do
    130, where 120 and 113 were predicted (3x3 by weights of 28 x 28 in float32, H200).
    """
    found, is_any = scop, False
    for statement in [s for s in scop.statements if site in (ALL, s.name)]:
        array = statement.write.array
        order = order_of_result(found, array)
        if order is not None and order.is_one_side and order.product == statement.name:
            found, is_any = with_ordered_result(found, array), True
        else:
            found = with_orders(found, statement.name)
    return found if is_any else scop


def _why_not_result_ordered(scop: Scop, array: str) -> str | None:
    return None if order_of_result(scop, array) else "its neighbours are those of a factor"


def _sharing(scop: Scop) -> list[str]:
    """Return statements that compute what is stored before them."""
    return [s.name for s in scop.statements if why_not_shared(scop, s) is None]


def _computed_first(scop: Scop, name: str) -> Scop:
    """Return *scop* with the factors of *name* computed first, if that is legal and needed."""
    reason = why_not_computed_first(scop, scop.by_name[name])
    return computed_first(scop, name) if reason is None else scop


def _outer_factors(scop: Scop, name: str) -> Scop:
    """Return *scop* with the outer factors of *name* after it, the others left where they are.

    *scop* itself if none of the others would be computed first, or the product has one operand.
    """
    done = with_outer_factors(scop, name)
    own = done.by_name[name]
    is_product = len(own.reads) > 1 and why_not_computed_first(done, own) is None
    return done if is_product else scop


def _masked_first(scop: Scop, name: str) -> Scop:
    """Return *scop* with guards of *name* as masks, and masked factors computed first."""
    done = masked(scop, name)
    first = _computed_first(done, name)
    return scop if first is done else first


def in_registers(options: Options) -> frozenset[str]:
    """Return the statements whose operands *options* ask for in registers."""
    asked = (own for own in asked_for(options).items() if own[1].get("in_registers"))
    return frozenset(name for kernel, _ in asked for name in kernel.split("+"))


def _narrowable(scop: Scop) -> list[str]:
    """Return products by the first of those that share factors; all of them first."""
    found = [names[0] for names in narrowed_together(scop)]
    return [ALL, *found] if len(found) > 1 else found


def _together(scop: Scop, site: str) -> tuple[str, ...]:
    """Return the products that are narrowed at *site*."""
    groups = [names for names in narrowed_together(scop) if site in (ALL, names[0])]
    return tuple(name for names in groups for name in names)


def _why_not_narrowed(scop: Scop, site: str) -> str | None:
    names = _together(scop, site)
    return why_not_narrowed_together(scop, names) if names else "no factor of float32 is left"


ALL = "all products"
# What makes products of elements, which what Options ask for may be about.
OF_FACTORS = (
    Rewrite(
        "guards as masks of factors",
        _products,
        lambda scop, name: why_not_masked(scop, scop.by_name[name]),
        masked,
        instead=_masked_first,
    ),
    Rewrite(
        "factors of sums after these",
        _products,
        lambda scop, name: why_not_outer(scop, scop.by_name[name]),
        lambda scop, name: _computed_first(with_outer_factors(scop, name), name),
        is_reassociating=True,
        instead=_outer_factors,
        stores_factors=True,
    ),
    Rewrite(
        "a sum for each product",
        _products,
        lambda scop, name: why_not_separate(scop, scop.by_name[name]),
        separate,
        is_reassociating=True,
    ),
    Rewrite(
        "one sum of those that are added",
        lambda scop: [s.name for s in scop.statements if s.kind is Kind.ASSIGN],
        lambda scop, name: why_not_added(scop, scop.by_name[name]),
        added,
        is_reassociating=True,
    ),
    Rewrite(
        "factors computed first",
        _products,
        lambda scop, name: why_not_computed_first(scop, scop.by_name[name]),
        computed_first,
        stores_factors=True,
    ),
)
REWRITES = (
    Rewrite(
        "place in the extreme",
        _arg_reductions,
        lambda scop, name: why_not_placed(scop, scop.by_name[name]),
        with_place,
    ),
    Rewrite(
        "place after the extreme",
        _arg_reductions,
        lambda scop, name: why_not_after(scop, scop.by_name[name]),
        place_after,
    ),
    Rewrite(
        "parts of a sum first",
        _interleaved_sums,
        lambda scop, name: why_not_in_parts(scop, scop.by_name[name]),
        in_parts,
    ),
    Rewrite(
        "a sum for each remainder",
        lambda scop: [s.name for s in scop.statements if s.kind is Kind.UPDATE],
        lambda scop, name: why_not_by_remainders(scop, scop.by_name[name]),
        by_remainders,
    ),
    Rewrite(
        "a value that is stored",
        _sharing,
        lambda scop, name: why_not_shared(scop, scop.by_name[name]),
        with_shared,
    ),
    Rewrite(
        "a comparison that is stored",
        lambda scop: [a for a in scop.arrays if why_not_stored_first(scop, a) is None],
        why_not_stored_first,
        with_stored_condition,
    ),
    Rewrite(
        "operands in another order",
        _in_other_orders,
        _why_not_ordered,
        _ordered,
        instead=_ordered_with_results,
    ),
    Rewrite(
        "an operand in the order of a copy",
        lambda scop: [s.name for s in scop.statements if order_of_copy(scop, s.name)],
        lambda scop, name: None if order_of_copy(scop, name) else "there is no copy",
        with_order_of_copy,
    ),
    Rewrite(
        "a result in another order",
        lambda scop: [name for name in scop.arrays if order_of_result(scop, name)],
        _why_not_result_ordered,
        with_ordered_result,
    ),
    Rewrite(
        "operands in whole rows",
        _products,
        lambda scop, name: why_not_repacked(scop, scop.by_name[name]),
        repacked,
    ),
    Rewrite(
        "a factor as float32 first",
        _products,
        lambda scop, name: why_not_widened(scop, scop.by_name[name]),
        widened,
    ),
)
IN_FLOAT16 = Rewrite(
    "products of float16 parts",
    _products,
    lambda scop, name: why_not_in_float16(scop, scop.by_name[name]),
    in_float16,
)

IN_BFLOAT16 = Rewrite(
    "factors as bfloat16 first",
    _narrowable,
    _why_not_narrowed,
    lambda scop, site: narrowed(scop, _together(scop, site)),
)
_ASKED = {"float16x3": (IN_FLOAT16,), "bfloat16": (IN_BFLOAT16,)}
_ALONG = {"tf32": WORDS, "float8": FLOAT8}


def rewrites_by_options(options: Options) -> tuple[Rewrite, ...]:
    """Return the rewrites that *options* ask for, and that are tried before all others."""
    return _ASKED.get(options.precision, ())


def of_parts(options: Options, gpu: Chip) -> tuple[Rewrite, ...]:
    """Return what makes parts of factors beforehand, where products are made of parts.

    Not where kernels are asked for, and none that makes planes.
    """
    if not (is_split(FLOAT32, options) and gpu.has(Feature.WARPGROUP_PRODUCTS)):
        return ()
    asked = {name for kernel in asked_for(options) for name in kernel.split("+")}
    are_asked = any(makes_planes(name) for name in asked)

    def why_not(scop: Scop, name: str) -> str | None:
        if name in asked and not are_asked:
            return "other choices are asked for"
        columns = columns_for(scop, name)
        return columns if isinstance(columns, str) else None

    return (Rewrite("columns in two planes", _products, why_not, with_columns_in_planes),)


def along_terms(options: Options) -> Rewrite:
    """Return what copies operands as tensor cores read them, of bytes or as *options* ask.

    Before factors are computed first, which may become another type; and of those that are.
    """
    types = BYTES + _ALONG.get(options.precision, ())
    return Rewrite(
        "operands along the terms",
        _products,
        partial(_why_not_along, types),
        lambda scop, name: with_orders_along(scop, name, types),
    )
