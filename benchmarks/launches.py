"""Kernels that share a launch, beside the same kernels apart: times on a GPU, by turns.

    python benchmarks/launches.py                    every case
    python benchmarks/launches.py --only 'softmax*' --rounds 5

Each case compiles twice: as chosen with every shared launch forbidden, and with kernels of equal
blocks that share one (a barrier of all blocks, or blocks side by side).  Results are compared
first.
A line each: the case, what was forced (blocks of a multiprocessor), kernels, microseconds by calls
and by replays of a graph.
"""

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from statistics import median
from typing import Any

import tcdsl

PROGRAMS = ("eight_graphs", "four_graphs", "adam_clip", "vae_loss", "kmeans_step")
WORDS = ("then", "beside")
CALLS = 20  # that are timed together
SOFTMAX = """def softmax(float(M,N) x) -> (y) {
    top(m) max=! x(m,n)
    power(m,n) = exp(x(m,n) - top(m))
    total(m) +=! power(m,n)
    y(m,n) = power(m,n) / total(m)
}"""
BATCHNORM = """def batchnorm(float(N,C,P) x, float(C) gamma, float(C) beta) -> (y) {
    mean(c) +=! x(n,c,p)
    square(c) +=! x(n,c,p) * x(n,c,p)
    scale(c) = gamma(c) * rsqrt(square(c) / (float(N) * float(P))
               - mean(c) * mean(c) / (float(N) * float(P) * float(N) * float(P)) + 0.00001)
    y(n,c,p) = (x(n,c,p) - mean(c) / (float(N) * float(P))) * scale(c) + beta(c)
}"""
SCALED = "def scaled(float(N) x, float(N) z) -> (y) { s +=! x(i) * x(i)\n y(i) = z(i) * rsqrt(s) }"
SUMS = """def sums({params}) -> ({results}) {{
{lines}
}}"""


@dataclass(frozen=True)
class Case:
    """A program, its shapes, and how kernels share a launch."""

    name: str
    source: str
    shapes: tuple[tuple[int, ...], ...]
    word: str  # "then" or "beside"


def _sums(count: int) -> str:
    names = range(count)
    return SUMS.format(
        params=", ".join(f"float(M{n},N{n}) x{n}" for n in names),
        results=", ".join(f"y{n}" for n in names),
        lines="\n".join(f"    y{n}(i) +=! x{n}(i,j)" for n in names),
    )


def cases() -> Iterator[Case]:
    for shape in ((64, 1 << 20), (4, 1 << 18)):
        yield Case(f"softmax {shape}", SOFTMAX, (shape,), "then")
    for n in (1 << 16, 1 << 20):
        yield Case(f"scaled {n}", SCALED, ((n,), (n,)), "then")
    for shape in ((32, 64, 12544),):
        channels = (shape[1],)
        yield Case(f"batchnorm {shape}", BATCHNORM, (shape, channels, channels), "then")
    for count in (2, 8):
        small = tuple((256 + 64 * n, 1024) for n in range(count))
        large = tuple((8192 + 64 * n, 1024) for n in range(count))
        yield Case(f"{count} sums, small", _sums(count), small, "beside")
        yield Case(f"{count} sums, large", _sums(count), large, "beside")


def asked(kernels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"format": "tcdsl choices", "version": 1, "target": "cuda", "kernels": list(kernels)}


def forced(
    function: Any,
    case: Case,
    arrays: Sequence[Any],
    extra: dict[str, int],
    target: str | None = None,
) -> Any:
    """Return *case* with all its kernels in one launch, of the first one's threads."""
    plain = function.compile(*arrays, target=target)
    made = [k for k in _own(plain.choices["kernels"]) if k["template"] != "last_block"]
    threads = {one["kernel"]: _threads(one) for one in made}
    errors = []
    for wanted in sorted(set(threads.values()), reverse=case.word == "beside"):
        kernels = [_with_threads(one, wanted) for one in made]
        name = f" {case.word} ".join(threads)
        template = "grid_phases" if case.word == "then" else "packed"
        both = {"kernel": name, "template": template, **extra}
        try:
            return function.compile(*arrays, target=target, choices=asked([*kernels, both]))
        except tcdsl.TCError as error:
            errors.append(str(error).splitlines()[0])
    raise ValueError("; ".join(errors))


def _threads(one: dict[str, Any]) -> int:
    return int(one.get("threads", one.get("threads_x", 0)))


def _with_threads(one: dict[str, Any], wanted: int) -> dict[str, Any]:
    if _threads(one) == wanted:
        return one
    key = "threads_x" if "threads_x" in one else "threads"
    kept = {"kernel": one["kernel"], "template": one["template"], key: wanted}
    return kept


def timed(calls: Sequence[Callable[[], Any]], rounds: int, each: int = 1) -> list[float]:
    """Return the median microseconds of each of *calls*, by turns; one stands for *each*."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        for call, times in zip(calls, found, strict=True):
            torch.cuda.synchronize()
            start.record()
            for _ in range(CALLS // each):
                call()
            end.record()
            end.synchronize()
            if number:
                times.append(1000 * start.elapsed_time(end) / CALLS)
    return [median(times) for times in found]


def measured(case: Case, rounds: int) -> Iterator[str]:
    import torch

    program = tcdsl.define(case.source)
    function = program[program.names[0]]
    arrays = [_numbers(shape) for shape in case.shapes]
    plain = function.compile(*arrays)
    want = _listed(plain(*arrays))
    plain = function.compile(*arrays, choices=apart(plain.choices["kernels"]))
    variants = [("apart", plain)]
    sizes: list[dict[str, int]] = [{}]
    if case.word == "then":
        sizes = [{"blocks_per_multiprocessor": n} for n in (1, 2)]
    for extra in sizes:
        try:
            exe = forced(function, case, arrays, extra)
        except (tcdsl.TCError, ValueError) as error:
            yield f"{case.name}: {extra} refused: {str(error).splitlines()[0][:150]}"
            continue
        for own, other in zip(_listed(exe(*arrays)), want, strict=True):
            torch.testing.assert_close(own, other, rtol=2e-4, atol=2e-4)
        variants.append((str(*extra.values()) or "one", exe))
    yield from compared(case.name, variants, arrays, rounds)


def of_library(label: str, case: Any, sizes: dict[str, int], rounds: int) -> Iterator[str]:
    """Time a program of the library as it is chosen, beside its kernels apart."""
    import torch

    from tcdsl import library
    from tcdsl.cli.bench.device_inputs import device_inputs

    program = tcdsl.define(library.source_for(case, "float32"))
    function = program[case.def_name]
    arrays = list(device_inputs(case, sizes, "float32").values())
    chosen = function.compile(*arrays)
    plain = function.compile(*arrays, choices=apart(chosen.choices["kernels"]))
    results = [_listed(exe(*map(_copy, arrays))) for exe in (chosen, plain)]
    for own, other in zip(*results, strict=True):
        torch.testing.assert_close(own, other, rtol=2e-3, atol=2e-3)
    yield from compared(label, [("apart", plain), ("chosen", chosen)], arrays, rounds)


def _copy(array: Any) -> Any:
    """Return a copy of *array*, which a program may change in place."""
    return array.clone() if hasattr(array, "clone") else array


def apart(kernels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the choices of *kernels*, each in a launch of its own."""
    own = _own(kernels)
    names = [k["kernel"] for k in own if k["template"] != "last_block"]
    pairs = [f" {word} ".join(pair) for pair in combinations(names, 2) for word in WORDS]
    return asked([*own, *({"kernel": pair, "template": "apart"} for pair in pairs)])


def _own(kernels: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices of single kernels, without those of what shares a launch."""
    return [k for k in kernels if not any(f" {word} " in k["kernel"] for word in WORDS)]


def compared(
    label: str, variants: Sequence[tuple[str, Any]], arrays: Sequence[Any], rounds: int
) -> Iterator[str]:
    """Yield a line for each of *variants*, timed by turns: calls, and replays of a graph."""
    bound = [exe.bind(*arrays) for _, exe in variants]
    eager = timed(bound, rounds)
    try:
        replays = timed([_captured(exe, arrays) for _, exe in variants], rounds, CALLS)
    except RuntimeError as error:
        yield f"{label}: not captured: {str(error).splitlines()[0][:80]}"
        replays = [0.0] * len(variants)
    for (name, exe), us, replay in zip(variants, eager, replays, strict=True):
        count = len(exe.kernels)
        yield f"{label}: {name} {count} kernels {us:.2f} us, in a graph {replay:.2f}"


def _numbers(shape: tuple[int, ...]) -> Any:
    """Return numbers between -1 and 1, the same every time: no generator, for captured graphs."""
    import torch

    count = 1
    for extent in shape:
        count *= extent
    found = torch.arange(count, device="cuda", dtype=torch.int64) * 2654435761 % 2000003
    return (found.to(torch.float32) / 1000001.5 - 1.0).reshape(shape)


def _captured(exe: Any, arrays: Sequence[Any]) -> Callable[[], Any]:
    """Return the replay of CALLS calls as a CUDA graph."""
    import torch

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    results = exe(*arrays)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        exe(*arrays, out=results)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(CALLS):
            exe(*arrays, out=results)
    return graph.replay


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    failed = 0
    for name, lines in work(arguments.rounds):
        if not fnmatchcase(name, arguments.only):
            continue
        try:
            for line in lines:
                print(line, flush=True)
        except Exception:  # the other cases are to be timed
            failed += 1
            print(f"{name}: {traceback.format_exc(limit=-1)}"[-400:], flush=True)
    return failed


def work(rounds: int) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield every case with what computes its lines."""
    from tcdsl import library

    for case in library.cases():
        if case.name in PROGRAMS:
            sizes = case.sizes[0]
            yield case.name, of_library(case.name, case, sizes, rounds)
    for own in cases():
        yield own.name, measured(own, rounds)


if __name__ == "__main__":
    sys.exit(main())
