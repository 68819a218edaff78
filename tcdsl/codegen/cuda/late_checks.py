"""Checks of what a loop gathers, recorded after the loop.

    for (e = lo; e < hi; e++) {          int w = -1;
      if (col[e] is outside)             for (e = lo; e < hi; e++) {
        tc_fault(..., e);         --->     w = w < 0 && col[e] is outside ? e : w;
      s += val[e] * x[col[e]];             s += val[e] * x[col[e]];
    }                                    }
                                         if (w >= 0) { e = w;  the check as it was }

A compiler moves no load past a call.  With one in the loop, no iteration loads before the one
before it has waited for its own: without, the loads of several iterations are on their way at once.

Legal iff no statement of the loop changes what the check reads, and the loop's variable, which is
never negative, is the only one of the loop in the check.  What is gathered is safe in any case:
subscripts out of range are replaced, and the fault is reported when the kernel has ended.
"""

from collections.abc import Collection, Iterator

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import number
from tcdsl.poly.loop_tree import Loop, LoopKind
from tcdsl.poly.scop import Kind, Scop


def late_checks(
    scop: Scop, node: loop_ast.For, loop: Loop, local: Collection[str]
) -> list[loop_ast.Leaf]:
    """Return the checks in the C loop *node* of *loop* that may be recorded after it.

    :arg local: arrays that may be gone by then.
    """
    is_iterated = loop.kind is LoopKind.SERIAL or (
        loop.kind is LoopKind.THREAD and not loop.has_one_iteration
    )
    first = number(node.init)
    if not is_iterated or first is None or first < 0:
        return []
    members = [scop.by_name[leaf.statement] for leaf in loop_ast.leaves(node.body)]
    changed = {write.array for s in members if s.kind is not Kind.CHECK for write in s.writes}
    found = []
    for leaf in _own_leaves(node.body):
        statement = scop.by_name[leaf.statement]
        reads = {read.array for read in statement.reads}
        if statement.checked and not reads & changed and not reads & set(local):
            found.append(leaf)
    return found


def _own_leaves(node: loop_ast.AstNode) -> Iterator[loop_ast.Leaf]:
    """Yield the leaves of *node* that are in no loop of it, not even in one of one iteration."""
    match node:
        case loop_ast.Leaf():
            yield node
        case loop_ast.Block(children=children):
            for child in children:
                yield from _own_leaves(child)
