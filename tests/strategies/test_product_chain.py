"""Chains of small products in one kernel: decisions, and right results at sizes nothing divides."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel import estimate
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.library import load
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.strategies.templates import product_chain
from tcdsl.strategies.templates.product_chain import NAME
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.programs import arrays_for
from tests.strategies.test_templates import problems_of

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

KRONECKER, MLP, WAVENET = load("kronecker3"), load("mlp3"), load("wavenet")
HALF = KRONECKER.replace("float", "bfloat16")
TWO = """def f(float(B,N) x, float(O,N) V, float(P,O) W) -> (y) {
    h(b,o) +=! x(b,n) * V(o,n)
    y(b,p) +=! h(b,o) * W(p,o)
}"""
# What lies between is a result too; the second product reads it the other way round.
SHOWN = """def f(float(B,N,M) x, float(M,O) V) -> (h, y) {
    h(b,n,o) +=! x(b,n,m) * V(m,o)
    y(b,o,p) +=! h(b,n,o) * x(b,n,p)
}"""


def kronecker_shapes(m: int, n: tuple[int, ...], d: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [*zip(d, n, strict=True), (m, *n)]


def mlp_shapes(b: int, n: int, o: int, p: int, q: int) -> list[tuple[int, ...]]:
    return [(b, n), (o, n), (o,), (p, o), (p,), (q, p), (q,)]


def wavenet_shapes(b: int, r: int, t: int, d: int, s: int, taps: int) -> list[tuple[int, ...]]:
    return [(b, r, t), (d, r, 2), (d,), (d, r, 2), (d,), (r, d), (r,), (s, d), (s,), (taps,)]


def forced(kernel: str, **config: Any) -> Options:
    one = {"kernel": kernel, "template": NAME, **config}
    return Options(choices=json.dumps({
        "format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [one],
    }))  # fmt: skip


def test_a_first_product_of_its_own_may_be_as_fast(cuda_unit: MakeUnit) -> None:
    """On an H200 38 us, in one kernel 37; with three factors of 64 168 us, before 311."""
    for n in (32, 64):
        made = cuda_unit(KRONECKER, *kronecker_shapes(256, (n, n, n), (16, 16, 16)))
        *before, last = made.done.plan.kernels
        assert last.template == NAME and len(before) <= 1


@pytest.mark.parametrize(("source", "n"), [(KRONECKER, 16), (HALF, 16), (HALF, 32)])
def test_kronecker_s_factors_are_one_kernel(source: str, n: int, cuda_unit: MakeUnit) -> None:
    shapes = kronecker_shapes(256, (n, n, n), (16, 16, 16))
    made = cuda_unit(source, *shapes)
    (kernel,) = made.done.plan.kernels
    assert kernel.template == NAME
    spaces = {p.array: (p.space, p.is_dynamic) for p in made.done.plan.placements.values()}
    assert {"XW1", "XW2"} <= set(spaces)


def test_statements_that_share_no_parallel_axis_are_no_chain(cuda_unit: MakeUnit) -> None:
    """Each value of y needs all of h: no block has it."""
    source = """def f(float(N,M) x, float(M,O) V, float(N,P) W) -> (y) {
        h(n,o) +=! x(n,m) * V(m,o)
        y(o,p) +=! h(n,o) * W(n,p)
    }"""
    made = cuda_unit(source, (512, 64), (64, 64), (512, 64))
    assert all(kernel.template != NAME for kernel in made.done.plan.kernels)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float", "bfloat16", "double"])
def test_kronecker_is_right_at_sizes_that_nothing_divides(
    dtype: str, check_emulated: CheckAll
) -> None:
    shapes = [
        kronecker_shapes(2, (5, 7, 3), (3, 2, 5)),
        kronecker_shapes(3, (17, 13, 24), (16, 11, 8)),
        kronecker_shapes(3, (16, 16, 16), (16, 16, 16)),
        kronecker_shapes(2, (33, 32, 32), (16, 16, 16)),  # more than 48 KB lie between
        kronecker_shapes(1, (1, 1, 1), (1, 1, 1)),
        kronecker_shapes(0, (5, 7, 3), (3, 2, 5)),
        kronecker_shapes(2, (5, 0, 3), (3, 2, 5)),
    ]
    source = KRONECKER.replace("float", dtype)
    check_emulated([(source, one) for one in shapes])


@pytest.mark.slow
def test_small_wavenets_are_right(check_emulated: CheckAll) -> None:
    """Guarded taps, sums of two products, and results that others of the kernel read."""
    shapes = [wavenet_shapes(1, 8, 37, 9, 17, 3), wavenet_shapes(2, 5, 64, 8, 16, 1)]
    check_emulated([(source, one) for source in (WAVENET, WAVENET.replace("float", "half"))
                    for one in shapes])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (MLP, mlp_shapes(7, 13, 11, 5, 3)),
        (MLP, mlp_shapes(33, 128, 64, 32, 2)),
        (TWO, [(33, 32), (64, 32), (16, 64)]),
        (KRONECKER, kronecker_shapes(3, (16, 8, 16), (8, 16, 16))),
    ],
    ids=["odd", "mlp3", "two", "kronecker3"],
)
def test_other_configurations_are_right(
    source: str, shapes: list[tuple[int, ...]], cuda_unit: MakeUnit, emulated: Callable[..., Any]
) -> None:
    unit = cuda_unit(source, *shapes)
    (weighed,) = unit.done.plan.weighed
    every = [c["config"] for c in weighed.candidates() if c["template"] == NAME and "config" in c]
    assert len(every) > 6
    copied = [config for config in every if config["is_copied"]]  # factors in shared memory
    some = (*every[:: len(every) // 6], *copied[:: max(1, len(copied) // 3)])
    asked = [forced(weighed.kernel, **config) for config in some]
    units = [cuda_unit(source, *shapes, options=options) for options in asked]
    inputs = arrays_for(unit.comprehension, shapes, 0)
    for program in emulated(units):
        check(program, *inputs)


@pytest.mark.slow
def test_what_lies_between_may_be_a_result(check_emulated: CheckAll) -> None:
    shapes = [[(5, 6, 7), (7, 9)], [(3, 16, 8), (8, 16)], [(2, 1, 5), (5, 1)]]
    check_emulated([(SHOWN, one) for one in shapes])


LATER = TWO.replace("W(p,o)", "W(p,o) where b in 3:B")


@pytest.mark.parametrize("source", [LATER, LATER.replace("V(o,n)", "V(o,n) where b in 3:B")])
def test_members_may_begin_at_other_values(
    source: str, cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """A block has the same b of all members: 0 to 7, of which y has 3 to 7; or 3 to 10."""
    shapes = [(19, 32), (64, 32), (16, 64)]
    (weighed,) = cuda_unit(source, *shapes).done.plan.weighed
    every = (c.get("config") for c in weighed.candidates() if c["template"] == NAME)
    config = next(own for own in every if own and tuple(own["sizes"]) == (8,))
    options = forced(weighed.kernel, **config)
    (kernel,) = cuda_unit(source, *shapes, options=options).done.plan.kernels
    assert kernel.template == NAME
    check_emulated([(source, shapes)], options=options)


def test_members_of_four_dimensions(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    """Threads along three of them, one value of the fourth after another."""
    shapes = kronecker_shapes(5, (4, 7, 3), (3, 2, 5))
    (weighed,) = cuda_unit(KRONECKER, *shapes).done.plan.weighed
    every = (c.get("config") for c in weighed.candidates() if c["template"] == NAME)
    config = next(own for own in every if own and tuple(own["sizes"]) == (2, 5))
    assert config["threads_z"] > 1
    check_emulated([(KRONECKER, shapes)], options=forced(weighed.kernel, **config))


def test_factors_that_are_copied(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    shapes = [(33, 32), (64, 32), (16, 64)]
    (weighed,) = cuda_unit(TWO, *shapes).done.plan.weighed
    every = (c.get("config") for c in weighed.candidates() if c["template"] == NAME)
    config = next(own for own in every if own and own["is_copied"])
    check_emulated([(TWO, shapes)], options=forced(weighed.kernel, **config))


@pytest.mark.slow_but("D0")
@pytest.mark.parametrize("opened", ["D0", "D1", "D2"])
def test_sums_have_no_guards_of_an_open_axis(opened: str) -> None:
    """What is beyond the size reads the last row that there is, and is not stored."""
    f, options = tcdsl.define(KRONECKER).kronecker3, Options(dynamic_sizes=(opened,))
    for size in (16, 7, 2):
        shapes = [(size if f"D{d}" == opened else 16, 16) for d in range(3)]
        shapes.append((5, 16, 16, 16))
        args = [values(FLOAT32, shape, "real", n) for n, shape in enumerate(shapes)]
        exe = f.compile(*args, target="emulate", options=options)
        assert exe.opened == (opened,)
        assert [k["template"] for k in exe.choices["kernels"]] == [NAME]
        assert ("tc_min_i32" in exe.source) == (opened != "D2")  # along d2 there are blocks
        tcdsl.testing.check(f, *args, targets="emulate", options=options)


def test_sums_of_one_size_are_left_as_they_are(cuda_unit: MakeUnit) -> None:
    """Reads under conditions would be taken for reads of all that a sum's loops reach."""
    assert not cuda_unit(WAVENET, *wavenet_shapes(1, 8, 37, 9, 17, 3)).done.is_fallback


@pytest.mark.parametrize("b", [7, 100, 4096])
@pytest.mark.parametrize("o", [8, 33, 64])
def test_bounds_change_nothing_but_how_many_are_estimated(
    b: int, o: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = problems_of(TWO, [(b, 32), (o, 32), (16, o)])
    both = replace(first.group, members=("S0", "S1"), axes=({"S0": 0, "S1": 0},))
    problem = replace(first, group=both)
    ranked = product_chain._ranked(problem, is_copied=False)
    estimated, exact = [], estimate.estimate

    def counted(*arguments: Any) -> Any:
        estimated.append(1)
        return exact(*arguments)

    monkeypatch.setattr(estimate, "estimate", counted)
    assert next(product_chain.space(problem)) == ranked[0]
    assert len(estimated) < len(ranked) / 4
    assert list(product_chain.space(problem))[: product_chain.LISTED] == ranked[:16]
