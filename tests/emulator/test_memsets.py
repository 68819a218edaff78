"""Memsets between emulated kernels: in order, within bounds, of what may be written."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource, Launch, Memset, Parameter, ParameterKind
from tcdsl.emulator import EmulatedProgram, compile_emulated
from tcdsl.emulator.cxx import find_cxx_compiler, why_no_cxx_compiler
from tcdsl.emulator.sanitized import run_sanitized
from tcdsl.errors import EmulationError
from tcdsl.runtime.c_compiler import build

Emulate = Callable[..., EmulatedProgram]

ADD = """extern "C" __global__ void k(const float *x, float *y) {
  tc_atomic_add_f32(&y[threadIdx.x % 8], x[32 * blockIdx.x + threadIdx.x]);
}"""
Y = Parameter("float *y", ParameterKind.ARRAY, "y")
CONST_X = Parameter("const float *x", ParameterKind.ARRAY, "x", is_read_only=True)
CLEARED = Memset(Y, 4, 0, 8)


@pytest.fixture(scope="module")
def adds(emulate: Emulate) -> EmulatedProgram:
    return emulate(ADD, 4, 32)


@pytest.fixture
def run(adds: EmulatedProgram) -> Callable[..., Any]:
    """``run(launch or None, ...)``: y after these, None being the kernel; at first it is poison."""
    (kernel,) = adds.source.kernels
    whole = adds.source

    def run_(*launches: Memset | None, x: Any = None) -> Any:
        adds.source = replace(whole, launches=tuple(launch or kernel for launch in launches))
        y = np.zeros(8, np.float32)
        try:
            adds.run({"x": np.ones(128, np.float32), "y": y} | (x or {}), written={"y"})
        finally:
            adds.source = whole
        return y

    return run_


def test_it_comes_before_what_follows_and_after_what_was(run: Callable[..., Any]) -> None:
    assert (run(CLEARED, None) == 16).all()
    assert (run(CLEARED, None, None) == 32).all()
    assert (run(CLEARED, None, CLEARED, None) == 16).all()
    assert (run(CLEARED, None, CLEARED) == 0).all()


@pytest.mark.parametrize(
    ("width", "value", "count"),
    [(1, 0x01, 32), (2, 0x3C00, 16), (4, 0xFF800000, 8), (4, 0x3F800000, 8), (4, 1, 5)],
)
def test_any_bits(run: Callable[..., Any], width: int, value: int, count: int) -> None:
    filled = run(CLEARED, replace(CLEARED, width=width, value=value, count=count))
    expected = np.zeros(32, np.uint8)
    expected[: width * count] = list(value.to_bytes(width, "little") * count)
    np.testing.assert_array_equal(filled.view(np.uint8), expected)


@pytest.mark.parametrize(
    ("memset", "what", "kind"),
    [
        (replace(CLEARED, count=9), "out of bounds", "out_of_bounds"),
        (replace(CLEARED, count=2**40), "out of bounds", "out_of_bounds"),
        (Memset(CONST_X, 4, 0, 1), "memset of read-only memory", "read_only"),
    ],
)
def test_what_it_must_not_write(
    run: Callable[..., Any], memset: Memset, what: str, kind: str
) -> None:
    with pytest.raises(EmulationError, match=what) as caught:
        run(memset, None)
    assert caught.value.kind == kind and memset.name in str(caught.value)
    assert (run(CLEARED, None) == 16).all()  # the finding leaves nothing behind


def test_what_it_leaves_out_was_never_written(run: Callable[..., Any]) -> None:
    with pytest.raises(EmulationError, match="never written"):
        run(replace(CLEARED, count=7), None)
    with pytest.raises(EmulationError, match="never written"):
        run(None)


def test_gaps_between_elements_are_not_to_be_written(run: Callable[..., Any]) -> None:
    y = np.zeros(16, np.float32)[::2]
    with pytest.raises(EmulationError, match="between the elements"):
        run(CLEARED, None, x={"y": y})


def test_a_misaligned_memset(emulate: Emulate) -> None:
    text = ADD.replace("float *y", "float *t")
    program = emulate(text.replace("&y", "&t"), 1, 32, workspace_bytes=64, scratch={"t": 2})
    target = Parameter("float *t", ParameterKind.SCRATCH, "t", 2)
    program.source = replace(program.source, launches=(Memset(target, 4, 0, 8),))
    with pytest.raises(EmulationError, match="misaligned memset by 4 bytes"):
        program.run({})


def test_bytes_of_elements_are_told_apart(emulate: Emulate) -> None:
    """Half of an element is not all of it."""
    text = (
        """extern "C" __global__ void k(float *t, float *y) { y[threadIdx.x] = t[threadIdx.x]; }"""
    )
    program = emulate(text, 1, 2, workspace_bytes=64, scratch={"t": 8})
    target = Parameter("float *t", ParameterKind.SCRATCH, "t", 8)
    (kernel,) = program.source.kernels
    y = np.ones(2, np.float32)
    for count, is_whole in ((4, True), (3, False)):
        program.source = replace(program.source, launches=(Memset(target, 2, 0, count), kernel))
        if is_whole:
            program.run({"y": y})
            assert (y == 0).all()
        else:
            with pytest.raises(EmulationError, match="never written"):
                program.run({"y": y})


def test_a_program_of_nothing_but_a_memset() -> None:
    if reason := why_no_cxx_compiler():
        pytest.skip(reason)
    source = CudaSource("", frozenset(), (CLEARED,), 0, ())
    y = np.ones(8, np.float32)
    EmulatedProgram(compile_emulated(source), source).run({"y": y}, written={"y"})
    assert (y == 0).all()


@pytest.mark.slow
def test_under_the_address_sanitizer(adds: EmulatedProgram) -> None:
    words = (*find_cxx_compiler().command, "-fsanitize=address", "probe.cpp", "-o", "probe")
    if isinstance(build({"probe.cpp": b"int main() {}"}, [words], "probe"), str):
        pytest.skip("the C++ compiler has no address sanitizer")
    (kernel,) = adds.source.kernels
    assert isinstance(kernel, Launch)
    given = {"x": np.ones(128, np.float32), "y": np.full(8, np.nan, np.float32)}
    run_sanitized(replace(adds.source, launches=(CLEARED, kernel)), given)
    assert (given["y"] == 16).all()
    beyond = replace(adds.source, launches=(replace(CLEARED, count=9), kernel))
    with pytest.raises(EmulationError, match="a memset beyond the end"):
        run_sanitized(beyond, given)
