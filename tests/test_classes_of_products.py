"""Every class of products, in every type, transposition and tail, on each target, twice each.

    pytest tests/test_classes_of_products.py             some, on the emulator
    pytest -m slow tests/test_classes_of_products.py     every class in two or three types
    pytest -m fuzz tests/test_classes_of_products.py     all, on the emulator and the CPU
    pytest -m gpu tests/test_classes_of_products.py      a seventh of larger ones, on a GPU
    pytest -m "gpu and fuzz" -n 16 tests/test_classes_of_products.py     all of these

Results begin as NaN or extreme integers, and are compared within the derived error bounds.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import compile_to_cuda
from tcdsl.lang.request import Request
from tcdsl.options import Options
from tcdsl.strategies import contracted
from tcdsl.strategies.templates import tile_implicit, tile_mma
from tcdsl.testing import check
from tests.programs import arrays_for, comprehension_of, specialisation_of

CheckAll = Callable[..., None]
Sizes = Mapping[str, int]

# A definition without "def f": T is the type; wide(..) converts where a sum would be of float8.
# 1[m|k] are dimensions of the first operand, 2[k|n] of the second: as written, or transposed; #M is
# the number that M is.
CLASSES = {
    # --- sums over indices of each class ------------------------------------------------------
    "plain": "T(1[M|K]) x, T(2[K|N]) w) -> (y) { y(m,n) +=! wide(x(1[m|k])) * w(2[k|n]) }",
    "batch": """T(B,1[M|K]) x, T(B,2[K|N]) w) -> (y) {
        y(b,m,n) +=! wide(x(b,1[m|k])) * w(b,2[k|n]) }""",
    "batch last": """T(1[M|K],B) x, T(2[K|N],B) w) -> (y) {
        y(m,n,b) +=! wide(x(1[m|k],b)) * w(2[k|n],b) }""",
    "several of each": """T(B,A,1[H,P|C,L]) x, T(A,B,2[C,L|F,S]) w) -> (y) {
        y(a,h,s,b,f,p) +=! wide(x(b,a,1[h,p|c,l])) * w(a,b,2[c,l|f,s]) }""",
    "result transposed": """T(1[M|K]) x, T(2[K|N]) w) -> (y) {
        y(n,m) +=! wide(x(1[m|k])) * w(2[k|n]) }""",
    "a vector": "T(1[M|K]) x, T(2[K|B]) w) -> (y) { y(m) +=! wide(x(1[m|k])) * w(2[k|0]) }",
    "an update": """T(1[M|K]) x, T(2[K|N]) w, float(M,N) y) -> (y) {
        y(m,n) += x(1[m|k]) * w(2[k|n]) }""",
    # --- other subscripts -----------------------------------------------------------------------
    "sliced": """T(1[M_3|K]) x, T(2[K_2|N]) w) -> (y) {
        y(m,n) +=! wide(x(1[m+3|k])) * w(2[k+1|n]) where m in 0:#M, k in 0:K }""",
    "strided": """T(1[M2|K2]) x, T(2[K|N]) w) -> (y) {
        y(m,n) +=! wide(x(1[2*m+1|2*k])) * w(2[k|n]) }""",
    "reversed": """T(1[M|K]) x, T(2[K|N]) w) -> (y) {
        y(m,n) +=! wide(x(1[m|K-1-k])) * w(2[k|N-1-n]) }""",
    "gathered rows": """int32(M) M_3_at, T(1[M_3|K]) x, T(2[K|N]) w) -> (y) {
        y(m,n) +=! wide(x(1[M_3_at(m)|k])) * w(2[k|n]) }""",
    "gathered terms": """int64(K) K_2_at, T(1[M|K]) x, T(2[K_2|N]) w) -> (y) {
        y(m,n) +=! wide(x(1[m|k])) * w(2[K_2_at(k)|n]) }""",
    "experts": """int32(M) B_at, T(1[M|K]) x, T(B,2[K|N]) w) -> (y) {
        y(m,n) +=! wide(x(1[m|k])) * w(B_at(m),2[k|n]) }""",
    # --- operands that are computed -------------------------------------------------------------
    "scale of terms": """T(1[M|K]) x, T(2[K|N]) w, T(K) s) -> (y) {
        y(m,n) +=! wide(x(1[m|k])) * s(k) * w(2[k|n]) }""",
    "scale of results": """T(1[M|K]) x, T(2[K|N]) w, T(N) s) -> (y) {
        y(m,n) +=! wide(x(1[m|k])) * (w(2[k|n]) * s(n)) }""",
    "cast": "T(1[M|K]) x, T(2[K|N]) w) -> (y) { y(m,n) +=! CAST(x(1[m|k])) * w(2[k|n]) }",
    "cast to the type": """CAST(1[M|K]) x, T(2[K|N]) w) -> (y) {
        y(m,n) +=! T(x(1[m|k])) * wide(w(2[k|n])) }""",
    "dequantised": """X(1[M|K]) x, Q(2[K|N]) w, float(N) s, Q(N) z) -> (y) {
        y(m,n) +=! x(1[m|k]) * ((float(w(2[k|n])) - float(z(n))) * s(n)) }""",
    "dequantised in groups": """X(1[M|K]) x, Q(2[K|N]) w, float(K,N) s) -> (y) {
        y(m,n) +=! x(1[m|k]) * X(float(w(2[k|n])) * s(k/32,n)) where k in 0:K }""",
    "relu": "T(1[M|K]) x, T(2[K|N]) w) -> (y) { y(m,n) +=! wide(relu(x(1[m|k]))) * w(2[k|n]) }",
    "mask": """T(1[M|K]) x, T(2[K|N]) w) -> (y) {
        y(m,n) +=! wide(k <= m + 9 ? x(1[m|k]) : 0) * w(2[k|n]) }""",
    "triangle": """T(1[M|K]) x, T(2[K|N]) w) -> (y) {
        y(m,n) +=! wide(x(1[m|k])) * w(2[k|n]) where k in m:K }""",
    # --- convolutions -----------------------------------------------------------------------------
    "convolution, 1": """T(I,1[H|C]) x, T(2[R,C|F]) w) -> (y) {
        y(i,h,f) +=! wide(x(i,1[h+r|c])) * w(2[r,c|f]) }""",
    "convolution, 2": """T(I,1[H,W|C]) x, T(2[F|R,R,C]) w) -> (y) {
        y(i,h,v,f) +=! wide(x(i,1[h+r,v+s|c])) * w(2[f|r,s,c]) }""",
    "convolution, 3": """T(I,1[D,H,W|C]) x, T(2[R,R,R,C|F]) w) -> (y) {
        y(i,d,h,v,f) +=! wide(x(i,1[d+q,h+r,v+s|c])) * w(2[q,r,s,c|f]) }""",
    "padded": """T(I,1[H,W|C]) x, T(2[F|R,R,C]) w) -> (y) {
        y(i,h,v,f) +=! wide(h+r >= 1 && h+r-1 < H && v+s >= 1 && v+s-1 < W
            ? x(i,1[h+r-1,v+s-1|c]) : 0) * w(2[f|r,s,c]) where h in 0:H, v in 0:W }""",
    "strided and padded": """T(I,1[H,W|C]) x, T(2[F|R,R,C]) w) -> (y) {
        y(i,h,v,f) +=! wide(2*h+r >= 1 && 2*h+r-1 < H && 2*v+s >= 1 && 2*v+s-1 < W
            ? x(i,1[2*h+r-1,2*v+s-1|c]) : 0) * w(2[f|r,s,c])
            where h in 0:(H+1)/2, v in 0:(W+1)/2 }""",
    "dilated": """T(I,1[H,W|C]) x, T(2[F|R,C]) w) -> (y) {
        y(i,h,v,f) +=! wide(x(i,1[h+2*r,v|c])) * w(2[f|r,c]) }""",
    "groups": """T(I,1[H,W|G,C]) x, T(G,2[F|R,R,C]) w) -> (y) {
        y(i,h,v,g,f) +=! wide(x(i,1[h+r,v+s|g,c])) * w(g,2[f|r,s,c]) }""",
    "depthwise": """T(I,1[H,W|C]) x, T(2[R,R|C]) w) -> (y) {
        y(i,h,v,c) +=! wide(x(i,1[h+r,v+s|c])) * w(2[r,s|c]) }""",
    "transposed convolution": """T(I,1[H,W|C]) x, T(2[R,R,C|F]) w) -> (y) {
        y(i,2*h+r,2*v+s,f) +=! wide(x(i,1[h,v|c])) * w(2[r,s,c|f]) }""",
    "backward data": """T(I,1[H,W|F]) x, T(2[F|R,R,C]) w) -> (y) {
        y(i,h,v,c) +=! wide(h+1 >= r && h+1-r < 2*H && (h+1-r) % 2 == 0 && v+1 >= s
            && v+1-s < W ? x(i,1[(h+1-r)/2,v+1-s|f]) : 0) * w(2[f|r,s,c])
            where h in 0:2*H, v in 0:W }""",
    "backward weights": """T(I,1[H,W|F]) x, T(I,2[H,W|C]) w) -> (y) {
        y(f,r,s,c) +=! wide(x(i,1[h,v|f])) * (h+r >= 1 && h+r-1 < H && v+s >= 1 && v+s-1 < W
            ? w(i,2[h+r-1,v+s-1|c]) : 0) where r in 0:3, s in 0:3 }""",
    "relu before a convolution": """T(I,1[H,W|C]) x, T(2[F|R,R,C]) w) -> (y) {
        y(i,h,v,f) +=! wide(relu(x(i,1[h+r,v+s|c]))) * w(2[f|r,s,c]) }""",
    # --- several products -------------------------------------------------------------------------
    "Kronecker": """T(P,1[A|B]) x, T(A,M) u, T(2[B|N]) w) -> (y) {
        y(p,m,n) +=! wide(x(p,1[a|b])) * u(a,m) * w(2[b|n]) }""",
    "one operand of three": """T(1[M|K]) x, T(2[K|N]) w, T(2[K|N]) v, T(2[K|S]) u) -> (q,k,y) {
        q(m,n) +=! wide(x(1[m|j])) * w(2[j|n])
        k(m,n) +=! wide(x(1[m|j])) * v(2[j|n])
        y(m,s) +=! wide(x(1[m|j])) * u(2[j|s]) }""",
    "SwiGLU": """T(1[M|K]) x, T(2[K|N]) w, T(2[K|N]) v) -> (y) {
        g(m,n) +=! wide(x(1[m|k])) * w(2[k|n])
        u(m,n) +=! wide(x(1[m|k])) * v(2[k|n])
        y(m,n) = g(m,n) * sigmoid(float(g(m,n))) * u(m,n) }""",
    "a sum over two products": """T(1[M|K]) x, T(2[K|N]) w, T(1[M|K]) u, T(2[K|N]) v) -> (y) {
        y(m,n) +=! wide(x(1[m|k])) * w(2[k|n]) + wide(u(1[m|k])) * v(2[k|n]) }""",
    "a chain": """T(1[M|K]) x, T(2[K|N]) w, T(N,S) v) -> (y) {
        t(m,n) +=! wide(x(1[m|k])) * w(2[k|n])
        y(m,s) +=! relu(t(m,n)) * v(n,s) }""",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """A type of operands, how products of it are computed, and types beside it."""

    name: str
    precision: str = ""
    wide: str = ""  # of float8, whose sums would be stored as float8: what one factor is made
    cast: str = "float"  # what a factor is converted from or to
    quantised: str = "int8"  # of weights, beside activations of the type
    activations: str = ""  # of weights of the type; if not of the type itself

    @property
    def options(self) -> Options:
        return Options(precision=self.precision) if self.precision else Options()

    def source(self, name: str) -> str:
        words = {
            "T": self.name, "wide": self.wide, "CAST": self.cast, "Q": self.quantised,
            "X": self.activations or self.name,
        }  # fmt: skip
        return re.sub(r"\b(T|wide|CAST|Q|X)\b", lambda found: words[found[1]], CLASSES[name])


FLOAT8 = "float8_e4m3"
TYPES = {
    "bfloat16": Type("bfloat16"),
    "float16": Type("float16", quantised="uint8"),
    "float32": Type("float32", cast="bfloat16"),
    "tf32": Type("float32", "tf32", cast="float16"),
    "float16x3": Type("float32", "float16x3", cast="double"),
    "float64": Type("float64"),
    "int8": Type("int8", cast="int32", activations="bfloat16"),
    "uint8": Type("uint8", cast="int16", quantised="uint8", activations="float16"),
    "float8_e4m3": Type(FLOAT8, wide="float", quantised=FLOAT8, activations="bfloat16"),
    "float8_e5m2": Type("float8_e5m2", wide="float", quantised="float8_e5m2", activations="half"),
    "float8": Type(FLOAT8, "float8", "float", "half", FLOAT8, "bfloat16"),
}
TRANSPOSED = ("nn", "nt", "tn", "tt")

# Whole tiles and steps; rows of 16 bytes with edges; odd rows; single elements; sums of no terms.
_OTHERS = {"A": 3, "B": 2, "I": 2, "R": 3, "D": 4, "G": 2, "S": 2, "P": 2}
SMALL: Mapping[str, Sizes] = {
    "whole": _OTHERS | {"M": 64, "N": 64, "K": 256, "L": 2, "C": 32, "F": 64, "H": 6, "W": 10},
    "edges": _OTHERS | {"M": 72, "N": 40, "K": 336, "L": 3, "C": 16, "F": 24, "H": 7, "W": 5},
    "odd": _OTHERS | {"M": 37, "N": 53, "K": 71, "L": 5, "C": 5, "F": 19, "H": 8, "W": 6},
    "one": dict.fromkeys("ABIRGSPMNKLCF", 1) | {"D": 3, "H": 3, "W": 3},
    "none": _OTHERS | {"M": 9, "N": 5, "K": 0, "L": 3, "C": 0, "F": 3, "H": 4, "W": 4},
}
LARGE: Mapping[str, Sizes] = {  # several tiles and steps: the reference takes 1 s of 10^7 products
    "whole": SMALL["whole"] | {"M": 256, "N": 128, "K": 320, "C": 64, "F": 64, "H": 18},
    "edges": SMALL["edges"] | {"M": 136, "N": 264, "K": 272, "C": 40, "F": 72, "H": 13, "W": 9},
    "odd": SMALL["odd"] | {"M": 133, "N": 117, "K": 277, "C": 35, "F": 67, "H": 11, "W": 13},
    "one": SMALL["one"],
    "none": SMALL["none"],
}


def program(name: str, kind: Type, turned: str, sizes: Sizes) -> tuple[str, list[Any]]:
    """Return the text of a class and its inputs: shapes, and places in rows that there are."""
    texts = dict(zip("12", turned, strict=True))

    def dims(found: re.Match[str]) -> str:
        own, other = found[2], found[3]
        return f"{own},{other}" if texts[found[1]] == "n" else f"{other},{own}"

    source = re.sub(r"([12])\[([^][|]*)\|([^][|]*)\]", dims, kind.source(name))
    source = re.sub(r"#([A-Z])", lambda size: str(sizes[size[1]]), source)
    extents = {**sizes, "M_3": sizes["M"] + 3, "K_2": sizes["K"] + 2}
    extents |= {"M2": 2 * sizes["M"] + 1, "K2": 2 * sizes["K"]}
    inputs: list[Any] = []
    for dtype, axes, tensor in re.findall(r"(\w+)\(([\w,]+)\) (\w+)", source.partition(" ->")[0]):
        shape = tuple(extents[axis] for axis in axes.split(","))
        if tensor.endswith("_at"):
            rng = np.random.default_rng(0)
            inputs.append(rng.integers(0, extents[tensor[:-3]], shape).astype(dtype))
        else:
            inputs.append(shape)
    return f"def f({source}", inputs


COMBINATIONS = [*product(TRANSPOSED, SMALL)]


def all_of(name: str, kind: str, table: Mapping[str, Sizes]) -> Iterator[tuple[str, list[Any]]]:
    """Return a class in a type, in every transposition and tail."""
    return (program(name, TYPES[kind], turned, table[tail]) for turned, tail in COMBINATIONS)


def one_of(name: str, kind: str) -> tuple[str, list[Any]]:
    """Return one program of a class in a type: others of its kind have other combinations."""
    number = 7 * [*CLASSES].index(name) + [*TYPES].index(kind)
    turned, tail = COMBINATIONS[number % len(COMBINATIONS)]
    return program(name, TYPES[kind], turned, SMALL[tail])


def some_of(kind: str, first: int = 0) -> list[tuple[str, list[Any]]]:
    """Return one program of each fifth class in a type: of any class in each fifth type."""
    start = -(3 * [*TYPES].index(kind) + first) % 5
    return [one_of(name, kind) for name in [*CLASSES][start::5]]


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch, brief_tiles: None) -> None:
    """Small products are worth tiles; blocks have several."""
    monkeypatch.setattr(contracted, "MIN_WORK", 1)
    monkeypatch.setattr(tile_mma, "MIN_WORK", 1)
    monkeypatch.setattr(tile_implicit, "LEAST_EXTENT", 1)
    monkeypatch.setattr(tile_mma, "least_seconds", lambda *_: inf)  # no other template is faster
    monkeypatch.setattr(tile_implicit, "least_seconds", lambda *_: inf)


FEW = replace(load_chip("h200"), multiprocessors=4)
in_types = pytest.mark.parametrize("kind", TYPES)
in_classes = pytest.mark.parametrize("name", CLASSES)
pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


SOME = (("strided and padded", "float16"), ("padded", "int8"))


def test_some_on_the_emulator(check_emulated: CheckAll, small_tiles: None) -> None:
    for name, kind in SOME:
        check_emulated(2 * [one_of(name, kind)], gpu=FEW, options=TYPES[kind].options)


@pytest.mark.slow
@in_types
def test_each_class_on_the_emulator(kind: str, check_emulated: CheckAll, small_tiles: None) -> None:
    check_emulated(2 * some_of(kind), gpu=FEW, options=TYPES[kind].options)


@pytest.mark.slow
@in_types
def test_each_class_on_the_cpu(kind: str, check_all: CheckAll) -> None:
    check_all(2 * some_of(kind, 2), options=TYPES[kind].options)


@pytest.mark.fuzz
@in_types
@in_classes
def test_all_on_the_emulator(
    name: str, kind: str, check_emulated: CheckAll, small_tiles: None
) -> None:
    cases = [*all_of(name, kind, SMALL)]
    check_emulated(2 * cases, gpu=FEW, options=TYPES[kind].options)


@pytest.mark.fuzz
@in_types
@in_classes
def test_all_on_the_cpu(name: str, kind: str, check_all: CheckAll) -> None:
    check_all(2 * [*all_of(name, kind, SMALL)], options=TYPES[kind].options)


def check_on_a_gpu(name: str, kind: str, step: int) -> None:
    """Check one of *step* programs of a class in a type, others of each class and type."""
    first = (7 * [*CLASSES].index(name) + [*TYPES].index(kind)) % step
    failures = []
    for number, (source, given) in enumerate([*all_of(name, kind, LARGE)][first::step]):
        inputs = arrays_for(comprehension_of(source), given, number)
        f, options = tcdsl.define(source)["f"], TYPES[kind].options
        try:
            check(f, *inputs, targets=("cuda", "cuda"), options=options)
        except (AssertionError, tcdsl.TCError, tcdsl.TCWarning) as error:
            failures.append(f"{[array.shape for array in inputs]}: {error}\n{source}")
    assert not failures, "\n".join(failures)


@pytest.mark.gpu
@pytest.mark.timeout(900)
@in_types
@in_classes
def test_some_on_a_gpu(name: str, kind: str, small_tiles: None) -> None:
    check_on_a_gpu(name, kind, 7)


@pytest.mark.gpu
@pytest.mark.fuzz
@pytest.mark.timeout(900)
@in_types
@in_classes
def test_all_on_a_gpu(name: str, kind: str, small_tiles: None) -> None:
    check_on_a_gpu(name, kind, 1)


@pytest.mark.fuzz
@in_types
def test_each_class_has_a_plan(kind: str, small_tiles: None) -> None:
    """Larger ones, as a GPU has them, are planned as a whole: a plan that fails is a warning."""
    gpu, options = load_chip("h200"), TYPES[kind].options
    for number, name in enumerate(CLASSES):
        source, given = [*all_of(name, kind, LARGE)][number % 3 :: 15][0]
        c = comprehension_of(source)
        special = specialisation_of(c, [g if isinstance(g, tuple) else g.shape for g in given])
        assert not compile_to_cuda(Request(c, special, options=options), gpu).is_fallback, source
