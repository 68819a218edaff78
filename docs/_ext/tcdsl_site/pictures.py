"""Pictures in the page's own colours: statements and what they touch, loops as nested boxes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

ROW, LETTER = 30.0, 7.9  # px: between statements, a letter of the names


@dataclass(frozen=True, slots=True)
class Touching:
    """A statement, its text, and what it does to each tensor: "reads", "writes" or "updates"."""

    name: str
    text: str
    tensors: Mapping[str, str]


@dataclass(slots=True)
class Loop:
    """A loop, a statement or a kernel of a printed schedule, with what is inside it."""

    kind: str
    text: str
    trips: str
    inner: list["Loop"] = field(default_factory=list)


def touched(statements: Sequence[Touching]) -> str:
    """Return a row for each statement and a column for each tensor, with a mark where they meet.

    Marks of one column are joined: what stands above must come before what stands below.
    """
    names = list(dict.fromkeys(name for s in statements for name in s.tensors))
    labels = [f"{s.name:<{max(len(s.name) for s in statements)}}  {s.text}" for s in statements]
    left = 24 + LETTER * max(map(len, labels))
    columns, x = {}, left
    for name in names:
        columns[name] = x + LETTER * len(name) / 2
        x += LETTER * len(name) + 26
    heights = [46 + ROW * n for n in range(len(statements))]
    parts = [
        f'<text class="tc-label" text-anchor="middle" x="{at:g}" y="18">{escape(name)}</text>'
        for name, at in columns.items()
    ]
    for name, at in columns.items():
        rows = [y for s, y in zip(statements, heights, strict=True) if name in s.tensors]
        parts += [f'<path d="M{at:g} {a + 7:g}V{b - 9:g}"/>' for a, b in pairwise(rows)]
    for statement, label, y in zip(statements, labels, heights, strict=True):
        parts.append(f'<text x="8" y="{y + 4.5:g}">{escape(label)}</text>')
        parts += [_mark(kind, columns[name], y) for name, kind in statement.tensors.items()]
    height = heights[-1] + 22
    told = "; ".join(f"{s.name} {_told(s)}" for s in statements)
    return (
        f'<svg class="tc-touched" viewBox="0 0 {x:g} {height:g}" width="{x:g}" height="{height:g}" '
        f'role="img" aria-label="{escape(told)}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _told(statement: Touching) -> str:
    """Return what a statement does, in words."""
    return ", ".join(f"{kind} {name}" for name, kind in statement.tensors.items())


def _mark(kind: str, x: float, y: float) -> str:
    """A disc where a statement writes, a ring where it reads, and a ring around for an update."""
    inner = f'<circle class="tc-{kind}" cx="{x:g}" cy="{y:g}" r="4.5"/>'
    around = f'<circle class="tc-again" cx="{x:g}" cy="{y:g}" r="8"/>' if kind == "updates" else ""
    return inner + around


def nested_boxes(loops: Iterable[Loop]) -> str:
    """Return *loops* as boxes in boxes, coloured by who runs their iterations."""
    return f'<div class="tc-loops">{"".join(map(_box, loops))}</div>'


def _box(loop: Loop) -> str:
    if loop.kind == "statement":
        return f'<code class="tc-statement">{escape(loop.text)}</code>'
    kind = loop.kind.split(".")[0].split("[")[0]
    trips = f" <small>{loop.trips} iterations</small>" if loop.trips not in ("", "0") else ""
    head = escape(loop.text.removeprefix("kernel "))
    inner = "".join(map(_box, loop.inner))
    return (
        f'<div class="tc-loop tc-{kind}"><div class="tc-loop-head"><b>{escape(loop.kind)}</b> '
        f"<code>{head}</code>{trips}</div>{inner}</div>"
    )
