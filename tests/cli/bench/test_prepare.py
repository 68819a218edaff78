"""Several processes fill torch.compile's caches: what they do, and what becomes of their failures.

A child imports what it runs by name, so functions of Python's own stand for ours.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tcdsl.cli.bench import prepare
from tcdsl.library import case

JOB = ("dot", {"N": 40}, "float32")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prepare, "_folder", tmp_path, raising=False)
    return tmp_path


# --- the pool --------------------------------------------------------------------------------


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "begin", str)


def test_every_job_has_a_result(
    no_torch: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "prepare_one", str)
    jobs: Any = {3: "three", 5: ""}
    assert prepare.in_pool(jobs, 2, tmp_path, None) == {3: "three", 5: ""}


def test_a_crash_loses_only_what_was_not_done(
    no_torch: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "prepare_one", os._exit)
    jobs: Any = {0: 3}
    assert prepare.in_pool(jobs, 2, tmp_path, None) == {}


@pytest.mark.slow
def test_it_ends_in_time(no_torch: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "prepare_one", time.sleep)
    start = time.perf_counter()
    jobs: Any = {0: 60, 1: 60, 2: 60}
    assert prepare.in_pool(jobs, 2, tmp_path, 1.0) == {}
    assert time.perf_counter() - start < 30


def test_it_tells_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[Any] = []

    def in_pool(jobs: dict[int, Any], count: int, folder: Path, limit_s: Any) -> dict[int, str]:
        rounds.append(dict(jobs))
        first, *_ = jobs
        return {first: "" if first else "dot: it failed"}

    monkeypatch.setattr(prepare, "in_pool", in_pool)
    text = prepare.prepare([JOB] * 5, ("torch", "torch-compile"), 4, None)
    assert [len(left) for left in rounds] == [5, 4, 3]  # after three crashes it is left
    assert text.startswith("prepared 2 of 5 programs of torch-compile in 0 s, 4 processes")
    assert text.endswith("not prepared: dot: it failed")
    assert "nothing is prepared" in prepare.prepare([JOB], ("torch", "jax"), 4, None)
    assert len(rounds) == 3


# --- in a child ------------------------------------------------------------------------------


def test_one_has_a_turn_at_a_time(folder: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with (folder / "gpu").open("w") as file:  # as another process would
                prepare.fcntl.flock(file, prepare.fcntl.LOCK_EX)
                inside += 1
                most = max(most, inside)
                time.sleep(1e-4)
                inside -= 1

    other = threading.Thread(target=work)
    other.start()
    for _ in range(20):
        with prepare.turn("gpu"), prepare.turn("gpu"):  # having it, one need not wait for it
            inside += 1
            most = max(most, inside)
            time.sleep(1e-4)
            inside -= 1
    other.join()
    assert most == 1


def test_kernels_are_timed_in_turns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []

    class Benchmarker:
        def benchmark_gpu(self, fn: Any, rep: int = 0) -> tuple[Any, int]:
            turns.append("timed")
            return fn, rep

    @contextmanager
    def turn(name: str) -> Iterator[None]:
        turns.append(name)
        yield

    modules = {
        "torch._inductor.runtime.benchmarking": SimpleNamespace(benchmarker=Benchmarker()),
    }
    monkeypatch.setattr(prepare, "import_module", modules.__getitem__)
    monkeypatch.setattr(prepare, "float32_proper", lambda: None)
    monkeypatch.setattr(prepare, "turn", turn)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "3")
    prepare.begin(folder)
    assert Benchmarker().benchmark_gpu("kernel", rep=4) == ("kernel", 4)
    assert turns == ["gpu", "timed"]
    assert os.environ["TORCHINDUCTOR_COMPILE_THREADS"] == "3"  # the user's word


def test_the_installed_pytorch_has_what_is_wrapped() -> None:
    benchmarking = pytest.importorskip("torch._inductor.runtime.benchmarking")
    assert callable(type(benchmarking.benchmarker).benchmark_gpu)


def test_a_case_is_compiled_as_the_table_will(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("tcdsl.cli.bench.device_inputs._DEVICE", "cpu")
    made: list[Any] = []

    def call_on_tensors(chosen: Any, tensors: Any, **options: Any) -> Any:
        return lambda: made.append((chosen.name, tensors["a"].shape, options))

    monkeypatch.setattr(prepare, "call_on_tensors", call_on_tensors)
    assert prepare.prepare_one(JOB) == ""
    options = {"compiled": True, "mode": "max-autotune-no-cudagraphs"}
    assert made == [("dot", (40,), options)]


def test_a_failure_is_told_and_large_cases_wait(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    waited: list[str] = []

    @contextmanager
    def turn(name: str) -> Iterator[None]:
        waited.append(name)
        yield

    def fail(job: object) -> None:
        raise ValueError("no such kernel\nand advice")

    monkeypatch.setattr(prepare, "turn", turn)
    monkeypatch.setattr(prepare, "compile_and_call", fail)
    assert prepare.prepare_one(JOB) == "dot {'N': 40} float32: ValueError: no such kernel"
    assert waited == []
    large = max(case("dot").sizes, key=lambda sizes: sizes["N"])
    prepare.prepare_one(("dot", large, "float32"))
    assert waited == ["memory"]
