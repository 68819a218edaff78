"""Products of operands that are computed, beside torch.compile, by turns on one GPU.

    python benchmarks/computed_operands.py                      every form at its first size
    python benchmarks/computed_operands.py relu int8 --size 4096x4096x4096

A size is M x N x K; of a convolution M pixels, in images of 56 x 56.  Of each form: microseconds of
ours, of torch.compile, and, where it has other kernels, of ours with factors computed where they
are multiplied (``plan/rewrites.OF_FACTORS`` left out), of ours with operands in registers wherever
they may be, and nowhere, of ours with a kernel for each product, and of ours with several products
in one kernel wherever it may have them; and ratios of these to ours.  Forms of quantised weights
have another peer: the product of bfloat16 weights, as ``torch.mm`` has it.  Results are compared
with float64; the second-level cache is written over before each call; times are medians of calls
that take turns.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

import tcdsl
from tcdsl.plan.state import Evaluator
from tcdsl.schedule.fusion import Group

ROUNDS = 15
MANY = 1 << 26  # instances of a product
SIZE = "4096x4096x4096"
VOCABULARY = 50_000


def dense(*shape: int) -> Any:
    return torch.randn(shape, device="cuda").to(torch.bfloat16)


def small_integers(*shape: int) -> Any:
    return torch.randint(-127, 128, shape, device="cuda", dtype=torch.int8)


def scales(*shape: int) -> Any:
    return torch.rand(shape, device="cuda") / 64


# Of a form: the program, its inputs for m, n, k, and PyTorch's formula.
Form = tuple[str, Callable[[int, int, int], list[Any]], Callable[..., Any]]
FORMS: dict[str, Form] = {
    "relu": (
        "bfloat16(M,K) x, bfloat16(K,N) w) -> (bfloat16(M,N) y) "
        "{ y(m,n) +=! fmax(x(m,k), 0.0) * w(k,n) }",
        lambda m, n, k: [dense(m, k), dense(k, n)],
        lambda x, w: torch.relu(x) @ w,
    ),
    "int8": (
        "bfloat16(M,K) x, int8(K,N) w, float(N) s) -> (bfloat16(M,N) y) "
        "{ y(m,n) +=! x(m,k) * (float(w(k,n)) * s(n)) }",
        lambda m, n, k: [dense(m, k), small_integers(k, n), scales(n)],
        lambda x, w, s: ((x @ w.to(x.dtype)).float() * s).to(x.dtype),
    ),
    "int8 along": (
        "bfloat16(M,K) x, int8(N,K) w, float(N) s) -> (bfloat16(M,N) y) "
        "{ y(m,n) +=! x(m,k) * (float(w(n,k)) * s(n)) }",
        lambda m, n, k: [dense(m, k), small_integers(n, k), scales(n)],
        lambda x, w, s: ((x @ w.to(x.dtype).T).float() * s).to(x.dtype),
    ),
    "groups": (
        "bfloat16(M,K) x, int8(N,K) w, float(N,G) s) -> (bfloat16(M,N) y) "
        "{ y(m,n) +=! x(m,k) * bfloat16(float(w(n,k)) * s(n, k / 32)) where k in 0:K }",
        lambda m, n, k: [dense(m, k), small_integers(n, k), scales(n, k // 32)],
        lambda x, w, s: x @ (w.float() * s.float().repeat_interleave(32, 1)).to(x.dtype).T,
    ),
    "gathered": (
        "bfloat16(V,K) x, int32(M) i, bfloat16(K,N) w) -> (bfloat16(M,N) y) "
        "{ y(m,n) +=! x(i(m),k) * w(k,n) }",
        lambda m, n, k: [
            dense(VOCABULARY, k), torch.randint(VOCABULARY, (m,), device="cuda", dtype=torch.int32),
            dense(k, n),
        ],
        lambda x, i, w: x[i] @ w,
    ),
    "causal": (
        "bfloat16(M,K) x, bfloat16(K,N) w) -> (bfloat16(M,N) y) "
        "{ y(m,n) +=! (k <= m ? x(m,k) : 0.0) * w(k,n) }",
        lambda m, n, k: [dense(m, k), dense(k, n)],
        lambda x, w: torch.tril(x) @ w,
    ),
    "triangle": (
        "bfloat16(M,K) x, bfloat16(K,N) w) -> (bfloat16(M,N) y) "
        "{ y(m,n) +=! x(m,k) * w(k,n) where m in 0:M, k in 0:m+1 }",
        lambda m, n, k: [dense(m, k), dense(k, n)],
        lambda x, w: torch.tril(x) @ w,
    ),
    "upper triangle": (
        "bfloat16(M,K) x, bfloat16(K,N) w) -> (bfloat16(M,N) y) "
        "{ y(m,n) +=! x(m,k) * w(k,n) where m in 0:M, k in m:K }",
        lambda m, n, k: [dense(m, k), dense(k, n)],
        lambda x, w: torch.triu(x) @ w,
    ),
    "band": (
        "bfloat16(M,K) x, bfloat16(K,N) w) -> (bfloat16(M,N) y) "
        "{ y(m,n) +=! x(m,k) * w(k,n) where k in 0:K, exists m - 256 <= k, exists k <= m + 256 }",
        lambda m, n, k: [dense(m, k), dense(k, n)],
        lambda x, w: torch.triu(torch.tril(x, 256), -256) @ w,
    ),
    "slice": (
        "bfloat16(P,K) x, bfloat16(K,N) w) -> (y) { y(m,n) +=! x(m+3,k) * w(k,n) }",
        lambda m, n, k: [dense(m, k), dense(k, n)],
        lambda x, w: x @ w,
    ),
    "inside": (
        "bfloat16(I,H,V,C) x, bfloat16(F,3,3,C) w) -> (bfloat16(I,H,V,F) y) { y(i,h,v,f) +=! "
        "x(i, h + r, v + s, c) * w(f,r,s,c) where h in 0:H, v in 0:V, exists h + r < H, "
        "exists v + s < V }",
        lambda m, n, k: [dense(-(-m // 56**2), 56, 56, k), dense(n, 3, 3, k)],
        lambda x, w: torch.nn.functional.conv2d(
            torch.nn.functional.pad(x.permute(0, 3, 1, 2), (0, 2, 0, 2)), w.permute(0, 3, 1, 2)
        ).permute(0, 2, 3, 1),
    ),
    "int8 weights": (
        "int8(I,H,V,F) g, int8(I,P,Q,C) x) -> (int32(F,3,3,C) y) { y(f,r,s,c) +=! "
        "g(i,h,v,f) * x(i, h + r, v + s, c) where r in 0:3, s in 0:3, h in 0:H, v in 0:V }",
        lambda m, n, k: [
            small_integers(-(-m // 56**2), 54, 54, n), small_integers(-(-m // 56**2), 56, 56, k)
        ],
        lambda g, x: torch.nn.grad.conv2d_weight(
            x.permute(0, 3, 1, 2).double(), (g.shape[3], x.shape[3], 3, 3),
            g.permute(0, 3, 1, 2).double(),
        ).permute(0, 2, 3, 1).int(),
    ),
    "int8 relu": (
        "int8(M,K) x, int8(N,K) w) -> (int32(M,N) y) { y(m,n) +=! relu(x(m,k)) * w(n,k) }",
        lambda m, n, k: [small_integers(m, k), small_integers(n, k)],
        lambda x, w: torch._int_mm(torch.relu(x), w.T),
    ),
    "int8 padded": (
        "int8(I,H,V,C) x, int8(F,3,3,C) w) -> (int32(I,H,V,F) y) { y(i,h,v,f) +=! "
        "(h + r >= 1 && h + r - 1 < H && v + s >= 1 && v + s - 1 < V"
        " ? x(i, h + r - 1, v + s - 1, c) : 0) * w(f,r,s,c) where h in 0:H, v in 0:V }",
        lambda m, n, k: [small_integers(-(-m // 56**2), 56, 56, k), small_integers(n, 3, 3, k)],
        lambda x, w: torch.nn.functional.conv2d(
            x.permute(0, 3, 1, 2).float(), w.permute(0, 3, 1, 2).float(), padding=1
        ).permute(0, 2, 3, 1).int(),
    ),
    "two products": (
        "bfloat16(M,K) x, bfloat16(K,N) w, bfloat16(M,K) u, bfloat16(K,N) v) -> "
        "(bfloat16(M,N) y) { y(m,n) +=! x(m,k) * w(k,n) + u(m,k) * v(k,n) }",
        lambda m, n, k: [dense(m, k), dense(k, n), dense(m, k), dense(k, n)],
        lambda x, w, u, v: x @ w + u @ v,
    ),
    "swiglu": (
        "bfloat16(M,K) x, bfloat16(K,N) w, bfloat16(K,N) v) -> (bfloat16(M,N) y) "
        "{ a(m,n) +=! x(m,k) * w(k,n)  b(m,n) +=! x(m,k) * v(k,n) "
        "y(m,n) = float(a(m,n)) * sigmoid(float(a(m,n))) * b(m,n) }",
        lambda m, n, k: [dense(m, k), dense(k, n), dense(k, n)],
        lambda x, w, v: torch.nn.functional.silu(x @ w) * (x @ v),
    ),
    "swiglu int8": (
        "bfloat16(M,K) x, int8(N,K) w, int8(N,K) v, float(N) s, float(N) t) -> (bfloat16(M,N) y) "
        "{ a(m,n) +=! x(m,k) * (float(w(n,k)) * s(n))  b(m,n) +=! x(m,k) * (float(v(n,k)) * t(n)) "
        "y(m,n) = float(a(m,n)) * sigmoid(float(a(m,n))) * b(m,n) }",
        lambda m, n, k: [
            dense(m, k), small_integers(n, k), small_integers(n, k), scales(n), scales(n)
        ],
        lambda x, w, v, s, t: torch.nn.functional.silu(
            (x @ w.to(x.dtype).T).float() * s
        ).to(x.dtype)
        * ((x @ v.to(x.dtype).T).float() * t).to(x.dtype),
    ),
    "swiglu turned": (
        "bfloat16(M,K) x, bfloat16(N,K) w, bfloat16(N,K) v) -> (bfloat16(M,N) y) "
        "{ a(m,n) +=! x(m,k) * w(n,k)  b(m,n) +=! x(m,k) * v(n,k) "
        "y(m,n) = float(a(m,n)) * sigmoid(float(a(m,n))) * b(m,n) }",
        lambda m, n, k: [dense(m, k), dense(n, k), dense(n, k)],
        lambda x, w, v: torch.nn.functional.silu(x @ w.T) * (x @ v.T),
    ),
    "row sums": (
        "bfloat16(M,K) x, bfloat16(K,N) w, bfloat16(M,N) z) -> (bfloat16(M,N) y, r) "
        "{ c(m,n) +=! x(m,k) * w(k,n)  y(m,n) = c(m,n) + z(m,n) "
        "r(m) +=! float(y(m,n)) * float(y(m,n)) }",
        lambda m, n, k: [dense(m, k), dense(k, n), dense(m, n)],
        lambda x, w, z: (y := x @ w + z, (y.float() ** 2).sum(1)),
    ),
}  # fmt: skip


# Weights of K x N in bfloat16, made before: what a product of these takes.
QUANTISED: dict[str, Callable[[Any], Any]] = {
    "int8": lambda w: w.to(torch.bfloat16),
    "int8 along": lambda w: w.to(torch.bfloat16).T,
    "groups": lambda w: w.to(torch.bfloat16).T,
}


def timed(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median microseconds of *calls*, which take turns."""
    flush = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    times: list[list[float]] = [[] for _ in calls]
    for call, own in [*zip(calls, times, strict=True)] * (ROUNDS + 2):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        own.append(start.elapsed_time(end) * 1e3)
    return [statistics.median(own[2:]) for own in times]


def compiled(
    name: str, inputs: Sequence[Any], label: str
) -> tuple[Callable[[], object], Any, list[str]]:
    """Return a call of the form *name*, its results, and the templates of its kernels.

    :arg label: of the def, by which caches tell one from another.
    """
    function = tcdsl.define(f"def {label}({FORMS[name][0]}")[label]
    exe = function.compile(*inputs)
    results = exe(*inputs)
    out = tuple(torch.empty_like(r) for r in (results if isinstance(results, tuple) else [results]))
    bound = exe.bind(*inputs, out=out if len(out) > 1 else out[0])
    templates = [kernel["template"] for kernel in exe.choices["kernels"] if "template" in kernel]
    return bound, results, templates


def error_of(results: Any, exact: Any) -> float:
    """Return how far *results* are from the exact ones, of their norm, at most."""
    own = results if isinstance(results, tuple) else (results,)
    every = exact if isinstance(exact, tuple) else (exact,)
    pairs = zip(own, every, strict=True)
    return max(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in pairs)


def without_rewrites() -> Any:
    """Return a context in which factors are computed where they are multiplied, rows apart."""
    found = ExitStack()
    found.enter_context(patch("tcdsl.plan.search.OF_FACTORS", ()))
    folds = "tcdsl.strategies.templates.tile_mma.why_not_folded"
    found.enter_context(patch(folds, lambda *_: "it is another kernel"))
    return found


def with_register_operands(margin: float) -> Any:
    """Return a context in which estimates of operands in registers are *margin* times as good."""
    return patch.multiple("tcdsl.costmodel.tensor_tiles", HELD_MARGIN=margin)


def with_products_apart() -> Any:
    """Return a context in which each product is a kernel of its own."""
    joint = "tcdsl.strategies.templates.tile_mma.why_not_joint"
    return patch(joint, lambda *_: "it is another kernel")


def with_products_joint() -> Any:
    """Return a context in which one kernel has several products wherever it may."""
    seconds = Evaluator.seconds

    def fewer(self: Evaluator, group: Group) -> float:
        several = sum(self.grouped.shapes[name].instances > MANY for name in group.members) > 1
        return seconds(self, group) * (0.5 if several else 1.0)

    return patch.object(Evaluator, "seconds", fewer)


OTHERS: dict[str, Callable[[], Any]] = {
    "without rewrites": without_rewrites,
    "in registers": partial(with_register_operands, 1e3),
    "stored first": partial(with_register_operands, 1e-3),
    "products apart": with_products_apart,
    "products in one kernel": with_products_joint,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("forms", nargs="*", help=", ".join(FORMS))
    parser.add_argument("--size", action="append", help="M x N x K", default=[])
    arguments = parser.parse_args()
    for size in arguments.size or [SIZE]:
        m, n, k = map(int, size.split("x"))
        for name in arguments.forms or FORMS:
            torch.manual_seed(0)
            inputs = FORMS[name][1](m, n, k)
            peer = torch.compile(FORMS[name][2])
            exact = FORMS[name][2](*(x.double() if x.is_floating_point() else x for x in inputs))
            own, results, templates = compiled(name, inputs, "f")
            others: dict[str, Callable[[], object]] = {"torch.compile": partial(peer, *inputs)}
            for number, (label, changed) in enumerate(OTHERS.items()):
                with changed():
                    call, _, made = compiled(name, inputs, f"f{number}")
                if made != templates:
                    others[f"{label} {'+'.join(made)}"] = call
            if name in QUANTISED:
                x, w = inputs[:2]
                others["torch.mm of bfloat16"] = partial(torch.mm, x, QUANTISED[name](w))
            errors = error_of(results, exact), error_of(peer(*inputs), exact)
            us, *rest = timed([own, *others.values()])
            texts = (f"{n} {t:.1f}: {t / us:.2f}" for n, t in zip(others, rest, strict=True))
            print(
                f"{name} {size}: {us:.1f} us {'+'.join(templates)}; {'; '.join(texts)};"
                f" errors {errors[0]:.2g} {errors[1]:.2g}",
                flush=True,
            )


if __name__ == "__main__":
    main()
