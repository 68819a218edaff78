"""Register tiles of sums whose terms depend on their results: whole ones in loops of their own.

    for k <= m0 + 7:                              for k <= m0:             all 8 rows: unrolled,
      for max(m0, k) <= m < m0 + 8:                 for m0 <= m < m0 + 8:  sums stay in registers
        c[m] += A[m,k] * B[k]        --->             c[m] += ...
                                                  for m0 < k <= m0 + 7:    the triangle's edge
                                                    for k <= m < m0 + 8:  c[m] += ...

The triangle's edge is one step of k in m0 / 8: the rest runs as a product does.  Nothing else
changes but how isl separates a loop, so that order, races and completeness are proved as before.
"""

from dataclasses import replace

import islpy as isl

from tcdsl.poly.loop_tree import Leaf, Loop, LoopKind, Node, Sequence
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.index_classes import why_not_whole

_UNROLLED = (LoopKind.UNROLL, LoopKind.VECTOR)


def with_whole_tiles(scop: Scop, tree: Node) -> Node:
    """Return *tree*, whose loops around tiles with missing rows have whole tiles apart."""
    match tree:
        case Sequence(children=children):
            return Sequence(tuple(with_whole_tiles(scop, child) for child in children))
        case Loop() if tree.kind is LoopKind.SERIAL and _is_around_tile(scop, tree.body):
            return replace(tree, has_whole_tiles=True)
        case Loop(body=body):
            return replace(tree, body=with_whole_tiles(scop, body))
        case _:
            return tree


def _is_around_tile(scop: Scop, node: Node) -> bool:
    """Return whether *node* are the unrolled loops of a sum over a guarded domain."""
    depth = 0
    while isinstance(node, Loop) and node.kind in _UNROLLED and node.extent:
        node, depth = node.body, depth + 1
    if depth < 2 or not isinstance(node, Leaf):
        return False
    statement = scop.by_name[node.statement]
    is_sum = statement.kind is Kind.UPDATE and not statement.conditions
    is_closed = not statement.domain.dim(isl.dim_type.param)
    return is_sum and is_closed and why_not_whole(statement) is not None
