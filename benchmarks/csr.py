"""CSR times a vector against SciPy (one thread), interleaved in one process: medians of ratios.

    OMP_NUM_THREADS=1 python benchmarks/csr.py        --rows 100000 for a short run
    python benchmarks/csr.py --gpu                    against cuSPARSE by way of PyTorch

Matrices: rows of 30 entries each, and rows of 5 entries with four long ones.  Columns are drawn
uniformly.  On the CPU times are those of the calling process (all of its threads), so that other
processes do not count; on the GPU by CUDA events.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse

import tcdsl

SOURCE = """
def csr({index}(P) ptr, {index}(E) col, {value}(E) val, {value}(C) x) -> (y) {{
    y(r) +=! val(e) * x(col(e)) where e in ptr(r):ptr(r + 1)
}}
"""


def matrices(rows: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the lengths of the rows."""
    yield "30 a row", np.full(rows, 30)
    lengths = np.full(rows + 4, 5)
    lengths[rows // 5 :: rows // 5][:4] = 2 * rows
    yield "5 a row, 4 long", lengths


def operands(lengths: np.ndarray, rows: int, value: str, index: str) -> list[np.ndarray]:
    """Return ptr, col, val and x."""
    rng = np.random.default_rng(1)
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(index)
    col = rng.integers(0, rows, int(ptr[-1])).astype(index)
    val = rng.standard_normal(int(ptr[-1])).astype(value)
    return [ptr, col, val, rng.standard_normal(rows).astype(value)]


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def on_cpu(rows: int, repeats: int) -> None:
    for name, lengths in matrices(rows):
        for value in ("float32", "float64"):
            for index in ("int32", "int64"):
                ptr, col, val, x = operands(lengths, rows, value, index)
                source = SOURCE.format(index=index, value=value)
                f = tcdsl.define(source).csr
                y = np.empty(len(lengths), value)
                exe = f.compile(ptr, col, val, x, target="cpu")
                bound = exe.bind(ptr, col, val, x, out=y)
                matrix = scipy.sparse.csr_array((val, col, ptr), shape=(len(lengths), rows))
                assert matrix.indices.dtype == np.dtype(index)
                bound()
                np.testing.assert_allclose(y, matrix @ x, rtol=1e-3, atol=1e-2)
                calls = (bound, lambda matrix=matrix, x=x: matrix @ x)
                pairs = [tuple(map(seconds, calls)) for _ in range(repeats)]
                ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
                ratio = statistics.median(a / b for a, b in pairs)
                print(f"{name:16} {value} {index}: {ours * 1e3:7.1f} ms, "
                      f"SciPy {theirs * 1e3:7.1f} ms, ratio {ratio:.2f}", flush=True)  # fmt: skip


def on_gpu(rows: int, repeats: int) -> None:
    import torch

    for name, lengths in matrices(rows):
        for value in ("float32", "float64"):
            for index in ("int32", "int64"):
                given = operands(lengths, rows, value, index)
                ptr, col, val, x = (torch.from_numpy(a).cuda() for a in given)
                f = tcdsl.define(SOURCE.format(index=index, value=value)).csr
                bound = f.compile(ptr, col, val, x).bind(ptr, col, val, x)
                matrix = torch.sparse_csr_tensor(ptr, col, val, size=(len(lengths), rows))
                calls = (bound, lambda matrix=matrix, x=x: matrix @ x)
                pairs = [tuple(microseconds(call) for call in calls) for _ in range(repeats)]
                ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
                print(f"{name:16} {value} {index}: {ours:8.1f} us, cuSPARSE {theirs:8.1f} us, "
                      f"ratio {ours / theirs:.2f}", flush=True)  # fmt: skip


def microseconds(call: Callable[[], object]) -> float:
    """Return what *call* takes on the GPU, of ten in a row."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    start.record()
    for _ in range(10):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--gpu", action="store_true", help="against cuSPARSE")
    args = parser.parse_args()
    (on_gpu if args.gpu else on_cpu)(args.rows, args.repeats)


if __name__ == "__main__":
    main()
