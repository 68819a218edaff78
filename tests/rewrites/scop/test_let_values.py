"""Lets as statements of their own: what is set apart, what must not be, and what it costs."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import compile_to_cuda
from tcdsl.lang.ranges.range_inference import bind_sizes, specialise
from tcdsl.lang.request import Request
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.let_values import with_lets_apart
from tcdsl.source import Source
from tests.scripts import script

lets = script("lets")
RESIZE, APART = lets.RESIZE, lets.APART


def lowered(source: str, *shapes: tuple[int, ...]) -> tuple[Any, Any, Scop]:
    c = analyse(parse_program(Source(source)))[-1]
    special = specialise(c, bind_sizes(c, dict(zip(c.inputs, shapes, strict=True))))
    scop = lower_comprehension(c, special, {})
    return c, special, with_lets_apart(scop, c.statements)


def apart(source: str, *shapes: tuple[int, ...]) -> list[str]:
    """Return the names of the statements made of lets."""
    return [s.name for s in lowered(source, *shapes)[2].statements if not s.source_name]


def images(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    x = rng.random((5, 7, 3), dtype=np.float32)
    return x, np.zeros(8, np.float32), np.zeros(9, np.float32)


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_resize(target: str) -> None:
    inputs = images(np.random.default_rng(0))
    with_lets, without = tcdsl.define(RESIZE).resize, tcdsl.define(APART).resize
    tcdsl.testing.check(with_lets, *inputs, targets=(target,))
    got = [np.asarray(f(*inputs, target=target)) for f in (with_lets, without)]
    assert (got[0] == got[1]).all()


def test_lets_cost_what_statements_cost() -> None:
    shapes = [(48, 64, 3), (72,), (96,)]
    names = apart(RESIZE, *shapes)
    assert sorted(names) == [f"S0_{n}" for n in ("fx", "fy", "sx", "sy", "x0", "x1", "y0", "y1")]
    inputs = [np.zeros(shape, np.float32) for shape in shapes]
    kernels = []
    for source in (RESIZE, APART):
        c, special, _ = lowered(source, *shapes)
        cuda = compile_to_cuda(Request(c, special), load_chip("h200"))
        cpu = tcdsl.define(source).resize.compile(*inputs, target="cpu")
        calls = cpu.source[cpu.source.index("void tcdsl_") :].count("tc_floor_f32(")
        kernels.append((len(cuda.plan.kernels), cuda.source.text.count("tc_div_f32("), calls))
    assert kernels[0] == kernels[1]
    assert kernels[0][2] == 4  # sy and sx, each for the index and for the fraction


@pytest.mark.slow
def test_the_benchmark_compiles_lets_three_ways() -> None:
    times = lets.medians_us((5, 7, 3, 8, 9), 0.01)
    assert list(times) == ["lets", "separate", "substituted"]
    codes = lets.compiled((5, 7, 3, 8, 9))
    floors = {name: code.source.count("tc_floor_f32(") for name, code in codes.items()}
    assert floors["lets"] == floors["separate"] < floors["substituted"]


def test_sizes_may_stay_open() -> None:
    f = tcdsl.define(RESIZE).resize
    x, rows, cols = images(np.random.default_rng(1))
    options = tcdsl.Options(dynamic_sizes=("OH", "H"))
    exe = f.compile(x, rows, cols, target="cpu", options=options)
    for height in (8, 1, 0):
        rows = np.zeros(height, np.float32)
        assert np.allclose(exe(x, rows, cols), f.reference(x, rows, cols), atol=1e-6)


@pytest.mark.slow_but(
    "y(i) +=! x(i, j) * s where s = tanh(g(j))-names1",
    "y(i, j) = x(i, j) * s where s = t / 2.0, t = exp(g(i))-names2",
    "y(i, j) = v * v where v = exp(x(i, j))-names3",
    "y(i, j) = x(i, k) where k = N - 1 - j, j in 0:N-names6",
    "y(i, j) = i >= 1 ? x(i, j) * s : 0.0 where s = exp(g(i - 1))-names8",
    "y(i) +=! x(i, j) * s where s = exp(g(j)), exists x(i, j) > 0.0-names10",
)
@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("y(i, j) = x(i, j) * s where s = tanh(g(i))", ["S0_s"]),
        ("y(i) +=! x(i, j) * s where s = tanh(g(j))", ["S0_s"]),
        ("y(i, j) = x(i, j) * s where s = t / 2.0, t = exp(g(i))", ["S0_t", "S0_s"]),
        # Of all indices: it stays where it is, but for a subscript, which is checked as well.
        ("y(i, j) = v * v where v = exp(x(i, j))", []),
        ("y(i, j) = g(k) where k = int32(x(i, j) * 0.0), i in 0:M, j in 0:N", ["S0_k"]),
        # Cheap, and affine.
        ("y(i, j) = x(i, j) * s where s = g(i)", []),
        ("y(i, j) = x(i, k) where k = N - 1 - j, j in 0:N", []),
        ("y(i, j) = x(i, j) * s where s = exp(0.5 * N)", []),
        # Read only under a guard, or where a condition holds.
        ("y(i, j) = i >= 1 ? x(i, j) * s : 0.0 where s = exp(g(i - 1))", []),
        ("y(i, j) = i >= 1 ? x(i, j) * s : 0.0 where s = exp(float(i))", ["S0_s"]),
        ("y(i) +=! x(i, j) * s where s = exp(g(j)), exists x(i, j) > 0.0", []),
    ],
)
def test_what_is_set_apart(source: str, names: list[str]) -> None:
    text = f"def f(float(M, N) x, float(M) g) -> (y) {{ {source} }}"
    assert apart(text, (4, 4), (4,)) == names
    rng = np.random.default_rng(2)
    inputs = rng.random((4, 4), dtype=np.float32), rng.random(4, dtype=np.float32)
    tcdsl.testing.check(tcdsl.define(text).f, *inputs, targets=("cpu", "emulate"))


def test_a_let_that_reads_what_the_statement_writes_stays() -> None:
    text = """
    def f(float(M, N) x) -> (y) {
        y(i, j) = x(i, j)
        y(i, j) = x(i, j) + s where s = exp(y(i - 1, 0)), i in 1:M
    }
    """
    assert apart(text, (4, 3)) == []
    x = np.random.default_rng(3).random((4, 3), dtype=np.float32)
    tcdsl.testing.check(tcdsl.define(text).f, x, targets=("cpu", "emulate"))


def test_only_instances_that_run_are_computed() -> None:
    # g(j) exists for j < i only, and i < 4.
    text = """
    def f(float(M, N) x, float(K) g) -> (y) {
        y(i) +=! x(i, j) * s where s = exp(g(j)), j in 0:i
    }
    """
    _, _, scop = lowered(text, (4, 4), (3,))
    (let,) = (s for s in scop.statements if not s.source_name)
    assert let.domain.is_equal(
        let.domain.read_from_str(let.domain.get_ctx(), "{ S0_s[j] : 0 <= j < 3 }")
    )
    x, g = np.ones((4, 4), np.float32), np.ones(3, np.float32)
    tcdsl.testing.check(tcdsl.define(text).f, x, g, targets=("cpu", "emulate"))


def test_scattered_left_sides() -> None:
    text = """
    def f(float(N, D) x, float(N) w, float(B, D) start) -> (float(B, D) y) {
        y(b, d) = start(b, d)
        y(k, d) += x(n, d) where k = int32(floor(w(n)))
    }
    """
    assert apart(text, (6, 2), (6,), (3, 2)) == ["S1_k"]
    x, w = np.ones((6, 2), np.float32), np.linspace(0, 2.9, 6).astype(np.float32)
    start = np.zeros((3, 2), np.float32)
    tcdsl.testing.check(tcdsl.define(text).f, x, w, start, targets=("cpu", "emulate"))
    with pytest.raises(tcdsl.LaunchError):
        tcdsl.define(text).f(x, w + 1, start, target="cpu")


def test_on_a_gpu_no_kernel_is_made_for_a_factor() -> None:
    text = "def f(float(M, N) x, float(N) g) -> (y) { y(i, j) = x(i, j) * s where s = tanh(g(j)) }"
    c, special, scop = lowered(text, (64, 64), (64,))
    assert len(scop.statements) == 2
    assert len(compile_to_cuda(Request(c, special), load_chip("h200")).plan.kernels) == 1
