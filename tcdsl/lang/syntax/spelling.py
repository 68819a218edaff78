"""Hints for names that are nearly right."""

import difflib
from collections.abc import Iterable


def close_match(name: str, known: Iterable[str]) -> str | None:
    """Return the name of *known* that *name* may be a misspelling of, if there is one."""
    found = difflib.get_close_matches(name, sorted(set(known) - {name}), n=1, cutoff=0.65)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return the hint that names the close match of *name*, if there is one."""
    close = close_match(name, known)
    return None if close is None else f"did you mean {close!r}?"


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """Return *known*, those that are most like *name* first."""

    def unlike(other: str) -> float:
        return -difflib.SequenceMatcher(None, other, name).ratio()

    return sorted(sorted(known), key=unlike)


def other_case(name: str, known: Iterable[str]) -> str | None:
    """Return the hint that names one of *known* that differs from *name* in its case alone.

    Not where *name* may be an index and *known* sizes: ``k`` in ``[0, K)`` is no mistake.
    """
    same = [one for one in sorted(known) if one.lower() == name.lower() and one != name]
    return f"did you mean {same[0]!r}?" if same else None
