"""Products beside cuBLAS (torch.mm and others), by turns on one GPU: ratios torch / ours.

    python benchmarks/products.py 1024 2048 4096 8192 --forms nn,nt,tn,tt
    python benchmarks/products.py 2048 4096 8192 --dtype tf32,int8,float8 --forms nn,nt,tn,tt
    python benchmarks/products.py 4001 1001x1002x1003 --dtype float32,ieee    by FMAs: ieee
    python benchmarks/products.py 96x8192x8192 --force chunks=4 --force chunks=8,columns=64
    python benchmarks/products.py 4096 --with bias_gelu                beside torch.compile
    python benchmarks/products.py 1024 --candidates 12 --lines FILE   the likeliest by the estimate
    python benchmarks/products.py --from benchmarks/measured/products_h200.jsonl      without a GPU

A size is M x N x K, or one number for all three; 4096:nt,tt:half:residual says forms, types and
what is computed of the product, for this size alone.  --force is a variant that is timed beside the
default: values of its configuration, as in ``tcdsl bench``.  PyTorch multiplies int8
(``_int_mm``) and float8 (``_scaled_mm``) with operands along the terms, whatever the form.

Results of each are compared with float64 before they are timed (results begin as NaN), and are
computed twice.  The second-level cache is written over before each call; times are medians.  A
variant that hangs is ended after --patience seconds, and the rest goes on in a new process.
--lines adds a line a variant.  --from says what the present estimate predicts of such lines.
"""

import argparse
import json
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import tcdsl
from tcdsl.cli.bench.forced import Force, with_forces
from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import compile_to_cuda
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.request import Request
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.options import Options
from tcdsl.source import Source

OPERANDS = {"nn": ("mk", "kn"), "nt": ("mk", "nk"), "tn": ("km", "kn"), "tt": ("km", "nk")}
# What is computed from a product c: declarations, statements, and the same in PyTorch.
WITH: Mapping[str, tuple[str, str]] = {
    "": ("", "C(m,n) +=! {}"),
    "bias_gelu": (
        ", {t}(N) b",
        "c(m,n) +=! {} d(m,n) = c(m,n) + b(n) "
        "C(m,n) = 0.5 * d(m,n) * (1.0 + erf(0.70710678 * d(m,n)))",
    ),
    "residual": (", {t}(M,N) x", "c(m,n) +=! {} C(m,n) = c(m,n) + x(m,n)"),
    "residual_rows": (
        ", {t}(M,N) x",
        "c(m,n) +=! {} C(m,n) = c(m,n) + x(m,n) r(m) +=! float(C(m,n)) * float(C(m,n))",
    ),
}
# { what --dtype says: the types of operands and of results, Options.precision }
TYPES: Mapping[str, tuple[str, str, str]] = {
    "bfloat16": ("bfloat16", "bfloat16", "float32"),
    "half": ("half", "half", "float32"),
    "float32": ("float32", "float32", "float32"),
    "ieee": ("float32", "float32", "ieee"),
    "tf32": ("float32", "float32", "tf32"),
    "int8": ("int8", "int32", "float32"),
    "float8_e4m3": ("float8_e4m3", "bfloat16", "float32"),
    "float64": ("float64", "float64", "float32"),
    "float8": ("float8_e4m3", "bfloat16", "float8"),
}
ROWS = "residual_rows"  # has a second result, the sums of squares of rows
KEYS = (
    "rows", "columns", "warp_rows", "warp_columns", "step", "stages", "loader", "swath", "chunks",
    "is_persistent", "is_finished", "cluster_rows", "cluster_columns",
)  # fmt: skip


STARTING, STARTING_S = "starting", 60.0  # PyTorch is imported
VALUES: Mapping[str, bool] = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Job:
    """One product, and the variants that are timed beside it."""

    sizes: tuple[int, int, int]  # m, n, k
    form: str
    dtype: str
    rest: str
    forces: tuple[str, ...]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        extents = dict(zip("mnk", self.sizes, strict=True))
        found = [tuple(extents[index] for index in one) for one in OPERANDS[self.form]]
        m, n, _ = self.sizes
        more = (n,) if self.rest == "bias_gelu" else (m, n)
        return [*found, more] if self.rest else found

    @property
    def source(self) -> str:
        (a, b), (more, body), types = OPERANDS[self.form], WITH[self.rest], TYPES[self.dtype]
        declared = [f"{types[0]}({','.join(o.upper())}) {x}" for o, x in ((a, "A"), (b, "B"))]
        terms = " * ".join(f"{x}({','.join(o)})" for o, x in ((a, "A"), (b, "B")))
        given = ", ".join(declared) + more.format(t=types[0])
        results = f"{types[1]}(M,N) C{', r' if self.rest == ROWS else ''}"
        return f"def f({given}) -> ({results}) {{ {body.format(terms)} }}"

    def outputs(self, dtype: Any) -> list[Any]:
        """Return new tensors of NaN for the results, of PyTorch's *dtype*."""
        import torch

        poison = float("nan") if dtype.is_floating_point else -1
        found = [torch.full(self.sizes[:2], poison, device="cuda", dtype=dtype)]
        if self.rest == ROWS:
            found.append(torch.full(self.sizes[:1], float("nan"), device="cuda"))
        return found

    def __str__(self) -> str:
        size = "x".join(map(str, self.sizes))
        return f"{self.dtype} {size} {self.form} {self.rest}".strip()


def jobs_of(args: argparse.Namespace) -> list[Job]:
    found = []
    for given in map(str, args.sizes):
        size, *own = given.split(":")
        defaults: list[str] = [args.forms, args.dtype, args.rest]
        forms, dtypes, rest = [*own, *defaults[len(own) :]]
        numbers = [int(n) for n in size.split("x")]
        m, n, k = numbers if len(numbers) == 3 else numbers * 3
        for dtype, form in product(dtypes.split(","), forms.split(",")):
            found.append(Job((m, n, k), form, dtype, rest, tuple(args.force)))
    return found


def forced(job: Job, exe: Any, text: str) -> Options:
    """Return the options of the variant *text*, KEY=VALUE,KEY=VALUE."""
    pairs = (pair.split("=") for pair in text.split(","))
    forces = [Force("", key, VALUES.get(v, int(v) if v.isdigit() else v)) for key, v in pairs]
    choices = with_forces(exe.choices, exe.candidates, forces)
    return Options(choices=json.dumps(choices), precision=TYPES[job.dtype][2])


def variants(job: Job, function: Any, inputs: Sequence[Any], most: int) -> Iterator[Any]:
    """Yield the default executable of *job*, and what is asked for beside it."""
    exe = function.compile(*inputs, options=Options(precision=TYPES[job.dtype][2]))
    yield exe
    own = [c for c in exe.candidates if c.get("template") == "tile_mma" and "config" in c]
    others = (c for c in own if not (c["is_chosen"] or "code_change" in c))
    likely = [c["config"] for c in others][:most]
    texts = [",".join(f"{k}={v}" for k, v in config.items()).lower() for config in likely]
    for text in (*job.forces, *texts):
        try:
            yield function.compile(*inputs, options=forced(job, exe, text))
        except tcdsl.TCError as error:
            print("failed", job, text, str(error).splitlines()[0][:200], flush=True)


def config_of(exe: Any) -> dict[str, Any]:
    first = exe.choices["kernels"][0]
    kept = {key: first[key] for key in ("template", *KEYS) if key in first}
    return {**kept, "kernels": len(exe.kernels)}


def timed(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the median microseconds of *calls*, which take turns."""
    import torch

    Event: Any = torch.cuda.Event
    flush = torch.empty(1 << 27, dtype=torch.uint8, device="cuda")
    times: list[list[float]] = [[] for _ in calls]
    for call, own in [*zip(calls, times, strict=True)] * rounds:
        flush.zero_()
        start, end = (Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        own.append(start.elapsed_time(end) * 1e3)
    return [statistics.median(own) for own in times]


def peer_of(job: Job, inputs: Sequence[Any]) -> Callable[[], Any]:
    import torch

    a = inputs[0].T if job.form[0] == "t" else inputs[0]
    b = inputs[1].T if job.form[1] == "t" else inputs[1]
    if job.rest == "bias_gelu":
        compiled = torch.compile(lambda x, y, b: torch.nn.functional.gelu(x @ y + b))
        return lambda: compiled(a, b, inputs[2])
    if job.rest == "residual":
        return lambda: torch.addmm(inputs[2], a, b)
    if job.rest == ROWS:
        rows = torch.compile(_with_rows)
        return lambda: rows(a, b, inputs[2])
    torch.backends.cuda.matmul.allow_tf32 = job.dtype == "tf32"
    if job.dtype == "int8":
        rows, columns = a.contiguous(), b.T.contiguous().T
        return lambda: torch._int_mm(rows, columns)
    if job.dtype.startswith("float8"):
        rows, columns, one = a.contiguous(), b.T.contiguous().T, torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(rows, columns, one, one, out_dtype=torch.bfloat16)
    out = torch.empty(job.sizes[:2], dtype=inputs[0].dtype, device="cuda")
    return lambda: torch.mm(a, b, out=out)


def operand(shape: tuple[int, ...], name: str) -> Any:
    """Return a tensor of normal numbers of the type *name*, or of integers from its range."""
    import torch

    if name == "int8":
        return torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8)
    return torch.randn(shape, device="cuda").to(torch_type(name))


def torch_type(name: str) -> Any:
    import torch

    names = {"half": "float16", "float8_e4m3": "float8_e4m3fn"}
    return getattr(torch, names.get(name, name))


def _with_rows(a: Any, b: Any, x: Any) -> tuple[Any, Any]:
    c = a @ b + x
    return c, (c.float() ** 2).sum(1)


def reference(job: Job, inputs: Sequence[Any]) -> Any:
    """Return the results in float64: one, or a tuple."""
    import torch

    a, b = (
        x.double().T if f == "t" else x.double() for x, f in zip(inputs, job.form, strict=False)
    )
    c = a @ b
    if job.rest == "bias_gelu":
        return torch.nn.functional.gelu(c + inputs[2].double())
    c = c + inputs[2].double() if job.rest else c
    return (c, (c**2).sum(1)) if job.rest == ROWS else c


def errors_of(results: Any, exact: Any) -> list[float]:
    """Return how far each of *results* is from the exact one, of its norm."""
    if not isinstance(exact, tuple):
        results, exact = (results,), (exact,)
    pairs = zip(results, exact, strict=True)
    return [float((own.double() - one).norm() / one.norm()) for own, one in pairs]


def measured(job: Job, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a line for each variant of *job*."""
    import torch

    given, result, _ = TYPES[job.dtype]
    dtype, inputs = torch_type(result), [operand(shape, given) for shape in job.shapes]
    function = tcdsl.define(job.source).f
    exact, peer = reference(job, inputs), peer_of(job, inputs)
    theirs = errors_of(peer(), exact)
    calls: list[Callable[[], Any]] = [peer]
    found = []
    for exe in variants(job, function, inputs, args.candidates):
        config = config_of(exe)
        print("trying", config, flush=True)
        results = []
        for _ in range(2):
            out = job.outputs(dtype)
            bound = exe.bind(*inputs, out=tuple(out) if len(out) > 1 else out[0])
            bound()
            torch.cuda.synchronize()
            results.append(out)
        errors = errors_of(results[0] if len(out) > 1 else out[0], exact)
        is_right = all(map(torch.equal, *results)) and all(
            error <= 1.1 * bound_ + 1e-6 for error, bound_ in zip(errors, theirs, strict=True)
        )
        calls.append(bound)
        found.append({**asdict(job), "config": config, "is_right": is_right, "error": max(errors)})
    del exact
    torch_us, *times = timed(calls, args.rounds)
    for line, us in zip(found, times, strict=True):
        line.pop("forces")
        yield {**line, "us": round(us, 2), "torch_us": round(torch_us, 2)}


def run_jobs(jobs: Sequence[Job], args: argparse.Namespace) -> None:
    """Measure *jobs*, and print a line of JSON for each variant."""
    for number, job in enumerate(jobs[args.first :], args.first):
        print("job", number, job, flush=True)
        try:
            for line in measured(job, args):
                print("line", json.dumps(line), flush=True)
        except Exception as error:  # the others are to be measured
            print("failed", job, type(error).__name__, str(error)[:300], flush=True)


def watched(args: argparse.Namespace, jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
    """Yield the lines of *jobs* from a process of their own; after one that hangs from another."""
    first, end = 0, time.monotonic() + args.limit
    while first < len(jobs):
        command = [sys.executable, __file__, *sys.argv[1:], "--first", str(first)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=_read, args=(child, lines), daemon=True)
        reader.start()
        last = STARTING
        while True:
            patience = max(args.patience, STARTING_S if last == STARTING else 0.0)
            try:
                text = lines.get(timeout=min(patience, max(0.1, end - time.monotonic())))
            except queue.Empty:
                child.kill()
                print(f"ended while {last}", flush=True)
                if time.monotonic() > end or last == STARTING:
                    return
                break
            if not text:
                first = len(jobs)
                break
            kind, _, rest = text.strip().partition(" ")
            last = text.strip()
            if kind == "job":
                first = int(rest.split()[0]) + 1
            if kind == "line":
                yield json.loads(rest)
            if kind == "failed":
                print(text.strip(), flush=True)
        child.wait()


def _read(child: "subprocess.Popen[str]", lines: "queue.Queue[str]") -> None:
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line)
    lines.put("")


def text_of(line: Mapping[str, Any]) -> str:
    m, n, k = line["sizes"]
    config = " ".join(f"{key}={value}" for key, value in line["config"].items())
    verdict = "right" if line["is_right"] else f"WRONG {line['error']:.3g}"
    return (
        f"{line['dtype']} {m}x{n}x{k} {line['form']} {line['rest']}: {line['us']:.1f} us, "
        f"{2e-6 * m * n * k / line['us']:.0f} TFLOP/s, torch {line['torch_us']:.1f}: "
        f"{line['torch_us'] / line['us']:.3f} {verdict} | {config}"
    )


def predicted(path: Path) -> Iterator[str]:
    """Yield what the estimate says of the lines of *path*, for an H200."""
    chip = load_chip("h200")
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        m, n, k = line["sizes"]
        job = Job((m, n, k), line["form"], line["dtype"], line["rest"], ())
        comprehension = analyse(parse_program(Source(job.source)))[-1]
        names = ["A", "B", *({"": [], "bias_gelu": ["b"]}.get(job.rest, ["x"]))]
        sizes = bind_sizes(comprehension, dict(zip(names, job.shapes, strict=True)))
        special = specialise(comprehension, sizes)
        plan = compile_to_cuda(Request(comprehension, special), chip).plan
        asked = {key: value for key, value in line["config"].items() if key in KEYS}
        every = [c for one in plan.weighed for c in one.candidates()]
        for c in every:
            if asked.items() <= c.get("config", {}).items():
                us, mark = c["predicted_us"], "chosen" if c["is_chosen"] else ""
                ratio = us / line["us"]
                yield f"{job} {asked}: {line['us']} us, predicted {us:.1f}, {ratio:.2f} {mark}"
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", help="M x N x K, or one number")
    parser.add_argument("--forms", default="nn", help=",".join(OPERANDS))
    parser.add_argument("--dtype", default="bfloat16", help=",".join(TYPES))
    parser.add_argument("--with", dest="rest", default="", choices=list(WITH))
    parser.add_argument("--force", action="append", default=[], metavar="KEY=VALUE,...")
    parser.add_argument("--candidates", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--patience", type=float, default=20.0)
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--from", dest="given", type=Path)
    parser.add_argument("--first", type=int, default=-1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    jobs = jobs_of(args)
    if args.given:
        for text in predicted(args.given):
            print(text)
    elif args.first >= 0:
        run_jobs(jobs, args)
    else:
        for line in watched(args, jobs):
            print(text_of(line), flush=True)
            if args.lines:
                with args.lines.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
