"""Rewrites as data: where each may be applied, why not elsewhere, and what becomes of the program.

A rewrite is a candidate: the search applies it where groups of the rewritten program are predicted
to take less time, and keeps why it did not where they would take more.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tcdsl.poly.scop import Kind, Scop
from tcdsl.transforms.extreme_places import place_after, why_not_after


@dataclass(frozen=True, slots=True)
class Rewrite:
    """See the module's docstring; a site is the name of a statement or of an array."""

    name: str
    sites: Callable[[Scop], Iterable[str]]
    why_not: Callable[[Scop, str], str | None]
    apply: Callable[[Scop, str], Scop]


def _arg_reductions(scop: Scop) -> list[str]:
    return [
        s.name
        for s in scop.statements
        if s.kind is Kind.UPDATE and s.reduction is not None and s.reduction.operator.is_arg
    ]


REWRITES = (
    Rewrite(
        "place after the extreme",
        _arg_reductions,
        lambda scop, name: why_not_after(scop, scop.by_name[name]),
        place_after,
    ),
)
