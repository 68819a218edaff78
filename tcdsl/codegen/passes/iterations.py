"""Loops by the iterations of one thread, whose number a compiler then knows.

    for (j = threadIdx.x; j <= 15260; j += 512) s += x[j];

A compiler cannot tell how often this runs.  It unrolls the loop by some number and takes what is
left over first, iteration by iteration, each waiting for its load: several times a microsecond
where whole reductions take ten.  By iterations, *whole* of which every thread takes, all but the
last few loads of a thread start together::

    for (t = 0; t < 24; t++) {                   unrolled by 8
      j = threadIdx.x + 512 * t;  s += x[j];
    }
    for (t = 24; t < 30; t++) {                  unrolled
      j = threadIdx.x + 512 * t;  if (t < 29 || j <= 15260) s += x[j];
    }

Where the bound is the less of a number and of what differs between blocks, as in ``min(255, n -
256 * b)`` (the last of several chunks is short), that is what most blocks run, and the others the
loop as it was.
"""

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import ONE, ZERO, binary, number, paren
from tcdsl.codegen.ast.nodes import Binary, Call, Choice, Code, Literal, Name
from tcdsl.codegen.ast.walk import walk
from tcdsl.costmodel import gpu_thresholds
from tcdsl.records import dataclass

MOST_UNROLLED = gpu_thresholds.UNROLLED_ITERATIONS


@dataclass(frozen=True, slots=True)
class Iterations:
    """The iterations of one thread in a loop.

    *whole* of them are taken by all threads, *total* by some; *condition* says when that holds,
    None if always.
    """

    whole: int
    total: int
    condition: Code | None = None

    def in_batches(self, size: int) -> tuple[int, int]:
        """Return how many iterations are taken in batches of *size*, and in all."""
        batched = self.whole // size * size if self.total > size else 0
        return batched, self.total


def iterations_of(node: loop_ast.For, width: int) -> Iterations | None:
    """Return the iterations of a thread that takes every *width*-th value, from 0 on.

    None if the last value of the loop is no number, not even in most blocks.
    """
    bound = _bound(node)
    if bound is None or bound[0] < 0:
        return None
    last, condition = bound
    return Iterations((last + 1) // width, -(-(last + 1) // width), condition)


def batch_of(load_bytes: int, most_bytes: int) -> int:
    """Return how many iterations to unroll, each of which loads *load_bytes*, all *most_bytes*."""
    return max(2, min(MOST_UNROLLED, most_bytes // max(load_bytes, 1)))


def last_number(node: loop_ast.For) -> int | None:
    """Return the last value of the variable of *node*, None if it is no number."""
    bound = _bound(node)
    return bound[0] if bound is not None and bound[1] is None else None


def last_of(node: loop_ast.For) -> Code | None:
    """Return the last value that *node*'s variable may have; None if that is not plain."""
    bound = _upper_bound(node)
    if bound is None or node.step is None or number(node.step) is None:
        return None
    op, last = bound
    return last if op == "<=" else binary(paren(last), "-", 1)


def lanes_of(node: loop_ast.For, width: int) -> tuple[Code, Code] | None:
    """Return the first and the last of *width* lanes that *node*, a loop over some of them, runs.

    None if they cannot be told, or are never all of them.
    """
    if node.init == ZERO and last_number(node) is not None:
        return (ZERO, Literal(str(width - 1))) if last_number(node) == width - 1 else None
    last = last_of(node)
    return (node.init, last) if last is not None and node.step == ONE else None


def covers(node: loop_ast.For, width: int) -> bool:
    """Return whether the upper bound of *node* is exactly *width* - 1, a number."""
    return last_number(node) == width - 1


def step_guard(node: loop_ast.For) -> list[Code]:
    """Return the conditions that a value from the first on is one of *node*'s."""
    if node.step is None or node.step == ONE:
        return []
    distance = paren(binary(node.variable, "-", paren(node.init)))
    return [binary(binary(distance, "%", node.step), "==", 0)]


def _upper_bound(node: loop_ast.For) -> tuple[str, Code] | None:
    """Return how the variable compares with its bound, and that; None if it has not one alone."""
    match node.condition:
        case Binary(op="<" | "<=" as op, left=Name(variable), right=bound):
            is_plain = variable == node.variable and not _has_logic(bound)
            return (op, bound) if is_plain else None
        case _:
            return None


def _has_logic(bound: Code) -> bool:
    return any(isinstance(part, Binary) and part.op in ("&&", "||") for part in walk(bound))


def _bound(node: loop_ast.For) -> tuple[int, Code | None] | None:
    """Return the last value of *node*, and the condition under which it is that."""
    bound = _upper_bound(node)
    if bound is None or node.step != ONE:  # it skips some
        return None
    op, last = bound
    value = number(last)
    if value is not None:
        return value - (op == "<"), None
    match last:
        case Call(function="min" | "tc_imin", arguments=(Literal() as first, other)) if op == "<=":
            value = number(first)
            if value is None or value < 0 or any(isinstance(p, Choice) for p in walk(other)):
                return None
            return value, binary(other, ">=", first)
    return None
