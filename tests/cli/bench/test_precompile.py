"""Compiling a table's programs in processes beside this one."""

import re
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.cli.bench import precompile
from tcdsl.errors import CompileError
from tcdsl.library import case, cases
from tcdsl.runtime.arrays import describe

JOBS = [("all_sum", {"N": n}, "float32") for n in (100, 200, 300, 400)]


@pytest.mark.parametrize("name", ["adam", "lut1", "masked_softmax", "row_sum"])
def test_placeholders_are_described_as_tensors_are(name: str) -> None:
    """Else the code that a child makes would lie in the cache under another key."""
    torch_peers = pytest.importorskip("tcdsl.library.torch_peers")
    chosen = case(name)
    sizes = max(chosen.small_sizes, key=lambda sizes: min(sizes.values()))  # none is empty
    arrays = chosen.make_inputs(sizes, np.random.default_rng(0), "float32")
    tensors = torch_peers.tensors(arrays)
    stand_ins = precompile.placeholders(chosen, sizes, "float32", device="cpu")
    for tensor, stand_in in zip(tensors.values(), stand_ins, strict=True):
        assert replace(describe(tensor), writable=True) == replace(
            describe(stand_in), writable=True
        )


def test_a_child_returns_what_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise CompileError("no", code="TC071")

    assert precompile.compile_one.__module__ == "tcdsl.cli.bench.precompile"
    monkeypatch.setattr("tcdsl.define", fail)
    assert "error[TC071]: no" in precompile.compile_one(JOBS[0])


def test_children_compile_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    class Function:
        def compile(self, *args: Any, target: str) -> None:
            compiled.append((args, target))

    monkeypatch.setattr("tcdsl.define", lambda _: {"row_sum": Function()})
    assert precompile.compile_one(("row_sum", {"M": 3, "N": 4}, "float32")) == ""
    ((args, target),) = compiled
    assert target == "cuda"
    assert [(x.shape, x.device, x.library) for x in args] == [((3, 4), "cuda:0", "torch")]


def test_processes_are_started_and_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(precompile, "n_processes", lambda n: 2)
    assert re.fullmatch(
        r"compiled \d of 4 programs in [\d.]+ s, 2 processes", precompile.precompile(JOBS)
    )


def test_a_child_that_crashes_leaves_the_rest_to_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Pool:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __enter__(self) -> "Pool":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def map(self, *_: object, **__: object) -> Any:
            yield ""
            raise BrokenProcessPool

    monkeypatch.setattr(precompile, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(precompile, "n_processes", lambda n: 2)
    assert precompile.precompile(JOBS).startswith("compiled 1 of 4 programs")


def test_it_is_left_when_it_makes_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "few programs" in str(precompile.why_not_precompile(1))
    monkeypatch.setenv("TCDSL_CACHE", "off")
    assert precompile.precompile(JOBS).startswith("compiled by this process: the disk cache")


def test_every_case_has_placeholders() -> None:
    for chosen in cases():
        found = precompile.placeholders(chosen, chosen.small_sizes[-1], chosen.dtypes[0])
        assert len(found) == len(chosen.params)
