"""What blocks ask the cache for: rows that they load next, whole, and nothing else."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.codegen.cuda import prefetches
from tcdsl.costmodel.chip import load_chip
from tcdsl.strategies import fused_directions

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
        lambda self, group, _: self.row_column(group) is not None,
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


def test_blocks_of_a_cluster_ask_for_a_part_each(cuda_unit: MakeUnit) -> None:
    shape, gpu = (2000, 1024), replace(load_chip("h200"), threads_per_block=32)
    unit = cuda_unit(BACKWARD, shape, shape, (1024,), gpu=gpu)
    (launch, *_) = unit.source.launches
    assert launch.cluster == 2
    found = list(rows(unit.source.text))
    assert [(array, size) for array, _, size in found] == [("y", 2048), ("dy", 2048)]
    assert all(place.endswith(" + 512 * blockIdx.z") for _, place, _ in found)


@pytest.mark.slow
def test_results(check_emulated: CheckAll) -> None:
    check_emulated([
        (BACKWARD, [(m, n), (m, n), (n,)]) for m, n in ((1, 512), (37, 512), (613, 1024), (64, 260))
    ])  # fmt: skip
