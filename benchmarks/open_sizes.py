"""Kernels for classes of sizes beside kernels for one size: us on a GPU, and of a first call.

    python benchmarks/open_sizes.py [--seconds 80] [--workers 12] [--lines FILE] [--only NAME ...]
                                    [--above 1.3]      at the end, all sizes with a greater ratio
    python benchmarks/open_sizes.py --of products        batches of linear layers, other products
                                    --of inner           lengths of rows: divisible ones and others
                                    --of transpositions  NCHW to NHWC and back, each size open
                                    --force "threads=256 repeat=4" ...   other choices beside it

For each program of the library that has a leading size: the kernel for the size's class, and the
kernels for three sizes of it, on the same arrays, interleaved, the second-level cache cold.  Before
that the time of calls of softmax at sizes that were not seen before, beside that of other calls.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from multiprocessing import get_context
from typing import Any

import torch

import tcdsl
from tcdsl import library
from tcdsl.api import Function
from tcdsl.cli.bench.forced import force_of, with_forces
from tcdsl.errors import TCError
from tcdsl.options import Options
from tcdsl.runtime.size_classes import class_of, leading_sizes
from tcdsl.runtime.timing import compare_cuda

MOST_ELEMENTS = 2**26  # of all arguments together
SPANS = (0, 16, 256, 4096, 65536, 1 << 20, 1 << 24, 1 << 28)  # three sizes are timed of each
SOFTMAX = """
def f({0}(B, N) x) -> (y) {{
    m(b) max=! x(b, n)
    s(b) +=! exp(x(b, n) - m(b))
    y(b, n) = exp(x(b, n) - m(b)) / s(b)
}}"""


# Outputs of a layer along the rows of its weights, as PyTorch has them; batches of products.
PRODUCTS = {
    "linear": "def f({0}(M,K) x, {0}(N,K) w) -> (y) {{ y(m,n) +=! x(m,k) * w(n,k) }}",
    "bias": """def f({0}(M,K) x, {0}(N,K) w, float(N) b) -> ({0}(M,N) y) {{
        t(m,n) +=! float32(x(m,k)) * float32(w(n,k))
        y(m,n) = fmax(t(m,n) + b(n), 0)
    }}""",
    "batched": "def f({0}(M,L,K) x, {0}(M,K,N) w) -> (y) {{ y(b,l,n) +=! x(b,l,k) * w(b,k,n) }}",
    "weights": "def f({0}(M,L) x, {0}(M,N) g) -> (y) {{ y(l,n) +=! x(m,l) * g(m,n) }}",
}
# Programs whose rows have an open length: of results, of either factor, of what is summed.
INNER = {
    "columns": "def f({0}(M,K) x, {0}(K,N) w) -> (y) {{ y(m,n) +=! x(m,k) * w(k,n) }}",
    "terms": "def f({0}(M,N) x, {0}(K,N) w) -> (y) {{ y(m,k) +=! x(m,n) * w(k,n) }}",
    "softmax": SOFTMAX,
    "gelu": "def f({0}(M,N) x, {0}(N) b) -> ({0}(M,N) y) {{ y(m,n) = fmax(x(m,n) + b(n), 0) }}",
}
TRANSPOSITIONS = {
    "to NHWC": "def f({0}(N,C,H,W) x) -> (y) {{ y(n,h,w,c) = x(n,c,h,w) }}",
    "to NCHW": "def f({0}(N,H,W,C) x) -> (y) {{ y(n,c,h,w) = x(n,h,w,c) }}",
}
LAYERS = ((1024, 1024), (4096, 4096), (768, 3072))
BATCHES = ((1, 17, 64), (65, 128, 200, 256), (257, 512, 1000), (1025, 2000, 4096))


@dataclass(frozen=True, slots=True)
class Job:
    """A program, the size that is left open, and the sizes at which it is timed.

    *forced*: other choices for the class's kernels, each several KEY=VALUE of ``tcdsl bench``.
    """

    case: str
    opened: str
    fixed: Mapping[str, int]
    values: tuple[int, ...]
    source: str = ""  # where it is none of the library's
    forced: tuple[str, ...] = ()

    @property
    def function(self) -> Function:
        if self.source:
            return tcdsl.define(self.source).f
        case = library.case(self.case)
        return tcdsl.define(library.source_for(case, "float32"))[case.def_name]

    def shapes(self, value: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the arguments where the open size has *value*."""
        sizes = {**self.fixed, self.opened: value}
        tensors = self.function.comprehension.tensors
        return {
            name: tuple(sizes[d] if isinstance(d, str) else d for d in tensors[name].dims)
            for name in self.function.comprehension.inputs
        }


def jobs() -> Iterator[Job]:
    """Yield the library's programs with float32 tensors and a leading size."""
    for case in library.cases():
        if case.family == "sparse" or "float32" not in case.dtypes:
            continue
        head = tcdsl.define(library.source_for(case, "float32"))[case.def_name].comprehension
        if head.size_parameters:
            continue
        for sizes in case.sizes[:2]:
            leading = [name for name in head.sizes if name in leading_sizes(head)]
            for name in leading[:1]:
                yield from _job(case.name, name, sizes, head)


def _job(case: str, name: str, sizes: Mapping[str, int], head: Any) -> Iterator[Job]:
    dims = [head.tensors[n].dims for n in head.inputs]
    if any(isinstance(d, str) and d not in sizes for each in dims for d in each):
        return
    each = sum(prod(sizes.get(d, d) for d in own) for own in dims) / max(sizes[name], 1)
    ends = class_of(min(sizes[name], int(MOST_ELEMENTS / max(each, 1))), SPANS)
    if ends is None:
        return
    high = min(ends.greatest, int(MOST_ELEMENTS / max(each, 1)))
    values = {high, ends.least + (high - ends.least) // 3 | 1, max(ends.least, high // 12)}
    yield Job(case, name, {n: v for n, v in sizes.items() if n != name}, tuple(sorted(values)))


def product_jobs() -> Iterator[Job]:
    """Yield products whose rows, batches or terms are open."""
    for dtype in ("bfloat16", "float"):
        for name in ("linear", "bias"):
            for k, n in LAYERS[: 3 if name == "linear" else 2]:
                for values in BATCHES:
                    source = PRODUCTS[name].format(dtype)
                    yield Job(f"{name} {dtype} {k}-{n}", "M", {"K": k, "N": n}, values, source)
        sizes = {"L": 256, "K": 128, "N": 128}
        batched, weights = (PRODUCTS[name].format(dtype) for name in ("batched", "weights"))
        yield Job(f"batched {dtype}", "M", sizes, (17, 100, 256), batched)
        yield Job(f"weights {dtype}", "M", {"L": 1024, "N": 1024}, (1025, 1600, 2048), weights)


def inner_jobs() -> Iterator[Job]:
    """Yield programs whose rows have an open length, divisible and not."""
    for dtype in ("bfloat16", "float"):
        for name, source in INNER.items():
            sizes = {"M": 1024, "K": 1024} if name in ("columns", "terms") else {"M": 8192}
            sizes = {"B": 8192} if name == "softmax" else sizes
            yield Job(f"{name} {dtype}", "N", sizes, (264, 520, 1024, 1001), source.format(dtype))


def transposition_jobs() -> Iterator[Job]:
    """Yield transpositions of images with each of their sizes open."""
    sizes = {"N": 16, "C": 64, "H": 56, "W": 56}
    for dtype in ("bfloat16", "float"):
        for name, source in TRANSPOSITIONS.items():
            for opened, size in sizes.items():
                fixed = {n: other for n, other in sizes.items() if n != opened}
                yield Job(f"{name} {dtype}", opened, fixed, (size,), source.format(dtype))


SETS = {
    "library": jobs, "products": product_jobs, "inner": inner_jobs,
    "transpositions": transposition_jobs,
}  # fmt: skip


def tensors_of(job: Job, value: int) -> list[Any]:
    """Return arguments: small numbers, so that nothing overflows, and indices of class 0 or 1."""
    head = job.function.comprehension
    found = []
    for name, shape in job.shapes(value).items():
        dtype = getattr(torch, head.tensors[name].dtype.name)
        if dtype.is_floating_point:
            # Squares, so that no moment is about 0: its digits would be lost, in any order of it.
            found.append(torch.rand(shape, device="cuda", dtype=dtype).square())
        else:
            found.append(torch.randint(0, 2, shape, device="cuda").to(dtype))
    return found


def options_of(job: Job, args: list[Any]) -> dict[str, Options]:
    """Return the options of the class's code, and of each forced choice that there is for it."""
    found = {"open": Options(dynamic_sizes=(job.opened,))}
    exe = job.function.compile(*args, options=found["open"]) if job.forced else None
    for text in job.forced if exe is not None else ():
        forces = [force_of(part) for part in text.split()]
        with suppress(TCError):  # no candidate agrees with it in this class
            choices = with_forces(exe.choices, exe.candidates, forces)
            found[text] = Options(dynamic_sizes=(job.opened,), choices=json.dumps(choices))
    return found


def compiled(job: Job) -> tuple[str, list[dict[str, Options]]]:
    """Fill the disk cache; return what went wrong, and the options at each size."""
    options: list[dict[str, Options]] = []
    try:
        f = job.function
        head = f.comprehension
        for value in job.values:
            args = [torch.empty(s, device="cuda", dtype=getattr(torch, head.tensors[n].dtype.name))
                    for n, s in job.shapes(value).items()]  # fmt: skip
            f.compile(*args)
            options.append(options_of(job, args))
            for own in options[-1].values():
                f.compile(*args, options=own)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200], options
    return "", options


def timed(job: Job, options: list[dict[str, Options]]) -> dict[str, Any]:
    """Return a line: us of all kernels at each size, and whether their results agree."""
    f = job.function
    line: dict[str, Any] = {"case": job.case, "opened": job.opened, "fixed": dict(job.fixed)}
    line["times"] = {}
    for value, own in zip(job.values, options, strict=True):
        args = tensors_of(job, value)
        code = {"one": f.compile(*args)}
        code |= {name: f.compile(*args, options=each) for name, each in own.items()}
        line["is_open"] = code["open"].opened
        bound = {name: each.bind(*args) for name, each in code.items()}
        results = [x if isinstance(x, tuple) else (x,) for x in (call() for call in bound.values())]
        torch.cuda.synchronize()
        line.setdefault("differ", []).extend(
            float((a.double() - b.double()).abs().max()) / (1e-9 + float(a.double().abs().max()))
            for others in results[1:]
            for a, b in zip(results[0], others, strict=True)
        )
        # One of them a second time: it says what interleaved times are worth.
        found = compare_cuda({**bound, "again": bound["one"]}, 0.03)
        line["times"][value] = {name: t.median_us for name, t in found.timings.items()}
        del args, bound, results
    return line


def calls() -> dict[str, float]:
    """Return us of calls of softmax: at new sizes of a known class, and at known sizes."""
    f = tcdsl.define(SOFTMAX.format("float")).f
    arrays = [torch.rand((size, 256), device="cuda") for size in range(300, 420)]
    for x in arrays[:20]:
        f(x)
    torch.cuda.synchronize()
    new, known = [], []
    for x in arrays[20:]:
        start = time.perf_counter()
        f(x)
        middle = time.perf_counter()
        f(x)
        new.append(1e6 * (middle - start))
        known.append(1e6 * (time.perf_counter() - middle))
    torch.cuda.synchronize()
    return {"new_us": statistics.median(new), "known_us": statistics.median(known)}


def text_of(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield for each size us of the kernel for it, of the class's, and their ratio; forced ones."""
    for value, times in line["times"].items():
        one, many = times["one"], times["open"]
        forced = [f"[{name}] {us:.1f}" for name, us in times.items() if "=" in name]
        yield " ".join([f"{value}: {one:.1f} {many:.1f} {many / one:.2f}", *forced])


def report(jobs: Sequence[Job], stop: float, workers: int, lines: str) -> list[tuple[float, str]]:
    """Print a line for each job that is timed before *stop*; return all ratios, with their text."""
    ratios: list[tuple[float, str]] = []
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting = [(job, pool.submit(compiled, job)) for job in jobs]
        for job, future in waiting:
            if time.perf_counter() > stop:
                future.cancel()
                continue
            wrong, options = future.result()
            if wrong:
                print(f"{job.case:28} {wrong}", flush=True)
                continue
            line = timed(job, options)
            if lines:
                with open(lines, "a") as file:
                    print(json.dumps(line), file=file)
            parts = list(text_of(line))
            found = (times["open"] / times["one"] for times in line["times"].values())
            ratios += [(r, f"{job.case} {part}") for r, part in zip(found, parts, strict=True)]
            worst = max(line["differ"])
            state = "" if line["is_open"] else "  NOT OPEN"
            is_wrong = worst > (2e-2 if "bfloat16" in job.case else 1e-4)
            note = f"  DIFFER {worst:.1e}" if is_wrong else ""
            print(f"{job.case:28} {job.opened:3} {', '.join(parts)}{state}{note}", flush=True)
    return ratios


def main() -> None:
    """Print a line for each program, and what they come to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--lines", default="")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--above", type=float, default=1.3)
    parser.add_argument("--of", default="library", choices=SETS)
    parser.add_argument("--force", nargs="*", default=[])
    given = parser.parse_args()
    stop = time.perf_counter() + given.seconds
    print(f"calls of softmax: {calls()}", flush=True)
    chosen = [job for job in SETS[given.of]() if not given.only or job.case in given.only]
    chosen.sort(key=lambda job: given.only.index(job.case) if given.only else 0)
    chosen = [replace(job, forced=tuple(given.force)) for job in chosen]
    ratios = report(chosen, stop, given.workers, given.lines)
    above = [text for ratio, text in sorted(ratios, reverse=True) if ratio > given.above]
    print(f"{len(above)} above {given.above}:", *above, sep="\n    ")
    if ratios:
        values = [ratio for ratio, _ in ratios]
        print(
            f"{len(values)} sizes: median {statistics.median(values):.3f}, most {max(values):.2f}"
        )


if __name__ == "__main__":
    main()
