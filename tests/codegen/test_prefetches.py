"""What blocks ask the cache for: rows that they load next, whole, and nothing else."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import islpy as isl
import pytest

from tcdsl.codegen.cuda import prefetches
from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.strategies import fused_directions
from tcdsl.testing.comparison import check
from tests.strategies.tile_configs import inputs_of, planned

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]
BACKWARD = """def f(float(M,N) y, float(M,N) dy, float(N) g) -> (dx, db) {
    inner(i) +=! y(i,j) * dy(i,j) * g(j)
    dx(i,j) = y(i,j) * (dy(i,j) - inner(i))
    db(j) +=! dx(i,j)
}"""
CALL = re.compile(r"tc_prefetch\(&(\w+)\[(.*?)\], (\d+)\);")


@pytest.fixture(autouse=True)
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in one kernel, whatever the estimate."""
    monkeypatch.setattr(
        fused_directions.Estimates,
        "is_faster",
        lambda self, group, _: self.both_ways(group) is not None,
    )


def rows(text: str) -> Iterator[tuple[str, str, int]]:
    for match in CALL.finditer(text):
        yield match[1], match[2], int(match[3])


def test_each_row_is_asked_for_one_iteration_before(cuda_unit: MakeUnit) -> None:
    text = cuda_unit(BACKWARD, (2000, 512), (2000, 512), (512,)).source.text
    found = list(rows(text))
    assert [(array, size) for array, _, size in found] == [("y", 2048), ("dy", 2048)]
    loop = re.search(
        r"for \(int (\w+) = 0; (.*?); \w+\+\+\) \{\n\s+const int w_next = (\w+) \+ 1;", text
    )
    assert loop and loop[1] == loop[3]
    condition = re.sub(rf"\b{loop[1]}\b", "w_next", loop[2])
    assert f"if (threadIdx.x == 0 && {condition}) {{" in text
    for _, place, _ in found:
        assert re.fullmatch(r"\d+ \* c0 \+ 512 \* w_next", place)


@pytest.mark.parametrize(
    ("columns", "why"),
    [(511, "rows begin anywhere"), (128, "512 bytes are not worth an instruction")],
)
def test_what_is_not_asked_for(columns: int, why: str, cuda_unit: MakeUnit) -> None:
    shape = (2000, columns)
    assert "tc_prefetch" not in cuda_unit(BACKWARD, shape, shape, (columns,)).source.text, why


def test_what_the_loop_writes_is_not_asked_for(cuda_unit: MakeUnit) -> None:
    """The cache would be asked for rows that another block may be writing."""
    in_place = BACKWARD.replace("(dx, db)", "(float(M,N) dy, db)").replace("dx(", "dy(")
    text = cuda_unit(in_place, (2000, 512), (2000, 512), (512,)).source.text
    assert {array for array, _, _ in rows(text)} == {"y"}


def test_rows_that_begin_between_units_are_not_asked_for(cuda_unit: MakeUnit) -> None:
    """A view of rows that are 2056 bytes apart: the instruction takes multiples of 16."""
    shapes = [(2000, 512), (2000, 512), (512,)]
    unit = cuda_unit(BACKWARD, *shapes, strides={"y": (514, 1)}, alignments={"y": 4})
    assert {array for array, _, _ in rows(unit.source.text)} == {"dy"}


# What fewer rows are loaded of than the loop has, or another row is.
SOME_ROWS = {
    "where": "dx(i,j) = dy(i,j) * inner(i)\n db(j) +=! dx(i,j) * y(i,j) where i in 0:K, j in 0:N",
    "a guard": "dx(i,j) = dy(i,j) * inner(i) + (i < K ? y(i,j) : 0.0)\n db(j) +=! dx(i,j)",
    "the row after": "dx(i,j) = dy(i,j) * inner(i)\n"
    " db(j) +=! dx(i,j) * y(i+1,j) where i in 0:K-1, j in 0:N",
}


@pytest.mark.slow_but("where")
@pytest.mark.parametrize("name", SOME_ROWS)
def test_nothing_outside_an_array_is_asked_for(
    name: str, cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    source = f"""def f(float(K,N) y, float(M,N) dy, float(N) g) -> (dx, db) {{
        inner(i) +=! dy(i,j) * g(j)
        {SOME_ROWS[name]}
    }}"""
    text = cuda_unit(source, (1400, 512), (2000, 512), (512,)).source.text
    assert "y" not in {array for array, _, _ in rows(text)}
    check_emulated([(source, [(k, 512), (613, 512), (512,)]) for k in (600, 613)])


def test_kernels_that_hold_their_rows_at_once_ask_for_none(cuda_unit: MakeUnit) -> None:
    source = "def f(float(M,N) x) -> (y) { s(i) +=! x(i,j)\n y(i,j) = x(i,j) * s(i) }"
    assert "tc_prefetch" not in cuda_unit(source, (2000, 4096)).source.text


@pytest.mark.parametrize("least_bytes", [2048, 2049])
def test_a_row_is_worth_an_instruction(
    least_bytes: int, cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetches, "LEAST_BYTES", least_bytes)
    text = cuda_unit(BACKWARD, (2000, 512), (2000, 512), (512,)).source.text
    assert ("tc_prefetch" in text) == (least_bytes <= 2048)


@pytest.mark.parametrize(("l2_bytes", "is_asked_for"), [(60 << 20, True), (10 << 20, False)])
def test_the_cache_keeps_what_all_blocks_ask_for(
    l2_bytes: int, is_asked_for: bool, cuda_unit: MakeUnit
) -> None:
    shape, gpu = (2000, 512), replace(load_chip("h200"), l2_bytes=l2_bytes)
    text = cuda_unit(BACKWARD, shape, shape, (512,), gpu=gpu).source.text
    assert ("tc_prefetch" in text) == is_asked_for


RESIDUAL = """def f(half(M,K) x, half(K,N) w, half(M,N) r, half(N) b) -> (half(M,N) y) {
    c(m,n) +=! x(m,k) * w(k,n)
    y(m,n) = c(m,n) + r(m,n) + b(n)
}"""
TILES = {
    "rows": 16, "columns": 128, "warp_rows": 8, "warp_columns": 1, "step": 64, "stages": 3,
    "together": 4, "loader": "boxes", "swath": 2, "chunks": 1, "is_persistent": True,
    "is_finished": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("rows_", "columns", "is_asked_for"), [(512, 256, True), (500, 256, False), (512, 248, False)]
)
def test_lines_of_a_tile_are_asked_for_with_its_steps(
    rows_: int, columns: int, is_asked_for: bool, cuda_unit: MakeUnit, emulated: Any
) -> None:
    """Of 128 lines each of 5 steps asks for 26, the last for 24; none where tiles are not whole."""
    shapes = [(rows_, 264), (264, columns), (rows_, columns), (columns,)]
    gpu = replace(load_chip("h200"), multiprocessors=4)
    (weighed,) = planned(RESIDUAL, *shapes, gpu=gpu).done.plan.weighed
    kernel = {"kernel": weighed.kernel, "template": "tile_mma", **TILES}
    options = Options(choices={"format": "tcdsl choices", "version": 1, "kernels": [kernel]})
    unit = cuda_unit(RESIDUAL, *shapes, gpu=gpu, options=options)
    assert not unit.done.is_fallback and (unit.source.text.count("tc_prefetch") == is_asked_for)
    if is_asked_for:
        loop = "for (int w_line = 26 * c3; w_line < 26 * c3 + 26 && w_line < 128; w_line++)"
        assert loop in unit.source.text
        found = list(rows(unit.source.text))
        place = "32768 * c0 + 128 * c1 + 65536 * c2 + 256 * w_line"
        assert found == [("r", place, 256)]
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


@pytest.mark.parametrize(
    ("offsets", "shape"),
    [
        ("0 <= a < 24", (24, 1, 0)),
        ("0 <= a < 52 and a mod 16 < 4", (4, 4, 16)),
        ("0 <= a < 50 and a mod 16 < 4", None),  # the last run is shorter
        ("(0 <= a < 4) or (8 <= a < 12) or (20 <= a < 24)", None),
        ("(0 <= a < 4) or (8 <= a < 11) or (16 <= a < 20)", None),
        ("1 <= a < 4", None),
    ],
)
def test_runs_of_one_length_equally_far_apart(
    offsets: str, shape: tuple[int, int, int] | None
) -> None:
    assert prefetches._shape_of(isl.Set(f"{{ [a] : {offsets} }}")) == shape


@pytest.mark.slow
def test_results(check_emulated: CheckAll) -> None:
    check_emulated([
        (BACKWARD, [(m, n), (m, n), (n,)]) for m, n in ((1, 512), (37, 512), (613, 1024), (64, 260))
    ])  # fmt: skip
