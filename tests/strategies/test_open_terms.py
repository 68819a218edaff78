"""Register tiles of products with an open number of terms: whole steps, right at all sizes."""

import re
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import GpuBackend, compile_with
from tcdsl.lang.request import Request
from tcdsl.lang.size_class import SizeClass
from tcdsl.options import Options
from tests.conftest import comprehension_of, specialisation_of
from tests.strategies.tile_configs import check_at_sizes, choices_of

TERMS = "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }"
PART = "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) where k in 0:K-3 }"
SQUARES = """def f(float(K,M) A, float(K,N) B) -> (C) {
    C(m,n) +=! (A(k,m) - B(k,n)) * (A(k,m) - B(k,n))
}"""
SOURCES = {"terms": TERMS, "a part": PART, "squares": SQUARES}
TILE = {"rows": 2, "columns": 4, "threads_x": 8, "threads_y": 16, "step": 16, "stages": 4,
        "chunks": 1, "row_run": 2, "column_run": 4, "widths": [4, 4], "unrolled": 16,
        "is_held": True}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "held": TILE,
    "loaded": {**TILE, "stages": 3, "is_held": False},
    "two stages": {**TILE, "step": 32, "unrolled": 32, "stages": 2, "is_held": False},
    "one stage": {**TILE, "stages": 1, "is_held": False},
    "in chunks": {**TILE, "stages": 3, "is_held": False, "chunks": 2},
}
SIZES = (65, 97, 112, 128)


def drawn(size: int) -> list[Any]:
    """Return operands of small numbers, so that sums are exact."""
    rng = np.random.default_rng(size)
    return [rng.integers(-2, 3, shape).astype(np.float32) for shape in ((size, 32), (size, 32))]


def options_of(config: dict[str, Any]) -> Options:
    return Options(dynamic_sizes=("K",), choices=choices_of("S0", "tile_simt", config))


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.strategies.contracted.MIN_WORK", 1)


CASES = {f"{source}, {name}": (source, name) for source in SOURCES for name in CONFIGS}


@pytest.mark.one_in(2)
@pytest.mark.slow_but("terms, held")
@pytest.mark.parametrize("case", CASES)
def test_right_at_all_sizes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a part of the terms arrays have more elements, and (0 - x)^2 is a term that is not 0."""
    source, name = CASES[case]
    if name == "in chunks":
        monkeypatch.setattr("tcdsl.strategies.templates.tile_simt.MIN_CHUNK", 32)
    f, options = tcdsl.define(SOURCES[source]).f, options_of(CONFIGS[name])
    exe = f.compile(*drawn(97), target="emulate", options=options)
    assert exe.opened == ("K",) and exe.choices["kernels"][0]["template"] == "tile_simt"
    check_at_sizes(exe, f, drawn, SIZES)


@pytest.mark.slow_but("terms")
@pytest.mark.parametrize("name", SOURCES)
def test_steps_are_whole_where_what_is_beyond_is_0(name: str) -> None:
    """Then no term has a guard; and registers that are taken in turn are known by numbers."""
    c = comprehension_of(SOURCES[name])
    special = specialisation_of(c, [(97, 64), (97, 32)])
    opened = {"K": SizeClass(65, 128)}
    request = Request(c, special, options=options_of(TILE), opened=opened)
    text = compile_with(request, GpuBackend(load_chip("h200"), {})).source.text
    held = re.findall(r"held\[([^=;]*?)\] ?[=,]", text)
    assert held and not any("K" in index for index in held)
    of_terms = re.findall(r"for \(int c2 = 0; c2 < 16; c2\+\+\) \{\s*if \((.*)\)", text)
    assert any("K" in condition for condition in of_terms) == (name != "terms")
