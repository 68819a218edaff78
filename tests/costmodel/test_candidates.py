"""benchmarks/candidates.py: what is timed, and the summary of its lines."""

import json
import statistics
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import pytest

from tests.scripts import FOLDER, script

candidates_lines = script("candidates_lines")
candidates_ahead = import_module("candidates_ahead")  # as other processes find it
candidates_again = script("candidates_again")


def line(predicted: tuple[float, ...], measured: tuple[float, ...], default: float) -> object:
    found = [{"template": "row", "config": {"threads": n}, "measured_us": us}
             for n, us in enumerate(measured)]  # fmt: skip
    for candidate, us in zip(found, predicted, strict=False):
        candidate["predicted_us"] = us
    return candidates_lines.Line("p", "float32", {}, "S0", "", default, tuple(found))


def test_the_estimate_is_judged_by_the_time_of_its_choice() -> None:
    found = line((10.0, 11.0, 12.0, 13.0), (22.0, 20.0, 25.0, 30.0), 25.0)
    assert found.of_estimate == pytest.approx(1.1)  # type: ignore[attr-defined]
    assert found.correlation == pytest.approx(0.8)  # type: ignore[attr-defined]
    text = candidates_lines.summary([found])
    assert "| p float32 | S0 | 4 | 0.80 | 1.10 | 1.25 |" in text
    assert "estimate: within 3 % of the fastest in 0 %, within 10 % in 100 %, 1.10 at most" in text


def test_equal_predictions_share_a_rank() -> None:
    assert candidates_lines.rank_correlation((1, 1, 2), (5, 6, 7)) == pytest.approx(0.866, abs=1e-3)
    assert line((1.0, 1.0, 1.0, 1.0), (1.0, 2.0, 3.0, 4.0), 1.0).correlation is None  # type: ignore[attr-defined]


def test_pairs_that_differ_by_noise_have_no_order() -> None:
    found = line((1.0, 2.0, 3.0, 4.0), (10.0, 10.1, 20.0, 15.0), 10.0)
    assert found.order == pytest.approx((4 - 1) / 5)  # type: ignore[attr-defined]
    assert line((1.0, 2.0), (10.0, 10.2), 10.0).order is None  # type: ignore[attr-defined]


def test_of_predictions_that_are_alike_the_first_is_taken() -> None:
    found = [{"template": "row", "config": {"threads": n}, "predicted_us": us}
             for n, us in enumerate((1.5, 1.01, 1.0))]  # fmt: skip
    order = [candidates_again._key(c) for c in found]
    assert candidates_again._taken(found[::-1], order) is found[1]


def test_of_the_likeliest_templates_the_first_is_taken() -> None:
    """As ``catalogue.fastest`` does, whatever is predicted for it and for others."""
    found = [{"template": name, "config": {}, "predicted_us": us, "measured_us": us}
             for name, us in (("tile_mma", 9.0), ("row", 5.0))]  # fmt: skip
    order = [candidates_again._key(one) for one in found]
    assert candidates_again._taken(found, order)["template"] == "tile_mma"
    assert candidates_again._taken(found, order[::-1])["template"] == "row"


def test_what_a_line_did_not_know_yet_has_its_default() -> None:
    """Measured candidates are found again when their template's configurations get a field."""
    config = {"cluster": 4, "per_block": 4, "threads": 288, "repeat": 2, "vector": 4}
    old = {"template": "row_cluster", "config": config}
    new = {"template": "row_cluster", "config": {**config, "outer_threads": 1}}
    other = {"template": "row_cluster", "config": {**config, "outer_threads": 2}}
    assert candidates_again._key(old) == candidates_again._key(new)
    assert candidates_again._key(other) != candidates_again._key(new)


def test_of_a_cpu_nothing_is_predicted() -> None:
    found = line((), (2.0, 1.0), 2.0)
    assert "| 2 |  |  | 2.00 |" in candidates_lines.summary([found])


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    found = line((1.0, 2.0), (3.0, 4.0), 3.0)
    path.write_text(json.dumps(asdict(found)) + "\n")  # type: ignore[call-overload]
    assert candidates_lines.read(path) == [found]
    assert candidates_lines.read(tmp_path / "none") == []


def test_the_best_half_and_a_sample_of_the_others_are_timed() -> None:
    found = [{"predicted_us": float(us)} for us in (9, 1, 8, 2, 7, 3, 6, 4, 5, 10)]
    kept = [c["predicted_us"] for c in candidates_ahead.spread(found, 4)]
    assert kept == [1.0, 2.0, 6.0, 10.0]
    assert len(candidates_ahead.spread(found, 99)) == 10


def test_every_beginning_of_the_jobs_is_a_sample() -> None:
    work = candidates_ahead.jobs("cuda")
    assert len(work) >= 60
    families = {candidates_ahead.library.case(job.case).family for job in work[:20]}
    assert families == {"reduction", "graph", "contraction"}
    assert {job.dtype for job in work[:20]} == {"float32", "bfloat16"}
    assert max(job.input_bytes for job in work) <= candidates_ahead.MOST_BYTES


def test_sizes_that_a_table_has_beside_the_librarys_can_be_asked_for() -> None:
    (job,) = candidates_ahead.jobs("cuda", ["softmax float32 M=700000 *"])
    assert dict(job.sizes) == {"M": 700_000, "N": 96}
    assert job not in candidates_ahead.jobs("cuda")


@pytest.mark.slow
def test_candidates_of_a_program_are_compiled_by_several_processes() -> None:
    job = candidates_ahead.Job("row_sum", "float32", (("M", 64), ("N", 300)), "emulate")
    (found,) = candidates_ahead.ahead([job], 3, 2, 300.0)
    assert found.kernel and found.chip and len(found.candidates) == 3
    assert found.candidates[0]["is_chosen"] and not found.candidates[1]["is_chosen"]
    forced = job.executable(found.options(found.candidates[1])).choices["kernels"]
    assert found.candidates[1]["config"].items() <= forced[0].items()


def test_other_code_of_what_is_chosen_is_timed_where_texts_differ() -> None:
    job = candidates_ahead.Job("row_sum", "float32", (("M", 64), ("N", 300)), "emulate")
    (found,) = candidates_ahead.weighed(job, 20, of_code=True)
    first, *others = found.candidates
    assert first["is_chosen"] and all("code_change" in c for c in others)
    few = replace(found, candidates=(first, *others[:1], *others[-1:]))
    assert candidates_ahead.distinct(few, ["a", "a", "b"]).candidates == (first, others[-1])
    forced = json.loads(found.options(others[0]).choices)["kernels"]
    assert forced[0]["code"] == first["code"] | others[0]["code_change"]
    measured = tuple(
        {**c, "measured_us": us} for c, us in zip(found.candidates, (2.0, 3.0), strict=False)
    )
    timed = candidates_lines.Line(
        "row_sum", "float32", dict(job.sizes), found.kernel, "NVIDIA H200", 2.0, measured
    )
    (again,) = candidates_again.again([timed])
    assert [c.get("code_change") for c in again.candidates] == [None, others[0]["code_change"]]
    ((key, value),) = others[0]["code_change"].items()
    assert f"code {key} {value}: 1.500 of the default's time" in candidates_lines.summary([again])


def test_lines_are_judged_again_by_the_present_estimate() -> None:
    job = candidates_ahead.Job("row_sum", "float32", (("M", 64), ("N", 300)), "emulate")
    (found,) = candidates_ahead.weighed(job, 5)
    measured = [{**c, "measured_us": 1.0, "predicted_us": 99.0} for c in found.candidates]
    old = {"template": "row", "config": {"turns": 3}, "measured_us": 1.0, "predicted_us": 1.0}
    sizes = {"M": 64, "N": 300}
    line = candidates_lines.Line(
        "row_sum", "float32", sizes, found.kernel, "NVIDIA H200", 1.0, (*measured, old)
    )
    (done,) = candidates_again.again([line])
    assert [c["config"] for c in done.candidates] == [c["config"] for c in found.candidates]
    assert all(0 < c["predicted_us"] < 99 for c in done.candidates)


MEASURED = FOLDER / "measured" / "candidates_h200.jsonl"
TILES = FOLDER / "measured" / "candidates_tiles_h200.jsonl"


def _judged(programs: slice, file: Path = MEASURED) -> tuple[float, float]:
    """Return the median correlation, and the share of kernels within 10 % of the fastest."""
    every = candidates_lines.read(file)
    some = {*list(dict.fromkeys(line.program for line in every))[programs]}  # planned once each
    lines = list(candidates_again.again(line for line in every if line.program in some))
    known = [line.correlation for line in lines if line.correlation is not None]
    near = [line.of_estimate <= 1.1 for line in lines]
    return statistics.median(known), sum(near) / len(near)


@pytest.mark.slow
def test_the_estimate_has_the_order_of_measured_candidates() -> None:
    correlation, near = _judged(slice(None, None, 6))
    assert correlation > 0.6 and near > 0.7


@pytest.mark.slow
@pytest.mark.fuzz
def test_the_estimate_has_the_order_of_all_measured_candidates() -> None:
    correlation, near = _judged(slice(None))
    assert correlation > 0.6 and near > 0.78


@pytest.mark.slow
def test_the_estimate_has_the_order_of_measured_tiles() -> None:
    correlation, near = _judged(slice(None), TILES)
    assert correlation > 0.8 and near > 0.75


def test_choices_that_nobody_measured_are_counted_apart() -> None:
    known = line((10.0, 11.0), (20.0, 22.0), 20.0)
    text = candidates_lines.summary(
        [known, replace(known, default_us=40.0, is_default_measured=False)]
    )  # type: ignore[type-var]
    assert (
        "default, of the 1 kernels where it was measured: within 3 % of the fastest in 100 %"
        in text
    )
    assert "default: within 3 % of the fastest in 50 %" in text
