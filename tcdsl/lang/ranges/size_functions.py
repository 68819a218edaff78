"""Functions of the sizes: bounds and extents, ``[N, K] -> { [(N - K + 1)] }``.

They stay piecewise affine throughout inference; here they are made, simplified, evaluated at given
sizes, and turned back into expressions and into text for messages.
"""

from collections.abc import Mapping, Sequence
from functools import reduce

import islpy as isl

from tcdsl.lang.comprehension import Binary, Call, Const, Expr, Select, Size
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.types.dtypes import BOOL, INT32
from tcdsl.lang.types.head import Dim, factors_of

_PARAM = isl.dim_type.param
# Functions of more pieces are left as they are: what could be simpler costs more to find.
_MAX_TRIED = 4


class SizeSpace:
    """The space of the size symbols *sizes*; every size is at least 0.

    With *fixed* all of them have these values, so that a product of two is a constant.
    """

    def __init__(self, sizes: Sequence[str], fixed: Mapping[str, int] | None = None) -> None:
        self.fixed = fixed
        self.sizes: dict[str, int | None] = dict.fromkeys(sizes) if fixed is None else (
            {name: fixed[name] for name in sizes})  # fmt: skip
        params = [] if fixed is not None else list(sizes)
        named = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=params)
        self.space = named.params()
        self.builder = Builder(self.space, self.sizes)
        self.zero = self.builder.constant(0)
        self.one = self.builder.constant(1)
        self._line = self.space.add_unnamed_tuple_ui(1)
        local = isl.LocalSpace.from_space(self._line)
        self._free = isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.set, 0))
        self.sane = reduce(
            lambda where, size: where.intersect(self.size(size).ge_set(self.zero)),
            self.sizes,
            isl.Set.universe(self.space),
        )

    def constant(self, value: int) -> isl.PwAff:
        """Return the constant function *value*."""
        return self.builder.constant(value)

    def size(self, name: str) -> isl.PwAff:
        """Return the value of the size symbol *name*."""
        value = self.builder.affine(Size(name))
        assert value is not None
        return value

    def simplified(self, function: isl.PwAff) -> isl.PwAff:
        """Return a total *function*, as one affine function or as an extremum where it is that."""
        if function.n_piece() == 1 or function.n_piece() > _MAX_TRIED:
            return function
        return self.extended(function)

    def extended(self, function: isl.PwAff) -> isl.PwAff:
        """Return a total function that agrees with *function* wherever it is defined.

        (Total: for all sizes of at least 0.)  Tries one affine piece, then the minimum and the
        maximum of the pieces; what is still undefined becomes 0.
        """
        wanted = function.intersect_params(self.sane)
        domain = wanted.domain()
        pieces = [isl.PwAff.from_aff(aff) for _, aff in wanted.get_pieces()]
        tries = [*pieces]
        if 1 < len(pieces) <= _MAX_TRIED:
            tries += [reduce(isl.PwAff.min, pieces), reduce(isl.PwAff.max, pieces)]
        for candidate in tries:
            if candidate.intersect_params(domain).is_equal(wanted):
                return candidate.coalesce()
        general = wanted.coalesce().gist_params(self.sane)
        missing = self.sane.subtract(general.domain())
        if missing.is_empty():
            return general
        return general.union_add(self.zero.intersect_params(missing)).coalesce()

    def smallest(self, functions: Sequence[isl.PwAff]) -> isl.PwAff:
        """Return the pointwise minimum of *functions*, at least one and all total."""
        if len(functions) <= 2:
            return self.simplified(reduce(isl.PwAff.min, functions))
        # By PIP, { v : v <= all of them } has its maximum at once; min after min would split
        # every piece again, exponentially.
        below = (self._free.le_set(f.insert_domain(self._line)) for f in functions)
        return self.simplified(reduce(isl.Set.intersect, below).dim_max(0))

    def largest(self, functions: Sequence[isl.PwAff]) -> isl.PwAff:
        """Return the pointwise maximum of *functions*, at least one and all total."""
        return self.smallest([function.neg() for function in functions]).neg()


def ceil_div(function: isl.PwAff, divisor: int) -> isl.PwAff:
    """Return ``ceil(function / divisor)`` for a positive *divisor*."""
    if divisor == 1:
        return function
    return function.scale_down_val(isl.Val(divisor)).ceil()


def floor_div(function: isl.PwAff, divisor: int) -> isl.PwAff:
    """Return ``floor(function / divisor)`` for a positive *divisor*."""
    if divisor == 1:
        return function
    return function.scale_down_val(isl.Val(divisor)).floor()


def scaled(function: isl.PwAff, factor: int) -> isl.PwAff:
    """Return ``factor * function``."""
    return function if factor == 1 else function.scale_val(isl.Val(factor))


def _size_names(function: isl.PwAff | isl.Aff | isl.Set) -> list[str]:
    return [str(name) for name in function.get_var_names(_PARAM)]


def evaluate(function: isl.PwAff, sizes: Mapping[str, int]) -> int:
    """Return the value of *function* at *sizes*."""
    point = isl.Point.zero(function.domain().get_space())
    for position, name in enumerate(_size_names(function)):
        point = point.set_coordinate_val(_PARAM, position, isl.Val(sizes[name]))
    return int(function.eval(point).to_python())


def holds_at(where: isl.Set, sizes: Mapping[str, int]) -> bool:
    """Return whether *sizes* is in the parameter set *where*."""
    for position, name in enumerate(_size_names(where)):
        where = where.fix_val(_PARAM, position, isl.Val(sizes[name]))
    return not where.is_empty()


def involved_sizes(*functions: isl.PwAff | isl.Set) -> tuple[str, ...]:
    """Return the size symbols that *functions* depend on, in the order of the parameters."""
    found: dict[str, None] = {}
    for function in functions:
        for position, name in enumerate(_size_names(function)):
            if function.involves_dims(_PARAM, position, 1):
                found[name] = None
    return tuple(found)


def dim_expr(dim: Dim) -> Expr:
    """Return a declared extent as an expression: ``M*P`` is a product of sizes."""
    parts: list[Expr] = [
        Const(f, INT32) if isinstance(f, int) else Size(f) for f in factors_of(dim)
    ]
    return reduce(lambda a, b: Binary("*", a, b, INT32), parts)


# --- as expressions ------------------------------------------------------------------------
def to_expr(function: isl.PwAff) -> Expr:
    """Return *function* as an int32 expression of sizes."""
    affs = [aff for _, aff in function.get_pieces()]
    if len(affs) == 1:
        return _aff_expr(affs[0])
    if name := _extremum(function):
        return reduce(lambda a, b: Call(name, (a, b), INT32), map(_aff_expr, affs))
    *first, (_, last) = function.get_pieces()
    result = _aff_expr(last)
    for where, aff in reversed(first):
        result = Select(set_to_expr(where), _aff_expr(aff), result, INT32)
    return result


def extent_expr(extent: int | isl.PwAff) -> Expr:
    """Return an extent as an expression; where it is not defined, that may have any value."""
    if isinstance(extent, int):
        return Const(extent, INT32)
    return to_expr(extent.gist_params(extent.domain()))


def _extremum(function: isl.PwAff) -> str | None:
    """Return "min" or "max" if *function* is that of its pieces everywhere."""
    pieces = [(where, isl.PwAff.from_aff(aff)) for where, aff in function.get_pieces()]
    for name, compare in (("min", isl.PwAff.le_set), ("max", isl.PwAff.ge_set)):
        if all(
            where.is_subset(compare(value, other)) for where, value in pieces for _, other in pieces
        ):
            return name
    return None


def _aff_expr(aff: isl.Aff) -> Expr:
    """Return *aff* as a sum of terms, the constant last, floored if it has a denominator."""
    denominator = aff.get_denominator_val().to_python()
    terms: list[tuple[int, Expr]] = []
    for position, name in enumerate(_size_names(aff)):
        terms.append((_coefficient(aff, _PARAM, position, denominator), Size(name)))
    for position in range(aff.dim(isl.dim_type.div)):
        factor = _coefficient(aff, isl.dim_type.div, position, denominator)
        if factor:
            terms.append((factor, _aff_expr(aff.get_div(position))))
    rest = int((aff.get_constant_val() * isl.Val(denominator)).to_python())
    total = _sum(terms, rest)
    return total if denominator == 1 else Binary("/", total, Const(denominator, INT32), INT32)


def _coefficient(aff: isl.Aff, kind: isl.dim_type, position: int, denominator: int) -> int:
    value = aff.get_coefficient_val(kind, position) * isl.Val(denominator)
    return int(value.to_python())


def _sum(terms: Sequence[tuple[int, Expr]], rest: int) -> Expr:
    result: Expr | None = None
    # A positive term first, so that the sum does not begin with a minus.
    for factor, term in sorted(terms, key=lambda item: item[0] < 0):
        if factor == 0:
            continue
        if result is None:
            result = _times(factor, term)
        else:
            sign = "+" if factor > 0 else "-"
            result = Binary(sign, result, _times(abs(factor), term), INT32)
    if result is None:
        return Const(rest, INT32)
    if rest == 0:
        return result
    return Binary("+" if rest > 0 else "-", result, Const(abs(rest), INT32), INT32)


def _times(factor: int, term: Expr) -> Expr:
    return term if factor == 1 else Binary("*", Const(factor, INT32), term, INT32)


def set_to_expr(where: isl.Set) -> Expr:
    """Return the parameter set *where* as a bool expression."""
    pieces = [_basicset_to_expr(piece) for piece in where.compute_divs().get_basic_sets()]
    if not pieces:
        return Const(False, BOOL)
    return reduce(lambda a, b: Binary("||", a, b, BOOL), pieces)


def _basicset_to_expr(where: isl.BasicSet) -> Expr:
    parts: list[Expr] = []
    for constraint in where.get_constraints():
        op = "==" if constraint.is_equality() else ">="
        parts.append(Binary(op, _aff_expr(constraint.get_aff()), Const(0, INT32), BOOL))
    if not parts:
        return Const(True, BOOL)
    return reduce(lambda a, b: Binary("&&", a, b, BOOL), parts)


# --- as text -------------------------------------------------------------------------------
def text(function: isl.PwAff) -> str:
    """Return *function* as a user would write it, such as ``N - K + 1`` or ``min(N, M)``."""
    return expr_text(to_expr(function))


_TIGHTNESS = {"||": 1, "&&": 2, "==": 3, ">=": 3, "+": 4, "-": 4, "*": 5, "/": 5}


def expr_text(expr: Expr, context: int = 0) -> str:
    """Return an expression of sizes as text, in parentheses where *context* binds tighter."""
    match expr:
        case Const(value=value):
            return str(value)
        case Size(name=name):
            return name
        case Call(function=function, args=args):
            return f"{function}({', '.join(expr_text(arg) for arg in args)})"
        case Binary(op=op, left=left, right=right):
            level = _TIGHTNESS[op]
            written = f"{expr_text(left, level)} {op} {expr_text(right, level + 1)}"
            return f"({written})" if level < context else written
        case Select(condition=condition, if_true=if_true, if_false=if_false):
            parts = expr_text(condition, 1), expr_text(if_true, 1), expr_text(if_false)
            return f"({parts[0]} ? {parts[1]} : {parts[2]})"
        case _:
            raise AssertionError(f"{expr!r} is no function of sizes")
