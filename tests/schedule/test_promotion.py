"""Promotion: registers, shared memory or memory, the block's budget, and the padding."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, Node, sequence
from tcdsl.poly.scop import Scop
from tcdsl.schedule.placement import FIXED, Placement, Space
from tcdsl.schedule.promotion import MAX_PRIVATE_BYTES, promote

Lower = Callable[..., Scop]
MakeUnit = Callable[..., Any]
CheckAll = Callable[..., None]

OWN = "def f(float(N) x) -> (y) { a(i) = x(i)\n y(i) = a(i) * 2.0 }"
REVERSED = "def f(float(N) x) -> (y) { a(i) = x(i)\n y(i) = a(N - 1 - i) where i in 0:N }"
ROWS = "def f(float(M,N) x) -> (y) { a(i,j) = x(i,j)\n y(i,j) = a(i,j) * 2.0 }"
TURNED = """def f(float(M,N) x) -> (y) {
    a(i,j) = x(i,j)
    y(i,j) = a(i,N - 1 - j) where i in 0:M, j in 0:N
}"""
FLIPPED = """def f(float(M,N) x) -> (y) {
    a(i,j) = x(i,j)
    y(i,j) = a(j,i)
}"""
N = 64
GPU = load_chip("h200")


def loop(name: str, kind: LoopKind, body: Node, *at: Coordinate, **sizes: int) -> Loop:
    """Return a loop over S0 and S1 at the coordinates *at* (one: the same for both)."""
    first, last = at[0], at[-1]
    extent = sizes.pop("extent", N)
    width = sizes.pop("width", extent if kind in (LoopKind.BLOCK, LoopKind.THREAD) else 0)
    return Loop(name, {"S0": first, "S1": last}, kind, body, extent, width=width, **sizes)


def per_thread(kind: LoopKind = LoopKind.THREAD, **sizes: int) -> Node:
    """threads i: S0; threads i: S1"""
    return sequence([
        loop(f"i{n}", kind, Leaf(f"S{n}"), Coordinate(0), **sizes) for n in range(2)
    ])  # fmt: skip


def rows(inner: Node, kind: LoopKind = LoopKind.BLOCK) -> Node:
    return loop("row", kind, inner, Coordinate(0))


def inner(kind: LoopKind, **sizes: int) -> Node:
    return sequence([
        loop(f"j{n}", kind, Leaf(f"S{n}"), Coordinate(1), **sizes) for n in range(2)
    ])  # fmt: skip


# --- registers ------------------------------------------------------------------------------


def test_an_element_of_one_thread_is_a_register(lower: Lower) -> None:
    assert promote(lower(OWN, (N,)), [per_thread()], GPU) == {"a": Placement("a", None, (FIXED,))}


def test_registers_have_no_address(lower: Lower) -> None:
    """i = thread + 32 turn: the loops over turns are not unrolled, so memory has it."""
    placement = promote(lower(OWN, (N,)), [per_thread(width=32)], GPU)["a"]
    assert placement.space is Space.SHARED and placement.elements() == N


def test_short_loops_that_are_written_out_index_registers(lower: Lower) -> None:
    def tree(kind: LoopKind) -> Node:
        """threads i % 16: { for i / 16: S0; for i / 16: S1 }"""
        points = sequence([
            loop(f"r{n}", kind, Leaf(f"S{n}"), Coordinate(0, 0, 16), extent=4) for n in range(2)
        ])  # fmt: skip
        return loop("i", LoopKind.THREAD, points, Coordinate(0, 0, 1, 16), extent=16)

    scop = lower(OWN, (N,))
    placement = promote(scop, [tree(LoopKind.UNROLL)], GPU)["a"]
    assert placement.space is Space.PRIVATE and placement.elements() == 4
    assert promote(scop, [tree(LoopKind.SERIAL)], GPU)["a"].space is Space.SHARED


def test_a_thread_has_few_registers(lower: Lower) -> None:
    most = MAX_PRIVATE_BYTES // 4

    def place(extent: int) -> Space:
        scop = lower(ROWS, (N, extent))
        tree = loop("row", LoopKind.THREAD, inner(LoopKind.UNROLL, extent=extent), Coordinate(0))
        roomy = replace(GPU, static_shared_bytes_per_block=1 << 20)
        return promote(scop, [tree], roomy)["a"].space

    assert place(most) is Space.PRIVATE
    assert place(most + 1) is Space.SHARED


def test_all_threads_write_copies_of_what_is_uniform(cuda_unit: MakeUnit) -> None:
    """A row's maximum, folded by all of its threads."""
    source = """def f(float(N,D) x) -> (y) {
        m(i) max=! x(i,j)
        y(i,j) = x(i,j) - m(i)
    }"""
    places = cuda_unit(source, (300, 1000)).done.plan.placements
    assert places["m"].space is Space.PRIVATE
    shown = cuda_unit(source.replace("-> (y)", "-> (m, y)"), (300, 1000))
    assert "m" not in shown.done.plan.placements  # an argument
    assert "if (threadIdx.x == 0) m[" in shown.source.text


# --- shared memory --------------------------------------------------------------------------


def test_what_threads_exchange_is_shared(lower: Lower) -> None:
    placement = promote(lower(REVERSED, (N,)), [per_thread()], GPU)["a"]
    assert placement.space is Space.SHARED and placement.loop is None
    assert placement.extents == (N,)


def test_a_shared_row_lives_in_one_iteration_of_the_blocks(lower: Lower) -> None:
    tree = rows(inner(LoopKind.THREAD))
    placement = promote(lower(TURNED, (N, N)), [tree], GPU)["a"]
    assert placement.space is Space.SHARED and placement.loop == "row"
    assert placement.extents == (1, N)


def test_what_blocks_exchange_is_in_memory(lower: Lower) -> None:
    """a(j,i) is another block's row."""
    assert promote(lower(FLIPPED, (N, N)), [rows(inner(LoopKind.THREAD))], GPU) == {}


def test_what_kernels_exchange_is_in_memory(lower: Lower) -> None:
    scop = lower(OWN, (N,))
    trees: list[Node] = [
        Loop(f"i{n}", {f"S{n}": Coordinate(0)}, LoopKind.THREAD, Leaf(f"S{n}"), N, width=N)
        for n in range(2)
    ]
    assert promote(scop, trees, GPU) == {}


def test_what_is_gathered_is_in_memory(lower: Lower) -> None:
    source = """def f(float(N) x, int32(N) at) -> (y) {
        a(i) = x(i)
        y(i) = a(at(i))
    }"""
    scop = lower(source, (N,), (N,), check_gathers=False)
    assert promote(scop, [per_thread()], GPU) == {}


def test_arguments_stay_where_they_are(lower: Lower) -> None:
    scop = lower(OWN.replace("-> (y)", "-> (a, y)"), (N,))
    assert promote(scop, [per_thread()], GPU) == {}


def test_the_budget_gives_way(lower: Lower) -> None:
    """The smallest come first; what does not fit is in memory."""
    source = """def f(float(N) x) -> (y) {
        a(i) = x(i)
        b(i) = double(x(i))
        y(i) = a(N - 1 - i) + float(b(N - 1 - i)) where i in 0:N
    }"""
    scop = lower(source, (N,))
    tree = sequence([
        Loop(f"i{n}", {f"S{n}": Coordinate(0)}, LoopKind.THREAD, Leaf(f"S{n}"), N, width=N)
        for n in range(3)
    ])  # fmt: skip
    for shared_bytes, expected in (
        (12 * N, {"a", "b"}), (12 * N - 1, {"a"}), (4 * N, {"a"}), (4 * N - 1, set()),
    ):  # fmt: skip
        chip = replace(GPU, static_shared_bytes_per_block=shared_bytes)
        assert set(promote(scop, [tree], chip)) == expected


@pytest.mark.slow
def test_programs_are_right_whatever_the_budget(check_emulated: CheckAll) -> None:
    matmul = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    for shared_bytes in (0, 100, 2000, 5000):
        gpu = replace(GPU, static_shared_bytes_per_block=shared_bytes)
        check_emulated(
            [(TURNED, [(5, 37)]), (matmul, [(64, 67), (67, 65)]), (REVERSED, [(200,)])], gpu=gpu
        )


# --- padding --------------------------------------------------------------------------------


def tile(is_column: bool, columns: int) -> Node:
    """for i: { threads j: S0 }, then S1 the same, or: for j: { threads i: S1 }"""
    parts: list[Node] = []
    for name, outer, extents in (
        ("S0", 0, (16, columns)),
        ("S1", int(is_column), (columns, 16) if is_column else (16, columns)),
    ):
        at = [{name: Coordinate(d)} for d in (outer, 1 - outer)]
        threads = Loop(f"t{name}", at[1], LoopKind.THREAD, Leaf(name), extents[1], width=128)
        parts.append(Loop(f"s{name}", at[0], LoopKind.SERIAL, threads, extents[0]))
    return sequence(parts)


@pytest.mark.parametrize(
    ("dtype", "columns", "padding"),
    [("float", 64, 1), ("half", 64, 2), ("double", 64, 1), ("float", 33, 0), ("int8", 128, 4)],
)
def test_columns_do_not_lie_in_one_bank(
    dtype: str, columns: int, padding: int, lower: Lower
) -> None:
    """Rows of an even number of 4-byte words get longer by one, or by an element."""
    scop = lower(ROWS.replace("float", dtype).replace(" * 2.0", ""), (16, columns))
    placement = promote(scop, [tile(True, columns)], GPU)["a"]
    assert placement.space is Space.SHARED and placement.padding == padding
    assert placement.elements() == 16 * (columns + padding)


def test_rows_that_are_read_as_rows_are_not_padded(lower: Lower) -> None:
    scop = lower(TURNED, (16, 64))
    placement = promote(scop, [tile(False, 64)], GPU)["a"]
    assert placement.space is Space.SHARED and placement.padding == 0
