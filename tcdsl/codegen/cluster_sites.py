"""Folds of clusters that a kernel calls once, one after the other: each gets a number of its own.

    tc_cluster_begin();                           tc_cluster_begin<2>();
    tc_fold_xc<tc_op_max_f32, 512, 1, 4>(a)  -->  tc_fold_xc<tc_op_max_f32, 512, 1, 4, 0>(a)
    tc_fold_xc<tc_op_add_f32, 512, 1, 4>(b)       tc_fold_xc<tc_op_add_f32, 512, 1, 4, 1>(b)

A fold with a number has slots of its own, into which nobody writes twice, so that it waits for what
is written and for nothing else (device library, part "cluster").  All folds of a kernel have one or
none has: no fold may be within a loop or guard, of a type below 4 bytes, or beside a barrier of the
cluster.  Nor has one fold alone: on an H200 rmsnorm of (4096, 65536) float32 takes 613 us with a
number and 565 without, for a reason not found (bfloat16: 286 and 291); kernels with two folds gain
10 to 20 %.
"""

import re
from collections.abc import Iterator, Sequence

from tcdsl.codegen.lines import like
from tcdsl.codegen.tidy import Block, parsed

MOST_SITES = 16  # what the device library has room for
_FOLD = re.compile(r"\btc_(?:arg)?fold_[xy]c<(\w+), \d+, \d+, \d+(?=>)")
_SMALL = re.compile(r"^tc_op_\w+_(b|[iu]8|[iu]16)$")


def with_sites(lines: Sequence[str]) -> tuple[list[str], int]:
    """Return *lines* with their folds numbered, and how many there are: 0 if none may have one."""
    operators = list(_folds(parsed(lines), is_plain=True))
    is_plain = all(operators) and 1 < len(operators) <= MOST_SITES
    if not is_plain or any("tc_cluster_sync" in line for line in lines):
        return list(lines), 0
    if any(_SMALL.match(operator) for operator in operators):
        return list(lines), 0
    numbers = iter(range(len(operators)))
    return [
        like(line, _FOLD.sub(lambda call: f"{call[0]}, {next(numbers)}", line)) for line in lines
    ], len(operators)


def _folds(block: Block, *, is_plain: bool) -> Iterator[str]:
    """Yield the operator of each fold in *block*, "" for one that is not *plain*ly called once."""
    for child in block.children:
        if isinstance(child, Block):
            yield from _folds(child, is_plain=is_plain and child.is_bare)
        else:
            yield from (call[1] if is_plain else "" for call in _FOLD.finditer(child))
