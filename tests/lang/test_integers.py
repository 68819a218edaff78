"""Integers: narrow ones are computed with as int32, quotients round down and say so."""

import re
import warnings

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.dtypes import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    DType,
    promote,
)
from tcdsl.lang.types.sema import analyse
from tcdsl.source import Source

PARAMS = "uint8(N) u, int8(N) s, uint16(N) v, int32(N) j, bool(N) p, float(N) x"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (UINT8, INT8, INT32), (UINT16, INT8, INT32), (UINT8, INT16, INT32), (INT8, INT16, INT16),
        (UINT8, UINT16, UINT16), (BOOL, INT8, INT8), (UINT8, UINT32, UINT32), (UINT32, INT8, INT32),
        (UINT16, INT64, INT64),
    ],
)  # fmt: skip
def test_promotion(a: DType, b: DType, expected: DType) -> None:
    assert promote(a, b) == promote(b, a) == expected


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        ("u(i) + u(i)", "int32"), ("s(i) * s(i)", "int32"), ("u(i) - u(i)", "int32"),
        ("u(i) / u(i)", "int32"), ("u(i) % 3u8", "int32"), ("-s(i)", "int32"),
        ("abs(s(i))", "int32"), ("u(i) << 1u8", "int32"), ("u(i) * 2", "int32"),
        ("u(i) + v(i)", "int32"), ("u(i)", "uint8"), ("u(i) & 15u8", "uint8"), ("~u(i)", "uint8"),
        ("max(u(i), v(i))", "uint16"),
        ("p(i) ? u(i) : 0u8", "uint8"), ("min(u(i), s(i))", "int32"), ("u(i) * x(i)", "float32"),
        ("uint8(u(i) + 1)", "uint8"), ("u(i) > s(i)", "bool"),
    ],
)  # fmt: skip
def test_types(expression: str, dtype: str) -> None:
    text = f"def f({PARAMS}) -> (y) {{ y(i) = {expression} }}"
    assert analyse(parse_program(Source(text)))[0].tensors["y"].dtype.name == dtype


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [("+=!", "int32"), ("*=!", "int32"), ("max=!", "uint8"), ("min=!", "uint8")],
)
def test_types_of_reductions(operator: str, dtype: str) -> None:
    text = f"def f({PARAMS}) -> (y) {{ y {operator} u(i) }}"
    assert analyse(parse_program(Source(text)))[0].tensors["y"].dtype.name == dtype


SOURCE = """
def f(uint8(N) u, int8(N) s, float(N) x)
    -> (a, b, uint8(N) c, uint8 d, e, g, h, int8 k, uint8(N) m) {
    a(i) = u(i) + u(i)
    b +=! u(i)
    c(i) = u(i) * 3
    d +=! u(i)
    e(i) = s(i) / -1i8
    g(i) = u(i) > s(i)
    h(i) = abs(s(i)) + u(i) / -s(i)
    k +=! x(i)
    m(i) = u(i)
    m(i) += u(i)
}
"""


@pytest.mark.parametrize("target", ["cpu", "emulate", "reference"])
def test_values(target: str) -> None:
    u = np.array([200, 100, 255, 7], np.uint8)
    s = np.array([-128, 100, -1, 3], np.int8)
    x = np.array([200.0, 100.0, 1.5, -3.0], np.float32)
    f = tcdsl.define(SOURCE).f
    results = f.reference(u, s, x) if target == "reference" else f(u, s, x, target=target)
    wide, signed = u.astype(np.int32), s.astype(np.int32)
    expected = (
        2 * wide, wide.sum(), (3 * wide) % 256, wide.sum() % 256, -signed, wide > signed,
        abs(signed) + wide // -signed, np.int32(298).astype(np.int8), 2 * wide % 256,
    )  # fmt: skip
    names = ("int32", "int32", "uint8", "uint8", "int32", "bool", "int32", "int8", "uint8")
    for result, value, name in zip(results, expected, names, strict=True):
        assert np.asarray(result).dtype.name == name
        assert (np.asarray(result) == value).all()


def warnings_of(body: str, returns: str = "y") -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tcdsl.define(f"def f(float(N) x, int32(N) j) -> ({returns}) {{ {body} }}")
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("body", "returns", "spelling"),
    [
        ("y(i) = x(i) * (j(i) / 2)", "y", "float(j(i)) / 2 "),
        ("y(i) = x(i) + (j(i) + 1) / (N - 1)", "y", "float(j(i) + 1) / (N - 1)"),
        ("y(i) = exp(j(i) / 2 + 1)", "y", "float(j(i)) / 2 "),
        ("y(i) = j(i) / 2", "double(N) y", "double(j(i)) / 2 "),
        ("y +=! j(i) / 2 where exists j(i) > 0", "float y", "float(j(i)) / 2 "),
        ("y(i) = 0.5 * (1 / 2) * x(i)", "y", "float(1) / 2 "),
    ],
)
def test_a_quotient_that_becomes_a_float_is_a_warning(
    body: str, returns: str, spelling: str
) -> None:
    (message,) = warnings_of(body, returns)
    quotient = re.search(r"[^ ]*: the quotient '(.*)' of integers", message)
    assert quotient is not None and f"write {spelling}" in message
    line = f"def f(float(N) x, int32(N) j) -> ({returns}) {{ {body} }}"
    column = int(message.split(":")[2])
    assert message.startswith("<tc>:1:") and quotient[1] in line[column - 1 :]
    assert line[column - 1 :].lstrip("(").startswith(quotient[1].lstrip("("))


@pytest.mark.parametrize(
    "body",
    [
        "y(i) = x(i) * float(j(i) / 2)", "y(i) = x(i / 2) where i in 0:N", "y(i) = j(i) / 2",
        "y(i) = x(i) / 2", "y(i) = x(i) * float(j(i)) / 2", "y(i) = x(i) * (i % 2)",
    ],
)  # fmt: skip
def test_other_quotients_are_none(body: str) -> None:
    assert warnings_of(body) == []
