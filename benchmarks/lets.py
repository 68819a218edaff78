"""A bilinear resize with `where` lets, beside separate statements, and with lets substituted.

    python benchmarks/lets.py                       on the CPU, in turns, warm; medians
    python benchmarks/lets.py 64 64 3 640 640       these sizes alone: H, W, C, OH, OW

The first two are what users write; the third is the first, compiled without the rewrite that makes
statements of lets (rewrites/scop/let_values).  All three give the same bits.
"""

import argparse
import os
import tempfile
from collections.abc import Mapping
from unittest.mock import patch

import numpy as np

import tcdsl
from tcdsl import driver
from tcdsl.runtime.timing import compare, format_us

RESIZE = """
def resize(float(H, W, C) x, float(OH) rows, float(OW) cols) -> (y) {
    y(i, j, c) = (1.0 - fy) * ((1.0 - fx) * x(y0, x0, c) + fx * x(y0, x1, c))
               + fy * ((1.0 - fx) * x(y1, x0, c) + fx * x(y1, x1, c))
        where sy = max(0.0, (i + 0.5) * H / OH - 0.5), sx = max(0.0, (j + 0.5) * W / OW - 0.5),
              y0 = int32(floor(sy)), x0 = int32(floor(sx)), y1 = min(y0 + 1, H - 1),
              x1 = min(x0 + 1, W - 1), fy = sy - floor(sy), fx = sx - floor(sx),
              i in 0:OH, j in 0:OW
}
"""
APART = """
def resize(float(H, W, C) x, float(OH) rows, float(OW) cols) -> (y) {
    sy(i) = max(0.0, (i + 0.5) * H / OH - 0.5) where i in 0:OH
    sx(j) = max(0.0, (j + 0.5) * W / OW - 0.5) where j in 0:OW
    y0(i) = int32(floor(sy(i)))
    x0(j) = int32(floor(sx(j)))
    y1(i) = min(y0(i) + 1, H - 1)
    x1(j) = min(x0(j) + 1, W - 1)
    fy(i) = sy(i) - floor(sy(i))
    fx(j) = sx(j) - floor(sx(j))
    y(i, j, c) = (1.0 - fy(i)) * ((1.0 - fx(j)) * x(y0(i), x0(j), c) + fx(j) * x(y0(i), x1(j), c))
               + fy(i) * ((1.0 - fx(j)) * x(y1(i), x0(j), c) + fx(j) * x(y1(i), x1(j), c))
}
"""
SIZES = ((64, 64, 3, 640, 640), (256, 256, 1, 1024, 1024), (128, 128, 64, 256, 256))


def compiled(sizes: tuple[int, ...]) -> Mapping[str, tcdsl.Executable]:
    """Return the code of the three, by their names."""
    height, width, channels, out_height, out_width = sizes
    shapes = ((height, width, channels), (out_height,), (out_width,))
    specs = [tcdsl.spec(shape, "float32") for shape in shapes]

    def code(text: str) -> tcdsl.Executable:
        return tcdsl.define(text).resize.compile(*specs, target="cpu")

    with tempfile.TemporaryDirectory() as folder:
        # A cache of their own: its key does not know what is patched.
        with patch.dict(os.environ, TCDSL_CACHE_DIR=folder):
            found = {"lets": code(RESIZE), "separate": code(APART)}
        with (
            tempfile.TemporaryDirectory() as other,
            patch.dict(os.environ, TCDSL_CACHE_DIR=other),
            patch.object(driver, "with_lets_apart", lambda scop, *_, **__: scop),
        ):
            return {**found, "substituted": code(RESIZE)}


def medians_us(sizes: tuple[int, ...], seconds: float) -> dict[str, float]:
    """Return the median time of each of the three, called in turns."""
    x = np.random.default_rng(0).random(sizes[:3], dtype=np.float32)
    inputs = x, np.zeros(sizes[3], np.float32), np.zeros(sizes[4], np.float32)
    codes = compiled(sizes)
    results = [code(*inputs) for code in codes.values()]
    assert all((result == results[0]).all() for result in results)
    calls = {name: code.bind(*inputs) for name, code in codes.items()}
    timings = compare(calls, seconds).timings
    return {name: timing.median_us for name, timing in timings.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sizes", type=int, nargs="*", help="H W C OH OW")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each (default 1)")
    arguments = parser.parse_args()
    print("| H, W, C to OH, OW | lets | separate statements | lets substituted | "
          "lets / separate | substituted / separate |\n|---|---:|---:|---:|---:|---:|")  # fmt: skip
    for sizes in [tuple(arguments.sizes)] if arguments.sizes else SIZES:
        found = medians_us(sizes, arguments.seconds)
        label = f"{', '.join(map(str, sizes[:3]))} to {', '.join(map(str, sizes[3:]))}"
        ratios = [found[name] / found["separate"] for name in ("lets", "substituted")]
        cells = [format_us(us) for us in found.values()] + [f"{ratio:.2f}" for ratio in ratios]
        print("|", " | ".join([label, *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
