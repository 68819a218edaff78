"""Signatures have every type and shape, also in what only the disk cache knows of a def."""

import pytest

import tcdsl
from tcdsl.lang.types.head import Head


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("def f(float(N) x, float(K) w) -> (y) { y(i) +=! x(i + k) * w(k) }",
         "f(float32(N) x, float32(K) w) -> (float32(N - K + 1) y)"),
        ("def f(int8(N) x, float s) -> (y, n) { y = s  n(i) = x(2 * i) }",
         "f(int8(N) x, float32 s) -> (float32 y, int8((N + 1) / 2) n)"),
        ("def f(float(N) a, float(M) b) -> (c) { c(i) = a(i) + b(i) }",
         "f(float32(N) a, float32(M) b) -> (float32(min(N, M)) c)"),
        ("def f(float(N, 3) x) -> (x) { x(i, j) = x(i, j) + 1.0 }",
         "f(float32(N, 3) x) -> (float32(N, 3) x)"),
        ("def f() -> (s) { s = 3.0 }", "f() -> (float32 s)"),
    ],
)  # fmt: skip
def test_inferred_shapes_are_functions_of_the_sizes(text: str, signature: str) -> None:
    c = tcdsl.define(text).f.comprehension
    assert c.signature == signature
    assert Head.from_json(c.to_json(), c.source).signature == signature


@pytest.mark.parametrize("coalesce", [True, False])
def test_compiled_code_has_the_signature_of_the_users_def(coalesce: bool) -> None:
    f = tcdsl.define("def f(float(M, N) x) -> (y) { y(i, j) = x(i, j) }").f
    exe = f.compile(
        tcdsl.spec((3, 4), "float32"), target="cpu", options=tcdsl.Options(coalesce=coalesce)
    )
    with pytest.raises(tcdsl.ShapeError) as caught:
        exe()
    assert caught.value.hint == "it is f(float32(M, N) x) -> (float32(M, N) y)"
