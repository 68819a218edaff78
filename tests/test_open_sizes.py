"""Open sizes: one kernel for many values, its results, and how often anything is compiled."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import islpy as isl
import ml_dtypes
import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import compile_to_c
from tcdsl.errors import OptionError, RangeError, ShapeError, TCError
from tcdsl.lang.ranges.open_sizes import CannotOpenError, leave_open
from tcdsl.lang.request import Request
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, Sequence
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Scop
from tcdsl.poly.verify import why_not_in_bounds, why_not_legal
from tcdsl.runtime.c_compiler import begun_shared
from tcdsl.source import Source
from tcdsl.testing import check

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SOFTMAX = """
def f(float(M,N) X) -> (Y) {
    m(i) max=! X(i,j)
    s(i) +=! exp(X(i,j) - m(i))
    Y(i,j) = exp(X(i,j) - m(i)) / s(i)
}"""
ADD = "def f(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found in the disk cache, so that compilations can be counted."""
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The sources that were given to the C compiler."""
    sources: list[str] = []

    def counted(source: str, *args: Any, **kwargs: Any) -> Any:
        sources.append(source)
        return begun_shared(source, *args, **kwargs)

    monkeypatch.setattr("tcdsl.executable.cpu.begun_shared", counted)
    yield sources


class Opened:
    """A function whose calls leave sizes open, for :func:`tcdsl.testing.check`."""

    def __init__(self, source: str, *open_sizes: str, threads: int = 2) -> None:
        self.function = tcdsl.define(source).f
        names = open_sizes or self.function.comprehension.sizes
        self.options = Options(dynamic_sizes=names, threads=threads)
        self.comprehension = self.function.comprehension
        self.specialise = self.function.specialise

    def __call__(
        self, *inputs: Any, out: Any = None, target: str | None = None, options: Any = None
    ) -> Any:
        return self.function(*inputs, out=out, target=target, options=self.options)


def drawn(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 5, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


# --- results ---------------------------------------------------------------------------------

N_SIZES = [0, 1, 2, 7, 31, 64, 65, 511, 1025, 5000]

PROGRAMS: dict[str, tuple[str, Callable[[int], tuple[Any, ...]]]] = {
    "pointwise": (ADD, lambda n: (drawn((n,)), drawn((n,), seed=1))),
    "sum": ("def f(float(N) A) -> (s) { s +=! A(i) }", lambda n: (drawn((n,)),)),
    "row sums": (
        "def f(float(N,8) A) -> (s) { s(i) +=! A(i,j) }",
        lambda n: (drawn((n, 8)),),
    ),
    "column sums": (
        "def f(float(N,33) A) -> (s) { s(j) +=! A(i,j) }",
        lambda n: (drawn((n, 33)),),
    ),
    "long rows": (
        "def f(float(3,N) A) -> (s) { s(i) max=! A(i,j) where j in 0:N }",
        lambda n: (drawn((3, n)),),
    ),
    "softmax": (SOFTMAX, lambda n: (drawn((n, 17)),)),
    "long softmax": (SOFTMAX, lambda n: (drawn((3, max(n, 1))),)),
    "argmax": (
        "def f(float(N,19) A) -> (s) { s(i) argmax=! A(i,j) }",
        lambda n: (drawn((n, 19)),),
    ),
    "product": ("def f(float64(N) A) -> (s) { s *=! A(i) }", lambda n: (drawn((n,), float),)),
    "gather": (
        "def f(float(N,4) T, int64(B) I) -> (O) { O(b,d) = T(I(b),d) }",
        lambda n: (drawn((n + 1, 4)), drawn((7,), np.int64) % (n + 1)),
    ),
    "scatter": (
        "def f(int32(7) I, float(7,N) X) -> (float(5,N) G) { G(I(n),d) +=! X(n,d) }",
        lambda n: (drawn((7,), np.int32), drawn((7, n))),
    ),
    "temporaries": (
        "def f(float(N) A) -> (O) { t(i) = A(i) * 2.0 u(i) = t(i) + 1.0 s +=! u(i)"
        " O(i) = u(i) - s }",
        lambda n: (drawn((n,)),),
    ),
    "running sum": (
        "def f(float(N) A) -> (C) { C(i) = A(i) C(i) = C(i-1) + A(i) where i in 1:N }",
        lambda n: (drawn((n + 1,)),),
    ),
    "triangle": (
        "def f(float(N) A) -> (C) { C(i) +=! A(j) where i in 0:N, j in 0:i+1 }",
        lambda n: (drawn((min(n, 300),)),),
    ),
    "strided subscript": (
        "def f(float(N) A) -> (O) { O(i) = A(2*i) + 1.0 }",
        lambda n: (drawn((n,)),),
    ),
    "shifted range": (
        "def f(float(N) A) -> (O) { O(i) = A(i - 3) }",
        lambda n: (drawn((n,)),),
    ),
    "size as a value": (
        "def f(float(N) A) -> (O) { O(i) = A(i) / (N + i) }",
        lambda n: (drawn((n,)),),
    ),
    "sums of two": (
        "def f(float(N) A, float(7) B) -> (O) { O(i + j) +=! A(i) * B(j) }",
        lambda n: (drawn((n,)), drawn((7,))),
    ),
    "half": (
        "def f(bfloat16(N,8) A) -> (s, t) { s(i) +=! A(i,j) t(j) +=! A(i,j) }",
        lambda n: (drawn((n, 8)).astype(ml_dtypes.bfloat16),),
    ),
    "wide integers": (
        "def f(int64(N) A) -> (s) { s +=! A(i) * A(i) }",
        lambda n: (drawn((n,), np.int64),),
    ),
    "matrix and vector": (
        "def f(float(N,40) A, float(40) x) -> (y) { y(i) +=! A(i,k) * x(k) }",
        lambda n: (drawn((n, 40)), drawn((40,))),
    ),
    "matmul": (MATMUL, lambda n: (drawn((n, 40)), drawn((40, 33), seed=1))),
    "long dot products": (
        "def f(float(9,N) A, float(8,N) B) -> (C) { C(i,j) +=! A(i,k) * B(j,k) }",
        lambda n: (drawn((9, n)), drawn((8, n))),
    ),
}  # fmt: skip


@pytest.mark.slow_but("sum", "long rows", "softmax")
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_is_right_for_all_sizes(name: str, compilations: list[str]) -> None:
    source, inputs = PROGRAMS[name]
    f = Opened(source)
    for n in N_SIZES:
        check(f, *inputs(n), targets=("cpu",))
    assert len(compilations) == 1


@pytest.mark.slow
def test_all_sizes_of_a_matrix_product_are_open(compilations: list[str]) -> None:
    f = Opened(MATMUL)
    for m, k, n in [
        (0, 3, 4),
        (3, 0, 4),
        (3, 4, 0),
        (1, 1, 1),
        (8, 8, 32),
        (65, 63, 67),
        (130, 5, 97),
    ]:
        check(f, drawn((m, k)), drawn((k, n), seed=1), targets=("cpu",))
    assert len(compilations) == 1


def test_a_convolution_with_a_guard_for_padding(compilations: list[str]) -> None:
    f = Opened(
        """def f(float(N,C,H,W) I, float(F,C,3,3) K) -> (O) {
            O(n,f,h,w) +=! (h + kh >= 1 && h + kh <= H && w + kw >= 1 && w + kw <= W
                ? I(n,c,h+kh-1,w+kw-1) : 0.0) * K(f,c,kh,kw)
                where h in 0:H, w in 0:W
        }""", "N", "H", "W",
    )  # fmt: skip
    for n, h, w in [(1, 4, 5), (0, 4, 5), (2, 1, 1), (3, 9, 17), (2, 33, 8)]:
        check(f, drawn((n, 3, h, w)), drawn((8, 3, 3, 3)), targets=("cpu",))
    assert len(compilations) == 1


def test_extents_of_one_dimension_need_not_be_equal() -> None:
    f = Opened("def f(float(N) A, float(M) B) -> (C) { C(i) = A(i) + B(i) }")
    for n, m in [(3, 5), (5, 3), (0, 4), (70, 70), (70, 71)]:
        check(f, drawn((n,)), drawn((m,)), targets=("cpu",))


def test_an_input_that_is_also_an_output(compilations: list[str]) -> None:
    f = Opened("def f(float(N) A, float(N) B) -> (A) { A(i) = A(i) * B(i) }")
    for n in (1, 10, 3000):
        a, b = drawn((n,)), drawn((n,), seed=1)
        before = a.copy()
        np.testing.assert_array_equal(f(a, b), before * b)
        np.testing.assert_array_equal(a, before)
        assert f(a, b, out=a) is a
        np.testing.assert_array_equal(a, before * b)
    assert len(compilations) == 1


def test_a_large_size() -> None:
    f = Opened(ADD)
    a, b = drawn((3_000_001,)), drawn((3_000_001,), seed=1)
    np.testing.assert_array_equal(f(a, b), a + b)
    total = Opened("def f(float64(N) A) -> (s) { s +=! A(i) }")
    np.testing.assert_allclose(total(a.astype(np.float64)), a.astype(np.float64).sum(), rtol=1e-9)


def test_names_of_sizes_that_are_not_c() -> None:
    f = Opened(
        "def f(float(c0, double_) A, float(c0, LONG_NAME) B) -> (C)"
        " { C(i, j) +=! A(k, i) * B(k, j) }"
    )
    for shape in ((3, 4, 5), (40, 50, 60)):
        k, i, j = shape
        check(f, drawn((k, i)), drawn((k, j)), targets=("cpu",))


@pytest.mark.slow_but("softmax-3", "temporaries-3")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["sum", "column sums", "softmax", "matmul", "temporaries"])
def test_threads(name: str, threads: int) -> None:
    source, inputs = PROGRAMS[name]
    f = Opened(source, threads=threads)
    for n in (1, 513, 4097, 20_000):
        check(f, *inputs(n), targets=("cpu",))


# --- layouts ---------------------------------------------------------------------------------


def test_strides_are_open_too(compilations: list[str]) -> None:
    f = Opened(MATMUL)
    for m, k, n in [(5, 6, 7), (64, 40, 33)]:
        a, b = drawn((k, m)).T, drawn((k, 2 * n))[:, ::2]
        check(f, a, b, targets=("cpu",))
    assert len(compilations) == 1


def test_reversed_and_repeated_arrays() -> None:
    f = Opened(ADD)
    for n in (5, 9, 2000):
        a = drawn((n,))
        np.testing.assert_array_equal(f(a[::-1], a), a[::-1] + a)
        np.testing.assert_array_equal(f(np.broadcast_to(a[:1], (n,)), a), a[0] + a)


def test_an_executable_copies_other_layouts() -> None:
    exe = tcdsl.define(MATMUL).f.compile(
        tcdsl.spec((4, 4), "float32"), tcdsl.spec((4, 4), "float32"),
        options=Options(dynamic_sizes=("M", "K", "N")),
    )  # fmt: skip
    a, b = drawn((6, 5)), drawn((6, 7))
    np.testing.assert_allclose(exe(a.T, b), a.T @ b, rtol=1e-4, atol=1e-5)


def test_an_executable_for_columns_takes_rows(compilations: list[str]) -> None:
    """Other rows are copied into columns: the code for columns is the only one."""
    a, b = drawn((6, 5)), drawn((6, 7))
    exe = tcdsl.define(MATMUL).f.compile(a.T, b, options=Options(dynamic_sizes=("M", "K")))
    c = drawn((9, 6))
    np.testing.assert_allclose(exe(c, b), c @ b, rtol=1e-4, atol=1e-5)
    assert len(compilations) == 1
    with pytest.raises(ShapeError):
        exe(np.broadcast_to(c[:, :1], (9, 6)), drawn((5, 7)))


# --- when a size is opened -----------------------------------------------------------------------


def test_a_second_value_opens_a_size(compilations: list[str]) -> None:
    f = tcdsl.define(ADD).f
    for n in (8, 8, 9, 10, 0, 1, 8, 1000):
        a, b = drawn((n,)), drawn((n,), seed=1)
        np.testing.assert_array_equal(f(a, b), a + b)
    assert len(compilations) == 2


@pytest.mark.slow
def test_each_further_size_that_varies_costs_one_compilation(compilations: list[str]) -> None:
    f = tcdsl.define(MATMUL).f
    counts = []
    for m, k, n in [(3, 4, 5), (4, 4, 5), (7, 4, 5), (7, 4, 6), (1, 4, 9), (3, 3, 5), (9, 8, 7)]:
        a, b = drawn((m, k)), drawn((k, n), seed=1)
        np.testing.assert_allclose(f(a, b), a @ b, rtol=1e-4, atol=1e-5)
        counts.append(len(compilations))
    assert counts == [1, 2, 2, 3, 3, 4, 4]


def test_asked_for_from_the_start(compilations: list[str]) -> None:
    f = tcdsl.define(SOFTMAX).f
    options = Options(dynamic_sizes=("M",))
    for m in (3, 4, 500):
        x = drawn((m, 20))
        e = np.exp(x - x.max(1, keepdims=True))
        y = f(x, options=options)
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
    assert len(compilations) == 1


def test_compile_specialises(compilations: list[str]) -> None:
    f = tcdsl.define(ADD).f
    for n in (4, 5, 6):
        f(drawn((n,)), drawn((n,)))
    exe = f.compile(drawn((6,)), drawn((6,)))
    assert exe.opened == ()
    assert "N = integers" not in exe.source
    assert len(compilations) == 3
    assert f.compile(drawn((6,)), drawn((6,))) is exe
    with pytest.raises(ShapeError):
        exe(drawn((5,)), drawn((5,)))


def test_the_cache_knows_openness_and_no_values(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(dynamic_sizes=("N",))
    for n in (4, 5):
        f = tcdsl.define(ADD).f  # a function that has seen nothing
        np.testing.assert_array_equal(
            f(drawn((n,)), drawn((n,)), options=options), drawn((n,)) + drawn((n,))
        )
    assert len(compilations) == 1


def test_what_cannot_be_opened_is_specialised(
    compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # i * S is not affine in an open S.
    f = tcdsl.define(
        "def f(float(N) A, float(S) B) -> (O) { O(i) = A(i * S) + B(0) where i in 0:2 }"
    ).f
    for n, s in [(10, 3), (10, 4), (10, 5)]:
        a, b = drawn((n,)), drawn((s,), seed=1)
        np.testing.assert_array_equal(f(a, b), a[: 2 * s : s] + b[0])
    assert len(compilations) == 3
    exe = f.compile(drawn((10,)), drawn((3,)), options=Options(dynamic_sizes=("S",)))
    np.testing.assert_array_equal(exe(a, b), a[:10:5] + b[0])
    assert "cannot be left open" in exe.explain()


def test_a_bug_with_open_sizes_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr("tcdsl.driver.leave_open", fails)
    f, options = tcdsl.define(ADD).f, Options(dynamic_sizes=("N",))
    with pytest.warns(tcdsl.TCWarning, match=r"each size of 'f' .*ValueError.*planted"):
        exe = f.compile(drawn((3,)), drawn((3,)), options=options)
    np.testing.assert_array_equal(exe(drawn((4,)), drawn((4,))), 2 * drawn((4,)))
    assert exe.opened == ()
    monkeypatch.setenv("TCDSL_DEBUG", "1")
    with pytest.raises(ValueError, match="planted"):
        tcdsl.define(ADD).f.compile(drawn((3,)), drawn((3,)), options=options)


def test_the_driver_says_why_sizes_cannot_be_opened() -> None:
    f = tcdsl.define(
        "def f(float(N) A, float(S) B) -> (O) { O(i) = A(i * S) + B(0) where i in 0:2 }"
    ).f
    special = f.specialise(drawn((10,)), drawn((3,)))
    with pytest.raises(CannotOpenError, match="product with an open size"):
        compile_to_c(Request(f.comprehension, special, opened={"S": None}), Cpu(1))


# --- executables -----------------------------------------------------------------------------


def test_an_executable_takes_all_values_of_its_open_sizes(compilations: list[str]) -> None:
    f = tcdsl.define(MATMUL).f
    specs = tcdsl.spec((64, 32), "float32"), tcdsl.spec((32, 16), "float32")
    exe = f.compile(*specs, options=Options(dynamic_sizes=("M",)))
    b = drawn((32, 16))
    for m in (1, 64, 3):
        a = drawn((m, 32))
        out = np.empty((m, 16), np.float32)
        assert exe(a, b).shape == (m, 16)
        assert exe(a, b, out=out) is out
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)
        bound = exe.bind(a, b)
        np.testing.assert_allclose(bound(), a @ b, rtol=1e-4, atol=1e-5)
    assert len(compilations) == 1


def test_the_other_sizes_of_an_executable_are_fixed() -> None:
    f = tcdsl.define(MATMUL).f
    specs = tcdsl.spec((64, 32), "float32"), tcdsl.spec((32, 16), "float32")
    exe = f.compile(*specs, options=Options(dynamic_sizes=("M",)))
    with pytest.raises(ShapeError, match="32 in this code"):
        exe(drawn((4, 31)), drawn((31, 16)))
    with pytest.raises(ShapeError):
        exe(drawn((4, 32)))
    with pytest.raises(ShapeError):
        exe(drawn((4, 32), np.float64), drawn((32, 16)))


def test_what_calls_of_the_function_opened_stays_fixed_in_an_executable() -> None:
    """Calls with the same options have opened N too, in the code that the executable shares."""
    f = tcdsl.define("def f(float(M,N) A) -> (O) { O(i,j) = 2.0 * A(i,j) }").f
    options = Options(dynamic_sizes=("M",))
    for m, n in [(3, 4), (3, 5)]:
        f(drawn((m, n)), options=options)
    exe = f.compile(drawn((3, 4)), options=options)
    for m in (3, 6):
        np.testing.assert_array_equal(exe(drawn((m, 4))), 2 * drawn((m, 4)))
    with pytest.raises(ShapeError, match="4 in this code"):
        exe(drawn((3, 7)))


def test_an_executable_tells_what_is_open() -> None:
    exe = tcdsl.define(MATMUL).f.compile(
        tcdsl.spec((4, 8), "float32"), tcdsl.spec((8, 4), "float32"),
        options=Options(dynamic_sizes=("M",)),
    )  # fmt: skip
    assert exe.opened == ("M",)
    assert "open sizes: M" in exe.explain()
    assert "const int64_t M = integers[0];" in exe.source
    assert "M" in exe.stages["scop"]


def test_a_workspace_grows_with_the_sizes() -> None:
    exe = tcdsl.define(
        "def f(float(N) A) -> (O) { t(i) = exp(A(i)) s +=! t(i) O(i) = t(i) / s }"
    ).f.compile(tcdsl.spec((4,), "float32"), options=Options(dynamic_sizes=("N",)))
    for n in (4, 40_000, 5, 100_000):
        a = drawn((n,))
        e = np.exp(a.astype(np.float64))
        np.testing.assert_allclose(exe(a), e / e.sum(), rtol=1e-4)


def test_the_reference_target_takes_all_values_too() -> None:
    exe = tcdsl.define(ADD).f.compile(
        tcdsl.spec((4,), "float32"), tcdsl.spec((4,), "float32"), target="reference",
        options=Options(dynamic_sizes=("N",)),
    )  # fmt: skip
    np.testing.assert_array_equal(exe(drawn((7,)), drawn((7,))), 2 * drawn((7,)))


# --- errors ----------------------------------------------------------------------------------


def test_an_unknown_size_is_named_with_those_that_there_are() -> None:
    f = tcdsl.define(MATMUL).f
    with pytest.raises(OptionError) as caught:
        f(drawn((2, 2)), drawn((2, 2)), options=Options(dynamic_sizes=("Batch",)))
    assert "'Batch'" in str(caught.value) and "M, K, N" in str(caught.value)


def test_preconditions_are_checked_at_each_size() -> None:
    f = Opened(
        "def f(float(H) I, float(K) W) -> (O) { O(h) +=! I(h + k) * W(k) where k in 0:5 }", "H"
    )
    assert f(drawn((9,)), drawn((5,))).shape == (5,)
    for _ in range(3):  # the first error and later ones are found in different ways
        with pytest.raises((RangeError, ShapeError)):
            f(drawn((2,)), drawn((5,)))
        assert f(drawn((30,)), drawn((5,))).shape == (26,)


def test_sizes_that_disagree() -> None:
    f = Opened(MATMUL)
    f(drawn((2, 3)), drawn((3, 4)))
    with pytest.raises(ShapeError):
        f(drawn((2, 3)), drawn((4, 4)))


def test_gathered_subscripts_are_checked_against_open_extents() -> None:
    f = Opened("def f(float(N) T, int32(B) I) -> (O) { O(b) = T(I(b)) }")
    for n in (3, 10):
        good = np.array([0, n - 1], np.int32)
        np.testing.assert_array_equal(f(drawn((n,)), good), drawn((n,))[good])
        with pytest.raises(TCError) as caught:
            f(drawn((n,)), np.array([0, n], np.int32))
        assert str(n) in str(caught.value)
    with pytest.raises(TCError, match="the extent is 0"):
        f(drawn((0,)), np.array([0], np.int32))


# --- verification ----------------------------------------------------------------------------


def opened_scop(source: str, **sizes: int) -> Scop:
    c = analyse(parse_program(Source(source)))[-1]
    general, special = leave_open(c, sizes, tuple(sizes), {name: name for name in sizes})
    return lower_comprehension(general, special, {})


def test_bounds_are_checked_for_all_sizes() -> None:
    scop = opened_scop(ADD, N=4)
    assert why_not_in_bounds(scop) is None
    short = replace(scop.arrays["C"], shape=(isl.PwAff("[N] -> { [(N - 1)] }"),))
    reason = why_not_in_bounds(replace(scop, arrays={**scop.arrays, "C": short}))
    assert reason is not None and "C" in reason


def test_order_and_races_are_checked_for_all_sizes() -> None:
    scop = opened_scop("def f(float(N) A) -> (s) { s +=! A(i) }", N=4)
    dependences = dependences_of(scop)

    def tree(kind: LoopKind, *, init_first: bool = True) -> Sequence:
        loop = Loop("i", {"S0": Coordinate(0)}, kind, Leaf("S0"))
        init = Leaf("S0_init")
        return Sequence((init, loop) if init_first else (loop, init))

    assert why_not_legal(scop, dependences, tree(LoopKind.SERIAL)) is None
    assert why_not_legal(scop, dependences, tree(LoopKind.PARALLEL)) is not None
    assert why_not_legal(scop, dependences, tree(LoopKind.SERIAL, init_first=False)) is not None


def test_code_that_is_open_takes_no_other_types() -> None:
    """An array of another type fits the layouts of code that is there: it must still be refused."""
    f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) + 1 }").f
    for n in (3, 4, 5):
        f(np.ones(n, np.float32))
    for n in (3, 4, 6):
        with pytest.raises(tcdsl.ShapeError) as caught:
            f(np.ones(n, np.float64))
        assert caught.value.code == "TC057" and "'x'" in caught.value.message
