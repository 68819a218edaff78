"""What programs mean, on small arrays whose results are known."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tcdsl.errors import LaunchError
from tcdsl.interp import oracle
from tcdsl.interp.arithmetic import Array
from tcdsl.interp.error_bounds import evaluate_with_bounds
from tcdsl.interp.instances import boxes, is_sequential
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.source import Source

F32 = np.float32
NAN, INF = np.nan, np.inf


def comprehension(text: str) -> Comprehension:
    return analyse(parse_program(Source(text)))[0]


def run(text: str, *inputs: Any, out: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """Return the outputs of ``def f(...)``, and assert that they are within their own bounds."""
    c = comprehension(text)
    given = {name: np.asarray(x) for name, x in zip(c.inputs, inputs, strict=True)}
    s = specialise(c, bind_sizes(c, {name: x.shape for name, x in given.items()}))
    results = evaluate(c, s, given, out)
    for name, (value, bound) in evaluate_with_bounds(c, s, given, out).items():
        found = results[name].astype(value.dtype)
        same = (found == value) | ((found != found) & (value != value))
        with np.errstate(all="ignore"):
            distance = np.abs(found.astype(np.float64) - value.astype(np.float64))
        assert (same | (distance <= bound)).all(), name
        assert results[name].dtype == c.tensors[name].dtype.numpy
    return results


def only(text: str, *inputs: Any, out: Mapping[str, Array] | None = None) -> Any:
    (result,) = run(text, *inputs, out=out).values()
    return result.tolist()


def ints(*values: int) -> Array:
    return np.array(values, np.int32)


def test_matrix_product() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (5, 7)).astype(F32), rng.integers(-9, 9, (7, 3)).astype(F32)
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    assert (run(text, a, b)["C"] == a @ b).all()


def test_an_output_is_stored_from_its_origin() -> None:
    text = "def f(float(N) I) -> (O) { O(i) = I(i - 1) }"
    assert only(text, np.array([1, 2, 3], F32)) == [1, 2, 3]


def test_statements_run_in_source_order_and_tensors_may_change() -> None:
    text = """def f(float(N) A) -> (B, C) {
        B(i) = A(i)  C(i) = B(i) * 10.0  B(i) = B(i) + 1.0  B(i) += C(i) }"""
    results = run(text, np.array([1, 2], F32))
    assert results["B"].tolist() == [12, 23] and results["C"].tolist() == [10, 20]


def test_initialised_reductions_start_anew_and_others_continue() -> None:
    text = """def f(int32(N, M) A) -> (S, P) {
        S(i) = 100  where i in 0:N   P(i) = 100 where i in 0:N
        S(i) +=! A(i, j)             P(i) += A(i, j) }"""
    results = run(text, np.array([[1, 2], [3, 4]], np.int32))
    assert results["S"].tolist() == [3, 7] and results["P"].tolist() == [103, 107]


@pytest.mark.parametrize(
    ("op", "expected"), [("+", 0), ("*", 1), ("min", 2**31 - 1), ("max", -(2**31))]
)
def test_a_reduction_over_nothing_is_the_identity(op: str, expected: int) -> None:
    text = f"def f(int32(N, M) A) -> (S) {{ S(i) {op}=! A(i, j) }}"
    assert only(text, np.zeros((2, 0), np.int32)) == [expected] * 2
    assert only(text, np.zeros((0, 3), np.int32)) == []


@pytest.mark.parametrize("op", ["and", "or"])
def test_bool_reductions(op: str) -> None:
    rows = np.array([[True, True], [True, False], [False, False]])
    expected = rows.all(axis=1) if op == "and" else rows.any(axis=1)
    text = f"def f(bool(N, M) A) -> (S) {{ S(i) {op}=! A(i, j) }}"
    assert only(text, rows) == expected.tolist()


def test_argmax_counts_from_the_origin_of_its_range() -> None:
    text = "def f(float(N, M) A) -> (S) { S(i) argmax=! A(i, j) where j in 1:M }"
    a = np.array([[9, 1, 5, 5], [9, 0, NAN, NAN], [9, -INF, -INF, -INF]], F32)
    assert only(text, a) == [1, 1, 0]
    assert only(text, a[:, :1]) == [-1, -1, -1]


def test_conditions_choose_the_terms() -> None:
    text = """def f(float(N, M) A, float(M) W) -> (S) {
        S(i) +=! A(i, j) where j in 0:M, exists W(j) > 0.0 }"""
    a, w = np.arange(6).reshape(2, 3).astype(F32), np.array([1, 0, NAN], F32)
    assert only(text, a, w) == [0, 3]


def test_a_triangle() -> None:
    text = "def f(float(N, N) A) -> (S) { S(i) +=! A(i, j) where i in 0:N, j in 0:i }"
    assert only(text, np.arange(9).reshape(3, 3).astype(F32)) == [0, 3, 13]


def test_guarded_reads_are_lazy() -> None:
    text = """def f(float(N) A) -> (O) {
        O(i) = i - 1 >= 0 && A(i - 1) > 1.0 ? A(i - 1) : 0.0 where i in 0:N }"""
    assert only(text, np.array([1, 2, 3], F32)) == [0, 0, 2]


def test_a_gather_out_of_range_names_index_tensor_and_extent() -> None:
    text = "def f(float(N) A, int32(M) I) -> (O) { O(i) = A(I(i)) }"
    a = np.array([5, 6, 7], F32)
    assert only(text, a, ints(2, 0, 2)) == [7, 5, 7]
    for wrong in (3, -1):
        with pytest.raises(LaunchError, match=f"index {wrong} of 'A'.*extent is 3") as caught:
            run(text, a, ints(0, wrong))
        assert caught.value.code == "TC080" and caught.value.line == 1


def test_a_guard_keeps_a_gather_in_range() -> None:
    text = """def f(float(N) A, int32(M) I) -> (O) {
        O(i) = I(i) >= 0 && I(i) < N ? A(I(i)) : -1.0 }"""
    assert only(text, np.array([5, 6], F32), ints(1, -4, 9)) == [6, -1, -1]


def test_scatter_combines_duplicates_and_rejects_what_is_out_of_range() -> None:
    text = """def f(float(M) G0, int32(N) I, float(N) X) -> (G) {
        G(i) = G0(i)  G(I(n)) += X(n) }"""
    g, x = np.ones(3, F32), np.array([1, 2, 4], F32)
    assert only(text, g, ints(2, 0, 2), x) == [3, 1, 6]
    with pytest.raises(LaunchError, match="index 3 of 'G'"):
        run(text, g, ints(2, 0, 3), x)


def test_a_scatter_that_assigns_keeps_the_last_value() -> None:
    text = "def f(float(M) G0, int32(N) I, float(N) X) -> (G) { G(i) = G0(i)  G(I(n)) = X(n) }"
    assert only(text, np.zeros(2, F32), ints(1, 1, 1), np.array([1, 2, 3], F32)) == [0, 3]


def test_an_initialising_scatter_clears_the_whole_tensor() -> None:
    text = "def f(float(M) G0, int32(N) I, float(N) X) -> (G) { G(i) = G0(i)  G(I(n)) +=! X(n) }"
    assert only(text, np.full(3, 9, F32), ints(1, 1), np.array([1, 2], F32)) == [0, 3, 0]


def test_instances_that_share_an_element_combine() -> None:
    text = "def f(int32(N) A, int32(M) B) -> (P) { P(i + j) +=! A(i) * B(j) }"
    assert only(text, ints(1, 2), ints(3, 4, 5)) == [3, 10, 13, 10]


def test_a_recurrence_runs_in_order() -> None:
    text = """def f(float(N) A) -> (C) {
        C(i) = A(i)  C(i) = C(i - 1) + A(i) where i in 1:N }"""
    assert only(text, np.array([1, 2, 3, 4], F32)) == [1, 3, 6, 10]


def test_a_recurrence_with_a_reduction_sees_what_earlier_instances_left() -> None:
    text = """def f(int32(N) A, int32(K) B) -> (C) {
        C(i) = A(i)  C(i) += C(i - 1) * B(k) where i in 1:N }"""
    assert only(text, ints(1, 1, 1), ints(1, 2)) == [1, 4, 13]


def test_reversal_in_place_follows_the_lexicographic_order() -> None:
    text = "def f(int32(N) A) -> (C) { C(i) = A(i)  C(i) = C(N - 1 - i) where i in 0:N }"
    assert only(text, ints(1, 2, 3, 4)) == [4, 3, 3, 4]


def test_reads_at_the_same_element_need_no_order() -> None:
    c = comprehension(
        """def f(int32(N) A) -> (C) { C(i) = A(i)  C(i) = C(i) + 1  C(i) = C(0) + 1 where i in 0:N
        C(2 * i) = C(2 * i) + 1 where i in 0:1 }"""
    )
    assert [is_sequential(statement) for statement in c.statements] == [False, False, True, False]


def test_outputs_that_are_supplied() -> None:
    text = "def f(float(N) A) -> (float(N) O) { O(i) += A(i) }"
    c = comprehension(text)
    assert c.tensors["O"].needs_out
    assert only(text, np.array([1, 2], F32), out={"O": np.array([10, 20], F32)}) == [11, 22]


def test_strided_inputs_and_host_scalars() -> None:
    text = "def f(float(N, M) A, float s) -> (O) { O(i) +=! s * A(i, j) }"
    a = np.arange(12).reshape(3, 4).astype(F32)
    assert only(text, a.T[::-1, ::2], 2.0) == [28, 24, 20, 16]
    assert only(text, np.broadcast_to(F32(3), (2, 5)), 1.0) == [15, 15]


def test_large_grids_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of statement gives the same, whatever the size of a grid (argmin in pieces)."""
    text = """def f(int32(N, M) A, int32(N) I) -> (S, P, Q, R) {
        S(i) +=! A(i, j)   P(i) argmin=! A(i, j)   Q(i, j) = A(i, j) + i   R(i) = A(i, 0)
        R(I(i)) += A(i, j) }"""
    rng = np.random.default_rng(1)
    a, i = rng.integers(-3, 3, (7, 11)).astype(np.int32), ints(0, 6, 6, 1, 1, 1, 3)
    whole = run(text, a, i)
    for limit in (1, 3, 10, 25):
        monkeypatch.setattr(oracle, "GRID", limit)
        for name, value in run(text, a, i).items():
            assert (value == whole[name]).all(), (name, limit)


def test_boxes_are_in_lexicographic_order() -> None:
    parts = list(boxes((range(2, 5), range(3), range(1)), 2))
    points = [(i, j) for p in parts for i in p[0] for j in p[1]]
    assert points == [(i, j) for i in range(2, 5) for j in range(3)]
    assert all(len(p[0]) * len(p[1]) <= 2 for p in parts)
    assert list(boxes((range(3), range(0)), 5)) == [] and list(boxes((), 5)) == [()]


# --- FAULTS.md, row 26: NaN, infinities, signed zero, subnormal numbers ----------------------
def test_extremes_propagate_nan() -> None:
    text = "def f(float(N) A) -> (L, H) { L min=! A(i)  H max=! A(i) }"
    results = run(text, np.array([1, NAN, 3], F32))
    assert np.isnan(results["L"]) and np.isnan(results["H"])
    results = run(text, np.array([-INF, 0, INF], F32))
    assert results["L"] == -INF and results["H"] == INF


def test_sums_of_infinities() -> None:
    text = "def f(float(N) A) -> (S) { S +=! A(i) }"
    assert only(text, np.array([INF, 1], F32)) == INF
    assert np.isnan(only(text, np.array([INF, -INF], F32)))


def test_select_takes_a_nan_for_false() -> None:
    text = "def f(float(N) A) -> (O) { O(i) = A(i) > 0.0 ? A(i) : 7.0 }"
    assert only(text, np.array([NAN, 2], F32)) == [7, 2]


def test_the_sign_of_zero_and_subnormal_numbers_stay() -> None:
    text = "def f(float(N) A) -> (O, P) { O(i) = -A(i)  P(i) = A(i) * 0.5 }"
    results = run(text, np.array([0.0, 1e-44], F32))
    assert np.signbit(results["O"]).all() and results["P"][1] == F32(1e-44) / 2 > 0


# --- row 27: half types accumulate in float32 ------------------------------------------------
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_sums_and_products_accumulate_in_float32(dtype: str) -> None:
    import ml_dtypes

    numpy_type = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    text = f"def f({dtype}(N) A) -> (S, P) {{ S +=! A(i)  P *=! A(i) }}"
    values = np.array([60000, 60000, -60000, -59000]).astype(numpy_type)
    results = run(text, values)
    # Partial sums exceed 65504; what comes out is the float32 sum, rounded once.
    wide = values.astype(F32)
    assert results["S"] == wide.sum().astype(numpy_type)
    with np.errstate(all="ignore"):
        assert results["P"] == np.prod(wide).astype(numpy_type)


def test_a_half_result_beyond_its_range_is_infinite() -> None:
    text = "def f(float16(N) A) -> (S) { S +=! A(i) }"
    assert only(text, np.full(2, 60000, np.float16)) == INF


# --- row 28: integer division ----------------------------------------------------------------
def test_integer_division_in_programs() -> None:
    text = "def f(int32(N) A, int32(N) B) -> (Q, R) { Q(i) = A(i) / B(i)  R(i) = A(i) % B(i) }"
    low = -(2**31)
    results = run(text, ints(7, -7, 7, -7, low, 5, 0), ints(2, 2, -2, -2, -1, 0, 0))
    assert results["Q"].tolist() == [3, -4, -4, 3, low, 0, 0]
    assert results["R"].tolist() == [1, 1, -1, -1, 0, 0, 0]


def test_integers_wrap_in_sums() -> None:
    text = "def f(int8(N) A) -> (int8 S) { S +=! A(i) }"
    assert only(text, np.array([100, 100], np.int8)) == -56
    text = "def f(int32(N) A) -> (S) { S +=! A(i) }"
    assert only(text, np.array([2**31 - 1, 1], np.int32)) == -(2**31)
