"""The overhead of a tcdsl.torch operator beside a bare torch.library.custom_op: us for a call.

    python benchmarks/torch_operator.py [--device cuda]

Both add two vectors of 16 elements, so that time is overhead.  The bare operator's kernel is
``torch.add``.  Interleaved; the least of the rounds.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import tcdsl
import tcdsl.torch as tct

SOURCE = "def add(float(N) x, float(N) y) -> (z) { z(n) = x(n) + y(n) }"


@torch.library.custom_op("bench::bare", mutates_args=())
def bare(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Add, and no more."""
    return torch.add(x, y)


@torch.library.custom_op("bench::bare_backward", mutates_args=())
def bare_backward(g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a gradient for each input."""
    return g.clone(), g.clone()


bare.register_autograd(lambda ctx, g: bare_backward(g))


def seconds(call: Callable[[], object], device: str, calls: int = 50) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    own: Any = tct.op(tcdsl.define(SOURCE).add, name="bench::own")
    x, y = torch.ones(16, device=device), torch.ones(16, device=device)
    leaf = x.clone().requires_grad_()
    calls: dict[str, list[Callable[[], object]]] = {
        "forward": [lambda f=f: f(x, y) for f in (bare, own)],
        "forward, recorded": [lambda f=f: f(leaf, leaf) for f in (bare, own)],
        "forward and backward": [
            lambda f=f: torch.autograd.grad(f(leaf, leaf), leaf, x) for f in (bare, own)
        ],
    }
    print("| | bare custom op | tcdsl.torch.op | ratio |\n|---|---|---|---|")
    for name, pair in calls.items():
        best = [float("inf")] * 2
        for _ in range(300):
            for i, call in enumerate(pair):
                best[i] = min(best[i], 1e6 * seconds(call, device))
        print(f"| {name} | {best[0]:.1f} us | {best[1]:.1f} us | {best[1] / best[0]:.2f} |")


if __name__ == "__main__":
    main()
