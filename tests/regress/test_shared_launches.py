"""Launches that kernels share: choices that their program refused, or that were not followed."""

from typing import Any

import pytest

import tcdsl
from tcdsl.errors import OptionError
from tcdsl.testing import check
from tests.programs import arrays_for, comprehension_of

SUMS = """def f(float(M) x, float(N) y, float(M,N) z) -> (a, b, c, d) {
    a +=! x(m)  b +=! y(n)  c(n) +=! z(m,n)  d(m) +=! z(m,n)
}"""
FOUR = """def f(float(A) p, float(B) q, float(C) r, float(D) s) -> (a, b, c, d) {
    a(i) = p(i) + 1.0  b(i) = q(i) * 2.0  c(i) = r(i) * 3.0  d(i) = s(i) * 4.0
}"""
THREE = """def f(float(A) p, float(B) q, float(C) r) -> (a, b, c) {
    a(i) = p(i) + 1.0  b(i) = q(i) * 2.0  c(i) = r(i) * 3.0
}"""
CHAIN = """def f(float(M) x, float(M) y) -> (a, b, c, d) {
    a(m) = x(m) + 1.0  b(m) = y(m) * 2.0
    c(m) = a(M - 1 - m) * 3.0  d(m) = c(M - 1 - m) + b(m)
}"""


def inputs(source: str, *shapes: tuple[int, ...]) -> list[Any]:
    return arrays_for(comprehension_of(source), shapes, 1)


def compiled(source: str, *shapes: tuple[int, ...], **options: Any) -> Any:
    f = tcdsl.define(source)["f"]
    return f.compile(*inputs(source, *shapes), target="emulate", **options)


def asked(*kernels: tuple[str, str]) -> dict[str, Any]:
    listed = [{"kernel": name, "template": template} for name, template in kernels]
    return {"format": "tcdsl choices", "version": 1, "kernels": listed}


def launches(exe: Any) -> list[str]:
    return [one["kernel"] for one in exe.choices["kernels"] if one["template"] == "packed"]


@pytest.mark.slow_but("source1-shapes1")
@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (SUMS, [(3,), (4,), (3, 4)]),
        (FOUR, [(4000,), (4000,), (33_000,), (64,)]),
        (THREE, [(1000,), (1000,), (1000,)]),
    ],
)
def test_a_programs_own_choices_make_it_again(source: str, shapes: list[tuple[int, ...]]) -> None:
    exe = compiled(source, *shapes)
    assert launches(exe), "something shares a launch"
    again = compiled(source, *shapes, choices=exe.choices)
    assert again.choices == exe.choices and again.source == exe.source
    check(tcdsl.define(source)["f"], *inputs(source, *shapes), targets=("emulate",))


def test_what_is_kept_separate_stays_so_among_others() -> None:
    kept = asked(("S0 and S1", "separate"))
    exe = compiled(THREE, (1000,), (1000,), (1000,), choices=kept)
    assert launches(exe) == ["S0 and S2"]
    assert compiled(THREE, (1000,), (1000,), (1000,), choices=exe.choices).choices == exe.choices


def test_what_is_asked_for_does_not_grow() -> None:
    exe = compiled(THREE, (1000,), (1000,), (1000,), choices=asked(("S0 and S1", "packed")))
    assert launches(exe) == ["S0 and S1"] and len(exe.kernels) == 2


@pytest.mark.parametrize(
    ("name", "template", "why"),
    [
        ("S1 and S0", "packed", "S0 comes first"),
        ("S0 and S0", "packed", "names a kernel twice"),
        ("S0 and S1 and S2", "packed", "S2 depends on S0"),
        ("S0 then S1 then S3", "grid_phases", "another kernel runs between them"),
    ],
)
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_launches_that_cannot_be(name: str, template: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        compiled(CHAIN, (500,), (500,), options=tcdsl.Options(
            fuse="none", choices=asked((name, template))
        ))  # fmt: skip
