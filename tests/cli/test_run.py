from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Tcdsl = Callable[..., tuple[int, str, str]]
SIZES = ("--size", "M=7", "--size", "K=5", "--size", "N=3")


def test_it_summarises_every_array(tcdsl: Tcdsl, program: Path) -> None:
    code, printed, errors = tcdsl("run", program, *SIZES)
    assert (code, errors) == (0, "")
    assert "(7, 5)" in printed
    assert "(5, 3)" in printed
    assert "(7, 3)" in printed
    (times,) = [line for line in printed.splitlines() if line.startswith("matmul: first call ")]
    assert "compilation included; warm " in times


@pytest.mark.parametrize("words", [
    ("{}:twice",), ("{}", "--def", "twice"), ("{}", "twice"), ("{}:twice", "--def", "twice"),
])  # fmt: skip
def test_a_definition_is_named_in_any_way(
    words: tuple[str, ...], tcdsl: Tcdsl, program: Path
) -> None:
    words = tuple(word.format(program) for word in words)
    code, printed, _ = tcdsl("run", *words, "-s", "N=4", "--target", "reference")
    assert code == 0 and "twice: first call" in printed
    code, printed, _ = tcdsl("show", *words, "--stage", "ast")
    assert code == 0 and "'twice'" in printed and "'matmul'" not in printed


def test_a_colon_may_be_part_of_a_path(tcdsl: Tcdsl, program: Path) -> None:
    path = program.rename(program.with_name("a:matmul"))
    assert tcdsl("run", f"{path}:twice", "-s", "N=4", "--target", "reference")[0] == 0
    assert tcdsl("show", path, "--stage", "program")[0] == 0


def test_several_sizes_in_one_word(tcdsl: Tcdsl, program: Path) -> None:
    code, printed, _ = tcdsl("run", program, "-s", "M=7,K=5", "-s", "N=3", "--target", "reference")
    assert code == 0 and "(7, 5)" in printed and "(5, 3)" in printed


def test_check_compares_with_the_reference(tcdsl: Tcdsl, program: Path) -> None:
    code, printed, _ = tcdsl("run", program, "matmul", *SIZES, "--check")
    assert code == 0
    assert "agrees with the NumPy reference" in printed


def test_check_fails_with_1(tcdsl: Tcdsl, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disagree(*_: object, **__: object) -> None:
        raise AssertionError("C differs at (0, 0)")

    monkeypatch.setattr("tcdsl.testing.check", disagree)
    code, printed, _ = tcdsl("run", program, *SIZES, "--check")
    assert code == 1
    assert "differs from the NumPy reference: C differs at (0, 0)" in printed


def test_arrays_from_files_decide_sizes(tcdsl: Tcdsl, program: Path, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    code, _, _ = tcdsl(
        "run", program, "twice", "--input", f"x={tmp_path / 'x.npy'}", "--save", tmp_path / "out"
    )
    assert code == 0
    assert np.array_equal(np.load(tmp_path / "out" / "y.npy"), 2 * x)


def test_the_seed_decides_what_comes_out(tcdsl: Tcdsl, program: Path, tmp_path: Path) -> None:
    for seed in (1, 1, 2):
        tcdsl("run", program, "twice", "-s", "N=9", "--seed", seed, "--save", tmp_path / str(seed))
    first, other = (np.load(tmp_path / seed / "y.npy") for seed in "12")
    assert not np.array_equal(first, other)


def test_the_reference_is_a_target(tcdsl: Tcdsl, program: Path) -> None:
    assert tcdsl("run", program, *SIZES, "--target", "reference")[0] == 0


def test_an_output_that_is_read_first_starts_from_zeros(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "sum.tc"
    path.write_text("def total(float(N) x) -> (s) { s += x(i) }")
    code, _, errors = tcdsl("run", path, "--size", "N=9")
    assert (code, errors) == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matmul", "--size", "M=7"], "--size: no value for K, N"),
        (["matmul", "--size", "M"], "--size: 'M' has no meaning"),
        (["matmul", "-s", "M=1,"], "--size: '' has no meaning"),
        (["matmul", "-s", "M=1,M=2"], "--size: 'M' is given twice"),
        (["matmul", "--def", "twice"], "two definitions are named: matmul and twice"),
        (["--def", "twise"], "defines no 'twise'"),
        (["matmul", "--size", "M=-1"], "--size: 'M=-1' has no meaning"),
        (["matmul", "--size", "M=many"], "--size: 'M=many' has no meaning"),
        (["matmul", "--size", "X=1"], "matmul has no size symbol 'X'"),
        (["matmul", "--input", "X=no.npy"], "'no.npy' cannot be read"),
        (["nothing"], "defines no 'nothing'"),
    ],
)
def test_wrong_arguments_exit_with_2(
    words: list[str], message: str, tcdsl: Tcdsl, program: Path
) -> None:
    code, printed, errors = tcdsl("run", program, *words)
    assert (code, printed) == (2, "")
    assert message in errors
    assert "error[TC064]" in errors
    assert "hint: " in errors
    assert "Traceback" not in errors


def test_an_unknown_parameter_is_named(tcdsl: Tcdsl, program: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    code, _, errors = tcdsl("run", program, "--input", f"Q={tmp_path / 'x.npy'}")
    assert code == 2
    assert "matmul has no parameter 'Q'" in errors
    assert "it has A, B" in errors


def test_a_wrong_program_is_reported_with_its_file(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "wrong.tc"
    path.write_text("def f(float(N) x) -> (y) {\n    y(i) = x(i\n}\n")
    code, _, errors = tcdsl("run", path)
    assert code == 2
    assert f"{path}:" in errors
    assert "^" in errors


@pytest.mark.parametrize("content", [None, b"\xff\xfe\xff"])
def test_a_file_that_cannot_be_read(content: bytes | None, tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "file.tc"
    if content is not None:
        path.write_bytes(content)
    code, _, errors = tcdsl("run", path)
    assert code == 2
    assert "FILE: " in errors
    assert "cannot be read" in errors
