"""``tcdsl bench --target cuda`` on a real GPU, at sizes that take a second."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tcdsl as package
from tcdsl.cli import copy_rate, device_inputs, precompile
from tcdsl.cli.device_peers import Device
from tcdsl.executable import cuda
from tcdsl.library import case, source_for
from tcdsl.library.case import Case
from tcdsl.library.draws import Sizes

pytestmark = pytest.mark.gpu

Tcdsl = Callable[..., tuple[int, str, str]]
QUICK = ("--target", "cuda", "--seconds", "0.01")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(Device, "sizes", lambda self, one, dtype: (small_sizes(one),))


def small_sizes(chosen: Case) -> Sizes:
    """Return those of the tests in which no array is empty."""
    return max(chosen.small_sizes, key=lambda sizes: min(sizes.values()))


def test_a_table(tcdsl: Tcdsl, tmp_path: Path) -> None:
    names = ("softmax", "adam", "row_prod", "lut1", "mlp1")
    code, printed, errors = tcdsl("bench", *names, *QUICK, "--json", tmp_path / "t.json")
    assert code == 0, printed + errors
    rows = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert [row["case"] for row in rows] and len(rows) == len(names)
    for row in rows:
        assert row["problems"] == []
        assert min(row["times_us"].values()) > 0
        assert row["launches"]["kernels"] >= 1


def test_the_copy_rate(tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_rate, "MEGABYTES", (16,))
    code, printed, errors = tcdsl("bench", "--copy-rate", *QUICK)
    assert code == 0, printed + errors


@pytest.mark.parametrize("name", ["softmax", "adam", "lut1"])
def test_children_compile_what_the_table_then_finds(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    chosen: Case = case(name)
    sizes = small_sizes(chosen)
    assert precompile.compile_one((name, sizes, "float32")) == ""
    cuda._programs.clear()

    def fail(*_: object, **__: object) -> Any:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(cuda, "compile_cuda", fail)
    inputs = device_inputs.device_inputs(chosen, sizes, "float32")
    function = package.define(source_for(chosen, "float32"))[chosen.def_name]
    function.compile(*inputs.values(), target="cuda")
