"""Terms of sums over rows, computed beside the rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.chip import Chip
from tcdsl.options import Options
from tcdsl.poly.scop import Kind
from tcdsl.rewrites.scop import row_terms

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

CROSS_ENTROPY = """def f(float(B,V) x, int64(B) labels) -> (loss) {
    top(b) max=! x(b,v)
    total(b) +=! exp(x(b,v) - top(b))
    loss +=! log(total(b)) + top(b) - x(b, labels(b))
    loss = loss / B
}"""
CONTRASTIVE = """def f(float(B,V) x, float(B,V) y, int64(B) a, int64(B) b) -> (loss, s) {
    s(i) +=! x(i,j) * y(i,j)
    loss max=! s(i) * s(i) + x(i, a(i)) * y(i, b(i))
}"""
GO_ON = """def f(float loss, float(B,V) x) -> (loss) {
    s(b) +=! x(b,v)
    loss += s(b) * s(b)
}"""
OF_A_PART = """def f(float(B,V) x) -> (loss, s) {
    s(b) +=! x(b,v)
    loss +=! s(b) * 2 where b in 2:B-1
}"""
OWN_GATHER = """def f(float(B,V) x, int64(B) k) -> (loss, s) {
    s(b) +=! x(b,v)
    loss +=! s(k(b)) * s(b)
}"""
HALVES = CROSS_ENTROPY.replace("float(", "bfloat16(")
TYPES = """def f(float(B,V) x) -> (n) {
    s(b) +=! x(b,v)
    n +=! int64(s(b) > 0.0)
}"""
CASES = {
    "cross-entropy": CROSS_ENTROPY,
    "two gathers": CONTRASTIVE,
    "going on": GO_ON,
    "a part": OF_A_PART,
    "a gather of sums": OWN_GATHER,
    "half types": HALVES,
    "types": TYPES,
}


def inputs_of(name: str, rows: int, length: int) -> list[Any]:
    rng = np.random.default_rng(0)
    last = rows if name == "a gather of sums" else length
    label = (rng.integers(0, last, rows), rng.integers(0, last, rows))
    given: dict[str, list[Any]] = {
        "cross-entropy": [(rows, length), label[0]],
        "two gathers": [(rows, length), (rows, length), *label],
        "going on": [(), (rows, length)],
        "a part": [(rows, length)],
        "a gather of sums": [(rows, length), label[0]],
        "half types": [(rows, length), label[0]],
        "types": [(rows, length)],
    }
    return given[name]


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_terms, "LEAST_LENGTH", 64)


@pytest.mark.slow_but("two gathers")
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_right(name: str, check_emulated: CheckAll) -> None:
    sizes = [(5, 1000), (300, 257), (7, 64), (5, 63)]
    check_emulated([(CASES[name], inputs_of(name, *one)) for one in sizes])


@pytest.mark.slow_but("cross-entropy", "two gathers")
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_right_on_a_small_chip(
    name: str, check_emulated: CheckAll, small_chip: Chip
) -> None:
    check_emulated([(CASES[name], inputs_of(name, 5, 301))], gpu=small_chip)


def test_a_block_has_its_term_ready(cuda_unit: MakeUnit) -> None:
    shapes = [getattr(x, "shape", x) for x in inputs_of("cross-entropy", 3000, 4096)]
    unit = cuda_unit(CROSS_ENTROPY, *shapes)
    rows, total = unit.source.launches
    assert "S2_gather0" in rows.label and "S2_term" in rows.label and "S2" in total.label
    # The gather stands before the row is loaded; nobody stores what rows were reduced to.
    text = unit.source.text
    loads = [
        text.index(load) for load in ("labels[b]", "tc_vload<4>(&x[", "= x[", "tc_exp_addend_f32(")
    ]
    assert loads == sorted(loads)
    assert "top[" not in text and "total[" not in text


def test_where_there_is_nothing_to_gain(cuda_unit: MakeUnit) -> None:
    plain = "def f(float(B,V) x) -> (s) {\n    t(b) +=! x(b,v)\n    s +=! t(b)\n}"
    assert "_term" not in cuda_unit(plain, (300, 4096)).source.text
    unit = cuda_unit(CROSS_ENTROPY, (300, 4096), (300,), options=Options(fuse="none"))
    assert "_term" not in unit.source.text
    long = cuda_unit(CROSS_ENTROPY, (64, 1 << 20), (64,))
    assert "_term" not in long.source.text, "no block has all of the row"


COMPUTED_LABELS = """def f(float(B,V) x, int32(B) at) -> (loss, total) {
    total(b) +=! x(b,v)
    k(b) = at(b) + 1
    loss +=! total(b) - x(b, k(b))
}"""


def test_labels_that_are_computed_are_checked_afterwards(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """The check of k would stand behind the rows, and before k is there."""
    unit = cuda_unit(COMPUTED_LABELS, (5, 256), (5,))
    names = [s.name for s in unit.done.plan.scop.statements]
    (check,) = (s for s in unit.done.plan.scop.statements if s.kind is Kind.CHECK)
    assert names.index(check.name) > names.index("S1")
    at = np.array([0, 254, 7, 63, 100], np.int32)
    check_emulated([(COMPUTED_LABELS, [(5, 256), at])])


@pytest.mark.parametrize(
    "text",
    [
        "loss +=! total(b) * (1.0 + x(b, k(b))) where b in 1:3",  # of a part of the rows
        "loss +=! b < 2 ? total(b) * x(b, k(b)) : 0.5 * total(b)",  # where a condition holds
    ],
)
def test_gathers_under_conditions_run_where_they_hold(
    text: str, cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """k of other rows is out of range, and need not be read."""
    source = f"""def f(float(B,V) x, int32(B) k) -> (loss, total) {{
        total(b) +=! x(b,v)
        {text}
    }}"""
    scop = cuda_unit(source, (5, 256), (5,)).done.plan.scop
    rows = [s for s in scop.statements if "_gather" in s.name or "_where" in s.name]
    assert rows and all(s.domain.count_val().to_python() == 2 for s in rows)
    k = np.array([9, 3, 999, -7, 999], np.int32)
    check_emulated([(source, [(5, 256), k if "?" in text else k[[3, 0, 1, 2, 4]]])])


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_gathers_that_never_run_are_not_moved(cuda_unit: MakeUnit) -> None:
    source = """def f(float(B,V) x, int64(B) k) -> (loss, total) {
        total(b) +=! x(b,v)
        loss +=! total(b) + (b > 9 ? x(b, k(b)) : 1.0)
    }"""
    names = [s.name for s in cuda_unit(source, (5, 256), (5,)).done.plan.scop.statements]
    assert "S1_term" in names and not [n for n in names if "_gather" in n or "_where" in n]


def test_a_label_out_of_range_is_reported(cuda_unit: MakeUnit, emulated: Any) -> None:
    (program,) = emulated([cuda_unit(CROSS_ENTROPY, (5, 64), (5,))])
    x, loss = np.ones((5, 64), np.float32), np.zeros((), np.float32)
    assert "99" in str(program.run([x, np.array([0, 5, 99, 2, 1])], [loss]))
    assert program.run([x, np.array([0, 5, 9, 2, 1])], [loss]) is None
