"""Benchmarks of one call: which peers it finds, what it counts, what it shows."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.frontends import benchmark as module
from tcdsl.frontends.benchmark import benchmark, case_of
from tcdsl.frontends.ceilings import Ceilings, chains_text
from tcdsl.frontends.einsum_peers import einsum_text
from tcdsl.frontends.measurements import Measurement, Measurements, roofline_svg
from tcdsl.library import cases, source_for
from tcdsl.runtime.timing import Timing

MATMUL = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(20, dtype=np.float32).reshape(4, 5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure little, and no ceilings: they are compiled once a process, and take a second."""
    monkeypatch.setattr(module, "SECONDS", 0.001)
    monkeypatch.setattr(module, "ceilings_for", lambda *about: Ceilings(10.0, 100.0))


def function(text: str) -> tcdsl.Function:
    program = tcdsl.define(text)
    return program[program.names[-1]]


def test_a_product_is_timed_beside_the_same_sum() -> None:
    found = benchmark(function(MATMUL), A, B, target="cpu")
    assert list(found.times_us)[:3] == ["tcdsl", "NumPy reference", "NumPy einsum"]
    assert all(time > 0 for time in found.times_us.values())
    assert found.operations == 2 * 3 * 4 * 5
    assert found.least_bytes == 4 * (12 + 20 + 15)
    assert not found.notes


def test_a_call_of_ones_own_takes_part_and_is_compared() -> None:
    mine = {"mine": lambda: A @ B, "wrong": lambda: A @ B + 1, "other": lambda: "text"}
    found = benchmark(function(MATMUL), A, B, target="cpu", peers=mine)
    assert {"mine", "wrong", "other"} < set(found.times_us)
    assert [note.split(":")[0] for note in found.notes] == [
        "wrong computes something else", "other computes something else",
    ]  # fmt: skip


def test_a_peer_that_fails_is_left_out() -> None:
    def fails() -> None:
        raise MemoryError("too large")

    found = benchmark(function(MATMUL), A, B, target="cpu", peers={"mine": fails})
    assert "mine" not in found.times_us
    assert found.notes == ("mine is left out: MemoryError: too large",)


def test_a_slow_call_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOO_SLOW_S", 0.0)
    found = benchmark(function(MATMUL), A, B, target="cpu")
    assert "NumPy reference is timed once" in found.notes
    assert next(iter(found.times_us)) == "tcdsl"


def test_looking_has_no_floor() -> None:
    found = benchmark(function(MATMUL), A, B, target="emulate")
    assert found.floor_us is None
    assert "for looking, not for speed" in found.notes[-1]
    assert "of the floor" not in repr(found)


def test_outputs_that_must_be_given() -> None:
    add = function("def add(float(N) x) -> (float(N) y) { y(i) += x(i) }")
    found = benchmark(add, A[0], out=np.zeros(4, np.float32), target="cpu")
    assert found.operations == 4


# --- peers -------------------------------------------------------------------------------------


def test_programs_of_the_library_are_known() -> None:
    for case in cases()[::8]:
        assert case_of(tcdsl.define(case.source)[case.def_name]) is not None
    case = next(case for case in cases() if case.def_name == "softmax")
    found = case_of(tcdsl.define(source_for(case, "float64"))["softmax"])
    assert found is not None and found.def_name == "softmax"
    assert case_of(function(MATMUL)) is None


@pytest.mark.parametrize(
    ("text", "shapes", "expected"),
    [
        (MATMUL, [(3, 4), (4, 5)], ("ab,bc->ac", ("A", "B"))),
        ("def t(float(N, N) a) -> (s) { s +=! a(i, i) }", [(3, 3)], ("aa->", ("a",))),
        ("def d(float(N) a) -> (s) { s +=! a(i) * a(i) }", [(3,)], ("a,a->", ("a", "a"))),
        ("def c(float(N) x, float(K) w) -> (y) { y(i) +=! x(i + k) * w(k) }", [(8,), (3,)], None),
        ("def p(float(N) x) -> (s) { s +=! x(i) where i in 1:N }", [(4,)], None),
        ("def m(float(N) x) -> (s) { s max=! x(i) }", [(4,)], None),
        ("def k(float(N) x) -> (float s) { s += x(i) }", [(4,)], None),
        ("def h(float16(N) x) -> (float16 s) { s +=! x(i) }", [(4,)], None),
        ("def e(float(N) x) -> (s) { s +=! exp(x(i)) }", [(4,)], None),
        ("def two(float(N) x) -> (s) { t(i) = x(i)  s +=! t(i) }", [(4,)], None),
    ],
)
def test_einstein_sums_are_recognised(
    text: str, shapes: list[tuple[int, ...]], expected: tuple[str, tuple[str, ...]] | None
) -> None:
    f = function(text)
    dtypes = [f.comprehension.tensors[name].dtype.name for name in f.comprehension.inputs]
    specs = [tcdsl.spec(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    found = einsum_text(f.comprehension, f.specialise(*specs))
    if expected is None:
        assert found is None
        return
    assert found is not None and found[1] == expected[1]
    arrays = {n: np.random.default_rng(0).random(s) for n, s in zip(expected[1], shapes * 2,
                                                                      strict=False)}  # fmt: skip
    assert np.allclose(*(np.einsum(t, *(arrays[n] for n in found[1]))
                         for t in (found[0], expected[0])))  # fmt: skip


def test_torch_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    found = benchmark(function(MATMUL), torch.from_numpy(A), torch.from_numpy(B), target="cpu")
    assert "PyTorch einsum" in found.times_us
    assert not found.notes
    (case,) = (case for case in cases() if case.name == "softmax")
    found = benchmark(tcdsl.define(case.source)["softmax"], A, target="cpu")
    assert {"NumPy", "PyTorch"} < set(found.times_us)
    assert not found.notes


# --- what it shows -----------------------------------------------------------------------------


def measurements(operations: int = 2000, ceilings: Ceilings | None = None) -> Measurements:
    rows = Measurement("tcdsl", Timing(2.0, 0.1, 5, 5)), Measurement("a <b>", Timing(4.0, 0, 1, 1))
    return Measurements("f(<x>)", "cpu", rows, 1000, operations, ceilings, ("a & b",))


def test_the_numbers() -> None:
    found = measurements(ceilings=Ceilings(10.0, 4.0))
    assert found.floor_us == 0.5  # 2000 operations at 4 GFLOP/s, where the bytes take 0.1 us
    assert measurements(4, Ceilings(10.0, 4.0)).floor_us == 0.1
    assert found.rate_gbs("tcdsl") == 0.5
    assert found.rate_gflops("tcdsl") == 1.0
    assert found.intensity == 2.0
    lines = repr(found).splitlines()
    assert lines[1].split() == ["median", "spread", "GB/s", "GFLOP/s", "of", "the", "floor",
                                "time", "/", "tcdsl's"]  # fmt: skip
    assert lines[2].split() == ["tcdsl", "2", "us", "±", "10", "%", "0.5", "1", "0.25", "1.00"]
    assert lines[4].startswith("floor: 500 ns to compute")
    assert lines[5] == "a & b"


def test_the_display(checked: Any) -> None:
    found = measurements(ceilings=Ceilings(10.0, 4.0))
    page = checked(found._repr_mimebundle_()["text/html"])
    assert page.tags.count("svg") == 1
    assert page.tags.count("circle") == 2 * len(found.rows)
    assert "f(<x>)" in page.text and "a <b>" in page.text and "a & b" in page.text
    assert not page.outside


@pytest.mark.parametrize("found", [measurements(), measurements(0, Ceilings(1.0, 1.0))])
def test_without_a_roof_there_is_no_drawing(found: Measurements, checked: Any) -> None:
    assert roofline_svg(found) is None
    assert "svg" not in checked(found._repr_mimebundle_()["text/html"]).tags
    with pytest.raises(tcdsl.OptionError, match="no roof"):
        found.plot()


def test_the_plot() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    found = measurements(ceilings=Ceilings(10.0, 4.0))
    assert found.plot(axes) is axes
    roof, *points = axes.lines
    assert max(roof.get_ydata()) == 4.0
    assert [list(point.get_ydata()) for point in points] == [[1.0], [0.5]]
    assert [text.get_text() for text in axes.get_legend().get_texts()][1:] == ["tcdsl", "a <b>"]
    pyplot.close(figure)


# --- ceilings ----------------------------------------------------------------------------------


def test_ceilings_are_measured() -> None:
    from tcdsl.frontends.ceilings import ceilings_for
    from tcdsl.lang.types.dtypes import FLOAT32

    found = ceilings_for(A, "cpu", 1, 1 << 12, FLOAT32)
    assert found == ceilings_for(B, "cpu", 1, (1 << 12) - 9, FLOAT32)  # kept
    assert 0.01 < found.copy_gbs < 10_000
    assert 0.1 < found.peak_gflops < 10_000


@pytest.mark.parametrize("element", ["float32", "float64"])
def test_the_chains_are_as_many_operations_as_they_say(element: str) -> None:
    from tcdsl.costmodel.lower_bounds import operations
    from tcdsl.frontends.ceilings import operations_each

    f = function(chains_text(element, 7))
    special = f.specialise(tcdsl.spec((7,), element))
    assert operations(f.comprehension, special) == 7 * operations_each()
