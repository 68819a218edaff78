"""No vectors: what ``Options(vectorise=False)`` takes out of a sketch and of a loop tree.

    part[c, lane] += x   --->   part[c] += x        vector j   --->   for j

A partial accumulator that had only lanes disappears, unless the sums need a type of their own.
"""

from dataclasses import replace

from tcdsl.poly.loop_tree import Leaf, Loop, LoopKind, Node, Sequence
from tcdsl.poly.scop import Scop
from tcdsl.strategies.generic import needs_own_type
from tcdsl.strategies.sketch import Sketch


def has_lanes(sketch: Sketch) -> bool:
    """Return whether some reduction accumulates in the lanes of a vector."""
    return any(partial.is_lane for found in sketch.partials.values() for partial in found)


def without_lanes(scop: Scop, sketch: Sketch) -> Sketch:
    """Return *sketch* with scalar accumulators."""
    scalar = {
        name: tuple(partial for partial in found if not partial.is_lane)
        for name, found in sketch.partials.items()
    }
    kept = {name: found for name, found in scalar.items() if found or needs_own_type(scop, name)}
    return replace(sketch, partials=kept, lanes={})


def without_vectors(tree: Node) -> Node:
    """Return *tree* with every vector loop a serial one."""
    match tree:
        case Leaf():
            return tree
        case Sequence(children=children):
            return Sequence(tuple(without_vectors(child) for child in children))
        case Loop(kind=kind, body=body):
            kind = LoopKind.SERIAL if kind is LoopKind.VECTOR else kind
            return replace(tree, kind=kind, body=without_vectors(body))
