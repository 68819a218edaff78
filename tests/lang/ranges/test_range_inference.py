"""Ranges, boxes and preconditions: Tensor Comprehensions' table, its defects, and what is added."""

import time
from itertools import product

import pytest

from tcdsl.errors import RangeError, ShapeError, TCError
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Comprehension,
    Const,
    Expr,
    Index,
    IndexBounds,
    Load,
    Select,
    Size,
    Statement,
    Unary,
    walk,
)
from tcdsl.lang.ranges import range_inference
from tcdsl.lang.ranges.range_inference import bind_sizes, specialise
from tcdsl.lang.ranges.size_functions import evaluate, text
from tcdsl.lang.syntax.parser import parse_program, parse_statements
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.lang.types.sema import analyse, analyse_statements
from tcdsl.source import Source

MATMUL = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }"
CONV = """def conv(float(H,W) I, float(KH,KW) W1) -> (O) {
  O(h, w) +=! I(h + kh, w + kw) * W1(kh, kw)
}"""


def one(source: str) -> Comprehension:
    """Return the comprehension of the last def of *source*."""
    return analyse(parse_program(Source(source)))[-1]


def error_of(source: str) -> TCError:
    """Return the error that *source* has; it is an assertion error if it has none."""
    try:
        one(source)
    except TCError as error:
        return error
    raise AssertionError("the program has no error")


def ranges(c: Comprehension) -> list[dict[str, tuple[str, str]]]:
    """Return the ranges of every statement as text."""
    return [
        {v: (text(low), text(high)) for v, (low, high) in zip(s.indices, s.ranges, strict=True)}
        for s in c.statements
    ]


def extents(c: Comprehension, tensor: str) -> tuple[str, ...]:
    """Return the extents of *tensor* as text."""
    return tuple(text(extent) for extent in c.tensors[tensor].extents)


def at(source: str, snippet: str) -> tuple[int, int]:
    """Return the line and column where *snippet* stands in *source* for the first time."""
    return Source(source).position(source.index(snippet))


# --- the table of LANGUAGE part 1 ----------------------------------------------------------
def test_window_of_five() -> None:
    c = one("def f(float(N) A) -> (O) { O(i) +=! A(i + k) where k in 0:5 }")
    assert ranges(c) == [{"i": ("0", "N - 4"), "k": ("0", "5")}]
    assert specialise(c, {"N": 9}).shapes["O"] == (5,)


def test_convolution() -> None:
    assert ranges(one(CONV)) == [
        {
            "h": ("0", "H - KH + 1"),
            "w": ("0", "W - KW + 1"),
            "kh": ("0", "KH"),
            "kw": ("0", "KW"),
        }
    ]


def test_sum_of_two_sizes_takes_the_smaller() -> None:
    c = one("def f(float(NA) A, float(NB) B) -> (C) { C(i) = A(i) + B(i) }")
    assert ranges(c) == [{"i": ("0", "min(NA, NB)")}]
    assert specialise(c, {"NA": 3, "NB": 7}).shapes["C"] == (3,)


def test_strided_read() -> None:
    c = one("def f(float(N) I) -> (O) { O(i) = I(2*i) }")
    assert extents(c, "O") == ("(N + 1) / 2",)
    assert [specialise(c, {"N": n}).shapes["O"] for n in range(6)] == [
        (0,), (1,), (1,), (2,), (2,), (3,),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("subscript", "range_"), [("i - 1", ("1", "N + 1")), ("i + 5", ("-5", "N - 5"))]
)
def test_shifted_read_gives_an_origin(subscript: str, range_: tuple[str, str]) -> None:
    c = one(f"def f(float(N) I) -> (O) {{ O(i) = I({subscript}) }}")
    assert ranges(c) == [{"i": range_}]
    assert extents(c, "O") == ("N",)
    assert text(c.tensors["O"].origin[0]) == range_[0]


def test_index_missing_on_the_right() -> None:
    source = "def f(float(A,B,C,D,E) I) -> (O) { O(i,j,k,l,m) = I(j,i,k,i,l) }"
    error = error_of(source)
    assert isinstance(error, RangeError) and error.code == "TC040"
    assert (error.line, error.column) == at(source, "m)")
    assert "range of m" in error.message and "no subscript on the right" in error.message
    assert error.hint is not None and "where m in 0:A" in error.hint


def test_indices_bounded_only_through_each_other() -> None:
    source = "def f(float(N) I) -> (O) { O(i) +=! I(i + j) }"
    error = error_of(source)
    assert (error.code, error.line, error.column) == ("TC040", *at(source, "i) +=!"))
    assert "i, j" in error.message and "only through the others" in error.message
    assert error.hint is not None and "where j in 0:N" in error.hint


def test_no_inputs() -> None:
    error = error_of("def f(float(N) I) -> (O) { O(i,j) = 3 }")
    assert error.code == "TC040" and "i, j" in error.message
    c = one("def f(float(N) I) -> (O) { O(i,j) = 3 where i in 4:8, j in 3:20 }")
    assert specialise(c, {"N": 0}).shapes["O"] == (4, 17)
    assert specialise(c, {"N": 0}).origins["O"] == (4, 3)


def test_convolution_gradient_is_the_interior() -> None:
    c = one(
        "def g(float(N,M,H,W) d_O, float(M,C,KH,KW) K) -> (d_I) {"
        " d_I(n,c,h,w) +=! d_O(n, m, h-kh, w-kw) * K(m,c,kh,kw) }"
    )
    assert ranges(c)[0]["h"] == ("KH - 1", "H") and ranges(c)[0]["w"] == ("KW - 1", "W")
    sizes = {"N": 1, "M": 2, "H": 10, "W": 9, "C": 3, "KH": 3, "KW": 2}
    assert specialise(c, sizes).shapes["d_I"] == (1, 3, 8, 8)
    assert specialise(c, sizes).origins["d_I"] == (0, 0, 2, 1)


def test_matmul_has_no_preconditions() -> None:
    c = one(MATMUL)
    assert ranges(c) == [{"i": ("0", "M"), "j": ("0", "N"), "k": ("0", "K")}]
    assert c.preconditions == ()
    assert c.statements[0].domain is not None
    assert str(c.statements[0].domain) == (
        "[M, K, N] -> { S0[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K }"
    )


# --- without a header ----------------------------------------------------------------------
def headerless(text_: str, **ranks: int) -> Comprehension:
    source = Source(text_)
    inputs = {name: (FLOAT32, rank) for name, rank in ranks.items()}
    return analyse_statements(parse_statements(source), source, inputs)


def test_an_index_has_one_extent_without_a_header() -> None:
    c = headerless("D(i,k) +=! A(i,j) * B(j,k)", A=2, B=2)
    specialise(c, {"A_0": 4, "A_1": 3, "B_0": 3, "B_1": 5})
    with pytest.raises(ShapeError) as caught:
        specialise(c, {"A_0": 4, "A_1": 3, "B_0": 4, "B_1": 3})
    assert caught.value.code == "TC053" and (caught.value.line, caught.value.column) == (1, 21)
    expected = "dimension 1 of 'A' and dimension 0 of 'B' must be equal, but are 3 and 4"
    assert caught.value.message == expected
    assert caught.value.hint is not None and "j is a subscript of both" in caught.value.hint


def test_an_updated_input_has_the_extent_of_its_indices() -> None:
    c = headerless("A(i) += B(i)", A=1, B=1)
    specialise(c, {"A_0": 4, "B_0": 4})
    with pytest.raises(ShapeError, match="dimension 0 of 'A' and dimension 0 of 'B'"):
        specialise(c, {"A_0": 5, "B_0": 4})


def test_given_ranges_windows_and_recurrences_may_differ_without_a_header() -> None:
    assert headerless("D(i) = A(i) + B(i) where i in 0:3", A=1, B=1).statements
    c = headerless("y(i) +=! x(i + k) * w(k)  z(0) = y(0)  z(i) = z(i-1) * y(i)", x=1, w=1)
    assert specialise(c, {"x_0": 9, "w_0": 3}).shapes["z"] == (7,)
    with pytest.raises(ShapeError, match="dimension 0 of 'T' and dimension 0 of 'a'"):
        headerless("T(i) = a(i) + a(i+1)  D(i) = T(i) * a(i)", a=1)


# --- rounds, guards, explicit ranges -------------------------------------------------------
def test_range_of_a_temporary_is_its_recorded_box() -> None:
    c = one("def f(float(N) A) -> (O) { T(i) = A(i+1)  O(i) +=! T(i+k) where k in 0:3 }")
    assert ranges(c) == [{"i": ("-1", "N - 1")}, {"i": ("-1", "N - 3"), "k": ("0", "3")}]


def test_guarded_read_alone_bounds_nothing() -> None:
    source = "def f(float(N) A) -> (O) { O(i) = i - 1 >= 0 ? A(i - 1) : 0.0 }"
    error = error_of(source)
    assert (error.code, error.line, error.column) == ("TC040", *at(source, "i) = "))
    assert "only a read under a condition" in error.message
    assert error.hint is not None and "where i in 0:N" in error.hint


@pytest.mark.parametrize(
    "value",
    [
        "(t >= k ? x(t-k) : 0.0) * w(k) where t in 0:T",
        "t >= k ? x(t-k) * w(k) : 0.0 where t in 0:T",
        "x(t-k) * w(k) where t in 0:T, exists t >= k",
    ],
)
def test_three_causal_convolutions(value: str) -> None:
    c = one(f"def f(float(T) x, float(K) w) -> (y) {{ y(t) +=! {value} }}")
    assert ranges(c) == [{"t": ("0", "T"), "k": ("0", "K")}]
    assert c.preconditions == () and c.warnings == ()


def test_plain_guarded_read_bounds() -> None:
    c = one("def f(float(N) A) -> (O) { O(i) = i >= 2 && i < N-2 ? A(i-2) + A(i) + A(i+2) : 0.0 }")
    assert ranges(c) == [{"i": ("0", "N")}] and c.preconditions == () and c.warnings == ()


def test_guard_that_always_holds_is_a_warning() -> None:
    source = "def f(float(N) A) -> (O) { O(i) = A(i-1) + (i >= 1 ? A(i-1) : 0.0) }"
    (warning,) = one(source).warnings
    line, column = at(source, "i >= 1")
    assert warning.startswith(f"<tc>:{line}:{column}: the condition 'i >= 1' holds")
    assert "i in [1, N + 1)" in warning
    c = one(source.replace("}", " where i in 1:N }"))
    assert c.warnings == ()  # the range is what the text says


def test_guarded_read_needs_bounds_only_under_its_guard() -> None:
    c = one("def f(float(N) A) -> (O) { O(i) = i - 1 >= 0 ? A(i - 1) : 0.0 where i in 0:N }")
    assert ranges(c) == [{"i": ("0", "N")}] and c.preconditions == ()


def test_guarded_read_is_checked_under_its_guard() -> None:
    c = one("def f(float(N) A, float(M) B) -> (O) { O(i) = B(i) + (i >= 1 ? A(i-1) : 0.0) }")
    assert specialise(c, {"N": 3, "M": 4}).shapes["O"] == (4,)
    assert specialise(c, {"N": 3, "M": 2}).shapes["O"] == (2,)
    with pytest.raises(RangeError, match=r"M = 5, N = 3: subscript 0 runs over \[0, 3\]"):
        specialise(c, {"N": 3, "M": 5})


def test_lazy_and_guards_its_right_operand() -> None:
    c = one("def f(float(N) A) -> (O) { O(i) = i > 0 && A(i-1) > 0.0 ? 1.0 : 2.0 where i in 0:N }")
    assert c.preconditions == ()


def test_padded_convolution_is_proven_in_bounds() -> None:
    c = one(
        """def conv(float(N,C,H,W) I, float(F,C,KH,KW) W1, float(F) B) -> (O) {
        O(n,f,h,w) +=! (h+kh-1 >= 0 && h+kh-1 < H && w+kw-1 >= 0 && w+kw-1 < W
                        ? I(n,c,h+kh-1,w+kw-1) : 0.0) * W1(f,c,kh,kw) where h in 0:H, w in 0:W
        O(n,f,h,w) = fmax(O(n,f,h,w) + B(f), 0.0) }"""
    )
    assert c.preconditions == () and extents(c, "O") == ("N", "F", "H", "W")


def test_dependent_range_is_a_triangle() -> None:
    c = one("def f(float(N,N) A) -> (C) { C(i) +=! A(i,j) where j in 0:i+1 }")
    assert ranges(c) == [{"i": ("0", "N"), "j": ("0", "N")}]
    assert str(c.statements[0].domain) == (
        "[N] -> { S0[i, j] : 0 <= i < N and 0 <= j <= i and j < N }"
    )
    assert specialise(c, {"N": 0}).ranges == ({"i": range(0, 0), "j": range(0, 0)},)


def test_strictly_lower_triangle_may_be_empty() -> None:
    c = one("def f(float(N,N) A) -> (C) { C(i) +=! A(i,j) where j in 0:i }")
    assert [specialise(c, {"N": n}).shapes["C"] for n in (0, 1, 2)] == [(0,), (1,), (2,)]


def test_a_data_dependent_range_is_set_apart_and_reads_bound_its_index() -> None:
    c = one("def f(int32(N) L, float(N,K) B) -> (O) { O(i) +=! B(i,l) where l in 0:L(i) }")
    assert ranges(c) == [{"i": ("0", "N"), "l": ("0", "K")}]
    (statement,) = c.statements
    assert [b.index for b in statement.data_ranges] == ["l"]
    assert statement.conditions == statement.explicit == ()


def test_affine_conditions_cut_the_domain_but_not_the_range() -> None:
    c = one("def f(float(N) A) -> (O) { O +=! A(i) where exists i < 3, exists A(i) > 0.0 }")
    assert ranges(c) == [{"i": ("0", "N")}]
    assert str(c.statements[0].domain) == "[N] -> { S0[i] : 0 <= i <= 2 and i < N }"


def test_non_bool_exists_bounds() -> None:
    c = one("def f(float(N) A) -> (O) { O(i) = 1.0 where exists A(i+1) }")
    assert ranges(c) == [{"i": ("-1", "N - 1")}]
    assert len(c.statements[0].bounds) == 1 and c.statements[0].conditions == ()


def test_gather_leaves_the_gathered_dimension_free() -> None:
    c = one("def lut(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l), d) }")
    assert ranges(c) == [{"b": ("0", "B"), "d": ("0", "D"), "l": ("0", "L")}]


def test_floor_division_in_a_subscript() -> None:
    c = one("def up(float(N) A) -> (O) { O(i) = A(i/2) }")
    assert ranges(c) == [{"i": ("0", "2 * N")}]


def test_size_select_gives_the_extents() -> None:
    c = one("def f(float(N) A) -> (O) { O(i,j) = A(i) <=> O(N, 4) }")
    assert ranges(c) == [{"i": ("0", "N"), "j": ("0", "4")}]


def test_many_sizes_stay_cheap() -> None:
    params = ", ".join(f"float(N{k}) A{k}" for k in range(20))
    terms = " + ".join(f"A{k}(i)" for k in range(20))
    start = time.process_time()
    c = one(f"def f({params}) -> (O) {{ O(i) = {terms} }}")
    assert time.process_time() - start < 2
    sizes = {f"N{k}": 100 - k for k in range(20)}
    assert specialise(c, sizes).shapes["O"] == (81,)


# --- boxes ---------------------------------------------------------------------------------
def test_box_is_the_hull_of_all_writes() -> None:
    c = one("def f(float(N) A) -> (O) { O(i) = A(i) where i in 0:3  O(i) = A(i) where i in 3:N }")
    assert extents(c, "O") == ("max(3, N)",)
    assert specialise(c, {"N": 7}).shapes["O"] == (7,)
    with pytest.raises(RangeError, match=r"range of 'i' is \[3, 2\)"):
        specialise(c, {"N": 2})


def test_reversed_left_side() -> None:
    c = one("def f(float(N) A) -> (O) { O(N-1-i) = A(i) }")
    assert extents(c, "O") == ("N",) and text(c.tensors["O"].origin[0]) == "0"


def test_interleaved_left_sides_cover() -> None:
    c = one("def f(float(N) A) -> (O) { O(2*i) = A(i)  O(2*i+1) = A(i) }")
    assert [specialise(c, {"N": n}).shapes["O"] for n in (1, 2, 5)] == [(2,), (4,), (10,)]


def test_scatter_takes_the_declared_extent() -> None:
    c = one(
        "def g(float(N,D) X, int32(N) I, float(E,D) W) -> (float(E,D) G) { G(I(n), d) +=! X(n, d) }"
    )
    assert extents(c, "G") == ("E", "D") and not c.tensors["G"].needs_out
    assert c.statements[0].left == ("n", "d")


def test_scatter_without_declaration() -> None:
    source = "def g(float(N,D) X, int32(N) I) -> (G) { G(I(n), d) +=! X(n, d) }"
    error = error_of(source)
    assert (error.code, error.line, error.column) == ("TC043", *at(source, "G(I(n)"))
    assert error.hint is not None and "declare the dimensions of 'G'" in error.hint


def test_scatter_into_an_earlier_definition() -> None:
    c = one(
        "def g(float(N) X, int32(N) I, float(E) W) -> (G) { G(e) = 0.0 * W(e)  G(I(n)) += X(n) }"
    )
    assert extents(c, "G") == ("E",) and not c.tensors["G"].needs_out


def test_annotated_extents_must_be_what_is_written() -> None:
    c = one("def f(float(N,M) A) -> (float(M) O) { O(i) +=! A(i,j) }")
    with pytest.raises(ShapeError) as caught:
        specialise(c, {"N": 2, "M": 3})
    assert caught.value.code == "TC053" and "3 and 2" in caught.value.message
    assert specialise(c, {"N": 3, "M": 3}).shapes["O"] == (3,)
    source = "def f(float(N,M) A) -> (float(5) O) { O(i) +=! A(i,j) where i in 0:4 }"
    error = error_of(source)
    assert (error.code, error.line, error.column) == ("TC053", *at(source, "float(5)"))


# --- coverage and definedness --------------------------------------------------------------
def test_hole_in_an_output() -> None:
    source = "def f(float(N) A) -> (O) { O(2*i) = A(i) }"
    error = error_of(source)
    assert (error.code, error.line, error.column) == ("TC042", *at(source, "O(2*i)"))
    assert "O(1)" in error.message and "N = 2" in error.message
    assert error.hint is not None and "initialise it first" in error.hint


def test_conditional_write_leaves_a_hole() -> None:
    assert error_of(
        "def f(float(N) A) -> (O) { O(i) = A(i) where exists A(i) > 0.0 }"
    ).code == "TC042"  # fmt: skip
    c = one(
        "def f(float(N) A) -> (O) {"
        " O(i) = 0.0 where i in 0:N  O(i) = A(i) where exists A(i) > 0.0 }"
    )
    assert not c.tensors["O"].needs_out


def test_initialising_reduction_covers_its_box() -> None:
    c = one("def f(float(N,N) A) -> (O) { O(2*i) +=! A(i,j) where j in 0:i }")
    assert extents(c, "O") == ("max(0, 2 * N - 1)",)


def test_running_sum() -> None:
    source = (
        "def f(float(N) A) -> (C) { C(i) = A(i) where i in 0:1  C(i) = C(i-1) + A(i)"
        " where i in 1:N }"
    )
    c = one(source)
    assert not c.tensors["C"].needs_out
    assert specialise(c, {"N": 6}).shapes["C"] == (6,)
    guarded = one(
        "def f(float(N) A) -> (O) { O(i) = i == 0 ? A(0) : O(i-1) + A(i) where i in 0:N }"
    )
    assert not guarded.tensors["O"].needs_out and guarded.preconditions == ()


def test_recurrence_is_whole() -> None:
    c = one("def f(float(N) x) -> (y) { y(0) = x(0)  y(i) = y(i-1) * x(i) }")
    assert ranges(c) == [{}, {"i": ("1", "N")}] and extents(c, "y") == ("max(1, N)",)
    two = one(
        "def f(float(N) x) -> (y) { y(2) = x(2)  y(3) = x(3)  y(i) = y(i-1) + y(i-2) * x(i) }"
    )
    assert ranges(two)[2] == {"i": ("4", "N")}
    source = "def f(float(N) x) -> (y) { y(0) = x(0)  y(i) = y(i-1) * 0.5 }"
    error = error_of(source)
    assert error.code == "TC040" and "'y' itself" in error.message
    assert error.hint is not None and "where i in 1:N" in error.hint
    ahead = error_of("def f(float(N) x) -> (y) { y(0) = x(0)  y(i) = y(i+1) }")
    assert ahead.hint is not None and "where i in 0:N" in ahead.hint
    started = error_of("def f(float(N) x) -> (y) { y(i) = y(i-1) + x(i) }")
    assert started.code == "TC041" and "assign the first values of 'y'" in (started.hint or "")
    # Nothing before could hold what the next instance writes.
    backward = error_of("def f(float(N) x) -> (y) { y(i) = y(i+1) + x(i) }")
    assert "first values" not in (backward.hint or "")


def test_update_in_place_takes_the_box_so_far() -> None:
    c = one("def f(float(N) x) -> (y) { y(i) = x(i)  y(i) = fmax(y(i), 0.0) }")
    assert ranges(c)[1] == {"i": ("0", "N")}
    # With another read of y in that dimension it is a recurrence, which is not to be cut short.
    error = error_of("def f(float(N) x) -> (y) { y(i) = x(i)  y(i) = y(i-1) + y(i) }")
    assert error.code == "TC040"


def test_declared_results_bound_left_indices() -> None:
    c = one("def f(float(B) x) -> (float(B, 100) y) { y(b, i) = 0.0  y(b, 0) = x(b) }")
    assert ranges(c)[0] == {"b": ("0", "B"), "i": ("0", "100")}
    c = one("def f(float(N) x) -> (float(N) y) { y(0) = x(0)  y(i) = y(i-1) * 0.5 }")
    assert ranges(c)[1] == {"i": ("1", "N")}
    # They bound only what the reads leave open: a shorter read is an error, not a shorter result.
    source = "def f(float(M) x) -> (float(M) y) { y(i) = x(i + 1) }"
    assert error_of(source).code == "TC053"


def test_recurrence_in_the_wrong_direction_needs_out() -> None:
    c = one(
        "def f(float(N) A) -> (float(N) O) {"
        " O(i) = i == N - 1 ? A(i) : O(i+1) + A(i) where i in 0:N }"
    )
    assert c.tensors["O"].needs_out


def test_kept_output_needs_out() -> None:
    assert one("def f(float(N) A) -> (O) { O += A(i) }").tensors["O"].needs_out
    assert not one("def f(float(N) A) -> (O) { O +=! A(i) }").tensors["O"].needs_out
    c = one("def f(float(N) A) -> (float(N) O) { O(i) += A(i) where i in 0:3 }")
    assert c.tensors["O"].needs_out and extents(c, "O") == ("N",)
    with pytest.raises(RangeError, match="N = 2"):
        specialise(c, {"N": 2})


def test_in_out_tensor_starts_from_its_argument() -> None:
    c = one("def f(float(N) A) -> (A) { A(i) += A(i) }")
    assert not c.tensors["A"].needs_out and c.tensors["A"].is_input and c.tensors["A"].is_output


def test_temporary_read_before_it_is_written() -> None:
    source = "def f(float(N) A) -> (O) { t += A(i)  O(i) = A(i) * t }"
    error = error_of(source)
    assert (error.code, error.line, error.column) == ("TC027", *at(source, "t += "))
    assert error.hint is not None and "assign all of t first" in error.hint


# --- accesses ------------------------------------------------------------------------------
def test_provably_out_of_bounds() -> None:
    source = "def f(float(N) A, float(N) B) -> (O) { O(j) = B(j+3) where j in 0:N }"
    error = error_of(source)
    assert isinstance(error, RangeError)
    assert (error.code, error.line, error.column) == ("TC041", *at(source, "B(j+3)"))
    assert "[3, N + 2]" in error.message and "[0, N)" in error.message
    assert error.hint is not None and "j+3 >= 0 && j+3 < N ? B(j+3) : 0" in error.hint


def test_out_of_bounds_for_some_sizes() -> None:
    c = one("def f(float(N) A, float(M) B) -> (O) { O(i) = A(i) + B(i) where i in 0:N }")
    assert len(c.preconditions) == 1
    assert specialise(c, {"N": 3, "M": 3}).shapes["O"] == (3,)
    with pytest.raises(RangeError) as caught:
        specialise(c, {"N": 5, "M": 3})
    message = str(caught.value)
    assert caught.value.code == "TC045"
    assert "B(i) is out of bounds for N = 5, M = 3" in message
    assert "[0, 4]" in message and "[0, 3)" in message
    assert "i in [0, N)" in message and "A, B" in message


@pytest.mark.parametrize(("place", "needed"), [(0, "an element"), (7, "at least 8 elements")])
def test_an_element_that_is_not_there_for_some_sizes(place: int, needed: str) -> None:
    c = one(f"def f(float(N) A) -> (o) {{ o = A({place}) }}")
    with pytest.raises(RangeError) as caught:
        specialise(c, {"N": 0})
    assert caught.value.code == "TC045"
    assert caught.value.hint == f"pass an array 'A' with {needed} there"


def test_write_outside_an_argument() -> None:
    source = "def f(float(N) A) -> (A) { A(i+1) = 0.0 where i in 0:N }"
    error = error_of(source)
    assert (error.code, error.line, error.column) == ("TC041", *at(source, "A(i+1)"))
    assert error.hint is not None and "guard" not in error.hint


def test_negative_extent_is_refused_at_the_call() -> None:
    c = one(CONV)
    assert specialise(c, {"H": 3, "W": 3, "KH": 4, "KW": 3}).shapes["O"] == (0, 1)
    with pytest.raises(RangeError) as caught:
        specialise(c, {"H": 3, "W": 3, "KH": 5, "KW": 3})
    assert caught.value.code == "TC044" and "H = 3, KH = 5" in caught.value.message


def test_backward_range_is_refused_at_once() -> None:
    error = error_of("def f(float(N) A) -> (O) { O(i) = A(i) where i in 5:3 }")
    assert error.code == "TC044" and "[5, 3)" in error.message


# --- sizes of a call -----------------------------------------------------------------------
def test_bind_sizes() -> None:
    assert bind_sizes(one(MATMUL), {"A": (2, 3), "B": (3, 4)}) == {"M": 2, "K": 3, "N": 4}


def test_bind_sizes_disagreement_names_everything() -> None:
    with pytest.raises(ShapeError) as caught:
        bind_sizes(one(MATMUL), {"A": (2, 3), "B": (5, 4)})
    message = caught.value.message
    assert caught.value.code == "TC050"
    assert "size K is 3 in dimension 1 of 'A', but 5 in dimension 0 of 'B'" in message


def test_bind_sizes_rank_literal_and_missing() -> None:
    c = one("def f(float(N,4) A) -> (O) { O(i,j) = A(i,j) }")
    with pytest.raises(ShapeError, match="2 dimensions, but the array has 1"):
        bind_sizes(c, {"A": (2,)})
    with pytest.raises(ShapeError, match="declared to be 4, but the array's is 5"):
        bind_sizes(c, {"A": (2, 5)})
    with pytest.raises(ShapeError, match="no array for 'A'"):
        bind_sizes(c, {})


@pytest.mark.parametrize("limit", [10, 100, 1000])
def test_quota_exceeded_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(range_inference, "MAX_OPERATIONS", limit)
        error = error_of(MATMUL)
    assert isinstance(error, RangeError) and error.code == "TC046"
    assert (error.line, error.column) == at(MATMUL, "mm(")
    assert ranges(one(MATMUL))  # the context is usable again


def test_analysis_is_quick() -> None:
    one(MATMUL)  # the parser is built by the first call
    start = time.process_time()
    one(MATMUL)
    assert time.process_time() - start < 0.15  # some 2 ms


# --- against brute force -------------------------------------------------------------------
PROGRAMS = (
    MATMUL,
    CONV,
    "def f(float(N) A) -> (O) { O(i) +=! A(i + k) where k in 0:3 }",
    "def f(float(N) A, float(M) B) -> (O) { O(i) = A(i) + B(i) }",
    "def f(float(N) A, float(M) B) -> (O) { O(i) = A(i) + B(2*i) where i in 0:N }",
    "def f(float(N) A) -> (O) { O(i) = A(2*i+1) }",
    "def f(float(N) A) -> (O) { O(i) = A(3-i) where i in 0:3 }",
    "def f(float(N) A) -> (O) { O(i) = A(i/3) + A((i+1)/2) }",
    "def f(float(N) A) -> (O) { O(i) = i >= 2 ? A(i-2) : A(i) where i in 0:N }",
    "def f(float(N) A, float(M) B) -> (O) { O(i) = i >= 3 ? A(i) : B(i) }",
    "def f(float(N,M) A) -> (O) { O(i,j) = i+j < 3 ? A(i+j,j) : 0.0 where i in 0:N, j in 0:M }",
    "def f(float(N) A) -> (C) { C(i) = A(i) where i in 0:1  C(i) = C(i-1)+A(i) where i in 1:N }",
    "def f(float(N,M) A) -> (O) { O(i,j) = i == 0 || j == 0 ? A(i,j) : O(i-1,j) + O(i,j-1)"
    " where i in 0:N, j in 0:M }",
    "def f(float(N,N) A) -> (C) { C(i) +=! A(i,j) where j in 0:i+1 }",
    "def f(float(N,N) A) -> (C) { C(i) +=! A(i,j) where j in i:N }",
    "def f(float(N) A) -> (O) { O(2*i) = A(i)  O(2*i+1) = A(N-1-i) }",
    "def f(float(N) A, float(M) B) -> (O) { O(i) = A(i)  O(N+i) = B(i) }",
    "def f(float(N) A) -> (O) { T(i) = A(i-1)  O(i) = T(i) + T(i+1) }",
    "def f(float(N,M) A) -> (float(M) O) { O(i) +=! A(i,j) }",
    "def f(float(N) A) -> (A) { A(i) = A(i+1) + A(i) where i in 0:N-1 }",
    "def f(float(N) A) -> (O) { O(i) = A(i % 3) where i in 0:N }",
    "def f(float(N) A) -> (O) { O(i) = A(max(i-1, 0)) + A(min(i+1, N-1)) where i in 0:N }",
    "def f(float(N) A) -> (O) { O(i) = 0.0 where i in 0:N  O(i) = A(i) where exists i % 2 == 0 }",
    "def f(float(N,M) A, float(K) B) -> (O) { O(i) +=! A(i,j) * B(i-j) }",
    "def f(float(T) x, float(K) w) -> (y) { y(t) +=! (t>=k ? x(t-k) : 0.0) * w(k) where t in 0:T }",
    "def f(float(T) x, float(K) w) -> (float(T) y) { y(t) +=! t >= k ? x(t-k) * w(k) : 0.0 }",
    "def f(float(T) x, float(K) w) -> (y) { y(t) +=! x(t-k) * w(k) where t in 0:T, exists t >= k }",
    "def f(float(N) A, float(M) B) -> (O) { O(i) = B(i) + (i >= 1 ? A(i-1) : 0.0) }",
    "def f(float(N) x) -> (y) { y(0) = x(0)  y(i) = y(i-1) * x(i) }",
    "def f(float(N) x, float(M) z) -> (y) { y(0) = x(0)  y(1) = x(1)  y(i) = y(i-2) + x(i)*z(i) }",
    "def f(float(N) x) -> (float(N) y) { y(0) = 1.0  y(i) = y(i-1) * 0.5 }",
    "def f(float(N) y) -> (y) { y(i) = y(i-1) + y(i) }",
    "def f(float(N) x) -> (float(N, 3) y) { y(i, j) = 0.0  y(i, 0) = x(i) }",
)  # fmt: skip


@pytest.mark.parametrize("source", PROGRAMS)
def test_brute_force_agrees(source: str) -> None:
    """At all small sizes that pass the preconditions: in bounds, written before read, covered."""
    c = one(source)
    accepted = 0
    for values in product(range(5), repeat=len(c.sizes)):
        sizes = dict(zip(c.sizes, values, strict=True))
        try:
            special = specialise(c, sizes)
        except TCError:
            assert _Run(c, sizes, None).has_fault()
            continue
        boxes = {
            name: tuple(range(o, o + n) for o, n in zip(origin, special.shapes[name], strict=True))
            for name, origin in special.origins.items()
        }
        run = _Run(c, sizes, boxes)
        assert not run.has_fault(), f"{sizes}: {run.fault}"
        accepted += 1
    assert accepted > 0


class _Run:
    """Runs the instances of a comprehension at given sizes, looking only at what they touch."""

    def __init__(
        self, c: Comprehension, sizes: dict[str, int], boxes: dict[str, tuple[range, ...]] | None
    ) -> None:
        self.c, self.sizes = c, sizes
        self.fault = ""
        self.written: dict[str, set[tuple[int, ...]]] = {name: set() for name in c.tensors}
        if boxes is None:
            self.boxes = self._declared_boxes()
            self.negative = any(
                high < low for statement in c.statements for low, high in self._ranges(statement)
            )
        else:
            self.boxes, self.negative = boxes, False

    def _declared_boxes(self) -> dict[str, tuple[range, ...]]:
        return {
            t.name: tuple(
                range(evaluate(o, self.sizes), evaluate(o, self.sizes) + evaluate(e, self.sizes))
                for o, e in zip(t.origin, t.extents, strict=True)
            )
            for t in self.c.tensors.values()
        }

    def _ranges(self, statement: Statement) -> list[tuple[int, int]]:
        return [(evaluate(a, self.sizes), evaluate(b, self.sizes)) for a, b in statement.ranges]

    def has_fault(self) -> bool:
        if self.negative:
            return True
        for name in self.c.inputs:
            self.written[name] = set(product(*self.boxes[name]))
        for statement in self.c.statements:
            self._statement(statement)
        for name in self.c.outputs:
            if self.written[name] < set(product(*self.boxes[name])):
                self.fault = self.fault or f"{name} is not covered"
        return bool(self.fault)

    def _statement(self, statement: Statement) -> None:
        intervals = [range(*bounds) for bounds in self._ranges(statement)]
        instances = list(product(*intervals))
        if statement.reduction is not None and statement.reduction.initialise:
            self._initialise(statement)
        for instance in instances:
            env = dict(zip(statement.indices, instance, strict=True))
            if all(self._in(env, b) for b in statement.explicit) and all(
                self._value(condition, env) for condition in statement.conditions
            ):
                self._value(statement.value, env)
                self._write(statement, env)

    def _initialise(self, statement: Statement) -> None:
        """Write the hull of the left side's image, over the ranges of the left-hand indices."""
        bounds = dict(zip(statement.indices, self._ranges(statement), strict=True))
        sides = []
        for subscript in statement.subscripts:
            names = {node.name for node in walk(subscript) if isinstance(node, Index)}
            grid = product(*(range(*bounds[name]) for name in names))
            values = [
                int(self._value(subscript, dict(zip(names, point, strict=True)))) for point in grid
            ]
            sides.append(range(min(values), max(values) + 1) if values else range(0))
        for element in product(*sides):
            self._check_inside(statement.target, element)
            self.written[statement.target].add(element)

    def _in(self, env: dict[str, int], bounds: IndexBounds) -> bool:
        lower, upper = self._value(bounds.lower, env), self._value(bounds.upper, env)
        return lower <= env[bounds.index] < upper

    def _write(self, statement: Statement, env: dict[str, int]) -> None:
        element = tuple(int(self._value(s, env)) for s in statement.subscripts)
        self._check_inside(statement.target, element)
        self.written[statement.target].add(element)

    def _check_inside(self, tensor: str, element: tuple[int, ...]) -> None:
        box = self.boxes[tensor]
        if not all(e in interval for e, interval in zip(element, box, strict=True)):
            self.fault = self.fault or f"{tensor}{element} is outside {box}"

    def _value(self, expr: Expr, env: dict[str, int]) -> float:
        match expr:
            case Const(value=value):
                return value
            case Index(name=name):
                return env[name]
            case Size(name=name):
                return self.sizes[name]
            case Load(tensor=tensor, subscripts=subscripts):
                element = tuple(int(self._value(s, env)) for s in subscripts)
                self._check_inside(tensor, element)
                if element not in self.written[tensor]:
                    self.fault = self.fault or f"{tensor}{element} is read before it is written"
                return 1.0
            case Select(condition=condition, if_true=if_true, if_false=if_false):
                return self._value(if_true if self._value(condition, env) else if_false, env)
            case Cast(operand=operand):
                return self._value(operand, env)
            case Unary(operand=operand):
                return -self._value(operand, env)
            case Call(function=name, args=args):
                return {"min": min, "max": max}[name](self._value(a, env) for a in args)
            case Binary(op="&&", left=left, right=right):
                return bool(self._value(left, env)) and bool(self._value(right, env))
            case Binary(op="||", left=left, right=right):
                return bool(self._value(left, env)) or bool(self._value(right, env))
            case Binary(op=op, left=left, right=right):
                return _arithmetic(op, self._value(left, env), self._value(right, env))


def _arithmetic(op: str, a: float, b: float) -> float:
    results = {
        "+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0, "%": a % b if b else 0,
        "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b,
    }  # fmt: skip
    return results[op]
