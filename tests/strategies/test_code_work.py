"""A kernel's code as part of its space: what each value costs, and the kernels that it makes."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.work import Work
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.schedule.plan import Code
from tcdsl.strategies.catalogue import ALIKE
from tcdsl.strategies.code_work import most_registers, with_code

MakeUnit = Callable[..., Any]

ROWS = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (8192, 4096)
SOFTMAX = (
    """def softmax(float(M,N) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}""",
    (8192, 4096),
)
BOTH = (
    """def f(bfloat16(M,N) x, bfloat16(M,N) g) -> (d, y) {
    s(i) +=! float(x(i,j)) * float(g(i,j))
    d(j) +=! float(x(i,j)) * float(g(i,j))
    y(i,j) = bfloat16(float(x(i,j)) * s(i) + float(g(i,j)))
}""",
    (65536, 512),
    (65536, 512),
)
WIDE = BOTH[0], (16384, 4096), (16384, 4096)
TWO = "def f(float(N) x) -> (s, y) { s +=! x(i)\n y(i) = x(i) / s }", (1 << 22,)
HALF = "def f(half(M,K) x, half(K,N) w) -> (y) { y(m,n) +=! x(m,k) * w(k,n) }"
PRODUCT = HALF, (8192, 8192), (8192, 8192)
FIRST, LAST = 0, -1
PROGRAMS = {
    "rows": ROWS,
    "softmax": SOFTMAX,
    "both": BOTH,
    "product": PRODUCT,
    "two": TWO,
    "wide": WIDE,
}


@pytest.fixture(scope="module")
def kernel_of(cuda_unit: MakeUnit) -> Callable[..., Any]:
    """``kernel_of(name)``: the CUDA of a program, and what a kernel was chosen from."""

    @cache
    def found(name: str, choices: str = "") -> Any:
        unit = cuda_unit(*PROGRAMS[name], options=Options(choices=choices))
        return unit.done.source.text, unit.done.plan.weighed[LAST if name == "two" else FIRST]

    return found


def changes(weighed: Any) -> dict[tuple[str, Any], float]:
    """Return the predicted times of *weighed* with other code / that of the chosen one."""
    (chosen,) = (c for c in weighed.candidates() if c.get("is_chosen"))
    return {
        next(iter(c["code_change"].items())): c["predicted_us"] / chosen["predicted_us"]
        for c in weighed.codes()
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_other_code_is_predicted_to_be_faster(name: str, kernel_of: Any) -> None:
    """So that the planner need not ask: among times that are alike the default is taken."""
    _, weighed = kernel_of(name)
    assert min(changes(weighed).values()) >= 1 / ALIKE


def test_the_estimate_knows_launches_prefetches_and_loads_on_their_way(kernel_of: Any) -> None:
    rows, two, both = (changes(kernel_of(name)[1]) for name in ("rows", "two", "both"))
    assert two["early", False] > 1.1, "a launch is some of 8 us"
    assert ("early", False) not in rows, "no kernel is before it"
    assert both["prefetch_bytes", 0] > 1
    assert rows["unrolled_bytes", 32] >= rows["unrolled_bytes", 64] >= rows["unrolled_bytes", 256]
    assert rows["streaming", False] == rows["is_reversed", True] == rows["sum_terms", 8] == 1


def test_sums_of_columns_are_spilled_in_each_row(kernel_of: Any) -> None:
    wide = changes(kernel_of("wide")[1])
    assert wide["resident_blocks", 2] == 1 < 1.2 < wide["resident_blocks", 6]


def test_registers_that_bounds_take_hold_loads_first() -> None:
    gpu = load_chip("h200")
    work = Work(1000, 256, registers=64, in_flight_bytes=80, read_bytes=1e6, is_programmatic=True)
    assert with_code(work, Code(), gpu) is with_code(work, Code(resident_blocks=4), gpu) is work
    assert most_registers(gpu, 256, 4) == 64 and most_registers(gpu, 256, 6) == 40
    fewer = with_code(work, Code(resident_blocks=6), gpu)
    late, spilled = 64.0, 4 * 24 - 64.0  # of a thread, beside its last vector
    assert (fewer.registers, fewer.in_flight_bytes) == (40, 80 - late)
    assert fewer.written_bytes == spilled * 256_000 == fewer.read_bytes - 1e6
    assert with_code(work, Code(early=False), gpu) == replace(work, is_programmatic=False)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("two", {"early": False}),
        ("both", {"prefetch_bytes": 0}),
        ("softmax", {"resident_blocks": 4}),
        ("product", {"row_bytes": 0}),
        ("product", {"resident_blocks": 2, "thread_registers": 0}),
    ],
)
def test_a_listed_code_makes_its_kernel(name: str, change: dict[str, Any], kernel_of: Any) -> None:
    text, weighed = kernel_of(name)
    listed = weighed.codes()
    (chosen,) = (c for c in weighed.candidates() if c.get("is_chosen"))
    for candidate in listed:
        assert candidate["config"] == chosen["config"] and not candidate["is_chosen"]
        assert candidate["code"] == {**chosen["code"], **candidate["code_change"]}
    (candidate,) = (c for c in listed if c["code_change"] == change)
    entry = {"kernel": weighed.kernel, "template": candidate["template"]}
    entry |= {**candidate["config"], "code": candidate["code"]}
    own = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [entry]}
    other_text, made = kernel_of(name, json.dumps(own))
    assert {"kernel": made.kernel, **made.choice} == entry and other_text != text
    (its,) = (c for c in made.candidates() if c.get("is_chosen"))
    assert its["predicted_us"] == candidate["predicted_us"]


def test_blocks_that_no_multiprocessor_has_threads_for_are_no_choice(kernel_of: Any) -> None:
    _, weighed = kernel_of("softmax")
    threads = weighed.choice["threads"]
    asked = [value for key, value in changes(weighed) if key == "resident_blocks"]
    assert max(asked) == 4 == 2048 // threads
