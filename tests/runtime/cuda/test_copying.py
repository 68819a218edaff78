"""Copies between any strides: dimensions that merge, and the kernel, on the GPU that is none."""

import itertools
from typing import Any

import numpy as np
import pytest

from tcdsl.runtime.arrays import row_major
from tcdsl.runtime.cuda import copying
from tcdsl.runtime.cuda.copying import copy_array, merge
from tcdsl.runtime.cuda.device import primary_context


def copy_kernel(p: list[int]) -> None:
    """Do what the kernel's text says, for elements of four bytes."""
    import ctypes

    source, target, count, *rest = p
    signed = [n - (1 << 64) if n >> 63 else n for n in rest]
    shape, one, other = signed[:8], signed[8:16], signed[16:]
    indices = list(itertools.product(*map(range, shape)))
    assert len(indices) == count
    for index in indices:
        read = source + 4 * sum(map(int.__mul__, index, one))
        write = target + 4 * sum(map(int.__mul__, index, other))
        ctypes.memmove(write, read, 4)


@pytest.fixture
def copies(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    fake.kernels["tc_copy"] = copy_kernel
    copying._program.cache_clear()
    monkeypatch.setenv("TCDSL_CACHE", "off")

    def copy(source: Any, target: Any) -> None:
        context = primary_context()
        steps = [tuple(s // 4 for s in x.strides) for x in (source, target)]
        with context.current():
            copy_array(
                context, (source.ctypes.data, steps[0]), (target.ctypes.data, steps[1]),
                source.shape, 4, 0,
            )  # fmt: skip

    yield copy
    copying._program.cache_clear()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x[::2, 1:],
        lambda x: x[::-1, ::-1],
        lambda x: x[:, :, None, 0],
        lambda x: x[:, 0:0],
        lambda x: np.broadcast_to(x[:1], (3, *x.shape[1:])),
        lambda x: x.reshape(2, 2, 3, 5, 1).transpose(4, 2, 0, 3, 1),
    ],
)
def test_copies(copies: Any, view: Any) -> None:
    source = view(np.arange(60, dtype="f4").reshape(4, 3, 5))
    target = np.full(source.shape, -1, "f4")
    copies(source, target)
    np.testing.assert_array_equal(target, source)
    # And into a view.
    room = np.full([2 * n for n in source.shape], -1, "f4")
    inside = room[tuple(slice(0, 2 * n, 2) for n in source.shape)]
    copies(source, inside)
    np.testing.assert_array_equal(inside, source)
    assert (room == -1).sum() == room.size - source.size


def test_dense_arrays_need_no_kernel(copies: Any, fake: Any) -> None:
    copies(np.zeros((3, 4), "f4"), np.ones((3, 4), "f4"))
    assert fake.launched == []


@pytest.mark.parametrize(
    ("shape", "one", "other", "merged"),
    [
        ((4, 3, 5), (15, 5, 1), (15, 5, 1), ([60], [1], [1])),
        ((4, 3, 5), (15, 5, 1), (30, 5, 1), ([4, 15], [15, 1], [30, 1])),
        ((1, 3, 1), (99, 2, 7), (1, 1, 1), ([3], [2], [1])),
        ((), (), (), ([], [], [])),
        ((4, 4), (1, 4), (4, 1), ([4, 4], [1, 4], [4, 1])),
    ],
)
def test_merging(shape: Any, one: Any, other: Any, merged: Any) -> None:
    assert merge(shape, one, other) == merged


def test_the_text_compiles_for_every_size(fake: Any) -> None:
    for size_bytes in (1, 2, 4, 8):
        program = copying._program("sm_90", size_bytes)
        assert program._code.startswith(b"\x7fELF")
    assert row_major((2, 3)) == (3, 1)
