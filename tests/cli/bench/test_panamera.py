"""Panamera's shapes: which rows are there, and the factors beside the paper's."""

import pytest

from tcdsl.cli.bench.measured import Measured, Run
from tcdsl.cli.bench.page import page
from tcdsl.cli.bench.panamera import direction_of, factors_table, panamera_section
from tcdsl.cli.bench.report import Launches, Row

RUN = Run({}, ("cub", "cudnn"), True, 4000.0, 5000.0)


def measured(case: str, dtype: str = "float32", **times: float) -> Measured:
    named = {{"rows": "cub-rows"}.get(name, name): time for name, time in times.items()}
    return at(case, {"M": 768, "N": 768}, dtype, **named)


def at(case: str, sizes: dict[str, int], dtype: str, **times: float) -> Measured:
    launches = Launches(1000, 1, (1,), (32,))
    return Measured(RUN, Row(case, "reduction", dtype, sizes, times, launches=launches))


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


@pytest.mark.parametrize(
    ("one", "direction"),
    [
        (at("all_max", {"N": 65536}, "int32"), "all"),
        (at("all_max", {"N": 65537}, "int32"), None),
        (measured("row_and", "bool"), "rows"),
        (at("row_sum", {"M": 256, "N": 802816}, "float32"), "rows"),
        (at("column_sum", {"M": 802816, "N": 256}, "float32"), "columns"),
        (measured("row_sum", "bfloat16"), None),
        (measured("row_min"), None),
    ],
)
def test_directions(one: Measured, direction: str | None) -> None:
    assert direction_of(one) == direction


def test_factors_are_means_beside_the_papers() -> None:
    rows = [
        measured("row_sum", tcdsl=10.0, cub=20.0, cudnn=1000.0),
        measured("column_sum", tcdsl=10.0, cub=80.0, rows=40.0, cudnn=10.0),
        measured("column_sum", "int32", tcdsl=10.0, cub=80.0, rows=10.0),
    ]
    found = {tuple(line[:2]): line[2:] for line in cells(factors_table(rows))[2:]}
    assert found["all of them", "CUB"] == ["3", f"{(2 * 8 * 8) ** (1 / 3):.2f}", "3.5"]
    assert found["all of them", "CUB without copies"] == ["3", "2.00", "2.1"]
    assert found["all of them", "cuDNN"] == ["2", "10.00", "33.7"]
    assert found["columns", "CUB"] == ["2", "8.00", ""]
    assert found["rows", "CUB without copies"] == ["1", "2.00", ""]
    assert found["all", "CUB"] == ["0", "-", ""]


def test_the_page_has_the_section_where_a_library_was_timed() -> None:
    rows = [measured("row_sum", tcdsl=10.0, cub=20.0), measured("row_max", tcdsl=10.0, torch=9.0)]
    text = page(rows)
    section = text[text.index("### Panamera's shapes") : text.index("### Every case")]
    assert "| row_sum" in section and "| row_max" not in section
    line = cells(section.strip())[-1]
    assert line[-6:] == ["20 us", "20 us", "-", "2.00", "2.00", "-"]
    assert panamera_section(rows[1:]) == "" and "Panamera" not in page(rows[1:])


def test_a_library_that_is_faster_is_the_best_peer_but_not_its_half() -> None:
    one = measured("column_sum", tcdsl=10.0, torch=9.0, cub=8.0, rows=1.0)
    assert one.best_peer == "cub"
