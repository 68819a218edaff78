"""What the compiler decides for every library program: tables, and what a change changes in them.

    python benchmarks/decisions.py                      what differs from the tables
    python benchmarks/decisions.py --write              the tables anew: read the difference in git
    python benchmarks/decisions.py --against HEAD~1     what differs from that revision: decisions,
                                                        and texts of kernels where these are equal
    ... --only '*softmax*M=8192*' --diff 3              of these programs; and three texts' diffs

A table has a line a kernel: its strategy, blocks and threads, vectors, what else shapes it, the
statements that it runs.  It is made by the driver alone, which needs neither a compiler nor a GPU,
for the chip that the cost models know by default, and for eight threads of a CPU.

With ``--against`` this file runs over both revisions, each in a process of its own.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tcdsl import library
from tcdsl.codegen.device import c as c_library
from tcdsl.codegen.device import cuda as cuda_library
from tcdsl.costmodel import machine
from tcdsl.driver import compile_to_c, compile_to_cuda
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.options import Options
from tcdsl.poly.loop_tree import LoopKind, loops_of
from tcdsl.schedule.plan import Kernel
from tcdsl.source import Source

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests" / "golden"
GPU, CPU = "gpu", "cpu"
CPU_THREADS = 8
HEAD = """\
# What the compiler decides on a {target}: a program, its element type and sizes; a line a kernel.
# Made by benchmarks/decisions.py --write, which also shows what a commit changes.
# A line begins with the template's name; "plain" are the loops as written, where none applies.
"""
# Beside the library's sizes, which are mostly even: matrices whose rows begin anywhere in memory.
MATRICES = [
    *((1000, 1000, k) for k in (301, 383, 385, 1000, 1002, 1003, 4001)),
    (1001, 1000, 1000), (1000, 1001, 1000), (1001, 1002, 1003), (509, 1021, 2039),
]  # fmt: skip
PRODUCTS = ("matmul", "tmm", "matmul_tn", "matmul_transposed")
_OVERLAPS = {
    "WAITS_FIRST": "dependent launch that waits at its start",
    "WAITS_LAST": "dependent launch that waits at its end",
}
LONG = 13  # extents that are not a filter's


@dataclass(frozen=True, slots=True)
class Job:
    """A program to be decided on."""

    target: str
    case: str
    dtype: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def label(self) -> str:
        return " ".join([self.case, self.dtype, *(f"{name}={n}" for name, n in self.sizes)])


@dataclass(frozen=True, slots=True)
class Row:
    """What was decided, a line a kernel, and the text: of the program, without comments."""

    label: str
    lines: tuple[str, ...]
    text: str = ""

    def __str__(self) -> str:
        return "\n".join([self.label, *(f"    {line}" for line in self.lines)])


# --- the programs ----------------------------------------------------------------------------


def jobs(target: str) -> list[Job]:
    """Return the programs of a table: on a GPU every type, on a CPU the first and the narrowest."""
    found = []
    for case in library.cases():
        dtypes = case.dtypes
        if target == CPU:
            dtypes = tuple(d for d in case.dtypes if d in (case.dtypes[0], "bfloat16"))
        sizes = case.sizes if target == GPU else case.cpu_sizes
        found += [_job(target, case.name, d, s) for d in dtypes for s in sizes]
        if case.family == "contraction":
            found += [_job(target, case.name, dtypes[0], s) for s in odd_sizes(case)]
    return list(dict.fromkeys(found))


def odd_sizes(case: library.Case) -> Iterator[Mapping[str, int]]:
    """Yield sizes of a contraction that neither tiles nor vectors divide."""
    for sizes in dict.fromkeys((tuple(case.sizes[0].items()), tuple(case.sizes[-1].items()))):
        for more in (1, 3):
            yield {name: n + more if n >= LONG else n for name, n in sizes}
    if case.name in PRODUCTS:
        yield from (dict(zip("MNK", sizes, strict=True)) for sizes in MATRICES)


def _job(target: str, case: str, dtype: str, sizes: Mapping[str, int]) -> Job:
    return Job(target, case, dtype, tuple(sizes.items()))


def some(target: str, step: int) -> list[Job]:
    """Return a program of each *step*-th case, now of its first type and sizes, now of others."""
    by_case: dict[str, list[Job]] = {}
    for job in jobs(target):
        by_case.setdefault(job.case, []).append(job)
    found = [own[7 * number % len(own)] for number, own in enumerate(by_case.values())]
    return found[::step]


# --- what is decided -------------------------------------------------------------------------


def _request(comprehension: Comprehension, special: Specialisation) -> tuple[Any, ...]:
    """Return what the pipeline is called with, of this revision or of an older one."""
    try:
        from tcdsl.lang.request import Request
    except ImportError:
        return comprehension, special, {}, Options()
    return (Request(comprehension, special),)


def row_of(job: Job) -> Row:
    """Compile *job* as far as its text, and return what was decided."""
    case = library.case(job.case)
    comprehension = _comprehension(job.case, job.dtype)
    shapes = case.input_shapes(dict(job.sizes))
    special = specialise(comprehension, bind_sizes(comprehension, shapes))
    if job.target == GPU:
        cuda = compile_to_cuda(*_request(comprehension, special), _chip())
        steps = zip(cuda.plan.kernels, cuda.source.launches, strict=True)
        lines = [_gpu_line(kernel, launch) for kernel, launch in steps]
        text, is_fallback = cuda.source.text, cuda.is_fallback
    else:
        done = compile_to_c(*_request(comprehension, special), machine.Cpu(CPU_THREADS))
        lines = [_cpu_line(kernel) for kernel in done.plan.kernels]
        text, is_fallback = done.source.body, done.is_fallback
    if is_fallback:
        lines.insert(0, "a cheaper plan: what was asked for failed")
    return Row(job.label, tuple(lines), _without_comments(text))


@cache
def _chip() -> Any:
    """Return the chip that tables are for, by the name that the revision has for it."""
    try:
        from tcdsl.costmodel.chip import load_chip
    except ImportError:
        return machine.Gpu()  # type: ignore[attr-defined]
    return load_chip("h200")


@cache
def _comprehension(case: str, dtype: str) -> Comprehension:
    text = library.source_for(library.case(case), dtype)
    return analyse(parse_program(Source(text)))[-1]


def _gpu_line(kernel: Kernel, launch: Any) -> str:
    if not hasattr(launch, "grid"):  # by no import: older revisions have it elsewhere
        return f"memset: {launch.count} x {launch.width} bytes"
    grid = (*launch.grid[:2], launch.grid[2] // launch.cluster)
    if hasattr(kernel, "code"):
        resident, ahead = kernel.code.resident_blocks, kernel.code.prefetch_bytes
        if hasattr(kernel.code, "is_reversed"):
            is_reversed = kernel.code.is_reversed
        else:  # of an older revision, as what follows
            is_reversed = kernel.is_reversed
    else:
        resident, ahead = kernel.beside, kernel.ahead_bytes
        is_reversed = kernel.is_reversed
    words = [
        f"{_template(kernel)}: {_times(grid)} blocks of {_times(launch.block)} threads",
        _widths("vectors", kernel, LoopKind.LANES),
        f"clusters of {launch.cluster}" if launch.cluster > 1 else "",
        f"{launch.shared_bytes} bytes of shared memory" if launch.shared_bytes else "",
        f"{resident} resident blocks" if resident else "",
        "reversed block order" if is_reversed else "",
        "prefetches" if ahead else "",
        _OVERLAPS.get(launch.overlap.name, ""),
        kernel.name,
    ]
    return ", ".join(word for word in words if word)


def _cpu_line(kernel: Kernel) -> str:
    words = [
        _widths("parallel", kernel, LoopKind.PARALLEL),
        _widths("vectors", kernel, LoopKind.VECTOR),
        _widths("unrolled", kernel, LoopKind.UNROLL),
        kernel.name,
    ]
    return f"{_template(kernel)}: {', '.join(word for word in words if word)}"


def _template(kernel: Kernel) -> str:
    return getattr(kernel, "template", "") or "?"  # older revisions do not say


def _widths(what: str, kernel: Kernel, kind: LoopKind) -> str:
    """Return *what* and the iterations of the loops of *kind*, each number once."""
    loops = [loop for loop in loops_of(kernel.tree) if loop.kind is kind]
    numbers = [str(n) for n in dict.fromkeys(loop.extent or 0 for loop in loops)]
    return f"{what} {' and '.join(numbers)}" if numbers else ""


def _times(numbers: Sequence[int]) -> str:
    kept = list(numbers)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(map(str, kept))


def _without_comments(text: str) -> str:
    """Return the lines of *text* that are no comments: estimates there may change alone."""
    return "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("//"))


def rows_of(work: Sequence[Job], processes: int) -> list[Row]:
    """Return the rows of *work*, made by several processes."""
    if processes < 2 or len(work) < 2 * processes:
        return [row_of(job) for job in work]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return list(pool.map(row_of, work, chunksize=8))


# --- tables ----------------------------------------------------------------------------------


def table_path(target: str) -> Path:
    return TABLES / f"decisions_{target}.txt"


def table_text(target: str, rows: Iterable[Row]) -> str:
    """Return the table of *rows*."""
    return HEAD.format(target=target.upper()) + "\n".join(map(str, rows)) + "\n"


def read_table(target: str) -> dict[str, Row]:
    """Return the rows of a table by their labels."""
    found: dict[str, list[str]] = {}
    for line in table_path(target).read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            found[list(found)[-1]].append(line[4:])
        elif not line.startswith("#"):
            found[line] = []
    return {label: Row(label, tuple(lines)) for label, lines in found.items()}


# --- differences -----------------------------------------------------------------------------


def differences(
    before: Mapping[str, Row], after: Mapping[str, Row], n_diffs: int = 0
) -> Iterator[str]:
    """Yield what differs: decisions line by line, else that the text does.

    :arg n_diffs: how many texts are shown as differences of lines.
    """
    for label in dict.fromkeys((*before, *after)):
        old, new = before.get(label), after.get(label)
        if old is None or new is None:
            yield f"{label}: {'new' if old is None else 'no longer there'}"
            continue
        if not _decides_alike(old.lines, new.lines):
            removed, added = (f"  - {line}" for line in old.lines), (f"  + {x}" for x in new.lines)
            yield "\n".join([label, *removed, *added])
        elif old.text and old.text != new.text:
            yield f"{label}: the same decisions, another text"
        if old.text != new.text and old.text and n_diffs > 0:
            n_diffs -= 1
            yield "\n".join(difflib.unified_diff(
                old.text.split("\n"), new.text.split("\n"), "before", "after", lineterm="", n=2
            ))  # fmt: skip


def _decides_alike(old: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether the lines say the same; of a revision without names all but the name."""
    if any(line.startswith("?") for line in (*old, *new)):
        return [re.sub(r"^[^:]*:", "", line) for line in old] == [
            re.sub(r"^[^:]*:", "", line) for line in new
        ]
    return old == new


def report(before: Mapping[str, Row], after: Mapping[str, Row], n_diffs: int) -> bool:
    """Print what differs and how much it is; return whether anything does."""
    found = list(differences(before, after, n_diffs))
    print("\n".join(found))
    texts = sum(
        row.text != before[label].text
        for label, row in after.items()
        if label in before and before[label].text
    )
    decisions = sum(
        not _decides_alike(before[label].lines, row.lines)
        for label, row in after.items()
        if label in before
    )
    print(f"of {len(after)} programs {decisions} are decided otherwise, {texts} have another text")
    return bool(found)


# --- revisions -------------------------------------------------------------------------------


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """Give the block the tree of *revision*, in which ``tcdsl`` can be imported as it was."""
    with tempfile.TemporaryDirectory(prefix="tcdsl-decisions-") as folder:
        tree = Path(folder, "tree")
        _git("worktree", "add", "--quiet", "--detach", str(tree), revision)
        try:
            # The package tcdsl.grammar stands at the top; an installation knows the present one.
            (tree / "tcdsl" / "grammar").symlink_to(tree / "grammar")
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True)


def rows_in(tree: Path, work: Sequence[Job], processes: int) -> dict[str, Row]:
    """Return the rows of *work*, and the device libraries, as the tcdsl of *tree* makes them."""
    asked = json.dumps([asdict(job) for job in work])
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--rows", str(tree), "--processes", str(processes)],
        input=asked, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    rows = [Row(r["label"], tuple(r["lines"]), r["text"]) for r in json.loads(done.stdout)]
    return {row.label: row for row in rows}


def answer(tree: str, processes: int) -> None:
    """Write the rows of the work on standard input, for :func:`rows_in`."""
    import tcdsl

    assert Path(tcdsl.__file__).is_relative_to(tree), f"{tcdsl.__file__} is not of {tree}"
    given = json.load(sys.stdin)
    work = [Job(**{**job, "sizes": tuple(map(tuple, job["sizes"]))}) for job in given]
    rows = rows_of([job for job in work if _is_known(job)], processes)
    for name, module in (("C", c_library), ("CUDA", cuda_library)):
        rows += [
            Row(f"device library {name}, part {part}", (), module.header_text(frozenset({part})))
            for part in module.PARTS
        ]
    json.dump([asdict(row) for row in rows], sys.stdout)


def _is_known(job: Job) -> bool:
    """Return whether the library of this revision has the program of *job*."""
    found = [case for case in library.cases() if case.name == job.case]
    return any(job.dtype in case.dtypes for case in found)


# --- the command -----------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the tables")
    parser.add_argument("--against", metavar="REV", help="compare with this revision")
    parser.add_argument("--target", choices=(GPU, CPU), help="(default: both)")
    parser.add_argument("--only", metavar="PATTERN", nargs="+", default=("*",),
                        help="labels, with * and ?")  # fmt: skip
    parser.add_argument("--diff", type=int, default=0, metavar="N", help="show N texts' diffs")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", metavar="TREE", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.rows:
        answer(arguments.rows, arguments.processes)
        return 0
    is_changed = False
    for target in [arguments.target] if arguments.target else [GPU, CPU]:
        work = [job for job in jobs(target) if _is_wanted(job.label, arguments.only)]
        if arguments.against:
            with checkout(arguments.against) as tree:
                before = rows_in(tree, work, arguments.processes)
            after = rows_in(ROOT, work, arguments.processes)
            after = _without_new_cases(before, after)
        else:
            after = {row.label: row for row in rows_of(work, arguments.processes)}
            before = {n: r for n, r in _kept(target).items() if _is_wanted(n, arguments.only)}
        print(f"--- {target}")
        is_changed |= report(before, after, arguments.diff)
        if arguments.write:
            rows = {**_kept(target), **after}
            labels = [job.label for job in jobs(target)]
            text = table_text(target, (rows[label] for label in labels if label in rows))
            table_path(target).write_text(text, encoding="utf-8")
    return int(is_changed and not arguments.write)


def _without_new_cases(before: Mapping[str, Row], after: Mapping[str, Row]) -> dict[str, Row]:
    """Return those of *after* that are in *before*; print which cases the others are of."""
    new = dict.fromkeys(label.split()[0] for label in after if label not in before)
    if new:
        print(f"left out, as the other revision does not have them: {', '.join(new)}")
    return {label: row for label, row in after.items() if label in before}


def _is_wanted(label: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(label, pattern) for pattern in patterns)


def _kept(target: str) -> Mapping[str, Row]:
    return read_table(target) if table_path(target).exists() else {}


if __name__ == "__main__":
    sys.exit(main())
