"""Comparisons of sums that are stored: where they are, what reads them, and that they are right."""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.plan import search
from tcdsl.plan.rewrites import REWRITES
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.stored_conditions import why_not_stored_first, with_stored_condition
from tcdsl.stages import print_scop
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]

LAYER = """def f(float(B,I) x, float(I,H) w, float(H) c, float(B,H) g) -> (y, d, s) {
    h(b,n) +=! x(b,i) * w(i,n)
    y(b,n) = relu(h(b,n) + c(n))
    d(j,k) = h(j,k) + c(k) > 0.0 ? g(j,k) : 0.0
    s(n) +=! h(b,n) + c(n) > 0.0 ? g(b,n) : 0.0
}"""
SHAPES = (40, 24), (24, 32), (32,), (40, 32)
NOT_ALONE = "no statement reads its comparison alone"


def test_statements(lower: Lower, golden: Callable[[str, str], None]) -> None:
    scop = with_stored_condition(lower(LAYER, *SHAPES), "h")
    golden("stored_conditions", print_scop(scop))
    reads = {s.name: [read.array for read in s.reads] for s in scop.statements if s.value}
    assert [name for name, arrays in reads.items() if "h" in arrays] == ["h.condition_value", "S1"]
    assert reads["S2"] == reads["S3"] == ["h.condition", "g"]
    assert why_not_stored_first(scop, "h") == NOT_ALONE


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(y, d, s)", "(y, d, s, h)", "it is no temporary"),
        ("+=! x(b,i) * w(i,n)", "= x(b,0) * w(0,n) where b in 0:B, n in 0:H", "it is no sum"),
        (" > 0.0 ? ", " > g(0,0) ? ", NOT_ALONE),
        (" > 0.0 ? ", " > h(0,0) ? ", NOT_ALONE),
        ("? g(j,k) : 0.0", "? h(j,k) : 0.0", None),  # the sum reads it alone
        ("+ c(k) > 0.0 ? g(j,k) : 0.0", "+ c(k) > 0.0 && k > 3 ? g(j,k) : 0.0", None),
    ],
)
def test_others_are_computed_again(old: str, new: str, reason: str | None, lower: Lower) -> None:
    scop = lower(LAYER.replace(old, new), *SHAPES)
    assert why_not_stored_first(scop, "h") == reason


def test_sums_that_are_read_in_any_case_are_compared_again(lower: Lower) -> None:
    source = LAYER.replace("? g(j,k) : 0.0", "? h(j,k) : 0.0").replace("? g(b,n)", "? h(b,n)")
    assert why_not_stored_first(lower(source, *SHAPES), "h") == NOT_ALONE


def test_comparisons_that_differ_are_two(lower: Lower) -> None:
    """The first is stored: of the others each asks for the sums."""
    source = LAYER.replace("s(n) +=! h(b,n) + c(n) > 0.0", "s(n) +=! h(b,n) + c(n) > 1.0")
    scop = with_stored_condition(lower(source, *SHAPES), "h")
    reads = {s.name: [read.array for read in s.reads] for s in scop.statements if s.value}
    assert "h.condition" in reads["S2"] and "h" in reads["S3"]
    assert why_not_stored_first(scop, "h") is None


def test_inputs_have_elements_for_all_of_the_sums(lower: Lower) -> None:
    source = LAYER.replace("float(B,I) x, float(I,H)", "float(B,I) x, float(3) e, float(I,H)")
    source = source.replace("h(j,k) + c(k) >", "h(j,k) + e(k) >").replace(
        "g(j,k) : 0.0", "g(j,k) : 0.0 where j in 0:B, k in 0:3"
    )
    source = source.replace("h(b,n) + c(n) > 0.0 ?", "h(b,n) > g(b,n) * h(b,n) ?")
    scop = lower(source.replace("(y, d, s)", "(y, d)").partition("    s(n)")[0] + "}",
                 SHAPES[0], (3,), *SHAPES[1:])  # fmt: skip
    assert why_not_stored_first(scop, "h") == NOT_ALONE


def test_a_comparison_with_other_results(lower: Lower) -> None:
    """What is computed may not be there for all elements, or not yet."""
    source = LAYER.replace("y(b,n) =", "t(n) = 2.0 * c(n)  y(b,n) =").replace(
        "+ c(n) >", "+ t(n) >"
    )
    scop = lower(source.replace("+ c(k) >", "+ t(k) >"), *SHAPES)
    assert why_not_stored_first(scop, "h") == NOT_ALONE


@pytest.mark.parametrize(
    "shapes", [SHAPES, ((3, 8), (8, 5), (5,), (3, 5)), ((0, 4), (4, 3), (3,), (0, 3))]
)
def test_results(
    shapes: Any, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "WORTH", 1e9)
    own = tuple(one for one in REWRITES if one.name == "a comparison that is stored")
    monkeypatch.setattr(search, "REWRITES", own)
    unit = cuda_unit(LAYER, *shapes)
    assert ("condition" in unit.source.text) == all(map(all, shapes)) and not unit.done.is_fallback
    (program,) = emulated([unit])
    types = [unit.comprehension.tensors[name].dtype for name in unit.comprehension.inputs]
    check(
        program, *(values(*of, "real", n) for n, of in enumerate(zip(types, shapes, strict=True)))
    )


def test_a_layers_derivative_stores_no_sums_in_float32(cuda_unit: MakeUnit) -> None:
    source = """def f(half(B,I) x, half(I,H) w, half(H) c, half(B,O) g, half(H,O) v)
            -> (half(B,H) a, half(B,H) d) {
        h(b,n) +=! float32(x(b,i)) * float32(w(i,n))
        a(b,n) = relu(h(b,n) + c(n))
        e(b,n) +=! float32(g(b,o)) * float32(v(n,o))
        d(b,n) = h(b,n) + c(n) > 0.0 ? e(b,n) : 0.0
    }"""
    shapes = (4096, 1024), (1024, 4096), (4096,), (4096, 1024), (4096, 1024)
    unit = cuda_unit(source, *shapes)
    assert [tried.rewrite for tried in unit.done.plan.tried if "us become" in tried.result] == [
        "a comparison that is stored"
    ]
    assert "float *u0_h" not in unit.source.text and "uint8_t *u0_h_condition" in unit.source.text
