"""The slots of folds, counted by hand and by the compiler."""

import pytest

from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.costmodel.shared_memory import column_slots, row_slots
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tests.codegen.cubins import shared_bytes

# Threads along x and y: parts of warps, whole ones, powers of two and not, one row, one column.
SHAPES = [
    (1, 1), (1, 64), (2, 48), (4, 8), (4, 24), (5, 3), (7, 1), (8, 4), (16, 40), (32, 1), (32, 20),
    (33, 1), (33, 4), (48, 2), (64, 1), (64, 8), (96, 3), (256, 2), (512, 1), (1024, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "rows", "slots"), [(32, 8, 0), (8, 3, 0), (48, 1, 2), (48, 2, 6), (512, 1, 16)]
)
def test_a_row_has_a_slot_for_its_part_of_each_warp(row: int, rows: int, slots: int) -> None:
    assert row_slots(row, rows) == slots


@pytest.mark.parametrize(
    ("x", "y", "slots"), [(32, 16, 512), (5, 3, 15), (2, 48, 6), (8, 4, 0), (7, 1, 0)]
)
def test_columns_have_a_slot_for_each_row_or_warp(x: int, y: int, slots: int) -> None:
    assert column_slots(x, y) == slots


@pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="there is no NVRTC")
def test_the_device_library_has_as_many() -> None:
    calls, expected = [], {}
    for x, y in SHAPES:
        ways = {"x": row_slots(x, y), "y": column_slots(x, y), "xy": row_slots(x * y, 1)}
        for way, slots in ways.items():
            name = f"tcdsl_{way}_{x}_{y}"
            fold = f"tc_fold_{way}<tc_op_add_f64, {x}, {y}>(p[threadIdx.x])"
            calls.append(f'extern "C" __global__ void {name}(double *p) {{ p[0] = {fold}; }}')
            expected[name] = 8 * slots
    parts = parts_for({"tc_op_add_f64", *(f"tc_fold_{way}" for way in ("x", "y", "xy"))})
    taken = shared_bytes(compile_cuda("\n".join([header_text(parts), *calls]), "sm_90"))
    assert {name: taken.get(name, 0) for name in expected} == expected
