"""Contractions on a CPU beside NumPy's BLAS and PyTorch's oneDNN, by turns on one thread.

    OMP_NUM_THREADS=1 python benchmarks/cpu_contractions.py products 256 1000 2048
    OMP_NUM_THREADS=1 python benchmarks/cpu_contractions.py products 512 --types int8,bfloat16
    OMP_NUM_THREADS=1 python benchmarks/cpu_contractions.py layers --only '3x3*forward*'
    ... --candidates 8                  with other configurations of the chosen template
    ... --template cpu_tile             another template beside the chosen one

Milliseconds of the process's own CPU time, the least of all runs: wall-clock times on a machine
with other work contain it.  Products, of whatever type, are beside NumPy's of float32 (its
integers have no BLAS); layers, of --images images, beside torch's convolutions with channels in
the same order.  The last number is time(peer) / time(ours), above 1 where ours is faster.
Results begin as NaN, or as a number that no sum is, and are compared with the peer's of float64.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import numpy as np
from convolutions import LAYERS, Layer, Program

import tcdsl
from tcdsl.options import Options

ODD: Mapping[str, Layer] = {
    "5x5 23": Layer(32, 23, 48, 80, 5, 1, 2),
    "3x3d2 30": Layer(32, 30, 40, 56, 3, 1, 2, 2),
    "1x1 57": Layer(32, 57, 67, 131),
}
DEPTHWISE = Layer(32, 56, 64, 64, 3)
FORMS = {"nn": ("M, K", "K, N", "B(k, n)"), "nt": ("M, K", "N, K", "B(n, k)")}


@dataclass(frozen=True, slots=True)
class Job:
    """A program with its arguments, its peer, and what it is to compute."""

    label: str
    function: Any
    inputs: tuple[Any, ...]
    operations: float
    peer: Callable[[], Any]
    expected: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Resized(Program):
    """A convolution of *images* images."""

    images: int = 4

    @property
    def of(self) -> Layer:
        return replace({**LAYERS, **ODD}[self.layer], N=self.images)


def products(arguments: argparse.Namespace) -> Iterator[Job]:
    """Yield C = A B of each size, M x N x K or one number for all, and type."""
    rng = np.random.default_rng(0)
    for size in arguments.sizes:
        numbers = [int(number) for number in size.split("x")]
        m, n, k = numbers if len(numbers) == 3 else numbers * 3
        a = rng.standard_normal((m, k), np.float32)
        b = rng.standard_normal((k, n), np.float32)
        out = np.empty((m, n), np.float32)
        peer = _product_of(a, b, out)
        for dtype in arguments.types.split(","):
            for form in arguments.forms.split(","):
                own = _of_type(a, dtype, rng), _of_type(b, dtype, rng)
                inputs = own[0], own[1] if form == "nn" else np.ascontiguousarray(own[1].T)
                wide = (x.astype(np.float64) for x in own)
                yield Job(
                    f"{size} {dtype} {form}", _product(dtype, form), inputs, 2.0 * m * n * k,
                    peer, _product_of(*wide, None),
                )  # fmt: skip


def _product_of(a: Any, b: Any, out: Any) -> Callable[[], Any]:
    return lambda: np.matmul(a, b, out=out)


def _product(dtype: str, form: str) -> Any:
    name = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    a, b, element = FORMS[form]
    sums = "float(M, N) " if name == "bfloat16" else ""
    body = f"C(m, n) +=! A(m, k) * {element}"
    text = f"def product({name}({a}) A, {name}({b}) B) -> ({sums}C) {{ {body} }}"
    return tcdsl.define(text).product


def _of_type(x: Any, dtype: str, rng: Any) -> Any:
    if "int" in dtype:
        info = np.iinfo(dtype)
        low, end = max(info.min, -1000), min(info.max, 1000) + 1  # whose sums do not wrap
        return rng.integers(low, end, x.shape, dtype)
    if dtype == "bfloat16":
        import ml_dtypes

        return x.astype(ml_dtypes.bfloat16)
    return x.astype(dtype)


def layers(arguments: argparse.Namespace) -> Iterator[Job]:
    """Yield the convolutions whose labels --only agrees with, forward and both gradients."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    for is_last in (True, False):
        for name in (*LAYERS, *ODD):
            for what in ("forward", "data", "weights"):
                program = Resized(name, what, is_last, "float32", arguments.images)
                if fnmatchcase(program.label, arguments.only):
                    yield _layer(torch, program)
    for is_last in (True, False):
        label = f"depthwise 56 forward {'nhwc' if is_last else 'nchw'}"
        if fnmatchcase(label, arguments.only):
            yield _depthwise(torch, label, is_last, arguments.images)


def _layer(torch: Any, program: Resized) -> Job:
    views, inputs = {}, {}
    for name, shape in program.shapes().items():
        inputs[name] = torch.randn(shape)
        views[name] = inputs[name].permute(0, 3, 1, 2) if program.is_last else inputs[name]
    wide = {name: view.double() for name, view in views.items()}

    def expected() -> Any:
        found = _convolution(torch, program, wide)()
        return (found.permute(0, 2, 3, 1) if program.is_last else found).numpy()

    operands = tuple(inputs[name].numpy() for name in program.inputs())
    function = tcdsl.define(program.text())[program.what]
    peer = _convolution(torch, program, views)
    return Job(program.label, function, operands, program.of.operations, peer, expected)


def _convolution(torch: Any, program: Resized, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    one, backward = program.of, torch.ops.aten.convolution_backward
    geometry = [one.stride] * 2, [one.pad] * 2, [one.dilation] * 2
    if program.what == "forward":
        call = torch.nn.functional.conv2d
        return lambda: call(arrays["I"], arrays["K"], None, *geometry)
    mask = [program.what == "data", program.what == "weights", False]
    operands = arrays["O"], arrays["I"], arrays["K"]
    place = mask.index(True)
    return lambda: backward(*operands, None, *geometry, False, [0, 0], 1, mask)[place]


def _depthwise(torch: Any, label: str, is_last: bool, images: int) -> Job:
    one = replace(DEPTHWISE, N=images)
    channels, p = one.C, one.P
    order = "N,H,W,C" if is_last else "N,C,H,W"
    filters = "R,S,C" if is_last else "C,R,S"
    body = "O(n,h,w,c) +=! I(n,h+r,w+s,c) * K(r,s,c)"
    if not is_last:
        body = "O(n,c,h,w) +=! I(n,c,h+r,w+s) * K(c,r,s)"
    text = f"def depthwise(float({order}) I, float({filters}) K) -> (O) {{ {body} }}"
    image = torch.randn(one.N, channels, one.H, one.H)
    taps = torch.randn(channels, 1, one.T, one.T)
    own = (
        (image.permute(0, 2, 3, 1).contiguous(), taps[:, 0].permute(1, 2, 0).contiguous())
        if is_last
        else (image, taps[:, 0].contiguous())
    )
    view = own[0].permute(0, 3, 1, 2) if is_last else image
    call = torch.nn.functional.conv2d

    def expected() -> Any:
        found = call(view.double(), taps.double(), groups=channels)
        return (found.permute(0, 2, 3, 1) if is_last else found).numpy()

    operations = 2.0 * one.N * channels * p * p * one.T**2
    inputs = tuple(x.numpy() for x in own)
    return Job(
        label, tcdsl.define(text).depthwise, inputs, operations,
        lambda: call(view, taps, groups=channels), expected,
    )  # fmt: skip


def variants(job: Job, arguments: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Yield what is chosen, another template and other configurations of the last kernel."""
    first = job.function.compile(*job.inputs, target="cpu")
    yield "", first
    kernels = first.choices["kernels"]
    own = kernels[-1]["kernel"]  # those before it copy operands
    if arguments.template:
        yield arguments.template, _chosen(job, {"kernel": own, "template": arguments.template})
    found = (c for c in first.candidates if c["kernel"] == own and "config" in c)
    found = (c for c in found if "code_change" not in c)
    mine = (c for c in found if c["template"] == (arguments.template or kernels[-1]["template"]))
    for c in islice(mine, arguments.candidates):
        choice = {"kernel": own, "template": c["template"], **c["config"]}
        yield " ".join(f"{key}={value}" for key, value in c["config"].items()), _chosen(job, choice)


def _chosen(job: Job, choice: Mapping[str, Any]) -> Any:
    choices = {"format": "tcdsl choices", "version": 1, "kernels": [dict(choice)]}
    options = Options(choices=choices)
    return job.function.compile(*job.inputs, target="cpu", options=options)


def run(job: Job, arguments: argparse.Namespace) -> None:
    """Compare and time *job* and its variants beside its peer."""
    expected = np.asarray(job.expected())
    calls, names = [job.peer], ["peer"]
    for name, exe in variants(job, arguments):
        like = exe(*job.inputs)
        result = np.full_like(like, -123456789 if like.dtype.kind == "i" else math.nan)
        bound = exe.bind(*job.inputs, out=result)
        bound()
        error = np.linalg.norm(result - expected) / max(np.linalg.norm(expected), 1e-30)
        verdict = "" if error < (1e-5 if result.dtype.kind == "f" else 1e-12) else "WRONG "
        template = exe.choices["kernels"][-1]["template"]
        calls.append(bound)
        names.append(f"{verdict}{template} {name}")
    best = timed(calls, arguments.seconds)
    for ms, name in list(zip(best, names, strict=True))[1:]:
        rate = job.operations / ms / 1e6
        print(
            f"{job.label:26} {ms:8.3f} ms {rate:6.1f} G/s peer {best[0]:8.3f}:"
            f" {best[0] / ms:5.2f}  {name}",
            flush=True,
        )


def timed(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Return the least CPU times of *calls* by turns, in ms."""
    best = [math.inf] * len(calls)
    end = time.monotonic() + seconds * len(calls)
    rounds = 0
    while rounds < 4 or time.monotonic() < end:
        rounds += 1
        for number, call in enumerate(calls):
            begun = time.process_time()
            call()
            best[number] = min(best[number], 1e3 * (time.process_time() - begun))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("products", "layers"))
    parser.add_argument("sizes", nargs="*")
    parser.add_argument("--types", default="float32")
    parser.add_argument("--forms", default="nn", help="nn, nt: B transposed in memory")
    parser.add_argument("--only", default="*", help="layers whose labels agree with it")
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each call")
    parser.add_argument("--template", default="")
    parser.add_argument("--candidates", type=int, default=0)
    arguments = parser.parse_args()
    for job in (products if arguments.what == "products" else layers)(arguments):
        run(job, arguments)


if __name__ == "__main__":
    main()
