"""Windows that a producer requests: convolutions whose tiles come as rows of pixels, or boxes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.lang.comprehension import Const
from tcdsl.lang.types.dtypes import FLOAT16, FLOAT32, INT32
from tcdsl.options import Options
from tcdsl.poly.bulk_copies import why_not_brought
from tcdsl.poly.scop import PRODUCER, Statement
from tcdsl.strategies.bulk_tiles import BulkTile, bulk_tile_of
from tcdsl.strategies.problem import Problem
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.emulated_programs import strides_of
from tests.programs import comprehension_of
from tests.strategies.tile_configs import planned, take_implicit_tiles

MakeUnit = Callable[..., Any]
Shapes = list[tuple[int, ...]]


def forward(guard: str, at: tuple[str, str], ranges: str, image: str = "I(n, {}, {}, c)") -> str:
    """Return a convolution of the pixels *at* rows and columns, where the *guard* holds."""
    element = image.format(*at)
    element = f"({guard} ? {element} : 0)" if guard else element
    return f"""def f(half(N,H,W,C) I, half(F,R,S,C) K) -> (O) {{
        O(n,h,w,f) +=! {element} * K(f,r,s,c) where {ranges}
    }}"""


def padded(rows: str, columns: str, ranges: str) -> str:
    guard = f"({rows} >= 0 && {rows} < H && {columns} >= 0 && {columns} < W)"
    return forward(guard, (rows, columns), f"n in 0:N, {ranges}")


PLAIN = padded("h + r - 1", "w + s - 1", "h in 0:H, w in 0:W")
SOME = PLAIN.replace("n in 0:N", "n in 0:N-2")
STRIDED = padded("2*h + r - 1", "2*w + s - 1", "h in 0:(H+1)/2, w in 0:(W+1)/2")
UNEVEN = padded("h + 2*r - 2", "3*w + s - 1", "h in 0:H, w in 0:(W+2)/3")
INSIDE = forward("", ("h + r", "w + s"), "n in 0:N")
DATA = """def f(half(N,H,W,F) dO, half(F,3,3,C) K) -> (dI) {
    dI(n,h,w,c) +=! ((h + 1 - r >= 0 && h + 1 - r < H && w + 1 - s >= 0 && w + 1 - s < W)
        ? dO(n, h + 1 - r, w + 1 - s, f) : 0) * K(f,r,s,c)
        where n in 0:N, h in 0:H, w in 0:W
}"""
STRIDED_DATA = """def f(half(N,P,Q,F) dO, half(F,3,3,C) K) -> (dI) {
    dI(n,h,w,c) +=! ((h + 1 - r >= 0 && h + 1 - r < 2*P && w + 1 - s >= 0 && w + 1 - s < 2*Q
        && (h + 1 - r) % 2 == 0 && (w + 1 - s) % 2 == 0)
        ? dO(n, (h + 1 - r) / 2, (w + 1 - s) / 2, f) : 0) * K(f,r,s,c)
        where n in 0:N, h in 0:2*P, w in 0:2*Q
}"""
WEIGHTS = """def f(half(N,P,Q,F) dO, half(N,P,Q,C) I) -> (half(F,3,3,C) dK) {
    dK(f,r,s,c) +=! dO(n,h,w,f)
        * ((h + r >= 1 && h + r - 1 < P && w + s >= 1 && w + s - 1 < Q)
           ? I(n, h + r - 1, w + s - 1, c) : 0)
        where r in 0:3, s in 0:3, c in 0:C
}"""
GAPS = """def f(half(N,H,W,C) I, half(F,C) K) -> (O) {
    O(n,h,w,f) +=! I(n,h,2*w,c) * K(f,c) where w in 0:W/2
}"""
LINE = """def f(half(N,W,C) I, half(F,S,C) K) -> (O) {
    O(n,w,f) +=! ((w + s >= 2 && w + s - 2 < W) ? I(n, w + s - 2, c) : 0) * K(f,s,c)
        where n in 0:N, w in 0:W
}"""
SPACE = """def f(half(N,D,H,W,C) I, half(F,Q,R,S,C) K) -> (O) {
    O(n,d,h,w,f) +=! ((d + q >= 1 && d + q - 1 < D && h + r >= 1 && h + r - 1 < H
        && w + s >= 1 && w + s - 1 < W)
        ? I(n, d + q - 1, h + r - 1, w + s - 1, c) : 0) * K(f,q,r,s,c)
        where n in 0:N, d in 0:D, h in 0:H, w in 0:W
}"""
EPILOGUE = """def f(half(N,H,W,C) I, half(F,R,S,C) K, float(F) b) -> (half(N,H,W,F) O) {
    o(n,h,w,f) +=! ((h + r >= 1 && h + r - 1 < H && w + s >= 1 && w + s - 1 < W)
        ? float(I(n, h + r - 1, w + s - 1, c)) : 0.0) * K(f,r,s,c)
        where n in 0:N, h in 0:H, w in 0:W
    O(i,j,k,l) = half(fmax(o(i,j,k,l) + b(l), 0.0))
}"""


def groups(columns: int, warps: int, stages: int, **more: Any) -> dict[str, Any]:
    return {
        "rows": 16, "columns": columns, "warp_rows": warps, "warp_columns": 1, "step": 64,
        "stages": stages, "together": 4, "chunks": 1, "loader": "boxes", "swath": 1,
        "is_persistent": False, "is_finished": False, **more,
    }  # fmt: skip


# The text, the arrays' shapes, a configuration, and how many requests of a step are of pixels.
CASES: Mapping[str, tuple[str, Shapes, dict[str, Any], int]] = {
    "forward": (PLAIN, [(2, 9, 7, 64), (64, 3, 3, 64)], groups(64, 4, 3), 1),
    "ragged": (PLAIN, [(3, 7, 9, 72), (72, 3, 3, 72)], groups(64, 8, 4), 1),
    "few channels": (PLAIN, [(3, 7, 9, 40), (72, 3, 3, 40)], groups(128, 8, 3), 1),
    "another window": (PLAIN, [(1, 11, 13, 64), (64, 2, 5, 64)], groups(64, 4, 3), 1),
    "a stride": (STRIDED, [(3, 9, 12, 64), (64, 3, 3, 64)], groups(64, 4, 3), 1),
    "uneven": (UNEVEN, [(2, 9, 11, 64), (64, 3, 3, 64)], groups(64, 4, 3), 1),
    "no padding": (INSIDE, [(3, 9, 8, 64), (64, 3, 3, 64)], groups(64, 4, 3), 1),
    "rows with gaps": (GAPS, [(3, 9, 16, 136), (64, 136)], groups(64, 4, 3), 1),
    "data": (DATA, [(2, 9, 7, 72), (72, 3, 3, 64)], groups(64, 4, 3), 1),
    "data of wide tiles": (DATA, [(2, 9, 7, 64), (64, 3, 3, 256)], groups(256, 8, 3), 1),
    "weights": (WEIGHTS, [(3, 9, 7, 64), (3, 9, 7, 64)], groups(64, 4, 3), 1),
    "weights of several taps": (WEIGHTS, [(3, 9, 7, 128), (3, 9, 7, 64)], groups(192, 8, 3), 3),
    "weights in chunks": (
        WEIGHTS, [(5, 9, 7, 64), (5, 9, 7, 128)], groups(128, 4, 3, chunks=2), 2,
    ),
    "chunks of taps": (
        PLAIN, [(2, 5, 7, 128), (64, 3, 3, 128)], groups(64, 4, 3, chunks=3), 1,
    ),
    "one image, a stride": (STRIDED, [(1, 9, 12, 64), (64, 3, 3, 64)], groups(64, 4, 3), 1),
    "some images": (SOME, [(5, 9, 7, 64), (64, 3, 3, 64)], groups(64, 4, 3), 1),
    "a line": (LINE, [(5, 19, 64), (64, 5, 64)], groups(64, 4, 3), 1),
    "space": (SPACE, [(2, 4, 5, 3, 64), (64, 3, 3, 3, 64)], groups(64, 4, 3), 1),
    "epilogue": (EPILOGUE, [(2, 9, 7, 64), (64, 3, 3, 64), (64,)], groups(64, 4, 3), 1),
    "finished": (
        EPILOGUE, [(2, 5, 7, 128), (64, 3, 3, 128), (64,)],
        groups(64, 4, 3, chunks=3, is_finished=True), 1,
    ),
    "weights, finished": (
        WEIGHTS, [(5, 9, 7, 64), (5, 9, 7, 64)], groups(64, 4, 3, chunks=2, is_finished=True), 1,
    ),
    "in turn": (
        PLAIN, [(5, 11, 7, 64), (64, 3, 3, 64)], groups(64, 4, 4, swath=2, is_persistent=True), 1,
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _are_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    take_implicit_tiles(monkeypatch)


def made(name: str, cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the unit of a case, with the configuration that it asks for."""
    source, shapes, config, _ = CASES[name]
    if config["is_persistent"]:
        swath = "tcdsl.strategies.{}._swath_in_turn"
        for module in ("templates.tile_implicit", "tensor_configs"):
            monkeypatch.setattr(swath.format(module), lambda *_: config["swath"])
    kernel = planned(source, *shapes).done.plan.weighed[0]
    choice = {"kernel": kernel.kernel, "template": "tile_implicit", **config}
    asked = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
    return cuda_unit(source, *shapes, options=Options(choices=asked))


@pytest.mark.slow_but("weights of several taps")
@pytest.mark.parametrize("name", CASES)
def test_right(
    name: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = made(name, cuda_unit, monkeypatch)
    _, shapes, _, n_pixels = CASES[name]
    assert unit.source.text.count("tc_copy_pixels<") == n_pixels
    assert unit.source.text.count("tc_copy_pixels<") + unit.source.text.count("tc_copy_box<") >= 2
    types = [FLOAT16 if len(shape) > 1 else FLOAT32 for shape in shapes]
    drawn = zip(types, shapes, strict=True)
    inputs = [values(of, shape, "real", seed) for seed, (of, shape) in enumerate(drawn)]
    (program,) = emulated([unit])
    check(program, *inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "of_step"), [("tf32", "tc_wgmma_of<"), ("float32", "tc_wgmma_f32<")]
)
def test_words_in_windows(precision: Any, of_step: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    """Words are rounded to tf32 on their way, or are multiplied in parts."""
    source, shapes = PLAIN.replace("half", "float"), [(2, 9, 7, 72), (72, 3, 3, 72)]
    own = Options(precision=precision)
    kernel = planned(source, *shapes, options=own).kernel(0)
    choice = {"kernel": kernel, "template": "tile_implicit", **groups(64, 4, 3, step=32)}
    asked = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
    unit = cuda_unit(source, *shapes, options=replace(own, choices=asked))
    assert unit.source.text.count("tc_copy_pixels<") == 1 and of_step in unit.source.text
    (program,) = emulated([unit])
    inputs = [values(FLOAT32, shape, "real", seed) for seed, shape in enumerate(shapes)]
    check(program, *inputs, options=own)


def reasons(source: str, shapes: Shapes) -> list[str]:
    """Return why requests bring no tile of the rows' factor, of the columns'; "": they do."""
    found: list[BulkTile | str] = []

    def look(problem: Problem) -> Iterator[Any]:
        found.extend(bulk_tile_of(problem, False, number) for number in (0, 1))
        return iter(())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tcdsl.strategies.templates.tile_implicit._boxed_configs", look)
        assert planned(source, *shapes).done
    return ["" if isinstance(tile, BulkTile) else tile for tile in found[:2]]


IMAGES: Shapes = [(2, 9, 7, 64), (64, 3, 3, 64)]


@pytest.mark.parametrize(
    ("source", "shapes", "rows", "columns"),
    [
        (PLAIN, IMAGES, "", ""),
        (PLAIN.replace("w + s - 1 < W", "w + s - 1 < W - 1"), IMAGES, "its guard holds", ""),
        (PLAIN, [(2, 9, 7, 36), (64, 3, 3, 36)], "multiples of 16 bytes", "multiples of 16 bytes"),
        (STRIDED.replace("2*", "9*").replace("(H+1)/2", "(H+8)/9").replace("(W+1)/2", "(W+8)/9"),
         [(8, 40, 40, 64), (64, 3, 3, 64)], "offsets or steps", ""),
        (PLAIN.replace("w + s - 1", "w + 99*s - 99"), IMAGES, "", ""),
        (PLAIN.replace("w + s - 1", "w + 129*s - 129"), IMAGES, "its corners", ""),
        (PLAIN.replace("w + s - 1", "w + 128*s - 128"), IMAGES, "offsets or steps", ""),
        (PLAIN.replace("I(n, h + r - 1, w + s - 1, c)", "I(n, h + r - 1, w + s - 1, 63 - c)"),
         IMAGES, "neighbours of a line", ""),
        (INSIDE.replace("h + r", "h + w + r"), [(2, 17, 9, 64), (64, 3, 3, 64)],
         "no single index", ""),
        (WEIGHTS, [(3, 9, 7, 64), (3, 9, 7, 96)], "", "several taps"),
    ],
)  # fmt: skip
def test_what_no_request_brings_is_told(
    source: str, shapes: Shapes, rows: str, columns: str
) -> None:
    for expected, reason in zip((rows, columns), reasons(source, shapes), strict=True):
        assert expected in reason and bool(expected) == bool(reason)


def test_twelve_warps_have_no_more_registers_than_there_are(cuda_unit: MakeUnit) -> None:
    source, shapes = PLAIN, [(5, 9, 9, 64), (192, 3, 3, 64)]
    kernel = planned(source, *shapes).kernel(0)
    for warps, registers in ((8, 240), (12, 0)):
        choice = {"kernel": kernel, "template": "tile_implicit", **groups(192, warps, 3)}
        asked = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
        unit = cuda_unit(source, *shapes, options=Options(choices=asked))
        assert unit.done.plan.kernels[0].code.thread_registers == registers


@pytest.mark.slow_but("gap1-1")
@pytest.mark.parametrize(("gap", "n_pixels"), [((0, 0), 0), ((0, 1), 1), ((1, 0), 1)])
def test_rows_that_lie_apart_in_memory_are_no_box(
    gap: tuple[int, int], n_pixels: int, cuda_unit: MakeUnit, emulated: Any
) -> None:
    source = """def f(half(N,H,W,C) I, half(F,C) K) -> (O) {
        O(n,h,w,f) +=! I(n,h,w,c) * K(f,c) where w in 0:W
    }"""
    n, h, w, c = 3, 9, 8, 136
    whole = values(FLOAT16, (n, h + gap[0], w + gap[1], c), "real", 1)
    inputs = whole[:, :h, :w], values(FLOAT16, (64, c), "real", 2)
    strides = strides_of(comprehension_of(source), inputs)
    shapes = [one.shape for one in inputs]
    kernel = planned(source, *shapes, strides=strides).kernel(0)
    asked = None
    if n_pixels:
        choice = {"kernel": kernel, "template": "tile_implicit", **groups(64, 4, 3)}
        asked = Options(choices={"format": "tcdsl choices", "version": 1, "kernels": [choice]})
    unit = cuda_unit(source, *shapes, strides=strides, options=asked)
    assert unit.source.text.count("tc_copy_pixels<") == n_pixels
    (program,) = emulated([unit])
    check(program, *inputs)


@pytest.mark.slow
@pytest.mark.parametrize("taps", [3, 1])
def test_channels_may_be_last_in_memory_alone(
    taps: int, cuda_unit: MakeUnit, emulated: Any
) -> None:
    """A view whose second dimension has neighbours in memory; of one tap, dimensions of size 1."""
    pad = taps // 2
    guard = f"h + r >= {pad} && h + r - {pad} < H && w + s >= {pad} && w + s - {pad} < W"
    source = f"""def f(half(N,C,H,W) I, half(F,C,{taps},{taps}) K) -> (O) {{
        O(n,f,h,w) +=! (({guard}) ? I(n, c, h + r - {pad}, w + s - {pad}) : 0) * K(f,c,r,s)
            where n in 0:N, h in 0:H, w in 0:W, r in 0:{taps}, s in 0:{taps}
    }}"""
    shapes = [(2, 5, 8, 72), (64, taps, taps, 72)]
    inputs = [values(FLOAT16, shape, "real", 1).transpose(0, 3, 1, 2) for shape in shapes]
    strides = strides_of(comprehension_of(source), inputs)
    shapes = [one.shape for one in inputs]
    kernel = planned(source, *shapes, strides=strides).kernel(0)
    choice = {"kernel": kernel, "template": "tile_implicit", **groups(64, 4, 3)}
    asked = Options(choices={"format": "tcdsl choices", "version": 1, "kernels": [choice]})
    unit = cuda_unit(source, *shapes, strides=strides, options=asked)
    assert unit.source.text.count("tc_copy_pixels<") == (taps > 1)
    (program,) = emulated([unit])
    check(program, *inputs)


def copies_of(unit: Any) -> list[Statement]:
    scop = unit.done.plan.scop
    return [s for s in scop.statements if s.role == PRODUCER and s.bulk is not None]


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_tiles_are_requested_that_a_block_has(
    cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks have tiles in turn, some one more than others: the roles meet the same stages."""
    assert len(copies_of(made("in turn", cuda_unit, monkeypatch))) == 2


def test_another_window_than_the_statement_reads_is_found(
    cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is printed is compared with what the statement reads: corners, steps, digits, taps."""
    unit = made("a stride", cuda_unit, monkeypatch)
    scop = unit.done.plan.scop
    (copy, _) = sorted(copies_of(unit), key=lambda s: -len(s.bulk.order if s.bulk else ()))
    assert why_not_brought(scop, copy) is None and copy.bulk is not None
    bulk, (n, h, w, c) = copy.bulk, copy.bulk.dims
    one = Const(1, INT32)
    wrong = [
        replace(bulk, dims=(n, replace(h, first=h.first + 1), w, c)),
        replace(bulk, dims=(n, h, replace(w, step=w.step + 1), c)),
        replace(bulk, dims=(n, replace(h, extent=h.extent - 1), w, c)),
        replace(bulk, dims=(n, h, replace(w, tap=h.tap), c)),
        replace(bulk, order=(1, 2, 0)),
        replace(bulk, dims=(replace(n, tap=one), h, w, c)),
        replace(bulk, dims=(n, replace(h, first=h.first + 9, tap=Const(-9, INT32)), w, c)),
    ]
    for other in wrong:
        assert why_not_brought(scop, replace(copy, bulk=other)) == "it reads other elements"
    (read,) = copy.reads
    guarded = replace(read, relation=read.relation.subtract_domain(read.relation.domain().lexmin()))
    reason = why_not_brought(scop, replace(copy, reads=(guarded,)))
    assert reason == "it reads where the statement has zeros, or the reverse"
