"""What nodes are made of: their parts, and the names, functions and types in them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tcdsl.codegen.ast.nodes import (
    Assign,
    Binary,
    Call,
    Cast,
    Choice,
    Code,
    Declare,
    Evaluate,
    For,
    If,
    Index,
    Literal,
    Member,
    Name,
    Node,
    Paren,
    Scope,
    Shared,
    Type,
    Unary,
    Vector,
)


def pieces(code: Code | Type) -> Sequence["str | Code | Type"]:
    """Return what *code* is written as: text and operands in order."""
    match code:
        case Literal(text) | Name(text):
            return (text,)
        case Binary(op, left, right):
            return left, f" {op} ", right
        case Index(array, index):
            return array, "[", index, "]"
        case Paren(inner):
            return "(", inner, ")"
        case Call(function, arguments, template):
            return function, *_template(template), "(", *_listed(arguments), ")"
        case Cast(type_, operand):
            return "(", type_, ")", operand
        case Choice(condition, then, otherwise):
            return condition, " ? ", then, " : ", otherwise
        case Unary(op, operand):
            return op, operand
        case Member(structure, field):
            return structure, f".{field}"
        case Vector(type_, values):
            return type_, "{{", *_listed(values), "}}"
        case Type(name, arguments):
            return name, *_template(arguments)


def _template(arguments: Sequence[Type]) -> "Sequence[str | Code | Type]":
    return ("<", *_listed(arguments), ">") if arguments else ()


def _listed(items: Sequence[Code | Type]) -> "list[str | Code | Type]":
    return [part for item in items for part in (", ", item)][1:]


def walk(code: Code | Type) -> Iterator[Code | Type]:
    """Yield *code* and all that it is made of.  Iterates: expressions may be deep."""
    stack = [code]
    while stack:
        found = stack.pop()
        yield found
        if not isinstance(found, Name | Literal):
            stack.extend(piece for piece in pieces(found) if not isinstance(piece, str))


def names(*codes: Code) -> frozenset[str]:
    """Return the variables, arrays and parameters in *codes*."""
    return frozenset(n.text for code in codes for n in walk(code) if isinstance(n, Name))


def expressions(node: Node) -> Iterator[Code | Type]:
    """Yield the types and expressions of *node* itself, not of the nodes in it."""
    match node:
        case Declare(type=type_, variables=variables):
            yield type_
            yield from (v.value for v in variables if v.value is not None)
        case Shared(type=type_):
            yield type_
        case Assign(target=target, value=value):
            yield from (target, value)
        case Evaluate(code=code):
            yield code
        case If(condition=condition):
            yield condition
        case For(type=type_, first=first, condition=condition, step=step):
            yield from (type_, first, condition)
            if step is not None:
                yield step


def inner(node: Node) -> tuple[Node, ...]:
    """Return the nodes in *node*."""
    match node:
        case If(then=then, otherwise=otherwise):
            return (*then, *otherwise)
        case For(body=body) | Scope(body=body):
            return body
        case _:
            return ()


def walk_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield *nodes* and all nodes in them, in order."""
    for node in nodes:
        yield node
        yield from walk_nodes(inner(node))


def mentioned(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the variables, arrays and parameters in *nodes*, but for those that they declare."""
    every = (code for node in walk_nodes(nodes) for code in expressions(node))
    return frozenset(n.text for code in every for n in walk(code) if isinstance(n, Name))


def library_names(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the functions, types and operators in *nodes*."""
    every = (part for n in walk_nodes(nodes) for code in expressions(n) for part in walk(code))
    return frozenset(
        part.function if isinstance(part, Call) else part.name
        for part in every
        if isinstance(part, Call | Type)
    )


def of_statement(nodes: Iterable[Node], statement: str) -> list[Node]:
    """Return *nodes* and the nodes in them as those of *statement*."""
    return [_of_statement(node, statement) for node in nodes]


def _of_statement(node: Node, statement: str) -> Node:
    match node:
        case If(then=then, otherwise=otherwise):
            parts = (tuple(of_statement(part, statement)) for part in (then, otherwise))
            then, otherwise = parts
            return replace(node, then=then, otherwise=otherwise, statement=statement)
        case For(body=body) | Scope(body=body):
            return replace(node, body=tuple(of_statement(body, statement)), statement=statement)
        case _:
            return replace(node, statement=statement)
