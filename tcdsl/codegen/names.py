"""From the program's identifiers to C's: the same name where it is safe, else a mangled one.

No text of the user's reaches C but through here: an identifier that matches ``[a-z][a-z0-9_]*`` or
is a short mixed-case one, and that is no keyword, macro or name of ours, stands as it is; any other
is rebuilt from its letters and digits with a number.
"""

import re

_SAFE = re.compile(r"[a-z][a-z0-9_]{0,39}|[A-Z][A-Za-z0-9]{0,2}")
_OURS = re.compile(r"(tc|c|g|s|p|w|omp|gomp)[_0-9].*|tc.*|[a-z0-9_]+_t")
_KEYWORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "asm",
        "typeof",
        "bool",
        "true",
        "false",
        "nullptr",
        "constexpr",
        "static_assert",
        "thread_local",
        "alignas",
        "alignof",
        "linux",
        "unix",
        "isnan",
        "isinf",
        "isfinite",
        "isnormal",
        "signbit",
        "fpclassify",
        "assert",
        "errno",
        "offsetof",
        "stdin",
        "stdout",
        "stderr",
        "min",
        "max",
        "floord",
        "fault",
        "pointers",
        "integers",
        "main",
        "y0",
        "y1",
        "j0",
        "j1",
        "__global__",
        "and",
        "or",
        "not",
        "xor",
        "bitand",
        "bitor",
        "compl",
        "new",
        "delete",
        "class",
        "template",
        "this",
        "private",
        "public",
        "namespace",
        "operator",
        "and_eq",
        "catch",
        "co_await",
        "co_return",
        "co_yield",
        "concept",
        "const_cast",
        "consteval",
        "constinit",
        "decltype",
        "dynamic_cast",
        "explicit",
        "export",
        "friend",
        "mutable",
        "noexcept",
        "not_eq",
        "or_eq",
        "protected",
        "reinterpret_cast",
        "requires",
        "static_cast",
        "throw",
        "try",
        "typeid",
        "typename",
        "typeof_unqual",
        "using",
        "virtual",
        "xor_eq",
        "half",
        "EOF",
        "NAN",
        "ULL",
        "INF",
        "NULL",
        "BSD",
    ]
)


def plain(name: str) -> str:
    """Return the first letters, digits and underscores of *name*, others as underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)[:40]


class Names:
    """Hands out C identifiers, each once."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._used: set[str] = set(_KEYWORDS)

    def of(self, kind: str, name: str) -> str:
        """Return the identifier for *name* among things of *kind*, the same at every call."""
        key = (kind, name)
        if key not in self._given:
            self._given[key] = self._fresh(name)
        return self._given[key]

    def keep(self, kind: str, name: str) -> None:
        """Let *name*, which must be safe and not yet in use, be its own identifier."""
        assert name not in self._used, f"{name} is in use"
        self._given[kind, name] = name
        self._used.add(name)

    def _fresh(self, name: str) -> str:
        is_safe = _SAFE.fullmatch(name) and not _OURS.fullmatch(name)
        if is_safe and name not in self._used:
            self._used.add(name)
            return name
        stem = re.sub(r"[^A-Za-z0-9]+", "_", name)[:40].strip("_") or "x"
        number = 0
        while (candidate := f"u{number}_{stem}") in self._used:
            number += 1
        self._used.add(candidate)
        return candidate
