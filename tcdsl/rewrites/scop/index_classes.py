"""Index classes of a sum of products, each merged to one index: a matrix product in disguise.

    O[n,h,w,f] += I[n,h+r,w+s,c] * K[f,r,s,c]       rows (n,h,w), columns (f), terms (r,s,c)
    ---> p[m,f] += I[m/(H W), m/W%H + k/(S C), m%W + k/C%S, k%C] * K[f, k/(S C), k/C%S, k%C]
         O[m/(H W), m/W%H, m%W, f] = p[m,f]

An index is of the rows if one factor alone depends on it, of the columns if the other alone does,
of the terms if it is reduced; what both factors depend on are batches.  A merged index counts the
values of a class, the last of its indices fastest.

Legal iff every index has its whole range for any of the others, from 0 on: then all instances are
there once, and those of one sum are added in any order.  An open size, a multiple of one, or that
and a number (lengths of rows that vectors do not divide are 4 q + 1), may be the range of the
slowest index of a class: what the others are does not depend on how many values that has.

After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3),
2008, doi:10.1145/1356052.1356053, whose packing the loaders are.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod
from types import MappingProxyType
from weakref import WeakKeyDictionary

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, Size
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, INT32
from tcdsl.poly.accesses import box, builder_of
from tcdsl.poly.isl_utils import dim_bounds, within_bounds
from tcdsl.poly.scop import Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_accesses


@dataclass(frozen=True, slots=True)
class OpenEnd:
    """The end of an index: *each* times an open *size*, and *rest*."""

    size: str
    each: int = 1
    rest: int = 0

    @property
    def divisor(self) -> int:
        """What divides it at every size."""
        return gcd(self.each, self.rest)


@dataclass(frozen=True, slots=True)
class Merged:
    """An index for several, of these extents; the last of them is the fastest.

    If there is an *open* end, it is that of the slowest, of which its extent is the most.
    """

    name: str
    indices: tuple[str, ...]
    extents: tuple[int, ...]
    open: OpenEnd | None = None

    @property
    def size(self) -> str:
        """The open size that its end depends on, "" if on none."""
        return "" if self.open is None else self.open.size

    @property
    def extent(self) -> int:
        return prod(self.extents)

    @property
    def end(self) -> Expr:
        """How many values there are: a number, or so many for each of the open size."""
        if self.open is None:
            return Const(self.extent, INT32)
        others = self.extent // next(extent for extent in self.extents if extent > 1)
        each, rest = others * self.open.each, others * self.open.rest
        multiple = Binary("*", Const(each, INT32), Size(self.open.size), INT32)
        return Binary("+", multiple, Const(rest, INT32), INT32) if rest else multiple

    def values(self) -> dict[str, Expr]:
        """Return each index as a function of the merged one."""
        found: dict[str, Expr] = {}
        for place, (index, extent) in enumerate(zip(self.indices, self.extents, strict=True)):
            after = prod(self.extents[place + 1 :])
            value: Expr = Index(self.name)
            if after > 1:
                value = Binary("/", value, Const(after, INT32), INT32)
            if prod(self.extents[:place]) > 1:
                value = Binary("%", value, Const(extent, INT32), INT32)
            found[index] = Const(0, INT32) if extent == 1 else value
        return found


def merged_index(
    indices: Sequence[str],
    extents: Mapping[str, int],
    taken: Collection[str],
    ends: "Mapping[str, OpenEnd]" = MappingProxyType({}),
) -> Merged:
    """Return one index for *indices*, whose name none of those *taken* has.

    :arg ends: those of the indices that end at an open size.
    """
    several = [index for index in indices if extents[index] > 1] or list(indices[-1:])
    name = "_".join(several) or "one"
    while name in taken and [name] != list(indices):
        name += "_"
    end = next((ends[index] for index in several if index in ends), None)
    return Merged(name, tuple(indices), tuple(extents[index] for index in indices), end)


def why_not_merged(statement: Statement) -> str | None:
    """Return why indices of *statement* are not merged, or None if any may be."""
    if statement.domain.dim(isl.dim_type.param):
        return "a size is open"
    return why_not_whole(statement)


_known: WeakKeyDictionary[Statement, str | None] = WeakKeyDictionary()  # a search asks often


def why_not_whole(statement: Statement) -> str | None:
    """Return why indices of *statement* have not their whole ranges from 0 on, or None."""
    if statement not in _known:
        _known[statement] = _why_not_whole(statement)
    return _known[statement]


def _why_not_whole(statement: Statement) -> str | None:
    domain = statement.domain
    if domain.is_empty():
        return "it has no instances"
    whole = isl.Set.universe(domain.get_space()).intersect_params(domain.params())
    for dim, index in enumerate(statement.indices):
        low, end = dim_bounds(domain, dim, domain.params())
        if not isinstance(low, int) or low != 0:
            return f"{index} does not begin at 0"
        whole = within_bounds(whole, dim, low, end)
    return None if whole.is_equal(domain) else "its instances are no product of ranges"


def open_ends(statement: Statement) -> dict[str, OpenEnd] | None:
    """Return { index -> its end } of those that end at an open size, None if one ends elsewhere."""
    domain, found = statement.domain, dict[str, OpenEnd]()
    for dim, index in enumerate(statement.indices):
        _, end = dim_bounds(domain, dim, domain.params())
        if isinstance(end, int):
            continue
        own = _open_end(end, domain.params())
        if own is None:
            return None
        found[index] = own
    return found


def _open_end(end: isl.PwAff, context: isl.Set) -> OpenEnd | None:
    """Return *end* as a function of one size in *context*, None if it is none."""
    kind = isl.dim_type.param
    for _, aff in end.get_pieces():
        factors = [aff.get_coefficient_val(kind, at) for at in range(aff.dim(kind))]
        sizes = [at for at, factor in enumerate(factors) if not factor.is_zero()]
        is_same = context.is_subset(end.eq_set(isl.PwAff.from_aff(aff)))
        if len(sizes) != 1 or aff.dim(isl.dim_type.div) or not is_same:
            continue
        values = factors[sizes[0]], aff.get_constant_val()
        each, rest = (int(value.to_python()) for value in values)
        return OpenEnd(context.get_dim_name(kind, sizes[0]) or "", each, rest)
    return None


def with_merged_indices(scop: Scop, names: Sequence[str], merged: Sequence[Merged]) -> Scop:
    """Return *scop* whose statements *names* have the *merged* indices for those of their classes.

    So have the arrays that they alone use, where all subscripts are indices.
    """
    own = [scop.by_name[name] for name in names]
    places = {
        name: place
        for name, array in scop.arrays.items()
        if array.storage is Storage.SCRATCH and (place := _place(scop, own, name, merged))
    }
    flat = {
        name: replace(
            scop.arrays[name], origin=(0,) * len(place), shape=tuple(one.extent for one in place),
            strides=None,
        )
        for name, place in places.items()
    }  # fmt: skip
    wide = replace(scop, arrays={**scop.arrays, **flat})
    subscripts = {name: tuple(Index(one.name) for one in place) for name, place in places.items()}
    new = {s.name: _with_merged(wide, s, merged, subscripts) for s in own}
    return wide.with_statements(tuple(new.get(s.name, s) for s in scop.statements))


def _place(
    scop: Scop, own: Sequence[Statement], array: str, merged: Sequence[Merged]
) -> tuple[Merged, ...]:
    """Return the merged indices whose values number the elements of *array*; () if none do."""
    users = [(s, a) for s in scop.statements for a in (*s.writes, *s.reads) if a.array == array]
    found = {access.subscripts for _, access in users}
    if len(found) != 1 or any(statement not in own for statement, _ in users):
        return ()
    (subscripts,) = found
    names = {s.name for s in subscripts if isinstance(s, Index)}
    place = tuple(one for one in merged if set(one.indices) <= names)
    covered = {index for one in place for index in one.indices}
    return place if covered == names and len(names) == len(subscripts) else ()


def _with_merged(
    scop: Scop,
    statement: Statement,
    merged: Sequence[Merged],
    places: Mapping[str, tuple[Expr, ...]],
) -> Statement:
    mine = [one for one in merged if set(one.indices) <= set(statement.indices)]
    values: dict[str, Expr] = {}
    for one in mine:
        values |= one.values()
    indices = tuple(one.name for one in mine)
    builder = builder_of(indices, statement.name, scop.sizes)
    domain = box(builder, indices, {one.name: (0, one.extent) for one in mine})
    domain = domain.intersect_params(scop.context)
    for one in mine:
        if one.open is not None:
            below = Binary("<", Index(one.name), one.end, BOOL)
            domain = domain.intersect(builder.truth(below).below)

    def change(node: Expr) -> Expr:
        match node:
            case Index(name=name):
                return values.get(name, node)
            case Load(tensor=tensor) if tensor in places:
                return replace(node, subscripts=places[tensor])
            case _:
                return node

    write = statement.write
    subscripts = tuple(rewrite(subscript, change) for subscript in write.subscripts)
    subscripts = places.get(write.array, subscripts)
    new = replace(
        statement,
        domain=domain,
        indices=indices,
        n_left=sum(set(one.indices) <= set(statement.left) for one in mine),
        value=None if statement.value is None else rewrite(statement.value, change),
    )
    return with_own_accesses(scop, new, write.array, subscripts)
