"""Forced choices: what the words mean, which candidate they give, and the column of the table."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tcdsl as package
from tcdsl.cli.bench import peers
from tcdsl.cli.bench import timing as bench_timing
from tcdsl.cli.bench.forced import FORCED, Force, Forced, force_of, with_forces
from tcdsl.cli.bench.peers import Host
from tcdsl.cli.bench.timing import time_one
from tcdsl.errors import TCError
from tcdsl.library import case

Tcdsl = Callable[..., tuple[int, str, str]]
SIZES = {"M": 64, "N": 96}


def candidate(kernel: str, template: str, time_us: float, **config: Any) -> dict[str, Any]:
    return {"kernel": kernel, "template": template, "config": config, "predicted_us": time_us}


CHOICES = {
    "format": "tcdsl choices", "version": 1, "target": "emulate",
    "kernels": [
        {"kernel": "S0", "template": "row", "threads": 64, "keep": 2},
        {"kernel": "S1", "template": "tile_simt"},
    ],
}  # fmt: skip
CANDIDATES = [
    candidate("S0", "row", 1.0, threads=64, keep=2),
    candidate("S0", "row", 4.0, threads=128, keep=0),
    candidate("S0", "row", 3.0, threads=128, keep=1),
    candidate("S0", "column", 5.0, threads_x=32),
    {"kernel": "S0", "template": "ragged", "why_not": "no range comes from data"},
]


@pytest.mark.parametrize(
    ("text", "force"),
    [
        ("threads=128", Force("", "threads", 128)),
        ("S0+S1:threads=128", Force("S0+S1", "threads", 128)),
        ("template=column", Force("", "template", "column")),
        ("is_tall=true", Force("", "is_tall", True)),
    ],
)
def test_what_the_words_mean(text: str, force: Force) -> None:
    assert force_of(text) == force


@pytest.mark.parametrize(
    ("forces", "first"),
    [
        (["threads=128"], {"template": "row", "threads": 128, "keep": 1}),
        (["threads=128", "keep=0"], {"template": "row", "threads": 128, "keep": 0}),
        (["S0:template=column"], {"template": "column", "threads_x": 32}),
        (["S0:template=column", "S0:threads_x=32"], {"template": "column", "threads_x": 32}),
    ],
)
def test_the_fastest_candidate_that_agrees(forces: list[str], first: dict[str, Any]) -> None:
    found = with_forces(CHOICES, CANDIDATES, list(map(force_of, forces)))
    assert found["kernels"] == [{"kernel": "S0", **first}, CHOICES["kernels"][1]]
    assert found["format"] == "tcdsl choices"


@pytest.mark.parametrize(
    ("force", "words"),
    [
        ("threads=48", ["kernel S0 has no candidate with threads=48", "threads may be 64, 128"]),
        ("S7:threads=64", ["there is no kernel 'S7'", "there are S0, S1"]),
        (
            "thread=64",
            ["no kernel has 'thread' to choose", "there are threads, threads_x, template, keep"],
        ),
        ("kep=64", ["no kernel has 'kep' to choose", "there are keep, "]),
        ("S0:template=ragged", ["no candidate with template=ragged", "--stage candidates"]),
        ("S0:stages=2", ["no candidate with stages=2", "it has threads, keep"]),
    ],
)
def test_what_no_candidate_has(force: str, words: list[str]) -> None:
    with pytest.raises(TCError) as caught:
        with_forces(CHOICES, CANDIDATES, [force_of(force)])
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_code_is_forced_beside_a_configuration() -> None:
    code = {"early": True, "sum_terms": 16}
    (own, other) = CHOICES["kernels"]  # type: ignore[misc]
    choices = {**CHOICES, "kernels": [{**own, "code": code}, other]}  # type: ignore[dict-item]
    alone = with_forces(choices, CANDIDATES, [force_of("code.early=false")])["kernels"]
    assert alone == [{**own, "code": {"early": False, "sum_terms": 16}}, other]  # type: ignore[dict-item]
    both = with_forces(choices, CANDIDATES, [force_of("code.sum_terms=8"), force_of("threads=128")])
    assert both["kernels"][0]["threads"] == 128 and both["kernels"][0]["code"] == {"sum_terms": 8}
    with pytest.raises(TCError, match=r"code\.early, code\.sum_terms"):
        with_forces(choices, CANDIDATES, [force_of("code.erly=false")])


def test_without_times_the_first_candidate_that_agrees() -> None:
    untimed = [{k: v for k, v in c.items() if k != "predicted_us"} for c in CANDIDATES]
    found = with_forces(CHOICES, untimed, [force_of("threads=128")])
    assert found["kernels"][0] == {"kernel": "S0", "template": "row", "threads": 128, "keep": 0}


def test_a_cpus_choice_is_forced() -> None:
    forced = Forced(forces=(force_of("vectors=0"),))
    row = time_one((case("softmax"), SIZES, "float32"), (FORCED,), Host("cpu", True), 0.001, forced)
    assert row.problems == () and set(row.times_us) == {"tcdsl", FORCED}


def test_targets_without_candidates_say_so() -> None:
    with pytest.raises(TCError, match="try the target cuda"):
        with_forces(CHOICES, [], [force_of("threads=64")])


@pytest.mark.parametrize("words", [("--force", "threads"), ("--force", "=3"), ("--force", "a:=3")])
def test_words_without_meaning(words: tuple[str, ...], tcdsl: Tcdsl) -> None:
    code, _, errors = tcdsl("bench", "softmax", "--target", "emulate", *words)
    assert code == 2 and "write --force KEY=VALUE" in errors


def test_a_wrong_key_is_told_with_those_that_there_are() -> None:
    forced = Forced(forces=(force_of("vector=2"),))
    row = time_one((case("softmax"), SIZES, "float32"), (FORCED,), Host("cpu", True), 0.001, forced)
    (problem,) = row.problems
    assert "no kernel has 'vector' to choose (hint: there are vectors, " in problem
    assert "template" in problem and "\n" not in problem


@pytest.mark.slow
def test_a_forced_choice_is_timed_by_turns_with_the_default() -> None:
    seen: list[Any] = []

    class Watching(Host):
        def compare(self, calls: Any, min_time_s: float) -> Any:
            seen.append(tuple(calls))
            return super().compare(calls, min_time_s)

    forced = Forced(forces=(force_of("threads=32"),))
    row = time_one(
        (case("softmax"), SIZES, "float32"), (FORCED,), Watching("emulate", True), 0.001, forced
    )
    assert row.problems == () and set(row.times_us) == {"tcdsl", FORCED}
    assert seen == [("tcdsl", FORCED)]


@pytest.mark.slow
def test_the_forced_call_has_the_forced_kernels() -> None:
    place = Host("emulate", bound=False)
    inputs = place.inputs(case("softmax"), SIZES, "float32")
    options = Forced(forces=(force_of("threads=8"),)).options(
        case("softmax"), inputs, "float32", "emulate"
    )
    assert json.loads(options.choices)["kernels"][0]["threads"] == 8


def test_a_force_that_does_not_fit_is_a_problem_of_the_row() -> None:
    forced = Forced(forces=(force_of("threads=7"),))
    row = time_one(
        (case("softmax"), {"M": 2, "N": 96}, "float32"),
        (FORCED,),
        Host("emulate", True),
        0.001,
        forced,
    )
    (problem,) = row.problems
    assert problem.startswith("forced: ") and "threads=7" in problem
    assert set(row.times_us) == {"tcdsl"}


def test_the_table_has_a_column(tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.Host, "sizes", lambda place, case, dtype: (SIZES,))
    words = ("--seconds", "0.001", "--target", "emulate", "--force", "threads=32")
    code, printed, errors = tcdsl("bench", "softmax", *words)
    assert (code, errors) == (0, "")
    (head,) = [line for line in printed.splitlines() if line.startswith("| case")]
    assert [cell.strip() for cell in head.split("|")[3:5]] == ["tcdsl", "forced"]
    assert bench_timing.FORCED == FORCED


# --- files of choices --------------------------------------------------------------------------


def test_choices_go_through_a_file(tcdsl: Tcdsl, tmp_path: Path) -> None:
    program = tmp_path / "rows.tc"
    program.write_text("def rows(float(M, N) x) -> (y) { y(i) +=! x(i, j) }")
    where = ("--target", "emulate", "--size", "M=20,N=96")
    code, printed, _ = tcdsl("show", program, "--stage", "choices", *where)
    assert code == 0
    choices = json.loads(printed)
    choices["kernels"][0].update(threads=8)
    kept = tmp_path / "choices.json"
    kept.write_text(json.dumps(choices))
    assert tcdsl("run", program, "--choices", kept, "--check", *where)[0] == 0
    (f,) = package.define(program.read_text()).names
    spec = package.spec((20, 96), "float32")
    exe = package.define(program.read_text())[f].compile(
        spec, target="emulate", choices=kept.read_text()
    )
    assert exe.choices["kernels"][0]["threads"] == 8
    choices["kernels"][0].update(threads=7)
    kept.write_text(json.dumps(choices))
    code, _, errors = tcdsl("run", program, "--choices", kept, *where)
    assert code == 2 and "threads=7 is none of" in errors


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, ["--choices: ", "cannot be read"]), ("[]", ["format"])],
)
def test_files_that_have_none(
    text: str | None, words: list[str], tcdsl: Tcdsl, program: Path, tmp_path: Path
) -> None:
    path = tmp_path / "choices.json"
    if text is not None:
        path.write_text(text)
    code, _, errors = tcdsl("run", program, "--choices", path, "--size", "M=3,K=4,N=5")
    assert code == 2 and all(word in errors for word in words)
