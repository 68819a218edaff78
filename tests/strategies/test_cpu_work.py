"""What kernels cost on a CPU, and that the estimate chooses by it."""

import json
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.machine import Cpu
from tcdsl.options import Options

MM = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
ROWS = "def f(float(M,N) x) -> (y) { y(m) +=! x(m,n) }"
COPY = "def f(float(M,N) x) -> (y) { y(m,n) = x(m,n) }"
RECURRENCE = """def f(float(T,N) a) -> (c) {
    c(t,i) = t < 1 ? a(t,i) : (i < 1 ? a(t,i) : c(t-1,i) * 0.5 + c(t,i-1))
        where t in 0:T, i in 0:N
}"""


def compiled(source: str, *shapes: tuple[int, ...], **options: Any) -> Any:
    function = tcdsl.define(source).f
    specs = [tcdsl.spec(shape, "float32") for shape in shapes]
    return function.compile(*specs, target="cpu", options=Options(**options))


def fitting(executable: Any) -> list[dict[str, Any]]:
    return [c for c in executable.candidates if "why_not" not in c]


def fastest(executable: Any, template: str) -> dict[str, Any]:
    own = [c for c in fitting(executable) if c["template"] == template]
    return min(own, key=lambda c: c["predicted_us"])


def test_candidates_have_times_and_limiters() -> None:
    executable = compiled(MM, (256, 256), (256, 256), threads=1)
    found = fitting(executable)
    assert {"cpu_panels", "cpu_tile", "cpu_row", "cpu_loops"} <= {c["template"] for c in found}
    assert all(c["predicted_us"] > 0 and c["limiter"] for c in found)
    (chosen,) = [c for c in found if c["is_chosen"]]
    assert chosen["predicted_us"] <= 1.2 * min(c["predicted_us"] for c in found)
    assert fastest(executable, "cpu_row")["predicted_us"] > 2 * chosen["predicted_us"]
    assert "us" in executable.explain() and "limiter" not in executable.explain()


def test_multiplications_take_as_long_as_the_machine_needs() -> None:
    chosen = fastest(compiled(MM, (250, 250), (250, 250), threads=1), "cpu_tile")
    least = 1e6 * 250**3 / Cpu(1).fma_f32_per_s
    assert least <= chosen["predicted_us"] <= 1.5 * least


def test_memory_limits_what_no_cache_holds() -> None:
    chosen = fastest(compiled(COPY, (1 << 13, 1 << 12), threads=1), "cpu_row")
    moved = 3 * 4 * (1 << 25)  # a line that is written is loaded, too
    assert chosen["limiter"] == "memory" and chosen["moved_bytes"] == pytest.approx(moved)
    near = fastest(compiled(COPY, (8, 64), threads=1), "cpu_row")
    assert near["moved_bytes"] == 0


def test_fewer_partial_sums_wait_longer() -> None:
    found = fitting(compiled(ROWS, (64, 1024), threads=1))
    rows = [c for c in found if c["template"] == "cpu_row"]
    by_vectors = {c["config"]["vectors"]: c["predicted_us"] for c in rows}
    assert by_vectors[4] < by_vectors[1] < by_vectors[0]


def test_recurrences_run_in_wavefronts_where_threads_are() -> None:
    executable = compiled(RECURRENCE, (1024, 1024), threads=4)
    (chosen,) = [c for c in fitting(executable) if c["is_chosen"]]
    assert chosen["template"] == "cpu_isl_band"
    assert chosen["predicted_us"] < fastest(executable, "cpu_row")["predicted_us"]
    alone = compiled(RECURRENCE, (1024, 1024), threads=1)
    assert "cpu_isl_band" not in {c["template"] for c in fitting(alone)}


@pytest.mark.parametrize("order", ["as written", "by strides"])
def test_loops_in_order_can_be_asked_for(order: str) -> None:
    entry = {"kernel": "S0", "template": "cpu_loops", "order": order}
    asked = {"format": "tcdsl choices", "version": 1, "target": "cpu", "kernels": [entry]}
    executable = compiled(ROWS, (33, 65), choices=json.dumps(asked), threads=1)
    (made,) = executable.choices["kernels"]
    assert made == {**entry, "code": made["code"]}


def test_a_tile_of_one_row_is_not_the_loop_around_it() -> None:
    """Which has a step of 1, too: then it was predicted as one tile of all rows."""
    source = "def f(float(N,G,C) x, float(G,C,F) w) -> (y) { y(n,g,f) +=! x(n,g,c) * w(g,c,f) }"
    executable = compiled(source, (32, 32, 64), (32, 64, 16), threads=1)
    tiles = [c for c in fitting(executable) if c["template"] == "cpu_tile"]
    by_tile = {(c["config"]["lanes"], c["config"]["rows"][0][1]): c["predicted_us"] for c in tiles}
    width = min(lanes for lanes, _ in by_tile)
    assert by_tile[width, 1] > by_tile[width, 2] > by_tile[width, 4]
