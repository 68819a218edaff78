"""Chains of stencils in overlapped tiles: the classics and random ones, at sizes of every kind."""

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Any

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.machine import Cpu
from tcdsl.options import Options
from tcdsl.plan import cpu_planner, gpu_planner
from tcdsl.poly.loop_tree import LoopKind, loops_of
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.stencil_chains import Chain, stages_of
from tcdsl.schedule.placement import Space
from tcdsl.schedule.plan import Plan
from tcdsl.strategies import gpu_stencils, stencils
from tcdsl.strategies.stencil_work import WHOLE, StencilConfig, Tiles, configs, stencil_work
from tcdsl.strategies.stencils import Tiling
from tcdsl.strategies.templates import stencil
from tests.hunts import Hunt
from tests.strategies.stencil_programs import (
    CLASSICS,
    EDGES,
    HARRIS,
    JACOBI,
    LIFE,
    RING,
    SHIFTED_BATCH,
    TORUS,
    random_chains,
)

CheckAll = Callable[..., None]

# Stages that read one another along rows alone; x is read at distances along both.
COLUMNS = """
def columns(float(H,W) x) -> (a, y) {
    a(i,j) = x(i,j) + 2.0 * x(i,j+1) + x(i,j+4)
    b(i,j) = a(i,j) + a(i+1,j) + a(i+3,j)
    y(i,j) = b(i,j) * x(i+1,j+1) - a(i+2,j)
}"""

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


Tiled = list[Scop]


@pytest.fixture(params=["whole", "cut"])
def tiny_tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tiled:
    """Every chain, or pieces of it, in tiles of 4 to 8 values; the programs that have one."""
    found: Tiled = []

    def tilings(scop: Scop, chain: Chain, *_: object, **__: object) -> Iterator[Tiling]:
        if not any(scop is other for other in found):
            found.append(scop)
        sizes = {1: (8,), 2: (4, 8), 3: (4, 4, 8)}[len(chain.stencil)]
        yield Tiling(sizes, len(chain.members) ** 2.0 if request.param == "whole" else 1.0, 0.0)

    monkeypatch.setattr(cpu_planner, "cpu_tilings", tilings)
    monkeypatch.setattr(gpu_planner, "gpu_tilings", tilings)
    return found


@pytest.mark.slow
def test_a_block_has_planes_and_registers(cuda_unit: Callable[..., Any]) -> None:
    unit = cuda_unit(HARRIS, (1531, 2048, 3), ())
    (kernel,) = unit.done.plan.kernels
    assert kernel.template == "stencil" and "12 stages in overlapped tiles" in kernel.why[0]
    spaces = {name: p.space for name, p in unit.done.plan.placements.items()}
    planes = {"gray.tile", "ixx.tile", "iyy.tile", "ixy.tile"}
    assert {name for name, space in spaces.items() if space is Space.SHARED} == planes
    assert len(spaces) == 11  # the others are registers
    assert sum(s.kind is Kind.BARRIER for s in unit.done.plan.scop.statements) == 2
    (overlapped,) = unit.done.plan.scop.overlapped
    # All tiles but the last one are whole, and have no guards between the rows of a thread.
    assert f"if (c0 <= {overlapped.counts[0] - 2})" in unit.done.source.text


@pytest.mark.parametrize("sizes", [(1,), (8,), (4, 8), (1, 1), (1, 1, 1), (4, 4, 64)])
def test_every_tile_has_threads(sizes: tuple[int, ...]) -> None:
    tiles = Tiles({}, {}, {}, frozenset(), sizes, (1,) * len(sizes))
    found = list(configs(tiles, load_chip("h200")))
    assert found and all(64 <= c.threads_x * c.threads_y <= 512 for c in found)


def test_lines_are_made_by_the_template(cuda_unit: Callable[..., Any], tiny_tiles: Tiled) -> None:
    kernels = cuda_unit(SHIFTED_BATCH, (7, 40)).done.plan.kernels
    assert [kernel.template for kernel in kernels] == ["stencil"]


def test_the_work_of_a_tile(lower: Callable[..., Any]) -> None:
    chip = load_chip("h200")
    scop, (chain,) = stencils.stencils_of(lower(JACOBI, (1030, 1030)))
    stages = stages_of(scop, chain)
    one, large = (
        stencil_work(gpu_stencils._tiles_of(scop, stages, chain, sizes), StencilConfig(32, 4), chip)
        for sizes in ((8, 32), (32, 128))
    )
    assert (one.blocks, large.blocks) == (128 * 32, 32 * 8)
    assert one.shared_bytes == 4 * ((8 + 4) * (32 + 4) + (8 + 2) * (32 + 2))
    assert one.read_bytes == large.read_bytes == 4 * 1030 * 1030
    assert one.l2_bytes > large.l2_bytes and one.instructions > large.instructions
    assert one.chain.block_barriers == 2


def test_only_rows_may_be_in_columns(lower: Callable[..., Any]) -> None:
    chip = load_chip("h200")

    def tiles_of(source: str, *sizes: int) -> Tiles:
        scop, (chain,) = stencils.stencils_of(lower(source, sizes))
        return gpu_stencils._tiles_of(scop, stages_of(scop, chain), chain, (8, 256))

    tiles, column = tiles_of(COLUMNS, 131, 668), StencilConfig(64, 1, WHOLE, 4)
    for other in (tiles, tiles_of(COLUMNS, 131, 670), tiles_of(JACOBI, 668, 668)):
        assert (column in configs(other, chip)) == (other is tiles)
    assert tiles_of(JACOBI, 668, 668).why_no_columns is not None
    shared, own = (stencil_work(tiles, c, chip) for c in (StencilConfig(64, 2, 4), column))
    assert shared.shared_bytes == 4 * 11 * 256 and own.shared_bytes == 0
    assert shared.chain.block_barriers == 1 and own.chain.block_barriers == 0
    # After the barrier x is read again, of whoever has it from memory.
    assert shared.l2_bytes - own.l2_bytes == 4 * 131 * 668


def test_a_thread_has_a_column(
    cuda_unit: Callable[..., Any], check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tilings(_: Scop, chain: Chain, *__: object, **___: object) -> Iterator[Tiling]:
        if len(chain.stencil) == 2:
            yield Tiling((8, 32), len(chain.members) ** 2.0, 0.0)

    monkeypatch.setattr(gpu_planner, "gpu_tilings", tilings)
    monkeypatch.setattr(stencil, "configs", lambda *_: [StencilConfig(16, 1, WHOLE, 4)])
    unit = cuda_unit(COLUMNS, (29, 68))
    (kernel,) = unit.done.plan.kernels
    assert kernel.template == "stencil" and "8 rows each" in kernel.why[-1]
    assert all(p.space is not Space.SHARED for p in unit.done.plan.placements.values())
    assert not any(s.kind is Kind.BARRIER for s in unit.done.plan.scop.statements)
    assert "tc_window<4, 1>" in unit.done.source.text  # of taps 0, 1 and 4 one is of two vectors
    check_emulated([(COLUMNS, [shape]) for shape in ((29, 68), (4, 12), (13, 44))])


@pytest.mark.slow
def test_the_classics_in_tiny_tiles(tiny_tiles: Tiled, check_all: CheckAll) -> None:
    cases = [(source, shapes) for source, several in CLASSICS for shapes in several]
    check_all(cases)
    # Where there is one result, its indices are numbers: there is nothing to tile.
    one_result = [shapes for _, shapes in cases if shapes == [(1, 5, 5), (5,)]]
    assert len(tiny_tiles) == len(cases) - len(one_result), "one chain a program"


def test_nothing_to_compute(tiny_tiles: Tiled, check_all: CheckAll) -> None:
    nothing = [(HARRIS, [(4, 9, 3), ()]), (JACOBI, [(6, 6)]), (LIFE, [(0, 5)]), (EDGES, [(2,)])]
    check_all(nothing)


@pytest.mark.parametrize("source", [TORUS, RING])
def test_periodic_chains_in_tiny_tiles(
    source: str, tiny_tiles: Tiled, check_all: CheckAll, check_emulated: CheckAll
) -> None:
    cases = [(source, shapes) for shapes in dict(CLASSICS)[source]]
    check_all(cases)
    assert len(tiny_tiles) == len(cases), "one chain a program"
    check_emulated(cases[1:3])


@pytest.mark.slow
def test_random_chains_in_tiny_tiles(tiny_tiles: Tiled, check_all: CheckAll) -> None:
    check_all(list(random_chains(1, 24)))
    assert len(tiny_tiles) >= 18


@pytest.mark.slow
def test_the_classics_on_the_emulator(tiny_tiles: Tiled, check_emulated: CheckAll) -> None:
    cases = [(source, shapes) for source, several in CLASSICS for shapes in several[1:3]]
    check_emulated(cases)
    assert len(tiny_tiles) == len(cases), "one chain a program"


@pytest.mark.slow
def test_random_chains_on_the_emulator(tiny_tiles: Tiled, check_emulated: CheckAll) -> None:
    check_emulated(list(random_chains(2, 12)))
    assert len(tiny_tiles) >= 9


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
def test_many_random_chains_on_the_emulator(tiny_tiles: Tiled, check_emulated: CheckAll) -> None:
    with Hunt() as found:
        for seed in range(200, 220):
            found.run("", check_emulated, list(random_chains(seed, 25)))


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
def test_many_random_chains_in_tiny_tiles(tiny_tiles: Tiled, check_all: CheckAll) -> None:
    with Hunt() as found:
        for seed in range(100, 120):
            found.run("", check_all, list(random_chains(seed, 50)))


def test_harris_is_one_kernel_where_its_stages_leave_the_cache(
    compiled: Callable[..., Any],
) -> None:
    plan: Plan = compiled(HARRIS, (1531, 2048, 3), ()).plan
    (kernel,) = plan.kernels
    assert kernel.template == "cpu_stencil"
    assert "12 stages in overlapped tiles" in kernel.why[0]
    assert set(plan.placements) >= {"gray.tile", "ixx.tile", "iyy.tile", "ixy.tile"}
    kinds = [loop.kind for loop in loops_of(kernel.tree)]
    assert kinds[:2] == [LoopKind.PARALLEL] * 2


def test_small_images_stay_as_they_are(compiled: Callable[..., Any]) -> None:
    plan: Plan = compiled(HARRIS, (64, 64, 3), ()).plan
    assert len(plan.kernels) == 3 and not plan.scop.overlapped


def test_tiles_are_not_for_who_asks_otherwise(compiled: Callable[..., Any]) -> None:
    for options in (Options(fuse="none"), Options(tile=(8,)), Options(scheduler="source_order")):
        plan: Plan = compiled(JACOBI, (2000, 2000), options=options).plan
        assert not plan.scop.overlapped


def test_choices_are_followed_with_tiles(compiled: Callable[..., Any]) -> None:
    done = compiled(JACOBI, (3000, 3000))
    name = done.plan.kernels[0].name
    kernel = {"kernel": name, "template": "cpu_stencil", "axes": 1}
    asked = Options(choices={"format": "tcdsl choices", "version": 1, "kernels": [kernel]})
    plan: Plan = compiled(JACOBI, (3000, 3000), options=asked).plan
    kinds = [loop.kind for loop in loops_of(plan.kernels[0].tree)]
    assert kinds[:2] == [LoopKind.PARALLEL, LoopKind.SERIAL]


def test_larger_halos_cost_more(lower: Callable[..., Any]) -> None:
    scop, (chain,) = stencils.stencils_of(lower(JACOBI, (3000, 3000)))
    stages = stencils.stages_of(scop, chain)
    costs = {
        sizes: stencils._seconds_again(scop, stages, sizes, Cpu(2))
        for sizes in product((16, 64), (64, 512))
    }
    assert costs[16, 64] > costs[64, 64] and costs[16, 64] > costs[16, 512]


def test_long_chains_are_cut_where_halos_would_grow(cuda_unit: Callable[..., Any]) -> None:
    names = ["a", *(f"t{step}" for step in range(12))]
    body = "".join(f"{new}(i) = {old}(i - 9) + {old}(i + 9)\n" for old, new in pairwise(names))
    source = f"def f(float(N) a) -> ({names[-1]}) {{ {body} }}"
    kernels = cuda_unit(source, (1 << 22,)).done.plan.kernels
    assert {kernel.template for kernel in kernels} == {"stencil"} and 1 <= len(kernels) < 6
