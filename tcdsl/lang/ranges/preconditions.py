"""Conditions on the sizes: what is proven for all sizes, refuted, or left to the call.

A requirement that holds for all sizes costs nothing.  One that holds for none is an error now.
Otherwise it becomes a precondition, which the call checks before any launch; what follows is then
decided under that precondition.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field

import islpy as isl

from tcdsl.errors import (
    EXTENTS_DIFFER,
    NEGATIVE_RANGE,
    OUT_OF_BOUNDS_AT,
    TCError,
)
from tcdsl.lang.comprehension import Precondition, PreconditionError
from tcdsl.lang.ranges.linear import Interval
from tcdsl.lang.ranges.size_functions import SizeSpace, evaluate, involved_sizes
from tcdsl.records import dataclass
from tcdsl.source import Source, Span


@dataclass(slots=True, eq=False)
class Requirements:
    """Collects requirements; *known* are the sizes that meet all of them so far."""

    sizes: SizeSpace
    known: isl.Set = field(init=False)
    preconditions: list[Precondition] = field(init=False, default_factory=list)
    errors: list[TCError] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.known = self.sizes.sane

    def require(
        self, holds: isl.Set, error: PreconditionError, refuted: Callable[[], TCError]
    ) -> None:
        """Require that the sizes are in *holds*; *refuted* makes the error if none ever is."""
        if self.known.is_subset(holds):
            return
        met = self.known.intersect(holds)
        if met.is_empty():
            fixed = self.sizes.fixed
            self.errors.append(refuted() if fixed is None else error(fixed))
            return
        self.preconditions.append(Precondition(holds.gist_params(self.sizes.sane), error))
        self.known = met.coalesce()


def _involved(source: Source, sizes: Mapping[str, int], *functions: isl.PwAff) -> tuple[str, ...]:
    """Return the sizes on which *functions* depend: all, if the functions are for these alone.

    Those of a program without a header have names that nobody wrote, and are left out.
    """
    is_for_all = any(function.dim(isl.dim_type.param) for function in functions)
    names = involved_sizes(*functions) if is_for_all else tuple(sizes)
    written = set(re.findall(r"\w+", source.text))
    return tuple(name for name in names if name in written)


def values_text(names: tuple[str, ...], sizes: Mapping[str, int]) -> str:
    """Return `` for N = 3, M = 4``, or nothing if there are no names."""
    if not names:
        return ""
    return " for " + ", ".join(f"{name} = {sizes[name]}" for name in names)


@dataclass(frozen=True, slots=True, eq=False)
class NegativeRange(PreconditionError):
    """The range of *index* ends before it starts."""

    source: Source
    span: Span
    index: str
    interval: Interval

    def __call__(self, sizes: Mapping[str, int]) -> TCError:
        bounds = self.interval.lower, self.interval.upper
        lower, upper = (evaluate(bound, sizes) for bound in bounds)
        return NEGATIVE_RANGE(
            self.source, self.span, index=self.index, lower=lower, upper=upper,
            where=values_text(_involved(self.source, sizes, *bounds), sizes),
            advice=f"at these sizes {self.index} has no values: pass others, or change its range",
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class OutOfBoundsAt(PreconditionError):
    """Subscript *position* of *access*, which takes the values *subscript*, leaves *interval*.

    *because* says where the ranges of the indices in the subscript come from.
    """

    source: Source
    span: Span
    access: str
    tensor: str
    position: int
    subscript: Interval  # inclusive at both ends
    interval: Interval
    because: str

    def __call__(self, sizes: Mapping[str, int]) -> TCError:
        functions = (
            self.subscript.lower, self.subscript.upper, self.interval.lower, self.interval.upper,
        )  # fmt: skip
        first, last, lower, upper = (evaluate(function, sizes) for function in functions)
        needed = "an element" if last == 0 else f"at least {last + 1} elements"
        return OUT_OF_BOUNDS_AT(
            self.source, self.span, access=self.access, position=self.position, first=first,
            last=last, tensor=self.tensor, lower=lower, upper=upper,
            where=values_text(_involved(self.source, sizes, *functions), sizes),
            advice=f"pass arrays whose sizes agree{self.because}" if self.because
            else f"pass an array {self.tensor!r} with {needed} there",
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ExtentsDiffer(PreconditionError):
    """Two extents, named by *what*, are not equal."""

    source: Source
    span: Span
    what: str
    one: isl.PwAff
    other: isl.PwAff
    advice: str

    def __call__(self, sizes: Mapping[str, int]) -> TCError:
        return EXTENTS_DIFFER(
            self.source, self.span, what=self.what, one=evaluate(self.one, sizes),
            other=evaluate(self.other, sizes), advice=self.advice,
            where=values_text(_involved(self.source, sizes, self.one, self.other), sizes),
        )  # fmt: skip
