"""Every kernel of the library as NVRTC sees it, and within a chip's limits.

What the emulator runs is C++ to a host compiler; here the text is compiled by the real thing, which
needs no GPU.  Sizes are those of benchmarks too: they get the vectors, tiles and grids that small
ones do not.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

from tcdsl import library
from tcdsl.codegen.cuda.batch import batched
from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.codegen.device.cuda import FUNCTIONS, header_text, parts_for
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.library import Case
from tcdsl.runtime.nvrtc import why_no_cuda_compiler
from tests.codegen.ptx import cubin_and_ptx, ptx_kernels, stale_loads

MakeUnit = Callable[..., Any]

FAMILIES = ("reduction", "graph", "contraction", "sparse", "network")
PARTS = 6  # each family's programs in as many texts

pytestmark = [
    pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning"),
    pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="there is no NVRTC"),
]


def code_of(sources: list[CudaSource], arch: str) -> bytes:
    """Return the code of *sources*, of which none loads what changes as if it did not."""
    whole = batched(sources).whole
    parts = parts_for(whole.functions & FUNCTIONS.keys())
    cubin, ptx = cubin_and_ptx(f"{header_text(parts)}\n{whole.text}", arch)
    assert len(ptx_kernels(ptx)) == len(whole.kernels)
    # Before compute capability 9.0 no kernel begins before the one before it has ended.
    assert stale_loads(ptx, whole.kernels if arch >= "sm_90" else ()) == []
    return cubin


def some_cases(family: str, part: int) -> list[Case]:
    return list(library.cases(family))[part::PARTS]  # type: ignore[arg-type]


def small_sources(case: Case, cuda_unit: MakeUnit) -> Iterator[CudaSource]:
    """Yield the CUDA of *case* in every type."""
    sizes = max(case.small_sizes, key=lambda sizes: prod(sizes.values()))
    for dtype in case.dtypes:
        inputs = case.make_inputs(sizes, np.random.default_rng(0), dtype)
        shapes = [np.shape(array) for array in inputs.values()]
        yield cuda_unit(library.source_for(case, dtype), *shapes).source


@cache
def full_shapes(name: str) -> list[tuple[int, ...]]:
    """Return the shapes of a program's inputs at the largest of its sizes."""
    case = library.case(name)
    return list(case.input_shapes(case.sizes[-1]).values())


@pytest.mark.one_in(3)
@pytest.mark.slow_but("reduction-0")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("family", FAMILIES)
def test_every_program_in_every_type(family: str, part: int, cuda_unit: MakeUnit) -> None:
    sources = [s for case in some_cases(family, part) for s in small_sources(case, cuda_unit)]
    assert all(source.launches for source in sources)
    code = code_of(sources, "sm_90")
    for launch in (la for source in batched(sources).parts for la in source.kernels):
        assert launch.name.encode() in code


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_program_at_a_benchmark_size(
    family: str, arch: str, first: int, cuda_unit: MakeUnit
) -> None:
    """On the two by turns: each program on the other one in the fuzz run."""
    most = load_chip("h200").blocks_per_cluster if arch >= "sm_90" else 1
    gpu = replace(load_chip("h200"), arch=arch, blocks_per_cluster=most)
    sources = []
    for case in library.cases(family)[first ^ (arch >= "sm_90") :: 2]:  # type: ignore[arg-type]
        source = cuda_unit(case.source, *full_shapes(case.name), gpu=gpu).source
        require_limits(source, gpu)
        sources.append(source)
    assert code_of(sources, arch)


def require_limits(source: CudaSource, gpu: Chip) -> None:
    """Check what a launch would be refused for."""
    for launch in source.kernels:
        assert all(0 < n <= most for n, most in zip(launch.grid, gpu.grid, strict=True)), launch
        x, y, z = launch.block
        assert x * y * z <= gpu.threads_per_block and z <= 64, launch
        assert (
            launch.shared_bytes <= gpu.shared_bytes_per_block
            and launch.cluster <= gpu.most_blocks_per_cluster
        )
