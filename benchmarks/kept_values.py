"""What a forward pass keeps for its derivative: predicted times of nothing, the rule, the best.

    python benchmarks/kept_values.py [--only NAME ...]

Needs no GPU: the times are the estimate's, for an H200, of the forward and the backward pass, in
microseconds.  *nothing* is a call and ``tcdsl.vjp``, which computes again what it reads; *rule* are
the two passes of a PyTorch operator (derivatives/keeping); *best* is the fastest of all sets of
values that the derivative reads and a call can return, elementwise ones too.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, prod
from unittest.mock import patch

from derivatives_works import MLP
from plans import predicted_us as sum_of_kernels_us

import tcdsl
from tcdsl import library
from tcdsl.api import Function
from tcdsl.costmodel.chip import load_chip
from tcdsl.derivatives import program
from tcdsl.derivatives.keeping import is_returnable
from tcdsl.derivatives.versions import Forward
from tcdsl.driver import compile_to_cuda
from tcdsl.frontends.derivatives import Passes, passes
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.request import Request
from tcdsl.library.texts import with_element
from tcdsl.runtime.arrays import spec

Shapes = Mapping[str, tuple[int, ...]]

ATTENTION = """
def attention(float(B,M,D) q, float(B,N,D) k, float(B,N,D) v) -> (float(B,M,D) y) {
    s(b,m,n) +=! q(b,m,d) * k(b,n,d)
    t(b,m) max=! s(b,m,n)
    p(b,m,n) = exp(s(b,m,n) - t(b,m))
    z(b,m) +=! p(b,m,n)
    o(b,m,d) +=! p(b,m,n) * v(b,n,d)
    y(b,m,d) = o(b,m,d) / z(b,m)
}"""


@dataclass(frozen=True, slots=True)
class Work:
    """A program at one size, with the options of its calls."""

    name: str
    source: str
    shapes: Shapes
    options: tcdsl.Options


def works() -> Iterator[Work]:
    """Yield what is planned."""
    plain, narrow = tcdsl.Options(), tcdsl.Options(precision="bfloat16")
    rmsnorm = library.case("rmsnorm").source
    for dtype in ("float32", "bfloat16"):
        asked = narrow if dtype == "bfloat16" else plain
        for m, n in ((16384, 4096), (2048, 16384), (32768, 1024)):
            shapes = {"x": (m, n), "gamma": (n,), "eps": ()}
            yield Work(f"rmsnorm {dtype} {m}x{n}", with_element(rmsnorm, dtype), shapes, plain)
        for b, i, h, o in ((4096, 1024, 4096, 1024), (512, 784, 256, 10), (65536, 16, 256, 16)):
            shapes = {"x": (b, i), "w1": (i, h), "b1": (h,), "w2": (h, o), "b2": (o,)}
            name = f"mlp {dtype} {b}x{i}x{h}x{o}"
            yield Work(name, with_element(MLP, dtype), shapes, asked)
        for b, m, d in ((16, 1024, 64), (256, 64, 64)):
            shapes = dict.fromkeys("qkv", (b, m, d))
            name = f"attention {dtype} {b}x{m}x{d}"
            yield Work(name, with_element(ATTENTION, dtype), shapes, asked)


def predicted_us(f: Function, shapes: Shapes, options: tcdsl.Options) -> float:
    """Return the predicted time of a call of *f*, infinity if a kernel has none."""
    c = f.comprehension
    special = specialise(c, bind_sizes(c, {name: shapes[name] for name in c.inputs}))
    done = compile_to_cuda(Request(c, special, options=options), load_chip("h200"))
    found = sum_of_kernels_us(done.plan.weighed)
    return inf if found is None else found


def returnable(forward: Forward) -> set[str]:
    """Return every value that a forward pass could keep."""
    return {s.target for s in forward.steps if is_returnable(forward.versions[s.target])}


@dataclass(frozen=True, slots=True)
class Planned:
    """Predicted times of two passes, in microseconds (inf: a kernel has none), and what is kept."""

    forward: float
    backward: float
    kept: Sequence[str] = ()
    kept_bytes: int = 0

    @property
    def total(self) -> float:
        return self.forward + self.backward

    def __str__(self) -> str:
        kept = f"{self.kept_bytes / 1e6:7.1f} MB: {' '.join(self.kept)}" if self.kept else ""
        return f"{self.forward:7.1f} + {self.backward:7.1f} = {self.total:7.1f}  {kept}"


def planned(work: Work) -> Iterator[tuple[str, Planned]]:
    """Yield each way to divide the work, and what is predicted of it."""
    f = tcdsl.define(work.source)[work.name.split()[0]]
    wrt = [n for n in f.comprehension.inputs if work.shapes[n]]
    given = with_results(f, work.shapes)
    shapes = {**work.shapes, **{f"d_{n}": given[n] for n in f.comprehension.outputs}}
    forward = predicted_us(f, work.shapes, work.options)
    nothing = Planned(forward, predicted_us(tcdsl.vjp(f, wrt), shapes, work.options))
    yield "nothing", nothing
    by_rule = passes(f, wrt)
    yield "rule", nothing if by_rule is None else of_passes(by_rule, work, shapes)
    with patch.object(program, "costly_versions", returnable):
        whole = passes(f, wrt)
    found = [nothing]
    names = [] if whole is None else [whole.forward.comprehension.outputs[i] for i in whole.kept]
    for count in range(1, len(names) + 1):
        for subset in combinations(names, count):
            with patch.object(program, "costly_versions", lambda _, kept=set(subset): kept):
                divided = passes(f, wrt)
            assert divided is not None, "what the derivative reads is kept"
            found.append(of_passes(divided, work, shapes))
    yield "best", min(found, key=lambda one: one.total)


def of_passes(found: Passes, work: Work, shapes: Shapes) -> Planned:
    """Return what is predicted of two passes, and how much they keep."""
    c = found.forward.comprehension
    results = with_results(found.forward, work.shapes)
    kept = [c.outputs[position] for position in found.kept]
    size = sum(prod(results[n]) * c.tensors[n].dtype.size_bytes for n in kept)
    forward = predicted_us(found.forward, work.shapes, work.options)
    backward = predicted_us(found.backward, {**results, **shapes}, work.options)
    return Planned(forward, backward, kept, size)


def with_results(f: Function, shapes: Shapes) -> Shapes:
    """Return the shapes of the results of *f*, by name."""
    c = f.comprehension
    specs = [spec(shapes[name], c.tensors[name].dtype.name) for name in c.inputs]
    return {name: tuple(shape) for name, shape in f.output_shapes(*specs).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""])
    only = parser.parse_args().only
    for work in works():
        if any(name in work.name for name in only):
            for way, found in planned(work):
                print(f"{work.name:36} {way:8} {found}", flush=True)


if __name__ == "__main__":
    main()
