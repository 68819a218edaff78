"""Names that nothing has yet."""

from collections.abc import Container


def fresh_name(name: str, taken: Container[str]) -> str:
    """Return *name*, or *name* with as many ``_`` behind it as none of *taken* has."""
    while name in taken:
        name += "_"
    return name
