"""The library's programs on a CPU, beside what another revision's compiler makes of them.

    OMP_NUM_THREADS=1 python benchmarks/cpu_against.py main
    OMP_NUM_THREADS=1 python benchmarks/cpu_against.py HEAD~3 --family graph --most-bytes 1e6
    ... --only 'focal*' 'softmax float32*'     of these programs

Each line is a program: the least processor time of a bound call in microseconds, of the other
revision and of this tree, and their quotient, above 1 where this tree is faster; "other bits" where
the results are not the same to the bit.  The two compilers are processes that take turns, and each
turn has its arrays elsewhere in memory: where they lie to one another can be a third of the time
(128 x 1024 floats, rmsnorm).  The last lines are geometric means by family.

With ``--derivatives`` the programs are what ``tcdsl.vjp`` makes of the library's: gradients by all
floating-point inputs.  With ``--threads 2`` code is made for several threads, and
``OMP_NUM_THREADS=1`` runs it on one.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any

from decisions import ROOT, checkout

from tcdsl import library

BYTES, OPERATIONS = 3.2e7, 2e9  # by default: of inputs, of contractions
ROUNDS = 12
PAGE, LINE = 4096, 64  # bytes
BATCH_S = 0.01
Job = tuple[str, str, Mapping[str, int]]  # a case, its element type, its sizes


@dataclass(frozen=True, slots=True)
class Row:
    """What a program took: microseconds, before and now, and whether the results are the same."""

    family: str
    label: str
    before_us: float
    now_us: float
    is_same: bool

    @property
    def ratio(self) -> float:
        return self.before_us / self.now_us

    def __str__(self) -> str:
        other = "" if self.is_same else "  other bits"
        return (
            f"{self.label:64} {self.before_us:10.1f} {self.now_us:10.1f} {self.ratio:6.2f}{other}"
        )


def jobs(asked: argparse.Namespace) -> list[tuple[str, Job]]:
    """Return the programs asked for, with their families."""
    found = []
    for case in library.cases(asked.family):
        for sizes in (case.small_sizes[-1:] if asked.small else ()) + case.cpu_sizes:
            shapes = case.input_shapes(sizes).values()
            n_bytes = 4 * sum(math.prod(shape) for shape in shapes)
            if n_bytes > asked.most_bytes or case.flops(sizes) > OPERATIONS:
                continue
            job = (case.name, case.dtypes[0], sizes)
            if any(fnmatchcase(label(job), pattern) for pattern in asked.only):
                found.append((case.family, job))
    return found


def label(job: Job) -> str:
    name, dtype, sizes = job
    return " ".join([name, dtype, *(f"{size}={n}" for size, n in sizes.items())])


# --- a compiler in a process of its own ------------------------------------------------------


class Compiler:
    """The process that compiles and runs programs as the tcdsl of a tree does."""

    def __init__(self, tree: Path) -> None:
        path = f"{tree}{os.pathsep}{Path(__file__).parent}"
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--answer", str(tree)],
            env=environment, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def tell(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def compilers(revision: str) -> Iterator[tuple[Compiler, Compiler]]:
    """Give the block the compilers of *revision* and of this tree."""
    with checkout(revision) as tree:
        both = Compiler(tree), Compiler(ROOT)
        try:
            yield both
        finally:
            for compiler in both:
                compiler.end()


def serve(tree: str) -> None:
    """Answer what :class:`Compiler` is told: a program's results as a hash, or its least time."""
    import numpy as np

    import tcdsl

    assert Path(tcdsl.__file__).is_relative_to(tree), f"{tcdsl.__file__} is not of {tree}"
    rng = np.random.default_rng()
    made: Made | None = None
    for line in sys.stdin:
        told = json.loads(line)
        if isinstance(told, list):
            try:
                made = Made(*told)
            except tcdsl.TCError:
                print("null", flush=True)
                continue
            print(json.dumps(made.bits()), flush=True)
        else:
            assert made is not None
            print(json.dumps(least_us(made.bound(rng), told)), flush=True)


class Made:
    """A program that is compiled, with its inputs and its results."""

    def __init__(self, job: Job, threads: int, is_derivative: bool) -> None:
        import numpy as np

        import tcdsl

        name, dtype, sizes = job
        case = library.case(name)
        draws = np.random.default_rng(0)
        self.inputs = list(case.make_inputs(sizes, draws, dtype).values())
        function = tcdsl.define(library.source_for(case, dtype))[case.def_name]
        if is_derivative:
            results = _tuple(function(*self.inputs, target="cpu"))
            shapes = [y.shape for y in results if y.dtype.kind == "f"]
            function = tcdsl.vjp(function)
            self.inputs += [draws.standard_normal(shape).astype(dtype) for shape in shapes]
        options = tcdsl.Options(threads=threads)
        self.executable = function.compile(*self.inputs, target="cpu", options=options)
        self.results = _tuple(self.executable(*self.inputs))

    def bits(self) -> str:
        import numpy as np

        parts = (np.ascontiguousarray(result).tobytes() for result in self.results)
        return sha256(b"".join(parts)).hexdigest()

    def bound(self, rng: Any) -> Any:
        """Return a call whose arrays lie elsewhere."""
        inputs = [moved(x, rng) for x in self.inputs]
        return self.executable.bind(*inputs, out=tuple(moved(y, rng) for y in self.results))


def _tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def moved(x: Any, rng: Any) -> Any:
    """Return a copy of the array *x* that begins at any line of a page; a number as it is."""
    import numpy as np

    if not isinstance(x, np.ndarray) or not x.ndim:
        return x
    raw = np.empty(x.nbytes + 2 * PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE + LINE * int(rng.integers(PAGE // LINE))
    copy = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def least_us(call: Any, seconds: float) -> float:
    """Return the least processor time of a *call* of those that *seconds* hold."""
    least, batch, spent = math.inf, 1, 0.0
    while spent < seconds:
        start = time.thread_time()
        for _ in range(batch):
            call()
        took = time.thread_time() - start
        spent += took
        least = min(least, took / batch)
        if took < seconds / 8:  # the clock's own time vanishes
            batch *= 2
    return 1e6 * least


# --- the command -----------------------------------------------------------------------------


def timed(
    family: str, job: Job, asked: argparse.Namespace, both: tuple[Compiler, Compiler]
) -> Row | None:
    """Return the times of *job* by *both*; None: one of them has no such program."""
    for compiler in both:  # at the same time
        compiler.tell((job, asked.threads, asked.derivatives))
    bits = [compiler.answer() for compiler in both]
    if None in bits:
        return None
    least = [math.inf, math.inf]
    for _ in range(ROUNDS):
        for number, compiler in enumerate(both):
            compiler.tell(BATCH_S)
            least[number] = min(least[number], compiler.answer())
    return Row(family, label(job), *least, bits[0] == bits[1])


def means(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the geometric means of the quotients, of each family and of all."""
    for family in (*dict.fromkeys(row.family for row in rows), ""):
        own = [math.log(row.ratio) for row in rows if family in ("", row.family)]
        mean = math.exp(sum(own) / len(own))
        yield f"{family or 'all':12} {len(own):4} programs {mean:6.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revision", nargs="?", default="main")
    parser.add_argument("--family")
    parser.add_argument("--only", metavar="PATTERN", nargs="+", default=("*",),
                        help="labels, with * and ?")  # fmt: skip
    parser.add_argument("--most-bytes", type=float, default=BYTES, help="of inputs, as float32")
    parser.add_argument("--threads", type=int, default=1, help="for which code is made")
    parser.add_argument("--derivatives", action="store_true", help="of the programs instead")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests, too")
    parser.add_argument("--answer", metavar="TREE", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.answer:
        serve(asked.answer)
        return
    rows = []
    with compilers(asked.revision) as both:
        for family, job in jobs(asked):
            row = timed(family, job, asked, both)
            if row is not None:
                rows.append(row)
                print(row, flush=True)
    if rows:
        print(*means(rows), sep="\n")


if __name__ == "__main__":
    main()
