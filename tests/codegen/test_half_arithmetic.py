"""Operations of halves: what is one, its PTX, and that rounding twice changes nothing."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler

MakeUnit = Callable[..., Any]
CheckAll = Callable[..., None]
OPERATIONS = {"add": "+", "sub": "-", "mul": "*"}
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
SUFFIXES = {"float16": "f16", "bfloat16": "bf16"}


def source_of(value: str, dtype: str, other: str = "", result: str = "") -> str:
    arguments = f"{dtype}(M,N) x, {other or dtype}(M,N) y"
    return f"def f({arguments}) -> ({result or dtype}(M,N) z) {{ z(m,n) = {value} }}"


@pytest.mark.parametrize("dtype", SUFFIXES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_of_two_is_one_function(name: str, dtype: str, cuda_unit: MakeUnit) -> None:
    source = source_of(f"x(m,n) {OPERATIONS[name]} y(m,n)", dtype)
    unit = cuda_unit(source, (64, 96), (64, 96))
    assert f"tc_{name}_{SUFFIXES[dtype]}(" in unit.source.text


@pytest.mark.parametrize(
    ("value", "other", "result"),
    [
        ("x(m,n) + y(m,n) + x(m,n)", "", ""),  # the first sum stays a float32
        ("x(m,n) / y(m,n)", "", ""),
        ("x(m,n) + y(m,n)", "", "float"),
        ("x(m,n) + y(m,n)", "float", ""),
        ("x(m,n) + y(m,n)", "half", ""),
    ],
)
def test_what_is_none(value: str, other: str, result: str, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(source_of(value, "bfloat16", other, result), (64, 96), (64, 96))
    assert "bf16" in unit.source.text
    assert not any(f"tc_{name}_" in unit.source.text for name in OPERATIONS)


@pytest.mark.parametrize("dtype", SUFFIXES)
def test_results(dtype: str, check_emulated: CheckAll) -> None:
    check_emulated([
        (source_of(f"x(m,n) {sign} y(m,n)", dtype), [(37, 24), (37, 24)])
        for sign in OPERATIONS.values()
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY)
def test_rounding_twice_changes_nothing(dtype: str) -> None:
    """Float64 holds a sum of these numbers, and any product, exactly."""
    half = NUMPY[dtype]
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**16, (2, 400_000)).astype(np.uint16)
    near = bits.copy()
    near[1] = (near[1] & 0x80FF) | (near[0] & 0x7F00)  # exponents close to one another
    for own in (bits, near):
        with np.errstate(all="ignore"):
            x, y = own.view(half).astype(np.float64)
            keep = np.isfinite(x) & np.isfinite(y)
            x, y = x[keep], y[keep]
            for exact in (x + y, x - y, x * y):
                # A sum of numbers far apart is not exact in float64, and far from any midpoint.
                normal = np.abs(exact) >= 2.0**-110
                once = exact.astype(half)
                twice = exact.astype(np.float32).astype(half)
                assert np.array_equal(once[normal], twice[normal])


@pytest.mark.skipif(
    bool(why_no_cuda_compiler()), reason=why_no_cuda_compiler() or "there is a compiler"
)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_one_instruction_from_sm_90_on(arch: str) -> None:
    names = [f"tc_{name}_{suffix}" for name in OPERATIONS for suffix in SUFFIXES.values()]
    uses = "".join(f"p[{n}] = {name}(p[8], p[9]);" for n, name in enumerate(names))
    kernel = f'extern "C" __global__ void k(uint16_t *p) {{ {uses} }}'
    ptx = compile_cuda(header_text(parts_for(names)) + kernel, arch, ptx=True).decode()
    for name in OPERATIONS:
        for suffix in SUFFIXES.values():
            assert (f"{name}.rn.{suffix} " in ptx) == (arch == "sm_90")
