"""Mean and squares in one pass: which programs have it, what it means, and how accurate it is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel import grouped_columns as costs
from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.grouped_columns import why_in_moments
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.options import Options
from tcdsl.rewrites.comprehension import chunk_moments
from tcdsl.rewrites.comprehension.chunk_moments import in_moments
from tcdsl.testing.random_inputs import values
from tests.rewrites.comprehension.test_coalescing import Shapes, analysed
from tests.rewrites.comprehension.test_grouped_columns import NORM, by_columns

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

COLUMNS = """def f(float(P,C) x) -> (mean, var) {
    mean(c) +=! x(p,c)
    mean(c) = mean(c) / P
    var(c) +=! (x(p,c) - mean(c)) * (x(p,c) - mean(c))
}"""
PROGRAMS: dict[str, tuple[str, Shapes]] = {
    "columns": (COLUMNS, [(24, 5)]),
    "a norm of groups": (NORM, [(2, 24, 3, 2), (3, 2), (2, 3), ()]),
    "about anything": (
        "def f(float(P,C) x, float(C) u) -> (s, v) { s(c) +=! x(p,c)\n"
        " v(d) +=! (x(q,d) - u(d)) * (x(q,d) - u(d)) }", [(24, 5), (5,)],
    ),
}  # fmt: skip
KEPT: dict[str, str] = {
    "no sum of the same": "s(c) +=! x(p,c) * 2.0\n v(c) +=! (x(p,c) - s(c)) * (x(p,c) - s(c))",
    "another range":
        "s(c) +=! x(p,c) where p in 0:P-1\n v(c) +=! (x(p,c) - s(c)) * (x(p,c) - s(c))",
    "two differences": "s(c) +=! x(p,c)\n v(c) +=! (x(p,c) - s(c)) * (x(p,c) - 1.0)",
    "what depends on p": "s(c) +=! x(p,c)\n v(c) +=! (x(p,c) - w(p)) * (x(p,c) - w(p))",
    "a maximum": "s(c) max=! x(p,c)\n v(c) +=! (x(p,c) - s(c)) * (x(p,c) - s(c))",
    "what changes":
        "t(p,c) = x(p,c)\n s(c) +=! t(p,c)\n v(c) +=! (t(p,c) - s(c)) * (t(p,c) - s(c))",
}  # fmt: skip


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_moments, "LEAST", 2)


def made(source: str, shapes: Shapes) -> tuple[Comprehension, Specialisation]:
    return in_moments(*by_columns(source, shapes), lambda _: "it is a test")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", ["whole", "normal"])
def test_they_mean_the_same(name: str, kind: Any) -> None:
    source, shapes = PROGRAMS[name]
    c, special = analysed(source, shapes)
    new, own = made(source, shapes)
    assert any(s.name.endswith("_squares") for s in new.statements)
    inputs: dict[str, Any] = {
        n: values(c.tensors[n].dtype, shape, "whole", 7)
        for n, shape in zip(c.inputs, shapes, strict=True)
    }
    if kind == "normal":
        generator = np.random.default_rng(5)
        inputs["x"] = (generator.normal(size=shapes[0]) + 1000).astype(np.float32)
    before, after = evaluate(c, special, inputs), evaluate(new, own, inputs)
    for n in c.outputs:  # of a variance of columns about 1000 few digits are left in either
        close = {"rtol": 2e-3} if kind == "normal" else {"rtol": 1e-6, "atol": 1e-6}
        np.testing.assert_allclose(before[n], after[n], **close)


def test_whole_numbers_are_exact() -> None:
    """0 and 2 by turns, in chunks of three: about their means no chunk would be."""
    c, special = analysed(COLUMNS, [(36, 2)])
    new, own = made(COLUMNS, [(36, 2)])
    x = np.tile(np.float32([[0], [2]]), (18, 2))
    before, after = evaluate(c, special, {"x": x}), evaluate(new, own, {"x": x})
    for n in c.outputs:
        np.testing.assert_array_equal(before[n], after[n])


def test_chunks_are_no_longer_than_errors_allow() -> None:
    values_ = range(4096)
    assert chunk_moments._length(values_, 1) == 64
    assert chunk_moments._length(values_, 10) == 128
    assert chunk_moments._length(range(4099), 1) is None  # a prime
    assert chunk_moments._length(range(1, 4097), 1) is None


@pytest.mark.parametrize("name", KEPT)
def test_others_stay_as_they_are(name: str) -> None:
    source = f"def f(float(P,C) x, float(P) w) -> (s, v) {{ {KEPT[name]} }}"
    c, _ = made(source, [(24, 5), (24,)])
    assert not any(s.name.endswith("_squares") for s in c.statements)


def test_only_long_passes_are_worth_it() -> None:
    chip = load_chip("h200")
    assert why_in_moments(chip, 42 << 20) == f"a pass over {42 << 20} bytes"
    assert why_in_moments(chip, 1 << 20) is None


@pytest.fixture
def every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take columns and moments whatever launches cost."""
    monkeypatch.setattr(costs, "LAUNCHES", -1)
    monkeypatch.setattr(costs, "MOMENTS_LAUNCHES", -1)


@pytest.mark.usefixtures("every_pass")
def test_it_is_part_of_the_pipeline_for_a_gpu(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(NORM, (8, 4096, 32, 10), (32, 10), (8, 32), ())
    assert "S0_part_squares" in unit.done.stages["coalesced"]
    pairwise = cuda_unit(NORM, (8, 4096, 32, 10), (32, 10), (8, 32), (),
                         options=Options(coalesce=False))  # fmt: skip
    assert "_squares" not in pairwise.done.stages["coalesced"]


@pytest.mark.slow
@pytest.mark.usefixtures("every_pass")
@pytest.mark.parametrize("dtype", ["float", "bfloat16", "double"])
def test_the_results_are_right(dtype: str, check_emulated: CheckAll) -> None:
    source = NORM.replace("scale(n,g)", "scale(n,g)" if dtype != "bfloat16" else "eps")
    source = source.replace("float(N,P,G,D)", f"{dtype}(N,P,G,D)")
    sizes = [(1, 2, 3, 2), (2, 131, 5, 3), (3, 64, 8, 4), (2, 96, 1, 6), (2, 4096, 2, 10)]
    check_emulated([(source, [s, s[2:], (s[0], s[2]), ()]) for s in sizes])
    whole = np.tile(np.float32([[0], [2]]), (48, 12)).reshape(1, 96, 4, 3)
    if dtype == "float":
        check_emulated([(source, [whole, (4, 3), (1, 4), ()])])
