"""Expressions of a grammar, whatever it was written in: what EBNF and diagrams are made from."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """Text that stands for itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Class:
    """One character of a set, as in ``[A-Za-z_]``."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """Another rule."""

    text: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other; without parts: nothing."""

    parts: tuple["Syntax", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts."""

    parts: tuple["Syntax", ...]


@dataclass(frozen=True, slots=True)
class Optional:
    """The part, or nothing."""

    part: "Syntax"


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part once or more often, with the separator (which may be nothing) in between."""

    part: "Syntax"
    separator: "Syntax"


Syntax: TypeAlias = Literal | Class | Name | Sequence | Choice | Optional | Repeat

NOTHING = Sequence(())


def sequence(parts: Iterable[Syntax]) -> Syntax:
    """Return the *parts* in order; ``x { s x }`` becomes one repetition with a separator."""
    result: list[Syntax] = []
    for part in parts:
        match part:
            case Sequence(inner):
                result += inner
            case Optional(Repeat(Sequence((*separator, item)), Sequence(()))) if (
                result and result[-1] == item and separator
            ):
                result[-1] = Repeat(item, sequence(separator))
            case _:
                result.append(part)
    return result[0] if len(result) == 1 else Sequence(tuple(result))


def choice(parts: Iterable[Syntax]) -> Syntax:
    """Return the choice of *parts*; an empty one makes the others optional."""
    distinct = list(dict.fromkeys(parts))
    if NOTHING in distinct:
        distinct.remove(NOTHING)
        return optional(choice(distinct)) if distinct else NOTHING
    return distinct[0] if len(distinct) == 1 else Choice(tuple(distinct))


def optional(part: Syntax) -> Syntax:
    """Return *part* or nothing."""
    return part if isinstance(part, Optional) or part == NOTHING else Optional(part)


def repeated(part: Syntax, operator: str) -> Syntax:
    """Return *part* under a postfix *operator*: ``?``, ``*`` or ``+``."""
    match operator:
        case "?":
            return optional(part)
        case "*":
            return optional(Repeat(part, NOTHING))
        case "+":
            return Repeat(part, NOTHING)
        case _:
            raise ValueError(f"the repetition {operator!r} is not known")


def without_left_recursion(name: str, body: Syntax) -> Syntax:
    """Return the *body* of rule *name* with ``a = b | a "+" b`` written as ``b { "+" b }``."""
    if not isinstance(body, Choice) or len(body.parts) != 2:
        return body
    match body.parts:
        case (first, Sequence((Name(left), *operator, last))) if left == name and last == first:
            return Repeat(first, sequence(operator))
    return body
