"""What contractions in tiles are estimated to take, and which tiles that makes the best ones."""

import pytest

from tcdsl.costmodel.chip import Unit, load_chip
from tcdsl.costmodel.tiles import TileConfig, TiledWork
from tcdsl.strategies.tiles import SIZES, THREADS

H200 = load_chip("h200")


def work_of(m: int, n: int, k: int, config: TileConfig) -> TiledWork:
    x, y = THREADS
    tiles = -(-m // (y * config.rows)) * -(-n // (x * config.columns))
    return TiledWork(tiles, x * y, k, 16, 4, m * n, is_double=False)


def best_of(m: int, n: int, k: int) -> TileConfig:
    configs = [TileConfig(*size, chunks) for size in SIZES for chunks in (1, 2, 4, 8, 16)]
    return min(configs, key=lambda config: work_of(m, n, k, config).seconds(config, H200))


def test_large_products_have_the_largest_tiles() -> None:
    for n in (2048, 4096, 8192):
        best = best_of(n, n, n)
        assert (best.rows, best.columns) == (8, 16)


def test_few_tiles_are_small_or_share_the_sum() -> None:
    assert best_of(1024, 1024, 1024).rows < 8
    assert best_of(128, 4096, 16384).chunks >= 4
    assert best_of(128, 128, 2000).chunks > 1


@pytest.mark.parametrize("n", [1024, 4096])
def test_no_estimate_is_below_the_multiply_adds(n: int) -> None:
    config = best_of(n, n, n)
    least = n**3 / H200.rate(Unit.FMA_F32)
    assert least < work_of(n, n, n, config).seconds(config, H200) < 2 * least
