"""What contractions in tiles are estimated to take, and which tiles that makes the best ones."""

from dataclasses import replace

import pytest

from tcdsl.costmodel.chip import Unit, load_chip
from tcdsl.costmodel.copies import late_cycles
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.tiles import Copied, Product, TileConfig, work_of_tiles
from tcdsl.strategies.templates.tile_simt import SHAPES

H200 = load_chip("h200")


def seconds(m: int, n: int, k: int, config: TileConfig) -> float:
    rows, columns = config.block
    product = Product(-(-m // rows) * -(-n // columns), k, 4, m * n, is_double=False)
    return estimate(work_of_tiles(product, config, H200), H200).seconds


def best_of(m: int, n: int, k: int) -> TileConfig:
    configs = [
        replace(TileConfig(*shape), chunks=chunks)
        for shape in SHAPES
        for chunks in (1, 2, 4, 8, 16)
    ]
    return min(configs, key=lambda config: seconds(m, n, k, config))


def test_large_products_have_large_tiles_of_which_several_fit() -> None:
    """Measured: 8 x 8 results of 16 x 16 threads, two blocks a multiprocessor."""
    for n in (2048, 4096):
        best = best_of(n, n, n)
        assert best.block == (128, 128) and best.threads == 256


def test_few_tiles_are_small_or_share_the_sum() -> None:
    few = best_of(1024, 1024, 1024)
    assert few.rows < 8 or few.chunks > 1
    assert best_of(128, 4096, 16384).chunks >= 4
    assert best_of(128, 128, 2000).chunks > 1


@pytest.mark.parametrize("n", [1024, 4096])
def test_no_estimate_is_below_the_multiply_adds(n: int) -> None:
    least = n**3 / H200.rate(Unit.FMA_F32)
    assert least < seconds(n, n, n, best_of(n, n, n)) < 2 * least


def test_more_stages_have_copies_there_in_time() -> None:
    """Few blocks: weights of 3 x 3 in 2, 3 and 4 stages took 78, 63 and 52 us (H200, bfloat16)."""
    late = [late_cycles(8192, stages, 400) for stages in (1, 2, 3, 4)]
    assert late == sorted(late, reverse=True) and late[-1] == 0
    assert late_cycles(8192, 2, 10_000) == 0  # a step that takes longer than any copy
    assert late_cycles(8192, 1, 10_000) > 0  # whose own copy comes first


def test_a_step_copies_what_its_operands_have() -> None:
    """Nine taps of a value are one box, whose lines are looked up once, in one step."""
    config = TileConfig(2, 4, step=16, stages=2)
    plain = Product(100, 16 * 9 * 4, 4, 102400, is_double=False)
    box = Copied(16 * 9 * 32, 1, 2000.0, 16 * 9 * 32 * 4)
    works = [
        work_of_tiles(product, config, H200)
        for product in (plain, replace(plain, copied=(box,), taps=9))
    ]
    assert [work.chain.block_barriers for work in works] == [36, 4]
    assert works[1].lines == 100 * 4 * 2000 and works[1].shared_bytes == 2 * box.tile_bytes
