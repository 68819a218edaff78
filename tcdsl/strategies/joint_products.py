"""Several products in one kernel, whose blocks have the same tile of the results of each.

Beside one another, each with accumulators of its own:

    G(m,n) +=! X(m,k) * W(k,n)             for each step of k:
    U(m,n) +=! X(m,k) * V(k,n)     --->      tiles of X, W and V are copied, that of X once
    Y(m,n) = f(G(m,n), U(m,n))               g += X.tile * W.tile;  u += X.tile * V.tile
                                           Y = f(g, u), on fragments: neither g nor u is stored

Or one after another, where all add to one array: they are one sum, whose factors lie in several
arrays, with the steps of all (``one_sum``)::

    C(m,n) +=! X(m,k) * W(k,n)             for each step of k:  tiles of X and W }  c += left.tile
    C(m,n) += U(m,j) * V(j,n)      --->    for each step of j:  tiles of U and V }    * right.tile

A product of a group is its lead, or another member that reduces an axis of its own.  A step has one
tile of what several products beside one another read alike; of each of these a thread holds fewer
sums than it would of one.

Legal iff all products have the same rows, columns and batches: axes that all members share, along
which each is parallel, and which end at the same value for each; and no member writes a factor.
Then all products may run before whatever else there is, in the order of the program, and what
follows them is on fragments as it is after a single product: its values at (m, n) are of the sums
at (m, n).  Beside one another, they must also have as many terms, so that the steps of one are the
steps of all.  Of one sum, nothing may use the array between them, it must be of the type that is
added in (else it would be rounded between them), and their factors must be of one type and lie
alike, for they are in the same tiles.
"""

from collections.abc import Sequence

import islpy as isl

from tcdsl.lang.comprehension import Expr, Index
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.isl_utils import Extent
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Access
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.column_planes import is_planes
from tcdsl.strategies.problem import Problem, own_analysis
from tcdsl.strategies.schedule import Axis, Terms
from tcdsl.strategies.tile_folds import shared_axis


@dataclass(frozen=True, slots=True)
class Factor:
    """An array that tiles hold for some products: the *uses* are products and numbers of reads."""

    array: str
    uses: tuple[tuple[str, int], ...]


@own_analysis
def products_of(problem: Problem) -> tuple[str, ...]:
    """Return the products of *problem*, which has no folds: the lead first."""
    lead, members = problem.lead, problem.group.members
    reductions = (n for n in members if problem.shapes[n].statement.reduction is not None)
    others = (name for name in reductions if problem.rest_of(name) > 1)
    return (lead, *(name for name in others if name != lead))


@own_analysis
def with_one_product(problem: Problem) -> Problem:
    """Return *problem* without its products but the lead."""
    _, *others = products_of(problem)
    if not others:
        return problem
    return problem.of([name for name in problem.group.members if name not in others])


@own_analysis
def each_product(problem: Problem) -> tuple[Problem, ...]:
    """Return the products of *problem*, the lead with what follows, the others alone."""
    _, *others = products_of(problem)
    return (with_one_product(problem), *(problem.of([name]) for name in others))


def why_not_joint(problem: Problem, lead: Terms, rows: tuple[Axis, Axis], own: Terms) -> str | None:
    """Return why the product *own* has not the tiles and steps of the *lead*, or None.

    :arg rows: the axes of rows and columns of *own* alone.
    """
    name = own.product
    axes = [shared_axis(problem, axis) for axis in with_one_product(problem).parallel]
    found = [axis for axis in axes if any(axis[name] == one[name] for one in rows)]
    if len(found) != len(rows):
        return f"{name} has no rows and columns in common with {lead.product}"
    roles = problem.shapes[name].roles
    if any(roles[axis[name]] is not Role.PARALLEL for axis in axes):
        return f"{name} adds up along an axis of {lead.product}"
    dims = [(axis[lead.product], axis[name]) for axis in axes]
    if is_one_sum(problem):
        reason = _why_not_one_sum(problem, lead, own)
    else:
        dims += zip((lead.term, *lead.others), (own.term, *own.others), strict=False)
        reason = _why_not_separate(problem, lead, own)
    ends = ((problem.end(lead.product, one), problem.end(name, other)) for one, other in dims)
    if not all(_are_equal(*pair) for pair in ends):
        return f"{name} has other extents than {lead.product}"
    return reason


def _why_not_separate(problem: Problem, lead: Terms, own: Terms) -> str | None:
    """Return why *own* has no accumulators beside those of *lead* and the others, or None."""
    if len(lead.others) != len(own.others):
        return f"{own.product} has other steps than {lead.product}"
    products = products_of(problem)
    if len({_target(problem, name) for name in products}) < len(products):
        return "some of the products are parts of one sum, and others are not"
    return None


def why_not_before(problem: Problem) -> str | None:
    """Return which member writes a factor of a product, or None."""
    products = [problem.scop.by_name[name] for name in products_of(problem)]
    factors = {read.array for product in products for read in product.reads}
    for name in problem.group.members:
        if any(write.array in factors for write in problem.scop.by_name[name].writes):
            return f"{name} writes a factor of {products[0].name} or of another product"
    return None


@own_analysis
def is_one_sum(problem: Problem) -> bool:
    """Return whether the products of *problem* are several, and all add to one array."""
    products = products_of(problem)
    return len(products) > 1 and len({_target(problem, name) for name in products}) == 1


def _target(problem: Problem, name: str) -> str:
    return problem.shapes[name].statement.write.array


def _why_not_one_sum(problem: Problem, lead: Terms, own: Terms) -> str | None:
    """Return why the terms of *own* are not further terms of the sum of *lead*, or None."""
    statements = [problem.scop.by_name[terms.product] for terms in (lead, own)]
    reduction, array = statements[0].reduction, problem.scop.arrays[statements[0].write.array]
    if reduction is None or array.dtype != reduction.dtype:
        return f"{array.name} is rounded before {own.product} adds to it"
    writes = [
        _subscripts(problem, t, s.write) for t, s in zip((lead, own), statements, strict=True)
    ]
    if writes[0] != writes[1]:
        return f"{own.product} adds to other elements of {array.name} than {lead.product}"
    if pairs_of(problem, lead, own) is None:
        return f"the factors of {own.product} lie in another way than those of {lead.product}"
    if lead.others or own.others or any(problem.is_open({t.product: t.term}) for t in (lead, own)):
        return f"the sums of {lead.product} and {own.product} have no number of steps"
    return _why_not_moved(problem, array.name)


def _why_not_moved(problem: Problem, array: str) -> str | None:
    """Return why products that add to *array* do not all run where the last one does, or None."""
    products, factors = products_of(problem), set[str]()
    places = [problem.scop.position(name) for name in products]
    for other in problem.scop.statements[min(places) : max(places)]:
        if other.name in products:
            factors |= {read.array for read in other.reads}
            continue
        written = {write.array for write in other.writes}
        if array in written | {read.array for read in other.reads}:
            return f"{other.name} uses {array} between {' and '.join(products)}"
        if written & factors:
            return f"{other.name} writes a factor before the last of {', '.join(products)}"
    return None


def pairs_of(problem: Problem, lead: Terms, own: Terms) -> tuple[tuple[int, int], ...] | None:
    """Return which reads of *lead* and *own* lie alike, None if not all do."""
    places = []
    for terms in (lead, own):
        reads = problem.shapes[terms.product].statement.reads
        places.append([(_subscripts(problem, terms, r), _dtype(problem, r)) for r in reads])
    if len(set(places[0])) < len(places[0]) or set(places[0]) != set(places[1]):
        return None
    return tuple((number, places[1].index(place)) for number, place in enumerate(places[0]))


def _dtype(problem: Problem, read: Access) -> DType:
    return problem.scop.arrays[read.array].dtype


def _are_equal(one: Extent, other: Extent) -> bool:
    if isinstance(one, isl.PwAff) and isinstance(other, isl.PwAff):
        return bool(one.is_equal(other))
    return isinstance(one, int) and isinstance(other, int) and one == other


def factors_of(problem: Problem, terms: Sequence[Terms]) -> tuple[Factor, ...]:
    """Return what the products *terms* read: once what several read at the same elements."""
    found: dict[object, list[tuple[str, int]]] = {}
    for own in terms:
        reads = problem.shapes[own.product].statement.reads
        for number, read in enumerate(reads):
            is_one = sum(read.array == other.array for other in reads) == 1
            apart = () if is_one and not is_one_sum(problem) else (own.product, number)
            key: object = read.array, _subscripts(problem, own, read), apart
            if is_planes(read.array):  # one tile for both
                key = read.array, _subscripts(problem, own, read)[1:]
            found.setdefault(key, []).append((own.product, number))
    return tuple(Factor(_array(problem, *uses[0]), tuple(uses)) for uses in found.values())


def _array(problem: Problem, name: str, number: int) -> str:
    return problem.shapes[name].statement.reads[number].array


def _subscripts(problem: Problem, terms: Terms, read: Access) -> tuple[Expr, ...]:
    """Return the subscripts of *read* with names that indices of all products have in common."""
    indices = problem.shapes[terms.product].statement.indices
    dims = [axis[terms.product] for axis in problem.group.axes]
    dims += [dim for dim in (terms.term, *terms.others) if dim not in dims]
    names = {indices[dim]: f"i{number}" for number, dim in enumerate(dims)}

    def common(node: Expr) -> Expr:
        is_index = isinstance(node, Index) and node.name in names
        return Index(names[node.name]) if is_index else node  # type: ignore[union-attr]

    return tuple(rewrite(subscript, common) for subscript in read.subscripts)
