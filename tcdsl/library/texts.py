"""The programs' text: `.tc` files beside this module, cut into defs, and made for an element type.

A file is a valid program as it stands, in float32.  It is also a template: in the headers of its
defs ``float(...)`` stands for a tensor of the element type.  Any other ``float``, such as a host
scalar's or a cast's, stands for the type in which that element type is computed, so that in
bfloat16 a decay of 0.999 is not rounded to 1, nor a sum of squares to 8 bits.
"""

import re
from functools import cache
from importlib import resources

from tcdsl.lang.types.dtypes import BY_NAME, arithmetic
from tcdsl.records import dataclass

# Our own files keep to this form (a test compares with the parser): a def starts a line, its
# header has no brace but the one that ends it, and its body ends with a brace that starts a line.
_DEF = re.compile(
    r"^def\s+(?P<name>\w+)\s*\((?P<params>[^{}]*?)\)\s*->\s*\((?P<returns>[^{}]*?)\)\s*\{"
    r"(?P<body>.*?)^\}",
    re.MULTILINE | re.DOTALL,
)
_DECLARATION = re.compile(r"(?P<type>\w+)\s*(?:\((?P<dims>[^()]*)\))?\s+(?P<name>\w+)")


@dataclass(frozen=True, slots=True)
class Declaration:
    """``type(dims) name`` of a header; *type* is ``float`` where the element type goes."""

    name: str
    type: str
    dims: tuple[str, ...]

    def dtype_for(self, element: str) -> str:
        """Return the name of the type that this has when the element type is *element*."""
        if self.type != "float":
            return BY_NAME[self.type].name
        return element if self.dims else arithmetic(BY_NAME[element]).name


@dataclass(frozen=True, slots=True)
class DefText:
    """One def of a file: its text (with the comment above it) and its parameters."""

    name: str
    text: str
    body: str
    params: tuple[Declaration, ...]


@cache
def file_text(stem: str) -> str:
    """Return the text of ``programs/<stem>.tc``."""
    return resources.files(__package__).joinpath("programs", f"{stem}.tc").read_text("utf-8")


@cache
def defs(stem: str) -> dict[str, DefText]:
    """Return the defs of ``programs/<stem>.tc`` by name, in source order."""
    text = file_text(stem)
    return {
        match["name"]: DefText(
            match["name"],
            _comment_above(text[: match.start()]) + match[0] + "\n",
            match["body"],
            tuple(
                Declaration(found["name"], found["type"], _dims(found["dims"]))
                for found in _DECLARATION.finditer(match["params"])
            ),
        )
        for match in _DEF.finditer(text)
    }


def program_text(stem: str, name: str) -> str:
    """Return the def *name*, after the defs of its file that it calls: a program on its own."""
    known = defs(stem)
    called = [
        other.text
        for other in known.values()
        if other.name != name and re.search(rf"=\s*{other.name}\s*\(", known[name].body)
    ]
    return "\n".join([*called, known[name].text])


def with_element(text: str, element: str) -> str:
    """Return the program *text* made for the element type *element* (see the module's text)."""
    computed = arithmetic(BY_NAME[element]).name

    def written(match: re.Match[str]) -> str:
        header, body = match[0].split("{", 1)
        header = re.sub(r"\bfloat(?=\s*\()", element, header)
        return re.sub(r"\bfloat\b", computed, f"{header}{{{body}")

    return _DEF.sub(written, text)


def _comment_above(before: str) -> str:
    """Return the comment lines that end *before*, the text in front of a def."""
    lines = before.splitlines(keepends=True)
    start = len(lines)
    while start and lines[start - 1].startswith("#"):
        start -= 1
    return "".join(lines[start:])


def _dims(text: str | None) -> tuple[str, ...]:
    return tuple(dim.strip() for dim in text.split(",")) if text else ()
