"""Lines of generated text that know which statement they print."""

from collections.abc import Iterable, Iterator


class Line(str):
    """A line, and the statement of the scop that it prints."""

    __slots__ = ("statement",)
    statement: str

    def __new__(cls, text: str, statement: str) -> "Line":
        line = super().__new__(cls, text)
        line.statement = statement
        return line


def statement_of(line: str) -> str:
    """Return the statement that *line* prints; "" for what belongs to several, or to none."""
    return line.statement if isinstance(line, Line) else ""


def like(line: str, text: str) -> str:
    """Return *text*, which is *line* in another place."""
    return Line(text, line.statement) if isinstance(line, Line) else text


def statements_of_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the statement of each line of *lines* as a text; an item may hold several."""
    for line in lines:
        yield from [statement_of(line)] * (line.count("\n") + 1)
