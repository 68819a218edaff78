"""Backward passes that ``tcdsl.vjp`` derives, beside torch.compile's and Liger-kernel's own.

    python benchmarks/derivatives.py [--seconds 110] [--lines FILE] [--only NAME ...]
                                     [--precision bfloat16] [--candidates N]

Each line is one def at one size in one type: the gradients of its tensors from the inputs and the
results' cotangents.  tcdsl gets the text of the forward pass and nothing else, and computes again
what it needs of it; torch.compile and Liger-kernel (where it is installed) run their backward
passes on what their forward passes have kept.  ``cross_entropy+`` is forward and backward.  Times
are the GPU's, interleaved, the second-level cache cold; results are compared with PyTorch's eager
gradients in float64.  Lines of FILE are not run again, so that several short runs make one table,
which ``--table`` prints alone.  ``--device cpu`` runs the small sizes.  ``--precision`` is
``Options.precision`` of tcdsl's products (mlp, conv2d) in bfloat16, whose lines name it: "bfloat16"
lets it round adjoints to bfloat16, as PyTorch does.  ``--candidates`` times tcdsl alone, with the N
best candidates for the kernel that is predicted to take longest, the chosen one first.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import derivatives_liger as liger
import torch
from derivatives_works import WORKS, Sizes, Work
from torch._functorch import config as functorch_config

import tcdsl
from tcdsl.api import Function
from tcdsl.cli.bench.device_peers import float32_proper, relative_error
from tcdsl.library.texts import with_element
from tcdsl.options import CHOICES
from tcdsl.runtime.arrays import spec
from tcdsl.runtime.timing import compare, compare_cuda

Call = Callable[[], Any]
EPS = 1e-5
DTYPES = ("float32", "bfloat16")
WORST = {"float32": 1e-4, "bfloat16": 3e-2}  # of the largest element


@dataclass(frozen=True, slots=True)
class Job:
    """A work at one size in one type."""

    work: Work
    sizes: Sizes
    dtype: str
    precision: str = ""  # of products, see ``Options``; "" for the default

    @property
    def name(self) -> str:
        sizes = "x".join(map(str, self.sizes.values()))
        asked = f" precision={self.precision}" if self.precision else ""
        return f"{self.work.name} {self.dtype} {sizes}{asked}"

    @property
    def options(self) -> tcdsl.Options:
        return tcdsl.Options(precision=self.precision) if self.precision else tcdsl.Options()

    @property
    def forward(self) -> Function:
        return tcdsl.define(with_element(self.work.source, self.dtype))[self.work.def_name]

    @property
    def wrt(self) -> tuple[str, ...]:
        c = self.forward.comprehension
        return tuple(
            name for name in c.inputs
            if c.tensors[name].rank and c.tensors[name].dtype.is_float
            and name not in self.work.without
        )  # fmt: skip

    def backward(self) -> Function:
        """Return what is timed."""
        return tcdsl.vjp(self.forward, wrt=self.wrt)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each input and result of the forward pass."""
        f = self.forward
        c = f.comprehension
        inputs = {name: tuple(_extent(dim, self.sizes) for dim in c.tensors[name].dims)
                  for name in c.inputs}  # fmt: skip
        specs = [spec(shape, c.tensors[name].dtype.name) for name, shape in inputs.items()]
        return {**inputs, **f.output_shapes(*specs)}


def _extent(dim: Any, sizes: Sizes) -> int:
    return dim if isinstance(dim, int) else sizes[dim]


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured of a job: microseconds, and errors beside float64."""

    name: str
    us: Mapping[str, float]
    errors: Mapping[str, float]
    kernels: tuple[str, ...]
    trouble: str = ""

    def __str__(self) -> str:
        ours = self.us.get("tcdsl")
        times = " ".join(f"{peer} {us:8.1f}" for peer, us in self.us.items())
        ratios = " ".join(f"{peer} x{us / ours:.2f}" for peer, us in self.us.items()
                          if ours and peer != "tcdsl")  # fmt: skip
        errors = " ".join(f"{error:.0e}" for error in self.errors.values())
        kernels = f"{len(self.kernels)} kernels"
        return f"{self.name:44} {times} | {ratios} | {errors} | {kernels} {self.trouble}"


# --- calls ------------------------------------------------------------------------------------


def drawn(job: Job, device: str) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Return the inputs by name, and the cotangents."""
    torch.manual_seed(0)
    c, shapes = job.forward.comprehension, job.shapes()
    inputs: dict[str, Any] = {}
    for name in c.inputs:
        dtype = getattr(torch, c.tensors[name].dtype.name)
        if not shapes[name]:
            inputs[name] = EPS
        elif dtype.is_floating_point:
            scale = shapes[name][0] ** -0.5 if name.startswith("w") else 1.0
            inputs[name] = (torch.randn(shapes[name], device=device) * scale).to(dtype)
        else:
            inputs[name] = torch.randint(job.sizes["V"], shapes[name], device=device)
    draw = [torch.randn if shapes[name] else torch.ones for name in c.outputs]
    given = [
        one(shapes[name], device=device).to(getattr(torch, c.tensors[name].dtype.name))
        for one, name in zip(draw, c.outputs, strict=True)
    ]
    return inputs, given


def ours(
    job: Job, inputs: Mapping[str, Any], given: Sequence[Any], options: tcdsl.Options | None = None
) -> tuple[Call, tuple[str, ...]]:
    """Return a call of the derived function, with the options of *job* or others; its kernels."""
    f = job.backward()
    executable = f.compile(*inputs.values(), *given, options=options or job.options)
    c = f.comprehension
    place = given[0].device
    out = tuple(
        torch.empty(executable.special.shapes[name], device=place,
                    dtype=getattr(torch, c.tensors[name].dtype.name))
        for name in c.outputs
    )  # fmt: skip
    kernels = tuple(str(kernel.get("name", "")) for kernel in executable.kernels)
    bound = executable.bind(*inputs.values(), *given, out=out if len(out) > 1 else out[0])
    return bound, kernels


def gradients(
    job: Job, formula: Callable[..., Any], inputs: Mapping[str, Any], given: Sequence[Any]
) -> Call:
    """Return a call of PyTorch's backward pass; of a whole work, of its forward pass before."""
    leaves = {name: inputs[name].detach().requires_grad_() for name in job.wrt}

    def forward() -> tuple[Any, ...]:
        found = formula(**{**inputs, **leaves})
        return tuple(found) if isinstance(found, tuple | list) else (found,)

    kept = None if job.work.is_whole else forward()

    def call() -> Any:
        results = kept or forward()
        seeds = [seed.to(result.dtype) for seed, result in zip(given, results, strict=True)]
        return torch.autograd.grad(results, list(leaves.values()), seeds, retain_graph=True)

    return call


def compiled(job: Job, inputs: Mapping[str, Any], given: Sequence[Any], mode: str | None) -> Call:
    """Return a call of torch.compile's backward pass."""
    torch._dynamo.reset()
    return gradients(
        job, torch.compile(job.work.formula, dynamic=False, mode=mode), inputs, given
    )  # fmt: skip


def exact(job: Job, inputs: Mapping[str, Any], given: Sequence[Any]) -> tuple[Any, ...]:
    """Return the gradients in float64."""
    wide = {name: x.double() if torch.is_tensor(x) and x.is_floating_point() else x
            for name, x in inputs.items()}  # fmt: skip
    found: tuple[Any, ...] = gradients(job, job.work.formula, wide, [g.double() for g in given])()
    return found


def errors_of(result: Any, wanted: Sequence[Any]) -> float:
    """Return the largest error beside the largest element, of all gradients."""
    found = result if isinstance(result, tuple | list) else (result,)
    pairs = list(zip(found, wanted, strict=False))
    return max(relative_error(one.reshape(other.shape), other) for one, other in pairs)


# --- a job ------------------------------------------------------------------------------------


def measured(job: Job, device: str, mode: str | None, seconds: float) -> Line:
    """Return the line of *job*: all that run, in turns."""
    inputs, given = drawn(job, device)
    wanted = exact(job, inputs, given)
    call, kernels = ours(job, inputs, given)
    calls: dict[str, Call] = {"tcdsl": call}
    builders = {"torch": lambda: compiled(job, inputs, given, mode)}
    if job.work.has_liger and device == "cuda" and liger.is_installed():
        builders["liger"] = lambda: liger.call(job.work.name, inputs, given)
    trouble = []
    for peer, build in builders.items():
        try:
            calls[peer] = build()
            calls[peer]()
        except Exception as error:  # a peer that cannot run this is left out, and it is said
            calls.pop(peer, None)
            trouble.append(f"{peer}: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
    errors = {peer: errors_of(one(), wanted) for peer, one in calls.items() if peer != "liger"}
    # (Where a rectifier's argument is nearly 0, float64 is on its other side: for all in float32.)
    if not errors["tcdsl"] <= max(WORST[job.dtype], 2 * errors.get("torch", 0.0)):
        trouble.append("WRONG")
    timed = compare_cuda if device == "cuda" else compare
    timings = timed(calls, seconds).timings
    us = {peer: timing.median_us for peer, timing in timings.items()}
    return Line(job.name, us, errors, kernels, "; ".join(trouble))


def candidates(job: Job, device: str, count: int, seconds: float) -> Iterator[str]:
    """Yield what the *count* best candidates for the longest kernel of *job* take, in turns."""
    inputs, given = drawn(job, device)
    executable = job.backward().compile(*inputs.values(), *given, options=job.options)
    fitting = (c for c in executable.candidates if "predicted_us" in c)
    weighed = [c for c in fitting if "code_change" not in c]
    longest = max((c for c in weighed if c["is_chosen"]), key=lambda c: c["predicted_us"])
    own = [c for c in weighed if c["kernel"] == longest["kernel"] and c is not longest]
    tried = [longest, *sorted(own, key=lambda c: c["predicted_us"])[: count - 1]]
    calls: dict[str, Call] = {}
    for candidate in tried:
        kernel = {"kernel": candidate["kernel"], "template": candidate["template"]}
        choices = {**executable.choices, "kernels": [kernel | candidate["config"]]}
        options = replace(job.options, choices=json.dumps(choices))
        config = " ".join(f"{key}={value}" for key, value in candidate["config"].items())
        label = f"{candidate['predicted_us']:8.1f} predicted, {candidate['template']}: {config}"
        calls[label], _ = ours(job, inputs, given, options)
    timed = compare_cuda if device == "cuda" else compare
    for label, timing in timed(calls, seconds).timings.items():
        yield f"{timing.median_us:8.1f} us {label}"


def ahead(job: Job) -> str:
    """Compile *job* for the GPU into the cache; return what went wrong, or nothing."""
    try:
        specs = [replace(x, device="cuda:0", library="torch") for x in _specs(job)]
        job.backward().compile(*specs, target="cuda", options=job.options)
    except Exception as error:  # the job itself will say so
        return f"{type(error).__name__}: {error}"
    return ""


def _specs(job: Job) -> list[Any]:
    c, shapes = job.forward.comprehension, job.shapes()
    names = (*c.inputs, *c.outputs)
    return [spec(shapes[name], c.tensors[name].dtype.name) for name in names]


def jobs(only: Sequence[str], small: bool, precision: str) -> Iterator[Job]:
    """Yield the jobs, the first size of all works first; of products in bfloat16 at *precision*."""

    def job(work: Work, sizes: Sizes, dtype: str) -> Job:
        is_asked = work.has_products and dtype == "bfloat16"
        return Job(work, sizes, dtype, precision if is_asked else "")

    works = [work for work in WORKS if not only or any(name in work.name for name in only)]
    if small:
        yield from (job(work, work.small, dtype) for dtype in DTYPES for work in works)
        return
    for number in range(max(len(work.sizes) for work in works)):
        for dtype in DTYPES:
            yield from (job(w, w.sizes[number], dtype) for w in works if number < len(w.sizes))


# --- the table --------------------------------------------------------------------------------


def table(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the lines, the worst first, then the ratios of each kind."""
    full = [line for line in lines if "tcdsl" in line.us and len(line.us) > 1]
    for line in sorted(full, key=_to_best):
        yield str(line)
    for kind in sorted({line.name.split()[0] for line in full}):
        yield _summary(kind, [line for line in full if line.name.split()[0] == kind])
    yield _summary("all", full)


def _to_best(line: Line) -> float:
    return min(us for peer, us in line.us.items() if peer != "tcdsl") / line.us["tcdsl"]


def _summary(kind: str, lines: Sequence[Line]) -> str:
    if not lines:
        return f"{kind}: nothing"
    best = [_to_best(line) for line in lines]
    to_torch = [line.us["torch"] / line.us["tcdsl"] for line in lines if "torch" in line.us]
    mean = statistics.geometric_mean(to_torch) if to_torch else math.nan
    return (f"{kind:16} {len(lines):3} lines: torch.compile x{mean:.2f} on the geometric mean; "
            f"the best x{min(best):.2f} at least, x{statistics.geometric_mean(best):.2f} "
            "on the mean")  # fmt: skip


def read(path: Path | None) -> list[Line]:
    """Return the lines of a run before."""
    if path is None or not path.exists():
        return []
    return [Line(**json.loads(text)) for text in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Measure what is not measured yet, while there is time; print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--mode", default=None, help="torch.compile's")
    parser.add_argument("--precision", default="", choices=("", *CHOICES["precision"]),
                        help="Options.precision, of products in bfloat16")  # fmt: skip
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--candidates", type=int, default=0, metavar="N", help="tcdsl's alone")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    args = parser.parse_args()
    begun = time.monotonic()
    lines = read(args.lines)
    done = {line.name for line in lines}
    every = jobs(args.only, args.device == "cpu", args.precision)
    todo = [job for job in every if job.name not in done]
    if args.candidates:
        for job in todo:
            print(f"{job.name}: all kernels, and what is predicted of the longest", flush=True)
            print("\n".join(candidates(job, args.device, args.candidates, 0.05)), flush=True)
        return
    if not args.table:
        float32_proper()
        # Several backward passes over one forward pass need what it kept.
        functorch_config.donated_buffer = False
        lines += run(todo, args, begun)
    print("\n".join(table(lines)))


def run(todo: Sequence[Job], args: argparse.Namespace, begun: float) -> Iterator[Line]:
    """Yield a line for each of *todo*, and keep it, until the time is over."""
    pool = None
    if args.device == "cuda" and args.workers:
        pool = ProcessPoolExecutor(args.workers, get_context("spawn"))
        futures = {job.name: pool.submit(ahead, job) for job in todo}
    for job in todo:
        left = args.seconds - (time.monotonic() - begun)
        if left < 0:
            break
        try:
            if pool is not None:
                futures[job.name].result(timeout=max(1.0, left))
            line = measured(job, args.device, args.mode, 0.05)
        except Exception as error:  # the others are worth having
            line = Line(job.name, {}, {}, (), f"{type(error).__name__}: {str(error)[:300]}")
        print(f"{time.monotonic() - begun:6.1f} {line}", flush=True)
        if args.lines is not None and line.us:
            with args.lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(line)) + "\n")
        yield line
        if args.device == "cuda":
            torch.cuda.empty_cache()
    if pool is not None:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in (pool._processes or {}).values():
            process.terminate()


if __name__ == "__main__":
    main()
