"""Candidates on a page: the table, the roofline, and why kernels are two."""

import json
import re
from typing import Any

import pytest

from tcdsl.display.candidates import candidates_section
from tcdsl.display.candidates_text import (
    Chip,
    Weighing,
    candidates_text,
    config_text,
    explained,
    read_weighing,
    varying_in,
)
from tcdsl.display.rooflines import BOTTOM, roofline

CHIP = Chip("a chip", 4e12, 2.4e13)


def candidate(threads: int, time_us: float, **more: Any) -> dict[str, Any]:
    return {
        "kernel": "S0", "template": "row", "config": {"threads": threads, "keep": 0},
        "is_chosen": False, "predicted_us": time_us, "limiter": "memory", "moved_bytes": 4e8,
        "operations": 4e8, **more,
    }  # fmt: skip


CANDIDATES = (
    candidate(32, 300.0),
    candidate(64, 200.0, is_chosen=True),
    candidate(128, 100.0),
    {"kernel": "S0", "template": "row", "config": {"threads": 4096, "keep": 0},
     "is_chosen": False, "why_not": "a block would have 4096 threads, of 1024 at most"},
    {"kernel": "S0", "template": "column", "why_not": "it has no <columns>"},
)  # fmt: skip
WEIGHING = Weighing(CHIP, CANDIDATES, (("S0", "S1", "fusion is off"),))


def test_what_is_kept_is_read_again() -> None:
    lines = [
        {"target": "cuda", "chip": "a chip", "bytes_per_s": 4e12, "operations_per_s": 2.4e13},
        *CANDIDATES,
        {"separate": ["S0", "S1"], "why_not": "fusion is off"},
    ]
    assert read_weighing("\n".join(map(json.dumps, lines))) == WEIGHING
    assert read_weighing('{"target": "cpu"}\n') == read_weighing("") == Weighing()


def test_kernels_of_one_reason_are_read_as_pairs() -> None:
    lines = [
        {"separate": ["S0", "S1", "S2"], "why_not": "fusion is off"},
        {"separate": ["S1", "S3"], "why_not": "it waits", "around": "S2"},
    ]
    assert read_weighing("\n".join(map(json.dumps, lines))).apart == (
        ("S0", "S1", "fusion is off"),
        ("S0", "S2", "fusion is off"),
        ("S1", "S3 (around S2)", "it waits"),
    )


def test_the_chosen_one_comes_first_then_the_fastest(checked: Any) -> None:
    page = checked(candidates_section(WEIGHING))
    assert re.findall(r"threads (4096|128|64|32)", page.text) == ["64", "128", "32", "4096"]
    assert "4096 threads, of 1024 at most" in page.text and "it has no <columns>" in page.text
    assert "separate  S0 | S1: fusion is off" in page.text


def test_a_page_without_candidates_says_so(checked: Any) -> None:
    assert "nothing was weighed" in checked(candidates_section(Weighing())).text
    assert candidates_text(Weighing()).startswith("nothing was weighed")


def test_explain_shows_three_others_at_most() -> None:
    many = Weighing(CHIP, (*CANDIDATES, candidate(256, 150.0), candidate(512, 160.0)))
    (head, *lines) = explained([{"kernel": "S0", "template": "row", "threads": 64}], many)
    assert head == "S0: 5 weighed"
    assert [line.split()[0] for line in lines] == ["chosen", "or", "or", "or", "or", "not"]
    assert "one of 1 more" in lines[4] and lines[5] == "  not column: it has no <columns>"


def test_a_kernel_with_one_form_has_its_template() -> None:
    found = explained([{"kernel": "S9", "template": "tile_simt"}], Weighing())
    assert found == ["S9: template tile_simt"]


def test_values_that_differ_are_shown_also_where_they_are_0() -> None:
    assert config_text({"threads": 1, "keep": 0, "rows": 1, "vector": 4}) == "threads 1, vector 4"
    configs = [{"threads": 1, "keep": keep} for keep in (0, 2)]
    varying = varying_in({"template": "row", "config": config} for config in configs)
    assert varying == {"keep"} and config_text(configs[0], varying) == "threads 1, keep 0"


# --- the roofline ------------------------------------------------------------------------------


def discs(svg: str) -> list[tuple[float, float]]:
    """Return where the candidates are, without the two of the legend."""
    found = re.findall(r'<circle[^>]*?cx="([\d.]+)" cy="([\d.]+)"', svg)
    return [(float(x), float(y)) for x, y in found][:-2]


def test_points_are_below_the_roof_by_their_times(checked: Any) -> None:
    svg = roofline(CHIP, CANDIDATES[:3])
    assert svg is not None and "4 TB/s" in checked(svg).text
    first_line_of_roof = svg.split('class="stroke-ink"')[1]
    roof_y = float(re.findall(r'y1="([\d.]+)"', first_line_of_roof)[0])
    heights = sorted(y for _, y in discs(svg))
    assert heights[0] == pytest.approx(roof_y)  # 4e8 bytes in 100 us are 4e12 bytes a second
    assert roof_y < heights[1] < heights[2] < BOTTOM
    assert len({x for x, _ in discs(svg)}) == 1  # as many operations a byte


def test_points_that_cover_each_other_are_drawn_once_and_the_chosen_one_last() -> None:
    alike = [candidate(64, 200.0, is_chosen=True), candidate(32, 200.0), candidate(16, 200.1)]
    svg = roofline(CHIP, alike)
    assert svg is not None and len(discs(svg)) == 1
    assert "fill-good" in svg.split("<circle")[1]


def test_the_chosen_one_is_drawn_above_what_is_near() -> None:
    alike = [candidate(64, 200.0, is_chosen=True), candidate(32, 190.0), candidate(16, 200.1)]
    svg = roofline(CHIP, alike)
    assert svg is not None and len(discs(svg)) == 2
    first, last = svg.split("<circle")[1:3]
    assert "fill-good" in last and "fill-good" not in first


def test_what_computes_nothing_has_no_roofline() -> None:
    assert roofline(CHIP, [candidate(32, 100.0, operations=0)]) is None
