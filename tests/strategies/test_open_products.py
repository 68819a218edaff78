"""Contractions on tensor cores with an open size: one kernel is right at all sizes of a class.

Results begin as NaN: a row that is not written, and one beyond the last that is, are seen.
"""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.cuda.counts import Count
from tcdsl.codegen.cuda.source import TensorMap
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.options import Options
from tests.strategies.tile_configs import check_at_sizes

GROUPS = {"rows": 16, "columns": 64, "warp_rows": 4, "warp_columns": 1, "step": 64, "stages": 3,
          "together": 4, "loader": "boxes", "swath": 1,
          "chunks": 1, "is_persistent": False, "is_finished": False}  # fmt: skip
WARPS = {**GROUPS, "warp_rows": 2, "warp_columns": 2, "columns": 16, "step": 32, "together": 1,
         "loader": "threads"}  # fmt: skip
NN = "def f(half(M,K) A, half(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
NT = "def f(bfloat16(M,K) A, bfloat16(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
LINEAR = """def f(bfloat16(M,K) A, bfloat16(N,K) B, float(N) b) -> (C) {
    T(m,n) +=! A(m,k) * B(n,k)
    C(m,n) = fmax(T(m,n) + b(n), 0)
}"""
BATCH = "def f(half(M,L,K) A, half(M,K,N) B) -> (C) { C(b,l,n) +=! A(b,l,k) * B(b,k,n) }"
TRANSPOSED = "def f(half(M,K) A, half(K,N) B) -> (C) { C(n,m) +=! A(m,k) * B(k,n) }"
TERMS = "def f(half(M,L) A, half(M,N) B) -> (C) { C(l,n) +=! A(m,l) * B(m,n) }"
PRODUCTS: dict[str, tuple[str, dict[str, Any], list[Any], tuple[int, ...]]] = {
    "threads": (NT, WARPS, [("M", 72), (136, 72)], (17, 64, 33, 50)),
    "one tile": (NN, GROUPS, [("M", 136), (136, 136)], (17, 64, 63)),
    "boxes": (NN, GROUPS, [("M", 72), (72, 136)], (65, 256, 127, 128)),
    "swaths": (NN, {**GROUPS, "swath": 8}, [("M", 136), (136, 72)], (257, 700, 1024)),
    "in turn": (NN, {**GROUPS, "swath": 44, "is_persistent": True}, [("M", 136), (136, 136)],
                (1025, 3001, 4096)),
    "chunks of boxes": (NN, {**GROUPS, "chunks": 2}, [("M", 520), (520, 72)], (17, 64, 18)),
    "chunks": (NT, {**WARPS, "chunks": 4}, [("M", 520), (72, 520)], (2, 16, 7)),
    "bias": (LINEAR, GROUPS, [("M", 72), (136, 72), (136,)], (65, 250)),
    "batches": (BATCH, GROUPS, [("M", 72, 136), ("M", 136, 72)], (2, 16, 3)),
    "terms": (TERMS, GROUPS, [("M", 72), ("M", 136)], (129, 256, 250)),
    "terms in chunks": (TERMS, {**GROUPS, "chunks": 4}, [("M", 72), ("M", 136)],
                        (513, 1024, 700, 901)),
    "terms in last blocks": (TERMS, {**GROUPS, "chunks": 4, "is_finished": True},
                             [("M", 72), ("M", 136)], (513, 1024, 600)),
    "chunks in last blocks": (NN, {**GROUPS, "chunks": 2, "is_finished": True},
                              [("M", 520), (520, 72)], (65, 256, 130)),
    "rows in chunks": (TRANSPOSED, {**GROUPS, "chunks": 2}, [("M", 520), (520, 72)],
                       (65, 256, 130)),
    "rows in last blocks": (TRANSPOSED, {**GROUPS, "chunks": 2, "is_finished": True},
                            [("M", 520), (520, 72)], (65, 256, 129)),
    "terms in chunks by threads": (TERMS, {**WARPS, "chunks": 8}, [("M", 72), ("M", 72)],
                                   (513, 1024, 666)),
    "terms by threads": (TERMS, {**WARPS, "stages": 2}, [("M", 72), ("M", 136)], (17, 32, 21)),
}  # fmt: skip


def drawn(name: str, size: int) -> list[Any]:
    """Return operands of the product *name*: small numbers, so that its sums are exact."""
    source, _, shapes, _ = PRODUCTS[name]
    rng, tensors = np.random.default_rng(size), tcdsl.define(source).f.comprehension.tensors
    types = (tensors[x].dtype.name for x in tcdsl.define(source).f.comprehension.inputs)
    return [
        rng.integers(-2, 3, [size if n == "M" else n for n in shape]).astype(BY_NAME[dtype].numpy)
        for shape, dtype in zip(shapes, types, strict=True)
    ]


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)


@pytest.mark.slow_but("threads")
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_an_open_size(name: str) -> None:
    source, config, _, sizes = PRODUCTS[name]
    f, options = tcdsl.define(source).f, Options(dynamic_sizes=("M",))
    args = drawn(name, sizes[0])
    kernel = f.compile(*args, target="emulate", options=options).kernels[0]["why"][0]
    choice = {"kernel": kernel, "template": "tile_mma", **config}
    choices = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
    exe = f.compile(*args, target="emulate", options=options, choices=choices)
    assert exe.opened == ("M",)
    assert "tc_mma<" in exe.source or "tc_wgmma<" in exe.source
    if name.startswith("rows in "):  # what chunks leave has rows of whole tiles
        assert re.search(r"tc_vstore(_twin)?\(&u0_C_part", exe.source)
    check_at_sizes(exe, f, partial(drawn, name), sizes)


@pytest.mark.slow_but("True")
@pytest.mark.parametrize("is_finished", [False, True])
def test_what_chunks_leave_has_whole_rows_at_one_odd_size(is_finished: bool) -> None:
    f, args = tcdsl.define(TRANSPOSED).f, drawn("rows in chunks", 67)
    kernel = f.compile(*args, target="emulate").kernels[0]["why"][0]
    config = {**GROUPS, "chunks": 2, "is_finished": is_finished}
    choice = {"kernel": kernel, "template": "tile_mma", **config}
    choices = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
    exe = f.compile(*args, target="emulate", choices=choices)
    assert re.search(r"tc_vstore(_twin)?\(&u0_C_part", exe.source)
    np.testing.assert_array_equal(exe(*args), f.reference(*args))


def test_a_map_of_an_open_size_has_that_of_the_call() -> None:
    rows = (Count(1, 0, ((1, 0),)),)
    map_ = TensorMap("float16", (64, 256), (128,), (64, 64), ((Count(1, 64, ()),), rows))
    assert TensorMap.from_json(map_.to_json()) == map_
    assert map_.at([100]) == TensorMap("float16", (64, 100), (128,), (64, 64))
    assert map_.at([100]).at([7]) == map_.at([100])


def test_a_map_of_rows_of_an_open_length_has_the_strides_of_the_call() -> None:
    length, rows = (Count(1, 0, ((8, 0),)),), (Count(1, 6, ()),)
    most = (1024, 6, 5), (2048, 12288), (64, 8, 1)
    map_ = TensorMap("float16", *most, (length, rows, (Count(1, 5, ()),)), element=2)
    assert TensorMap.from_json(map_.to_json()) == map_
    assert map_.at([33]) == TensorMap("float16", (264, 6, 5), (528, 3168), (64, 8, 1))


def test_rows_of_an_odd_open_length_begin_at_the_next_16_bytes() -> None:
    length = (Count(1, 3, ((8, 0),)),)  # 8 q + 3, in rows of 8 q + 8
    most = (1019, 6, 5), (2048, 12288), (64, 8, 1)
    others = (Count(1, 6, ()),), (Count(1, 5, ()),)
    map_ = TensorMap("float16", *most, (length, *others), element=2)
    assert map_.at([33]) == TensorMap("float16", (267, 6, 5), (544, 3264), (64, 8, 1))


@pytest.mark.slow_but(
    "def f(half(K,M) A, half(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }-shapes0-rows of A"
)
@pytest.mark.slow_but(
    "def f(half(K,M) A, half(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }-shapes0-rows of A"
)
@pytest.mark.parametrize(
    ("source", "shapes", "why"),
    [
        ("def f(half(K,M) A, half(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
         [(64, "M"), (64, 64)], "rows of A"),
        ("def f(half(L,M) A, half(M,N) B) -> (C) { C(l,n) +=! A(l,m) * B(m,n) }",
         [(64, "M"), ("M", 64)], "rows of A"),
    ],
)  # fmt: skip
def test_rows_of_an_open_length_are_not_copied_in_vectors(
    source: str, shapes: list[Any], why: str
) -> None:
    args = [tcdsl.spec([161 if n == "M" else n for n in shape], "half") for shape in shapes]
    exe = tcdsl.define(source).f.compile(
        *args, target="emulate", options=Options(dynamic_sizes=("M",))
    )
    assert exe.opened == ("M",)
    assert f"not tile_mma: {why}" in exe.explain()
