"""Many programs in one text: every kernel under a name of its own, nothing lost."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.batch import batched
from tcdsl.codegen.device.cuda import FUNCTIONS, header_text, parts_for
from tcdsl.emulator import EmulatedProgram, compile_emulated, emulated_programs
from tcdsl.emulator.cxx import why_no_cxx_compiler
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler

MakeUnit = Callable[..., Any]

TWICE = "def f(float(N) x) -> (y) { y(i) = x(i) * 2.0 }"
GATHER = "def f(float(E) T, int32(B) I) -> (O) { O(b) = T(I(b)) }"


@pytest.fixture(scope="module")
def sources(cuda_unit: MakeUnit) -> list[Any]:
    """Two programs with the same kernel's name, two with the same helper."""
    return [
        cuda_unit(TWICE, (5,)).source,
        cuda_unit(TWICE.replace("2.0", "3.0"), (7,)).source,
        cuda_unit(GATHER, (5,), (3,)).source,
        cuda_unit(GATHER, (9,), (2,)).source,
    ]


def test_every_name_is_there_once(sources: list[Any]) -> None:
    batch = batched(sources)
    names = [launch.name for part in batch.parts for launch in part.launches]
    assert len(names) == len(set(names)) == sum(len(s.launches) for s in sources)
    assert names == [launch.name for launch in batch.whole.launches]
    for name in (*names, "tcdsl_2_clamp"):
        assert len(re.findall(rf"#define \w+ {name}$", batch.whole.text, re.MULTILINE)) == 1
    assert batch.whole.functions >= {"tc_fault"}
    assert batch.whole.workspace_bytes == max(s.workspace_bytes for s in sources)


def test_a_part_is_its_program_under_other_names(sources: list[Any]) -> None:
    for source, part in zip(sources, batched(sources).parts, strict=True):
        assert part.sites == source.sites and part.alignments == source.alignments
        assert [la.parameters for la in part.launches] == [la.parameters for la in source.launches]
        assert [la.grid for la in part.launches] == [la.grid for la in source.launches]


def test_nothing_is_a_batch_too() -> None:
    batch = batched([])
    assert batch.parts == () and batch.whole.text == ""


@pytest.mark.skipif(why_no_cxx_compiler() is not None, reason="there is no C++ compiler")
def test_programs_of_one_object_do_not_meet(sources: list[Any]) -> None:
    first, second, *gathers = emulated_programs(sources)
    for program, n, factor in ((first, 5, 2), (second, 7, 3)):
        y = np.zeros(n, np.float32)
        assert program.run({"x": np.ones(n, np.float32), "y": y}, written={"y"}) is None
        assert (y == factor).all()
    for program, extent, n in zip(gathers, (5, 9), (3, 2), strict=True):
        arrays = {
            "T": np.arange(extent, dtype=np.float32),
            "I": np.full(n, 7, np.int32),
            "O": np.zeros(n, np.float32),
        }
        fault = program.run(arrays, written={"O"})
        assert (fault is None) == (extent > 7)


@pytest.mark.skipif(why_no_cxx_compiler() is not None, reason="there is no C++ compiler")
def test_a_program_needs_its_own_table(sources: list[Any]) -> None:
    batch = batched(sources)
    code = compile_emulated(batch.whole)
    with pytest.raises(KeyError):
        EmulatedProgram(code, batch.parts[0], ()).run({
            "x": np.ones(5, np.float32), "y": np.zeros(5, np.float32),
        })  # fmt: skip


@pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="there is no NVRTC")
def test_nvrtc_takes_it(sources: list[Any]) -> None:
    whole = batched(sources).whole
    parts = parts_for(whole.functions & FUNCTIONS.keys())
    assert compile_cuda(f"{header_text(parts)}\n{whole.text}", "sm_90")
