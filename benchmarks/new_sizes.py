"""The first call at a new size beside calls at a known one, where the code leaves the size open.

    python benchmarks/new_sizes.py [--device cuda | --device none]

A softmax of ever more rows of 16, as NumPy arrays and as tensors if PyTorch is installed, by the
function and by what it compiles with the size left open: the least time of 176 sizes, of the first
call and of the next ones, in microseconds.  With ``--device none`` the host's half of a call on a
GPU, without a driver: that of the tests takes its place, and kernels do nothing (it needs pytest).
"""

import argparse
import importlib.util
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tcdsl

SOURCE = """
def softmax(float(M, N) x) -> (y) {
    top(m) max=! x(m, n)
    power(m, n) = exp(x(m, n) - top(m))
    total(m) +=! power(m, n)
    y(m, n) = power(m, n) / total(m)
}
"""
LENGTH, KNOWN, SIZES = 16, (68, 69, 70), range(80, 256)  # of one class of sizes on a GPU
OPEN = tcdsl.Options(dynamic_sizes=("M",))
STAND_IN = Path(__file__).resolve().parents[1] / "tests/runtime/cuda/conftest.py"
Make = Callable[[int], Any]


def least_times(f: Callable[[Any], Any], make: Make, settle: Callable[[], None]) -> list[float]:
    """Return the least time in us of a first call of *f* at a size, and of the calls after it."""
    for rows in KNOWN:
        f(make(rows))

    def microseconds(x: Any) -> float:
        settle()
        start = time.perf_counter()
        f(x)
        return 1e6 * (time.perf_counter() - start)

    first, later = [], []
    for rows in SIZES:
        x = make(rows)
        first.append(microseconds(x))
        later += [microseconds(x) for _ in range(5)]
    return [min(first), min(later)]


def kinds_of(device: str) -> dict[str, Make]:
    """Return what makes an argument of so many rows, by library."""
    if device == "none":
        return {"PyCUDA": arrays_of_no_gpu()}
    kinds: dict[str, Make] = {}
    if device == "cpu":
        kinds["NumPy"] = lambda rows: np.ones((rows, LENGTH), np.float32)
    try:
        import torch
    except ImportError:
        return kinds
    kinds["PyTorch"] = lambda rows: torch.ones(rows, LENGTH, device=device)
    return kinds


def arrays_of_no_gpu() -> Make:
    """Put the tests' driver in the place of the GPU's, and return what makes arrays there."""
    import sys

    from tcdsl.executable import cuda as cuda_executable
    from tcdsl.runtime.cuda import libcuda

    spec = importlib.util.spec_from_file_location("stand_in", STAND_IN)
    assert spec is not None and spec.loader is not None
    tests: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    driver = tests.FakeDriver()
    driver.kernels = defaultdict(lambda: lambda values: None)
    driver.n_devices, driver.used = 1, lambda: 0  # else it looks through its memory, each time
    changed: Any = libcuda, cuda_executable
    changed[0].library = lambda: driver
    changed[1].begin_cuda = lambda *args, **more: lambda: b"code"
    changed[1].start_nvrtc = lambda *args: None
    sys.modules.update(tests.fake_pycuda(driver))
    tests.forget()
    pycuda: Any = sys.modules["pycuda.driver"]
    pycuda.Device(0).retain_primary_context().push()
    array: Any = sys.modules["pycuda.gpuarray"].GPUArray  # type: ignore[attr-defined]
    return lambda rows: array((rows, LENGTH), np.dtype("float32"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "none"])
    device = parser.parse_args().device
    settle: Callable[[], None] = lambda: None  # noqa: E731
    if device == "cuda":
        import torch

        settle = torch.cuda.synchronize
    print("| us | first call at a size | known size | ratio |\n|---|---:|---:|---:|")
    for name, make in kinds_of(device).items():
        f = tcdsl.define(SOURCE).softmax
        compiled = tcdsl.define(SOURCE).softmax.compile(make(KNOWN[0]), options=OPEN)
        for what, call in (("function", f), ("compiled", compiled)):
            first, later = least_times(call, make, settle)
            print(f"| {name}, {device}, {what} | {first:.1f} | {later:.1f} | {first / later:.1f} |")


if __name__ == "__main__":
    main()
