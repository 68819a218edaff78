"""Products whose blocks have more axes than a grid: those that are left are loops of a block.

Two of them had no copies of operands, and stages were counted over one alone; one had wrong copies
where threads copy some steps ahead (a and b are apart in memory, so that nothing joins them).
"""

from collections.abc import Callable

import pytest

from tcdsl.options import Options
from tests.test_classes_of_products import FEW, small_tiles

__all__ = ["small_tiles"]

SOURCE = """def f({dtype}(B,A,H,P,C,L) x, {dtype}(A,B,F,S,C,L) w) -> (y) {{
    y(a,h,s,b,f,p) +=! x(b,a,h,p,c,l) * w(a,b,f,s,c,l) }}"""
SHAPES = [(2, 3, 70, 2, 32, 3), (3, 2, 70, 2, 32, 3)]
TILES = {"rows": 16, "columns": 32, "step": 64, "stages": 3, "chunks": 1}


@pytest.mark.slow_but("bfloat16-tile_mma-boxes", "bfloat16-tile_implicit-threads")
@pytest.mark.parametrize(("dtype", "template", "loader"), [
    ("bfloat16", "tile_mma", "boxes"),
    ("bfloat16", "tile_implicit", "boxes"),
    ("bfloat16", "tile_implicit", "threads"),
    ("float32", "tile_implicit", "threads"),
])  # fmt: skip
def test_loops_of_a_block(
    dtype: str, template: str, loader: str, check_emulated: Callable[..., None], small_tiles: None
) -> None:
    tiles = TILES if dtype == "bfloat16" else {}
    choice = {"kernel": "S0", "template": template, "loader": loader, **tiles}
    asked = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
    source = SOURCE.format(dtype=dtype)
    check_emulated(2 * [(source, SHAPES)], gpu=FEW, options=Options(choices=asked))
