"""Convolutions by calls of cuDNN beside our kernels, by turns on one GPU, and the calls' estimates.

    python benchmarks/cudnn_calls.py                            passes of four layers, bfloat16
    python benchmarks/cudnn_calls.py --dtype float --layers 28x128 7x512

A layer is pixels x channels: 3 x 3 taps with zeros around, as many filters, 32 images, channels
last.  Of each pass: microseconds of ours, of the call, what is predicted of the call, and the ratio
of the call's time to ours; results are compared.  Times are medians of calls that take turns.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch

import tcdsl
from benchmarks.computed_operands import timed
from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.convolutions import Computed, Convolution, Window
from tcdsl.costmodel.library_products import estimated

IMAGES = 32
INSIDE = "h + r >= 1 && h + r <= H && v + s >= 1 && v + s <= V"
OUTSIDE = "h + 1 >= r && h + 1 - r < H && v + 1 >= s && v + 1 - s < V"
PASSES = {
    "forward": (
        "T(N,H,V,C) x, T(F,3,3,C) k) -> (T(N,H,V,F) y) { y(n,h,v,f) +=! "
        f"({INSIDE} ? x(n,h+r-1,v+s-1,c) : 0) * k(f,r,s,c)"
    ),
    "data": (
        "T(N,H,V,F) x, T(F,3,3,C) k) -> (T(N,H,V,C) y) { y(n,h,v,c) +=! "
        f"({OUTSIDE} ? x(n,h+1-r,v+1-s,f) : 0) * k(f,r,s,c)"
    ),
    "weights": (
        "T(N,H,V,F) k, T(N,H,V,C) x) -> (T(F,3,3,C) y) { y(f,r,s,c) +=! "
        f"k(n,h,v,f) * ({INSIDE} ? x(n,h+r-1,v+s-1,c) : 0)"
    ),
}  # fmt: skip
RANGES = {
    "forward": "h in 0:H, v in 0:V",
    "data": "h in 0:H, v in 0:V",
    "weights": "r in 0:3, s in 0:3",
}


def call_of(
    name: str, dtype: str, label: str, inputs: list[Any], library: str
) -> tuple[Callable[[], object], Any]:
    """Return a bound call of the pass *name*, and its result."""
    order = "(k, x)" if name == "weights" else "(x, k)"
    call = f" <=> {library}{order}" if library else ""
    source = f"def {label}({PASSES[name]}{call} where {RANGES[name]} }}".replace("T(", f"{dtype}(")
    exe = tcdsl.define(source)[label].compile(*inputs)
    result = exe(*inputs)
    return exe.bind(*inputs, out=torch.empty_like(result)), result


def product_of(name: str, pixels: int, channels: int, dtype: str) -> Convolution:
    """Return what the library computes."""
    kind = {"forward": Computed.RESULT, "data": Computed.IMAGE, "weights": Computed.FILTER}[name]
    windows = (Window(pixels, 3, pixels, 1, 1, 1),) * 2
    element = {"float": "float32", "half": "float16"}.get(dtype, dtype)
    sizes = IMAGES, channels, channels
    return Convolution(kind, *sizes, windows, "x", "k", "y", element, "float32", True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--layers", nargs="*", default=["56x64", "28x128", "14x256", "7x512"])
    arguments = parser.parse_args()
    element = {"float": torch.float32, "half": torch.float16}.get(arguments.dtype, torch.bfloat16)
    chip = load_chip("h200")
    for layer in arguments.layers:
        pixels, channels = map(int, layer.split("x"))
        for name in PASSES:
            torch.manual_seed(0)
            image = torch.randn(IMAGES, pixels, pixels, channels, device="cuda").to(element)
            shape = (channels, 3, 3, channels) if name != "weights" else image.shape
            other = torch.randn(shape, device="cuda").to(element)
            inputs = [other, image] if name == "weights" else [image, other]
            ours, result = call_of(name, arguments.dtype, "f", inputs, "")
            called, found = call_of(name, arguments.dtype, "g", inputs, "cudnn")
            seconds = estimated(product_of(name, pixels, channels, arguments.dtype), chip).seconds
            error = float((found - result).double().norm() / result.double().norm())
            us = timed([ours, called])
            print(
                f"{layer} {name} {arguments.dtype}: ours {us[0]:.1f} us, cudnn {us[1]:.1f}"
                f" (predicted {1e6 * seconds:.1f}), {us[1] / us[0]:.2f}; apart {error:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
