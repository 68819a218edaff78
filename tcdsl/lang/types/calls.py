"""Inlining of calls: ``Q = norm(A)`` becomes the statements of *norm*, on the caller's tensors.

    def norm(float(N) X) -> (Y) { s +=! X(i)  Y(i) = X(i) / s }
    Q = norm(A)     --->    norm.s +=! A(i)    where i in 0:M
                            Q(i) = A(i) / norm.s   where i in 0:M

A def sees whole tensors from the outside, as an array library would: its parameters and results
start at 0 whatever the boxes are, and a result does not change while an argument of the same name
is still read.  So:

- a parameter is the argument, its subscripts shifted by the origin of the argument's box;
- a size of the def is an extent of an argument, and ranges found inside the def stay as they are;
- a result is the target itself, its subscripts shifted so that they start at 0; or a temporary
  copied at the end, if the target is also an argument or has another type;
- a parameter that the def returns (in/out) is copied first, unless it is the target itself.

The def has been analysed on its own before, for all sizes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from tcdsl.errors import BAD_CALL, DUPLICATE_NAME, UNKNOWN_NAME, WRONG_ARITY
from tcdsl.lang.comprehension import (
    Comprehension,
    Const,
    Expr,
    Index,
    IndexBounds,
    Load,
    Size,
    Statement,
    Tensor,
    walk,
)
from tcdsl.lang.ranges.linking import Agreement, Derived
from tcdsl.lang.ranges.size_arguments import size_argument
from tcdsl.lang.ranges.size_functions import dim_expr, to_expr
from tcdsl.lang.rewrite import minus, plus, rewrite, rewrite_statement
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.lang.types.dtypes import INT32, DType, arithmetic
from tcdsl.lang.types.elaborate import Scope, check_rank, converted, elaborate
from tcdsl.lang.types.head import Dim, factors_of
from tcdsl.records import dataclass
from tcdsl.source import Span


@dataclass(frozen=True, slots=True)
class Call:
    """``(targets) = callee(args)``, as written."""

    targets: tuple[tuple[str, Span], ...]
    callee: Comprehension
    args: tuple[ast.Expr, ...]
    span: Span
    number: int  # calls of one def are numbered, which makes names unique


@dataclass(frozen=True, slots=True)
class Known:
    """What the caller knows of one of its tensors."""

    dtype: DType | None
    rank: int | None
    dims: tuple[str | int, ...] | None  # declared extents
    assigned: bool


@dataclass(slots=True)
class Inlined:
    """What a call adds to its caller; statements are still to be named."""

    statements: list[Statement] = field(default_factory=list)
    temporaries: dict[str, Tensor] = field(default_factory=dict)
    results: dict[str, Tensor] = field(default_factory=dict)  # what the def says of each target
    derived: dict[str, Derived] = field(default_factory=dict)
    agreements: list[Agreement] = field(default_factory=list)
    declared: dict[str, tuple[Expr, ...]] = field(default_factory=dict)


def inline(call: Call, known: Mapping[str, Known], scope: Scope) -> Inlined:
    """Return the statements of *call* on the caller's tensors.

    :raises SemanticError: the arguments or targets do not fit the def.
    """
    check_counts(call, scope)
    inliner = _Inliner(call, known, scope)
    inliner.bind_arguments()
    inliner.bind_results()
    inliner.add_body()
    return inliner.out


def check_counts(call: Call, scope: Scope) -> None:
    """Raise an error unless *call* has as many arguments and targets as its def."""
    callee = call.callee
    if len(call.args) != len(callee.parameters):
        count = len(callee.parameters)
        expected = f"{count} argument{'' if count == 1 else 's'} ({', '.join(callee.parameters)})"
        raise WRONG_ARITY(
            scope.source, call.span, name=callee.name, expected=expected, got=len(call.args),
            hint=f"it is {callee.signature}" if callee.signature else None,
        )  # fmt: skip
    if len(call.targets) != len(callee.outputs):
        count, targets = len(callee.outputs), ", ".join(callee.outputs)
        returned = "1 tensor" if count == 1 else f"{count} tensors"
        raise BAD_CALL(
            scope.source, call.span, name=callee.name,
            what=f"it returns {returned}, but {len(call.targets)} are assigned",
            advice=f"write {targets if count == 1 else f'({targets})'} = {callee.name}(...)",
        )  # fmt: skip
    names = [name for name, _ in call.targets]
    for position, (name, span) in enumerate(call.targets):
        if name in names[:position]:
            raise DUPLICATE_NAME(scope.source, span, name=name)


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor of the def as one of the caller's: ``T(i)`` is ``tensor(i + shift)``."""

    tensor: str
    shifts: tuple[tuple[Expr, bool], ...]  # (offset, whether it is added), one a dimension


@dataclass(slots=True)
class _Inliner:
    call: Call
    known: Mapping[str, Known]
    scope: Scope
    out: Inlined = field(default_factory=Inlined)
    sizes: dict[str, Expr] = field(default_factory=dict)
    scalars: dict[str, Expr] = field(default_factory=dict)
    views: dict[str, _View] = field(default_factory=dict)
    actuals: dict[str, str] = field(default_factory=dict)  # parameter -> the caller's tensor
    copies_out: list[Statement] = field(default_factory=list)
    products: list[tuple[str, ast.Name, int, Dim | None]] = field(default_factory=list)

    @property
    def callee(self) -> Comprehension:
        return self.call.callee

    # --- arguments -------------------------------------------------------------------------
    def bind_arguments(self) -> None:
        args = dict(zip(self.callee.parameters, self.call.args, strict=True))
        for name in self.callee.size_parameters:
            self._bind_size(name, args.pop(name))
        for name, arg in args.items():
            parameter = self.callee.tensors[name]
            if isinstance(arg, ast.Name) and arg.id in self.scope.tensors:
                self._bind_tensor(parameter, arg)
            elif parameter.rank == 0 and not parameter.is_output:
                self._bind_scalar(parameter, arg)
            else:
                raise self._not_a_tensor(parameter, arg)
        for product in self.products:
            self._bind_dim(*product)

    def _not_a_tensor(self, parameter: Tensor, arg: ast.Expr) -> Exception:
        if isinstance(arg, ast.Name):
            return UNKNOWN_NAME(
                self.scope.source, arg.span, what="tensor", name=arg.id,
                hint=did_you_mean(arg.id, self.scope.tensors) or "assign it before the call",
            )  # fmt: skip
        return BAD_CALL(
            self.scope.source, arg.span, name=self.callee.name,
            what=f"the argument for {parameter.name!r} is not a whole tensor",
            advice="assign the expression to a temporary first, and pass that",
        )  # fmt: skip

    def _bind_tensor(self, parameter: Tensor, arg: ast.Name) -> None:
        signature = self.scope.tensors[arg.id]
        check_rank(arg.id, signature.rank, parameter.rank, arg.span, self.scope)
        if signature.dtype != parameter.dtype:
            raise BAD_CALL(
                self.scope.source, arg.span, name=self.callee.name,
                what=f"{arg.id!r} is {signature.dtype}, but {parameter.name!r} is declared "
                f"{parameter.dtype}", advice=f"assign {parameter.dtype}({arg.id}(...)) to a "
                "temporary, and pass that",
            )  # fmt: skip
        self.actuals[parameter.name] = arg.id
        for position, dim in enumerate(parameter.dims):
            if len(factors_of(dim or 0)) == 1:
                self._bind_dim(parameter.name, arg, position, dim)
            else:  # its factors are bound by other dimensions, perhaps later ones
                self.products.append((parameter.name, arg, position, dim))
        self.views[parameter.name] = self._argument_view(arg.id, parameter.rank)

    def _argument_view(self, tensor: str, rank: int) -> _View:
        return _View(tensor, tuple((self._origin(tensor, d), True) for d in range(rank)))

    def _bind_dim(
        self, parameter: str, arg: ast.Name, position: int, dim: str | int | None
    ) -> None:
        extent = self._extent(arg.id, position)
        if isinstance(dim, str) and len(factors_of(dim)) == 1 and dim not in self.sizes:
            self.sizes[dim] = extent
            return
        declared = self._in_caller(dim_expr(dim or 0))
        if declared != extent:
            what = f"dimension {position} of {arg.id!r} and the size {dim} of {self.callee.name!r}"
            self.out.agreements.append(Agreement(what, extent, declared, arg.span))

    def _extent(self, tensor: str, position: int) -> Expr:
        dims = self.known[tensor].dims
        if dims is None:
            return self._placeholder(tensor, position, is_origin=False)
        return dim_expr(dims[position])

    def _origin(self, tensor: str, position: int) -> Expr:
        if self.known[tensor].dims is not None:
            return Const(0, INT32)
        return self._placeholder(tensor, position, is_origin=True)

    def _placeholder(self, tensor: str, position: int, *, is_origin: bool) -> Expr:
        # No name that a user can write has a dot or a blank in it.
        kind = "origin" if is_origin else "extent"
        name = f"{kind}.{position}.{tensor} {self.call.number}"
        self.out.derived[name] = Derived(tensor, position, is_origin)
        return Size(name)

    def _bind_size(self, name: str, arg: ast.Expr) -> None:
        self.sizes[name] = size_argument(name, arg, self.callee, self.scope)

    def _bind_scalar(self, parameter: Tensor, arg: ast.Expr) -> None:
        typed = elaborate(arg, self.scope)
        if any(isinstance(node, Load | Index) for node in walk(typed.expr)):
            raise self._not_a_tensor(parameter, arg)
        self.scalars[parameter.name] = converted(typed.expr, parameter.dtype, self.scope.source)

    # --- results ---------------------------------------------------------------------------
    def bind_results(self) -> None:
        for name, (target, span) in zip(self.callee.outputs, self.call.targets, strict=True):
            result = self.callee.tensors[name]
            known = self.known.get(target, Known(None, None, None, False))
            if known.rank is not None:
                check_rank(target, known.rank, result.rank, span, self.scope)
            self.out.results[target] = result
            if self._is_in_place(result, target):
                continue
            if self._is_direct(result, target, known):
                self.views[name] = self._result_view(result, target)
                self._declare(result, target, known)
            else:
                self._bind_through_temporary(result, target, known, span)

    def _is_in_place(self, result: Tensor, target: str) -> bool:
        """Return whether an in/out parameter's argument is the target, and nothing else is."""
        others = [actual for name, actual in self.actuals.items() if name != result.name]
        return result.is_input and self.actuals[result.name] == target and target not in others

    def _is_direct(self, result: Tensor, target: str, known: Known) -> bool:
        fits = known.dtype in (None, result.dtype)
        kept = result.is_input or result.needs_out
        return fits and not kept and target not in self.actuals.values()

    def _result_view(self, result: Tensor, tensor: str) -> _View:
        """Return *result* as *tensor*, its own origin taken off."""
        origin = result.origin or (None,) * result.rank  # None: the def has no ranges yet
        starts = (Const(0, INT32) if o is None else to_expr(o) for o in origin)
        shifts = tuple((self._in_caller(start), False) for start in starts)
        return _View(tensor, shifts)

    def _declare(self, result: Tensor, tensor: str, known: Known) -> None:
        """Keep the declared extents of *result*: a scattered one has no others."""
        if known.dims is None and None not in result.dims:
            extents = (self._in_caller(_dim(dim)) for dim in result.dims)
            self.out.declared[tensor] = tuple(extents)

    def _bind_through_temporary(
        self, result: Tensor, target: str, known: Known, span: Span
    ) -> None:
        temporary = self._fresh(result)
        self.views[result.name] = self._result_view(result, temporary)
        self._declare(result, temporary, Known(None, None, None, False))
        extents = [self._in_caller(to_expr(extent)) for extent in result.extents]
        extents = extents or [Const(0, INT32)] * result.rank
        if result.is_input:
            self._copy(temporary, self.actuals[result.name], result, extents, span)
        elif result.needs_out:
            self._copy(temporary, target, result, extents, span)
        copy = self._copy_statement(target, temporary, result, extents, known.dtype, span)
        self.copies_out.append(copy)

    def _copy(self, to: str, from_: str, result: Tensor, extents: list[Expr], span: Span) -> None:
        self.out.statements.append(
            self._copy_statement(to, from_, result, extents, result.dtype, span)
        )

    def _copy_statement(
        self,
        to: str,
        from_: str,
        result: Tensor,
        extents: list[Expr],
        dtype: DType | None,
        span: Span,
    ) -> Statement:
        """Return ``to(i...) = from_(i...)`` over ``[0, extents)``."""
        names = tuple(f"i{position}" for position in range(result.rank))
        indices = tuple(Index(name, span=span) for name in names)
        is_callers = from_ in self.known
        origins = [self._origin(from_, d) for d in range(result.rank)] if is_callers else []
        subscripts = tuple(map(plus, indices, origins)) if is_callers else indices
        load = Load(from_, subscripts, result.dtype, span)
        value = converted(load, arithmetic(result.dtype))
        zero = Const(0, INT32)
        return Statement(
            name="", target=to, subscripts=indices, indices=names, n_left=result.rank,
            reduction=None, value=converted(value, arithmetic(dtype or result.dtype)),
            explicit=tuple(map(IndexBounds, names, (zero,) * result.rank, extents)),
            span=span, target_span=span,
        )  # fmt: skip

    def _fresh(self, tensor: Tensor) -> str:
        name = f"{self.callee.name}.{tensor.name}"
        if name in self.known or name in self.out.temporaries:
            name = f"{name}.{self.call.number}"
        self.out.temporaries[name] = replace(
            tensor, name=name, dims=(None,) * tensor.rank, is_input=False, is_output=False,
            needs_out=False, origin=(), extents=(),
        )  # fmt: skip
        return name

    # --- the body --------------------------------------------------------------------------
    def add_body(self) -> None:
        for tensor in self.callee.tensors.values():
            if not tensor.is_input and not tensor.is_output:
                nothing = ((Const(0, INT32), True),) * tensor.rank
                self.views[tensor.name] = _View(self._fresh(tensor), nothing)
        self.out.statements += [self._moved(statement) for statement in self.callee.statements]
        self.out.statements += self.copies_out

    def _moved(self, statement: Statement) -> Statement:
        explicit = (*statement.explicit, *_inferred_ranges(statement))
        moved = replace(statement, explicit=explicit, domain=None, ranges=())
        moved = rewrite_statement(moved, self._in_caller_node)
        view = self.views[statement.target]
        subscripts = _shifted(moved.subscripts, view)
        return replace(moved, target=view.tensor, subscripts=subscripts)

    def _in_caller(self, expr: Expr) -> Expr:
        return rewrite(expr, self._in_caller_node)

    def _in_caller_node(self, expr: Expr) -> Expr:
        match expr:
            case Size(name=name):
                return self.sizes[name]
            case Load(tensor=tensor) if tensor in self.scalars:
                return self.scalars[tensor]
            case Load(tensor=tensor, subscripts=subscripts):
                view = self.views[tensor]
                return replace(expr, tensor=view.tensor, subscripts=_shifted(subscripts, view))
            case _:
                return expr


def _dim(dim: Dim | None) -> Expr:
    assert dim is not None
    return dim_expr(dim)


def _shifted(subscripts: tuple[Expr, ...], view: _View) -> tuple[Expr, ...]:
    return tuple(
        plus(subscript, offset) if added else minus(subscript, offset)
        for subscript, (offset, added) in zip(subscripts, view.shifts, strict=True)
    )


def _inferred_ranges(statement: Statement) -> Iterable[IndexBounds]:
    """Yield the ranges that inference gave to indices without an explicit one."""
    explicit = {bounds.index for bounds in statement.explicit}
    # (A def that is deferred has no ranges: only the types of what it gives are known.)
    for index, (lower, upper) in zip(statement.indices, statement.ranges, strict=False):
        if index not in explicit:
            yield IndexBounds(index, to_expr(lower), to_expr(upper), statement.span)
