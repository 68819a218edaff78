"""One statement's instances as C, at one leaf of the generated loops."""

from collections.abc import Mapping, Sequence
from dataclasses import field

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import (
    binary,
    both,
    call,
    cast,
    choice,
    code,
    index,
    mentions,
    paren,
)
from tcdsl.codegen.ast.nodes import (
    Assign,
    Code,
    Declare,
    Evaluate,
    If,
    Literal,
    Name,
    Node,
    Type,
    Variable,
)
from tcdsl.codegen.c import lane_folds
from tcdsl.codegen.c.addresses import in_atoms, in_layout, linear, row_major, row_start
from tcdsl.codegen.c.expressions import (
    ExpressionPrinter,
    Scope,
    branched,
    c_type,
    cast_code,
    combine,
    identity,
    suffix,
)
from tcdsl.codegen.c.size_texts import SizeTexts
from tcdsl.codegen.names import Names
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Expr,
    Index,
    Load,
    Operator,
    Select,
    children,
    walk,
)
from tcdsl.lang.faults import Site
from tcdsl.lang.types.dtypes import UINT64, DType, arithmetic
from tcdsl.poly.accesses import first_load
from tcdsl.poly.data_ranges import data_ranges_of
from tcdsl.poly.known_values import is_surely_inside
from tcdsl.poly.scop import Access, Kind, RangeCheck, Scop
from tcdsl.records import dataclass
from tcdsl.schedule.placement import Layout, Placement

HOLDS, FAILS = Literal("1"), Literal("0")  # a condition that has been asked before
_NOWHERE = Literal("-1")


@dataclass(frozen=True, slots=True)
class Context:
    """What the statements of a plan have in common; *sites* grows by every checked subscript.

    *changing* says of which arrays a statement's loads must not be merged with others.
    """

    scop: Scop
    names: Names
    sizes: SizeTexts
    placements: Mapping[str, Placement]
    sites: list[Site]
    index_type: str = "i64"
    changing: Mapping[str, frozenset[str]] = field(default_factory=dict)


def guarded(conditions: Sequence[Code], body: list[Node]) -> list[Node]:
    """Return *body* under *conditions*, if there are any."""
    return [If(both(conditions), tuple(body))] if conditions else body


def constant(type_: str, name: str, value: Code) -> Declare:
    """Return ``const type name = value;``"""
    return Declare(Type(type_), (Variable(name, value),), before="const ")


class StatementPrinter:
    """Prints one statement's instances at one leaf."""

    def __init__(
        self, context: Context, leaf: loop_ast.Leaf, known: Mapping[Expr, Code] | None = None
    ) -> None:
        """Print *leaf*; the expressions in *known* have been computed under those names."""
        self.context = context
        self.scop = context.scop
        self.names = context.names
        self.sizes = context.sizes
        self.leaf = leaf
        self.statement = self.scop.by_name[leaf.statement]
        self._by_load = {
            (access.array, access.subscripts): position
            for position, access in enumerate((*self.statement.writes, *self.statement.reads))
        }
        scope = Scope(
            index=lambda name: Name(self.names.of("index", name)),
            size=self._size,
            element=self._load,
        )
        self.expressions = ExpressionPrinter(
            scope, known, context.index_type, self.is_common, self.chosen
        )

    def is_common(self, expr: Expr) -> bool:
        """Return whether so many instances share *expr* that what is known of it is worth while.

        C compilers are better left to divide and compare: vectors of quotients cost little.
        """
        return False

    def chosen(self, select: Select, operands: tuple[Code, ...]) -> Code:
        """Return the choice *select* of its printed *operands*: C compilers know best how."""
        condition, if_true, if_false = operands
        if condition in (HOLDS, FAILS):
            return if_true if condition == HOLDS else if_false
        return branched(operands)

    def stands_still(self, expr: Expr, loop: loop_ast.For) -> bool:
        """Return whether *expr* loads nothing, and is the same in all iterations of *loop*."""
        moving = self._moving(loop)
        return not any(
            isinstance(node, Load) or (isinstance(node, Index) and node.name in moving)
            for node in walk(expr)
        )

    def _moving(self, loop: loop_ast.For) -> set[str]:
        """Return the statement's indices that *loop* changes."""
        return {
            index
            for index, value in zip(self.statement.indices, self.leaf.iterators, strict=True)
            if mentions(value, loop.variable)
        }

    def invariants(self, loop: loop_ast.For, written: set[str]) -> list[Expr]:
        """Return the calls and loads in the value that *loop* does not change, and may run early.

        The largest calls, and loads of results: C compilers do not know that the stores of the
        loop leave these alone (``restrict`` is lost where threads begin).  What is loaded must
        exist even if the loop never runs: local arrays always do.
        """
        moving = self._moving(loop)
        runs = loop.is_constant and loop.condition is not None

        def is_free(expr: Expr) -> bool:
            for node in walk(expr):
                if isinstance(node, Index) and node.name in moving:
                    return False
                if isinstance(node, Load):
                    # Local arrays and single numbers exist even if the loop never runs.
                    is_local = node.tensor in self.context.placements or not node.subscripts
                    if node.tensor in written or not (is_local or runs):
                        return False
            return True

        found: list[Expr] = []
        results = self._results
        stack = [(self.statement.value, False)] if self.statement.value is not None else []
        while stack:
            expr, is_guarded = stack.pop()
            # Guarded operands may not be evaluated where their guard does not hold; but loads may
            # of what is there in any case.  gcc does not vectorise a conditional load of one place.
            is_guarded |= isinstance(expr, Select)
            is_guarded |= isinstance(expr, Binary) and expr.op in ("&&", "||")
            is_early = isinstance(expr, Call)
            if isinstance(expr, Load):
                is_array = not self._is_number(expr.tensor)
                is_early = is_array and self._exists(expr) if is_guarded else expr.tensor in results
            elif is_guarded:
                is_early = False
            if is_early and is_free(expr):
                found.append(expr)
            else:
                stack.extend((child, is_guarded) for child in children(expr))
        return list(dict.fromkeys(found))

    def _is_number(self, name: str) -> bool:
        """Return whether *name* is a local array of one element: a variable."""
        placement = self.context.placements.get(name)
        return placement is not None and placement.elements() == 1

    def _exists(self, load: Load) -> bool:
        """Return whether every instance may read what *load* reads, whatever guards say."""
        position = self._by_load[(load.tensor, load.subscripts)]
        access = (*self.statement.writes, *self.statement.reads)[position]
        domain = self.statement.domain
        return access.is_exact and bool(domain.is_subset(access.relation.domain()))

    @property
    def _results(self) -> set[str]:
        """The arrays in memory that a statement of the program writes."""
        written = {access.array for s in self.scop.statements for access in s.writes}
        return written - self.context.placements.keys()

    def outside(self, expr: Expr, known: Mapping[Expr, Code] | None = None) -> Code:
        """Return *expr* for a place outside the statement's own block, where those *known* are."""
        values = dict(zip(self.statement.indices, self.leaf.iterators, strict=True))
        scope = Scope(lambda name: paren(values[name]), self._size, self._load)
        return ExpressionPrinter(scope, known).value(expr)

    def _size(self, name: str) -> Code:
        known = self.scop.sizes[name]
        return code(known if known is not None else self.names.of("size", name))

    @property
    def conditions(self) -> list[Expr]:
        """The conditions of the statement that no loop around keeps."""
        ranges = data_ranges_of(self.statement) if self.leaf.kept else ()
        kept = {c for found in ranges if found.dim in self.leaf.kept for c in found.conditions}
        return [condition for condition in self.statement.conditions if condition not in kept]

    def nodes(self) -> list[Node]:
        """Return the statement, but for the indices that it mentions."""
        statement = self.statement
        if statement.kind is Kind.CHECK:
            return self._check()
        conditions = [self.expressions.value(c) for c in self.conditions]
        if statement.kind is Kind.INIT:
            return guarded(conditions, self._init())
        if statement.kind is Kind.FOLD:
            return guarded(conditions, self._fold())
        assert statement.value is not None
        conditions += self._scatter_guards()
        if statement.companion is not None:
            return guarded(conditions, self._arg_update())
        return guarded(conditions, [Assign(self.place(statement.write), self._stored_value())])

    def _stored_value(self) -> Code:
        """Return what the statement stores; a narrow float that it copies is copied as it is."""
        statement = self.statement
        assert statement.value is not None
        stored = self.scop.arrays[statement.write.array].dtype
        match statement.value:
            case Cast(operand=Load(dtype=loaded) as load) if (
                loaded == stored and stored.is_narrow_float
            ):
                if statement.kind is Kind.ASSIGN:
                    return self.expressions.value(load)
        return self._as_stored(statement.write, self._new_value(statement.value))

    def _new_value(self, value: Expr) -> Code:
        """Return the value to be stored, in the type of the arithmetic."""
        statement = self.statement
        if statement.kind is Kind.ASSIGN:
            return self.expressions.value(value)
        reduction = statement.reduction
        assert reduction is not None
        accumulator = self._accumulator(statement.write, reduction.dtype)
        is_sum = reduction.operator is Operator.ADD and reduction.dtype.is_float
        if is_sum and isinstance(value, Binary) and value.op == "*":
            factors = self.expressions.value(value.left), self.expressions.value(value.right)
            return call(f"tc_mad_{suffix(reduction.dtype)}", *factors, accumulator)
        term = self.expressions.value(value)
        if reduction.dtype.is_compensated and not value.dtype.is_compensated:
            return call(f"tc_plus_{suffix(reduction.dtype)}", accumulator, term)
        return combine(reduction.operator, reduction.dtype, accumulator, term)

    def _accumulator(self, access: Access, dtype: DType) -> Code:
        stored = self.scop.arrays[access.array].dtype
        return cast_code(self.element(access), stored, dtype)

    def _store(self, access: Access, value: Code) -> Node:
        return Assign(self.place(access), self._as_stored(access, value))

    def _as_stored(self, access: Access, value: Code) -> Code:
        """Return *value* in the type of the array of *access*."""
        array = self.scop.arrays[access.array]
        value_type = arithmetic(array.dtype)
        if self.statement.reduction is not None and not self.statement.companion:
            value_type = self.statement.reduction.dtype
        return cast_code(value, value_type, array.dtype)

    def _init(self) -> list[Node]:
        statement = self.statement
        assert statement.reduction is not None
        reduction = statement.reduction
        start = identity(reduction.operator, reduction.dtype)
        if statement.companion is not None:
            return [
                Assign(self.place(statement.write), Literal("-1")),
                Assign(self.place(statement.companion), start),
            ]
        array = self.scop.arrays[statement.write.array]
        value = cast_code(start, reduction.dtype, array.dtype)
        return [Assign(self.place(statement.write), value)]

    def _arg_update(self) -> list[Node]:
        """Keep the better of the candidate and the best so far; the first wins a tie."""
        statement = self.statement
        assert statement.companion is not None and statement.value is not None
        reduction = statement.reduction
        assert reduction is not None
        best, at = self.element(statement.companion), self.element(statement.write)
        (reduced,) = statement.reduced
        origin = self.sizes.extent(statement.arg_origin)
        value = paren(binary(self.names.of("index", reduced), "-", origin))
        stored = self.scop.arrays[statement.write.array].dtype
        takes = binary(paren(binary(at, "<", 0)), "|", call(self._better(), "w_candidate", best))
        new = choice("w_takes", cast(c_type(stored), value), at)
        candidate = self.expressions.value(statement.value)
        return [
            constant(c_type(reduction.dtype), "w_candidate", candidate),
            constant("int", "w_takes", takes),
            Assign(self.place(statement.companion), choice("w_takes", "w_candidate", best)),
            Assign(self.place(statement.write), new),
        ]

    def _fold(self) -> list[Node]:
        """Fold the lanes, then store the result or combine it with the target."""
        statement, lanes = self.statement, self.statement.lanes
        reduction = statement.reduction
        assert reduction is not None
        places = [self.place(part) for part in statement.parts]
        if reduction.operator.is_arg:
            types = self.scop.arrays[statement.parts[0].array].dtype, reduction.dtype
            nodes, result = lane_folds.best(places, types, lanes, self._better())
            return [*nodes, Assign(self.place(statement.write), result)]
        nodes, result = lane_folds.folded(places[0], lanes, reduction)
        if not reduction.initialise:
            accumulator = self._accumulator(statement.write, reduction.dtype)
            result = combine(reduction.operator, reduction.dtype, accumulator, result)
        return [*nodes, self._store(statement.write, result)]

    def _better(self) -> str:
        reduction = self.statement.reduction
        assert reduction is not None
        name = "max" if reduction.operator is Operator.ARGMAX else "min"
        return f"tc_arg_better_{name}_{suffix(reduction.dtype)}"

    def _check(self) -> list[Node]:
        """Record a gathered or scattered subscript out of range, or a range from data."""
        statement = self.statement
        array = self.scop.arrays[statement.write.array]
        conditions = [self.expressions.value(c) for c in self.conditions]
        if statement.checked_range is not None:
            return guarded(conditions, self._range_check(statement.checked_range))
        nodes: list[Node] = []
        loads = statement.checked_loads
        for (dim, subscript), load in zip(statement.checked, loads, strict=True):
            site = len(self.context.sites)
            reads, position = self._source_of(subscript, load)
            span = statement.span
            is_wrapped = subscript.dtype == UINT64
            self.context.sites.append(
                Site(array.name, dim, span.start, span.end, reads, is_wrapped)
            )
            origin = self.sizes.extent(array.origin[dim])
            extent = self.sizes.extent(array.shape[dim])
            name = f"w_index{site}"
            at, is_outside = self._outside(dim, subscript, name)
            fault = call("tc_fault", "fault", site, binary(name, "+", origin), extent, position)
            nodes += [at, If(is_outside, (Evaluate(fault),), is_short=True)]
        return nodes

    def _outside(self, dim: int, subscript: Expr, name: str) -> tuple[Node, Code]:
        """Return the declaration of a checked subscript, called *name*, and when it is a fault."""
        array = self.scop.arrays[self.statement.write.array]
        origin, extent = (self.sizes.extent(e[dim]) for e in (array.origin, array.shape))
        distance = binary(self.expressions.subscript(subscript), "-", origin)
        conditions = [self.expressions.value(c) for c in self.conditions]
        value = choice(paren(both(conditions)), distance, 0) if conditions else distance
        is_outside = paren(binary(binary(name, "<", 0), "||", binary(name, ">=", extent)))
        return constant("int64_t", name, value), both([*conditions, is_outside])

    def _source_of(self, subscript: Expr, written: Load | None) -> tuple[str, Code]:
        """Return the tensor that *subscript* reads first, and where in it, in elements of memory.

        :arg written: the load as it was before copies took the place of tensors; where its own
            subscripts read further tensors, those may have been replaced too.
        :return: the position is -1 where the element is in no memory of the tensor itself.
        """
        if written is None:
            return "", _NOWHERE
        load = written
        if any(isinstance(node, Load) for part in written.subscripts for node in walk(part)):
            load = first_load(subscript) or written
        array = self.scop.arrays[load.tensor]
        if self.context.placements.get(load.tensor) is not None or array.shift is not None:
            return load.tensor, _NOWHERE
        shifted = []
        for subscript_, origin in zip(load.subscripts, array.origin, strict=True):
            at = self.expressions.subscript(subscript_)
            is_shifted = not self.sizes.is_zero(origin)
            shifted.append(paren(binary(at, "-", self.sizes.extent(origin))) if is_shifted else at)
        return load.tensor, linear(shifted, self.sizes.strides(array), self.context.index_type)

    def _range_check(self, ends: RangeCheck) -> list[Node]:
        site = len(self.context.sites)
        self.context.sites.append(Site(ends.clause, -1))
        low, high = Name(f"w_low{site}"), Name(f"w_high{site}")
        start, end = self.sizes.extent(ends.start), self.sizes.extent(ends.end)
        is_outside = paren(binary(binary(low, "<", start), "||", binary(high, ">", end)))
        worst = choice(binary(high, ">", end), high, low)
        fault = call("tc_fault", "fault", site, worst, end, _NOWHERE)
        return [
            constant("int64_t", low.text, self.expressions.value(ends.lower)),
            constant("int64_t", high.text, self.expressions.value(ends.upper)),
            If(both([binary(low, "<", high), is_outside]), (Evaluate(fault),), is_short=True),
        ]

    def _scatter_guards(self) -> list[Code]:
        """Return conditions that keep a scattered write inside its array."""
        statement = self.statement
        if statement.write.is_exact:
            return []
        array = self.scop.arrays[statement.write.array]
        guards: list[Code] = []
        for dim, subscript in enumerate(statement.write.subscripts):
            is_open = dim in statement.write.inexact
            if is_open and not is_surely_inside(self.scop, statement, statement.write, dim):
                origin = self.sizes.extent(array.origin[dim])
                at = paren(binary(self.expressions.subscript(subscript), "-", origin))
                extent = cast("uint64_t", self.sizes.extent(array.shape[dim]))
                guards.append(binary(cast("uint64_t", at), "<", extent))
        return guards

    def _load(self, load: Load, subscripts: tuple[Code, ...]) -> Code:
        position = self._by_load[(load.tensor, load.subscripts)]
        access = (*self.statement.writes, *self.statement.reads)[position]
        array = self.scop.arrays[access.array]
        if not access.inexact:
            return self.element(access, subscripts)
        # Where no element is there, none is read: a fault has been recorded.
        nothing = paren(cast(c_type(array.dtype), 0))
        if any(self.sizes.is_zero(extent) for extent in array.shape):
            return nothing
        opened = [extent for extent in array.shape if not isinstance(extent, int)]
        element = self.element(access, subscripts)
        for extent in dict.fromkeys(map(self.sizes.extent, opened)):
            element = paren(choice(binary(extent, ">", 0), element, nothing))
        return element

    def element(self, access: Access, subscripts: tuple[Code, ...] | None = None) -> Code:
        """Return the value that *access* reads."""
        return self.place(access, subscripts)

    def offset_in_tile(self, access: Access, placement: Placement) -> Code:
        """Return how many elements of a local array come before that of *access*."""
        position = self._by_load[(access.array, access.subscripts)]
        indices = list(self.leaf.local[(access.array, position)])
        for dim in access.inexact:
            if placement.dims[dim].parts:
                subscript = self.expressions.subscript(access.subscripts[dim])
                indices[dim] = self._clamped(access, dim, subscript)
        return row_major(indices, placement.extents)

    def _clamped(self, access: Access, dim: int, at: Code) -> Code:
        """Return how far the subscript *at* is from its array's start, within it in any case."""
        own = self.scop.arrays[access.array]
        if not self.sizes.is_zero(own.origin[dim]):
            at = paren(binary(at, "-", self.sizes.extent(own.origin[dim])))
        if is_surely_inside(self.scop, self.statement, access, dim):
            return at
        # Whatever was gathered, memory is safe; a fault has been recorded.
        return call("tcdsl_clamp", at, self.sizes.extent(own.shape[dim]))

    def place(self, access: Access, subscripts: tuple[Code, ...] | None = None) -> Code:
        """Return the element that *access* touches, as what is stored to."""
        position = self._by_load[(access.array, access.subscripts)]
        name = Name(self.names.of("array", access.array))
        placement = self.context.placements.get(access.array)
        if placement is not None:
            if placement.elements() == 1:
                return name
            element_bytes = self.scop.arrays[access.array].dtype.size_bytes
            if placement.layout is Layout.ATOMS and access not in self.statement.writes:
                indices = self.leaf.local[(access.array, position)]
                return index(name, in_atoms(placement, indices, element_bytes))
            offset = self.offset_in_tile(access, placement)
            return index(name, in_layout(placement, offset, element_bytes))
        if (access.array, position) in self.leaf.local:
            subscripts = tuple(paren(at) for at in self.leaf.local[access.array, position])
        if subscripts is None:
            subscripts = tuple(self.expressions.subscript(s) for s in access.subscripts)
        array = self.scop.arrays[access.array]
        shifted: list[Code] = []
        for dim, (at, origin) in enumerate(zip(subscripts, array.origin, strict=True)):
            if dim in access.inexact:
                shifted.append(self._clamped(access, dim, at))
                continue
            is_shifted = not self.sizes.is_zero(origin)
            shifted.append(paren(binary(at, "-", self.sizes.extent(origin))) if is_shifted else at)
        index_type = self.context.index_type
        offset = linear(shifted, self.sizes.strides(array, index_type), index_type)
        if array.shift is not None:
            offset = binary(offset, "-", row_start(array.shift, shifted))
        return index(name, offset)
