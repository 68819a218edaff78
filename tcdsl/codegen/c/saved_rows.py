"""Rows of a register tile are saved by turns: each once in a block of a blocked sum.

    w_sum = s;  s = 0;
    for (b = 0; b < 96; b += 32) {
      for (v = b; v <= b + 9; v++) s[0:6] += x[v];          w_sum[0:2] += s[0:2];  s[0:2] = 0;
      for (v = b + 10; v <= b + 20; v++) s[0:6] += x[v];    w_sum[2:4] += s[2:4];  s[2:4] = 0;
      for (v = b + 21; v <= b + 31; v++) s[0:6] += x[v];    w_sum[4:6] += s[4:6];  s[4:6] = 0;
    }
    ..                                      by turns as far as it goes, what fills no block
    s = w_sum + s;

No chain of additions is longer than where all rows are saved at once
(:mod:`tcdsl.codegen.passes.blocked_sums`); the first ones are shorter.  A core multiplies on while
it saves a few vectors, and stops for many: of 6 x 16 sums (AVX2, Zen 3) saving all of them took
10 % of a product of 512^3, by turns 2 %.  In a nest of loops they are cleared before it, and added
after it (a convolution on panels, 3 x 3 taps of 32 terms: 12.6 and 10.6 ms).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from tcdsl.codegen.ast.build import binary, call, code, index, number, paren
from tcdsl.codegen.ast.nodes import Assign, Code, For, If, Node, Type
from tcdsl.codegen.c.expressions import combine, identity
from tcdsl.codegen.c.statements import constant
from tcdsl.lang.comprehension import Operator
from tcdsl.lang.types.dtypes import DType
from tcdsl.records import dataclass
from tcdsl.schedule.placement import Placement

TURNS = 3  # at most: each repeats the loop's body
_INDEX = "int64_t"


@dataclass(frozen=True, slots=True)
class Saved:
    """An accumulator, its sums' type and its name, and the name under which it is saved."""

    placement: Placement
    dtype: DType
    name: str
    aside: str

    def rows(self, turn: int, turns: int, pragma: str) -> list[Node]:
        """Return what adds the rows of *turn* to what is saved, and clears them."""
        n_rows, row = self.placement.rows, self.placement.extents[-1]
        first, end = (n_rows * n // turns * row for n in (turn, turn + 1))
        old, new = index(self.aside, "w_k"), index(self.name, "w_k")
        body = (
            Assign(old, combine(Operator.ADD, self.dtype, old, new)),
            Assign(new, identity(Operator.ADD, self.dtype)),
        )
        until = binary("w_k", "<", end)
        loop = For(Type("int"), "w_k", code(first), until, None, body, pragma=pragma)
        return [loop] if first < end else []


@dataclass(frozen=True, slots=True)
class Range:
    """The values *first*, *first* + *step* .. up to *last*, in blocks of *size* iterations.

    If it *goes_on*, other terms follow, and the rows of a last block are saved, too.
    """

    first: Code
    last: Code
    step: int
    size: int
    goes_on: bool


def turns_of(accumulators: Sequence[Placement], size: int) -> int:
    """Return by how many turns rows are saved in blocks of *size* iterations, 1: all at once."""
    if any(one.elements() == 1 for one in accumulators):
        return 1
    return min(TURNS, size, max(one.rows for one in accumulators))


def saved_by_turns(
    accumulators: Sequence[Saved],
    over: Range,
    names: tuple[str, str],
    iterations: Callable[[Code, Code], Node],
) -> list[Node]:
    """Return the loop in blocks, in each of which all rows are saved.

    :arg names: of the variable of blocks, and of the value after the last whole one.
    :arg iterations: prints the loop from a first value to a last one.
    """
    block, rest = names
    stride = over.size * over.step
    end, left = _after_blocks(over, stride)
    turns = turns_of([one.placement for one in accumulators], over.size)
    at = [over.size * turn // turns * over.step for turn in range(turns + 1)]

    def by_turns(start: str, some: int, last: Code | None) -> list[Node]:
        """Return *some* turns from *start* on, up to *last* if no whole block is left."""
        nodes: list[Node] = []
        for turn, (begin, after) in enumerate(pairwise(at[: some + 1])):
            limit: Code = binary(start, "+", after - over.step)
            is_end = last is not None and turn == some - 1
            if last is not None and (is_end or left is None):
                limit = last if is_end else call("min", last, limit)
            nodes.append(iterations(binary(start, "+", begin) if turn else code(start), limit))
            if over.goes_on or not is_end:
                nodes += _rows(accumulators, turn, turns)
        if over.goes_on and last is not None:
            nodes += [
                node for turn in range(some, turns) for node in _rows(accumulators, turn, turns)
            ]
        return nodes

    body = tuple(by_turns(block, turns, None))
    whole = For(Type(_INDEX), block, over.first, binary(block, "<", rest), code(stride), body)
    some = turns if left is None else sum(one < left for one in at)
    is_left = binary(rest, "<=", over.last)
    more = [If(is_left, tuple(by_turns(rest, some, over.last)))] if left != 0 else []
    return [constant(_INDEX, rest, end), whole, *more]


def _rows(accumulators: Sequence[Saved], turn: int, turns: int) -> list[Node]:
    return [node for one in accumulators for node in one.rows(turn, turns, "#pragma omp simd")]


def _after_blocks(over: Range, stride: int) -> tuple[Code, int | None]:
    """Return the first value after whole blocks, and how many are left; None: that is not known."""
    ends = number(over.first), number(over.last)
    if ends[0] is not None and ends[1] is not None:
        whole, left = divmod(ends[1] - ends[0] + over.step, stride)
        return code(ends[0] + whole * stride), left // over.step * over.step
    # Division rounds towards 0: of a loop without iterations this is beyond its last value, too.
    length = paren(binary(binary(paren(over.last), "-", paren(over.first)), "+", over.step))
    blocks = binary(binary(length, "/", stride), "*", stride)
    return binary(paren(over.first), "+", blocks), None
