"""Loops by the turns of one thread, whose number a compiler then knows.

    for (j = threadIdx.x; j <= 15260; j += 512) s += x[j];

A compiler cannot tell how often this runs.  It unrolls the loop by some number and takes what is
left over first, turn by turn, each waiting for its load: several times a microsecond where whole
reductions take ten.  By turns, *whole* of which every thread takes, all but the last few loads of
a thread start together::

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

import re
from dataclasses import dataclass

from tcdsl.codegen import loop_ast
from tcdsl.costmodel import gpu_thresholds

MOST_UNROLLED = gpu_thresholds.UNROLLED_ITERATIONS
BYTES_UNROLLED = gpu_thresholds.UNROLLED_BYTES


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of one thread in a loop.

    *whole* of them are taken by all threads, *total* by some; *condition* says when that holds, ""
    if always.
    """

    whole: int
    total: int
    condition: str

    def in_batches(self, size: int) -> tuple[int, int]:
        """Return how many turns are taken in batches of *size*, and in all."""
        batched = self.whole // size * size if self.total > size else 0
        return batched, self.total


def turns_of(node: loop_ast.For, width: int) -> Turns | None:
    """Return the turns of a thread that takes every *width*-th value, from 0 on.

    None if the last value of the loop is no number, not even in most blocks.
    """
    bound = _bound(node)
    if bound is None or bound[0] < 0:
        return None
    last, condition = bound
    return Turns((last + 1) // width, -(-(last + 1) // width), condition)


def batch_of(load_bytes: int) -> int:
    """Return how many turns to unroll, each of which loads *load_bytes*."""
    return max(2, min(MOST_UNROLLED, BYTES_UNROLLED // max(load_bytes, 1)))


def last_number(node: loop_ast.For) -> int | None:
    """Return the last value of the variable of *node*, None if it is no number."""
    bound = _bound(node)
    return bound[0] if bound is not None and not bound[1] else None


def last_of(node: loop_ast.For) -> str | None:
    """Return the last value that *node*'s variable may have, as C; None if that is not plain."""
    match = re.fullmatch(rf"{re.escape(node.variable)} (<=?) ([^&|]+)", node.condition)
    if match is None or not node.step.isdigit():
        return None
    return match[2] if match[1] == "<=" else f"({match[2]}) - 1"


def lanes_of(node: loop_ast.For, width: int) -> tuple[str, str] | None:
    """Return the first and the last of *width* lanes that *node*, a loop over some of them, runs.

    None if they cannot be told, or are never all of them.
    """
    if node.init == "0" and last_number(node) is not None:
        return ("0", str(width - 1)) if last_number(node) == width - 1 else None
    last = last_of(node)
    return (node.init, last) if last is not None and node.step == "1" else None


def covers(node: loop_ast.For, width: int) -> bool:
    """Return whether the upper bound of *node* is exactly *width* - 1, a number."""
    return last_number(node) == width - 1


def step_guard(node: loop_ast.For) -> str:
    """Return the condition that a value from the first on is one of *node*'s, "" if all are."""
    if node.step == "1":
        return ""
    return f"({node.variable} - ({node.init})) % {node.step} == 0"


def _bound(node: loop_ast.For) -> tuple[int, str] | None:
    """Return the last value of *node*, and the condition under which it is that."""
    if node.step != "1":
        return None  # it skips some
    variable = re.escape(node.variable)
    match = re.fullmatch(rf"{variable} (<=?) (-?\d+)", node.condition)
    if match is not None:
        return int(match[2]) - (match[1] == "<"), ""
    match = re.fullmatch(rf"{variable} <= min\((\d+), ([^&|?]+)\)", node.condition)
    if match is None or not _is_balanced(match[2]):
        return None
    return int(match[1]), f"{match[2]} >= {match[1]}"


def _is_balanced(text: str) -> bool:
    """Return whether the parentheses of *text* are its own."""
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0
