"""Plans and their predicted times, for an H200: what the search finds, the floor, and before.

    python benchmarks/plans.py                          the pieces of networks
    python benchmarks/plans.py --family graph --worst 20
    python benchmarks/plans.py --against main           beside what that revision predicted
    python benchmarks/plans.py --only 'lstm*' --why     and why kernels are not one
    python benchmarks/plans.py --family chain         layers one after another: 65 to 241

Needs no GPU.  A program's time is the sum of its kernels' (last blocks are a part of the kernel
before them).  The floor is one launch and every input and output once, at the rate of a copy.  A
kernel without a predicted time, which no template made, leaves the sum out: "?".  The last column
is what compiling took, in seconds of the processor, as far as CUDA text and its verification.

With ``--against`` this file runs over both revisions, each in a process of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from time import thread_time

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.lower_bounds import least_bytes
from tcdsl.driver import compile_to_cuda
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.request import Request
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.source import Source

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Job:
    """A program at given shapes."""

    label: str
    text: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan in numbers."""

    predicted_us: float | None
    floor_us: float
    kernels: int
    statements: int
    seconds: float  # of the processor, that compiling took, as far as text
    apart: tuple[str, ...] = ()


def jobs(family: str, patterns: Sequence[str]) -> list[Job]:
    """Return the programs of a family of the library, at every size and type."""
    from tcdsl import library

    if family == "chain":
        return [job for job in chains() if any(fnmatchcase(job.label, f"{p}*") for p in patterns)]
    found = []
    for case in library.cases(family):  # type: ignore[arg-type]
        for dtype in case.dtypes:
            for sizes in case.sizes:
                label = " ".join([case.name, dtype, *(f"{n}={v}" for n, v in sizes.items())])
                if any(fnmatchcase(label, f"{pattern}*") for pattern in patterns):
                    shapes = tuple(case.input_shapes(sizes).items())
                    found.append(Job(label, library.source_for(case, dtype), shapes))
    return found


# Layers, each of which reads what the one before it makes, and the sizes of x.
NORM = """
    m{n}(i) +=! x{n}(i,j)
    v{n}(i) +=! x{n}(i,j) * x{n}(i,j)
    y{n}(i,j) = (x{n}(i,j) - m{n}(i) / D) / sqrt(v{n}(i) / D + 0.01)
    x{next}(i,j) = y{n}(i,j) + x(i,j)
"""
GELU = """
    m{n}(i) +=! x{n}(i,j)
    v{n}(i) +=! (x{n}(i,j) - m{n}(i) / D) * (x{n}(i,j) - m{n}(i) / D)
    y{n}(i,j) = (x{n}(i,j) - m{n}(i) / D) / sqrt(v{n}(i) / D + 0.01)
    x{next}(i,j) = 0.5 * y{n}(i,j) * (1.0 + erf(y{n}(i,j) * 0.7071)) + x{n}(i,j)
"""
SOFTMAX = """
    m{n}(i) max=! x{n}(i,j)
    s{n}(i) +=! exp(x{n}(i,j) - m{n}(i))
    x{next}(i,j) = exp(x{n}(i,j) - m{n}(i)) / s{n}(i) + x(i,j)
"""
COLUMNS = """
    s{n}(j) +=! x{n}(i,j)
    y{n}(i,j) = tanh(x{n}(i,j) - s{n}(j) / N)
    x{next}(i,j) = y{n}(i,j) * y{n}(i,j) + x{n}(i,j)
"""
MIXED = """
    q{n}(i) +=! x{n}(i,j) * x{n}(i,j)
    r{n}(i,j) = x{n}(i,j) / sqrt(q{n}(i) / D + 0.01)
    c{n}(j) max=! r{n}(i,j)
    x{next}(i,j) = r{n}(i,j) / (1.0 + exp(-r{n}(i,j))) + c{n}(j) + x{n}(i,j)
"""
BIAS = """
    h{n}(i,j) = x{n}(i,j) + x(0,j)
    m{n}(i) +=! h{n}(i,j)
    m{n}(i) = m{n}(i) / D
    v{n}(i) +=! (h{n}(i,j) - m{n}(i)) * (h{n}(i,j) - m{n}(i))
    s{n}(i) = rsqrt(v{n}(i) / D + 0.00001)
    x{next}(i,j) = (h{n}(i,j) - m{n}(i)) * s{n}(i)
    g{n}(j) +=! x{next}(i,j) * x{next}(i,j)
"""
FEW_LONG, MANY = (64, 100_000), (4096, 1024)
LAYERS = (16, 20, 40)
CHAINS: tuple[tuple[str, str, tuple[int, int], tuple[int, ...]], ...] = (
    ("norms", NORM, FEW_LONG, LAYERS), ("norms", NORM, MANY, LAYERS),
    ("layernorms and gelu", GELU, FEW_LONG, LAYERS), ("layernorms and gelu", GELU, MANY, LAYERS),
    ("softmax", SOFTMAX, FEW_LONG, LAYERS), ("column sums", COLUMNS, MANY, LAYERS),
    ("rows and columns", MIXED, MANY, LAYERS),
    ("layernorms and column sums", BIAS, (8192, 1024), (11,)),  # some 80 statements: 4 s at most
)  # fmt: skip


def chain(layer: str, count: int) -> str:
    """Return *count* layers, each of which reads what the one before it makes; g's are results."""
    text = "".join(layer.format(n=n, next=n + 1) for n in range(count))
    results = [f"x{count}", *(f"g{n}" for n in range(count) if f" g{n}(" in text)]
    head = f"def f(float(N,D) x) -> ({', '.join(results)})"
    return f"{head} {{ x0(i,j) = x(i,j) * 2.0\n{text} }}"


def chains() -> list[Job]:
    """Return chains of 11 to 40 layers."""
    found = []
    for name, layer, (n, d), counts in CHAINS:
        for count in counts:
            found.append(Job(f"{count} {name} {n}x{d}", chain(layer, count), (("x", (n, d)),)))
    return found


def planned(job: Job) -> Planned:
    """Plan *job*, and return what the cost model says of it."""
    chip = load_chip("h200")
    comprehension = analyse(parse_program(Source(job.text)))[-1]
    shapes = {name: tuple(shape) for name, shape in job.shapes}
    special = specialise(comprehension, bind_sizes(comprehension, shapes))
    start = thread_time()
    done = compile_to_cuda(Request(comprehension, special), chip)
    seconds = thread_time() - start
    moved = least_bytes(comprehension, special) / chip.dram_copy_bytes_per_s
    return Planned(
        predicted_us(done.plan.weighed), 1e6 * (moved + chip.launch_s),
        len(done.source.launches), len(done.scop.statements), seconds,
        tuple(f"{a.one} | {', '.join(a.others)}: {a.reason}" for a in done.plan.apart),
    )  # fmt: skip


def predicted_us(weighed: Sequence[object]) -> float | None:
    total = 0.0
    for one in weighed:
        if one.choice["template"] == "last_block":  # type: ignore[attr-defined]
            continue
        found = one.candidates()  # type: ignore[attr-defined]
        chosen = [c["predicted_us"] for c in found if c.get("is_chosen") and "predicted_us" in c]
        if not chosen:
            return None
        total += float(chosen[0])
    return total


def planned_in(tree: Path, work: Sequence[Job]) -> list[Planned]:
    """Return the plans of *work* as the tcdsl of *tree* makes them."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--answer"], input=json.dumps([asdict(job) for job in work]),
        env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [
        Planned(**{**found, "apart": tuple(found["apart"])}) for found in json.loads(done.stdout)
    ]


def answer() -> None:
    """Plan what standard input asks for, for :func:`planned_in`."""
    given = [
        Job(j["label"], j["text"], tuple(map(tuple, j["shapes"]))) for j in json.load(sys.stdin)
    ]
    for job in given[:1]:  # imports, and what is made once a process
        planned(job)
    json.dump([asdict(planned(job)) for job in given], sys.stdout)


# --- the table -------------------------------------------------------------------------------


def line(job: Job, now: Planned, before: Planned | None, width: int) -> str:
    """Return the line of the table of one program."""
    cells = [f"{job.label:{width}}", f"{now.statements:4}", _us(now.predicted_us)]
    cells += [_us(before.predicted_us)] if before else []
    share = now.floor_us / now.predicted_us if now.predicted_us else None
    cells += [_us(now.floor_us), "     ?" if share is None else f"{share:6.2f}", f"{now.kernels:4}"]
    cells += [f"{before.kernels:4}"] if before else []
    return "  ".join([*cells, f"{now.seconds:5.2f}"])


def _us(us: float | None) -> str:
    return "       ?" if us is None else f"{us:8.1f}"


def head(width: int, *, has_before: bool) -> str:
    cells = [f"{'program':{width}}", "stmt", "      us"] + ["  before"] * has_before
    cells += ["   floor", " share", "krnl"] + [" bef"] * has_before
    return "  ".join([*cells, "    s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--family", default="network", help="of the library")
    parser.add_argument("--only", nargs="+", default=("*",), help="programs, with * and ?")
    parser.add_argument("--against", metavar="REV", help="compare with this revision")
    parser.add_argument(
        "--worst", type=int, default=0, help="these of the least share of the floor"
    )
    parser.add_argument("--changed", action="store_true", help="only those predicted otherwise")
    parser.add_argument("--why", action="store_true", help="and why kernels are not one")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.answer:
        answer()
        return
    work = jobs(arguments.family, arguments.only)
    before: list[Planned] | None = None
    if arguments.against:
        from decisions import checkout

        with checkout(arguments.against) as tree:
            before = planned_in(tree, work)
    found = planned_in(ROOT, work)
    rows = list(zip(work, found, before or [None] * len(found), strict=True))
    report(rows, arguments)


def report(rows: list[tuple[Job, Planned, Planned | None]], asked: argparse.Namespace) -> None:
    """Print the table, and what it comes to."""
    if asked.changed:
        rows = [r for r in rows if r[2] is not None and _is_changed(r[1], r[2])]
    shares = {r[0].label: r[1].floor_us / r[1].predicted_us for r in rows if r[1].predicted_us}
    if asked.worst:
        rows = sorted(rows, key=lambda r: shares.get(r[0].label, 0.0))[: asked.worst]
    width = max((len(job.label) for job, _, _ in rows), default=8)
    print(head(width, has_before=bool(asked.against)))
    for job, now, old in rows:
        print(line(job, now, old, width))
        print(*(f"    {reason}\n" for reason in now.apart if asked.why), sep="", end="")
    ratios = [o.predicted_us / n.predicted_us for _, n, o in rows
              if o is not None and n.predicted_us and o.predicted_us]  # fmt: skip
    if rows:
        each = sorted((1000 * now.seconds / now.statements, job.label) for job, now, _ in rows)
        middle = statistics.median(ms for ms, _ in each)
        print(f"compiling: {middle:.0f} ms a statement at the median, at most {each[-1][0]:.0f}"
              f" ({each[-1][1]}), {max(now.seconds for _, now, _ in rows):.1f} s")  # fmt: skip
    if shares:
        print(f"of the floor: {statistics.geometric_mean(shares.values()):.2f} on average")
    if ratios:
        slower = sum(ratio < 0.999 for ratio in ratios)
        print(f"before / now: {statistics.geometric_mean(ratios):.3f} on average,"
              f" least {min(ratios):.3f}, {slower} slower")  # fmt: skip


def _is_changed(now: Planned, before: Planned) -> bool:
    if now.predicted_us is None or before.predicted_us is None:
        return now.kernels != before.kernels
    return abs(now.predicted_us - before.predicted_us) > 1e-3 * before.predicted_us


if __name__ == "__main__":
    main()
