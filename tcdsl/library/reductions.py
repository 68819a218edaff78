"""The reductions: all, rows, columns, the middle, interleaved axes, and reductions with a prologue.

Sizes are those of Panamera (PACT 2022) and of FusionStitching (2020); those that no tile divides
are there for the tails.
"""

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from tcdsl.library.case import ALL_FLOATS, NUMBERS, Case, Details, grid
from tcdsl.library.draws import Array, Draw, Sizes, mostly, near_one, uniform

_ALL = grid("N", (128,), (3072,), (65536,), (2**20,), (16226304,), (2**28,))
_ROW = grid(
    "M N",
    (768, 768), (768, 21128), (1280, 30522), (65536, 1024), (1024, 65536),
    (4, 1000003), (16, 2**20), (64, 30000),
    (750000, 32), (233008, 2), (2**20, 64), (2**22, 16), (8192, 1),
)  # fmt: skip
_ROW_PANAMERA = (*_ROW, *grid("M N", (256, 802816)))  # what its paper has for sum, max and and
_COLUMN = grid(
    "M N",
    (768, 768), (21128, 768), (32768, 1024), (1024, 65536),
    (802816, 256), (1000000, 3), (2**24, 3), (2**22, 16),
)  # fmt: skip
_MIDDLE = grid("A B C", (64, 128, 1024), (64, 4096, 256), (32, 15, 7))
_CHANNEL = grid("N C H W", (256, 256, 56, 56), (32, 256, 56, 56), (4, 3, 8, 8))
_CHANNEL_LAST = grid("N H W C", (256, 56, 56, 256), (32, 56, 56, 256), (4, 8, 8, 3))
_ARGMAX = grid("M N", (320, 21128))
_FUSED = grid("M N", (8192, 768))
_FUSED3 = grid("A B C", (64, 128, 768))

_SMALL_ALL = grid("N", (0,), (1,), (7,), (1031,))
_SMALL_2D = grid("M N", (0, 3), (3, 0), (1, 1), (7, 13), (33, 129))
_SMALL_FULL = grid("M N", (0, 3), (1, 1), (7, 13), (33, 129))
_SMALL_3D = grid("A B C", (2, 0, 3), (1, 1, 1), (5, 7, 3), (9, 31, 17))
_SMALL_4D = grid("N C H W", (0, 3, 2, 2), (1, 1, 1, 1), (3, 5, 7, 2), (4, 3, 8, 8))
_SMALL_CHANNEL_LAST = grid("N H W C", (0, 2, 2, 3), (1, 1, 1, 1), (3, 7, 2, 5), (4, 8, 8, 3))

_Axes = tuple[int, ...] | None
_ORDERED = (*NUMBERS, "int8", "uint8")


def _least(x: Array) -> Any:
    return np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf


def _greatest(x: Array) -> Any:
    return np.iinfo(x.dtype).max if x.dtype.kind in "iu" else np.inf


def _sum(axes: _Axes) -> Callable[[Array], Any]:
    return lambda x: x.sum(axis=axes)


def _prod(axes: _Axes) -> Callable[[Array], Any]:
    return lambda x: x.prod(axis=axes)


def _max(axes: _Axes) -> Callable[[Array], Any]:
    return lambda x: x.max(axis=axes, initial=_least(x))


def _min(axes: _Axes) -> Callable[[Array], Any]:
    return lambda x: x.min(axis=axes, initial=_greatest(x))


def _and(axes: _Axes) -> Callable[[Array], Any]:
    return lambda x: x.all(axis=axes)


def _or(axes: _Axes) -> Callable[[Array], Any]:
    return lambda x: x.any(axis=axes)


def _case(
    name: str,
    formula: Callable[..., Any],
    sizes: tuple[Sizes, ...],
    small_sizes: tuple[Sizes, ...],
    draw: Draw | None = None,
    **details: Unpack[Details],
) -> Case:
    details.setdefault("dtypes", NUMBERS)
    return Case(
        name=name, family="reduction", file="reductions", def_name=name, formula=formula,
        sizes=sizes, small_sizes=small_sizes, draws={"x": draw} if draw else {}, **details,
    )  # fmt: skip


def _moments(x: Array) -> tuple[Array, Array]:
    return x.mean(axis=1), x.var(axis=1)


def _fused_sum(axes: _Axes) -> Callable[[Array, Array, Array], Any]:
    return lambda a, b, c: ((a + b) * c).sum(axis=axes)


def _two_branches(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    return (a * b).sum(axis=0), (c - d).sum(axis=0)


def _two_branches_shared(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    return ((a + b) * c).sum(axis=0), ((a - b) * c).sum(axis=0)


CASES: tuple[Case, ...] = (
    _case("all_sum", _sum(None), _ALL, _SMALL_ALL),
    _case("all_prod", _prod(None), _ALL, _SMALL_ALL, draw=near_one),
    _case("all_max", _max(None), _ALL, _SMALL_ALL, dtypes=_ORDERED),
    _case("all_min", _min(None), _ALL, _SMALL_ALL, dtypes=_ORDERED),
    _case("all_and", _and(None), _ALL, _SMALL_ALL, dtypes=("bool",), draw=mostly(True)),
    _case("all_or", _or(None), _ALL, _SMALL_ALL, dtypes=("bool",), draw=mostly(False)),
    _case("row_sum", _sum((1,)), _ROW_PANAMERA, _SMALL_2D),
    # Sums far above 65504: wrong at once where a float16 is accumulated in float16.
    _case("row_sum_float32", _sum((1,)), _ROW, _SMALL_2D, dtypes=("float32", "float16", "bfloat16"),
          draw=uniform(500.0, 1500.0), results=("float32",)),
    _case("row_max", _max((1,)), _ROW_PANAMERA, _SMALL_2D, dtypes=_ORDERED),
    _case("row_min", _min((1,)), _ROW, _SMALL_2D, dtypes=_ORDERED),
    _case("row_prod", _prod((1,)), _ROW, _SMALL_2D, draw=near_one),
    _case("row_and", _and((1,)), _ROW_PANAMERA, _SMALL_2D, dtypes=("bool",), draw=mostly(True)),
    _case("row_or", _or((1,)), _ROW, _SMALL_2D, dtypes=("bool",), draw=mostly(False)),
    _case("row_argmax", lambda x: x.argmax(axis=1), _ARGMAX, _SMALL_FULL, results=("int64",)),
    _case("row_argmin", lambda x: x.argmin(axis=1), _ARGMAX, _SMALL_FULL, results=("int64",)),
    _case("row_moments", _moments, grid("M N", (128, 2304), (1024, 36864)), _SMALL_FULL,
          dtypes=("float32", "float64")),
    _case("column_sum", _sum((0,)), _COLUMN, _SMALL_2D),
    _case("column_max", _max((0,)), _COLUMN, _SMALL_2D, dtypes=_ORDERED),
    _case("column_or", _or((0,)), _COLUMN, _SMALL_2D, dtypes=("bool",), draw=mostly(False)),
    _case("middle_sum", _sum((1,)), _MIDDLE, _SMALL_3D),
    _case("middle_max", _max((1,)), _MIDDLE, _SMALL_3D, dtypes=_ORDERED),
    _case("channel_sum", _sum((0, 2, 3)), _CHANNEL, _SMALL_4D),
    _case("channel_sum_nhwc", _sum((0, 1, 2)), _CHANNEL_LAST, _SMALL_CHANNEL_LAST),
    _case("channel_max", _max((0, 2, 3)), _CHANNEL, _SMALL_4D, dtypes=_ORDERED),
    _case("dot", lambda a, b: np.dot(a, b), _ALL, _SMALL_ALL, dtypes=NUMBERS),
    _case("fused_column_sum", _fused_sum((0,)), _FUSED, _SMALL_2D, dtypes=ALL_FLOATS),
    _case("fused_sum_first", _fused_sum((0,)), _FUSED3, _SMALL_3D, dtypes=ALL_FLOATS),
    _case("fused_sum_first_two", _fused_sum((0, 1)), _FUSED3, _SMALL_3D, dtypes=ALL_FLOATS),
    _case("two_branches", _two_branches, _FUSED, _SMALL_2D, dtypes=ALL_FLOATS),
    _case("two_branches_shared", _two_branches_shared, _FUSED, _SMALL_2D, dtypes=ALL_FLOATS),
)  # fmt: skip
