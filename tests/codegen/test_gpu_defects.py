"""Programs that tell a kernel with a small defect from a right one, and what plans must never do.

Each program is the simplest found whose kernel needs the one thing that its comment names;
benchmarks/mutants.py plants the defects.  All run on the emulator, in one text.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import islpy as isl
import numpy as np
import pytest

from tcdsl.codegen.cuda.kernel import KernelText
from tcdsl.codegen.cuda.source import CudaSource, Launch, Parameter, ParameterKind
from tcdsl.codegen.cuda.vectors import vector_accesses
from tcdsl.codegen.device.c import FLOATS, INTEGERS
from tcdsl.codegen.device.cuda import OPERATORS
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.driver import GpuBackend
from tcdsl.emulator import EmulatedProgram, compile_emulated
from tcdsl.emulator.cxx import why_no_cxx_compiler
from tcdsl.errors import InternalError, TCWarning
from tcdsl.options import Options
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, Sequence, print_tree, sequence
from tcdsl.poly.scop import Kind, Scop
from tcdsl.schedule.plan import Kernel as PlannedKernel
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.synchronisation import synchronise
from tcdsl.strategies.problem import Scheme

CheckAll = Callable[..., None]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

PROGRAMS: dict[str, tuple[str, list[Any]]] = {
    # three loops of a block's threads, each of which reads what the one before wrote elsewhere
    "mirrored": (
        """def f(float(M,D) x) -> (z) {
            t(i,j) = x(i,j) * 2.0
            u(i,j) = t(i,D-1-j) + t(i,j)
            z(i,j) = u(i,D-1-j) * u(i,j)
        }""",
        [(5, 100)],
    ),
    "mirrored, few": (
        """def f(float(M,D) x) -> (z) {
            t(i,j) = x(i,j) * 2.0
            z(i,j) = t(i,D-1-j) + t(i,j)
        }""",
        [(5, 24)],
    ),
    # a sum that one thread stores, and all threads go on with
    "pinned, then everywhere": (
        """def f(float(M,D) x) -> (s, z) {
            s(i) +=! x(i,j)
            t(i) = s(i) * 0.5 + 1.0
            z(i,j) = x(i,j) * t(i)
        }""",
        [(3, 300)],
    ),
    # an element that one thread wrote, and a statement that all threads run
    "mapped, then everywhere": (
        """def f(float(M,D) x) -> (z) {
            t(i,j) = x(i,j) * 2.0
            s(i) = t(i,0) + t(i,1)
            z(i,j) = x(i,j) - s(i)
        }""",
        [(3, 40)],
    ),
    # threads that differ along y alone
    "rows of a column": (
        """def f(float(M,N) x) -> (z) {
            s(j) +=! x(i,j)
            t(i,j) = x(i,j) - s(j)
            z(i,j) = t(M-1-i,j) + t(i,j)
        }""",
        [(100, 5)],
    ),
    "an operand that is gathered": (
        "def f(float(L,K) A, float(K,N) B, int32(M) I) -> (C) { C(m,n) +=! A(I(m),k) * B(k,n) }",
        [(9, 48), (48, 96), np.arange(96, dtype=np.int32) * 5 % 9],
    ),
    # several iterations of a thread, each with a register of its own
    "iterations": (
        """def f(float(M,D) x) -> (y) {
            m(i) max=! x(i,j)
            e(i,j) = exp(x(i,j) - m(i))
            s(i) +=! e(i,j)
            y(i,j) = e(i,j) / s(i)
        }""",
        [(2, 700)],
    ),
    "iterations, and one element left": (
        """def f(float(M,D) x, float(D) b) -> (y) {
            e(i,j) = x(i,j) * 2.0 + b(j)
            s(i) +=! e(i,j)
            y(i,j) = e(i,j) / s(i)
        }""",
        [(1, 1057), (1057,)],
    ),
    # what lives through the iterations of a loop inside a thread
    "recurrence": (
        """def f(float(T,N) x) -> (y) {
            t(k,i) = x(k,i)
            t(k,i) = t(k,i) + 0.5 * t(k-1,i) where k in 1:T, i in 0:N
            y(k,i) = t(k,i) * 2.0
        }""",
        [(7, 40)],
    ),
    # a shared array that does not begin at 0
    "from 3 on": (
        """def f(float(M,D) x) -> (y) {
            t(i,j) = x(i,j) * 2.0 where i in 0:M, j in 3:D
            y(i,j) = t(i,D+2-j) + t(i,j) where i in 0:M, j in 3:D
        }""",
        [(4, 43)],
    ),
    # an operand whose box does not begin where its tile does
    "shifted operand": (
        """def f(float(M,19) A, float(16,N) B) -> (C) {
            C(m,n) +=! A(m,k+3) * B(k,n) where k in 0:16
        }""",
        [(130, 19), (16, 130)],
    ),
    "matmul": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        [(70, 50), (50, 66)],
    ),
    "matmul in two steps": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        [(70, 32), (32, 66)],
    ),
    "two of each": (
        """def f(float(M,K,2) A, float(2,K,N) B) -> (C) {
            C(m,n) +=! A(m,k,q) * B(q,k,n) where q in 0:2
        }""",
        [(70, 18, 2), (2, 18, 66)],
    ),
    # what has an order, what has none, and what is first among equals
    "prefix sums": (
        "def f(float(N) x) -> (y) { y(i) = x(i)\n y(i) = y(i) + y(i-1) where i in 1:N }", [(40,)],
    ),
    "histogram": (
        "def f(float(E) x, int32(E) I, float(V) y) -> (y) { y(I(e)) += x(e) }",
        [(300,), np.arange(300, dtype=np.int32) % 7, (7,)],
    ),
    "ties": (
        "def f(int32(M,N) x) -> (y) { y(i) argmax=! x(i,j) }",
        [(np.arange(900, dtype=np.int32) * 7 % 5).reshape(3, 300)],
    ),
    # a sum in vectors over the threads of a row; one that is added to what is there
    "row sum": ("def f(float(M,D) x) -> (y) { y(i) +=! x(i,j) }", [(3, 2048)]),
    "row sum, added": (
        "def f(float(M,D) x, float(M) y) -> (y) { y(i) += x(i,j) }",
        [(3, 300), (3,)],
    ),
    # loops over threads that begin late, with one iteration and with several
    "triangle": (
        """def f(float(N,N) x) -> (z) {
            z(i,j) = 0.0 where i in 0:N, j in 0:N
            z(i,j) = x(i,j) * 2.0 where i in 0:N, j in i:N
        }""",
        [(37, 37)],
    ),
    "sums of a triangle": (
        "def f(float(N,N) x) -> (y) { y(i) +=! x(i,j) where i in 0:N, j in i:N }", [(37, 37)],
    ),
    "sums of a triangle, in iterations": (
        "def f(float(N,N) x) -> (y) { y(i) +=! x(i,j) where i in 0:N, j in i:N }", [(531, 531)],
    ),
    "lower triangle": (
        """def f(float(N,N) x, float(N,N) z) -> (z) {
            z(i,j) = x(i,j) * 2.0 where i in 0:N, j in 0:i+1
        }""",
        [(37, 37), (37, 37)],
    ),
    # the same in a loop of its own, which begins late, not one that the zeros begin at 0
    "upper triangle": (
        """def f(float(N,N) x, float(N,N) z) -> (z) {
            z(i,j) = x(i,j) * 2.0 where i in 0:N, j in i:N
        }""",
        [(37, 37), (37, 37)],
    ),
    # one iteration of a loop over threads, which depends on the block
    "diagonal": (
        "def f(float(N,N) x) -> (y) { y(i) +=! x(i,j) where i in 0:N, j in i:i+1 }", [(64, 64)],
    ),
    # columns that leave threads along x without work, and all along y in a fold
    "columns": ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(1000, 5)]),
    "columns, centred": (
        """def f(float(M,N) x) -> (s, z) {
            s(j) +=! x(i,j)
            z(i,j) = x(i,j) - s(j)
        }""",
        [(100, 5)],
    ),
    # loops beside a fold that all threads run, those past the last column too
    "columns, and idle threads": ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(100, 37)]),
    # unrolled iterations, the last of which few threads have
    "one sum": ("def f(float(N) x) -> (y) { y +=! x(i) }", [(1031,)]),
    # temporaries of which one kernel reads the first and writes the second, other elements of it
    "reversed twice": (
        """def f(float(N) x) -> (z) {
            t(i) = exp(x(i))
            u(i) = t(N-1-i) * 2.0
            z(i) = u(N-1-i) + 1.0
        }""",
        [(3000,)],
    ),
    # vectors that are added to, or begin off their width
    "added in place": ("def f(float(N) x, float(N) y) -> (y) { y(i) += x(i) }", [(8192,), (8192,)]),
    "off by one": ("def f(float(N) x) -> (y) { y(i) = x(i+1) where i in 0:N-1 }", [(8193,)]),
}  # fmt: skip


def test_programs(check_emulated: CheckAll) -> None:
    check_emulated(list(PROGRAMS.values()))


@pytest.mark.slow
def test_programs_on_a_small_chip(check_emulated: CheckAll, small_chip: Chip) -> None:
    check_emulated(list(PROGRAMS.values()), gpu=small_chip)


def test_threads_of_one_loop_run_at_the_same_time(lower: Callable[..., Scop]) -> None:
    """A loop over threads around two statements orders no thread after another."""
    scop = lower(
        "def f(float(N) x) -> (a, y) { a(i) = x(i)\n y(i) = a(N-1-i) where i in 0:N }", (64,)
    )
    at = {name: Coordinate(0) for name in ("S0", "S1")}
    body = sequence([Leaf("S0"), Leaf("S1")])
    tree = Loop("i", at, LoopKind.THREAD, body, 64, axis=0, width=64)
    done, (new,) = synchronise(scop, [tree], dependences_of(scop), {})
    assert isinstance(new, Loop) and isinstance(new.body, Sequence), print_tree(new)
    kinds = [
        done.by_name[child.statement].kind for child in new.body.children if isinstance(child, Leaf)
    ]
    assert kinds == [Kind.ASSIGN, Kind.BARRIER, Kind.ASSIGN]


# --- a barrier that some threads miss is refused, and a simpler plan taken ----------------------

TRIANGLE = """def f(float(N,N) x, float(N,N) a, float(N,N) y) -> (a, y) {
    a(i,j) = x(i,j)   where i in 1:N, j in 0:i
    y(i,j) = a(i-1,j) where i in 1:N, j in 0:i
}"""
N = 37


BEFORE_I = "{ barrier0_0[i, j] : j < i }"


def triangular(scop: Scop, met: str = "") -> Plan:
    """Return a plan whose barrier is below the threads, in a loop as long as the thread's number:

    for (i = threadIdx.x) for (j < i) { S0; barrier; S1; }

    :arg met: where the barrier stands, if not where all threads meet it.
    """
    i, j = ({name: Coordinate(dim) for name in ("S0", "S1")} for dim in (0, 1))
    inner = Loop("j", j, LoopKind.SERIAL, sequence([Leaf("S0"), Leaf("S1")]), N)
    tree = Loop("i", i, LoopKind.THREAD, inner, N, axis=0, width=N)
    done, (new,) = synchronise(scop, [tree], dependences_of(scop), {})
    if met:
        *others, barrier = done.statements
        barrier = replace(barrier, domain=barrier.domain.intersect(isl.Set(met)))
        done = done.with_statements((*others, barrier))
    return Plan(done, (PlannedKernel("S0 S1", new),))


def test_a_barrier_in_a_loop_that_depends_on_the_thread(lower: Callable[..., Scop]) -> None:
    backend = GpuBackend(load_chip("h200"), {})
    plan = triangular(lower(TRIANGLE, *[(N, N)] * 3), BEFORE_I)
    assert backend.why_not_legal(plan) is None, "order and synchronisation are right"
    with pytest.raises(InternalError, match=r"not all threads .* meet __syncthreads in 'for"):
        backend.print(plan, None)
    for source in (TRIANGLE, TRIANGLE.replace("0:i", "0:N")):
        plan = triangular(lower(source, *[(N, N)] * 3))
        assert backend.why_not_legal(plan) is None
        assert "__syncthreads" in backend.print(plan, None).text, "threads without work meet it"


@pytest.fixture
def survived(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Our own bugs are survived with a warning, and its script goes to the test's folder."""
    monkeypatch.delenv("TCDSL_DEBUG", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.filterwarnings("default::tcdsl.errors.TCWarning")
def test_a_simpler_plan_is_taken(
    check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch, survived: None
) -> None:
    def plan(
        scop: Scop, options: Options, gpu: Chip, scheme: Scheme | None = None, **rest: Any
    ) -> Plan:
        if scheme is None and not rest:
            return triangular(scop, BEFORE_I)
        return plan_for_gpu(scop, options, gpu, scheme, **rest)

    monkeypatch.setattr("tcdsl.plan.gpu_planner.plan_for_gpu", plan)
    with pytest.warns(TCWarning, match="the printing of 'f': not all threads .* __syncthreads"):
        check_emulated([(TRIANGLE, [(N, N)] * 3)])


@pytest.mark.filterwarnings("default::tcdsl.errors.TCWarning")
def test_a_printer_that_takes_a_fold_for_an_ordinary_statement(
    check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch, survived: None
) -> None:
    """The guard of a loop over threads then stays around the fold."""
    monkeypatch.setattr(KernelText, "has_collective", lambda self, node: False)
    with pytest.warns(TCWarning, match=r"not all threads of a block meet tc_fold_y\w* in 'if"):
        check_emulated([(PROGRAMS["columns"][0], [(1000, 67)])])


def test_a_store_under_a_condition_moves_no_vector(lower: Callable[..., Scop]) -> None:
    """Loads do: they are of what the condition reads anyway."""
    source = "def f(float(N) x, float(N) w) -> (w) { w(i) = 2.0 where i in 0:N, exists x(i) > 0.0 }"
    for text, stores in ((source, False), (source.replace(", exists x(i) > 0.0", ""), True)):
        scop = lower(text, (64,), (64,))
        (statement,) = scop.statements
        lanes = {statement.name: Coordinate(0, 0, 1, 4)}
        loop = Loop("v", lanes, LoopKind.LANES, Leaf(statement.name), 4)
        assert (0 in vector_accesses(scop, statement, loop, 4, {})) == stores


# --- the device library: an identity changes no value, the extreme ones included ----------------

TYPES: dict[str, np.dtype[Any]] = {
    **{t: np.dtype(f"{'u' if t[0] == 'u' else ''}int{t[1:]}") for t in INTEGERS},
    "b": np.dtype(np.uint8),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


def extremes(t: str) -> np.ndarray[Any, Any]:
    if t == "b":
        return np.array([0, 1], np.uint8)
    if t in FLOATS:
        return np.array([-np.inf, -1.5, 0.0, 2.0, np.inf, np.nan], TYPES[t])
    ends = np.iinfo(TYPES[t])
    return np.array([ends.min, ends.min + 1, 1, ends.max - 1, ends.max], TYPES[t])


def test_identities() -> None:
    if reason := why_no_cxx_compiler():
        pytest.skip(reason)
    names = [(op, t) for t in TYPES for op in OPERATORS[t]]
    texts, launches, arrays = [], [], {}
    for op, t in names:
        ctype = {"b": "uint8_t", "f32": "float", "f64": "double"}.get(t, f"{TYPES[t]}_t")
        operator, k = f"tc_op_{op}_{t}", f"k_{op}_{t}"
        texts.append(
            f'extern "C" __global__ void {k}({ctype} *p)\n{{\n'
            "  const int i = (int)threadIdx.x;\n"
            f"  p[i] = {operator}::combine({operator}::identity(), p[i]);\n}}\n"
        )
        arrays[k] = extremes(t).copy()
        parameter = Parameter(f"{ctype} *p", ParameterKind.ARRAY, k)
        launches.append(Launch(k, (1, 1, 1), (len(arrays[k]), 1, 1), 0, (parameter,), k, ()))
    functions = frozenset(f"tc_op_{op}_{t}" for op, t in names)
    source = CudaSource("".join(texts), functions, tuple(launches), 0, ())
    EmulatedProgram(compile_emulated(source), source).run(arrays)
    for op, t in names:
        np.testing.assert_array_equal(arrays[f"k_{op}_{t}"], extremes(t), f"{op} {t}")
