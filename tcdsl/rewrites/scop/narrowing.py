"""Narrowing: factors of float32 are rounded to bfloat16 first, for products of bfloat16.

    C(m,n) +=! D(m,k) * float32(A(k,n))        D of float32, A and B of bfloat16
    E(k,j) +=! D(m,k) * float32(B(m,j))
        --->
    D.narrow(m,k) = D(m,k)                     of bfloat16, one copy for both
    C(m,n) +=! float32(D.narrow(m,k)) * float32(A(k,n))
    E(k,j) +=! float32(D.narrow(m,k)) * float32(B(m,j))

Tensor cores multiply factors of one type, and those of bfloat16 several times as fast as float32 in
three products of tf32.  With ``Options(precision="bfloat16")`` the rounding is allowed: a product
is off by at most 2^-8 of itself where one factor is rounded, 2^-7 where both are.  bfloat16 has the
exponents of float32, so that nothing is scaled.  Infinities and NaN stay; a factor from
2^128 - 2^119 on becomes an infinity.

Products that share a factor of float32 are narrowed together: it has one copy, and where its
producer stores that, and nothing else reads the factor, it needs no memory itself.

Legal iff the copies are (``factor_copies``), the sum is one of float32, and its conditions do not
read what is rounded.  It is what PyTorch's autograd does with layers of bfloat16, whose adjoints it
stores in bfloat16.
"""

from collections.abc import Iterator, Sequence

from tcdsl.lang.comprehension import Binary, Cast, Operator, walk
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT32
from tcdsl.poly.accesses import evaluated
from tcdsl.poly.scop import Kind, Scop, Statement, loads_of
from tcdsl.rewrites.scop.factor_copies import in_copy, why_not_in_copy
from tcdsl.rewrites.scop.packing import Factor, factor_of


def why_not_narrowed(scop: Scop, statement: Statement) -> str | None:
    """Return why the factors of *statement*, by themselves, are not rounded, or None."""
    reduction = statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or statement.library:
        return "it is no reduction"
    if reduction.operator is not Operator.ADD or reduction.dtype != FLOAT32:
        return "it is no sum of float32"
    arrays = _rounded(statement)
    if not arrays:
        return "it is no product of an element of float32 and one of float32 or bfloat16"
    if any(_other_reads(statement, array) for array in arrays):
        return "a condition reads its factors"
    reasons = (why_not_in_copy(scop, array, [statement.name]) for array in arrays)
    return next((reason for reason in reasons if reason is not None), None)


def narrowed_together(scop: Scop) -> list[tuple[str, ...]]:
    """Return the products that may be narrowed, those in one tuple that share factors."""
    found: list[tuple[set[str], list[Statement]]] = []
    for statement in scop.statements:
        if why_not_narrowed(scop, statement) is not None:
            continue
        arrays, members = set(_rounded(statement)), [statement]
        for other in [other for other in found if other[0] & arrays]:
            found.remove(other)
            arrays, members = arrays | other[0], [*other[1], *members]
        found.append((arrays, members))
    groups = (sorted(members, key=lambda s: scop.position(s.name)) for _, members in found)
    return [tuple(s.name for s in members) for members in groups]


def why_not_narrowed_together(scop: Scop, names: Sequence[str]) -> str | None:
    """Return why the products *names* do not share copies of their factors, or None."""
    for name in names:
        if (reason := why_not_narrowed(scop, scop.by_name[name])) is not None:
            return reason
    reasons = (why_not_in_copy(scop, array, list(users)) for array, users in _users(scop, names))
    return next((reason for reason in reasons if reason is not None), None)


def narrowed(scop: Scop, names: Sequence[str]) -> Scop:
    """Return *scop* with the factors of float32 of the products *names* in copies of bfloat16."""
    assert why_not_narrowed_together(scop, names) is None
    for array, users in list(_users(scop, names)):
        scop = in_copy(scop, array, users, f"{array}.narrow", BFLOAT16)
    return scop


def _users(scop: Scop, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield what is rounded for the products *names*, and those of them that read it."""
    arrays = {name: _rounded(scop.by_name[name]) for name in names}
    for array in dict.fromkeys(array for own in arrays.values() for array in own):
        yield array, [name for name in names if array in arrays[name]]


def _rounded(statement: Statement) -> tuple[str, ...]:
    """Return the arrays of float32 that *statement* multiplies with each other or bfloat16."""
    value = statement.value
    if not (isinstance(value, Binary) and value.op == "*" and value.dtype == FLOAT32):
        return ()
    factors = [factor_of(value.left), factor_of(value.right)]
    plain = [factor.load for factor in factors if factor is not None and _is_plain(factor)]
    if len(plain) < 2 or any(load.dtype not in (FLOAT32, BFLOAT16) for load in plain):
        return ()
    return tuple(dict.fromkeys(load.tensor for load in plain if load.dtype == FLOAT32))


def _is_plain(factor: Factor) -> bool:
    """Return whether *factor* is an element, in float32."""
    casts = [node.dtype for node in walk(factor.expr) if isinstance(node, Cast)]
    return all(dtype == FLOAT32 for dtype in casts if dtype.is_float)


def _other_reads(statement: Statement, array: str) -> int:
    """Return how often *statement* reads *array* other than as a factor."""
    value = statement.value
    assert isinstance(value, Binary)
    factors = [factor_of(value.left), factor_of(value.right)]
    own = sum(factor is not None and factor.load.tensor == array for factor in factors)
    return sum(load.tensor == array for load in loads_of(*evaluated(statement))) - own
