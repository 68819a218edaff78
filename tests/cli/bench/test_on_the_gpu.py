"""``tcdsl bench --target cuda`` on a real GPU, at sizes that take a second."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tcdsl as package
from tcdsl.cli.bench import copy_rate, device_inputs, precompile
from tcdsl.cli.bench.device_peers import Device, copy_rate_gbs
from tcdsl.cli.bench.lines import read_lines
from tcdsl.cli.bench.read_rate import read_rate_gbs
from tcdsl.executable import cuda
from tcdsl.library import case, cub_peers, source_for
from tcdsl.library.case import Case
from tcdsl.library.draws import Sizes
from tcdsl.library.single_reductions import SINGLE_REDUCTIONS
from tcdsl.runtime.timing import compare_cuda

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


def test_all_peers_in_one_process(tcdsl: Tcdsl, tmp_path: Path) -> None:
    """That JAX shares the tensors and the GPU, and that its time is one of the GPU's."""
    pytest.importorskip("jax")
    path = tmp_path / "t.jsonl"
    names = ("softmax", "row_or", "adam", "row_argmax")
    words = ("--peers", "torch,torch-compile,jax", "--lines", path, "--prepare", "2")
    code, printed, errors = tcdsl("bench", *names, *QUICK, *words)
    assert code == 0, printed + errors
    for one in read_lines([path]):
        times = one.row.times_us
        assert set(times) == {"tcdsl", "torch", "torch-compile", "jax", "jax-wall"}
        assert 1 < times["jax"] < times["jax-wall"]
    assert "### Aims" in tcdsl("bench", "--from", path)[1]


def test_cub_and_cudnn_agree_in_every_type_that_they_have(tcdsl: Tcdsl, tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    path = tmp_path / "t.jsonl"
    words = ("--dtype", "all", "--peers", "torch,cub,cudnn", "--lines", path)
    code, printed, errors = tcdsl("bench", *SINGLE_REDUCTIONS, *QUICK, *words)
    assert code == 0, printed + errors
    for one in read_lines([path]):
        has_cudnn = one.row.dtype in ("float32", "float64", "float16")
        expected = {"torch", "cub"} | ({"cudnn"} if has_cudnn else set())
        assert set(one.row.peers_us) - {cub_peers.ROWS} == expected


def test_first_calls_are_of_the_compiler(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    words = ("row_sum", "adam", "--target", "cuda", "--first-call", "--lines", path)
    code, printed, errors = tcdsl("bench", *words)
    assert code == 0, printed + errors
    assert all(one.row.first_s["tcdsl"] > 5e-3 for one in read_lines([path]))


@pytest.mark.alone
def test_copied_bytes_are_read_and_written() -> None:
    copied, read = copy_rate_gbs(1 << 28), read_rate_gbs(1 << 28)
    assert read / 1.5 < copied < 1.5 * read  # bytes counted once or twice would be a factor of two


@pytest.mark.alone
@pytest.mark.parametrize("flush", [True, False])
def test_the_hosts_time_is_not_the_gpus(flush: bool) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(1000, device="cuda")

    def slow() -> None:
        time.sleep(2e-4)
        x.add_(1.0)

    quick_us = compare_cuda({"": lambda: x.add_(1.0)}, flush=flush).timings[""].median_us
    slow_us = compare_cuda({"": slow}, flush=flush).timings[""].median_us
    assert slow_us < quick_us + 20


def test_the_copy_rate(tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_rate, "MEGABYTES", (16,))
    code, printed, errors = tcdsl("bench", "--copy-rate", *QUICK)
    assert code == 0, printed + errors


@pytest.mark.parametrize("name", ["softmax", "adam", "lut1"])
def test_children_compile_what_the_table_then_finds(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TCDSL_CACHE", raising=False)
    chosen: Case = case(name)
    sizes = small_sizes(chosen)
    cuda.forget_programs()
    assert precompile.compile_one((name, sizes, "float32")) == ""
    cuda.forget_programs()

    def fail(*_: object, **__: object) -> Any:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(cuda, "begin_cuda", fail)
    inputs = device_inputs.device_inputs(chosen, sizes, "float32")
    function = package.define(source_for(chosen, "float32"))[chosen.def_name]
    function.compile(*inputs.values(), target="cuda")


def test_a_forced_choice_is_timed_beside_the_default(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    words = ("bench", "softmax", *QUICK, "--force", "threads=32", "--json", path)
    code, printed, errors = tcdsl(*words)
    assert (code, errors) == (0, ""), printed
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert rows and all(set(row["times_us"]) == {"tcdsl", "forced"} for row in rows)
