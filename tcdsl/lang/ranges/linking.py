"""What inlined calls leave for range inference to settle: it depends on inferred boxes.

A call ``Q = norm(T)`` of ``def norm(float(N) A) -> ...`` makes *N* the extent of *T*.  If *T* is a
temporary, that extent is not known before the ranges are; the inlined statements then use a size
placeholder, which :class:`Derived` defines, and which range inference replaces.
"""

from collections.abc import Mapping
from dataclasses import field

from tcdsl.lang.comprehension import Expr
from tcdsl.records import dataclass
from tcdsl.source import Span


@dataclass(frozen=True, slots=True)
class Derived:
    """A placeholder's value: the extent, or the origin, of a dimension of a tensor's box.

    The box is the hull of the writes before the statement that mentions the placeholder first.
    """

    tensor: str
    position: int
    is_origin: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two extents that a def's parameters declare to be equal; *what* names them."""

    what: str
    one: Expr
    other: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Linking:
    """Placeholders by name, agreements, and extents that an inlined def declares for results."""

    derived: Mapping[str, Derived] = field(default_factory=dict)
    agreements: tuple[Agreement, ...] = ()
    declared: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)


NOTHING = Linking()
