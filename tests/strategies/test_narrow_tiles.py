"""Tiles of 8 to 48 columns by four warps: for few columns, and few rows, which become columns."""

import re
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import pytest

from tcdsl.options import Options
from tcdsl.strategies import tensor_configs
from tcdsl.strategies.templates import tile_mma
from tcdsl.testing.comparison import check
from tests.strategies.test_tensor_types import drawn, source_of
from tests.strategies.tile_configs import FEW, inputs_of, planned, take_implicit_tiles

MakeUnit = Callable[..., Any]
TF32, FLOAT8 = Options(precision="tf32"), Options(precision="float8")
KINDS = {
    "bfloat16": (("bfloat16", "bfloat16"), Options()),
    "half": (("half", "half"), Options()),
    "int8": (("int8", "uint8"), Options()),
    "float8": (("float8_e4m3", "float8_e5m2"), FLOAT8),
    "tf32": (("float32", "float32"), TF32),
    "float32": (("float32", "float32"), Options()),
}  # fmt: skip
COUNTS = (9, 2, 5, 8, 16, 17, 31)


def narrow_alone(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    """Products have only narrow tiles that boxes fill, with these *values* of a configuration."""
    in_chunks = tensor_configs.in_chunks

    def narrow(*given: Any) -> Iterator[Any]:
        for one in in_chunks(*given):
            is_narrow = one.loader == tensor_configs.BOXES and one.columns in tensor_configs.NARROW
            if is_narrow and all(getattr(one, name) == value for name, value in values.items()):
                yield one

    monkeypatch.setattr(tile_mma, "in_chunks", narrow)
    monkeypatch.setattr(tile_mma, "MIN_WORK", 1)
    monkeypatch.setattr(tile_mma, "least_seconds", lambda *_: inf)
    monkeypatch.setattr("tcdsl.costmodel.tensor_tiles.HELD_MARGIN", 1e3)


@pytest.mark.one_in(3)  # of each kind, rows or columns, and either of the counts
@pytest.mark.slow_but("bfloat16-rows-counts0", "float32-rows-counts0")
@pytest.mark.parametrize("counts", [COUNTS[:1], COUNTS[1:]])
@pytest.mark.parametrize("few", ["rows", "columns"])
@pytest.mark.parametrize("kind", KINDS)
def test_products(
    few: str,
    kind: str,
    counts: Sequence[int],
    cuda_unit: MakeUnit,
    emulated: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    types, options = KINDS[kind]
    narrow_alone(monkeypatch)
    units, inputs = [], []
    for count in counts:
        for form in ("nt", "nn") if few == "rows" else ("nt", "tt"):
            if form != "nt" and types[0] in ("int8", "float8_e4m3"):
                continue
            many = 67 if form == "nt" else 80
            sizes = {"m": count, "n": many} if few == "rows" else {"m": many, "n": count}
            source, shapes = source_of(form, types, sizes | {"k": 304})
            unit = cuda_unit(source, *shapes, options=options)
            calls = re.findall(r"tc_wgmma\w*<(?:tc_of_\w+, |[01], )?(\d+),", unit.source.text)
            assert calls == [str(-(-count // 8) * 8)], (form, sizes)
            units.append(unit)
            inputs.append(drawn(types, shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own, options=options)


LAST = {"chunks": 2, "is_finished": True}  # the last block of a tile adds up the sums of both
# What there is beside a product, the arrays, and values of the configuration.
LAYERS: dict[str, tuple[str, list[tuple[int, ...]], dict[str, object]]] = {
    "another kernel adds up": (
        "def f(half(M,K) x, half(N,K) w) -> (half(M,N) y) { y(m,n) +=! x(m,k) * w(n,k) }",
        [(9, 640), (136, 640)], LAST | {"is_finished": False},
    ),
    "bias": (
        """def f(bfloat16(M,K) x, bfloat16(K,N) w, float(N) b) -> (bfloat16(M,N) y) {
            g(m,n) +=! float(x(m,k)) * float(w(k,n))
            y(m,n) = bfloat16(relu(g(m,n) + b(n)))
        }""",
        [(9, 640), (640, 136), (136,)], LAST,
    ),
    "weights in registers": (
        """def f(bfloat16(M,K) x, uint8(N,K) w, uint8(N) z) -> (y) {
            y(m,n) +=! x(m,k) * bfloat16(float(w(n,k)) - float(z(n)))
        }""",
        [(5, 400), (80, 400), (80,)], {},
    ),
    "two products": (
        """def f(half(M,K) x, half(K,N) w, half(K,N) v) -> (half(M,N) y) {
            g(m,n) +=! x(m,k) * w(k,n)
            u(m,n) +=! x(m,k) * v(k,n)
            y(m,n) = g(m,n) * u(m,n)
        }""",
        [(17, 640), (640, 136), (640, 136)], {},
    ),
    "rows of results": (
        """def f(bfloat16(M,K) x, bfloat16(K,N) w) -> (bfloat16(M,N) y, r) {
            y(m,n) +=! x(m,k) * w(k,n)
            r(m) +=! float(y(m,n))
        }""",
        [(9, 640), (640, 136)], {},
    ),
    "batches": (
        """def f(bfloat16(B,M,K) x, bfloat16(B,N,K) w) -> (bfloat16(B,M,N) y) {
            y(b,m,n) +=! x(b,m,k) * w(b,n,k)
        }""",
        [(3, 9, 640), (3, 72, 640)], {},
    ),
}  # fmt: skip


@pytest.mark.slow_but("bias")
@pytest.mark.parametrize("layer", LAYERS)
def test_what_follows_and_sums_that_blocks_share(
    layer: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, shapes, values = LAYERS[layer]
    narrow_alone(monkeypatch, **values)
    unit = cuda_unit(source, *shapes, gpu=FEW)
    assert "tc_wgmma" in unit.source.text and not unit.done.is_fallback
    assert ("tc_last_block" in unit.source.functions) == (values is LAST)
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


def test_few_rows_across_the_terms_stay_rows(cuda_unit: MakeUnit) -> None:
    """As columns they would be parts of atoms, or most of a tile would be empty."""
    source, shapes = source_of("tn", ("half", "half"), {"m": 16, "n": 4096, "k": 4096})
    (kernel, *_) = planned(source, *shapes).done.plan.weighed
    source, shapes = source_of("nn", ("half", "half"), {"m": 16, "n": 4096, "k": 4096})
    (turned, *_) = planned(source, *shapes).done.plan.weighed
    assert kernel.choice["columns"] >= 64 and turned.choice["columns"] == 16


IMAGES = {
    "requested windows": (
        """def f(half(N,H,W,C) I, half(F,3,3,C) K) -> (half(N,H,W,F) O) {
            O(n,h,w,f) +=! (h + r >= 1 && h + r - 1 < H && w + s >= 1 && w + s - 1 < W
                ? I(n, h + r - 1, w + s - 1, c) : 0) * K(f,r,s,c)
                where n in 0:N, h in 0:H, w in 0:W
        }""",
        [(1, 7, 12, 64), (5, 3, 3, 64)],
    ),
    "copies by threads": (
        """def f(half(N,H,W,C) I, half(F,3,3,C) K) -> (O) {
            O(n,h,w,f) +=! I(n, h + r, w + s, c) * K(f,r,s,c) where h in 0:H-2, w in 0:W-2
        }""",
        [(1, 9, 13, 36), (9, 3, 3, 36)],
    ),
    "float32 by data": (
        """def f(float(N,P,Q,F) dO, float(C,3,3,F) K) -> (dI) {
            dI(n,h,w,c) +=! ((h + 1 - r >= 0 && h + 1 - r < 2*P && w + 1 - s >= 0
                && w + 1 - s < 2*Q && (h + 1 - r) % 2 == 0 && (w + 1 - s) % 2 == 0)
                ? dO(n, (h + 1 - r) / 2, (w + 1 - s) / 2, f) : 0) * K(c,r,s,f)
                where n in 0:N, h in 0:2*P, w in 0:2*Q
        }""",
        [(1, 9, 8, 256), (3, 3, 3, 256)],
    ),
}  # fmt: skip


@pytest.mark.slow_but("requested windows")
@pytest.mark.parametrize("name", IMAGES)
def test_images_of_few_channels(
    name: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_implicit_tiles(monkeypatch)
    monkeypatch.setattr(tensor_configs, "SHAPES", ())
    source, shapes = IMAGES[name]
    unit = cuda_unit(source, *shapes)
    assert re.search(r"tc_wgmma(_f32)?<([01], )?(8|16),", unit.source.text)
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))
