"""Source text and positions in it: what every error, and every node of a program, points at."""

import re
from bisect import bisect_right
from dataclasses import field

from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range of characters ``[start, end)`` of a source text."""

    start: int
    end: int

    def to(self, other: "Span") -> "Span":
        """Return the smallest span that covers both."""
        return Span(min(self.start, other.start), max(self.end, other.end))


NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True)
class Source:
    """A program's text under the name by which errors call it."""

    text: str
    name: str = "<tc>"
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0, *(match.end() for match in re.finditer("\n", self.text))]
        object.__setattr__(self, "_line_starts", tuple(starts))

    def position(self, offset: int) -> tuple[int, int]:
        """Return the (line, column) of the character at *offset*, both counted from 1."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        """Return the text of *line* (counted from 1) without its line break."""
        start = self._line_starts[line - 1]
        end = self._line_starts[line] if line < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def excerpt(self, span: Span) -> str:
        """Return the line where *span* starts, and carets under the part that it covers.

        Of a long line only what is around the start of *span*.
        """
        line, column = self.position(span.start)
        text, column = _window(self.line_text(line), column)
        width = max(1, min(span.end - span.start, len(text) - column + 1))
        # A tab keeps its width, so that the carets stay under what they mark.
        indent = "".join("\t" if char == "\t" else " " for char in text[: column - 1])
        return f"{text}\n{indent}{'^' * width}"


_LONGEST_LINE = 160  # characters of an excerpt


def _window(text: str, column: int) -> tuple[str, int]:
    """Return what is around *column* of *text*, if it is long, and the column there."""
    if len(text) <= _LONGEST_LINE:
        return text, column
    first = max(0, min(column - 1 - _LONGEST_LINE // 2, len(text) - _LONGEST_LINE))
    return text[first : first + _LONGEST_LINE], column - first
