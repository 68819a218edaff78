"""No vectors: what ``Options(vectorise=False)`` takes out of a loop tree: vector j ---> for j."""

from dataclasses import replace

from tcdsl.poly.loop_tree import Leaf, Loop, LoopKind, Node, Sequence


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
