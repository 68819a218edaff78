"""``<=> cublas(A, B)``: what is refused, where, and what to do."""

import pytest

import tcdsl
from tcdsl.lang.syntax.printer import print_comprehension

HEAD = (
    "def f(float(M,K) A, float(K,N) B, bfloat16(K,N) H, int32(M,K) I, "
    "int8(M,K) J, float8_e4m3(M,K) E) -> (C) { "
)


def refused(body: str) -> tcdsl.TCError:
    with pytest.raises(tcdsl.TCError) as caught:
        tcdsl.define(f"{HEAD}{body} }}")
    return caught.value


@pytest.mark.parametrize(("body", "what"), [
    ("C(m,n) +=! A(m,k) * B(k,n) <=> cublas(B, A)", "the product is of A and B in another order"),
    ("C(m,n) +=! A(m,k) * B(k,n) <=> cublas(A)", "the product is of A and B"),
    ("C(m,n) +=! A(m,k) * B(k,n) <=> cublas(A, 2)", "the product is of A and B"),
    ("C(m,n) max=! A(m,k) * B(k,n) <=> cublas(A, B)", "the statement is no sum"),
    ("C(m,n) = A(m,n) * B(m,n) <=> cublas(A, B)", "the statement is no sum"),
    ("C(m,n) +=! A(m,k) * B(k,n) * 2.0 <=> cublas(A, B)", "it is not of two tensors alone"),
    ("C(m,n) +=! A(m,k) + B(k,n) <=> cublas(A, B)", "it is not of two tensors alone"),
    ("C(m) +=! A(m,k) * B(k,n) <=> cublas(A, B)", "because n is in B alone"),
    ("C(m,n) +=! A(m,k) * B(k,n) <=> cublas(A, B) where exists A(m,k) > 0.0", "conditions"),
    ("C(m,n) +=! A(m,k) * H(k,n) <=> cublas(A, H)", "A is float32 and H is bfloat16"),
    ("C(m,n) +=! I(m,k) * I(n,k) <=> cublas(I, I)", "I is int32, not float32 or"),
    ("C(m,n) +=! J(m,k) * J(n,k) <=> cublas(J, J)", "J is int8, not float32 or"),
    ("C(m,n) +=! E(m,k) * E(n,k) <=> cublas(E, E)", "E is float8_e4m3, not float32 or"),
    ("A2(m,k) = A(m,k)  C(m,n) = 0.0 where m in 0:M, n in 0:M  "
     "C(m,n) += C(m,k) * A2(k,n) <=> cublas(C, A2)", "it reads its result C"),
])  # fmt: skip
def test_what_is_no_product_of_a_library(body: str, what: str) -> None:
    error = refused(body)
    assert error.code == "TC094" and what in error.message and error.hint
    assert error.line == 1 and error.column == len(HEAD) + body.index("cublas") + 1


@pytest.mark.parametrize(("body", "what"), [
    ("C(m,n) max=! A(m,k) * B(k,n) <=> cudnn(A, B)", "the statement is no sum"),
    ("C(m,n) +=! (k < 3 ? A(m,k) : 1) * B(k,n) <=> cudnn(A, B)", "not of two tensors, or 0"),
    ("C(m,n) +=! A(m,k) * H(k,n) <=> cudnn(A, H)", "A is float32 and H is bfloat16"),
    ("C(m,n) +=! (k < 3 ? A(m,k) : 0) * B(k,n) <=> cudnn(B, A)", "A and B in another order"),
    ("C(m,n) +=! A(m,k) * B(k,n) <=> cudnn(A, B) where exists A(m,k) > 0.0", "conditions"),
])  # fmt: skip
def test_what_is_no_convolution(body: str, what: str) -> None:
    error = refused(body)
    assert error.code == "TC094" and what in error.message and error.hint
    assert error.column == len(HEAD) + body.index("cudnn") + 1


def test_an_unknown_library_is_told_the_known_ones() -> None:
    error = refused("C(m,n) +=! A(m,k) * B(k,n) <=> mkl(A, B)")
    assert error.code == "TC020" and error.hint is not None and "cublas, cudnn, blas" in error.hint
    error = refused("C(m,n) +=! A(m,k) * B(k,n) <=> cubls(A, B)")
    assert error.hint == "did you mean 'cublas'?"


def test_a_tensor_of_that_name_comes_first() -> None:
    f = tcdsl.define("def f(float(N) cublas) -> (y) { y(i) = 1.0 <=> cublas(N) }").f
    assert f.output_shapes(tcdsl.spec((5,), "float32")) == {"y": (5,)}


def test_the_library_is_printed_and_read_again() -> None:
    f = tcdsl.define(f"{HEAD}C(m,n) +=! A(m,k) * B(k,n) <=> cublas(A, B) }}").f
    text = print_comprehension(f.comprehension)
    assert "<=> cublas(A, B)" in text
    assert tcdsl.define(text).f.comprehension.statements[0].library == "cublas"


def test_called_definitions_keep_their_library() -> None:
    program = tcdsl.define("""
        def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) <=> cublas(A, B) }
        def g(float(M,K) x, float(K,K) w) -> (y) { t = mm(x, w)  y = mm(t, w) }
    """)
    assert [s.library for s in program.g.comprehension.statements] == ["cublas", "cublas"]
    assert "cublas(t, w)" in print_comprehension(program.g.comprehension)


def test_derivatives_name_no_library() -> None:
    f = tcdsl.define(f"{HEAD}C(m,n) +=! A(m,k) * B(k,n) <=> cublas(A, B) }}").f
    source = tcdsl.vjp(f, wrt=("A",)).source
    assert "cublas" not in str(source)
