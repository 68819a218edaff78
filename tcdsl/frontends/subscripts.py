"""Einstein notation: the subscript string of an einsum, and the shapes that it is bound to.

    "...ij,jk"        Subscripts: operands (... i j) and (j k), output (... i k)
    (5,1,3), (3,4)    BoundSubscripts: (e0 i j), (j k) -> (e0 i k), e0 = 5, i = 1, j = 3, k = 4

As in NumPy: without ``->`` the output has the ellipsis, then the labels that occur once, sorted;
the dimensions of an ellipsis are aligned at the right; an extent of 1 meets any other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from tcdsl.errors import EINSUM_SUBSCRIPTS, EXTENTS_DIFFER, RANK_DISAGREES, TCError
from tcdsl.records import dataclass
from tcdsl.source import Source, Span

ELLIPSIS = "..."
SOURCE_NAME = "<einsum>"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_TOKEN = re.compile(r"(?P<label>[A-Za-z]|\.\.\.)|(?P<comma>,)|(?P<arrow>->)|(?P<space>\s+)|.", re.S)


@dataclass(frozen=True, slots=True)
class Term:
    """The labels of one operand or of the output; an ellipsis is the label ``...``."""

    labels: tuple[str, ...]
    spans: tuple[Span, ...]
    span: Span  # of all of it; where it has no labels, of the place where they would be

    @property
    def n_labels(self) -> int:
        """The number of labels that stand for one dimension each."""
        return len(self.labels) - self.labels.count(ELLIPSIS)

    def __str__(self) -> str:
        return "".join(self.labels)


@dataclass(frozen=True, slots=True)
class Subscripts:
    """A subscript string, parsed; the output is never implicit."""

    source: Source
    operands: tuple[Term, ...]
    output: Term

    def __str__(self) -> str:
        return ",".join(map(str, self.operands)) + f"->{self.output}"


@dataclass(frozen=True, slots=True)
class BoundSubscripts:
    """Subscripts without ellipses, and the extent of every label.

    An operand's dimension whose extent is 1 where its label's is not is broadcast: its label is
    None.
    """

    operands: tuple[tuple[str | None, ...], ...]
    output: tuple[str, ...]
    extents: Mapping[str, int]


# --- parsing -------------------------------------------------------------------------------


def parse(text: str) -> Subscripts:
    """Return the operands and the output that *text* names.

    :raises ParseError: (TC018) with the position in *text*.
    """
    source = Source(text, SOURCE_NAME)
    sides = _split(source)
    if len(sides) > 2:
        raise wrong(source, sides[2][0].span, "there are two '->'", "the output comes last")
    if len(sides) == 2 and len(sides[1]) > 1:
        raise wrong(source, sides[1][1].span, "the output has a comma", "an einsum has one output")
    operands = tuple(sides[0])
    for term in operands:
        _check_ellipses(source, term)
    output = sides[1][0] if len(sides) == 2 else _implicit_output(operands)
    if len(sides) == 2:
        _check_output(source, operands, output)
    return Subscripts(source, operands, output)


def wrong(source: Source, span: Span, what: str, advice: str) -> TCError:
    return EINSUM_SUBSCRIPTS(source, span, what=what, advice=advice)


def _split(source: Source) -> list[list[Term]]:
    """Return the terms on each side of the arrows."""
    sides: list[list[Term]] = [[]]
    pending: list[tuple[str, Span]] = []
    start = 0
    for kind, text, span in _tokens(source):
        if kind == "label":
            pending.append((text, span))
            continue
        sides[-1].append(_term(pending, start))
        pending, start = [], span.end
        if kind == "arrow":
            sides.append([])
    return sides


def _tokens(source: Source) -> Iterator[tuple[str, str, Span]]:
    """Yield labels, commas and arrows, and at last an "end"."""
    for match in _TOKEN.finditer(source.text):
        span = Span(*match.span())
        if match.lastgroup is None:
            raise _bad_character(source, match[0], span)
        if match.lastgroup != "space":
            yield match.lastgroup, match[0], span
    length = len(source.text)
    yield "end", "", Span(length, length)


def _bad_character(source: Source, char: str, span: Span) -> TCError:
    if char == ".":
        return wrong(source, span, "a '.' that is not part of '...'", "an ellipsis has three dots")
    if char in "-=>":
        return wrong(source, span, f"{char!r} is not part of '->'", "the output follows '->'")
    what = f"the character {char!r} cannot be a subscript"
    return wrong(source, span, what, "a subscript is one of the letters a-z and A-Z, or '...'")


def _term(parts: Sequence[tuple[str, Span]], start: int) -> Term:
    spans = tuple(span for _, span in parts)
    whole = spans[0].to(spans[-1]) if spans else Span(start, start)
    return Term(tuple(label for label, _ in parts), spans, whole)


def _check_ellipses(source: Source, term: Term) -> None:
    positions = [i for i, label in enumerate(term.labels) if label == ELLIPSIS]
    if len(positions) > 1:
        what = "two '...' in one operand"
        raise wrong(source, term.spans[positions[1]], what, "one stands for any number of them")


def _implicit_output(operands: Sequence[Term]) -> Term:
    """Return the ellipsis, if there is one, and then the labels that occur once, sorted."""
    every = [label for term in operands for label in term.labels]
    once = sorted(label for label in set(every) - {ELLIPSIS} if every.count(label) == 1)
    labels = (*((ELLIPSIS,) if ELLIPSIS in every else ()), *once)
    return Term(labels, (Span(0, 0),) * len(labels), Span(0, 0))


def _check_output(source: Source, operands: Sequence[Term], output: Term) -> None:
    known = {label for term in operands for label in term.labels}
    for position, (label, span) in enumerate(zip(output.labels, output.spans, strict=True)):
        if label in output.labels[:position]:
            advice = "an einsum cannot write a diagonal: a label has one place in the output"
            raise wrong(source, span, f"the output has {label!r} twice", advice)
        # NumPy, too, lets the output's ellipsis stand for no dimensions.
        if label not in known and label != ELLIPSIS:
            what = f"the output's {label!r} is a subscript of no operand"
            raise wrong(source, span, what, f"the operands have {', '.join(sorted(known))}")


# --- binding to shapes -----------------------------------------------------------------------


def bind(subscripts: Subscripts, shapes: Sequence[tuple[int, ...]]) -> BoundSubscripts:
    """Return *subscripts* for operands of *shapes*, one for each operand.

    :raises ShapeError: a rank does not fit, or two extents of a label differ and neither is 1.
    """
    terms = [_expanded(subscripts, k, shape) for k, shape in enumerate(shapes)]
    depth = max((_ellipsis_rank(labels) for labels in terms), default=0)
    operands = [tuple(_aligned(label, depth) for label in labels) for labels in terms]
    extents = _extents(subscripts, operands, shapes)
    output = tuple(_output_labels(subscripts, depth))
    kept = (
        tuple(
            None if extent != extents[label] else label
            for label, extent in zip(labels, shape, strict=True)
        )
        for labels, shape in zip(operands, shapes, strict=True)
    )
    return BoundSubscripts(tuple(kept), output, extents)


def _expanded(subscripts: Subscripts, position: int, shape: tuple[int, ...]) -> list[str | int]:
    """Return a label a dimension; those of an ellipsis are numbered from the right, from 1."""
    term = subscripts.operands[position]
    missing = len(shape) - term.n_labels
    if missing < 0 or (missing and ELLIPSIS not in term.labels):
        raise RANK_DISAGREES(
            subscripts.source, term.span, tensor=f"operand {position}", declared=term.n_labels,
            s="" if term.n_labels == 1 else "s", got=len(shape), shape=shape,
            hint="write one subscript for each dimension, or '...' for the others",
        )  # fmt: skip
    labels: list[str | int] = []
    for label in term.labels:
        labels += range(missing, 0, -1) if label == ELLIPSIS else (label,)
    return labels


def _ellipsis_rank(labels: Sequence[str | int]) -> int:
    return max((label for label in labels if isinstance(label, int)), default=0)


def _aligned(label: str | int, depth: int) -> str:
    """Return the name of a dimension: of an ellipsis of *depth*, ``e0`` is the leftmost."""
    return f"e{depth - label}" if isinstance(label, int) else label


def _output_labels(subscripts: Subscripts, depth: int) -> Iterator[str]:
    output = subscripts.output
    if depth and ELLIPSIS not in output.labels:
        s = "" if depth == 1 else "s"
        raise wrong(
            subscripts.source, output.span,
            f"the output has no '...', but that of the operands is {depth} dimension{s}",
            "write '...' in the output: only labels can be summed over",
        )  # fmt: skip
    for label in output.labels:
        yield from (f"e{k}" for k in range(depth)) if label == ELLIPSIS else (label,)


def _extents(
    subscripts: Subscripts,
    operands: Sequence[tuple[str, ...]],
    shapes: Sequence[tuple[int, ...]],
) -> dict[str, int]:
    """Return the extent of every label, 1 giving way to any other."""
    seen: dict[str, tuple[int, int]] = {}
    for position, (labels, shape) in enumerate(zip(operands, shapes, strict=True)):
        own: dict[str, int] = {}
        for dim, (label, extent) in enumerate(zip(labels, shape, strict=True)):
            other, where = seen.get(label, (extent, position))
            # A label that an operand has twice is its diagonal, along which nothing is repeated.
            if own.setdefault(label, extent) != extent:
                raise _differ(subscripts, label, position, dim, (own[label], extent), position)
            if extent != other and 1 not in (extent, other):
                raise _differ(subscripts, label, position, dim, (other, extent), where)
            seen[label] = (other, where) if extent == 1 else (extent, position)
    return {label: extent for label, (extent, _) in seen.items()}


def _differ(
    subscripts: Subscripts, label: str, position: int, dim: int, extents: tuple[int, int],
    other_position: int,
) -> TCError:  # fmt: skip
    term = subscripts.operands[position]
    shown = label if label in term.labels else ELLIPSIS
    # The place of an ellipsis is the same for all its dimensions; a label may come after it.
    places = [i for i, written in enumerate(term.labels) if written == shown]
    is_second = other_position == position and len(places) > 1
    span = term.spans[places[-1 if is_second else 0]]
    where = f" (dimension {dim} of operand {position}, and operand {other_position})"
    return EXTENTS_DIFFER(
        subscripts.source, span, what=f"the extents of {shown!r}", where=where,
        one=extents[0], other=extents[1],
        hint="a subscript has one extent; only in another operand may it be 1 instead",
    )  # fmt: skip


# --- operands and sublists -------------------------------------------------------------------


def from_sublists(args: Sequence[object]) -> tuple[str, list[object]]:
    """Return the subscript string and the operands of ``(A, [0, 1], B, [1, 2][, [0, 2]])``."""
    n_operands = len(args) // 2
    terms = [_sublist(args[2 * k + 1], k) for k in range(n_operands)]
    text = ",".join(terms)
    if len(args) % 2:
        text += "->" + _sublist(args[-1], None)
    return text, [args[2 * k] for k in range(n_operands)]


def _sublist(sublist: object, position: int | None) -> str:
    what = "the output's sublist" if position is None else f"the sublist of operand {position}"
    advice = "give a list of numbers from 0 to 51, or Ellipsis, behind each operand"
    if not isinstance(sublist, list | tuple):
        found = f"{what} is of type {type(sublist).__name__}"
        raise EINSUM_SUBSCRIPTS(what=found, advice=advice)
    return "".join(_letter(label, what, advice) for label in sublist)


def _letter(label: object, what: str, advice: str) -> str:
    """Return the letter that NumPy gives the number *label*: their order is the same."""
    if label is Ellipsis:
        return ELLIPSIS
    index = getattr(label, "__index__", None)
    number = index() if index is not None and not isinstance(label, bool) else -1
    if not 0 <= number < len(LETTERS):
        raise EINSUM_SUBSCRIPTS(what=f"{what} holds {label!r}", advice=advice)
    return LETTERS[number]
