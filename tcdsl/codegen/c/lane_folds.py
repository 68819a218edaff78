"""The lanes of a partial accumulator as one value: their sum as a tree, or the best of them.

w_part[0], .., w_part[31]  --->  w_part[0] + w_part[16], .., w_part[15] + w_part[31]
                           --->  a fold of 16 lanes of the device library
"""

from collections.abc import Sequence

from tcdsl.codegen.ast.build import (
    ONE,
    ZERO,
    address,
    binary,
    call,
    chain,
    index,
    negated,
    paren,
)
from tcdsl.codegen.ast.nodes import Assign, Code, Declare, For, If, Name, Node, Type, Variable
from tcdsl.codegen.c.expressions import c_type, combine, fold
from tcdsl.lang.comprehension import Reduction
from tcdsl.lang.types.dtypes import DType

_VECTOR_BYTES = 64  # TC_VECTOR_BYTES of the device library: what tc_fold_* takes at once


def folded(first: Code, lanes: int, reduction: Reduction) -> tuple[list[Node], Code]:
    """Return what folds the *lanes* from the place *first* on as a tree, and the result.

    The device library folds a whole vector.  Where a wider type has decided how many lanes there
    are (templates/cpu_row), they may be fewer, and none lies behind them.
    """
    part = Variable("w_part", address(first), pointer="*")
    nodes: list[Node] = [Declare(Type(c_type(reduction.dtype)), (part,))]
    vector = _VECTOR_BYTES // reduction.dtype.size_bytes
    least = vector if lanes >= vector else 1
    while lanes > least:
        lanes //= 2
        lane, other = index("w_part", "w_lane"), index("w_part", binary("w_lane", "+", lanes))
        term = combine(reduction.operator, reduction.dtype, lane, other)
        nodes.append(_for_lanes(ZERO, lanes, Assign(lane, term), "#pragma omp simd"))
    if least == vector:
        return nodes, fold(reduction.operator, reduction.dtype, "w_part")
    return nodes, index("w_part", ZERO)


def best(
    places: Sequence[Code], types: Sequence[DType], lanes: int, better: str
) -> tuple[list[Node], Code]:
    """Return what takes the best lane, of equal ones that of the smallest index; -1 is no index.

    :arg places: the first lane's index and value, of these *types*.
    :arg better: the function that says whether one value beats another.
    """
    pointers = [
        Declare(Type(c_type(type_)), (Variable(name, address(place), pointer="*"),), "const ")
        for name, place, type_ in zip(("w_index", "w_value"), places, types, strict=True)
    ]
    at, best_at = (index("w_index", lane) for lane in ("w_lane", "w_best"))
    value, best_value = (index("w_value", lane) for lane in ("w_lane", "w_best"))
    is_better, is_worse = call(better, value, best_value), call(better, best_value, value)
    is_before = paren(binary(negated(is_worse), "&&", binary(at, "<", best_at)))
    wins = paren(chain("||", [binary(best_at, "<", 0), is_better, is_before]))
    take = If(
        binary(binary(at, ">=", 0), "&&", wins),
        (Assign(Name("w_best"), Name("w_lane")),),
        is_short=True,
    )
    first = Declare(Type("int"), (Variable("w_best", ZERO),))
    return [*pointers, first, _for_lanes(ONE, lanes, take)], best_at


def _for_lanes(first: Code, end: int, body: Node, pragma: str = "") -> Node:
    """Return *body* for each lane from *first* on."""
    condition = binary("w_lane", "<", end)
    return For(Type("int"), "w_lane", first, condition, None, (body,), pragma, is_short=True)
