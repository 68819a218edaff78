"""A sum of products as a matrix product: the classes of its indices, and how factors lie in memory.

    O(n,h,w,f) +=! (h+r >= 1 && ... ? I(n,h+r-1,w+s-1,c) : 0) * K(f,r,s,c)
    ---> batches -    rows n_h_w    columns f    steps r_s    terms c
         of I a line of a tile is a row, 8 neighbours along c at once; of K it is a column

Where one reduced index is long, and neighbours in memory, steps are along it for each value of the
others; else all of them are terms, whose tiles begin anywhere.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from tcdsl.costmodel.locality import (
    Shape,
    array_strides,
    coefficient_of,
    shape_of,
    stride_divisors,
)
from tcdsl.lang.comprehension import Binary, Expr, Index, indices_in
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.isl_utils import greatest
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Access, Array, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.index_classes import (
    Merged,
    merged_index,
    open_ends,
    why_not_whole,
    with_merged_indices,
)
from tcdsl.rewrites.scop.packing import Factor, factor_of
from tcdsl.rewrites.scop.rfactor import rfactor
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.fragments import COPIES
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import Axis

LEAST_EXTENT = 3  # of rows, columns and terms, for tiles of them
LEAST_TERMS = 32  # of one index, that steps are along it alone


@dataclass(frozen=True, slots=True)
class Loaded:
    """How a factor's tile is filled.

    A line of it goes along the terms, or along rows or columns; *vector* neighbours in it are
    neighbours in memory, and there together.  Others are *apart* elements from one another.
    """

    is_along_terms: bool
    vector: int
    apart: float


@dataclass(frozen=True, slots=True)
class Classes:
    """The merged indices of a sum of products; *factors*: those that rows, and columns, are of."""

    batches: tuple[Merged, ...]
    row: Merged
    column: Merged
    steps: Merged | None
    term: Merged
    factors: tuple[int, int]
    loaded: tuple[Loaded, Loaded]  # of rows, of columns

    @property
    def all(self) -> tuple[Merged, ...]:
        """The indices of the product, in their order."""
        return (*self.results, *self.terms)

    @property
    def results(self) -> tuple[Merged, ...]:
        """The indices of the product's results."""
        return (*self.batches, self.row, self.column)

    @property
    def terms(self) -> tuple[Merged, ...]:
        """The indices that are reduced."""
        return (self.term,) if self.steps is None else (self.steps, self.term)


@dataclass(frozen=True, eq=False)
class Form:
    """The statements of a problem over merged indices: *init*, the lead, *store*, the others."""

    scop: Scop
    init: str
    store: str
    group: Group
    shapes: Mapping[str, Shape]

    def axis(self, merged: Merged) -> Axis:
        """Return the dimension of each member that *merged* is."""
        names = self.group.members
        return {n: self.scop.by_name[n].indices.index(merged.name) for n in names}


def factors_of(statement: Statement) -> tuple[Factor, Factor] | None:
    """Return the two factors that *statement* adds the products of, None if it does not."""
    value = statement.value
    if not (isinstance(value, Binary) and value.op == "*"):
        return None
    one, other = factor_of(value.left), factor_of(value.right)
    return None if one is None or other is None else (one, other)


def factor_type(problem: Problem) -> DType:
    """Return the type of the lead's factors: what their conditions read may have another."""
    factors = factors_of(problem.shapes[problem.lead].statement)
    assert factors is not None, "it adds products"
    return problem.scop.arrays[factors[0].load.tensor].dtype


@analysis
def classes_of(problem: Problem) -> Classes | None:
    """Return the classes of the lead's indices, None where one has none."""
    return _classes(problem, is_flat=False)


@analysis
def flat_classes_of(problem: Problem) -> Classes | None:
    """Return the classes, with all reduced indices among the terms."""
    return _classes(problem, is_flat=True)


def _classes(problem: Problem, *, is_flat: bool) -> Classes | None:
    shape = problem.shapes[problem.lead]
    statement = shape.statement
    factors = factors_of(statement)
    if factors is None or why_not_whole(statement) is not None:
        return None
    extents = dict(zip(statement.indices, shape.extents, strict=True))
    mentioned = [factor.indices for factor in factors]
    reduced = [i for i, r in _roles(shape) if r is Role.REDUCED]
    parallel = [i for i, r in _roles(shape) if r is Role.PARALLEL]
    own = [[i for i in parallel if i in mentioned[n] and i not in mentioned[1 - n]] for n in (0, 1)]
    if any(all(extents[i] == 1 for i in names) for names in (*own, reduced)):
        return None
    result = dict(zip(statement.indices, shape.strides[0], strict=True))

    def apart(names: Collection[str]) -> int:
        """Return how far neighbouring results of *names* are apart."""
        return min(result[i] for i in names if extents[i] > 1)

    columns = min((0, 1), key=lambda n: apart(own[n]))
    sides = [sorted(own[n], key=lambda i: -result[i]) for n in (1 - columns, columns)]
    arrays = [problem.scop.arrays[factor.load.tensor] for factor in factors]
    strides = [
        {i: stride_of(array, factor, i) for i in statement.indices}
        for array, factor in zip(arrays, factors, strict=True)
    ]
    terms = sorted(reduced, key=lambda i: -min((s[i] for s in strides if s[i]), default=0))
    several = [i for i in terms if extents[i] > 1]
    taken = set(statement.indices)
    last = several[-1]
    is_apart = not is_flat and extents[last] >= LEAST_TERMS and any(s[last] == 1 for s in strides)
    others = [i for i in terms if i != last] if is_apart else []
    sizes = open_ends(statement)
    if sizes is None or any(end.rest for end in sizes.values()):
        return None
    cut = [_from_open(side, sizes, extents) for side in sides]
    slower, sides = [i for one, _ in cut for i in one], [side for _, side in cut]
    rest = [i for i in parallel if (i not in own[0] and i not in own[1]) or i in slower]
    merged = (*sides, others, [last] if is_apart else terms, *([i] for i in rest))
    if not all(_is_slowest(sizes, one, extents) for one in merged):
        return None
    if is_apart and last in sizes and any(i in sizes for i in others):  # steps would have gaps
        return None
    row, column = (merged_index(side, extents, taken, sizes) for side in sides)
    steps = merged_index(others, extents, taken, sizes) if others else None
    term = merged_index([last] if is_apart else terms, extents, taken, sizes)
    which = (1 - columns, columns)
    divisors = {**extents, **{index: end.divisor for index, end in sizes.items()}}
    loaded = [
        _loaded(factors[n], arrays[n], (extents, divisors), (side, term))
        for n, side in zip(which, (row, column), strict=True)
    ]
    return Classes(
        tuple(merged_index([i], extents, taken, sizes) for i in rest), row, column,
        steps, term, which, (loaded[0], loaded[1]),
    )  # fmt: skip


def _from_open(
    side: Sequence[str], sizes: Collection[str], extents: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """Return *side* in two parts: what is slower than an index that ends at an open size, the rest.

    A merged index has no digits of an open number of values but the slowest.
    """
    places = [n for n, index in enumerate(side) if index in sizes]
    first = places[0] if places else 0
    slower = [index for index in side[:first] if extents[index] > 1]
    return slower, [index for index in side if index not in slower]


def _is_slowest(sizes: Collection[str], side: Sequence[str], extents: Mapping[str, int]) -> bool:
    """Return whether no index of *side* but its slowest one ends at an open size."""
    return not any(index in sizes for index in [i for i in side if extents[i] > 1][1:])


def _roles(shape: Shape) -> Sequence[tuple[str, Role]]:
    return list(zip(shape.statement.indices, shape.roles, strict=True))


def stride_of(array: Array, factor: Factor, index: str) -> int:
    """Return how far elements are apart that neighbours along *index* read, 0: the same."""
    found = 0
    for subscript, stride in zip(factor.load.subscripts, array_strides(array), strict=True):
        factor_ = coefficient_of(subscript, index)
        found += stride * (1 if factor_ is None else abs(factor_))
    return found


def _loaded(
    factor: Factor,
    array: Array,
    ends: tuple[Mapping[str, int], Mapping[str, int]],
    sides: tuple[Merged, Merged],
) -> Loaded:
    """Return how a tile of *factor* is filled.

    :arg ends: the most values of each index, and what divides their number.
    :arg sides: its rows or columns, and the terms.
    """
    extents, divisors = ends
    near = [_apart(factor, array, extents, side) for side in sides]
    is_along = near[1] < near[0]
    side = sides[1] if is_along else sides[0]
    inner = next((i for i in reversed(side.indices) if extents[i] > 1), side.indices[-1])
    return Loaded(is_along, vector_of_factor(factor, array, divisors, inner), min(near))


def _apart(factor: Factor, array: Array, extents: Mapping[str, int], side: Merged) -> float:
    """Return how far elements are apart along the index of *side* that moves them least."""
    strides = (stride_of(array, factor, i) for i in side.indices if extents[i] > 1)
    return min((stride for stride in strides if stride), default=inf)


def vector_of_factor(factor: Factor, array: Array, divisors: Mapping[str, int], index: str) -> int:
    """Return how many neighbours along *index* one copy moves.

    :arg divisors: what divides the extents of indices: themselves, unless a size is open.
    """
    if array.shift is not None or any(not isinstance(s, int) for s in array.strides or ()):
        return 1
    plain = [
        (s, stride)
        for s, stride in zip(factor.load.subscripts, array_strides(array), strict=True)
        if index in indices_in(s)
    ]
    is_plain = len(plain) == 1 and plain[0] == (Index(index), 1)
    if not is_plain or (factor.condition is not None and index in indices_in(factor.condition)):
        return 1
    subscripts, strides = factor.load.subscripts, stride_divisors(array)
    steps = [
        stride
        for s, stride, size in zip(subscripts, strides, array.shape, strict=True)
        if s != Index(index) and greatest(size) != 1
    ]
    counts = [size // array.dtype.size_bytes for size in COPIES]
    fitting = (n for n in counts if not (divisors[index] % n or any(s % n for s in steps)))
    return next(fitting, 1)


def why_not_named(problem: Problem) -> str | None:
    """Return why members do not have all of the lead's results, or None."""
    lead = problem.shapes[problem.lead]
    for name in problem.group.members:
        shape, names = problem.shapes[name], names_in(problem, name)
        if reason := why_not_whole(shape.statement):
            return f"{name}: {reason}"
        extents = dict(zip(lead.statement.indices, lead.extents, strict=True))
        if name != problem.lead and [extents[i] for i in names] != list(shape.extents):
            return f"{name} has other indices"
    return None


def names_in(problem: Problem, name: str) -> list[str]:
    """Return what the lead calls the indices of the member *name*, as far as it has them."""
    lead, names = problem.shapes[problem.lead].statement.indices, problem.shapes[name].statement
    own = {axis[name]: lead[axis[problem.lead]] for axis in problem.parallel}
    return [own[d] for d in range(len(names.indices)) if d in own]


def _renamed(statement: Statement, problem: Problem) -> Statement:
    """Return *statement* with the lead's names of indices; its relations are those of before."""
    names = names_in(problem, statement.name)
    new = dict(zip(statement.indices, names, strict=True))

    def change(node: Expr) -> Expr:
        return replace(node, name=new[node.name]) if isinstance(node, Index) else node

    def moved(one: Access) -> Access:
        return replace(one, subscripts=tuple(rewrite(s, change) for s in one.subscripts))

    return replace(
        statement, indices=tuple(names), write=moved(statement.write),
        reads=tuple(map(moved, statement.reads)),
        value=None if statement.value is None else rewrite(statement.value, change),
    )  # fmt: skip


def form_of(problem: Problem, results: Sequence[Merged], terms: Sequence[Merged]) -> Form:
    """Return the statements of *problem* over merged indices, sums in their own type.

    :arg results: the indices of these, all of them, in the order in which sums are kept.
    :arg terms: the reduced indices, all of them.
    """
    lead = problem.lead
    scop, begin, end = rfactor(problem.scop, lead, ())
    init, store = begin.name, end.name
    after = tuple(name for name in problem.group.members if name != lead)
    scop = scop.with_statements(
        tuple(_renamed(s, problem) if s.name in after else s for s in scop.statements)
    )
    members = (lead, store, *after)
    scop = with_merged_indices(scop, (init, *members), (*results, *terms))
    shapes = {}
    for name in members:
        statement = scop.by_name[name]
        roles = [
            Role.PARALLEL if n < statement.n_left or name != lead else Role.REDUCED
            for n in range(len(statement.indices))
        ]
        shapes[name] = shape_of(scop, statement, tuple(roles))
    axes = tuple({n: scop.by_name[n].indices.index(side.name) for n in members} for side in results)
    return Form(scop, init, store, Group(members, axes), shapes)
