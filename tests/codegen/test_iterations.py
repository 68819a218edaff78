"""The iterations of a thread in a loop: how many are whole, and how they are printed."""

import re

import pytest

from tcdsl import library
from tcdsl.codegen.ast.build import ONE, ZERO
from tcdsl.codegen.ast.loop_ast import Block, For
from tcdsl.codegen.passes.iterations import Iterations, batch_of, iterations_of, last_number
from tcdsl.options import Options
from tests.codegen.written import code
from tests.emulated_programs import cuda_unit_of

ROWS = "def f(bfloat16(M,N) x) -> (y) { y(i) +=! x(i,j) }"
COLUMNS = "def f(bfloat16(M,N) x) -> (y) { y(j) +=! x(i,j) }"
IMAGES = "def f(float(N,C,P) x) -> (y) { y(c) +=! x(n,c,p) }"


def loop(condition: str) -> For:
    return For("c1", ZERO, code(condition), ONE, Block([]))


@pytest.mark.parametrize(
    ("condition", "width", "expected"),
    [
        ("c1 <= 1023", 256, Iterations(4, 4)),
        ("c1 < 1024", 256, Iterations(4, 4)),
        ("c1 <= 1000", 256, Iterations(3, 4)),
        ("c1 <= 9", 256, Iterations(0, 1)),
        ("c1 <= min(c0, 7) + 1", 4, None),
        ("c1 <= min(7, c0) + (1)", 4, None),
        ("c1 <= c0", 4, None),
        ("c1 <= 7 and c0 > 2", 4, None),
    ],
)
def test_iterations_of_a_loop(condition: str, width: int, expected: Iterations | None) -> None:
    assert iterations_of(loop(condition), width) == expected


def test_a_bound_that_most_blocks_have_is_a_condition() -> None:
    iterations = iterations_of(loop("c1 <= min(255, -256 * c0 + 700)"), 16)
    assert iterations == Iterations(16, 16, code("-256 * c0 + 700 >= 255"))


def test_only_whole_turns_are_taken_in_batches() -> None:
    assert Iterations(29, 30).in_batches(8) == (24, 30)
    assert Iterations(8, 8).in_batches(8) == (0, 8)  # one batch: all of them are what is left
    assert Iterations(3, 4).in_batches(8) == (0, 4)


def test_a_batch_has_as_many_loads_as_registers_hold() -> None:
    assert [batch_of(size, 128) for size in (0, 2, 4, 16, 32, 1024)] == [16, 16, 16, 8, 4, 2]


def test_a_bound_that_differs_between_blocks_is_no_number() -> None:
    assert last_number(loop("c1 <= min(255, c0)")) is None
    assert last_number(loop("c1 < 8")) == 7


def test_a_row_is_taken_in_batches_and_its_end_under_a_guard() -> None:
    text = cuda_unit_of(ROWS, [(1280, 30520)]).source.text
    assert re.search(r"#pragma unroll 16\n *for \(int w_turn\d+ = 0; ", text) is None  # too few
    whole = re.search(r"if \((w_turn\d+) < 3 \|\| c1 <= 3814\)", text)
    assert whole is not None
    assert f"int {whole[1]} = 0; {whole[1]} < 4;" in text


def test_a_short_last_chunk_has_a_loop_of_its_own() -> None:
    text = cuda_unit_of(COLUMNS, [(21128, 768)]).source.text
    assert re.search(r"if \(-(\d+) \* c1 \+ 21127 >= \d+\) \{\n *#pragma unroll", text)
    assert "tc_imin(" in text


def test_a_fold_within_a_warp_is_called_once_for_all_rows_of_a_thread() -> None:
    text = cuda_unit_of(ROWS, [(1 << 20, 64)]).source.text
    assert len(re.findall(r"tc_fold_x<", text)) == 1


@pytest.mark.parametrize(("images", "threads"), [(512, 256), (8192, 1024)])
def test_wide_blocks_take_values_of_registers_one_turn_at_a_time(images: int, threads: int) -> None:
    case = library.case("focal_loss")
    shapes = list(case.input_shapes({"B": images, "C": 1024}).values())
    source = cuda_unit_of(library.source_for(case, "float32"), shapes).source
    assert source.launches[0].block == (threads, 1, 1)
    assert ("w_turn" in source.text) == (threads == 256)


def test_idle_threads_leave_before_the_loop_over_images() -> None:
    as_written = Options(coalesce=False, fuse="none")  # not as one long row, nor in two sums
    text = cuda_unit_of(IMAGES, [(256, 256, 3136)], options=as_written).source.text
    assert text.index("if (c1 <= 783)") < text.index("for (int w_block")


def test_partial_sums_of_columns_are_stored_as_vectors_that_were_not_loaded_before() -> None:
    text = cuda_unit_of(COLUMNS, [(21128, 768)]).source.text
    name = re.search(r"tc_vec<float, 4> (w_vector\d+);", text)
    assert (
        name is not None
        and f"tc_vstore(&u0_y_part1[(c1) * 768 + (128 * c0 + 4 * c2)], {name[1]})" in text
    )
