"""Calls of cuBLASLt beside torch.mm and our own kernels, and what the cost model says of both.

    python benchmarks/library_calls.py                       needs a GPU and PyTorch, some 30 s
    python benchmarks/library_calls.py bfloat16:4096x4096x4096 float32:777x1555x3001

A line a product C(m,n) = A(m,k) B(k,n): microseconds of a bound call of the library, of the host
for it, of torch.mm and of our kernel, medians of three rounds of calls back to back; whether the
library's results are those of torch.mm bit for bit; the times predicted of the call and the kernel.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import tcdsl
from tcdsl.codegen.cuda.source import LibraryCall
from tcdsl.costmodel.matrix_products import estimated
from tcdsl.options import Options
from tcdsl.runtime.cuda.device import primary_context

PRODUCTS = (
    "bfloat16:4096x4096x4096", "float32:4096x4096x4096", "bfloat16:8192x8192x8192",
    "bfloat16:1024x1024x1024", "float32:1024x1024x1024", "bfloat16:256x256x256",
    "float16:2048x2048x2048", "float32:2048x2048x2048", "bfloat16:96x8192x8192",
    "bfloat16:64x96x200000", "bfloat16:777x1555x3001", "float64:2048x2048x2048",
)  # fmt: skip
TEXT = "def f({t}(M,K) A, {t}(K,N) B) -> ({t}(M,N) C) {{ C(m,n) +=! A(m,k) * B(k,n){by} }}"
ROUNDS, SECONDS, MOST_CALLS = 3, 0.2, 300


def microseconds(call: Callable[[], object]) -> float:
    """Return the median time of *call* on the GPU, of many that follow one another."""
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)

    def timed(count: int) -> float:
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / count

    timed(3)
    count = int(min(MOST_CALLS, max(3, SECONDS * 1e6 / timed(1))))
    return statistics.median(timed(count) for _ in range(ROUNDS))


def host_microseconds(call: Callable[[], object], count: int = 100) -> float:
    """Return how long the host takes for *call*, which does not wait for the GPU."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return 1e6 * taken / count


def line(product: str) -> str:
    """Return the times of *product*, "type:MxNxK"."""
    name, _, sizes = product.partition(":")
    m, n, k = map(int, sizes.split("x"))
    dtype = getattr(torch, name)
    left, right = (torch.randn(s, device="cuda").to(dtype) for s in ((m, k), (k, n)))
    result = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
    library = compiled(TEXT.format(t=name, by=" <=> cublas(A, B)"), left, right)
    call = library.bind(left, right, out=result)
    own = compiled(TEXT.format(t=name, by=""), left, right, options=Options(libraries=False))
    kernel = own.bind(left, right)
    call()
    is_same = torch.equal(result, left @ right)
    (made,) = [s for s in library.program.manifest.launches if isinstance(s, LibraryCall)]
    chip = primary_context().gpu
    predicted = [
        f"{1e6 * estimated(made.product, chip).seconds:.1f}",
        *(f"{c['predicted_us']:.1f}" for c in own.candidates if c.get("is_chosen")),
    ]
    times = [
        microseconds(call), host_microseconds(call),
        microseconds(lambda: torch.mm(left, right, out=result)), microseconds(kernel),
    ]  # fmt: skip
    shown = "".join(f"{t:>9.1f}" for t in times)
    return f"{product:<26}{shown}  {'same' if is_same else 'other'} bits  {' '.join(predicted)}"


def compiled(source: str, *arrays: Any, options: Options | None = None) -> Any:
    return tcdsl.define(source).f.compile(*arrays, options=options)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("products", nargs="*", default=PRODUCTS, metavar="TYPE:MxNxK")
    print(f"{'':<26}{'call':>9}{'host':>9}{'torch':>9}{'own':>9}  predicted: call, own")
    for product in parser.parse_args().products:
        print(line(product), flush=True)


if __name__ == "__main__":
    main()
