"""What contractions in tiles are estimated to take, and which tiles that makes the best ones."""

from dataclasses import replace

import pytest

from tcdsl.costmodel.chip import Unit, load_chip
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.tiles import Product, TileConfig, work_of_tiles
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
