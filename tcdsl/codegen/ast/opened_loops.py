"""Which loops of the loop tree isl printed as C loops, and which without.

isl prints no loop of one iteration, nor one around the iterations that it sets apart::

    MARK i                       i is *opened*, for there is a C loop of it,
      for c0 in 0:8  S[c0]       and *unopened*: what lives in an iteration of i is declared
      S[8]                       around both
"""

from collections.abc import Iterator

from tcdsl.codegen.ast import loop_ast


def lost_loops(node: loop_ast.AstNode) -> set[str]:
    """Return the loops that isl printed without a C loop somewhere below *node*."""
    match node:
        case loop_ast.Mark(name=name, body=body):
            return lost_loops(body) | (set() if is_loop(body) else {name})
        case loop_ast.Block(children=children):
            return {name for child in children for name in lost_loops(child)}
        case loop_ast.If(then=then, otherwise=otherwise):
            return lost_loops(then) | (lost_loops(otherwise) if otherwise is not None else set())
        case loop_ast.For(body=body):
            return lost_loops(body)
        case _:
            return set()


def unopened_loops(node: loop_ast.AstNode) -> list[str]:
    """Return the loops below *node*, outside any C loop, that isl printed without one somewhere.

    They have a single iteration there: what lives in it may as well live in the C loop around.
    """
    match node:
        case loop_ast.Mark(name=name, body=body):
            own = [] if is_loop(body) else [name]
            return list(dict.fromkeys([*own, *unopened_loops(body)]))
        case loop_ast.Block(children=children):
            return list(dict.fromkeys(n for child in children for n in unopened_loops(child)))
        case loop_ast.If(then=then, otherwise=otherwise):
            rest = unopened_loops(otherwise) if otherwise is not None else []
            return list(dict.fromkeys([*unopened_loops(then), *rest]))
        case _:
            return []


def opened_loops(node: loop_ast.AstNode) -> Iterator[str]:
    """Yield the loops of which isl printed C loops below *node*."""
    match node:
        case loop_ast.Mark(name=name, body=loop_ast.For(body=body)):
            yield name
            yield from opened_loops(body)
        case loop_ast.Block(children=children):
            for child in children:
                yield from opened_loops(child)
        case loop_ast.If(then=then, otherwise=otherwise):
            yield from opened_loops(then)
            if otherwise is not None:
                yield from opened_loops(otherwise)
        case loop_ast.For(body=body) | loop_ast.Mark(body=body):
            yield from opened_loops(body)


def is_loop(node: loop_ast.AstNode) -> bool:
    """Return whether the band under a mark became nothing but C loops."""
    match node:
        case loop_ast.For():
            return True
        case loop_ast.Block(children=children):
            return all(is_loop(child) for child in children)
        case loop_ast.If(then=then, otherwise=otherwise):
            return is_loop(then) and (otherwise is None or is_loop(otherwise))
        case _:
            return False


def is_without_loop(node: loop_ast.AstNode) -> bool:
    """Return whether nothing of *node*, which is under a mark, is a C loop of that mark's band."""
    match node:
        case loop_ast.For():
            return False
        case loop_ast.Block(children=children):
            return all(map(is_without_loop, children))
        case loop_ast.If(then=then, otherwise=otherwise):
            return is_without_loop(then) and (otherwise is None or is_without_loop(otherwise))
        case _:
            return True
