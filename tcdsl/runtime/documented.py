"""Public classes whose ``dir``, and so the completion of shells, is what docs/api.md describes.

What the compiler's own layers use of them stays reachable; it is not listed.
"""

from abc import ABCMeta
from typing import Any


class _Listed(ABCMeta):
    """The type of classes that list what is documented."""

    def __dir__(cls) -> list[str]:
        return _listed(cls, super().__dir__())


def _listed(cls: type, names: Any) -> list[str]:
    own = getattr(cls, "_documented", ())
    return sorted({*own, *(name for name in names if name.startswith("__"))})


class Documented(metaclass=_Listed):
    """A base: subclasses name their public members in ``_documented``."""

    _documented: tuple[str, ...] = ()

    def __dir__(self) -> list[str]:
        return _listed(type(self), super().__dir__())
