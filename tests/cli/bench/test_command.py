import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tcdsl.cli.bench import peers
from tcdsl.errors import TCError
from tcdsl.library import cases

Tcdsl = Callable[..., tuple[int, str, str]]
QUICK = ("--seconds", "0.001", "--peers", "numpy")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time the sizes of tests: what is tested is the command, not the speed."""
    monkeypatch.setattr(peers.Host, "sizes", lambda place, case, dtype: case.small_sizes[-1:])


def test_it_prints_markdown_and_writes_json(tcdsl: Tcdsl, tmp_path: Path) -> None:
    code, printed, errors = tcdsl("bench", "softmax", *QUICK, "--json", tmp_path / "t.json")
    assert (code, errors) == (0, "")
    assert "| softmax" in printed
    (row,) = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert row["case"] == "softmax"
    assert row["problems"] == []
    assert set(row["times_us"]) == {"tcdsl", "numpy"}


def test_bound_calls_can_be_timed(tcdsl: Tcdsl) -> None:
    assert tcdsl("bench", "softmax", *QUICK, "--bound")[0] == 0


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], [case.name for case in cases()]),
        (["--family", "graph"], [case.name for case in cases("graph")]),
        (["softmax", "all_sum"], ["softmax", "all_sum"]),
        (["--only", "g_softmax bfloat16", "--dtype", "all"], ["log_softmax"]),
        (["all_sum", "all_and", "--dtype", "bool"], ["all_and"]),
        (["matmul", "softmax", "--table", "memory-bound"], ["softmax"]),
        (["matmul", "--table", "memory-bound"], []),
    ],
)
def test_list_prints_the_names_of_what_is_chosen(
    words: list[str], names: list[str], tcdsl: Tcdsl
) -> None:
    code, printed, _ = tcdsl("bench", "--list", *words)
    assert code == 0
    assert [line.split()[1] for line in printed.splitlines()] == names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such_case"], "the library has no 'no_such_case'"),
        (["--list", "softmaxx"], "did you mean 'softmax'?"),
        (["--list", "--only", "softmaxx"], "no case is called so"),
        (["--peers", "fortran"], "there is no 'fortran'"),
        (["--copy-rate"], "--copy-rate: it is not for 'cpu'"),
    ],
)
def test_wrong_arguments_exit_with_2(words: list[str], message: str, tcdsl: Tcdsl) -> None:
    code, _, errors = tcdsl("bench", *words)
    assert code == 2
    assert message in errors


def test_a_wrong_result_is_a_problem_and_exits_with_1(
    tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "peer_call", lambda *_: lambda: np.float32(1e9))
    code, printed, _ = tcdsl("bench", "all_sum", *QUICK)
    assert code == 1
    assert "disagree" in printed


def test_a_failure_is_a_row_with_a_problem(tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TCError("it cannot be compiled", code="TC071")

    monkeypatch.setattr(peers, "tcdsl_call", fail)
    code, printed, _ = tcdsl("bench", "softmax", *QUICK)
    assert code == 1
    (problem,) = (line for line in printed.splitlines() if line.startswith("softmax M="))
    assert problem.endswith(": tcdsl: error[TC071]: it cannot be compiled")


def test_a_peer_that_is_missing_is_left_out(tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda _: None)
    code, printed, _ = tcdsl("bench", "softmax", "--seconds", "0.001", "--peers", "numpy,torch")
    assert code == 0
    assert "without torch: PyTorch is not installed" in printed


def test_disagreement_is_relative_to_the_largest_element() -> None:
    expected = np.array([1000.0, 0.0, np.nan, np.inf])
    assert peers.disagreement(expected + 0.5, expected, "float32") is None
    assert peers.disagreement(expected * 1.1, expected, "float32") is not None
    assert peers.disagreement(expected[:2], expected, "float32") is not None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pytorch_is_a_peer(dtype: str) -> None:
    pytest.importorskip("torch")
    (case,) = (case for case in cases("graph") if case.name == "softmax")
    inputs = case.make_inputs(case.small_sizes[-1], np.random.default_rng(0), dtype)
    expected = peers.peer_call("numpy", case, inputs)()
    assert peers.disagreement(peers.peer_call("torch", case, inputs)(), expected, dtype) is None
