import json
from pathlib import Path

from tcdsl.cli.bench_report import Row, means_table, ratio_text, times_table, write_json

FAST = Row("f", "graph", "float32", {"N": 4}, {"tcdsl": 10.0, "numpy": 40.0, "torch": 20.0})
SLOW = Row("s", "reduction", "float32", {"N": 5}, {"tcdsl": 10.0, "numpy": 5.0})
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
