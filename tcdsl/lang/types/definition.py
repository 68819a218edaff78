"""One def: its declarations, its statements in source order, the calls that they inline.

    def f(float(N) A) -> (O) { t +=! A(i)  O(i) = A(i) / t }
        --->    tensors A (input), t (temporary), O (output); statements S0, S1; then ranges

A statement with an error is dropped, and what depends on its target is passed over in silence.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from tcdsl.errors import (
    ASSIGNED_PARAMETER,
    BAD_CALL,
    DECLARATION_MISMATCH,
    DUPLICATE_NAME,
    NAME_CLASH,
    NEVER_ASSIGNED,
    UNBOUND_SIZE,
    TCError,
    combined,
)
from tcdsl.lang.comprehension import Comprehension, Statement, Tensor
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.deferral import Resolution, check_at_once, needs_sizes
from tcdsl.lang.ranges.linking import Linking
from tcdsl.lang.ranges.range_inference import extents_of, infer
from tcdsl.lang.ranges.size_arguments import size_value
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.comparison_chains import chained_comparisons
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.lang.types.builtins import BUILTINS
from tcdsl.lang.types.calls import Call, Inlined, Known, check_counts, inline
from tcdsl.lang.types.dtypes import DType
from tcdsl.lang.types.elaborate import (
    FollowOnError,
    Scope,
    Signature,
    check_rank,
    unknown_function,
)
from tcdsl.lang.types.first_types import narrowed_values
from tcdsl.lang.types.head import factors_of, symbols_of
from tcdsl.lang.types.quotients import floored_quotients
from tcdsl.lang.types.signature import signature
from tcdsl.lang.types.statements import typed_statement
from tcdsl.records import dataclass
from tcdsl.source import Source, Span


def assigned_names(statement: ast.Stmt) -> tuple[str, ...]:
    """Return the tensors that *statement* assigns."""
    return (statement.target,) if isinstance(statement, ast.Assign) else statement.targets


@dataclass(slots=True)
class _Entry:
    """What is known of a tensor while its def is analysed."""

    name: str
    dtype: DType | None
    rank: int | None
    dims: tuple[str | int, ...] | None  # declared extents
    is_input: bool
    is_output: bool
    span: Span
    assigned: bool = False
    is_declared: bool = True  # its type is; else it is that of its first value


@dataclass(slots=True)
class Definition:
    """One def on its way to a comprehension.

    *callee* returns the comprehension of another def of the program, called at a span; it raises
    :class:`FollowOnError` if that def has errors.
    """

    source: Source
    definition: ast.Def
    defs: frozenset[str]
    callee: Callable[[str, Span], Comprehension]
    # The values of all sizes, where the def is deferred (lang/ranges/deferral) and they are known.
    fixed: Mapping[str, int] | None = None
    entries: dict[str, _Entry] = field(default_factory=dict)
    sizes: dict[str, Span] = field(default_factory=dict)
    given: dict[str, Span] = field(default_factory=dict)  # ``size C`` parameters
    statements: list[Statement] = field(default_factory=list)
    errors: list[TCError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    inlined: list[Inlined] = field(default_factory=list)
    _calls_deferred: bool = False
    _later: list[str] = field(default_factory=list)

    def comprehension(self) -> Comprehension:
        """Return the analysed def.

        :raises TCError: all errors of the def.
        """
        self._declare_all()
        for statement in self.definition.body:
            self._analyse(statement)
        self._check_results()
        if self.errors:
            raise combined(self.errors)
        if self.broken:
            raise FollowOnError  # a def that is called has the error
        typed = self._typed()
        if self.fixed is None and (self._calls_deferred or needs_sizes(typed)):
            return self._deferred(typed)
        # Sizes say which extents are equal; without a header the subscripts do.
        return infer(typed, self._linking(), not self.definition.has_header, self.fixed)

    def _deferred(self, typed: Comprehension) -> Comprehension:
        """Return the def with what finds its ranges at given sizes."""

        def analysed(sizes: Mapping[str, int]) -> Comprehension:
            again = Definition(self.source, self.definition, self.defs, self.callee, sizes)
            return replace(again.comprehension(), resolve=resolution)

        resolution = Resolution(typed.sizes, analysed)
        found = replace(typed, resolve=resolution, signature=signature(typed))
        check_at_once(found)
        return found

    # --- declarations ----------------------------------------------------------------------
    def _declare_all(self) -> None:
        for param in self.definition.params:
            self._declare_parameter(param)
        for param in self.definition.params:
            self._check_bound(param)  # float(M*P) C: M and P are sizes of other inputs
        for param in self.definition.returns:
            self._declare_result(param)
        for name, entry in self.entries.items():
            if name in self.sizes:
                one, other = "a tensor", "a size"
                self.errors.append(
                    NAME_CLASH(self.source, entry.span, name=name, one=one, other=other)
                )
        for statement in self.definition.body:
            self._later.extend(name for name in assigned_names(statement))

    def _declare_parameter(self, param: ast.Param) -> None:
        if param.name in self.entries or param.name in self.given:
            self.errors.append(DUPLICATE_NAME(self.source, param.span, name=param.name))
            return
        if param.is_size:
            self.given[param.name] = param.span
            self.sizes.setdefault(param.name, param.span)
            return
        for position, dim in enumerate(param.dims):
            if isinstance(dim, str) and len(factors_of(dim)) == 1:
                self.sizes.setdefault(dim, _dim_span(param, position))
        self.entries[param.name] = _Entry(
            param.name, param.dtype, len(param.dims), param.dims, True, False, param.span, True
        )

    def _declare_result(self, param: ast.Param) -> None:
        known = self.entries.get(param.name)
        if known is not None and known.is_output:
            self.errors.append(DUPLICATE_NAME(self.source, param.span, name=param.name))
            return
        if known is not None:
            known.is_output = True
            self._check_same(param, known)
            return
        self._check_bound(param)
        # Without dimensions, a type alone is declared: the rank is that of the assignment.
        dims = param.dims or None
        rank = len(dims) if dims else None
        entry = _Entry(param.name, param.dtype, rank, dims, False, True, param.span)
        self.entries[param.name] = entry

    def _check_bound(self, param: ast.Param) -> None:
        """Report the sizes in the dimensions of *param* that no input has."""
        for position, dim in enumerate(param.dims):
            for name in symbols_of(dim):
                if name not in self.sizes:
                    self.errors.append(self._unbound(param, name, _dim_span(param, position)))

    def _unbound(self, param: ast.Param, dim: str, span: Span) -> TCError:
        hint = did_you_mean(dim, self.sizes)
        return UNBOUND_SIZE(self.source, span, name=dim, tensor=param.name, hint=hint)

    def _check_same(self, param: ast.Param, known: _Entry) -> None:
        """Report a result whose declaration contradicts the parameter that it is."""
        same_type = param.dtype in (None, known.dtype)
        if same_type and param.dims in ((), known.dims):
            return
        self.errors.append(
            DECLARATION_MISMATCH(
                self.source, param.span, name=param.name,
                one=_declaration(param.dtype, param.dims),
                other=_declaration(known.dtype, known.dims or ()),
            )
        )  # fmt: skip

    # --- statements ------------------------------------------------------------------------
    def _analyse(self, statement: ast.Stmt) -> None:
        targets = assigned_names(statement)
        try:
            self._check_assigned_names(statement)
            call = self._called(statement)
            if call is not None:
                self._inline(call)
            elif isinstance(statement, ast.Assign):
                self._assign(statement)
        except TCError as error:
            self.errors.append(error)
            self.broken.update(targets)
        except FollowOnError:
            self.broken.update(targets)
        del self._later[: len(targets)]

    def _check_assigned_names(self, statement: ast.Stmt) -> None:
        span = statement.target_span if isinstance(statement, ast.Assign) else statement.span
        for name in assigned_names(statement):
            entry = self.entries.get(name)
            if entry is not None and entry.is_input and not entry.is_output:
                raise ASSIGNED_PARAMETER(self.source, span, name=name)
            if name in self.sizes:
                raise NAME_CLASH(self.source, span, name=name, one="a tensor", other="a size")

    def _assign(self, statement: ast.Assign) -> None:
        entry = self.entries.get(statement.target)
        scope = self._scope()
        if statement.target in self.broken:
            raise FollowOnError
        if entry is not None and entry.rank is not None:
            used = len(statement.subscripts)
            check_rank(entry.name, entry.rank, used, statement.target_span, scope)
        declared = None if entry is None else entry.dtype
        typed, dtype = typed_statement(statement, scope, declared, f"S{len(self.statements)}")
        self.statements.append(typed)
        self.warnings.extend(floored_quotients(typed, self.source))
        self.warnings.extend(chained_comparisons(typed, self.source))
        if entry is not None and not entry.is_declared:
            self.warnings.extend(narrowed_values(typed, self.source))
        self._assigned(statement.target, dtype, len(statement.subscripts), statement.target_span)

    def _assigned(self, name: str, dtype: DType, rank: int, span: Span) -> None:
        entry = self.entries.setdefault(name, _Entry(name, None, None, None, False, False, span))
        if entry.dtype is None:
            entry.dtype, entry.is_declared = dtype, False
        entry.rank = rank
        entry.assigned = True

    def _scope(self) -> Scope:
        readable = {
            name: Signature(entry.dtype, entry.rank)
            for name, entry in self.entries.items()
            if entry.dtype is not None and entry.rank is not None
        }
        later = frozenset(self._later) | self.entries.keys()
        return Scope(
            source=self.source,
            tensors=readable,
            sizes=frozenset(self.sizes),
            defs=self.defs,
            later=frozenset(later - readable.keys() - self.broken),
            broken=frozenset(self.broken),
        )

    # --- calls -----------------------------------------------------------------------------
    def _called(self, statement: ast.Stmt) -> Call | None:
        """Return the call that *statement* is, or None."""
        if isinstance(statement, ast.Invoke):
            return self._invoked(statement)
        value = statement.value
        if not isinstance(value, ast.Apply) or value.id not in self.defs:
            return None
        own_builtin = value.id == self.definition.name and value.id in BUILTINS
        if value.id in self.entries or own_builtin:
            return None
        if statement.subscripts:
            # A builtin of the same name is what a single element asks for.
            return None
        if statement.op != "=" or statement.clauses or statement.size_select:
            raise BAD_CALL(
                self.source, statement.span, name=value.id,
                what="a call assigns whole tensors", advice=f"write {statement.target} = "
                f"{value.id}(...) without clauses, then update {statement.target}",
            )  # fmt: skip
        callee = self.callee(value.id, value.id_span)
        targets = ((statement.target, statement.target_span),)
        return Call(targets, callee, value.args, statement.span, len(self.inlined))

    def _invoked(self, statement: ast.Invoke) -> Call:
        if statement.callee not in self.defs:
            missing = ast.Apply(statement.callee, (), statement.callee_span, statement.callee_span)
            raise unknown_function(missing, self._scope())
        callee = self.callee(statement.callee, statement.callee_span)
        targets = tuple((name, statement.span) for name in statement.targets)
        return Call(targets, callee, statement.args, statement.span, len(self.inlined))

    def _inline(self, call: Call) -> None:
        self._check_unbroken(call)
        known = {
            name: Known(entry.dtype, entry.rank, entry.dims, entry.assigned)
            for name, entry in self.entries.items()
        }
        if call.callee.is_deferred:
            self._calls_deferred = True
            if self.fixed is not None:
                call = self._resolved(call, self.fixed)
        added = inline(call, known, self._scope())
        self.inlined.append(added)
        for statement in added.statements:
            name = f"S{len(self.statements)}"
            self.statements.append(replace(statement, name=name))
        for temporary in added.temporaries.values():
            self._assigned(temporary.name, temporary.dtype, temporary.rank, temporary.span)
        for (target, span), result in zip(call.targets, added.results.values(), strict=True):
            self._assigned(target, result.dtype, result.rank, span)

    def _resolved(self, call: Call, fixed: Mapping[str, int]) -> Call:
        """Return *call* with its def at the sizes that the arguments have."""
        check_counts(call, self._scope())
        boxes = extents_of(self._typed(), self._linking(), fixed)
        shapes: dict[str, tuple[int, ...]] = {}
        given: dict[str, int] = {}
        for name, arg in zip(call.callee.parameters, call.args, strict=False):
            if name in call.callee.size_parameters:
                value = size_value(name, arg, call.callee, self._scope(), fixed)
                given[name] = value
            else:
                shapes[name] = boxes.get(arg.id, ()) if isinstance(arg, ast.Name) else ()
        return replace(call, callee=call.callee.at(bind_sizes(call.callee, shapes, given)))

    def _check_unbroken(self, call: Call) -> None:
        names = {arg.id for arg in call.args if isinstance(arg, ast.Name)}
        names.update(name for name, _ in call.targets)
        if names & self.broken:
            raise FollowOnError

    # --- the whole -------------------------------------------------------------------------
    def _check_results(self) -> None:
        assigned = {
            name for statement in self.definition.body for name in assigned_names(statement)
        }
        for param in self.definition.returns:
            if param.name not in assigned:
                self.errors.append(NEVER_ASSIGNED(self.source, param.span, name=param.name))

    def _typed(self) -> Comprehension:
        tensors = {
            name: _tensor(entry)
            for name, entry in self.entries.items()
            if entry.dtype is not None and entry.rank is not None  # None: not assigned so far
        }
        return Comprehension(
            name=self.definition.name,
            source=self.source,
            sizes=tuple(self.sizes),
            inputs=tuple(p.name for p in self.definition.params if not p.is_size),
            outputs=tuple(param.name for param in self.definition.returns),
            tensors=tensors,
            statements=tuple(self.statements),
            span=self.definition.name_span,
            size_parameters=dict(self.given),
            order=tuple(param.name for param in self.definition.params) if self.given else (),
            warnings=tuple(self.warnings),
        )

    def _linking(self) -> Linking:
        return Linking(
            derived={name: d for added in self.inlined for name, d in added.derived.items()},
            agreements=tuple(a for added in self.inlined for a in added.agreements),
            declared={name: d for added in self.inlined for name, d in added.declared.items()},
        )


def _dim_span(param: ast.Param, position: int) -> Span:
    return param.dim_spans[position] if param.dim_spans else param.span


def _declaration(dtype: DType | None, dims: tuple[str | int, ...]) -> str:
    extents = f"({', '.join(map(str, dims))})" if dims else ""
    return f"{dtype or ''}{extents}"


def _tensor(entry: _Entry) -> Tensor:
    assert entry.dtype is not None and entry.rank is not None
    dims = entry.dims if entry.dims is not None else (None,) * entry.rank
    return Tensor(entry.name, entry.dtype, dims, entry.is_input, entry.is_output, span=entry.span)
