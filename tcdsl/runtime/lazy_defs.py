"""The defs of a program: their heads at once, what they mean when it is first needed.

    text  --->  heads            from the disk cache, where code of the program is kept
    text  --->  comprehensions   parsed and analysed: in a new process 0.1 s, most of it imports

A call whose code is in the disk cache too takes the first line only: it needs neither the parser
nor isl.  Heads are kept with the first code of their program, and only of programs without errors.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tcdsl.errors import TCError, warn
from tcdsl.lang.types.head import Head
from tcdsl.runtime.cache import default_cache, key_of
from tcdsl.runtime.collector import collector_paused
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.open_extents import OpenExtents, Shapes
from tcdsl.source import Source
from tcdsl.version import build_identity

if TYPE_CHECKING:
    from tcdsl.lang.comprehension import Comprehension, Specialisation
    from tcdsl.lang.ranges.specialiser import Specialiser


class LazyProgram:
    """The defs of one text, in its order."""

    def __init__(
        self,
        source: Source,
        analyse: Callable[[], "Iterable[Comprehension]"],
        parts: Mapping[str, Any] | None,
    ) -> None:
        """Take the text, what gives its meaning, and, to keep heads, what else that depends on."""
        self._analyse = analyse
        self._key = None if parts is None else key_of(
            build=build_identity(), source=source.text, **parts
        )  # fmt: skip
        heads = self._kept_heads(source)
        self._is_kept = heads is not None
        if heads is None:
            heads = tuple(self.comprehensions.values())
        self.defs = tuple(LazyDef(head, self) for head in heads)
        for message in (message for head in heads for message in head.warnings):
            warn(message)

    def _kept_heads(self, source: Source) -> Sequence[Head] | None:
        if self._key is None:
            return None
        # TCError: a setting is wrong, which compiling will say.  The others: it is no such entry.
        with suppress(TCError, KeyError, TypeError, ValueError):
            entry = default_cache().peek(self._key)
            if entry is not None:
                return [Head.from_json(data, source) for data in entry.manifest["defs"]]
        return None

    @cached_property
    def comprehensions(self) -> "dict[str, Comprehension]":
        """The defs by name, analysed."""
        with collector_paused():
            return {c.name: c for c in self._analyse()}

    @property
    def is_analysed(self) -> bool:
        return "comprehensions" in vars(self)

    def keep(self) -> None:
        """Write the heads down, once."""
        # (What is known of a deferred def at some sizes, such as which outputs must be given, is no
        # part of its head.)
        if any(definition.head.is_deferred for definition in self.defs):
            return
        if self._key is not None and not self._is_kept:
            self._is_kept = True
            heads = [definition.head.to_json() for definition in self.defs]
            default_cache().put(self._key, b"", {"defs": heads})


class LazyDef:
    """One def of a program."""

    def __init__(self, head: Head, program: LazyProgram) -> None:
        self.head = head
        self.program = program

    @property
    def comprehension(self) -> "Comprehension":
        """The def, analysed."""
        return self.program.comprehensions[self.head.name]

    @cached_property
    def _specialiser(self) -> "Specialiser":
        # Imported here: a call of code from the cache needs no isl.
        with late_import():
            from tcdsl.lang.ranges.specialiser import Specialiser

        return Specialiser(self.comprehension)

    def at(self, sizes: Mapping[str, int]) -> "SizedDef":
        """Return the def at *sizes*.

        :raises RangeError, ShapeError: a precondition does not hold.  Where the def is not analysed
            yet, that is found out when code is to be made: what there is was checked before.
        """
        sized = SizedDef(self, sizes)
        if self.program.is_analysed:
            sized.special  # noqa: B018
        return sized

    def of_extents(
        self, extents: OpenExtents, integers: Sequence[str]
    ) -> Callable[[Shapes], tuple[tuple[int, ...], Shapes] | None]:
        """Return ``shapes -> (the values of integers, the shape of each output)``.

        *integers* are texts like those of *extents*.  None where its guard or a precondition does
        not hold.  It is not for deferred defs, whose sizes are never open.
        """
        outputs = self.head.outputs
        return self._specialiser.of_values(extents.values, extents.guard, integers, outputs)

    def specialise(self, sizes: Mapping[str, int]) -> "Specialisation":
        """Return all that depends on the *sizes*, with the preconditions checked."""
        if self.head.is_deferred:
            with late_import():
                from tcdsl.lang.ranges.specialiser import specialise

            return specialise(self.comprehension.at(sizes), sizes)
        return self._specialiser(sizes)


class SizedDef:
    """One def at certain sizes."""

    def __init__(self, definition: LazyDef, sizes: Mapping[str, int]) -> None:
        self.definition = definition
        self.sizes = sizes

    @property
    def head(self) -> Head:
        """The head; that of a deferred def is known at these sizes alone."""
        return self.comprehension if self.definition.head.is_deferred else self.definition.head

    @property
    def comprehension(self) -> "Comprehension":
        return self.definition.comprehension.at(self.sizes)

    @cached_property
    def special(self) -> "Specialisation":
        return self.definition.specialise(self.sizes)


def analysed_def(comprehension: "Comprehension") -> LazyDef:
    """Return the def of a *comprehension* that is not from a text: nothing of it is kept."""
    program = LazyProgram(comprehension.source, lambda: [comprehension], None)
    return program.defs[0]
