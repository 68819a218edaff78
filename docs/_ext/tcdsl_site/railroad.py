"""Railroad diagrams of grammar rules, as SVG.

    o--+--[ x ]--+--o        a choice: one track for each part
       +--[ y ]--+

Every part is a box of its own width with a track through it at a height of its own; what lies above
and below that track is known before anything is drawn, so each part is laid out once.  Colours come
from the page (CSS classes), so that the same picture serves a light and a dark theme.
"""

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from tcdsl_site.syntax import (
    NOTHING,
    Choice,
    Class,
    Literal,
    Name,
    Optional,
    Repeat,
    Sequence,
    Syntax,
)

CHARACTER, BOX, GAP, TURN = 8.0, 24.0, 10.0, 8.0  # px: letters, boxes, between tracks, curves
Paint = Callable[[float, float], str]


@dataclass(frozen=True, slots=True)
class Picture:
    """A part; *paint* (x, y) draws it: its track enters at (x, y) and leaves at (x + width, y)."""

    width: float
    above: float
    below: float
    paint: Paint


def diagram(
    body: Syntax, label: str = "", *, link: Callable[[str], str] = "#rule-{}".format
) -> str:
    """Return the SVG of *body*; names become links to ``link(name)``.

    :arg label: what a screen reader says instead of the drawing.
    """
    inner = _drawn(body, link)
    x, y = 14.0, inner.above + 6
    width, height = inner.width + 2 * x, y + inner.below + 6
    ends = "".join(
        f'<path class="tc-end" d="M{at:g} {y - 6:g}v12m4 -12v12"/>' for at in (4, width - 8)
    )
    tracks = _line(8, y, x) + _line(x + inner.width, y, width - 8)
    return (
        f'<svg class="tc-railroad" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">'
        f"{ends}{tracks}{inner.paint(x, y)}</svg>"
    )


def _drawn(body: Syntax, link: Callable[[str], str]) -> Picture:
    match body:
        case Literal(text):
            return _box(text, "tc-literal")
        case Class(text):
            return _box(text, "tc-class")
        case Name(text):
            return _box(text, "tc-name", link(text))
        case Sequence(()):
            return Picture(TURN, 0, 0, lambda x, y: _line(x, y, x + TURN))
        case Sequence(parts):
            return _sequence([_drawn(part, link) for part in parts])
        case Choice(parts):
            return _choice([_drawn(part, link) for part in parts])
        case Optional(part):
            return _choice([_drawn(NOTHING, link), _drawn(part, link)])
        case Repeat(part, separator):
            return _repeat(_drawn(part, link), _drawn(separator, link))


def _box(text: str, kind: str, target: str = "") -> Picture:
    width = CHARACTER * len(text) + 18

    def paint(x: float, y: float) -> str:
        radius = 4 if kind == "tc-name" else BOX / 2
        picture = (
            f'<g class="{kind}"><rect x="{x:g}" y="{y - BOX / 2:g}" width="{width:g}" '
            f'height="{BOX:g}" rx="{radius:g}"/>'
            f'<text x="{x + width / 2:g}" y="{y + 4.5:g}">{escape(text)}</text></g>'
        )
        return f'<a href="{escape(target)}">{picture}</a>' if target else picture

    return Picture(width, BOX / 2, BOX / 2, paint)


def _sequence(parts: Items[Picture]) -> Picture:
    width = sum(part.width for part in parts) + GAP * (len(parts) - 1)

    def paint(x: float, y: float) -> str:
        result = []
        for number, part in enumerate(parts):
            if number:
                result.append(_line(x, y, x + GAP))
                x += GAP
            result.append(part.paint(x, y))
            x += part.width
        return "".join(result)

    above, below = max(part.above for part in parts), max(part.below for part in parts)
    return Picture(width, above, below, paint)


def _choice(parts: Items[Picture]) -> Picture:
    """The first part on the track, the others below it."""
    inner = max(part.width for part in parts)
    offsets = [0.0]
    for upper, lower in pairwise(parts):
        offsets.append(offsets[-1] + max(upper.below + lower.above + GAP, 2 * TURN))
    side = 2 * TURN

    def paint(x: float, y: float) -> str:
        left, right = x + side, x + side + inner
        result = [_line(x, y, left)]
        for part, offset in zip(parts, offsets, strict=True):
            height = y + offset
            result.append(part.paint(left, height))
            result.append(_line(left + part.width, height, right))
            if offset:
                result.append(_branch(x, y, left, height) + _branch(right + side, y, right, height))
        return "".join([*result, _line(right, y, right + side)])

    return Picture(inner + 2 * side, parts[0].above, offsets[-1] + parts[-1].below, paint)


def _repeat(part: Picture, separator: Picture) -> Picture:
    """The part on the track, the way back below it, through the separator."""
    inner, side = max(part.width, separator.width), 2 * TURN
    drop = max(part.below + separator.above + GAP, 2 * TURN)

    def paint(x: float, y: float) -> str:
        left, right, below = x + side, x + side + inner, y + drop
        middle = left + (inner - separator.width) / 2
        return "".join([
            _line(x, y, left),
            part.paint(left, y),
            _line(left + part.width, y, right + side),
            separator.paint(middle, below),
            _line(left, below, middle),
            _line(middle + separator.width, below, right),
            _half(left, y, below, -1),
            _half(right, y, below, 1),
        ])  # fmt: skip

    return Picture(inner + 2 * side, part.above, drop + separator.below, paint)


# --- tracks ----------------------------------------------------------------------------------


def _line(x: float, y: float, to: float) -> str:
    return f'<path class="tc-track" d="M{x:g} {y:g}H{to:g}"/>' if to > x else ""


def _branch(x: float, y: float, to_x: float, to_y: float) -> str:
    """A track that turns off at (x, y), goes down, and turns to (to_x, to_y)."""
    way = TURN if to_x > x else -TURN
    return (
        f'<path class="tc-track" d="M{x:g} {y:g}q{way:g} 0 {way:g} {TURN:g}'
        f'V{to_y - TURN:g}q0 {TURN:g} {way:g} {TURN:g}"/>'
    )


def _half(x: float, y: float, to_y: float, way: int) -> str:
    """A track that turns around, from (x, y) to (x, to_y), outwards (*way* 1: to the right)."""
    out = way * TURN
    return (
        f'<path class="tc-track" d="M{x:g} {y:g}q{out:g} 0 {out:g} {TURN:g}'
        f'V{to_y - TURN:g}q0 {TURN:g} {-out:g} {TURN:g}"/>'
    )
