r"""What a terminal's regular expression matches, as syntax.

    /(min|max)\b/   --->   "min" | "max"

Looking ahead (``\b``, ``(?=...)``, ``(?!...)``) says where a word ends, not what it is made of: it
is left out.  What the grammar does not use (back references, counts) is refused.
"""

from tcdsl_site.syntax import Class, Literal, Syntax, choice, repeated, sequence

_CLASS_ESCAPES = "dwsDWS"


def syntax_of(pattern: str, *, verbose: bool = False) -> Syntax:
    """Return what *pattern* matches; *verbose* is the flag ``x``.

    :raises ValueError: the pattern uses something that no terminal of the grammar does.
    """
    reader = _Reader(pattern, verbose)
    result = reader.alternatives()
    if reader.rest():
        raise ValueError(f"{pattern!r} has an unexpected {reader.rest()!r}")
    return result


class _Reader:
    def __init__(self, pattern: str, verbose: bool) -> None:
        self._text, self._at, self._verbose = pattern, 0, verbose

    def rest(self) -> str:
        while self._verbose and self._text[self._at : self._at + 1].isspace():
            self._at += 1
        return self._text[self._at :]

    def take(self, expected: str) -> bool:
        """Go past *expected*, if that comes next."""
        if not self.rest().startswith(expected):
            return False
        self._at += len(expected)
        return True

    def alternatives(self) -> Syntax:
        parts = [self.concatenation()]
        while self.take("|"):
            parts.append(self.concatenation())
        return choice(parts)

    def concatenation(self) -> Syntax:
        parts: list[Syntax] = []
        while (rest := self.rest()) and rest[0] not in "|)":
            part = self.repetition()
            if part is None:
                continue
            if isinstance(part, Literal) and parts and isinstance(parts[-1], Literal):
                part = Literal(parts.pop().text + part.text)  # type: ignore[union-attr]
            parts.append(part)
        return sequence(parts)

    def repetition(self) -> Syntax | None:
        part = self.atom()
        while (rest := self.rest()) and rest[0] in "?*+":
            self.take(rest[0])
            self.take("+")  # possessive: the same text, found without going back
            part = None if part is None else repeated(part, rest[0])
        return part

    def atom(self) -> Syntax | None:
        if self.take("(?=") or self.take("(?!"):
            self._group()
            return None
        if self.take("("):
            return self._group()
        if self.take("["):
            start = self._at
            self._at = self._text.index("]", start + 1) + 1
            return Class(f"[{self._text[start : self._at - 1]}]")
        char = self.rest()[0]
        self._at += 1
        if char != "\\":
            return Class("any character") if char == "." else Literal(char)
        escaped = self._text[self._at]
        self._at += 1
        if escaped == "b":
            return None
        return Class(f"\\{escaped}") if escaped in _CLASS_ESCAPES else Literal(escaped)

    def _group(self) -> Syntax:
        inner = self.alternatives()
        if not self.take(")"):
            raise ValueError(f"{self._text!r} has a group without end")
        return inner
