"""Where the entry of a program in C finds its arrays."""

import re
from typing import Any, cast

from tcdsl.codegen.ast.text import text
from tcdsl.codegen.c.entry import places_of
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.poly.scop import Array, Storage


def test_scratch_arrays_of_known_sizes_lie_apart() -> None:
    """The compiler is told that they do; each begins at a line of the cache."""
    every = [
        Array(name, FLOAT32, (0,), (extent,), Storage.SCRATCH)
        for name, extent in (("a", 40), ("b", 16), ("c", 1), ("d", 0))
    ]
    places, workspace_bytes = places_of([], every, cast(Any, None))
    offsets = [int(re.findall(r"\d+", text(places[array.name]))[-1]) for array in every]
    assert offsets == [0, 192, 256, 320] and workspace_bytes == 384
