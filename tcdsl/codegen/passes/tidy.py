"""Nodes without the braces that nobody needs.

    for (...) {                     for (...) {
      {                               const int c1 = threadIdx.x;
        const int c1 = ...    --->    y[c1] = x[c1];
        { y[c1] = x[c1]; }          }
      }
    }

A scope is dissolved where it declares nothing, or where its names end with its parent's and are not
its parent's own.
"""

from collections.abc import Sequence
from dataclasses import replace

from tcdsl.codegen.ast.nodes import Binary, Choice, Declare, For, If, Name, Node, Scope, Shared


def without_idle_braces(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return *nodes*, between braces of their own, without idle braces in them."""
    found: list[Node] = []
    for number, node in enumerate(nodes):
        match node:
            case Scope(body=body):
                inside = without_idle_braces(body)
                own = _declared(inside)
                is_last = number == len(nodes) - 1
                is_idle = not own or (is_last and own.isdisjoint(_declared(nodes)))
                found += inside if is_idle else [replace(node, body=inside)]
            case For(body=body):
                found.append(replace(node, body=without_idle_braces(body)))
            case If(then=then, otherwise=otherwise):
                parts = without_idle_braces(then), without_idle_braces(otherwise)
                found.append(replace(node, then=parts[0], otherwise=parts[1]))
            case _:
                found.append(node)
    return tuple(found)


def _declared(nodes: Sequence[Node]) -> set[str]:
    """Return the names that *nodes* declare themselves, outside of any scope in them.

    With the name that a declaration ends with, if it does: ``const int i = c0`` stays in braces of
    its own below c0.  Nothing needs them, but where a kernel waits (``waits.py``) goes by them.
    """
    declarations = [node for node in nodes if isinstance(node, Declare)]
    found = {v.name for node in declarations for v in node.variables}
    found |= {node.name for node in nodes if isinstance(node, Shared)}
    for node in declarations:
        last = node.variables[-1].value
        while isinstance(last, Binary | Choice):
            last = last.right if isinstance(last, Binary) else last.otherwise
        found |= {last.text} if isinstance(last, Name) else set()
    return found
