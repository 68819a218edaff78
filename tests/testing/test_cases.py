"""Saved cases hold everything that a case needs, to the last bit, and run by themselves."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import ALL
from tcdsl.testing import array, replay, save_case
from tcdsl.testing.cases import MAX_WRITTEN, array_text
from tcdsl.testing.random_inputs import LAYOUTS, laid_out, values

SOURCE = "def scale(float(M, N) x, float a) -> (y) { y(i, j) = a * x(i, j) }"


def again(value: Array) -> Any:
    return eval(array_text(value), {"array": array, "inf": np.inf, "nan": np.nan})


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (40, 50)])
def test_arrays_are_read_back_bit_by_bit(dtype: Any, shape: tuple[int, ...]) -> None:
    value = values(dtype, shape, "special", 3)
    found = again(value)
    assert found.dtype == value.dtype and found.shape == value.shape
    # A NaN is a NaN: its sign and payload are nobody's.
    is_nan = value != value
    assert ((found != found) == is_nan).all()
    assert np.where(is_nan, 0, found).tobytes() == np.where(is_nan, 0, value).tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [5, MAX_WRITTEN])
def test_arrays_lie_in_memory_as_they_did(layout: str, size: int) -> None:
    value = laid_out(np.arange(3 * size, dtype=np.float32).reshape(3, size), layout)
    found = again(value)
    np.testing.assert_array_equal(found, value)
    assert found.strides == value.strides


def test_a_large_array_is_packed() -> None:
    assert len(array_text(np.zeros(100_000, np.float32))) < 1_000


def test_a_case_is_replayed_with_its_options_and_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    f, x = tcdsl.define(SOURCE).scale, np.arange(6, dtype=np.float32).reshape(2, 3)
    options = tcdsl.Options(fuse="none", tile=(4,))
    path = save_case(
        tmp_path / "new", f, x, np.float32(2), targets=("reference", "cpu"), options=options
    )
    assert path.parent == tmp_path / "new" and path.name.startswith("test_scale_")
    assert path == save_case(
        tmp_path / "new", f, x, np.float32(2), targets=("reference", "cpu"), options=options
    )
    calls: list[tuple[Any, ...]] = []
    original = tcdsl.Function.__call__

    def recorded(self: Any, *args: Any, **named: Any) -> Any:
        calls.append((named["target"], named["options"], args[0].tobytes(), float(args[1])))
        return original(self, *args, **named)

    monkeypatch.setattr(tcdsl.Function, "__call__", recorded)
    replay(path)
    assert calls == [(target, options, x.tobytes(), 2.0) for target in ("reference", "cpu")]


def test_a_case_that_fails_still_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = tcdsl.define(SOURCE).scale, np.ones((2, 3), np.float32)
    path = save_case(tmp_path, f, x, 2.0, targets=("reference",))
    replay(path)
    original = tcdsl.Function.__call__

    def wrong(self: Any, *args: Any, out: Any, **named: Any) -> Any:
        original(self, *args, out=out, **named)
        out[1, 2] += 1

    monkeypatch.setattr(tcdsl.Function, "__call__", wrong)
    with pytest.raises(AssertionError, match=r"the worst at \(1, 2\): got 3.0, expected 2.0"):
        replay(path)


def test_outputs_that_start_from_something_are_kept(tmp_path: Path) -> None:
    f = tcdsl.define("def add(float(N) x) -> (float(N) y) { y(i) += x(i) }").add
    x, y = np.ones(3, np.float32), np.full(3, 5, np.float32)
    path = save_case(tmp_path, f, x, out=y, targets=("reference",))
    assert "'y': array('float32', (3,), [5.0, 5.0, 5.0])" in path.read_text()
    replay(path)


def test_statements_without_a_def_are_saved_as_one(tmp_path: Path) -> None:
    from tcdsl.api import statements

    x = np.ones((2, 3), np.float32)
    tcdsl.compute("y(i) +=! x(i, j) * 2.0", x=x, target="reference")
    f = next(
        f for f in reversed(statements._COMPUTED.values()) if "2.0" in f.comprehension.source.text
    )
    replay(save_case(tmp_path, f, x, targets=("reference",)))


def test_texts_with_quotes_and_backslashes_stay_texts(tmp_path: Path) -> None:
    f = tcdsl.define(SOURCE.replace("{ y", '{ # """ \\ \n y')).scale
    message = 'it said """no\\"""'
    path = save_case(
        tmp_path, f, np.ones((1, 1), np.float32), 1.0, targets="reference", message=message
    )
    replay(path)


def test_a_case_runs_by_itself(tmp_path: Path) -> None:
    f = tcdsl.define(SOURCE).scale
    path = save_case(tmp_path, f, np.ones((1, 2), np.float32), 3.0, targets=("reference",))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert done.stdout == "it passes: the fault is gone\n"


def test_another_script_is_no_case(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text("x = 1\n")
    with pytest.raises(tcdsl.OptionError, match="no saved case"):
        replay(path)
