"""First calls at new sizes on a CPU: by the code of a known call, or in full; the same results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.api.function import Function
from tcdsl.executable.cpu import CpuExecutable

SOURCE = """
def softmax(float(M, N) x) -> (y) {
    top(m) max=! x(m, n)
    power(m, n) = exp(x(m, n) - top(m))
    total(m) +=! power(m, n)
    y(m, n) = power(m, n) / total(m)
}
def rows(float(V, D) table, int32(N) at) -> (y) { y(n, d) = table(at(n), d) }
def both(float(N) x, float(N) z) -> (y, s) { y(i) = x(i) * z(i)  s +=! x(i) }
def window(float(N) x, float(K) w) -> (y) { y(n) +=! x(n + k) * w(k) }
"""


@pytest.fixture
def in_full(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls that are made in full, as they come."""
    made: list[str] = []
    plain = Function._new_run

    def counted(self: Function, *args: Any) -> Any:
        made.append(self.__name__)
        return plain(self, *args)

    monkeypatch.setenv("TCDSL_TARGET", "cpu")
    monkeypatch.setattr(Function, "_new_run", counted)
    return made


@pytest.fixture
def prog() -> tcdsl.Program:
    return tcdsl.define(SOURCE)


def known(f: tcdsl.Function, arguments: Callable[[int], tuple[Any, ...]]) -> None:
    """Call *f* until one of its sizes is open."""
    for n in (10, 11, 12):
        f(*arguments(n))


def test_new_sizes_need_no_full_call(prog: tcdsl.Program, in_full: list[str]) -> None:
    rng = np.random.default_rng(1)

    def arguments(n: int) -> tuple[Any, ...]:
        return (rng.random((n, 7), np.float32),)

    known(prog.softmax, arguments)
    before = len(in_full)
    for n in (2, 3, 40, 41, 1000):
        (x,) = arguments(n)
        tcdsl.testing.check(prog.softmax, x, targets=("cpu",))
        np.testing.assert_array_equal(prog.softmax(x), prog.softmax(x.copy()))
        into = np.empty_like(x)
        assert prog.softmax(x, out=into) is into
    assert len([name for name in in_full[before:] if name == "softmax"]) <= 10
    # (check compiles for the target that it names, which is another key: at most twice a size.)
    count = len(in_full)
    for n in (50, 51, 52):
        prog.softmax(*arguments(n))
    assert len(in_full) == count


def test_empty_arrays_and_single_rows_are_called_in_full(
    prog: tcdsl.Program, in_full: list[str]
) -> None:
    known(prog.softmax, lambda n: (np.ones((n, 7), np.float32),))
    count = len(in_full)
    for n in (0, 1):
        found = prog.softmax(np.ones((n, 7), np.float32))
        np.testing.assert_allclose(found, np.full((n, 7), 1 / 7, np.float32), rtol=1e-6)
    assert len(in_full) == count + 2


def test_other_extents_than_open_ones_are_looked_at(
    prog: tcdsl.Program, in_full: list[str]
) -> None:
    known(prog.softmax, lambda n: (np.ones((n, 7), np.float32),))
    count = len(in_full)
    wide = np.arange(24, dtype=np.float32).reshape(3, 8)
    found = prog.softmax(wide)
    np.testing.assert_allclose(found, prog.softmax.reference(wide), rtol=1e-6)
    strided = np.arange(60, dtype=np.float32).reshape(6, 10)[:, :7]
    np.testing.assert_allclose(
        prog.softmax(strided), prog.softmax.reference(strided.copy()), rtol=1e-6
    )
    assert in_full[count:].count("softmax") >= 2
    known(prog.both, lambda n: (np.ones(n, np.float32), np.ones(n, np.float32)))
    y, s = prog.both(np.full(20, 2, np.float32), np.full(20, 3, np.float32))
    assert s == 40 and (y == 6).all() and y.shape == (20,)
    with pytest.raises(tcdsl.ShapeError, match=r"size N is 20 .* 21"):
        prog.both(np.ones(20, np.float32), np.ones(21, np.float32))


def test_what_does_not_fit_is_an_error_of_the_full_call(
    prog: tcdsl.Program, in_full: list[str]
) -> None:
    window = prog.window
    known(window, lambda n: (np.ones(n, np.float32), np.ones(5, np.float32)))
    found = window(np.ones(20, np.float32), np.ones(5, np.float32))
    np.testing.assert_array_equal(found, np.full(16, 5, np.float32))
    reference = tcdsl.define(SOURCE).window
    for n in (2, 3):
        args = np.ones(n, np.float32), np.ones(5, np.float32)
        try:
            wanted = reference.reference(*args)
        except tcdsl.TCError as error:
            with pytest.raises(type(error)):
                window(*args)
        else:
            np.testing.assert_array_equal(window(*args), wanted)


def test_code_that_is_compiled_for_a_size_serves_its_calls(
    prog: tcdsl.Program, in_full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known(prog.softmax, lambda n: (np.ones((n, 7), np.float32),))
    x = np.ones((70, 7), np.float32)
    exe = prog.softmax.compile(x)
    launched: list[Any] = []
    plain = CpuExecutable.launch

    def launch(self: CpuExecutable, *args: Any) -> None:
        launched.append(self)
        plain(self, *args)

    monkeypatch.setattr(CpuExecutable, "launch", launch)
    for _ in range(2):
        prog.softmax(x)
    assert not exe.opened and launched == [exe, exe]


def test_faults_name_the_extents_of_the_call(prog: tcdsl.Program, in_full: list[str]) -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    known(prog.rows, lambda n: (table, np.zeros(n, np.int32)))
    count = len(in_full)
    at = np.zeros(30, np.int32)
    at[17] = 9
    with pytest.raises(tcdsl.LaunchError, match=r"index 9 .* extent is 4 .*at\(17\)"):
        prog.rows(table, at)
    assert len(in_full) == count


def test_tensors_have_a_warm_call_at_new_sizes(prog: tcdsl.Program, in_full: list[str]) -> None:
    torch = pytest.importorskip("torch")
    known(prog.softmax, lambda n: (torch.ones(n, 7),))
    count = len(in_full)
    for n in (33, 34):
        x = torch.randn(n, 7)
        torch.testing.assert_close(prog.softmax(x), torch.softmax(x, 1))
        into = torch.empty(n, 7)
        assert prog.softmax(x, out=into) is into
        torch.testing.assert_close(into, torch.softmax(x, 1))
    torch.testing.assert_close(prog.softmax(x.T.contiguous().T), torch.softmax(x, 1))
    assert len(in_full) == count + 1, "for the transposed one"
    wanted = torch.softmax(x, 1)
    assert prog.softmax(x, out=x) is x, "which is an input, too: in full"
    torch.testing.assert_close(x, wanted)
    with pytest.raises(tcdsl.ShapeError):
        prog.softmax(torch.ones(50, 7), out=torch.ones(50, 7, requires_grad=True))
    run = prog.softmax.warm_run(x)
    assert run is not None, "a graph of known sizes asks for one of its own"
    torch.testing.assert_close(run((x,), None, [x.data_ptr()]), torch.softmax(x, 1))


def test_numpy_and_torch_are_told_apart(prog: tcdsl.Program, in_full: list[str]) -> None:
    torch = pytest.importorskip("torch")
    known(prog.softmax, lambda n: (np.ones((n, 7), np.float32),))
    known(prog.softmax, lambda n: (torch.ones(n, 7),))
    assert type(prog.softmax(np.ones((60, 7), np.float32))) is np.ndarray
    assert type(prog.softmax(torch.ones(60, 7))) is torch.Tensor


FURTHER = """
def scaled(float a, float(N, 3) x) -> (y) { y(n, d) = a * x(n, d) }
def raised(float(N) x, float(N) z) -> (x) { x(n) = x(n) + z(n) }
def pairs(float(N) x, float(N, 2, N*2) z) -> (y) { y(n, e) = x(n) * z(n, e % 2, e) }
def numbers(float(N) x) -> (y) { y(n) = x(n) * float(int32(n * 1000000)) }
"""


@pytest.mark.slow_but("scaled")
@pytest.mark.parametrize("name", ["scaled", "raised", "pairs", "numbers"])
def test_whatever_the_arguments_are_nothing_is_kept_of_a_size(
    name: str, in_full: list[str]
) -> None:
    """Numbers, inputs that are updated, extents that are products, conditions on index values."""
    f = tcdsl.define(FURTHER)[name]

    def arguments(n: int) -> tuple[Any, ...]:
        x, wide = np.arange(n, dtype=np.float32), np.arange(n * 3, dtype=np.float32)
        every = {
            "scaled": (2.5, wide.reshape(n, 3)),
            "raised": (x, x + 7),
            "pairs": (x, np.arange(4 * n * n, dtype=np.float32).reshape(n, 2, 2 * n)),
            "numbers": (x,),
        }  # fmt: skip
        return every[name]

    known(f, arguments)
    kept, count = len(f._runs), len(in_full)
    for n in (20, 33, 20):
        args = arguments(n)
        np.testing.assert_array_equal(f(*args), f.reference(*args))
        np.testing.assert_array_equal(args[-1], arguments(n)[-1])
    # (The reference is a target of its own, made in full once a size.)
    assert in_full[count:] == [name] * 2 and len(f._runs) == kept + 2
    if name == "numbers":
        with pytest.raises(tcdsl.ShapeError):
            f(*arguments(4000))


def test_results_are_not_written_over_what_is_read(prog: tcdsl.Program, in_full: list[str]) -> None:
    window = prog.window
    w = np.arange(1, 4, dtype=np.float32)
    known(window, lambda n: (np.ones(n, np.float32), w))
    memory = np.arange(40, dtype=np.float32)
    x, out = memory[:30], memory[5:33]
    wanted = window.reference(x.copy(), w)
    assert window(x, w, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    other = np.zeros(28, np.float32)
    window(wanted[:15].copy(), w, out=other[:13])
    count = len(in_full)
    for n in (22, 23):
        x = np.arange(n, dtype=np.float32)
        assert window(x, w, out=other[: n - 2]).base is other
        np.testing.assert_array_equal(other[: n - 2], window.reference(x, w))
    assert [name for name in in_full[count:] if name == "window"] == ["window"] * 2, "the reference"


def test_compiled_code_makes_no_full_call_at_new_sizes_either(
    prog: tcdsl.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(2).random((300, 7), np.float32)
    exe = prog.softmax.compile(x[:9], target="cpu", options=tcdsl.Options(dynamic_sizes=("M",)))
    exe(x[:9])
    with monkeypatch.context() as forbidden:
        forbidden.setattr(type(exe), "at", None)
        for n in (10, 11, 300):
            np.testing.assert_allclose(exe(x[:n]), prog.softmax.reference(x[:n]), rtol=1e-5)
    np.testing.assert_allclose(exe(x[:20:2]), prog.softmax.reference(x[:20:2]), rtol=1e-5)
    np.testing.assert_allclose(exe(x[:1]), prog.softmax.reference(x[:1]), rtol=1e-5)
    with pytest.raises(tcdsl.ShapeError, match="7 in this code"):
        exe(np.ones((10, 8), np.float32))


@pytest.mark.slow
def test_sizes_that_are_fixed_in_compiled_code_stay_so(prog: tcdsl.Program) -> None:
    """The function's own calls may have opened them in the code that both share."""
    f, options = prog.softmax, tcdsl.Options(dynamic_sizes=("M",))
    for m, n in ((9, 7), (10, 7), (10, 8), (11, 9)):
        f(np.ones((m, n), np.float32), target="cpu", options=options)
    exe = f.compile(np.ones((9, 7), np.float32), target="cpu", options=options)
    for n in (20, 21):
        assert exe(np.ones((n, 7), np.float32)).shape == (n, 7)
        with pytest.raises(tcdsl.ShapeError, match="7 in this code"):
            exe(np.ones((n, 9), np.float32))
