"""Programs of tests: what they mean at given shapes, and arrays for them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tcdsl.interp.arithmetic import Array
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.source import Source
from tcdsl.testing.random_inputs import values


@lru_cache(maxsize=128)  # a test compiles one program for many sizes
def comprehension_of(source: str) -> Comprehension:
    """Return the last def of *source*."""
    return analyse(parse_program(Source(source)))[-1]


def specialisation_of(c: Comprehension, shapes: Sequence[tuple[int, ...]]) -> Specialisation:
    return specialise(c, bind_sizes(c, dict(zip(c.inputs, shapes, strict=True))))


def arrays_for(c: Comprehension, given: Sequence[Any], seed: int) -> list[Array]:
    """Return *given* with every shape replaced by random values."""
    return [
        values(c.tensors[name].dtype, value, "real", 100 * seed + position)
        if isinstance(value, tuple)
        else np.asarray(value)
        for position, (name, value) in enumerate(zip(c.inputs, given, strict=True))
    ]
