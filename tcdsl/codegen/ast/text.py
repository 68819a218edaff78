"""Nodes as text: the last step, which nothing reads."""

from collections.abc import Iterable, Iterator

from tcdsl.codegen.ast.nodes import (
    Assign,
    Code,
    Comment,
    Declare,
    Evaluate,
    For,
    If,
    Name,
    Node,
    Scope,
    Shared,
    Type,
    Variable,
)
from tcdsl.codegen.ast.walk import pieces
from tcdsl.records import dataclass

_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, and the statement of the scop that it prints, "" for several or none."""

    text: str
    statement: str = ""


def text(code: Code | Type) -> str:
    """Return *code* as text.  Iterates: expressions may be deep."""
    if isinstance(code, Name):
        return code.text
    found: list[str] = []
    stack: list[str | Code | Type] = [code]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            found.append(piece)
        else:
            stack.extend(reversed(pieces(piece)))
    return "".join(found)


def head(node: If | For) -> str:
    """Return what stands before the braces of *node*."""
    if isinstance(node, If):
        return f"if ({text(node.condition)})"
    first = f"{text(node.type)} {node.variable} = {text(node.first)}"
    step = f"{node.variable}++" if node.step is None else f"{node.variable} += {text(node.step)}"
    return f"for ({first}; {text(node.condition)}; {step})"


def lines(nodes: Iterable[Node], depth: int = 0) -> Iterator[Line]:
    """Yield the lines of *nodes*, indented by *depth*."""
    pad = _INDENT * depth
    for node in nodes:
        match node:
            case Scope(body=body):
                yield Line(f"{pad}{{", node.statement)
                yield from lines(body, depth + 1)
                yield Line(f"{pad}}}", node.statement)
            case If():
                yield from _if(node, depth)
            case For():
                yield from _for(node, depth)
            case _:
                yield Line(pad + _simple(node), node.statement)


def _if(node: If, depth: int) -> Iterator[Line]:
    pad = _INDENT * depth
    if node.comment:
        yield Line(f"{pad}// {node.comment}", node.statement)
    if node.is_short:
        yield from _short(node, node.then, depth)
        return
    yield Line(f"{pad}{head(node)} {{", node.statement)
    yield from lines(node.then, depth + 1)
    if node.otherwise:
        yield Line(f"{pad}}} else {{", node.statement)
        yield from lines(node.otherwise, depth + 1)
    yield Line(f"{pad}}}", node.statement)


def _for(node: For, depth: int) -> Iterator[Line]:
    pad = _INDENT * depth
    if node.pragma:
        yield Line(f"{pad}{node.pragma}", node.statement)
    if node.is_short:
        yield from _short(node, node.body, depth)
        return
    yield Line(f"{pad}{head(node)} {{", node.statement)
    yield from lines(node.body, depth + 1)
    yield Line(f"{pad}}}", node.statement)


def _short(node: If | For, body: tuple[Node, ...], depth: int) -> Iterator[Line]:
    """Yield *node* without braces: in one line, but for a guard in a loop."""
    pad = _INDENT * depth
    (own,) = body
    if isinstance(node, For) and isinstance(own, If):
        yield Line(pad + head(node), node.statement)
        inner = Line(_INDENT * (depth + 1) + head(own), own.statement)
        yield from (inner, *lines(own.then, depth + 2))
    else:
        (line,) = lines(body)
        yield Line(f"{pad}{head(node)} {line.text}", node.statement)


def _simple(node: Declare | Shared | Assign | Evaluate | Comment) -> str:
    match node:
        case Declare(type=type_, variables=variables, before=before, after=after):
            return f"{before}{text(type_)} {', '.join(map(_variable, variables))}{after};"
        case Shared():
            return _shared(node)
        case Assign(target=target, value=value):
            return f"{text(target)} = {text(value)};"
        case Evaluate(code=code):
            return f"{text(code)};"
        case Comment(text=comment):
            return f"// {comment}"


def _shared(node: Shared) -> str:
    """Return the declaration, whose macros are CUDA's and the emulator's own (device/cuda/core)."""
    if node.size == "":
        return f"extern __shared__ TC_DYNAMIC({text(node.type)}, {node.name}, {node.alignment});"
    size = "" if node.size is None else f"[{node.size}]"
    return f"__shared__ TC_VARIABLE({text(node.type)}, {node.name}, {size}, {node.alignment});"


def _variable(variable: Variable) -> str:
    size = "" if variable.size is None else f"[{variable.size}]"
    value = "" if variable.value is None else f" = {text(variable.value)}"
    return f"{variable.pointer}{variable.name}{size}{value}"
