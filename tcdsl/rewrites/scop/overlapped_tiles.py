"""Overlapped tiles: a chain of stencils tile by tile, what lies between in a tile's own arrays.

    h(i) = x(i-1) + x(i) + x(i+1)        h'(t,u) = x(T t+u-1) + x(T t+u) + x(T t+u+1)   -1 <= u <= T
    y(i) = h(i-1) + h(i+1)        --->   y(T t+u) = h'(t,u-1) + h'(t,u+1)                0 <= u < T

         tile 0          tile 1
    h' [-1 .... T]                       of what two tiles need, each computes a copy: T + 2 values
                 [T-1 .... 2T]           of h' for T of y
    y    [0 .. T-1][T .. 2T-1]

A statement over (i) becomes one over (t, u), i = lower + T t + u: with an index that is the tile's,
every instance is an instance as ever, and dependences, bounds, races and placement see nothing new.
For each stencil axis the instances of an array's statements are those in its reach
(stencil_chains.py), [low, T + high) around the tile, as far as the statement runs there.  An array
that is stored and read as well has a copy of each tile's own part, [0, T).  Legal for any tile
sizes, for values depend on nothing but what was there before the chain.  ``Overlapped`` keeps what
elements were made of: poly/overlap.py checks that they are after all rewrites.

Of open sizes tiles are as many as reach the last that is stored, a function of the sizes; the
arrays of tiles are those of the greatest sizes, for in a kernel they are the tile's alone.

After Krishnamoorthy et al., "Effective automatic parallelization of stencil computations", PLDI
2007, doi:10.1145/1250734.1250761; PolyMage (Mullapudi, Vasista, Bondhugula, ASPLOS 2015,
doi:10.1145/2694344.2694364); Halide (Ragan-Kelley et al., PLDI 2013, doi:10.1145/2491956.2462176).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Binary, Cast, Const, Expr, Index, Load
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32, DType, arithmetic
from tcdsl.poly.accesses import builder_of
from tcdsl.poly.isl_utils import (
    Extent,
    dim_bounds,
    map_from_functions,
    plus,
    quotient,
    within,
    within_bounds,
)
from tcdsl.poly.scop import Array, Overlapped, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_accesses
from tcdsl.rewrites.scop.stencil_chains import Chain, Reach, stages_of


@dataclass(frozen=True, slots=True)
class _Index:
    """An index of a statement along a stencil axis: ``lower + size * tile + inner``."""

    tile: str
    inner: str
    size: int
    lower: int

    def value(self, dtype: DType) -> Expr:
        """Return the index that was, of type *dtype*."""
        start = Binary("*", Index(self.tile, dtype), Const(self.size, dtype), dtype)
        found = Binary("+", start, Index(self.inner, dtype), dtype)
        return Binary("+", found, Const(self.lower, dtype), dtype) if self.lower else found


def with_overlapped_tiles(scop: Scop, chain: Chain, sizes: Sequence[int]) -> Scop:
    """Return *scop* with *chain* in tiles of *sizes* values, one a stencil axis."""
    return _Rewriter(scop, chain, tuple(sizes)).scop()


class _Rewriter:
    def __init__(self, scop: Scop, chain: Chain, sizes: tuple[int, ...]) -> None:
        self.before = scop
        self.chain = chain
        self.sizes = sizes
        self.counts = tuple(-(-e // size) for e, size in zip(chain.extents, sizes, strict=True))
        self.ends = tuple(self._end(number) for number in range(len(sizes)))
        self.of_statement: dict[str, tuple[_Index, ...]] = {}
        self.tiled = {name: self._array(scop.arrays[name]) for name in sorted(chain.inside)}
        tiled = set(chain.inside).difference(chain.stored)
        kept = {n: a for n, a in scop.arrays.items() if n not in tiled}
        self.arrays = {**kept, **{array.name: array for array in self.tiled.values()}}

    def scop(self) -> Scop:
        """Return the scop in tiles."""
        statements: list[Statement] = []
        own: list[Statement] = []
        for statement in self.before.statements:
            if statement.name not in self.chain.members:
                statements.append(statement)
                continue
            array = statement.write.array
            made = [self._tiled(statement, is_inside=array in self.tiled)]
            if array in self.tiled and array in self.chain.stored:
                made.append(self._tiled(self._copy(statement), is_inside=False))
            statements += made
            own += made
        after = replace(self.before, arrays=self.arrays, statements=tuple(statements))
        return replace(after, overlapped=(*after.overlapped, self._record(own)))

    def _array(self, array: Array) -> Array:
        """Return the array of the elements of *array* that tiles have."""
        origin, shape = list(array.origin), list(array.shape)
        for number, size in enumerate(self.sizes):
            low, high = self.chain.reach[array.name][number]
            dim = self.chain.dim(array.name, number)
            origin[dim], shape[dim] = low, size + high - low
        return Array(
            fresh_name(f"{array.name}.tile", self.before.arrays), array.dtype,
            (*(0 for _ in self.sizes), *origin), (*self.counts, *shape), Storage.SCRATCH,
        )  # fmt: skip

    def _end(self, number: int) -> Extent:
        """Return the value after the last along the stencil axis *number* of what is stored."""
        found: isl.Set | None = None
        for array in self.chain.stored:
            written, dim = self._written(array), self.chain.dim(array, number)
            own = written.project_out(
                isl.dim_type.set, dim + 1, written.dim(isl.dim_type.set) - dim - 1
            )
            own = own.project_out(isl.dim_type.set, 0, dim).reset_tuple_id()
            found = own if found is None else found.union(own)
        assert found is not None, "something is stored"
        return dim_bounds(found, 0, self.before.context)[1]

    def _indices(self, statement: Statement) -> dict[str, _Index]:
        """Return what the indices of *statement* along the stencil axes become."""
        found: dict[str, _Index] = {}
        for number, size in enumerate(self.sizes):
            dim = self.chain.dim(statement.write.array, number)
            subscript = statement.write.subscripts[dim]
            assert isinstance(subscript, Index), "a stage assigns at its own indices"
            name = subscript.name
            tile, inner = (
                fresh_name(f"{name}_{part}", statement.indices) for part in ("tile", "in")
            )
            found[name] = _Index(tile, inner, size, self.chain.lower[number])
        return found

    def _tiled(self, statement: Statement, *, is_inside: bool) -> Statement:
        """Return *statement* tile by tile, with its results in the tile's array or in memory."""
        indices = self._indices(statement)
        self.of_statement[statement.name] = tuple(indices.values())
        array = statement.write.array
        inner = {name: index.inner for name, index in indices.items()}
        tiles = tuple(Index(index.tile) for index in indices.values())

        def loaded(node: Expr) -> Expr:
            """Return a load from the tile's array: at the same distance from the tile's index."""
            if not isinstance(node, Load) or node.tensor not in self.tiled:
                return node
            own = tuple(_renamed(s, inner) for s in node.subscripts)
            return replace(node, tensor=self.tiled[node.tensor].name, subscripts=(*tiles, *own))

        def moved(node: Expr) -> Expr:
            if isinstance(node, Index) and node.name in indices:
                return indices[node.name].value(node.dtype)
            return node

        assert statement.value is not None
        names = (*(index.tile for index in indices.values()),
                 *(inner.get(name, name) for name in statement.indices))  # fmt: skip
        builder = builder_of(names, statement.name, self.before.sizes)
        reach = self.chain.reach[array] if is_inside else ((0, 0),) * len(self.sizes)
        domain = self._domain(statement, builder, indices, reach)
        if is_inside:
            own = tuple(_renamed(s, inner) for s in statement.write.subscripts)
            to, at = self.tiled[array].name, (*tiles, *own)
        else:
            to, at = array, tuple(rewrite(s, moved) for s in statement.write.subscripts)
        new = replace(
            statement,
            domain=domain,
            indices=names,
            n_left=len(names),
            # Loads from tiles first: their indices are the tile's then, and have other names.
            value=rewrite(rewrite(statement.value, loaded), moved),
        )
        return with_own_accesses(replace(self.before, arrays=self.arrays), new, to, at)

    def _domain(
        self,
        statement: Statement,
        builder: Builder,
        indices: Mapping[str, _Index],
        reach: Sequence[Reach],
    ) -> isl.Set:
        """Return the instances of *statement* in all tiles."""
        functions = [
            builder.affine(indices[name].value(INT32) if name in indices else Index(name))
            for name in statement.indices
        ]
        was = map_from_functions(builder.space, functions, statement.name)
        domain = was.intersect_range(statement.domain).domain()
        kind = isl.dim_type.set
        names = [builder.space.get_dim_name(kind, dim) for dim in range(builder.space.dim(kind))]
        for number, (index, (low, high)) in enumerate(zip(indices.values(), reach, strict=True)):
            last = index.size - 1 + high
            domain = within(domain, kind, names.index(index.tile), 0, self.counts[number] - 1)
            domain = within(domain, kind, names.index(index.inner), low, last)
            if not isinstance(end := self.ends[number], int):  # of an open size fewer tiles
                most = quotient(plus(end, -index.lower - 1), index.size)
                domain = within_bounds(domain, names.index(index.tile), 0, plus(most, 1))
        return domain.coalesce()

    def _copy(self, writer: Statement) -> Statement:
        """Return the statement that stores what *writer* has computed, as it was before tiles."""
        array = self.before.arrays[writer.write.array]
        value: Expr = Load(array.name, writer.write.subscripts, array.dtype)
        if arithmetic(array.dtype) != array.dtype:
            value = Cast(value, arithmetic(array.dtype))
        name = f"{writer.name}_store"
        return replace(writer, name=name, value=value, domain=writer.domain.set_tuple_name(name))

    def _record(self, own: Sequence[Statement]) -> Overlapped:
        """Return what elements are made of, before tiles and by tiles."""
        arrays = [*self.chain.inside, *self.chain.stored]
        terms: dict[tuple[str, str], isl.Map] = {}
        for statement in self.before.statements:
            if statement.name not in self.chain.members:
                continue
            elements = statement.write.relation.reverse()
            for read in statement.reads:
                key = statement.write.array, read.array
                one = elements.apply_range(read.relation)
                terms[key] = terms[key].union(one) if key in terms else one
        return Overlapped(
            {name: self.tiled[name].name for name in arrays if name in self.tiled},
            {name: self._elements(name) for name in arrays if name in self.tiled},
            {n: self._written(n) for n in self.chain.stored},
            {key: relation.coalesce() for key, relation in terms.items()},
            frozenset(self.before.arrays),
            {
                s.name: tuple((index.tile, index.inner) for index in self.of_statement[s.name])
                for s in own
            },
            stages_of(self.before, self.chain),
            {name: self.chain.reach[name] for name in self.tiled},
            self.sizes,
            self.counts,
        )

    def _written(self, array: str) -> isl.Set:
        """Return the elements of *array* that members store."""
        found = isl.Set.empty(self._space(array))
        for name in self.chain.members:
            write = self.before.by_name[name].write
            if write.array == array:
                found = found.union(write.relation.range())
        return found.coalesce()

    def _space(self, array: str) -> isl.Space:
        writers = (self.before.by_name[name].write for name in self.chain.members)
        return next(w.relation.get_space().range() for w in writers if w.array == array)

    def _elements(self, array: str) -> isl.Map:
        """Return { t'[tiles, e'] -> t[e] }: of which element a tile's element is a copy."""
        names = [f"t{n}" for n in range(len(self.sizes))]
        inner = [f"e{d}" for d in range(self.before.arrays[array].rank)]
        builder = builder_of((*names, *inner), self.tiled[array].name, self.before.sizes)
        functions: list[isl.PwAff | None] = [builder.affine(Index(name)) for name in inner]
        for number, (size, lower) in enumerate(zip(self.sizes, self.chain.lower, strict=True)):
            dim = self.chain.dim(array, number)
            index = _Index(names[number], inner[dim], size, lower)
            functions[dim] = builder.affine(index.value(INT32))
        return map_from_functions(builder.space, functions, array)


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Return *expr* with other names for its indices."""

    def change(node: Expr) -> Expr:
        if isinstance(node, Index) and node.name in names:
            return replace(node, name=names[node.name])
        return node

    return rewrite(expr, change)
