"""Products of float32 as three of tf32, or of float16, and cuBLAS' float32: errors and times.

    python benchmarks/split_products.py [--seconds 70] [--variants] [--part errors|times]

Both are called by turns, between writes of 256 MB.  A line: sizes, which operands are transposed,
microseconds of ours and of torch (tf32 off), their ratio; the error against float64 as a Frobenius
norm and the largest of one element beside its sum of sizes, of ours and torch's; the kernel.  A
second line is of ``Options(precision="float16x3")``, whose time is that of all of its kernels, the
parts' too.  Errors come first, of unkind operands: wide ranges, cancellation, tiny numbers, planted
infinities and NaN.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import tcdsl

TILES = ((64, 4, 3), (64, 4, 4), (128, 8, 4), (128, 8, 3), (128, 4, 3))  # columns, warps, stages
ROUNDS = 9
PARTS, FLOAT16 = tcdsl.Options(), tcdsl.Options(precision="float16x3")


def source(ta: bool, tb: bool) -> str:
    """Return the text of a product, whose operands may be transposed."""
    one, a = ("(K,M)", "A(k,m)") if ta else ("(M,K)", "A(m,k)")
    other, b = ("(N,K)", "B(n,k)") if tb else ("(K,N)", "B(k,n)")
    return f"def mm(float{one} A, float{other} B) -> (C) {{ C(m,n) +=! {a} * {b} }}"


def timed(calls: list[Callable[[], object]], flush: torch.Tensor) -> list[float]:
    """Return the median times of *calls*, by turns, in microseconds."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for call, own in zip(calls, times, strict=True):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            own.append(start.elapsed_time(end) * 1e3)
    return [statistics.median(own) for own in times]


def errors(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Return the error of *c* = a b: of the norm, and the largest beside the sum of sizes."""
    x, y = a.double(), b.double()
    exact = x @ y
    off = (c.double() - exact).abs()
    sizes = x.abs() @ y.abs()
    return (off.norm() / exact.norm()).item(), (off / sizes.clamp_min(1e-300)).max().item()


def short(choice: dict[str, Any]) -> str:
    if choice["template"] != "tile_mma":
        return str(choice["template"])
    names = ("rows", "columns", "warp_rows", "warp_columns", "stages", "swath")
    return "x".join(str(choice[name]) for name in names)


def unkind(name: str, shape: tuple[int, int], seed: int) -> torch.Tensor:
    """Return an operand of the kind *name*."""
    own = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(shape, device="cuda", generator=own)
    match name:
        case "wide":
            return x * torch.exp2(torch.randint(-12, 13, shape, device="cuda", generator=own))
        case "very wide":
            return x * torch.exp2(torch.randint(-40, 41, shape, device="cuda", generator=own))
        case "cancellation":
            half = x.shape[seed] // 2
            first = x.narrow(seed, 0, half)
            other = -first if seed else first * (1 + 1e-5 * torch.randn_like(first))
            return torch.cat([first, other], seed)
        case "tiny":
            return x * 2.0**-110 if seed else x
        case "smallest":
            return x * 2.0**-135 if seed else x
        case "large":
            return x * 2.0**60
        case "positive":
            return x.abs()
    return x


KINDS = ("normal", "wide", "very wide", "cancellation", "tiny", "smallest", "large", "positive")


def accuracy(say: Callable[..., None]) -> None:
    """Print errors of ours, of fused multiply-adds and of torch, for kinds of operands and K."""
    f = tcdsl.define(source(False, False)).mm
    where = torch.arange(256, device="cuda")
    for name, a, b in (
        ("rows", torch.eye(256, device="cuda"), (where[:, None] * 256.0 + where).contiguous()),
        ("columns", (where[:, None] * 256.0 + where).contiguous(), torch.eye(256, device="cuda")),
    ):
        a, b = (torch.nn.functional.pad(x, (0, 1024, 0, 1024)) for x in (a, b))
        off = (f(a, b, options=PARTS) != a @ b).nonzero()
        say(f"one term, {name}: {len(off)} wrong", *off[:4].tolist())
    cases = [("normal", 256), ("normal", 512), ("positive", 8192), *((k, 2048) for k in KINDS)]
    for kind, k in cases:
        a, b = unkind(kind, (2048, k), 1), unkind(kind, (k, 2048), 0)
        plain = f(a, b, options=tcdsl.Options(precision="ieee"))
        made = (f(a, b, options=PARTS), f(a, b, options=FLOAT16), plain, a @ b)
        own = [errors(c, a, b) for c in made]
        shown = "  ".join(f"{norm:.2e} {worst:.1e}" for norm, worst in own)
        say(f"{kind:12} K {k:5}: ours {shown} of float16x3, float32, torch")
    a, b = unkind("normal", (2048, 512), 1), unkind("normal", (512, 2048), 0)
    special = [float("inf"), float("-inf"), float("nan"), 3.4e38]
    for n, value in enumerate(special):
        a[7 + 100 * n, 5 + 50 * n] = value
    b[77, 300], b[300, 9], b[301, 9] = float("inf"), float("nan"), 0.0
    a[400, 77] = 0.0
    exact = (a.double() @ b.double()).float()
    want = torch.where(exact.isfinite(), exact, f(a, b, options=tcdsl.Options(precision="ieee")))
    for options in (PARTS, FLOAT16):
        exe = f.compile(a, b, options=options)
        c = exe(a, b)
        same = torch.isclose(c, want, rtol=1e-4, atol=1e-3, equal_nan=True)
        odd = int((~c.isfinite()).sum()), int((~want.isfinite()).sum())
        say("planted: right" if same.all() else f"planted: WRONG at {int((~same).sum())}", *odd,
            exe.choices["kernels"][-1]["template"], options.precision)  # fmt: skip


def sizes() -> Iterator[tuple[int, int, int, bool, bool]]:
    for n in (4096, 1024, 2048, 8192):
        yield n, n, n, False, False
    for ta, tb in ((False, True), (True, False), (True, True)):
        yield 4096, 4096, 4096, ta, tb
    yield 4000, 4008, 4004, False, False
    yield 512, 512, 512, False, False
    yield 1024, 1024, 256, False, False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=70)
    parser.add_argument("--variants", action="store_true", help="other tiles, too")
    parser.add_argument("--part", choices=("errors", "times", "both"), default="both")
    given, begun = parser.parse_args(), time.time()
    torch.backends.cuda.matmul.allow_tf32 = False

    def say(*text: object) -> None:
        print(f"{time.time() - begun:5.1f}", *text, flush=True)

    if given.part != "times":
        accuracy(say)
    if given.part == "errors":
        return
    flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    for m, n, k, ta, tb in sizes():
        if time.time() - begun > given.seconds:
            break
        a = torch.randn((k, m) if ta else (m, k), device="cuda")
        b = torch.randn((n, k) if tb else (k, n), device="cuda")
        x, y = (a.T if ta else a), (b.T if tb else b)
        f = tcdsl.define(source(ta, tb)).mm
        chosen = f.compile(a, b, options=PARTS)
        tried = [("", chosen)]
        (choice,) = chosen.choices["kernels"]
        if given.variants and choice["template"] == "tile_mma":
            for columns, warps, stages in TILES:
                own = dict(choice, columns=columns, warp_rows=warps, stages=stages)
                for swath in (8, 1):
                    data = dict(chosen.choices, kernels=[dict(own, swath=swath)])
                    try:
                        tried.append(("  ", f.compile(a, b, options=PARTS, choices=data)))
                        break
                    except tcdsl.TCError:
                        continue
        tried.append(("float16x3 ", f.compile(a, b, options=FLOAT16)))
        outs = [torch.full((m, n), float("nan"), device="cuda") for _ in tried]
        calls = [exe.bind(a, b, out=c) for (_, exe), c in zip(tried, outs, strict=True)]
        last = torch.empty_like(outs[0])
        *own_us, torch_us = timed([*calls, partial(torch.mm, x, y, out=last)], flush)
        right = errors(last, x, y)
        for (mark, exe), c, us in zip(tried, outs, own_us, strict=True):
            found = errors(c, x, y)
            shown = "  ".join(f"{norm:.2e} {worst:.1e}" for norm, worst in (found, right))
            how = short(exe.choices["kernels"][-1])
            say(f"{mark}{m} {n} {k} {'ta' * ta}{'tb' * tb}: {us:.1f} {torch_us:.1f} us,",
                f"{torch_us / us:.2f}  {shown}  {how}")  # fmt: skip


if __name__ == "__main__":
    main()
