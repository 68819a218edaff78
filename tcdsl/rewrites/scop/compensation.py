"""Compensated sums: accumulators that keep what rounding took from them.

    s[i] += x[i, j]        --->      (s, lost)[i] += x[i, j]         s[i] = s + lost, at the end

The accumulator's type becomes ``compensated32`` or ``compensated64``.  Nothing else is said here:
strategies give every sum whose type is not its target's an accumulator of its own, as they do for
half types, in threads, lanes and chunks, and folds combine pairs with pairs.

A sum that cannot have an accumulator of its own stays as it is: where scattered terms, or several
subscripts, meet in one element, and where a sum reads its own target.

After Ogita, Rump, Oishi, "Accurate Sum and Dot Product", SIAM J. Sci. Comput. 26(6), 2005,
doi:10.1137/030601818.
"""

from dataclasses import replace

from tcdsl.lang.comprehension import Operator
from tcdsl.lang.types.dtypes import compensated
from tcdsl.poly.loop_tree import statements_of
from tcdsl.poly.scop import Scop, Statement
from tcdsl.rewrites.scop.rfactor import why_not_rfactored
from tcdsl.schedule.plan import Plan


def with_compensation(scop: Scop) -> Scop:
    """Return *scop* with every floating-point sum compensated that may be."""
    return scop.with_statements(tuple(map(_compensated, scop.statements)))


def _compensated(statement: Statement) -> Statement:
    reduction = statement.reduction
    if reduction is None or why_not_rfactored(statement) is not None:
        return statement
    if reduction.operator is not Operator.ADD or not reduction.dtype.is_float:
        return statement
    pair = replace(reduction, dtype=compensated(reduction.dtype))
    return replace(statement, reduction=pair)


def explained(plan: Plan) -> Plan:
    """Return *plan* with a word about its compensated sums."""
    arrays = plan.scop.arrays
    kernels = []
    for kernel in plan.kernels:
        statements = [plan.scop.by_name[name] for name in statements_of(kernel.tree)]
        has_pairs = any(arrays[w.array].dtype.is_compensated for s in statements for w in s.writes)
        why = (*kernel.why, "sums are compensated") if has_pairs else kernel.why
        kernels.append(replace(kernel, why=why))
    return replace(plan, kernels=tuple(kernels))
