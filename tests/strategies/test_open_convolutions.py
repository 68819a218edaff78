"""Convolutions with an open number of images: one kernel is right at all sizes of a class.

Results begin as NaN: a row that is not written, and one beyond the last that is, are seen.
"""

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.options import Options
from tcdsl.strategies.bulk_tiles import BulkTile, bulk_tile_of
from tcdsl.strategies.problem import Problem
from tests.strategies.tile_configs import check_at_sizes, choices_of, take_implicit_tiles

FORWARD = """def f(bfloat16(N,H,W,C) I, bfloat16(F,3,3,C) K, float(F) b) -> (O) {
    s(n,h,w,f) +=! (h+r >= 1 && h+r <= H && w+t >= 1 && w+t <= W ? float(I(n,h+r-1,w+t-1,c)) : 0.0)
            * float(K(f,r,t,c)) where n in 0:N, h in 0:H, w in 0:W
    O(n,h,w,f) = fmax(s(n,h,w,f) + b(f), 0.0)
}"""
PLANES = """def f(bfloat16(N,C,H,W) I, bfloat16(F,C,3,3) K) -> (O) {
    O(n,f,h,w) +=! float(I(n,c,h+r,w+t)) * float(K(f,c,r,t))
}"""
FLOATS = """def f(float(N,H,W,C) I, float(F,3,3,C) K) -> (O) {
    O(n,h,w,f) +=! I(n,h+r,w+t,c) * K(f,r,t,c)
}"""
WEIGHTS = """def f(half(N,P,Q,F) dO, half(N,P,Q,C) I) -> (float(F,3,3,C) dK) {
    dK(f,r,t,c) +=! (p+r >= 1 && p+r <= P && q+t >= 1 && q+t <= Q ? float(I(n,p+r-1,q+t-1,c)) : 0.0)
            * float(dO(n,p,q,f)) where r in 0:3, t in 0:3, p in 0:P, q in 0:Q
}"""
BATCH = """def f(half(N,H,W,C) I, half(N,3,3,C,F) K) -> (O) {
    O(n,h,w,f) +=! I(n,h+r,w+t,c) * K(n,r,t,c,f)
}"""
BOXES = {"rows": 16, "columns": 64, "warp_rows": 4, "warp_columns": 1, "step": 64, "stages": 3,
         "together": 4, "chunks": 1, "loader": "boxes", "swath": 1, "is_persistent": False,
         "is_finished": False}  # fmt: skip
THREADS = {**BOXES, "rows": 32, "columns": 32, "warp_rows": 2, "warp_columns": 2, "together": 1,
           "stages": 2, "loader": "threads"}  # fmt: skip
IMAGE, FILTERS = ("N", 3, 5, 64), (64, 3, 3, 64)
CASES: dict[str, tuple[str, dict[str, Any], list[Any], tuple[int, ...]]] = {
    "rows by threads": (FORWARD, THREADS, [("N", 3, 5, 24), (24, 3, 3, 24), (24,)], (2, 6, 16)),
    "rows in boxes": (FORWARD, BOXES, [IMAGE, FILTERS, (64,)], (2, 7)),
    "in turn": (FORWARD, {**BOXES, "stages": 4, "swath": 2, "is_persistent": True},
                [IMAGE, FILTERS, (64,)], (3, 13)),
    "columns": (PLANES, THREADS, [("N", 16, 5, 6), (40, 16, 3, 3)], (5, 1)),
    "in parts": (FLOATS, {**BOXES, "step": 32}, [("N", 4, 5, 64), FILTERS], (2, 6)),
    "terms": (WEIGHTS, BOXES, [("N", 3, 7, 64), ("N", 3, 7, 64)], (2, 7)),
    "terms in chunks": (WEIGHTS, {**BOXES, "chunks": 2}, [("N", 3, 7, 64), ("N", 3, 7, 64)],
                        (2, 7, 64)),
    "chunks in last blocks": (WEIGHTS, {**BOXES, "chunks": 2, "is_finished": True},
                              [("N", 3, 7, 64), ("N", 3, 7, 64)], (2, 9)),
    "chunks by threads": (WEIGHTS, {**THREADS, "chunks": 3}, [("N", 3, 7, 24), ("N", 3, 7, 16)],
                          (2, 7, 64)),
    "batches": (BATCH, THREADS, [("N", 5, 6, 40), ("N", 3, 3, 40, 48)], (2, 3)),
}  # fmt: skip


def drawn(name: str, size: int) -> list[Any]:
    """Return operands of *name*: small numbers, so that its sums are exact."""
    source, _, shapes, _ = CASES[name]
    c, rng = tcdsl.define(source).f.comprehension, np.random.default_rng(size)
    return [
        rng.integers(-2, 3, [size if n == "N" else n for n in shape]).astype(
            BY_NAME[c.tensors[x].dtype.name].numpy
        )
        for shape, x in zip(shapes, c.inputs, strict=True)
    ]


@pytest.fixture(autouse=True)
def _are_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    take_implicit_tiles(monkeypatch)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_TILE", inf)  # as they are


@pytest.mark.slow_but("rows by threads", "terms")
@pytest.mark.parametrize("name", CASES)
def test_convolutions_of_an_open_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, config, _, sizes = CASES[name]
    if config["is_persistent"]:
        for module in ("templates.tile_implicit", "tensor_configs"):
            swath = f"tcdsl.strategies.{module}._swath_in_turn"
            monkeypatch.setattr(swath, lambda *_: config["swath"])
    f, options = tcdsl.define(source).f, Options(dynamic_sizes=("N",))
    args = drawn(name, sizes[0])
    kernel = f.compile(*args, target="emulate", options=options).kernels[0]["why"][0]
    choices = choices_of(kernel, "tile_implicit", config)
    exe = f.compile(*args, target="emulate", options=options, choices=choices)
    assert exe.opened == ("N",)
    assert exe.choices["kernels"][0]["template"] == "tile_implicit"
    assert ("tc_copy_pixels" in exe.source) == (config["loader"] == "boxes")
    check_at_sizes(exe, f, partial(drawn, name), sizes)


def test_blocks_that_share_an_open_number_of_terms_have_steps_in_turn() -> None:
    args = [tcdsl.spec((7, 3, 7, 24), "half"), tcdsl.spec((7, 3, 7, 16), "half")]
    f, options = tcdsl.define(WEIGHTS).f, Options(dynamic_sizes=("N",))
    choices = choices_of("S0", "tile_implicit", {**THREADS, "chunks": 3})
    exe = f.compile(*args, target="emulate", options=options, choices=choices)
    assert exe.opened == ("N",) and exe.choices["kernels"][0]["chunks"] == 3
    assert "(21 * N - 64 * c1 - 1) / 192" in exe.source  # of 21 N terms a third of the steps


def test_what_is_slower_than_an_open_index_goes_to_blocks() -> None:
    """Rows (n, h, w) with an open h have no numbers for n: each image has tiles of its own."""
    f, options = tcdsl.define(FORWARD).f, Options(dynamic_sizes=("H",))
    tensors = [f.comprehension.tensors[name] for name in f.comprehension.inputs]
    for size in (20, 17):
        shapes = (2, size, 7, 32), (32, 3, 3, 32), (32,)
        rng = np.random.default_rng(size)
        args = [
            rng.integers(-2, 3, shape).astype(tensor.dtype.numpy)
            for shape, tensor in zip(shapes, tensors, strict=True)
        ]
        exe = f.compile(*args, target="emulate", options=options)
        assert exe.opened == ("H",)
        assert exe.choices["kernels"][0]["template"] == "tile_implicit"
        np.testing.assert_array_equal(exe(*args), f.reference(*args))


def test_requests_of_an_open_dimension_that_is_not_the_slowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines go over images first, and the open rows of all images lie outermost in memory."""
    found: list[BulkTile | str] = []

    def look(problem: Problem) -> Iterator[Any]:
        found.append(bulk_tile_of(problem, False, 0))
        return iter(())

    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit._boxed_configs", look)
    f = tcdsl.define("""def f(half(H,N,W,C) I, half(F,3,3,C) K) -> (O) {
        O(n,h,w,f) +=! (h+r >= 1 && h+r <= H ? I(h+r-1,n,w+t,c) : 0) * K(f,r,t,c)
            where h in 0:H, w in 0:W-2
    }""").f
    shapes = (9, 2, 7, 64), (64, 3, 3, 64)
    specs = [tcdsl.spec(shape, "float16") for shape in shapes]
    f.compile(*specs, target="emulate", options=Options(dynamic_sizes=("H",)))
    assert found[0] == "an open dimension is not that of the slowest lines"
