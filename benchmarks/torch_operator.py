"""The overhead of a tcdsl.torch operator beside a bare torch.library.custom_op: us for a call.

    python benchmarks/torch_operator.py [--device cuda]

All add two vectors of 16 elements, so that time is overhead: a bare operator by ``torch.add``, one
that calls the function and its vjp, and ``tcdsl.torch.op``.  Interleaved; the least of the rounds.
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


def custom_op_of(f: tcdsl.Function, backward: tcdsl.Function) -> Any:
    """Return what a user would write: custom operators that call the functions."""

    @torch.library.custom_op("bench::wrapped", mutates_args=())
    def wrapped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return f(x, y)

    @torch.library.custom_op("bench::wrapped_backward", mutates_args=())
    def wrapped_backward(
        x: torch.Tensor, y: torch.Tensor, g: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return backward(x, y, g)

    wrapped.register_autograd(
        lambda ctx, g: wrapped_backward(*ctx.saved_tensors, g),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    return wrapped


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    f = tcdsl.define(SOURCE).add
    operators = bare, custom_op_of(f, tcdsl.vjp(f)), tct.op(f, name="bench::own")
    x, y = torch.ones(16, device=device), torch.ones(16, device=device)
    leaf, other = x.clone().requires_grad_(), y.clone().requires_grad_()
    calls: dict[str, list[Callable[[], object]]] = {
        "forward": [lambda f=f: f(x, y) for f in operators],
        "forward, recorded": [lambda f=f: f(leaf, other) for f in operators],
        "forward and backward": [
            lambda f=f: torch.autograd.grad(f(leaf, other), (leaf, other), x) for f in operators
        ],
    }
    print("| us | `custom_op` of `torch.add` | `custom_op` of the function | `tcdsl.torch.op` |")
    print("|---|---|---|---|")
    for name, several in calls.items():
        best = [float("inf")] * len(several)
        for _ in range(300):
            for i, call in enumerate(several):
                best[i] = min(best[i], 1e6 * seconds(call, device))
        print(f"| {name} | {' | '.join(f'{time:.1f}' for time in best)} |")


if __name__ == "__main__":
    main()
