"""Drawings of iteration domains."""

import re
from itertools import pairwise
from typing import Any

import pytest

import tcdsl
from tcdsl.display.domains import chosen_dims, draw_domain, tilings_of
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Scop

GRID = """def grid(float(N, M) cost) -> (best) {
    best(i, j) = cost(i, j)
    best(i, j) = cost(i, j) + min(best(i - 1, j), best(i, j - 1)) where i in 1:N, j in 1:M
}
"""
TRIANGLE = "def tri(float(N, N) L, float(N) x) -> (y) { y(i) +=! L(i, j) * x(j) where j in 0:i+1 }"
MATMUL = "def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"


def compilation(source: str, *shapes: tuple[int, ...]) -> Any:
    program = tcdsl.define(source)
    specs = [tcdsl.spec(shape, "float32") for shape in shapes]
    exe = program[program.names[0]].compile(*specs, target="cpu")
    return exe.compilation.compiled


def drawn(scop: Scop, name: str, tilings: Any = None, dims: Any = None) -> str:
    statement = scop.by_name[name]
    own = [e for e in dependences_of(scop).edges if e.source == e.sink == name]
    chosen = dims or chosen_dims(statement, own)[0]
    text = draw_domain(statement, chosen, own, tilings or {})
    assert text is not None
    return str(text)


def points(text: str) -> set[tuple[str, str]]:
    return set(re.findall(r'<circle[^>]* cx="([\d.]+)" cy="([\d.]+)"', text))


def test_small_domains_have_their_points() -> None:
    scop = compilation(TRIANGLE, (7, 7), (7,)).scop
    text = drawn(scop, "S0")
    assert len(points(text)) == 28
    columns: dict[float, int] = {}
    for x, _ in points(text):
        columns[float(x)] = columns.get(float(x), 0) + 1
    assert [columns[x] for x in sorted(columns)] == [1, 2, 3, 4, 5, 6, 7]


def test_dependences_of_a_recurrence_run_both_ways() -> None:
    text = drawn(compilation(GRID, (6, 5), ).scop, "S1")  # fmt: skip
    # 5 x 4 instances: 5 * 3 arrows up, 4 * 4 to the right.
    assert text.count('class="arrow"') == 15 + 16
    assert "dependence (0..1, 0..1) through best, flow" in text


def test_updates_in_any_order_are_dashed() -> None:
    scop = compilation(MATMUL, (6, 7), (7, 8)).scop
    text = drawn(scop, "S0", dims=(0, 2))
    assert text.count('class="arrow"') == 6 * 6 == text.count("stroke-dasharray")
    assert "order is free" in text and "seen along n" in text
    assert 'class="arrow"' not in drawn(scop, "S0", dims=(0, 1))


def test_large_domains_are_outlines() -> None:
    text = drawn(compilation(TRIANGLE, (1500, 1500), (1500,)).scop, "S0")
    assert not points(text)
    corners = re.search(r'<polygon[^>]* points="([^"]*)" fill-opacity', text)
    assert corners is not None
    pairs = [tuple(map(float, pair.split(","))) for pair in corners[1].split()]
    upper = pairs[len(pairs) // 2 :]
    assert all(later[1] >= earlier[1] for earlier, later in pairwise(upper))
    assert len({y for _, y in pairs[: len(pairs) // 2]}) == 1  # its lower side is straight


def test_tiles_are_those_of_the_loops() -> None:
    made = compilation(MATMUL, (64, 48), (48, 40))
    (kernel,) = made.plan.kernels
    tilings = tilings_of(kernel.tree, "S0")
    size = tilings[0].size
    text = drawn(made.scop, "S0", tilings, dims=(0, 2))
    assert text.count('class="stroke-tile"') == -(-64 // size) - 1
    assert f"tiles of {size} m" in text


def test_all_pairs_of_dimensions_are_chosen_from() -> None:
    scop = compilation(MATMUL, (64, 48), (48, 40)).scop
    own = [e for e in dependences_of(scop).edges if e.source == e.sink == "S0"]
    pairs = chosen_dims(scop.by_name["S0"], own)
    assert sorted(pairs) == [(0, 1), (0, 2), (1, 2)]
    assert 2 in pairs[0]  # the sum runs along k


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (2, 300)])
def test_thin_domains_can_be_seen(shape: tuple[int, int]) -> None:
    text = drawn(
        compilation("def f(float(N, M) x) -> (y) { y(i) max=! x(i, j) }", shape).scop, "S0"
    )
    sizes = [float(v) for v in re.findall(r'<rect[^>]* width="([\d.]+)" height=', text)]
    assert min(sizes) >= 20
