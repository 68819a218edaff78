import json
from pathlib import Path

from tcdsl.cli.bench.report import (
    Launches,
    Row,
    dim3_text,
    means_table,
    ratio_text,
    times_table,
    write_json,
)

FAST = Row("f", "graph", "float32", {"N": 4}, {"tcdsl": 10.0, "numpy": 40.0, "torch": 20.0})
SLOW = Row("s", "reduction", "float32", {"N": 5}, {"tcdsl": 10.0, "numpy": 5.0})
LAUNCHED = Row(
    "l", "graph", "float32", {"N": 7}, {"tcdsl": 10.0, "torch": 20.0},
    launches=Launches(40_000_000, 2, (528, 1, 1), (32, 8, 1)),
)  # fmt: skip
BROKEN = Row("b", "graph", "float32", {"N": 6}, problems=("tcdsl: no",))


def test_the_ratio_is_of_the_best_peer() -> None:
    assert FAST.ratio(("numpy", "torch")) == 2.0
    assert FAST.ratio(("numpy",)) == 4.0
    assert SLOW.ratio(("torch",)) is None
    assert BROKEN.ratio(("numpy",)) is None
    assert ratio_text(None) == "-"


def test_the_table_is_markdown() -> None:
    lines = times_table([FAST, SLOW, BROKEN], ("numpy", "torch")).splitlines()
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    assert cells[0] == ["case", "sizes", "tcdsl", "numpy", "torch", "best peer / tcdsl"]
    assert set("".join(cells[1])) <= set("-:")
    assert cells[2] == ["f", "N=4", "10 us", "40 us", "20 us", "2.00"]
    assert cells[3] == ["s", "N=5", "10 us", "5 us", "-", "0.50"]
    assert cells[4] == ["b", "N=6", "-", "-", "-", "-"]


def test_a_row_of_a_gpu_tells_its_rate_and_launches() -> None:
    assert LAUNCHED.rate_gbs == 4000.0
    assert FAST.rate_gbs is None
    lines = times_table([LAUNCHED, BROKEN], ("torch",), copy_rate_gbs=5000.0).splitlines()
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    assert cells[0][-5:] == ["GB/s", "of a copy's", "kernels", "grid", "block"]
    assert cells[2][-5:] == ["4000", "0.80", "2", "528", "32x8"]
    assert cells[3][-5:] == ["-"] * 5


def test_the_ones_at_the_end_of_a_grid_are_not_written() -> None:
    assert dim3_text((1, 1, 1)) == "1"
    assert dim3_text((1, 3, 1)) == "1x3"
    assert dim3_text(()) == "-"


def test_the_mean_over_one_peer_is_written_once() -> None:
    header = means_table([FAST], ("torch",)).splitlines()[0]
    assert header.count("tcdsl") == 1


def test_means_are_geometric_a_family_a_row() -> None:
    lines = means_table([FAST, SLOW], ("numpy", "torch")).splitlines()
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    assert cells[2] == ["graph", "1", "4.00", "2.00", "2.00", "2.00"]
    assert cells[4] == ["all", "2", "1.41", "2.00", "1.00", "1.00"]


def test_json_holds_the_rows_and_the_machine(tmp_path: Path) -> None:
    write_json([FAST, BROKEN], tmp_path / "times.json")
    report = json.loads((tmp_path / "times.json").read_text())
    assert report["rows"][0]["times_us"]["numpy"] == 40.0
    assert report["rows"][1]["problems"] == ["tcdsl: no"]
    assert report["machine"]["python"]
    write_json([LAUNCHED], tmp_path / "times.json", {"gpu": "fast"})
    report = json.loads((tmp_path / "times.json").read_text())
    assert report["machine"] == {"gpu": "fast"}
    assert report["rows"][0]["launches"]["grid"] == [528, 1, 1]
