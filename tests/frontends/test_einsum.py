"""tcdsl.einsum against numpy.einsum."""

import pickle
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import tcdsl
from tcdsl.errors import LaunchError, OptionError, ShapeError, TargetError, TCError
from tcdsl.frontends.einsum import Einsum
from tcdsl.interp.arithmetic import Array

RNG = np.random.default_rng(0)


def reals(*shape: int, dtype: Any = np.float64) -> Array:
    return np.asarray(RNG.normal(size=shape)).astype(dtype)


def agree(subscripts: str, *operands: Any, target: str = "reference", **kwargs: Any) -> None:
    expected = np.einsum(subscripts, *operands, **kwargs)
    actual = tcdsl.einsum(subscripts, *operands, target=target)
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("subscripts", "shapes"), [
    ("i->", [(5,)]), ("i", [(5,)]), ("ij->ji", [(2, 3)]), ("ba", [(2, 3)]), ("ii", [(4, 4)]),
    ("ii->i", [(4, 4)]), ("iij->ij", [(3, 3, 2)]), ("iijj->ij", [(3, 3, 2, 2)]),
    ("i,i", [(5,), (5,)]), ("i,j", [(5,), (3,)]), ("ij,jk", [(2, 3), (3, 4)]),
    ("ij,kl->", [(2, 3), (4, 5)]), ("ij,kl->ik", [(2, 3), (4, 5)]), ("ij,i->i", [(2, 3), (2,)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("...ij,...jk", [(2, 3, 4), (4, 5)]),
    ("...", [(2, 3)]), ("i...->...", [(2, 3, 4)]), ("...i,...i", [(2, 3), (1, 3)]),
    ("...,...", [(2, 3), (3,)]), ("i...j->j...i", [(2, 3, 4, 5)]), ("i...i", [(3, 2, 3)]),
    ("i,i", [(1,), (5,)]), ("ij,jk", [(2, 3), (1, 4)]), ("ij,ij->ij", [(1, 3), (2, 1)]),
    ("ij,ij,ij->j", [(1, 3), (2, 1), (2, 3)]), ("ii,i->i", [(1, 1), (3,)]),
    ("ij,jk,kl", [(2, 3), (3, 4), (4, 5)]), ("ij,jk,kl,lm->mi", [(2, 3), (3, 4), (4, 5), (5, 6)]),
    ("i,i,i,i", [(3,), (3,), (3,), (3,)]), ("a,b,c->cab", [(2,), (3,), (4,)]),
    ("ab,cd,ef->", [(2, 3), (4, 5), (2, 2)]), ("...a,ab,b...->...", [(2, 3), (3, 4), (4, 2)]),
    ("ea,fb,abcd,gc,hd->efgh", [(2, 3), (2, 4), (3, 4, 2, 3), (3, 2), (2, 3)]),
    ("i->", [(0,)]), ("ij->j", [(0, 3)]), ("ij,jk", [(2, 0), (0, 3)]), ("i,i->i", [(1,), (0,)]),
    ("ij,jk,kl", [(2, 0), (0, 3), (3, 2)]), ("", [()]), (",i", [(), (3,)]), ("i->...i", [(3,)]),
    ("iI,Ij", [(2, 3), (3, 4)]), ("eN,Ne", [(2, 3), (3, 2)]),
])  # fmt: skip
def test_like_numpy(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    agree(subscripts, *(reals(*shape) for shape in shapes))


def test_compiled() -> None:
    agree("ij,jk->ik", reals(7, 13), reals(13, 5), target="cpu")
    agree("...ij,jk,lk->...il", reals(2, 3, 5), reals(5, 4), reals(3, 4).copy("F"), target="cpu")
    agree("ii->i", reals(5, 5)[::-1, ::-1], target="cpu")


@st.composite
def calls(draw: Any) -> tuple[str, list[tuple[int, ...]], int]:
    """Subscripts, the shapes of the operands, and a seed."""
    sizes = {label: draw(st.sampled_from((2, 3, 1, 4, 0, 5))) for label in "ijkLM"}
    depth = draw(st.integers(0, 2))
    extra = tuple(draw(st.sampled_from((2, 1, 3))) for _ in range(depth))
    terms, shapes, used = [], [], set()
    for _ in range(draw(st.integers(1, 4))):
        labels = draw(st.lists(st.sampled_from("ijkLM"), max_size=3))
        used |= set(labels)
        # Within an operand, a repeated label is a diagonal: no extent gives way to another.
        once = {label: draw(st.integers(0, 7)) == 7 for label in labels}
        shape = [1 if once[label] else sizes[label] for label in labels]
        if draw(st.booleans()):
            place = draw(st.integers(0, len(labels)))
            own = extra[len(extra) - draw(st.integers(0, depth)) :]
            shape[place:place] = [1 if draw(st.integers(0, 5)) == 5 else n for n in own]
            labels.insert(place, "...")
        terms.append("".join(labels))
        shapes.append(tuple(shape))
    text = ",".join(terms)
    if draw(st.booleans()):
        output = draw(st.lists(st.sampled_from(sorted(used) or ["i"]), unique=True))
        output = [label for label in output if label in used]
        output.insert(draw(st.integers(0, len(output))), "...")
        text += "->" + "".join(output)
    return text, shapes, draw(st.integers(0, 99))


QUICK = settings(
    database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


@pytest.mark.slow
@seed(7)
@settings(QUICK, max_examples=150)
@given(calls())
def test_random_einsums(call: tuple[str, list[tuple[int, ...]], int]) -> None:
    text, shapes, number = call
    rng = np.random.default_rng(number)
    agree(text, *(rng.integers(-3, 4, shape).astype(np.float64) for shape in shapes))


@pytest.mark.slow
@seed(8)
@settings(QUICK, max_examples=150)
@given(calls(), st.sampled_from((np.int64, np.int8, np.bool_)))
def test_random_einsums_of_integers(
    call: tuple[str, list[tuple[int, ...]], int], dtype: Any
) -> None:
    text, shapes, number = call
    rng = np.random.default_rng(number)
    operands = [rng.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    agree(text, *operands)


def test_random_einsums_compiled(check_all: Callable[..., None]) -> None:
    cases: list[tuple[str, list[Array]]] = []

    @seed(9)
    @settings(QUICK, max_examples=40)
    @given(calls())
    def collect(call: tuple[str, list[tuple[int, ...]], int]) -> None:
        text, shapes, _ = call
        operands = [reals(*shape, dtype=np.float32) for shape in shapes]
        cases.append((tcdsl.einsum(text).source_for(*operands), operands))

    collect()
    assert len(cases) >= 30
    check_all(cases)


# --- forms -----------------------------------------------------------------------------------


def test_interleaved() -> None:
    a, b = reals(2, 3), reals(3, 4)
    cases: list[tuple[Any, ...]] = [
        (a, [0, 1], b, [1, 2]), (a, [0, 1], b, [1, 2], [2, 0]), (a, [1, 0]),
        (a, [Ellipsis, 0], [Ellipsis, 0]), (a, (30, 2), b, (2, 1)),
    ]  # fmt: skip
    for args in cases:
        np.testing.assert_allclose(tcdsl.einsum(*args), np.einsum(*args))


def test_lists_and_numbers() -> None:
    assert tcdsl.einsum("i,i", [1, 2], [3, 4]) == 11
    assert tcdsl.einsum([1.0, 2.0], [0], [3, 4], [0]) == 11.0
    assert tcdsl.einsum("", 5) == 5
    x = reals(3, dtype=np.float32)
    scaled = tcdsl.einsum(",i->i", 2.0, x)
    assert scaled.dtype == np.float32  # a Python number is not wider than its kind asks
    np.testing.assert_array_equal(scaled, 2 * x)
    assert tcdsl.einsum(",i->i", 2.5, np.arange(3)).dtype == np.float64
    assert tcdsl.einsum(",i->i", 2, np.ones(3, np.int8)).dtype == np.int8
    assert tcdsl.einsum(",i->i", 2, np.ones(3, bool)).dtype == np.int64
    assert tcdsl.einsum(",i->i", True, np.ones(3, bool)).dtype == np.bool_
    assert tcdsl.einsum(",i->i", np.float64(2), x).dtype == np.float64


@pytest.mark.parametrize(("one", "other", "result"), [
    (np.int32, np.float32, np.float32), (np.float32, np.float64, np.float64),
    (np.uint8, np.int8, np.int32), (np.uint8, np.uint16, np.uint16), (np.bool_, np.int32, np.int32),
    (np.float16, np.float32, np.float32), (np.bool_, np.bool_, np.bool_),
    (np.float16, ml_dtypes.bfloat16, np.float32), (np.int64, np.float16, np.float16),
])  # fmt: skip
def test_promotion(one: Any, other: Any, result: Any) -> None:
    a, b = np.array([[1, 0, 1]]).astype(one), np.array([[1], [1], [0]]).astype(other)
    for operands in ((a, b), (b.T, a.T)):
        value = tcdsl.einsum("ij,jk", *operands, target="reference")
        assert value.dtype == result
        assert value == 1


def test_operands_are_converted_before_they_are_multiplied() -> None:
    a, b, x = np.array([100], np.int8), np.array([2], np.int8), np.array([1.0], np.float32)
    assert tcdsl.einsum("i,i,i", a, b, x, target="reference") == 200.0


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_types_are_summed_as_float32(dtype: Any) -> None:
    x = np.full(5000, 1, dtype)
    assert tcdsl.einsum("i->", x, target="reference") == np.asarray(5000).astype(dtype)
    total = tcdsl.einsum("i,i,->", x, x, np.asarray(0.5).astype(dtype), target="reference")
    assert total.dtype == dtype
    assert total == np.asarray(2500).astype(dtype)


def test_dtype() -> None:
    x = np.full(3, 100, np.int8)
    assert tcdsl.einsum("i->", x, target="reference") == np.int8(300 - 256)
    for dtype in ("int32", np.int32, np.dtype(np.int32)):
        total = tcdsl.einsum("i->", x, dtype=dtype, target="reference")
        assert total == 300 and total.dtype == np.int32
    count = tcdsl.einsum("i->", x > 5, dtype="int64", target="reference")
    assert count == 3
    with pytest.raises(ShapeError, match="complex64"):
        tcdsl.einsum("i->", x, dtype="complex64")


def test_out_and_torch() -> None:
    torch = pytest.importorskip("torch")

    a, b = reals(2, 3, dtype=np.float32), reals(3, 4, dtype=np.float32)
    out = np.empty((4, 2), np.float32).T
    assert tcdsl.einsum("ij,jk->ik", a, b, out=out, target="reference") is out
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)
    value = tcdsl.einsum("ij,jk", torch.from_numpy(a), torch.from_numpy(b), target="reference")
    assert isinstance(value, torch.Tensor)
    np.testing.assert_allclose(value.numpy(), a @ b, rtol=1e-5)


# --- the function ------------------------------------------------------------------------------


def test_the_function_and_its_text() -> None:
    f = tcdsl.einsum("ij,jk->ik")
    assert isinstance(f, Einsum)
    assert repr(f) == "<tcdsl.einsum 'ij,jk->ik'>"
    assert f.source == (
        "# einsum ij,jk->ik\n"
        "def einsum(float32(N_i,N_j) x0, float32(N_j,N_k) x1) -> (float32(N_i,N_k) out) {\n"
        "    out(i,k) +=! x0(i,j) * x1(j,k)\n"
        "}\n"
    )
    a, b = reals(2, 3), reals(3, 4)
    np.testing.assert_allclose(f(a, b), a @ b)
    assert f.output_shapes(a, b) == {"out": (2, 4)}
    assert f.ranges(a, b) == [{"i": range(2), "k": range(4), "j": range(3)}]
    assert "float64(N_i,N_j) x0" in f.source_for(a, b)
    np.testing.assert_allclose(f.reference(a, b), a @ b)
    exe = f.compile(tcdsl.spec((2, 3), "float64"), tcdsl.spec((3, 4), "float64"))
    np.testing.assert_allclose(exe(a, b), a @ b)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(f))(a, b), a @ b)


@pytest.mark.parametrize("text", ["ij,jk,kl", "...ij->...i", "ii", "", "a,b,c,d->dbca", "ij,kl->"])
def test_the_text_is_a_program(text: str) -> None:
    program = tcdsl.define(tcdsl.einsum(text).source)
    assert program.names == ("einsum",)


def test_the_order_of_contraction_follows_the_shapes() -> None:
    f = tcdsl.einsum("ij,jk,kl->il")
    thin_left = f.source_for(reals(2, 50), reals(50, 50), reals(50, 50))
    thin_right = f.source_for(reals(50, 50), reals(50, 50), reals(50, 2))
    assert "x0(i,j) * x1(j,k)" in thin_left
    assert "x1(j,k) * x2(k,l)" in thin_right
    assert "x0(i,j) * x1(j,k) * x2(k,l)" in tcdsl.einsum("ij,jk,kl->il", optimize=False).source


@pytest.mark.parametrize("optimize", [
    True, False, "greedy", "optimal", [(0, 1), (0, 1)], ["einsum_path", (1, 2), (0, 1)],
])  # fmt: skip
def test_optimize(optimize: Any) -> None:
    operands = reals(2, 3), reals(3, 4), reals(4, 5)
    value = tcdsl.einsum("ij,jk,kl", *operands, optimize=optimize, target="reference")
    np.testing.assert_allclose(value, np.einsum("ij,jk,kl", *operands))


@pytest.mark.parametrize("optimize", ["slowest", [(0, 9)], 7.5])
def test_optimize_without_meaning(optimize: Any) -> None:
    operands = reals(2, 3), reals(3, 4), reals(4, 5)
    with pytest.raises(OptionError) as caught:
        tcdsl.einsum("ij,jk,kl", *operands, optimize=optimize)
    assert caught.value.code == "TC060" and "'optimize'" in caught.value.message


def test_private_labels_are_summed_first() -> None:
    lines = tcdsl.einsum("ij,kl->").source.splitlines()[2:-1]
    assert [line.strip() for line in lines] == ["t0 +=! x0(i,j)", "t1 +=! x1(k,l)", "out = t0 * t1"]
    assert "out(i) +=! x0(i,j) * x1(i)" in tcdsl.einsum("ij,i->i").source


def test_the_same_function_again() -> None:
    assert tcdsl.einsum("ij,jk->ik") is tcdsl.einsum("ij,jk->ik")
    assert tcdsl.einsum("ij,jk->ik") is not tcdsl.einsum("ij,jk->ik", dtype="float64")


def test_a_warm_call_costs_microseconds() -> None:
    x = reals(4, dtype=np.float32)
    tcdsl.einsum("i->i", x)
    times = []
    for _ in range(5):
        start = time.thread_time()  # others may have the processor meanwhile
        for _ in range(200):
            tcdsl.einsum("i->i", x)
        times.append((time.thread_time() - start) / 200)
    assert min(times) < 50e-6  # 3.3 us on an idle machine


# --- errors ------------------------------------------------------------------------------------


def test_the_caret_is_in_the_subscripts() -> None:
    with pytest.raises(ShapeError) as caught:
        tcdsl.einsum("ij,jk->ik", reals(2, 3), reals(4, 5))
    assert str(caught.value).splitlines()[:3] == [
        "<einsum>:1:4: error[TC053]: the extents of 'j' must be equal "
        "(dimension 0 of operand 1, and operand 0), but are 3 and 4",
        "ij,jk->ik",
        "   ^",
    ]


@pytest.mark.parametrize(("args", "code"), [
    (("i,j", reals(3)), "TC048"),
    (("i", reals(3), reals(3)), "TC048"),
    (("i", None), "TC056"),
    (("i", np.ones(3, complex)), "TC055"),
    (("i", "abc"), "TC056"),
    (("ij", [[1, 2], [3]]), "TC056"),
    ((reals(3),), "TC056"),
    ((reals(3), [0], reals(3)), "TC018"),
    (([0],), "TC056"),
])  # fmt: skip
def test_wrong_operands(args: tuple[Any, ...], code: str) -> None:
    with pytest.raises(TCError) as caught:
        tcdsl.einsum(*args)
    assert caught.value.code == code


def test_wrong_choices() -> None:
    with pytest.raises(TargetError):
        tcdsl.einsum("i->", reals(3), target="gpu")
    options: Any = {"threads": 1}
    with pytest.raises(OptionError):
        tcdsl.einsum("i->", reals(3), options=options)
    with pytest.raises((ShapeError, LaunchError)):
        tcdsl.einsum("i->i", reals(3), out=np.empty(4))
