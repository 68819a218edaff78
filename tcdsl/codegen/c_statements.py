"""One statement's instances as C text, at one leaf of the generated loops."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tcdsl.codegen import loop_ast
from tcdsl.codegen.c_expressions import (
    ExpressionPrinter,
    Scope,
    c_type,
    cast_text,
    combine,
    fold,
    identity,
    suffix,
)
from tcdsl.codegen.names import Names
from tcdsl.codegen.size_texts import SizeTexts
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
from tcdsl.lang.dtypes import DType, arithmetic
from tcdsl.lang.faults import Site
from tcdsl.poly.data_ranges import data_ranges_of
from tcdsl.poly.lowering import first_load
from tcdsl.poly.scop import Access, Interleaved, Kind, RangeCheck, Scop, Skew
from tcdsl.transforms.placement import Placement

_VECTOR_BYTES = 64  # TC_VECTOR_BYTES of the device library: what tc_fold_* takes at once


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


def mentions(line: str, name: str) -> bool:
    """Return whether *name* stands in *line* as a word."""
    return re.search(rf"\b{re.escape(name)}\b", line) is not None


class StatementPrinter:
    """Prints one statement's instances at one leaf."""

    def __init__(
        self, context: Context, leaf: loop_ast.Leaf, known: Mapping[Expr, str] | None = None
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
            index=lambda name: self.names.of("index", name),
            size=self._size,
            element=self._load,
        )
        self.expressions = ExpressionPrinter(scope, known, context.index_type, self.is_common)

    def is_common(self, expr: Expr) -> bool:
        """Return whether so many instances share *expr* that what is known of it is worth while.

        C compilers are better left to divide and compare: vectors of quotients cost little.
        """
        return False

    def invariant_calls(self, loop: loop_ast.For, written: set[str]) -> list[Expr]:
        """Return the largest calls in the value that *loop* does not change, and may run early.

        What they load must exist even if the loop never runs: local arrays always do.
        """
        moving = {
            index
            for index, text in zip(self.statement.indices, self.leaf.iterators, strict=True)
            if mentions(text, loop.variable)
        }
        runs = loop.is_constant and bool(loop.condition)

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
        stack = [self.statement.value] if self.statement.value is not None else []
        while stack:
            expr = stack.pop()
            # Guarded operands may not be evaluated where their guard does not hold.
            if isinstance(expr, Select) or (isinstance(expr, Binary) and expr.op in ("&&", "||")):
                continue
            if isinstance(expr, Call) and is_free(expr):
                found.append(expr)
            else:
                stack.extend(children(expr))
        return list(dict.fromkeys(found))

    def outside(self, expr: Expr) -> str:
        """Return *expr* as text for a place outside the statement's own block."""
        values = dict(zip(self.statement.indices, self.leaf.iterators, strict=True))
        scope = Scope(lambda name: f"({values[name]})", self._size, self._load)
        return ExpressionPrinter(scope).value(expr)

    def _size(self, name: str) -> str:
        known = self.scop.sizes[name]
        return str(known) if known is not None else self.names.of("size", name)

    @property
    def conditions(self) -> list[Expr]:
        """The conditions of the statement that no loop around keeps."""
        ranges = data_ranges_of(self.statement) if self.leaf.kept else ()
        kept = {c for found in ranges if found.dim in self.leaf.kept for c in found.conditions}
        return [condition for condition in self.statement.conditions if condition not in kept]

    def lines(self) -> list[str]:
        statement = self.statement
        match statement.kind:
            case Kind.INIT:
                return self._init()
            case Kind.FOLD:
                return self._fold()
            case Kind.CHECK:
                return self._check()
        assert statement.value is not None
        conditions = [self.expressions.value(c) for c in self.conditions]
        conditions += self._scatter_guards()
        if statement.companion is not None:
            body = self._arg_update()
        else:
            body = [f"{self.place(statement.write)} = {self._stored_value()};"]
        if not conditions:
            return body
        return [f"if ({' && '.join(conditions)}) {{", *(f"  {line}" for line in body), "}"]

    def _stored_value(self) -> str:
        """Return what the statement stores; a half value that it copies is copied as it is."""
        statement = self.statement
        assert statement.value is not None
        stored = self.scop.arrays[statement.write.array].dtype
        match statement.value:
            case Cast(operand=Load(dtype=loaded) as load) if loaded == stored and stored.is_half:
                if statement.kind is Kind.ASSIGN:
                    return self.expressions.value(load)
        return self._as_stored(statement.write, self._new_value(statement.value))

    def _new_value(self, value: Expr) -> str:
        """Return the text of the value to be stored, in the type of the arithmetic."""
        statement = self.statement
        if statement.kind is Kind.ASSIGN:
            return self.expressions.value(value)
        reduction = statement.reduction
        assert reduction is not None
        accumulator = self._accumulator(statement.write, reduction.dtype)
        is_sum = reduction.operator is Operator.ADD and reduction.dtype.is_float
        if is_sum and isinstance(value, Binary) and value.op == "*":
            factors = f"{self.expressions.value(value.left)}, {self.expressions.value(value.right)}"
            return f"tc_mad_{suffix(reduction.dtype)}({factors}, {accumulator})"
        term = self.expressions.value(value)
        if reduction.dtype.is_compensated and not value.dtype.is_compensated:
            return f"tc_plus_{suffix(reduction.dtype)}({accumulator}, {term})"
        return combine(reduction.operator, reduction.dtype, accumulator, term)

    def _accumulator(self, access: Access, dtype: DType) -> str:
        stored = self.scop.arrays[access.array].dtype
        return cast_text(self.element(access), stored, dtype)

    def _store(self, access: Access, value: str) -> str:
        return f"{self.place(access)} = {self._as_stored(access, value)};"

    def _as_stored(self, access: Access, value: str) -> str:
        """Return *value* in the type of the array of *access*."""
        array = self.scop.arrays[access.array]
        value_type = arithmetic(array.dtype)
        if self.statement.reduction is not None and not self.statement.companion:
            value_type = self.statement.reduction.dtype
        return cast_text(value, value_type, array.dtype)

    def _init(self) -> list[str]:
        statement = self.statement
        assert statement.reduction is not None
        reduction = statement.reduction
        if statement.companion is not None:
            best = identity(reduction.operator, reduction.dtype)
            return [
                f"{self.place(statement.write)} = -1;",
                f"{self.place(statement.companion)} = {best};",
            ]
        array = self.scop.arrays[statement.write.array]
        value = cast_text(
            identity(reduction.operator, reduction.dtype), reduction.dtype, array.dtype
        )
        return [f"{self.place(statement.write)} = {value};"]

    def _arg_update(self) -> list[str]:
        """Keep the better of the candidate and the best so far; the first wins a tie."""
        statement = self.statement
        assert statement.companion is not None and statement.value is not None
        reduction = statement.reduction
        assert reduction is not None
        best, index = self.element(statement.companion), self.element(statement.write)
        (reduced,) = statement.reduced
        origin = self._arg_origin()
        value = f"({self.names.of('index', reduced)} - {origin})"
        stored = self.scop.arrays[statement.write.array].dtype
        return [
            f"const {c_type(reduction.dtype)} w_candidate"
            f" = {self.expressions.value(statement.value)};",
            f"const int w_takes = ({index} < 0) | {self._better()}(w_candidate, {best});",
            f"{self.place(statement.companion)} = w_takes ? w_candidate : {best};",
            f"{self.place(statement.write)} = w_takes ? ({c_type(stored)}){value} : {index};",
        ]

    def _arg_origin(self) -> str:
        return self.sizes.extent(self.statement.arg_origin)

    def _fold(self) -> list[str]:
        """Fold the lanes as a tree, then store or combine with the target."""
        statement = self.statement
        reduction = statement.reduction
        assert reduction is not None
        if reduction.operator.is_arg:
            return self._arg_fold()
        (read,) = statement.reads
        lines = [f"{c_type(reduction.dtype)} *w_part = &{self.place(read)};"]
        width, vector = statement.lanes, _VECTOR_BYTES // reduction.dtype.size_bytes
        while width > vector:
            width //= 2
            term = combine(reduction.operator, reduction.dtype, "w_part[w_lane]",
                           f"w_part[w_lane + {width}]")  # fmt: skip
            lines += [
                "#pragma omp simd",
                f"for (int w_lane = 0; w_lane < {width}; w_lane++) w_part[w_lane] = {term};",
            ]
        result = fold(reduction.operator, reduction.dtype, "w_part")
        if not reduction.initialise:
            accumulator = self._accumulator(statement.write, reduction.dtype)
            result = combine(reduction.operator, reduction.dtype, accumulator, result)
        return [*lines, self._store(statement.write, result)]

    def _arg_fold(self) -> list[str]:
        """Take the best lane, of equal ones that of the smallest index; -1 is no index."""
        statement = self.statement
        assert statement.reduction is not None
        indices, values = statement.reads
        better = self._better()
        index_type = c_type(self.scop.arrays[indices.array].dtype)
        return [
            f"const {index_type} *w_index = &{self.place(indices)};",
            f"const {c_type(statement.reduction.dtype)} *w_value = &{self.place(values)};",
            "int w_best = 0;",
            f"for (int w_lane = 1; w_lane < {statement.lanes}; w_lane++)",
            "  if (w_index[w_lane] >= 0 && (w_index[w_best] < 0 ||"
            f" {better}(w_value[w_lane], w_value[w_best]) ||",
            f"      (!{better}(w_value[w_best], w_value[w_lane])"
            " && w_index[w_lane] < w_index[w_best])))",
            "    w_best = w_lane;",
            f"{self.place(statement.write)} = w_index[w_best];",
        ]

    def _better(self) -> str:
        reduction = self.statement.reduction
        assert reduction is not None
        name = "max" if reduction.operator is Operator.ARGMAX else "min"
        return f"tc_arg_better_{name}_{suffix(reduction.dtype)}"

    def _check(self) -> list[str]:
        """Record a gathered or scattered subscript out of range, or a range from data."""
        statement = self.statement
        array = self.scop.arrays[statement.write.array]
        conditions = [self.expressions.value(c) for c in self.conditions]
        if statement.checked_range is not None:
            return self._range_check(statement.checked_range, conditions)
        lines = []
        loads = statement.checked_loads
        for (dim, subscript), load in zip(statement.checked, loads, strict=True):
            site = len(self.context.sites)
            reads, position = self._source_of(subscript, load)
            span = statement.span
            self.context.sites.append(Site(array.name, dim, span.start, span.end, reads))
            origin = self.sizes.extent(array.origin[dim])
            extent = self.sizes.extent(array.shape[dim])
            index, is_outside = self._outside(dim, subscript, f"w_index{site}")
            call = f"tc_fault(fault, {site}, w_index{site} + {origin}, {extent}, {position});"
            lines += [index, f"if ({is_outside}) {call}"]
        return lines

    def _outside(self, dim: int, subscript: Expr, name: str) -> tuple[str, str]:
        """Return the declaration of a checked subscript, called *name*, and when it is a fault."""
        array = self.scop.arrays[self.statement.write.array]
        extent = self.sizes.extent(array.shape[dim])
        index = f"{self.expressions.subscript(subscript)} - {self.sizes.extent(array.origin[dim])}"
        conditions = " && ".join(self.expressions.value(c) for c in self.conditions)
        index = f"({conditions}) ? {index} : 0" if conditions else index
        guard = f"{conditions} && " if conditions else ""
        is_outside = f"{guard}({name} < 0 || {name} >= {extent})"
        return f"const int64_t {name} = {index};", is_outside

    def _source_of(self, subscript: Expr, written: Load | None) -> tuple[str, str]:
        """Return the tensor that *subscript* reads first, and where in it, in elements of memory.

        :arg written: the load as it was before copies took the place of tensors; where its own
            subscripts read further tensors, those may have been replaced too.
        :return: the position is -1 where the element is in no memory of the tensor itself.
        """
        if written is None:
            return "", "-1"
        load = written
        if any(isinstance(node, Load) for part in written.subscripts for node in walk(part)):
            load = first_load(subscript) or written
        array = self.scop.arrays[load.tensor]
        if self.context.placements.get(load.tensor) is not None or array.skew is not None:
            return load.tensor, "-1"
        shifted = []
        for subscript_, origin in zip(load.subscripts, array.origin, strict=True):
            index = self.expressions.subscript(subscript_)
            is_shifted = not self.sizes.is_zero(origin)
            shifted.append(f"({index} - {self.sizes.extent(origin)})" if is_shifted else index)
        return load.tensor, _linear(shifted, self.sizes.strides(array), self.context.index_type)

    def _range_check(self, ends: RangeCheck, conditions: list[str]) -> list[str]:
        site = len(self.context.sites)
        self.context.sites.append(Site(ends.clause, -1))
        low, high = f"w_low{site}", f"w_high{site}"
        start, end = self.sizes.extent(ends.start), self.sizes.extent(ends.end)
        lines = [
            f"const int64_t {low} = {self.expressions.value(ends.lower)};",
            f"const int64_t {high} = {self.expressions.value(ends.upper)};",
            f"if ({low} < {high} && ({low} < {start} || {high} > {end}))"
            f" tc_fault(fault, {site}, {high} > {end} ? {high} : {low}, {end}, -1);",
        ]
        if not conditions:
            return lines
        return [f"if ({' && '.join(conditions)}) {{", *(f"  {line}" for line in lines), "}"]

    def _scatter_guards(self) -> list[str]:
        """Return conditions that keep a scattered write inside its array."""
        statement = self.statement
        if statement.write.is_exact:
            return []
        array = self.scop.arrays[statement.write.array]
        guards = []
        for dim, subscript in enumerate(statement.write.subscripts):
            if dim in statement.write.inexact:
                origin = self.sizes.extent(array.origin[dim])
                index = f"({self.expressions.subscript(subscript)} - {origin})"
                guards.append(
                    f"(uint64_t){index} < (uint64_t){self.sizes.extent(array.shape[dim])}"
                )
        return guards

    def _load(self, load: Load, subscripts: tuple[str, ...]) -> str:
        position = self._by_load[(load.tensor, load.subscripts)]
        access = (*self.statement.writes, *self.statement.reads)[position]
        array = self.scop.arrays[access.array]
        if not access.inexact:
            return self.element(access, subscripts)
        # Where no element is there, none is read: a fault has been recorded.
        nothing = f"(({c_type(array.dtype)})0)"
        if any(self.sizes.is_zero(extent) for extent in array.shape):
            return nothing
        opened = [extent for extent in array.shape if not isinstance(extent, int)]
        element = self.element(access, subscripts)
        for extent in dict.fromkeys(map(self.sizes.extent, opened)):
            element = f"({extent} > 0 ? {element} : {nothing})"
        return element

    def element(self, access: Access, subscripts: tuple[str, ...] | None = None) -> str:
        """Return the text of the value that *access* reads."""
        return self.place(access, subscripts)

    def place(self, access: Access, subscripts: tuple[str, ...] | None = None) -> str:
        """Return the text of the element that *access* touches, as what is stored to."""
        position = self._by_load[(access.array, access.subscripts)]
        name = self.names.of("array", access.array)
        placement = self.context.placements.get(access.array)
        if placement is not None:
            if placement.elements() == 1:
                return name
            indices = self.leaf.local[(access.array, position)]
            return f"{name}[{_row_major(indices, placement.extents)}]"
        if (access.array, position) in self.leaf.local:
            subscripts = tuple(f"({text})" for text in self.leaf.local[access.array, position])
        if subscripts is None:
            subscripts = tuple(self.expressions.subscript(s) for s in access.subscripts)
        array = self.scop.arrays[access.array]
        shifted = []
        for dim, (text, origin) in enumerate(zip(subscripts, array.origin, strict=True)):
            is_shifted = not self.sizes.is_zero(origin)
            index = f"({text} - {self.sizes.extent(origin)})" if is_shifted else text
            if dim in access.inexact:
                # Whatever was gathered, memory is safe; a fault has been recorded.
                index = f"tcdsl_clamp({index}, {self.sizes.extent(array.shape[dim])})"
            shifted.append(index)
        address = _linear(shifted, self.sizes.strides(array), self.context.index_type)
        if array.skew is not None:
            address += f" - {_row_start(array.skew, shifted)}"
        return f"{name}[{address}]"


def _row_major(indices: Sequence[str], extents: Sequence[int]) -> str:
    strides, step = [], 1
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    kept = [
        (index, stride)
        for index, stride, extent in zip(indices, reversed(strides), extents, strict=True)
        if extent > 1
    ]
    return _linear([index for index, _ in kept], [stride for _, stride in kept])


def _linear(
    indices: Sequence[str], strides: Sequence[int | str | Interleaved], index_type: str = "i64"
) -> str:
    """Return the sum of *indices* times *strides*.

    :arg index_type: of index arithmetic, as a suffix of the device library.
    """
    terms = []
    for index, stride in zip(indices, strides, strict=True):
        if isinstance(stride, Interleaved):
            # A negative dividend there is none, and unsigned quotients are cheaper.
            bits, dividend = index_type[1:], as_factor(index)
            run = f"(int{bits}_t)((uint{bits}_t){dividend} / {stride.run}u)"
            terms += _terms((index, run), (stride.step, stride.outer - stride.run * stride.step))
        else:
            terms += _terms((index,), (stride,))
    return " + ".join(terms) or "0"


def _row_start(skew: Skew, indices: Sequence[str]) -> str:
    """Return where the row at *indices* begins in its first vector; none of them is negative."""
    unsigned = [f"(unsigned){as_factor(index)}" for index in indices[:-1]]  # which may wrap
    terms = _terms(unsigned, [f"{factor}u" if factor > 1 else factor for factor in skew.factors])
    return f"(int)(({' + '.join(terms)}) % {skew.width}u)"


def _terms(indices: Sequence[str], strides: Sequence[int | str]) -> list[str]:
    return [
        index if stride == 1 else f"{as_factor(index)} * {stride}"
        for index, stride in zip(indices, strides, strict=True)
        if stride != 0
    ]


def as_factor(text: str) -> str:
    """Return *text* as it may stand beside a ``*``."""
    return text if re.fullmatch(r"\w+|\(\w+\)", text) else f"({text})"
