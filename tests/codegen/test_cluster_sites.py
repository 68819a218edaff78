"""Which folds of a cluster have slots of their own."""

import pytest

from tcdsl.codegen.cluster_sites import MOST_SITES, with_sites
from tcdsl.codegen.lines import Line, statement_of

MAX = "float a = tc_fold_xc<tc_op_max_f32, 512, 1, 4>(x);"
ARG = "const auto b = tc_argfold_xc<tc_better_max_i8, 64, 1, 2>(x, i);"


def test_folds_are_numbered_in_order() -> None:
    lines, count = with_sites(["{", Line(MAX, "S0"), "}", ARG])
    assert count == 2
    assert "tc_fold_xc<tc_op_max_f32, 512, 1, 4, 0>(x)" in lines[1]
    assert "tc_argfold_xc<tc_better_max_i8, 64, 1, 2, 1>(x, i)" in lines[3]
    assert statement_of(lines[1]) == "S0"


@pytest.mark.parametrize(
    "lines",
    [
        [MAX, "for (int k = 0; k < 2; k++) {", MAX, "}"],
        [MAX, "if (blockIdx.x > 2) {", "{", MAX, "}", "}"],
        [MAX, "tc_cluster_sync();", MAX],
        [MAX],
        [MAX, "bool a = tc_fold_xc<tc_op_or_b, 64, 1, 2>(x);"],
        [MAX, "int8_t a = tc_fold_xc<tc_op_add_i8, 64, 1, 2>(x);"],
        [MAX] * (MOST_SITES + 1),
        ["y[0] = 1;"],
    ],
)
def test_what_is_called_again_has_no_slots_of_its_own(lines: list[str]) -> None:
    assert with_sites(lines) == (lines, 0)
