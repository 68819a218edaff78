"""Which statements are convolutions as libraries take them, and which are not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.convolutions import Computed, Convolution, Window
from tcdsl.options import Options
from tcdsl.poly.scop import Scop
from tcdsl.strategies.convolutions import convolution
from tests.emulated_programs import cuda_unit_of

Lower = Callable[..., Scop]

# A definition, the shapes of its inputs, what it computes, and whether channels are last.
FORMS: dict[str, tuple[str, tuple[tuple[int, ...], ...], Computed, bool]] = {
    "valid": (
        """T(N,C,H,W) x, T(F,C,R,S) k) -> (T y) {
        y(n,f,p,q) +=! x(n,c,p+r,q+s) * k(f,c,r,s) <=> cudnn(x, k) }""",
        ((2, 5, 9, 8), (6, 5, 3, 2)), Computed.RESULT, False,
    ),
    "padded, stride 2": (
        """T(N,H,W,C) x, T(F,R,S,C) k) -> (T y) {
        y(n,p,q,f) +=! (2*p+r >= 1 && 2*p+r <= H && 2*q+s >= 1 && 2*q+s <= W
            ? x(n,2*p+r-1,2*q+s-1,c) : 0) * k(f,r,s,c) <=> cudnn(x, k)
            where p in 0:5, q in 0:4 }""",
        ((2, 9, 8, 5), (6, 3, 3, 5)), Computed.RESULT, True,
    ),
    "dilated": (
        """T(N,C,H) x, T(F,C,R) k) -> (T y) {
        y(n,f,p) +=! x(n,c,p+2*r) * k(f,c,r) <=> cudnn(x, k) }""",
        ((2, 5, 19), (6, 5, 3)), Computed.RESULT, False,
    ),
    "three axes": (
        """T(N,D,H,W,C) x, T(F,Q,R,S,C) k) -> (T y) {
        y(n,d,h,w,f) +=! x(n,d+q,h+r,w+s,c) * k(f,q,r,s,c) <=> cudnn(x, k) }""",
        ((2, 5, 6, 7, 3), (4, 2, 3, 3, 3)), Computed.RESULT, True,
    ),
    "weights": (
        """T(N,F,P,Q) g, T(N,C,H,W) x) -> (T k) {
        k(f,c,r,s) +=! g(n,f,p,q) * x(n,c,p+r,q+s) <=> cudnn(g, x) }""",
        ((2, 6, 7, 6), (2, 5, 9, 8)), Computed.FILTER, False,
    ),
    "data": (
        """T(N,F,P,Q) g, T(F,C,R,S) k) -> (T d) {
        d(n,c,y,v) +=! (y - r >= 0 && y - r < P && v - s >= 0 && v - s < Q
            ? g(n,f,y-r,v-s) : 0) * k(f,c,r,s) <=> cudnn(g, k) where y in 0:9, v in 0:8 }""",
        ((2, 6, 7, 6), (6, 5, 3, 3)), Computed.IMAGE, False,
    ),
    "data, stride 2": (
        """T(N,P,Q,F) g, T(F,R,S,C) k) -> (T d) {
        d(n,y,v,c) +=! ((y+1-r) % 2 == 0 && (v+1-s) % 2 == 0 && y+1 >= r && v+1 >= s
            && (y+1-r)/2 < P && (v+1-s)/2 < Q ? g(n,(y+1-r)/2,(v+1-s)/2,f) : 0) * k(f,r,s,c)
            <=> cudnn(g, k) where y in 0:9, v in 0:8 }""",
        ((2, 5, 4, 6), (6, 3, 3, 5)), Computed.IMAGE, True,
    ),
}  # fmt: skip
# What libraries do not compute, and a part of why.
OTHERS = {
    "zeros on one side": (
        """float(N,C,H) x, float(F,C,R) k) -> (y) {
        y(n,f,p) +=! (p + r < H ? x(n,c,p+r) : 0) * k(f,c,r) where p in 0:H }""",
        ((2, 5, 9), (6, 5, 3)), "zeros on both sides",
    ),
    "a guard elsewhere": (
        """float(N,C,H) x, float(F,C,R) k) -> (y) {
        y(n,f,p) +=! (p + r >= 2 ? x(n,c,p+r) : 0) * k(f,c,r) where p in 0:7 }""",
        ((2, 5, 9), (6, 5, 3)), "guard",
    ),
    "groups": (
        """float(N,G,C,H) x, float(G,F,C,R) k) -> (y) {
        y(n,g,f,p) +=! x(n,g,c,p+r) * k(g,f,c,r) }""",
        ((2, 2, 5, 9), (2, 6, 5, 3)), "other indices",
    ),
    "two layouts": (
        """float(N,C,H) x, float(F,R,C) k) -> (y) {
        y(n,f,p) +=! x(n,c,p+r) * k(f,r,c) }""",
        ((2, 5, 9), (6, 3, 5)), "channels neither",
    ),
    "a product": (
        "float(M,K) x, float(K,N) k) -> (y) { y(m,n) +=! x(m,k) * k(k,n) }".replace(
            "k(k,n)", "w(k,n)"
        ).replace("float(K,N) k", "float(K,N) w"),
        ((5, 6), (6, 7)), "windows",
    ),
    "other types": (
        """int8(N,C,H) x, int8(F,C,R) k) -> (y) {
        y(n,f,p) +=! int32(x(n,c,p+r)) * k(f,c,r) }""",
        ((2, 5, 9), (6, 5, 3)), "int8",
    ),
}  # fmt: skip


def text_of(form: str, dtype: str = "float") -> str:
    source = FORMS[form][0].replace("(T ", "(").replace("T(", f"{dtype}(")
    return f"def f({source}"


@pytest.mark.parametrize("form", FORMS)
def test_convolutions_are_found(form: str, lower: Lower) -> None:
    _, shapes, computed, is_last = FORMS[form]
    scop = lower(text_of(form), *shapes)
    found = convolution(scop, scop.statements[-1])
    assert isinstance(found, Convolution), found
    assert (found.computed, found.is_channels_last) == (computed, is_last)
    assert (found.images, found.channels, found.filters) == (
        2,
        shapes_of(form)[0],
        shapes_of(form)[1],
    )
    assert all(window.is_whole for window in found.windows)
    assert Convolution.from_json(found.to_json()) == found


def shapes_of(form: str) -> tuple[int, int]:
    """Return channels and filters."""
    return (3, 4) if form == "three axes" else (5, 6)


def test_windows_are_those_of_the_text(lower: Lower) -> None:
    for form, windows in {
        "padded, stride 2": (Window(9, 3, 5, 2, 1, 1), Window(8, 3, 4, 2, 1, 1)),
        "data, stride 2": (Window(9, 3, 5, 2, 1, 1), Window(8, 3, 4, 2, 1, 1)),
        "dilated": (Window(19, 3, 15, 1, 2, 0),),
    }.items():
        scop = lower(text_of(form), *FORMS[form][1])
        found = convolution(scop, scop.statements[-1])
        assert isinstance(found, Convolution) and found.windows == windows


@pytest.mark.parametrize("form", OTHERS)
def test_others_say_why_not(form: str, lower: Lower) -> None:
    source, shapes, why = OTHERS[form]
    scop = lower(f"def f({source}", *shapes)
    found = convolution(scop, scop.statements[-1])
    assert isinstance(found, str) and why in found


def test_numpy_computes_calls_on_the_emulator(check_emulated: Callable[..., None]) -> None:
    cases: list[tuple[str, Any]] = [
        (text_of(form, dtype), FORMS[form][1])
        for form in FORMS
        for dtype in ("float", "double", "bfloat16")
    ]
    check_emulated(cases)


def test_a_call_stands_for_the_kernel() -> None:
    form = "padded, stride 2"
    unit = cuda_unit_of(text_of(form), FORMS[form][1])
    (launch,) = unit.source.launches
    assert launch.described()["name"] == "cudnn of S0"
    assert "result of 2 images of 5 x 9 x 8, 6 filters of 5 x 3 x 3" in launch.described()["why"][1]
    plain = cuda_unit_of(text_of(form), FORMS[form][1], options=Options(libraries=False))
    assert all("library" not in one.described() for one in plain.source.launches)
    assert np.prod([launch.workspace_bytes]) > 0
