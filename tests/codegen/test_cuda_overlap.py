"""Kernels that begin before others end: which may, what they wait for, what comes of it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import Launch, Memset, Overlap, ParameterKind, launch_from_json
from tcdsl.emulator import EmulatedProgram, compile_emulated
from tcdsl.emulator.cxx import why_no_cxx_compiler
from tcdsl.errors import EmulationError
from tcdsl.options import Options

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]
ORDERED, FIRST, LAST = Overlap.ORDERED, Overlap.WAITS_FIRST, Overlap.WAITS_LAST
ATOMIC = Options(cross_block="atomic")
APART = Options(fuse="none")

SUMS, AFTER = "b(j) +=! x(i,j)", "a(i) +=! x(i,j) * b(j)"
ROWS, COLUMNS = "a(i) +=! x(i,j)", "b(j) +=! y(i,j)"
# Statements on x(M,N) and y(M,N), each a kernel of its own if APART, and how these begin.
PROGRAMS: dict[str, tuple[str, str, tuple[Overlap, ...]]] = {
    "one after another": ("a", f"{ROWS}\n b(j) +=! x(i,j) * a(i)\n a(i) += y(i,j) * b(j)",
                          (ORDERED, FIRST, FIRST)),
    "beside each other": ("a, b, c", f"{ROWS}\n {COLUMNS}\n c max=! y(i,j)",
                          (ORDERED, LAST, LAST)),
    "of two, after both": ("a, b, c", f"{ROWS}\n {COLUMNS}\n c(i) +=! a(i) * b(j)",
                           (ORDERED, LAST, FIRST)),
    "beside one that waits": ("a, b, c", f"{SUMS}\n {AFTER}\n c max=! y(i,j)",
                              (ORDERED, FIRST, LAST)),
    "of the first alone": ("a, b, c", f"{SUMS}\n c max=! y(i,j)\n {AFTER}",
                           (ORDERED, LAST, FIRST)),
}  # fmt: skip
SHAPE = (300, 1500)


def source_of(name: str, dtype: str = "float") -> str:
    outputs, statements, _ = PROGRAMS[name]
    return f"def f({dtype}(M,N) x, {dtype}(M,N) y) -> ({outputs}) {{ {statements} }}"


def starts(unit: Any) -> tuple[Overlap, ...]:
    return tuple(launch.overlap for launch in unit.source.kernels)


@pytest.mark.parametrize("name", PROGRAMS)
def test_how_kernels_begin(name: str, cuda_unit: MakeUnit) -> None:
    assert starts(cuda_unit(source_of(name), SHAPE, SHAPE, options=APART)) == PROGRAMS[name][2]


def bodies(unit: Any) -> list[list[str]]:
    """Return the lines of each kernel."""
    found = re.findall(r"(?ms)^    [^\n]*\)\n\{\n(.*?)^\}", unit.source.text)
    assert len(found) == len(unit.source.kernels)
    return [body.splitlines() for body in found]


def before_the_wait(lines: Sequence[str]) -> list[str]:
    (at,) = (n for n, line in enumerate(lines) if "tc_await_kernels();" in line)
    opened = sum(line.count("{") - line.count("}") for line in lines[:at])
    assert opened == 0, "not every thread waits"
    return list(lines[:at])


def declaration(launch: Launch, name: str) -> str:
    return next(p for p in launch.parameters if p.name == name).declaration


def is_const(launch: Launch, name: str) -> bool:
    return declaration(launch, name).startswith("const ")


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_text_says(name: str, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(source_of(name), SHAPE, SHAPE, options=APART)
    followers = [*starts(unit)[1:], ORDERED]
    for lines, overlap, follower in zip(bodies(unit), starts(unit), followers, strict=True):
        waits = ["tc_await_kernels();" in line for line in lines]
        assert sum(waits) == (overlap is not ORDERED)
        assert waits[-1] == (overlap is LAST)
        begins = [n for n, line in enumerate(lines) if "tc_begin_next_kernel();" in line]
        at = waits.index(True) + 1 if overlap is FIRST else 0
        assert begins == ([] if follower is ORDERED else [at])


SOURCES = [
    *((source_of(name), (SHAPE, SHAPE), APART) for name in PROGRAMS),
    ("def f(float(N) g, float b) -> (s, y) { s +=! g(i) * g(i)\n y(i) = g(i) / (s + b) }",
     ((640_000,), ()), Options()),
    ("""def f(float(M,N) x) -> (y) {
        m(i) max=! x(i,j)
        e(i,j) = exp(x(i,j) - m(i))
        s(i) +=! e(i,j)
        y(i,j) = e(i,j) / s(i)
     }""", ((8, 1 << 20),), Options()),
]  # fmt: skip


@pytest.mark.slow_but("0", "2", "4", "5")
@pytest.mark.parametrize("number", range(len(SOURCES)))
def test_nothing_that_others_change_is_touched_before_the_wait(
    number: int, cuda_unit: MakeUnit
) -> None:
    source, shapes, options = SOURCES[number]
    unit = cuda_unit(source, *shapes, options=options)
    n_waits = 0
    for (lines, launch), (_, before) in each_after(bodies(unit), unit.source.kernels):
        if launch.overlap is not FIRST:
            continue
        n_waits += 1
        text = "\n".join(before_the_wait(lines))
        own, theirs = ({p.name for p in x.parameters if p.name} for x in (launch, before))
        for name in own & theirs:
            if not (is_const(launch, name) and is_const(before, name)):
                pointer = re.search(r"\*(?:__restrict__ )?(\w+)$", declaration(launch, name))
                assert pointer is not None
                assert not re.search(rf"\b{pointer[1]}\b", text), f"{name} before the wait"
    assert n_waits == starts(unit).count(FIRST)


def each_after(bodies: Any, launches: Any) -> Any:
    """Yield each kernel but the first, and the one before it."""
    both = list(zip(bodies, launches, strict=True))
    return ((later, earlier) for earlier, later in pairwise(both))


def test_an_array_is_not_the_axis_of_its_name(cuda_unit: MakeUnit) -> None:
    source = "def f(float(N) g, float b) -> (x, y) { x +=! g(i) * g(i)\n y(i) = g(i) / (x + b) }"
    lines = bodies(cuda_unit(source, (640_000,), ()))[1]
    assert "tc_vload<4>(&g[" in "\n".join(before_the_wait(lines))


def test_what_nobody_changes_is_loaded_before_the_wait(cuda_unit: MakeUnit) -> None:
    source, shapes, options = SOURCES[-2]
    lines = bodies(cuda_unit(source, *shapes, options=options))[1]
    assert "tc_vload<4>(&g[" in "\n".join(before_the_wait(lines))


@pytest.mark.slow_but("one after another")
@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str, check_emulated: CheckAll) -> None:
    sizes = [SHAPE, (1, 1), (0, 3), (3, 0), (37, 61)]
    check_emulated([(source_of(name, "int32"), [size, size]) for size in sizes], options=APART)


def test_a_load_that_waits_is_of_no_restricted_pointer(cuda_unit: MakeUnit) -> None:
    """The CUDA compiler would move it across the wait; what the kernel before only read, it may."""
    source = """def f(float(M,N) x, float(M,N) p) -> (s, float(M,N) p) {
        s(j) +=! p(i,j) * x(i,j)
        p(i,j) = p(i,j) * s(j) + x(i,j)
    }"""
    unit = cuda_unit(source, (50_000, 1500), (50_000, 1500))
    _, second = unit.source.kernels
    assert second.overlap is FIRST
    declared = {p.name: p.declaration for p in second.parameters}
    is_restricted = {name: "__restrict__" in text for name, text in declared.items()}
    assert is_restricted == {"x": True, "p": True, "s": False}


def test_what_an_older_kernel_stored_is_awaited_too(cuda_unit: MakeUnit) -> None:
    """The kernel between has waited for it; but only one's own wait is sure to show it."""
    source = """def f(float(M,N) x, float(M,N) y) -> (a, b, c, d) {
        b(j) +=! x(i,j)
        a(i) +=! x(i,j) * b(j)
        c max=! y(i,j)
        d(i) +=! y(i,j) * b(j)
    }"""
    unit = cuda_unit(source, SHAPE, SHAPE, options=APART)
    assert starts(unit) == (ORDERED, FIRST, LAST, FIRST)
    (text,) = (p.declaration for p in unit.source.kernels[3].parameters if p.name == "b")
    assert "__restrict__" not in text


def test_a_kernel_behind_one_that_waits_last_sees_both(cuda_unit: MakeUnit) -> None:
    """The third writes what the first may still read: that the second waits does not order it."""
    source = """def f(float(M,N) x, float(M,N) y, float(N) p) -> (a, c, float(N) p) {
        a(i) +=! x(i,j) * p(j)
        c max=! y(i,j)
        p(j) +=! x(i,j)
    }"""
    unit = cuda_unit(source, SHAPE, SHAPE, SHAPE[1:])
    third = unit.source.kernels[-1]
    assert starts(unit) == (ORDERED, LAST, FIRST) and not is_const(third, "p")
    assert not any(re.search(r"\bp\[", line) for line in before_the_wait(bodies(unit)[-1]))


def test_tickets_of_kernels_that_run_at_once_are_apart(cuda_unit: MakeUnit) -> None:
    source = "def f(float(N) x, float(N) y) -> (a, b) { a +=! x(i)\n b max=! y(i) }"
    unit = cuda_unit(source, (1_000_000,), (1_000_000,))
    assert starts(unit) == (ORDERED, LAST)
    places = [
        p.offset
        for launch in unit.source.kernels
        for p in launch.parameters
        if p.kind is ParameterKind.TICKETS
    ]
    assert len(places) == len(set(places)) == 2


def test_a_memset_waits_for_all(cuda_unit: MakeUnit) -> None:
    source = """def f(float(M,N) x, float(M,N) y) -> (s, a) {
        s(i) +=! x(i,j)
        a(j) +=! y(i,j)
    }"""
    launches = cuda_unit(source, (200_000, 9), (200_000, 9), options=ATOMIC).source.launches
    for before, launch in pairwise(launches):
        assert (
            isinstance(launch, Memset)
            or not isinstance(before, Memset)
            or (launch.overlap is ORDERED)
        )
    assert any(isinstance(launch, Memset) for launch in launches)


def test_it_survives_json(cuda_unit: MakeUnit) -> None:
    for launch in cuda_unit(
        source_of("of two, after both"), SHAPE, SHAPE, options=APART
    ).source.launches:
        assert launch_from_json(launch.to_json()) == launch


@pytest.mark.parametrize("name", ["one after another", "of the first alone"])
def test_the_emulator_finds_a_kernel_that_does_not_wait(name: str, cuda_unit: MakeUnit) -> None:
    if reason := why_no_cxx_compiler():
        pytest.skip(reason)
    unit = cuda_unit(source_of(name, "int32"), SHAPE, SHAPE, options=APART)
    launches: Sequence[Any] = [
        replace(launch, overlap=LAST) if number and isinstance(launch, Launch) else launch
        for number, launch in enumerate(unit.source.launches)
    ]
    wrong = replace(unit.source, launches=tuple(launches))
    program = EmulatedProgram(compile_emulated(wrong), wrong)
    x = np.ones(SHAPE, np.int32)
    shapes = {"a": SHAPE[:1], "b": SHAPE[1:], "c": ()}
    outputs = {n: np.full(shapes[n], -1, np.int32) for n in PROGRAMS[name][0].split(", ")}
    with pytest.raises(EmulationError, match="never written"):
        for seed in range(20):
            program.run({"x": x, "y": x, **outputs}, written=outputs.keys(), seed=seed)
