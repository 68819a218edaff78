"""Index values: exact at any sizes, in 32 bits where these hold them, and checked by the call."""

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.comprehension import Binary, Cast, Comprehension, Expr, Index, Size, Statement, walk
from tcdsl.lang.ranges.index_bounds import Values
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.dtypes import INT32, INT64
from tcdsl.lang.types.index_values import leaves_in, part_of, with_wide_indices
from tcdsl.lang.types.sema import analyse
from tcdsl.source import Source

LARGE = 3_000_000_000

SOURCE = """
def f(size N, size M) -> (a, b, c, d, e, int64(4) g, h) {
    a = 1.0 / float64(N - 1)
    b(i) = int64(i) where i in N - 3:N
    c = double(N * M) - N * M
    d(i) = i * M + 5 > N where i in 0:3
    e(i) = float64(min(i * N, M - i) % 1000 + abs(i - N) / 7) where i in 0:4
    g(i) = N - i where i in 0:4
    h(i) = double(((i << 20) * N & 1048575) + (i > 1 ? N : -N)) where i in 0:3
}
"""


def expected(n: int, m: int) -> list[np.ndarray]:
    i = range(4)
    return [
        np.float64(1 / (n - 1)),
        np.array([n - 3, n - 2, n - 1], np.int64),
        np.float64(0),
        np.array([k * m + 5 > n for k in range(3)]),
        np.array([float(min(k * n, m - k) % 1000 + abs(k - n) // 7) for k in i]),
        np.array([n - k for k in i], np.int64),
        np.array([float(((k << 20) * n & 1048575) + (n if k > 1 else -n)) for k in range(3)]),
    ]


@pytest.mark.slow_but(
    "cpu-5-7", "cpu-2147483648-1", "emulate-2147483647-46341", "emulate-3000000000-3000000000"
)
@pytest.mark.parametrize(("n", "m"), [(5, 7), (2**31 - 1, 46341), (LARGE, LARGE), (2**31, 1)])
@pytest.mark.parametrize("target", ["cpu", "emulate", "reference"])
def test_values_are_exact(target: str, n: int, m: int) -> None:
    f = tcdsl.define(SOURCE).f
    results = f.reference(n, m) if target == "reference" else f(n, m, target=target)
    for result, value in zip(results, expected(n, m), strict=True):
        assert np.asarray(result).dtype == value.dtype and (np.asarray(result) == value).all()


def test_elements_of_int32_are_compared_exactly() -> None:
    f = tcdsl.define("def f(int32(N) x, size M) -> (y) { y(n) = x(n) == M - 3000000000 + 1 }").f
    x = np.array([1, 0, -1294967295], np.int32)
    for target in ("cpu", "emulate"):
        assert f(x, LARGE, target=target).tolist() == [True, False, False]
    assert f.reference(x, LARGE).tolist() == [True, False, False]


def test_an_array_of_more_than_two_to_the_31_elements() -> None:
    x = np.broadcast_to(np.float32(2), (LARGE,))
    f = tcdsl.define("def f(float(N) x) -> (y) { y = x(N - 1) / float64(N) + 0.0 * int64(N) }").f
    assert f(x, target="cpu") == 2 / LARGE


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        ("y = int32(N)", "N takes the value 3000000000, which is", "write int64(N)"),
        ("y(i) = int32(i) where i in 0:N", "i takes the value 2999999999 for", "int64(i)"),
        ("y(i) = i where i in N - 2:N", "i takes the value 2999999999", "declare y as int64"),
        ("y(i) = x(0) + N - i where i in 0:3", "N takes the value", "int64(N)"),
        ("y = float(int32(-N - 1))", "-N - 1 takes the value -3000000001", "int64(-N - 1)"),
        ("y +=! x(j) * N where j in 0:2", "N takes the value 3000000000", "int64(N)"),
    ],
)
def test_what_does_not_fit_is_an_error_at_the_call(body: str, message: str, hint: str) -> None:
    text = f"def f(int32(K) x, size N) -> (y) {{ {body} }}"
    f = tcdsl.define(text).f
    x = np.zeros(4, np.int32)
    if "0:N" not in body:
        f(x, 100, target="cpu")
    for _ in range(2):  # the first sizes are isl's, the others are compiled
        with pytest.raises(tcdsl.ShapeError) as caught:
            f(x, LARGE, target="cpu")
        error = caught.value
        assert error.code == "TC092" and message in error.message
        assert error.hint is not None and hint in error.hint
        assert error.column is not None
        assert text[error.column - 1 :].startswith(message.partition(" takes")[0])


@pytest.mark.slow_but(
    "y = N * N",
    "y(i) +=! int32(i * N * N) where i in 0:3, exists i < 1",
    "y(i) = int32((i * N * N) % 7) where i in 0:3",
)
@pytest.mark.parametrize(
    "body",
    [
        "y = N * N",  # the size fits: the product wraps, as an int32 does
        "y(i) = i > 5 ? int32(i * N * N) : 0 where i in 0:3",  # nobody computes it
        "y(i) +=! int32(i * N * N) where i in 0:3, exists i < 1",
        "y(i) = int32((i * N * N) % 7) where i in 0:3",
        "y(i) = x(int32(i)) where i in 0:2",
        "y(i) = int32(i * N * N) where i in 1:1",  # no instance
    ],
)
def test_what_is_no_error(body: str) -> None:
    f = tcdsl.define(f"def f(int32(K) x, size N) -> (y) {{ {body} }}").f
    x = np.arange(4, dtype=np.int32)
    for target in ("cpu", "emulate"):
        assert (f(x, 50000, target=target) == f.reference(x, 50000)).all()


def test_open_sizes_stay_below_two_to_the_31() -> None:
    f = tcdsl.define(
        "def f(size N) -> (y) { y(i) = float64(N - i) + float64(N + 1) where i in 0:3 }"
    ).f
    exe = f.compile(5, target="cpu", options=tcdsl.Options(dynamic_sizes=("N",)))
    for n in (7, 2**31 - 1, 2**31, LARGE):
        assert exe(n).tolist() == [2.0 * n + 1 - i for i in range(3)]


# --- in 32 bits where that is the same --------------------------------------------------------
def analysed(text: str) -> Comprehension:
    return analyse(parse_program(Source(text)))[-1]


def widened(text: str, **sizes: int) -> tuple[Statement, Statement]:
    """Return the statement of *text* as it is written, and as it is compiled at *sizes*."""
    c = analysed(text)
    return c.statements[0], with_wide_indices(c, specialise(c, sizes)).statements[0]


def test_small_sizes_change_nothing() -> None:
    text = "def f(float(N,M) x) -> (y) { y(i,j) = x(i,j) * float(i * M + j) / (N + 1) }"
    old, new = widened(text, N=1000, M=1000)
    assert new is old


def test_only_what_may_leave_32_bits_is_wide() -> None:
    text = "def f(float(N,M) x) -> (y) { y(i,j) = x(i,j) * float(i * M + j) / float(N + 1) }"
    _, new = widened(text, N=50000, M=50000)
    wide = [n for n in walk(new.value) if isinstance(n, Index | Size | Binary) and n.dtype == INT64]
    assert {n.name for n in wide if isinstance(n, Index | Size)} == {"i", "M", "j"}
    (size,) = (n for n in walk(new.value) if isinstance(n, Size) and n.name == "N")
    assert size.dtype == INT32
    assert not any(isinstance(n, Cast) and n.dtype == INT32 for n in walk(new.value))


def test_steps_count_too() -> None:
    # The quotient is small, the product is not.
    _, new = widened("def f(size N) -> (y) { y(i) = i * N / N where i in 0:N }", N=50000)
    assert isinstance(new.value, Cast) and new.value.dtype == INT32
    assert new.value.operand.dtype == INT64


OPERATIONS = (
    "i + j", "i - j", "i * j", "-i * 3", "~i", "i / 3", "i / j", "i % j", "i % 4", "i & j", "i | j",
    "i ^ j", "i & 6", "i << 2", "i >> 1", "min(i, j)", "max(i, -j)", "abs(i)", "sign(i)", "relu(i)",
    "i > j ? i : j * 2", "i * i - j", "abs(i - 2) * j",
)  # fmt: skip


@pytest.mark.parametrize("expression", OPERATIONS)
@pytest.mark.parametrize("ranges", [((0, 5), (1, 4)), ((-4, 3), (-3, 6)), ((-9, -2), (-5, -1))])
def test_bounds_hold_and_are_attained_where_they_say_so(
    expression: str, ranges: tuple[tuple[int, int], ...]
) -> None:
    (a, b), (p, q) = ranges
    text = f"def f() -> (y) {{ y(i,j) = int64({expression}) where i in {a}:{b}, j in {p}:{q} }}"
    values = tcdsl.define(text).f.reference()
    expr: Expr = analysed(text).statements[0].value
    assert isinstance(expr, Cast)
    special = specialise(analysed(text), {})
    found: Values = part_of(expr.operand, leaves_in(special.ranges[0], special, is_box=True)).values
    assert found.low <= values.min() and values.max() <= found.high
    if found.is_attained:
        assert (found.low, found.high) == (values.min(), values.max())
