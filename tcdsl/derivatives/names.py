"""Names for the tensors, indices and sizes of a derivative, none of them taken."""

from collections.abc import Iterable

from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.types.builtins import BUILTINS
from tcdsl.lang.types.dtypes import BY_NAME

_WORDS = frozenset(
    ("def", "where", "in", "exists", "size", "inf", "nan", "true", "false", "and", "or", "min",
     "max", "argmin", "argmax")
)  # fmt: skip


class Names:
    """The names that a text has so far."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {*taken, *BUILTINS, *BY_NAME, *_WORDS}

    def fresh(self, name: str) -> str:
        """Return *name*, or that with a number, and take it."""
        found, number = name, 0
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found


def names_of(c: Comprehension) -> set[str]:
    """Return the parameters, sizes and indices of *c*, which its derivative keeps."""
    indices = {index for statement in c.statements for index in statement.indices}
    return {*c.parameters, *c.sizes, *indices, c.name}
