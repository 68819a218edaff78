"""Kernels for classes of sizes: results at many sizes, and how often anything is compiled."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import library
from tcdsl.codegen.cuda.counts import Count, Room, SharedCount, workspace_at
from tcdsl.codegen.cuda.source import Launch
from tcdsl.emulator import compile_emulated
from tcdsl.executable.emulated import EmulatedExecutable
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.open_sizes import leave_open
from tcdsl.lang.ranges.roles_of_sizes import reduced_sizes, steps_of
from tcdsl.lang.size_class import SizeClass
from tcdsl.opening import Opening
from tcdsl.options import Options
from tcdsl.runtime.cache import Cache
from tcdsl.runtime.size_classes import ENDS, REDUCED_ENDS, class_of, classes_of, leading_sizes

SOFTMAX = """
def f(float(B,N) X) -> (Y) {
    m(i) max=! X(i,j)
    s(i) +=! exp(X(i,j) - m(i))
    Y(i,j) = exp(X(i,j) - m(i)) / s(i)
}"""
PROGRAMS = {
    "pointwise": ("def f(float(B,N) X) -> (Y) { Y(b,n) = exp(X(b,n)) * 2 }", "B", 24),
    "odd rows": ("def f(float(B,N) X) -> (Y) { Y(b,n) = X(b,n) + b }", "B", 7),
    "rows": ("def f(float(B,N) X) -> (Y) { Y(b) +=! X(b,n) * X(b,n) }", "B", 100),
    "softmax": (SOFTMAX, "B", 100),
    "columns": ("def f(float(B,N) X) -> (Y) { Y(n) +=! X(b,n) }", "B", 40),
    "mean of columns": ("def f(float(B,N) X) -> (Y) { Y(n) +=! X(b,n) / B }", "B", 40),
    "all": ("def f(float(B,N) X) -> (y) { y +=! X(b,n) }", "B", 64),
    "inner": ("def f(float(N,B) X) -> (Y) { Y(n,b) = X(n,b) + X(0,b) }", "B", 6),
    "length of rows": ("def f(float(N,B) X) -> (Y) { Y(n) max=! X(n,b) }", "B", 6),
    "windows": ("def f(float(B,N) X) -> (Y) { Y(b) = X(b,0) + X(b+1,0) where b in 0:B-1 }", "B", 8),
    "edges": ("def f(float(B,N) X) -> (Y) { Y(b,n) = b + 1 < B ? X(b+1,n) : X(b,n) }", "B", 8),
    "reversed": ("def f(float(B,N) X) -> (Y) { Y(b,n) = X(B-1-b,n) where b in 0:B }", "B", 8),
    "counts": ("def f(float(B,N) X) -> (y) { y +=! X(0,0) * (b + 1) where b in 0:B }", "B", 8),
}
SIZES = (17, 256, 18, 31, 32, 100, 129, 255)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is found in the disk cache, so that compilations can be counted."""
    cache = Cache(tmp_path)
    monkeypatch.setattr("tcdsl.executable.emulated.default_cache", lambda: cache)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that were compiled for the emulator."""
    texts: list[str] = []

    def counted(source: Any) -> bytes:
        texts.append(source.text)
        return compile_emulated(source)

    monkeypatch.setattr("tcdsl.executable.emulated.compile_emulated", counted)
    yield texts


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def shape_of(name: str, size: int) -> tuple[int, int]:
    """Return the shape of the program's array where its open size is *size*."""
    source, _, other = PROGRAMS[name]
    return (other, size) if "(N,B)" in source else (size, other)


@pytest.mark.slow_but("pointwise", "columns")
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_is_right_at_all_sizes_of_its_class(name: str, compilations: list[str]) -> None:
    source, opened, _ = PROGRAMS[name]
    f = tcdsl.define(source).f
    options = Options(dynamic_sizes=(opened,))
    for size in SIZES:
        x = drawn(*shape_of(name, size))
        poisoned = np.full(f.output_shapes(x)[f.comprehension.outputs[0]], np.nan, np.float32)
        found = f(x, target="emulate", options=options, out=poisoned)
        np.testing.assert_allclose(found, f.reference(x), rtol=2e-4, atol=2e-4)
    reduced = reduced_sizes(f.comprehension)
    sizes = dict(zip(f.comprehension.inputs, [x.shape], strict=True))
    bound = bind_sizes(f.comprehension, sizes)
    steps = steps_of(f.comprehension, bound, [opened])
    classes = [classes_of({opened: size}, [opened], reduced, steps) for size in SIZES]
    assert len(compilations) == len({str(each) for each in classes})


@pytest.mark.slow
def test_two_hundred_sizes_compile_four_kernels_at_most(compilations: list[str]) -> None:
    f = tcdsl.define(SOFTMAX).f
    order = np.random.default_rng(0).permutation(np.arange(1, 201))
    for size in map(int, order):
        x = drawn(size, 12)
        terms = np.exp(x - x.max(1, keepdims=True))
        wanted = terms / terms.sum(1, keepdims=True)
        np.testing.assert_allclose(f(x, target="emulate"), wanted, rtol=1e-5, atol=1e-7)
    assert len(compilations) <= 4
    # Of each kernel with an open size the text has one more parameter.
    assert sum("int64_t B" in text for text in compilations) == 3


@pytest.mark.slow
def test_two_hundred_lengths_of_a_sum_compile_four_kernels_at_most(compilations: list[str]) -> None:
    f = tcdsl.define("def f(float(B,N) X) -> (Y) { Y(n) +=! X(b,n) }").f
    for size in map(int, np.random.default_rng(1).permutation(np.arange(1, 201))):
        x = drawn(size, 12)
        np.testing.assert_allclose(f(x, target="emulate"), x.sum(0), rtol=1e-4, atol=1e-4)
    assert len(compilations) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("rows", [262145, 276709, 1048576], ids=["least", "between", "greatest"])
def test_moments_of_whole_numbers_are_exact_in_a_class_of_many_rows(rows: int) -> None:
    """Sums of -1, 0 and 2 whose mean is 0 lose nothing in any order: no row is missed, none twice.

    (Of drawn numbers the third moment cancels.  At 276709 rows of 96 kernels that add in other
    orders differ by 1.2e-6 in a skewness of 7e-3, each by 1e-6 from float64; the derived bound,
    which is of any order, is 0.13 there, and would not notice a lost row.)
    """
    case = library.case("batch_metrics")
    f = tcdsl.define(library.source_for(case, "float32"))[case.def_name]
    thirds = rows // 3
    column = np.repeat(np.array([-1, 2, 0], np.float32), [2 * thirds, thirds, rows - 3 * thirds])
    x = np.stack([np.random.default_rng(n).permutation(column) for n in range(8)], axis=1)
    exe = f.compile(x, target="emulate", options=Options(dynamic_sizes=("M",)))
    assert exe.opened == ("M",)
    mean, var, skew, low, high, best, bins = exe(x)
    second = np.float32(6 * thirds) / np.float32(rows)  # of the third powers, too
    assert (mean == 0).all() and (var == second).all()
    np.testing.assert_allclose(skew, second / (second * np.sqrt(second) + 1e-6), rtol=3e-7)
    assert (low == -1).all() and (high == 2).all() and (best == x.argmax(0)).all()
    counts = {24: 2 * thirds, 48: thirds, 32: rows - 3 * thirds}
    assert all((bins[:, at] == count).all() for at, count in counts.items())
    assert (bins.sum(1) == rows).all()


class Planned:
    """What stands for a kernel: a class of sizes, which code with open sizes exists for."""

    def at(self, sized: Any, specs: Any) -> "Planned":
        return self


def kernels(case: library.Case, name: str, values: Iterable[int]) -> int:
    """Return how many kernels are compiled where the size *name* takes *values*, the others fixed.

    Nothing is compiled: whether a class has code is whether its ranges can be left open.
    """
    f = tcdsl.define(library.source_for(case, case.dtypes[0]))[case.def_name]
    built: list[Planned] = []

    def build(sized: Any, specs: Any, target: str, options: Any, opened: Any = None) -> Planned:
        if opened:
            c = sized.comprehension
            leave_open(c, sized.sizes, opened, {n: n for n in c.sizes}, opened)
        built.append(Planned())
        return built[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tcdsl.opening.build", build)
        opening, tensors = Opening(f._definition), f.comprehension.tensors
        for value in values:
            shapes = case.input_shapes({**case.small_sizes[-1], name: value})
            inputs = [tcdsl.spec(shapes[n], tensors[n].dtype.name) for n in shapes]
            specs = f.specs(inputs)
            bound = bind_sizes(f.comprehension, {n: s.shape for n, s in specs.items()})
            opening.executable(f._definition.at(bound), specs, "emulate", Options())
    return len(built)


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in library.cases()])
def test_two_hundred_values_of_a_leading_size_are_four_kernels_at_most(case: library.Case) -> None:
    """One for the first value alone, and one for each of three classes."""
    program = tcdsl.define(library.source_for(case, case.dtypes[0]))
    for name in leading_sizes(program[case.def_name].comprehension):
        least = max(1, min(sizes[name] for sizes in case.small_sizes))  # a window needs some rows
        values = np.random.default_rng(2).permutation(np.arange(least, least + 200))
        assert kernels(case, name, map(int, values)) <= 4, name


def test_a_size_is_left_open_at_its_second_value(compilations: list[str]) -> None:
    f = tcdsl.define(SOFTMAX).f
    for size, count in ((20, 1), (21, 2), (20, 2), (22, 2), (64, 2), (20, 2), (250, 3), (7, 4)):
        f(drawn(size, 8), target="emulate")
        assert len(compilations) == count, size


def test_one_is_a_class_of_its_own_where_the_size_is_asked_for(compilations: list[str]) -> None:
    f = tcdsl.define(SOFTMAX).f
    options = Options(dynamic_sizes=("B",))
    for size, count in ((1, 1), (2, 2), (16, 2), (1, 2)):
        x = drawn(size, 8)
        exe = f.compile(x, target="emulate", options=options)
        np.testing.assert_allclose(exe(x), f.reference(x), rtol=1e-5)
        assert len(compilations) == count, size
    assert ["int64_t B" in text for text in compilations] == [False, True]
    assert "B = 1: a class of its own" in exe.explain()
    np.testing.assert_allclose(exe(x := drawn(9, 8)), f.reference(x), rtol=1e-5)
    assert len(compilations) == 2


def test_the_length_of_rows_is_not_left_open_by_itself(compilations: list[str]) -> None:
    f = tcdsl.define(SOFTMAX).f
    for length in (20, 21, 22, 23):
        f(drawn(5, length), target="emulate")
    assert len(compilations) == 4
    assert not any("int64_t" in text for text in compilations)


def test_open_contractions(compilations: list[str]) -> None:
    f = tcdsl.define("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").f
    b = drawn(64, 48)
    for m in (70, 256, 65, 129):
        a = drawn(m, 64)
        found = f(a, b, target="emulate", options=Options(dynamic_sizes=("M",)))
        np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)
    assert len(compilations) == 1


def test_open_scatters(compilations: list[str]) -> None:
    """What is added comes after zeros; the guard of its place reads data: it has no wait inside."""
    source = "def f(float(E) x, int32(E) k, float(M) t) -> (float(M) y) { y(k(e)) +=! x(e) }"
    f, rng = tcdsl.define(source).f, np.random.default_rng(5)
    for edges, elements in ((301, 97), (1, 1), (0, 7)):
        x, k = drawn(edges), rng.integers(0, elements, edges).astype(np.int32)
        wanted = np.zeros(elements, np.float32)
        np.add.at(wanted, k, x)
        given = x, k, np.zeros(elements, np.float32)
        found = f(*given, target="emulate", options=Options(dynamic_sizes=("E", "M")))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    (text,) = {text for text in compilations if "int64_t E" in text}
    guard = text.index("if ((uint64_t)")
    assert "tc_await_kernels();" in text[:guard] and "tc_await_kernels" not in text[guard:]


@pytest.mark.slow
def test_open_terms(compilations: list[str]) -> None:
    f = tcdsl.define("def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }").f
    for k in (1000, 513, 1024, 777):
        a, b = drawn(k, 64), drawn(k, 128)
        exe = f.compile(a, b, target="emulate", options=Options(dynamic_sizes=("K",)))
        assert "blocks over chunks of" in exe.explain()
        np.testing.assert_allclose(exe(a, b), a.T @ b, rtol=1e-4, atol=1e-4)
    assert len(compilations) == 1


def test_two_open_sizes(compilations: list[str]) -> None:
    source = "def f(float(A,B,N) X) -> (Y) { Y(a,b) +=! X(a,b,n) }"
    f = tcdsl.define(source).f
    for a, b, count in ((17, 3, 1), (20, 15, 1), (18, 4, 2), (19, 16, 2), (18, 2, 2)):
        x = drawn(a, b, 32)
        found = f(x, target="emulate", options=Options(dynamic_sizes=("A", "B")))
        np.testing.assert_allclose(found, x.sum(2), rtol=1e-4, atol=1e-4)
        assert len(compilations) == count, (a, b)


def test_views_have_open_strides(compilations: list[str]) -> None:
    f = tcdsl.define("def f(float(B,N) X) -> (Y) { Y(b,n) = X(b,n) * 2 }").f
    for size, gap in ((20, 16), (17, 24), (30, 9)):
        x = drawn(size, gap)[:, :8]
        found = f(x, target="emulate", options=Options(dynamic_sizes=("B",)))
        np.testing.assert_array_equal(found, 2 * x)
    assert len(compilations) == 1


def test_the_grid_is_from_the_call() -> None:
    f = tcdsl.define("def f(float(B,N) X) -> (Y) { Y(b) +=! X(b,n) * X(b,n) }").f
    exe = f.compile(tcdsl.spec((20, 100), "float32"), target="emulate",
                    options=Options(dynamic_sizes=("B",)))  # fmt: skip
    at_20, at_200 = (exe.at([drawn(size, 100)]).kernels[0]["grid"] for size in (20, 200))
    assert at_20 == (20, 1, 1)
    assert at_200 == (200, 1, 1)


def test_what_is_open_is_said() -> None:
    f = tcdsl.define(SOFTMAX).f
    options = Options(dynamic_sizes=("B",))
    exe = f.compile(tcdsl.spec((20, 8), "float32"), target="emulate", options=options)
    assert exe.opened == ("B",)
    assert "open sizes: B from 17 to 64, planned for 64" in exe.explain()
    again = f.compile(tcdsl.spec((30, 8), "float32"), target="emulate",
                      options=Options(dynamic_sizes=("B",)), choices=exe.choices)  # fmt: skip
    assert again.source == exe.source


def test_what_cannot_be_open_says_why_and_is_compiled(compilations: list[str]) -> None:
    source = "def f(float(N) A, float(S) B) -> (O) { O(i) = A(i * S) + B(0) where i in 0:2 }"
    f = tcdsl.define(source).f
    exe = f.compile(drawn(10), drawn(3), target="emulate", options=Options(dynamic_sizes=("S",)))
    assert exe.opened == ()
    assert "S: cannot be left open" in exe.explain() and "product" in exe.explain()
    for size in (3, 4):
        a, b = drawn(10), drawn(size)
        np.testing.assert_array_equal(exe(a, b), a[[0, size]] + b[0])
    assert len(compilations) == 2


def test_no_elements_are_a_size_of_their_own() -> None:
    f = tcdsl.define(SOFTMAX).f
    options = Options(dynamic_sizes=("B",))
    for size in (0, 3, 0, 4):
        x = drawn(size, 8)
        found = f(x, target="emulate", options=options)
        np.testing.assert_allclose(found, f.reference(x), rtol=1e-5)


def test_classes() -> None:
    assert class_of(0) is None and class_of(2**31) is None
    assert class_of(1) == class_of(16) == SizeClass(1, 16) and class_of(17) == SizeClass(17, 64)
    assert classes_of({"A": 0, "B": 3}, ["A", "B"]) is None
    assert classes_of({"A": 0, "B": 3}, ["B"]) == {"B": SizeClass(1, 16)}
    found = classes_of({"A": 65, "B": 65}, ["A", "B"], ["A"])
    assert found == {"A": SizeClass(65, 128), "B": SizeClass(65, 256)}
    assert classes_of({"A": 1}, ["A"], ["A"]) == {"A": SizeClass(1, 64)}
    assert class_of(2**31 - 1) == SizeClass(2**28 + 1, 2**31 - 1)
    found = classes_of({"A": 2**31 - 1}, ["A"], ["A"])
    assert found == {"A": SizeClass(2**29 + 1, 2**31 - 1)}


@pytest.mark.parametrize("step", [2, 4, 8, 16])
@pytest.mark.parametrize("ends", [ENDS, REDUCED_ENDS])
def test_classes_of_rows_lengths(step: int, ends: tuple[int, ...]) -> None:
    found = {size: class_of(size, ends, step) for size in (*range(1, 600), 1009, 4096)}
    for own in {*found.values()}:
        assert own is not None
        holds = eval(f"lambda n: {own.condition('n')}")
        assert all(holds(size) == (found[size] == own) for size in found)
        low, high = own.units
        assert own.step * low + own.rest == own.least
        assert own.step * high + own.rest == own.greatest
    assert len({found[size] for size in range(2, 201)}) == 3  # and one alone
    assert found[step] == SizeClass(step, 256, step)
    most = 1024 if ends is ENDS else 512
    assert found[257] == SizeClass(257, most - step + 1, step)
    assert found[256 + step] == SizeClass(256 + step, most, step)
    assert found[255] == found[65] == SizeClass(65, 256, other=step)


@pytest.mark.parametrize(
    ("source", "opened", "steps"),
    [
        ("def f(float(B,N) X) -> (y) { y(b,n) = X(b,n) }", "BN", {"N": 4}),
        ("def f(bfloat16(B,N) X) -> (float(B,N) y) { y(b,n) = X(b,n) }", "N", {"N": 8}),
        ("def f(half(B,N,4) X) -> (half(B) y) { y(b) max=! X(b,n,i) }", "N", {"N": 2}),
        ("def f(float(B,N,56) X) -> (y) { y(b,n,i) = X(b,n,i) }", "BN", {}),
        ("def f(float(B,N,M) X) -> (y) { y(b,n,m) = X(b,n,m) }", "NM", {"M": 4}),
        ("def f(float(B,N,M) X) -> (y) { y(b,n,m) = X(b,n,m) }", "N", {"N": 4}),
        ("def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }", "MNK",
         {"N": 4, "K": 4}),
    ],
)  # fmt: skip
def test_of_what_rows_lengths_had_better_be_multiples(
    source: str, opened: str, steps: dict[str, int]
) -> None:
    c = tcdsl.define(source).f.comprehension
    assert steps_of(c, dict.fromkeys(c.sizes, 7), tuple(opened)) == steps


def test_leading_sizes() -> None:
    def of(declared: str) -> set[str]:
        return set(leading_sizes(tcdsl.define(f"def f({declared}) -> (y) {{ y = 1 }}").f._head))

    assert of("float(B,N) X, float(N) g") == {"B"}
    assert of("float(B,N) X, float(B) g") == {"B"}
    assert of("float(B,B) X") == set()
    assert of("float(B,S,N) X") == {"B"}
    assert of("float(2*B,S) X, float(B,N) Z") == {"B"}


def test_counts_of_blocks_survive_the_cache() -> None:
    # (B - 1) / 4 + 1
    count = Count(1, 1, ((1, Count(4, -1, ((1, 0),))),))
    assert [count.at([n]) for n in (1, 4, 5, 256)] == [1, 1, 2, 64]
    shared = SharedCount(32, 64, (count,))
    launch = Launch("k", (64, 2, 1), (32, 1, 1), 3000, (), counts=((count,), (), ()),
                    shared_counts=(shared,))  # fmt: skip
    again = Launch.from_json(launch.to_json())
    assert again == launch
    assert launch.at([9]).grid == (3, 2, 1) and launch.at([9]).shared_bytes == 3000 - 61 * 32
    assert launch.at([9]).at([9]).shared_bytes == 3000 - 61 * 32
    assert launch.at([1000]).grid == (64, 2, 1)  # the widths of loops are those of the class


def test_the_workspace_is_from_the_call(compilations: list[str]) -> None:
    source = """
    def f(float(B,N) X) -> (Y, Z) {
        T(n) +=! X(b,n)
        U(b,n) = X(b,n) - T(n)
        V(b) max=! U(b,n) * U(0,n)
        W(n) max=! V(b) * U(b,n)
        Y(b,n) = U(b,n) * W(n)
        Z(n) +=! U(b,n) * Y(b,n)
    }"""
    f = tcdsl.define(source).f
    options = Options(dynamic_sizes=("B",), fuse="none")
    taken = {}
    for size in (200, 129, 256):
        x = drawn(size, 64)
        exe = f.compile(x, target="emulate", options=options).at([x])
        assert isinstance(exe, EmulatedExecutable)
        taken[size] = exe.program.source.at(exe._integers()).workspace_bytes
        for found, wanted in zip(exe(x), f.reference(x), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-2)
    assert len(compilations) == 1
    assert taken[129] < taken[200] < taken[256] == exe.program.source.workspace_bytes


def test_what_is_apart_in_the_workspace_stays_apart() -> None:
    size = Count(1, 0, ((1, 0),))
    rooms = [Room(256 * n, 256 * k, 4, ((size,), (Count(1, k, ()),)))
             for n, k in ((0, 3), (3, 2), (5, 1), (0, 1), (1, 4))]  # fmt: skip
    for integers in ([64], [40], [1], [0]):
        moved, total = workspace_at(rooms, 0, integers)
        for one in rooms:
            assert moved[one.offset] + one.taken(integers) <= total
            for other in rooms:
                if one.offset + one.size_bytes <= other.offset:
                    assert moved[one.offset] + one.taken(integers) <= moved[other.offset]
    assert workspace_at(rooms, 0, [64]) == ({256 * n: 256 * n for n in (0, 1, 3, 5)}, 6 * 256)


def test_rows_of_a_product_are_left_open_by_themselves(compilations: list[str]) -> None:
    f = tcdsl.define("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").f
    b = drawn(16, 24)
    for m in (17, 18, 19, 20, 64, 1):
        a = drawn(m, 16)
        np.testing.assert_allclose(f(a, b, target="emulate"), a @ b, rtol=1e-4, atol=1e-5)
    assert [text.count("int64_t M") for text in compilations] == [0, 1, 1]


@pytest.mark.parametrize(
    ("source", "reduced"),
    [
        ("def f(float(B,M,K) A, float(B,K,N) X) -> (y) { y(b,m,n) +=! A(b,m,k) * X(b,k,n) }", "K"),
        (SOFTMAX, "N"),
        ("def f(float(B,N) X) -> (y) { y(n) +=! X(b,n) }", "B"),
        ("def f(float(B,N) X) -> (y) { y(b,n) = X(b,n) }", ""),
    ],
)
def test_sizes_that_are_reduced(source: str, reduced: str) -> None:
    assert reduced_sizes(tcdsl.define(source).f.comprehension) == set(reduced)


def test_sizes_that_are_not_open_have_code_of_their_own(compilations: list[str]) -> None:
    f = tcdsl.define("def f(float(B,N) X) -> (Y) { Y(b,n) = 2 * X(b,n) }").f
    for shape in ((17, 3), (20, 5), (21, 3), (22, 5)):
        x = drawn(*shape)
        found = f(x, target="emulate", options=Options(dynamic_sizes=("B",)))
        np.testing.assert_array_equal(found, 2 * x)
    assert len(compilations) == 2


@pytest.mark.parametrize(("inner", "width"), [(1024, 4), (1022, 2), (1021, 0)])
def test_vectors_of_rows_whose_number_is_open(inner: int, width: int) -> None:
    """The stride of what is around the open index is a multiple of a row's length."""
    f = tcdsl.define("def f(float(A,N,B) x, float(B) w) -> (y) { y(a,n,b) = x(a,n,b) + w(b) }").f
    options = Options(dynamic_sizes=("N",))
    for size in (7, 2, 16):
        x, w = drawn(3, size, inner), drawn(inner)
        exe = f.compile(x, w, target="emulate", options=options)
        assert exe.opened == ("N",)
        assert ("tc_vstore(&y" in exe.source) == (width > 0)
        assert not width or f"tc_vload<{width}>(&x" in exe.source
        np.testing.assert_array_equal(exe(x, w), x + w)
