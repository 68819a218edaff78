"""Public classes and modules of which ``dir`` shows what is documented, and nothing else."""

from abc import ABCMeta
from collections.abc import Mapping
from typing import Any


class Documented(ABCMeta):
    """The type of classes, also abstract ones, that name their public members in ``_documented``.

    It is a metaclass, for ``dir`` of the class itself is to be short too.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], members: Mapping[str, Any]) -> type:
        return super().__new__(cls, name, bases, {"__dir__": documented_names, **members})

    def __dir__(cls) -> list[str]:
        return _listed(cls, super().__dir__())


def documented_names(self: object) -> list[str]:
    """Return what ``dir`` shows of an instance."""
    return _listed(type(self), object.__dir__(self))


def names_of_module(members: Mapping[str, Any]) -> list[str]:
    """Return what ``dir`` shows of the module that has *members*: what docs/api.md describes."""
    return sorted({*members["__all__"], *(name for name in members if name.startswith("__"))})


def _listed(cls: type, names: Any) -> list[str]:
    own = getattr(cls, "_documented", ())
    return sorted({*own, *(name for name in names if name.startswith("__"))})


__all__ = ["Documented", "documented_names", "names_of_module"]
