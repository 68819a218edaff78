"""The page of a table: ratios, floors, aims, and what is slow."""

from dataclasses import replace
from typing import Any

import pytest

from tcdsl.cli.bench.aims import QUACK, Aim, aims, of_quack
from tcdsl.cli.bench.measured import Measured, Run, mean_ratio, of_family
from tcdsl.cli.bench.page import page, quack_table, slower_table, summary_table
from tcdsl.cli.bench.report import Launches, Row

RUN = Run({"gpu": "NVIDIA H200"}, ("torch", "torch-compile", "jax"), True, 4000.0, 5000.0)


def measured(
    case: str = "softmax", dtype: str = "float32", sizes: Any = (8192, 4096),
    family: str = "graph", megabytes: float = 100.0, run: Run = RUN, **times: float,
) -> Measured:  # fmt: skip
    names = {"compiled": "torch-compile", "wall": "jax-wall"}
    times_us = {names.get(name, name): time for name, time in times.items()}
    named = sizes if isinstance(sizes, dict) else dict(zip("MN", sizes, strict=False))
    launches = Launches(int(megabytes * 1e6), 1, (1,), (32,))
    return Measured(run, Row(case, family, dtype, named, times_us, launches=launches))


def cells(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def aim(rows: list[Measured], what: str) -> Aim:
    (found,) = (one for one in aims(rows) if one.what.startswith(what))
    return found


# --- a row -----------------------------------------------------------------------------------


def test_the_wall_time_is_no_peer() -> None:
    one = measured(tcdsl=100.0, torch=300.0, compiled=200.0, jax=150.0, wall=10.0)
    assert one.best_peer == "jax"
    assert one.best_ratio == 1.5
    assert one.peer_ratio("jax-wall") == 0.1


def test_eager_stands_in_for_torch_compile() -> None:
    one = measured(tcdsl=10.0, torch=30.0)
    assert one.compiled_us == 30.0 and one.has_stand_in
    without = replace(one, run=replace(RUN, peers=("torch",)))
    assert without.compiled_us is None and not without.has_stand_in
    assert "30 us*" in page([one])


def test_the_floor_is_of_reading_or_of_copying() -> None:
    assert measured(megabytes=100, tcdsl=50.0).floor_us == pytest.approx(25.0)
    reduction = measured(family="reduction", megabytes=100, tcdsl=50.0)
    assert reduction.floor_us == pytest.approx(20.0)
    assert reduction.of_floor == pytest.approx(0.4)
    unread = replace(reduction, run=replace(RUN, read_gbs=0.0))
    assert unread.floor_us == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("megabytes", "peer_us", "is_slower"),
    [(64, 9.71, False), (64, 9.69, True), (63, 9.53, False), (63, 9.50, True)],
)
def test_what_is_let_pass_depends_on_the_bytes(
    megabytes: float, peer_us: float, is_slower: bool
) -> None:
    assert measured(megabytes=megabytes, tcdsl=10.0, compiled=peer_us).is_slower == is_slower


def test_a_row_that_failed_has_nothing() -> None:
    one = Measured(RUN, Row("f", "graph", "float32", {"N": 3}, problems=("its inputs: no",)))
    assert one.best_ratio is None and one.of_floor is None and not one.is_slower
    assert "f N=3 float32: its inputs: no" in page([one])


# --- aims ------------------------------------------------------------------------------------


def test_every_aim_is_there_without_any_row() -> None:
    assert len(aims([])) >= 15
    assert all(one.is_met is None for one in aims([]))


def test_the_aims_of_reductions() -> None:
    rows = [
        measured("all_sum", sizes=(2**28,), family="reduction", megabytes=1074,
                 tcdsl=220.0, torch=230.0, compiled=300.0),
        measured("row_sum", family="reduction", megabytes=268, tcdsl=80.0, torch=70.0),
    ]  # fmt: skip
    assert aim(rows, "reductions slower").found == 1 and not aim(rows, "reductions slower").is_met
    assert aim(rows, "reductions of 1 GB").found == pytest.approx(1074 / 5.0 / 220)
    assert aim(rows, "reductions of 1 GB").is_met
    assert not aim(rows, "reductions of 256 MB").is_met
    assert aim(rows, "reductions: best").found == pytest.approx((230 / 220 * 70 / 80) ** 0.5)


def test_the_aims_of_graphs_are_of_float32() -> None:
    rows = [
        measured(sizes={"M": 64, "N": 2**20}, tcdsl=100.0, torch=50.0, compiled=180.0, jax=150.0),
        measured(dtype="bfloat16", tcdsl=100.0, compiled=10.0, jax=10.0),
    ]
    assert aim(rows, "graphs slower").found == 0  # eager PyTorch is not meant
    assert aim(rows, "softmax M=64 N=1048576").found == pytest.approx(1.8)
    assert aim(rows, "graphs: XLA").found == pytest.approx(1.5)
    assert aim(rows, "graphs: torch.compile").is_met
    assert aim(rows, "batchnorm_gelu").is_met is None


def test_quack_is_compared_by_rates_on_its_chip_and_by_ratios_on_others() -> None:
    key = ("softmax", "bfloat16", 16384, 4096)
    quack, compiled = QUACK[key]
    one = measured(*key[:2], key[2:], megabytes=268.4, tcdsl=268.4e3 / quack,
                   compiled=268.4e3 / quack * 3)  # fmt: skip
    assert of_quack(one) == pytest.approx(1.0)
    elsewhere = replace(one, run=replace(RUN, about={"gpu": "NVIDIA H100"}))
    assert of_quack(elsewhere) == pytest.approx(3 * compiled / quack)
    assert of_quack(measured("softmax", "bfloat16", (16384, 4095), tcdsl=1.0)) is None
    assert aim([one], "softmax at QuACK").is_met
    assert aim([one], "softmax and cross-entropy in bfloat16").found == pytest.approx(3.0)
    assert cells(quack_table([one]))[2][-1] == "1.00"


# --- the page --------------------------------------------------------------------------------


def test_the_summary_has_a_line_for_each_family_and_type() -> None:
    rows = [
        measured(tcdsl=10.0, torch=20.0, compiled=10.0),
        measured(dtype="bfloat16", tcdsl=10.0, torch=80.0, megabytes=1.0),
        measured("row_sum", family="reduction", tcdsl=10.0, torch=20.0),
    ]
    lines = cells(summary_table(rows))[2:]
    assert [line[:3] for line in lines] == [
        ["graph", "float32", "1"], ["graph", "bfloat16", "1"], ["graph", "all", "2"],
        ["reduction", "float32", "1"],
    ]  # fmt: skip
    assert lines[2][3:6] == ["2.83", "4.00", "2.83"]
    assert lines[1][9] == "-"  # none of 64 MB


def test_the_slow_ones_are_listed_with_who_is_faster() -> None:
    rows = [measured(tcdsl=100.0, torch=80.0, jax=90.0), measured("mse", tcdsl=100.0, jax=50.0)]
    text = page(rows)
    assert "Slower than the best peer: 2 of 2" in text
    assert "By type: float32 2 of 2." in text
    slow = text[text.index("Slower than the best peer:") :]
    assert slow.index("| mse") < slow.index("| softmax")
    assert cells(slower_table(rows))[2][4:] == ["100 us", "torch", "80 us", "0.80"]


def test_cold_and_warm_are_apart_and_runs_are_told() -> None:
    warm = replace(RUN, flush=False, about={"gpu": "another"})
    text = page([measured(tcdsl=1.0), measured(tcdsl=2.0, run=warm)])
    assert text.count("### Every case") == 2
    assert text.count("### Aims") == 1
    assert "- 1 rows: gpu NVIDIA H200" in text and "- 1 rows: gpu another" in text
    assert page([]) == "there are no times in these files"


def test_means_are_of_what_is_known() -> None:
    rows = [measured(tcdsl=50.0, jax=200.0), measured(tcdsl=1.0), measured(jax=100.0)]
    assert mean_ratio(rows, "jax") == 4.0
    assert len(of_family(rows, "graph", "float32")) == 3 and of_family(rows, "reduction") == []
