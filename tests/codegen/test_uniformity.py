"""Barriers that not all threads of a block meet are found in the text."""

from textwrap import dedent

import pytest

from tcdsl.codegen.uniformity import why_not_uniform

FOLD = "const float w_fold = tc_fold_x<tc_op_add_f32, {}, {}>(t);"


def why_not(text: str, block: tuple[int, int, int] = (64, 4, 1)) -> str | None:
    lines = dedent(text).strip("\n").splitlines()
    return why_not_uniform(lines, block, uniform=["n", "tickets"])


UNIFORM = {
    "no condition": "__syncthreads();",
    "blocks": """
        const int c0 = (int)blockIdx.x;
        if (c0 == 3) {
          __syncthreads();
        }
    """,
    "a loop above the threads": """
        for (int c0 = tcdsl_first(3, (int)blockIdx.x, 7); c0 <= tc_imin(n, 4 * c0); c0 += 7) {
          const int c1 = (int)threadIdx.x;
          x[c1] = 1;
          __syncthreads();
        }
    """,
    "what is beside a guard": """
        const int c1 = (int)threadIdx.x;
        if (c1 < n) {
          x[c1] = 1;
        } else {
          y[c1] = 1;
        }
        __syncthreads();
    """,
    "a predicate inside the call": """
        const bool w_active0 = (int)threadIdx.x < n;
        const float w_fold = tc_fold_x<tc_op_add_f32, 64, 4>((w_active0 ? t : 0));
    """,
    "in one line": "if ((int)blockIdx.y == 1) __syncthreads();",
    "the last block": """
        const int c0 = (int)blockIdx.x;
        if (tc_last_block(tickets + c0, 7)) {
          __syncthreads();
        }
    """,
    "a name that hides another": """
        for (int c1 = (int)threadIdx.x; c1 < n; c1 += 64) {
          x[c1] = 1;
        }
        for (int c1 = 0; c1 < n; c1++) {
          __syncthreads();
        }
    """,
    "an unrolled loop": """
        #pragma unroll
        for (int c2 = 0; c2 < 4; c2++) {
          if (c2 >= n) {
            __syncthreads();
          }
        }
    """,
}

DIVERGENT = {
    "a guard": """
        const int c1 = (int)threadIdx.x;
        if (c1 < n) {
          __syncthreads();
        }
    """,
    "its else": """
        if ((int)threadIdx.y < n) {
          x[0] = 1;
        } else {
          __syncthreads();
        }
    """,
    "in one line": "if ((int)threadIdx.x == 0) __syncthreads();",
    "a bound": """
        const int c1 = (int)threadIdx.x;
        const int i = 4 * c1, j = 2;
        for (int c2 = 0; c2 <= tc_imin(i, n); c2++) {
          __syncthreads();
        }
    """,
    "turns": """
        for (int c1 = (int)threadIdx.x; c1 < n; c1 += 64) {
          __syncthreads();
        }
    """,
    "a guard some levels above": """
        const bool w_active0 = (int)threadIdx.x < n;
        if (w_active0) {
          for (int c2 = 0; c2 < n; c2++) {
            if (c2 > 1) {
              const float w_fold = tc_fold_xy<tc_op_add_f32, 64, 4>(t);
            }
          }
        }
    """,
    "the last block, asked by some": """
        if ((int)threadIdx.y == 0) {
          if (tc_last_block(tickets, 7)) {
            x[0] = 1;
          }
        }
    """,
    "what is read": """
        if (x[(int)blockIdx.x] > 0) {
          __syncthreads();
        }
    """,
    "an index that is read": """
        const int64_t w_index0 = I[0];
        if (w_index0 < n) {
          __syncthreads();
        }
    """,
}


@pytest.mark.parametrize("name", UNIFORM)
def test_what_all_threads_meet(name: str) -> None:
    assert why_not(UNIFORM[name]) is None


@pytest.mark.parametrize("name", DIVERGENT)
def test_what_some_threads_miss(name: str) -> None:
    reason = why_not(DIVERGENT[name])
    assert reason is not None and reason.startswith("not all threads of a block meet ")


def test_the_reason_names_call_and_condition() -> None:
    assert why_not(DIVERGENT["turns"]) == (
        "not all threads of a block meet __syncthreads in"
        " 'for (int c1 = (int)threadIdx.x; c1 < n; c1 += 64) {'"
    )


def test_an_axis_with_one_thread_tells_nothing_apart() -> None:
    assert why_not(DIVERGENT["its else"], (64, 1, 1)) is None
    assert why_not(DIVERGENT["what is read"], (1, 1, 1)) is None


@pytest.mark.parametrize(
    ("axis", "width", "is_met"), [("x", 8, False), ("y", 8, True), ("y", 48, False)]
)
def test_a_fold_within_a_warp_needs_its_own_row(axis: str, width: int, is_met: bool) -> None:
    text = f"if ((int)threadIdx.{axis} < n) {{\n{FOLD.format(width, 8)}\n}}"
    assert (why_not(text, (width, 8, 1)) is None) == is_met
