"""The first call at a new size beside calls at a known one, where the code leaves the size open.

    python benchmarks/new_sizes.py [--device cuda]

A softmax of ever more rows of 16, as NumPy arrays and as tensors if PyTorch is installed: the least
time of 300 sizes, of the first call and of the next ones, in microseconds.
"""

import argparse
import time
from collections.abc import Callable
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
LENGTH, KNOWN, SIZES = 16, (8, 9, 10), range(100, 400)


def least_times(make: Callable[[int], Any], settle: Callable[[], None]) -> tuple[float, float]:
    """Return the least time in us of a first call at a size, and of the calls after it."""
    f = tcdsl.define(SOURCE).softmax
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
    return min(first), min(later)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    device = parser.parse_args().device
    kinds: dict[str, Callable[[int], Any]] = {}
    settle: Callable[[], None] = lambda: None  # noqa: E731
    if device == "cpu":
        kinds["NumPy"] = lambda rows: np.ones((rows, LENGTH), np.float32)
    try:
        import torch
    except ImportError:
        pass
    else:
        kinds["PyTorch"] = lambda rows: torch.ones(rows, LENGTH, device=device)
        if device == "cuda":
            settle = torch.cuda.synchronize
    print("| us | first call at a size | known size | ratio |\n|---|---:|---:|---:|")
    for name, make in kinds.items():
        first, later = least_times(make, settle)
        print(f"| {name}, {device} | {first:.1f} | {later:.1f} | {first / later:.1f} |")


if __name__ == "__main__":
    main()
