"""cache_read: every read finds its element in the tile, and the copy runs before it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import islpy as isl
import numpy as np
import pytest

from tcdsl.codegen.c.printer import print_plan
from tcdsl.costmodel.machine import Cpu
from tcdsl.lang.comprehension import Const, Index, Load
from tcdsl.lang.ranges.open_sizes import leave_open
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.dtypes import INT32
from tcdsl.lang.types.sema import analyse
from tcdsl.options import Options
from tcdsl.plan.cpu_planner import plan_scop
from tcdsl.poly.accesses import builder_of
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    AnyCoordinate,
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    Node,
    sequence,
)
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Kind, Scop, Storage, loads_of
from tcdsl.poly.verify import why_not_in_bounds, why_not_legal
from tcdsl.rewrites.scop.caching import (
    Buffer,
    Cached,
    cache_read,
    coordinate_expression,
    why_not_cached,
)
from tcdsl.rewrites.scop.rfactor import Partial, rfactor, with_own_accumulators
from tcdsl.schedule.placement import place
from tcdsl.schedule.plan import Kernel, Plan
from tcdsl.source import Source
from tcdsl.testing.comparison import check

Lower = Callable[..., Scop]
Outer = tuple[AnyCoordinate, ...]

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SYRK = "def f(float(M,K) A) -> (C) { C(i,j) +=! A(i,k) * A(j,k) }"
STENCIL = "def f(float(N) x) -> (y) { y(i) = x(i) + x(i+1) + x(i+2) }"
PADDED = (
    "def f(float(N) x) -> (y)"
    " { y(i) = (i >= 1 ? x(i-1) : 0.0) + x(i) + (i < N - 1 ? x(i+1) : 0.0) }"
)
CONVOLUTION = """def f(float(N,C,H,W) I, float(F,C,KH,KW) G) -> (O) {
    O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * G(f,c,kh,kw)
}"""
SAME_CONVOLUTION = """def f(float(C,H,W) I, float(F,C,KH,KW) G) -> (O) {
    O(f,h,w) +=! (h + kh >= 1 && h + kh < H + 1 && w + kw >= 1 && w + kw < W + 1
                  ? I(c, h + kh - 1, w + kw - 1) : 0.0) * G(f,c,kh,kw)
        where h in 0:H, w in 0:W
}"""
TRANSPOSED = "def f(float(M,N) x) -> (y) { y(i,j) = x(j,i) }"
GATHER = "def f(float(E,D) T, int32(B) I) -> (O) { O(b,d) = T(I(b),d) }"
SCATTER = "def f(float(E) t, float(B) x, int32(B) p) -> (t) { t(p(b)) += x(b) }"
HALF = "def f(half(M,N) x) -> (y) { y(i) +=! x(i,j) }"
DIAGONAL = "def f(float(M) x, float(N) w) -> (y) { y(i) +=! x(i+j) * w(j) }"


def tile(position: int, size: int, mod: int = 0) -> Coordinate:
    return Coordinate(position, 0, size, mod)


def loop(name: str, body: Node, kind: LoopKind = LoopKind.SERIAL, **at: AnyCoordinate) -> Loop:
    return Loop(name, at, kind, body)


def dims_of(scop: Scop, name: str) -> Node:
    """All dimensions of a statement, as they stand."""
    node: Node = Leaf(name)
    for position in reversed(range(len(scop.by_name[name].indices))):
        node = loop(f"{name}.{position}", node, **{name: Coordinate(position)})
    return node


def tree_of(cached: Cached, readers: Sequence[str], outer: Outer, swapped: bool = False) -> Node:
    """The copy and its readers in the outer loops; what else there is before and after them."""
    scop = cached.scop
    inside = [cached.copy, *readers]
    if swapped:
        inside = [*readers, cached.copy]
    body = sequence([dims_of(scop, name) for name in inside])
    for position in reversed(range(len(outer))):
        at: dict[str, AnyCoordinate] = dict.fromkeys(readers, outer[position])
        at[cached.copy] = Coordinate(cached.outer[position])
        body = Loop(f"outer{position}", at, LoopKind.SERIAL, body)
    first = min(scop.position(name) for name in readers)
    before = [s.name for s in scop.statements[:first] if s.name != cached.copy]
    after = [s.name for s in scop.statements[first:] if s.name not in readers]
    return sequence([*(dims_of(scop, n) for n in before), body, *(dims_of(scop, n) for n in after)])


def cached_of(scop: Scop, array: str, readers: Sequence[str], outer: Outer) -> Cached:
    return cache_read(scop, array, dict.fromkeys(readers, outer), Buffer(f"{array}.tile"))


def why_not(scop: Scop, tree: Node) -> str | None:
    return why_not_legal(scop, dependences_of(scop), tree)


def reads_of(scop: Scop, reader: str, array: str) -> isl.UnionMap:
    """Return { S[i] -> array[e] } over all of a reader's reads of *array*."""
    union = isl.UnionMap.empty(scop.context.get_space())
    for read in scop.by_name[reader].reads:
        if read.array == array:
            union = union.union(isl.UnionMap.from_map(read.relation))
    return union


def through_the_tile(cached: Cached, reader: str) -> isl.UnionMap:
    """Return { S[i] -> A[e] }: the elements that the tile holds where *reader* reads it."""
    copy = cached.scop.by_name[cached.copy]
    (read,) = copy.reads
    return (
        reads_of(cached.scop, reader, cached.array)
        .apply_range(isl.UnionMap.from_map(copy.write.relation.reverse()))
        .apply_range(isl.UnionMap.from_map(read.relation))
    )


# (source, shapes, array, the outer loops' coordinates): the reader is S0
CASES: list[tuple[str, list[tuple[int, ...]], str, Outer]] = [
    (MATMUL, [(40, 37), (37, 21)], "A", (tile(0, 16), tile(1, 16), tile(2, 8))),
    (MATMUL, [(40, 37), (37, 21)], "B", (tile(0, 16), tile(1, 16), tile(2, 8))),
    (MATMUL, [(40, 37), (37, 21)], "A", (tile(0, 16), tile(1, 16))),
    (MATMUL, [(40, 37), (37, 21)], "B", ()),
    (MATMUL, [(1, 1), (1, 1)], "A", (tile(0, 16), tile(1, 16), tile(2, 8))),
    (MATMUL, [(70, 16), (16, 3)], "A", (tile(0, 32), tile(0, 8, 4), tile(2, 8))),
    (SYRK, [(13, 10)], "A", (tile(0, 4), tile(1, 4), tile(2, 4))),
    (STENCIL, [(100,)], "x", (tile(0, 16),)),
    (STENCIL, [(100,)], "x", (Coordinate(0, -3, 16),)),
    (PADDED, [(50,)], "x", (tile(0, 16),)),
    (PADDED, [(1,)], "x", (tile(0, 16),)),
    (CONVOLUTION, [(2, 5, 11, 12), (3, 5, 3, 2)], "I",
     (tile(0, 1), tile(1, 2), tile(2, 4), tile(3, 4), tile(4, 2))),
    (CONVOLUTION, [(2, 5, 11, 12), (3, 5, 3, 2)], "G",
     (tile(0, 1), tile(1, 2), tile(2, 4), tile(3, 4), tile(4, 2))),
    (SAME_CONVOLUTION, [(3, 9, 10), (2, 3, 3, 3)], "I", (tile(1, 4), tile(2, 4), tile(5, 2))),
    (TRANSPOSED, [(21, 18)], "x", (tile(0, 8), tile(1, 4))),
    (GATHER, [(7, 5), (9,)], "I", (tile(0, 4), tile(1, 2))),
    (HALF, [(9, 21)], "x", (tile(0, 4), tile(1, 8))),
    (DIAGONAL, [(30,), (9,)], "x",
     (AffineCoordinate(((1, tile(0, 4)), (2, tile(1, 4)))), tile(1, 4))),
    ("def f(float(N) x) -> (y) { y(i) = x(N-1-i) + x(i/2) where i in 0:N }", [(33,)], "x",
     (tile(0, 8),)),
    ("def f(float(N) x) -> (y) { y(i) = x(i/3) where i in 0:100 }", [(34,)], "x", (tile(0, 8),)),
    ("def f(float(N) x) -> (y) { y(i) = x(i+5) where i in 2:20 }", [(33,)], "x", ()),
    ("def f(float(N) x) -> (y) { y(i) +=! x(j) where i in 0:30, j in i:i+3 }", [(40,)], "x",
     (tile(0, 8),)),
    ("def f(bool(N) x) -> (y) { y(i) = x(i) where i in 3:20 }", [(33,)], "x", (tile(0, 8),)),
    ("def f(float(N) x) -> (y) { y(i) = x(i) > 0.0 ? x(i) : x(i+1) where i in 0:N-1 }", [(33,)],
     "x", (tile(0, 8),)),
    ("def f(float(N) x) -> (y) { y(i) argmax=! x(i+j) where j in 0:5 }", [(33,)], "x",
     (tile(0, 8),)),
    ("def f(float(N,N) x) -> (y) { y(i) +=! x(i,j) where j in 0:i+1 }", [(19, 19)], "x",
     (tile(0, 4), tile(1, 4))),
]  # fmt: skip


@pytest.mark.parametrize(("source", "shapes", "array", "outer"), CASES)
class TestCases:
    def test_every_read_finds_its_element(
        self, source: str, shapes: list[tuple[int, ...]], array: str, outer: Outer, lower: Lower
    ) -> None:
        before = lower(source, *shapes)
        cached = cached_of(before, array, ["S0"], outer)
        assert through_the_tile(cached, "S0").is_equal(reads_of(before, "S0", array))
        assert reads_of(cached.scop, "S0", array).is_empty()
        assert why_not_in_bounds(cached.scop) is None

    def test_the_copy_runs_before_its_readers(
        self, source: str, shapes: list[tuple[int, ...]], array: str, outer: Outer, lower: Lower
    ) -> None:
        cached = cached_of(lower(source, *shapes), array, ["S0"], outer)
        assert why_not(cached.scop, tree_of(cached, ["S0"], outer)) is None
        late = why_not(cached.scop, tree_of(cached, ["S0"], outer, swapped=True))
        assert late is not None and "violated" in late

    def test_the_tile_of_an_iteration_is_local(
        self, source: str, shapes: list[tuple[int, ...]], array: str, outer: Outer, lower: Lower
    ) -> None:
        cached = cached_of(lower(source, *shapes), array, ["S0"], outer)
        placement = place(cached.scop, [tree_of(cached, ["S0"], outer)])[cached.array]
        assert placement.elements() == prod(cached.sizes)
        assert placement.loop == (f"outer{len(outer) - 1}" if outer else None)


@pytest.mark.slow
def test_rewritten_programs_compute_the_same(
    lower: Lower, unit: Callable[..., Any], batch: Callable[..., Any]
) -> None:
    """Under the outer loops, and as the planner likes it; against the oracle."""
    units, arguments = [], []
    for number, (source, shapes, array, outer) in enumerate(CASES):
        scop = lower(source, *shapes)
        cached = cached_of(with_own_accumulators(scop), array, ["S0"], outer)
        tree = tree_of(cached, ["S0"], outer)
        own = Plan(cached.scop, (Kernel("f", tree),), place(cached.scop, [tree]))
        planned = plan_scop(cached_of(scop, array, ["S0"], outer).scop, Options(), Cpu(2))
        original = unit(source, *shapes)
        c = original.comprehension
        units += [replace(original, c=print_plan(plan, 2)) for plan in (own, planned)]
        arguments += 2 * [_inputs(c, shapes, number)]
    for loaded, inputs in zip(batch(units), arguments, strict=True):
        check(loaded, *inputs)


def _inputs(c: Any, shapes: list[tuple[int, ...]], seed: int) -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(seed)
    made = []
    for name, shape in zip(c.inputs, shapes, strict=True):
        dtype = c.tensors[name].dtype
        numbers = draw.uniform(-1, 1, shape)
        if dtype.is_integer:
            numbers = draw.integers(0, 5, shape)
        elif dtype.name == "bool":
            numbers = draw.random(shape) > 0.5
        made.append(np.asarray(numbers).astype(dtype.name))
    return made


# --- what the rewrite returns ---------------------------------------------------------------
OUTER = (tile(0, 64), tile(1, 64), tile(2, 16))


def test_a_matrix_product(lower: Lower) -> None:
    cached = cached_of(lower(MATMUL, (100, 70), (70, 130)), "A", ["S0"], OUTER)
    copy, array = cached.scop.by_name[cached.copy], cached.scop.arrays[cached.array]
    assert (cached.outer, cached.elements, cached.sizes) == ((0, 1, 2), (3, 4), (64, 16))
    assert copy.kind is Kind.ASSIGN and copy.indices == ("o0", "o1", "o2", "e0", "e1")
    assert array.shape == (2, 3, 5, 64, 16) and array.origin == (0,) * 5
    assert array.storage is Storage.SCRATCH and array.dtype.name == "float32"
    (read,) = copy.reads
    wanted = isl.Map(
        "{ [a, b, c, i, j] -> A[64a + i, 16c + j] : 0 <= a < 2 and 0 <= b < 3 and 0 <= c < 5"
        " and 0 <= i < 64 and 0 <= j < 16 and 64a + i < 100 and 16c + j < 70 }"
    )
    assert read.relation.is_equal(wanted.set_tuple_name(isl.dim_type.in_, copy.name))


def test_the_copy_stands_before_the_initialisation(lower: Lower) -> None:
    """So that the initialisation still stands directly before its updates."""
    cached = cached_of(lower(MATMUL, (100, 70), (70, 130)), "A", ["S0"], OUTER)
    assert [s.name for s in cached.scop.statements] == [cached.copy, "S0_init", "S0"]


def test_a_dimension_of_one_element_has_the_subscript_zero(lower: Lower) -> None:
    outer = (tile(0, 1), tile(1, 2), tile(2, 4), tile(3, 4), tile(4, 2))
    scop = lower(CONVOLUTION, (2, 5, 11, 12), (3, 5, 3, 2))
    cached = cached_of(scop, "I", ["S0"], outer)
    assert cached.sizes == (1, 2, 6, 5)
    (read,) = [r for r in cached.scop.by_name["S0"].reads if r.array == cached.array]
    assert read.subscripts[cached.elements[0]] == Const(0, INT32)


def test_an_array_that_starts_elsewhere(lower: Lower) -> None:
    """The tiles' coordinates start where the iterations do, and the copy reads what exists."""
    source = """def f(float(N) x) -> (y) {
        t(i) = x(i) where i in 5:N
        y(i) = t(i) + t(i+1) where i in 70:N-1
    }"""
    cached = cached_of(lower(source, (200,)), "t", ["S1"], (tile(0, 64),))
    assert cached.scop.arrays[cached.array].origin == (1, 0)
    assert cached.scop.arrays[cached.array].shape == (3, 65)
    assert why_not_in_bounds(cached.scop) is None
    assert [s.name for s in cached.scop.statements] == ["S0", cached.copy, "S1"]


def test_several_readers_share_a_tile(lower: Lower) -> None:
    source = "def f(float(N) x) -> (y, z) { y(i) = x(i) + 1.0\n z(j) = x(j+2) * x(j) }"
    before = lower(source, (100,))
    outer: Outer = (tile(0, 16),)
    cached = cached_of(before, "x", ["S0", "S1"], outer)
    assert cached.sizes == (18,)
    assert [s.name for s in cached.scop.statements] == [cached.copy, "S0", "S1"]
    for reader in ("S0", "S1"):
        assert through_the_tile(cached, reader).is_equal(reads_of(before, reader, "x"))
    assert why_not(cached.scop, tree_of(cached, ["S0", "S1"], outer)) is None


def test_each_operand_of_a_product_with_itself_has_a_tile(lower: Lower) -> None:
    before = lower(SYRK, (130, 70))
    whole = cached_of(before, "A", ["S0"], OUTER)
    assert whole.sizes == (130, 16)  # rows i and rows j: no box that moves holds both
    scop, tiles = before, []
    for read in before.by_name["S0"].reads:
        name = f"A.tile{len(tiles)}"
        made = cache_read(scop, "A", {"S0": OUTER}, Buffer(name), only=[read.subscripts])
        scop, tiles = made.scop, [*tiles, made]
    assert [made.sizes for made in tiles] == [(64, 16), (64, 16)]
    assert {load.tensor for s in [scop.by_name["S0"]] for load in loads_of(s.value)} == {
        made.array for made in tiles
    }
    found = [through_the_tile(replace(made, scop=scop), "S0") for made in tiles]
    assert found[0].union(found[1]).is_equal(reads_of(before, "S0", "A"))


def test_both_operands(lower: Lower) -> None:
    before = lower(MATMUL, (100, 70), (70, 130))
    first = cached_of(before, "A", ["S0"], OUTER)
    second = cached_of(first.scop, "B", ["S0"], OUTER)
    for made, array in ((first, "A"), (second, "B")):
        now = replace(made, scop=second.scop)
        assert through_the_tile(now, "S0").is_equal(reads_of(before, "S0", array))
    init, update = dims_of(before, "S0_init"), dims_of(before, "S0")
    copies = [dims_of(second.scop, made.copy) for made in (first, second)]
    body = sequence([*copies, update])
    for k in reversed(range(3)):
        at: dict[str, AnyCoordinate] = {
            "S0": OUTER[k], first.copy: Coordinate(k), second.copy: Coordinate(k)
        }  # fmt: skip
        kind = LoopKind.PARALLEL if k < 2 else LoopKind.SERIAL
        body = Loop(f"outer{k}", at, kind, body)
    tree = sequence([init, body])
    assert why_not(second.scop, tree) is None
    placements = place(second.scop, [tree])
    assert [placements[made.array].elements() for made in (first, second)] == [1024, 1024]


def test_after_rfactor(lower: Lower) -> None:
    before = lower("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (9, 100))
    split = rfactor(before, "S0", (Partial("j", 0, 32, 0, 4, False),)).scop
    outer = (tile(0, 4), tile(1, 32))
    cached = cached_of(split, "x", ["S0"], outer)
    assert cached.sizes == (4, 32)
    assert through_the_tile(cached, "S0").is_equal(reads_of(before, "S0", "x"))
    assert why_not(cached.scop, tree_of(cached, ["S0"], outer)) is None


def test_a_scattered_subscript_is_served_too(lower: Lower) -> None:
    before = lower(SCATTER, (7,), (20,), (20,))
    cached = cached_of(before, "p", ["S0"], (tile(0, 8),))
    update = cached.scop.by_name["S0"]
    assert {load.tensor for load in loads_of(*update.write.subscripts)} == {"p.tile"}
    assert update.write.relation.is_equal(before.by_name["S0"].write.relation)
    assert through_the_tile(cached, "S0").is_equal(reads_of(before, "S0", "p"))


def test_a_check_is_a_reader_like_any_other(lower: Lower) -> None:
    before = lower(GATHER, (7, 5), (9,))
    (check_,) = [s for s in before.statements if s.kind is Kind.CHECK]
    cached = cached_of(before, "I", [check_.name], (tile(0, 4),))
    assert through_the_tile(cached, check_.name).is_equal(reads_of(before, check_.name, "I"))
    ((_, subscript),) = cached.scop.by_name[check_.name].checked
    assert isinstance(subscript, Load) and subscript.tensor == "I.tile"


# --- that the oracle notices ----------------------------------------------------------------
def test_a_copy_under_other_loops_is_illegal(lower: Lower) -> None:
    outer: Outer = (tile(0, 64), tile(1, 64))
    cached = cached_of(lower(MATMUL, (200, 70), (70, 200)), "A", ["S0"], outer)
    good = tree_of(cached, ["S0"], outer)
    assert why_not(cached.scop, good) is None

    def moved(node: Node, name: str, to: Coordinate, kind: LoopKind) -> Node:
        match node:
            case Loop(body=body):
                body = moved(body, name, to, kind)
                if node.name == name:
                    at = {**node.coordinates, cached.copy: to}
                    return replace(node, coordinates=at, body=body, kind=kind)
                return replace(node, body=body)
            case Leaf():
                return node
        return sequence([moved(child, name, to, kind) for child in node.children])

    later = moved(good, "outer1", Coordinate(1, shift=-1), LoopKind.SERIAL)
    assert "violated" in (why_not(cached.scop, later) or "")
    crossed = moved(good, "outer0", Coordinate(1), LoopKind.SERIAL)
    crossed = moved(crossed, "outer1", Coordinate(0), LoopKind.SERIAL)
    assert "violated" in (why_not(cached.scop, crossed) or "")
    # An iteration early is in time, but not for a loop whose iterations run at once.
    early = moved(good, "outer1", Coordinate(1, shift=1), LoopKind.SERIAL)
    assert why_not(cached.scop, early) is None
    at_once = moved(good, "outer1", Coordinate(1, shift=1), LoopKind.PARALLEL)
    assert "conflict" in (why_not(cached.scop, at_once) or "")


def test_a_tile_that_several_iterations_read_stays_whole(lower: Lower) -> None:
    """Copied in a loop of its own, all the tiles along the third loop live at once."""
    cached = cached_of(lower(MATMUL, (100, 70), (70, 130)), "A", ["S0"], OUTER)
    scop = cached.scop
    body = sequence([dims_of(scop, cached.copy), dims_of(scop, "S0")])
    for k in (1, 0):
        at: dict[str, AnyCoordinate] = {"S0": OUTER[k], cached.copy: Coordinate(k)}
        body = Loop(f"outer{k}", at, LoopKind.SERIAL, body)
    tree = sequence([dims_of(scop, "S0_init"), body])
    assert why_not(scop, tree) is None
    assert place(scop, [tree])[cached.array].elements() == 5 * 64 * 16


# --- what is refused ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("source", "shapes", "array", "readers", "reason"),
    [
        (MATMUL, [(4, 5), (5, 6)], "A", ["S0"], None),
        (MATMUL, [(4, 5), (5, 6)], "A", ["S0_init"], "not read"),
        (MATMUL, [(4, 5), (5, 6)], "C", ["S0"], "not read"),
        (MATMUL, [(4, 0), (0, 6)], "A", ["S0"], "no element"),
        (MATMUL, [(0, 3), (3, 6)], "A", ["S0"], "no element"),
        (GATHER, [(7, 5), (9,)], "T", ["S0"], "gathered"),
        ("def f(float(N) a) -> (c) { c(i) = a(i)\n c(i) = c(i-1) + a(i) where i in 1:N }",
         [(9,)], "c", ["S1"], "S1 writes c"),
        ("def f(float(N) a, float(N) x) -> (y, a, z) "
         "{ y(i) = a(i)\n a(i) = x(i)\n z(i) = a(i) + 1.0 }",
         [(9,), (9,)], "a", ["S0", "S2"], "S1 writes a"),
    ],
)  # fmt: skip
def test_why_not_cached(
    source: str,
    shapes: list[tuple[int, ...]],
    array: str,
    readers: list[str],
    reason: str | None,
    lower: Lower,
) -> None:
    scop = lower(source, *shapes)
    outer: dict[str, Outer] = dict.fromkeys(readers, (tile(0, 4),))
    found = why_not_cached(scop, array, outer)
    assert found is None if reason is None else found is not None and reason in found


def test_a_fold_is_not_served(lower: Lower) -> None:
    before = lower("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (9, 100))
    scop = rfactor(before, "S0", (Partial("j", 0, 1, 8, 8, True),)).scop
    (fold,) = [s for s in scop.statements if s.kind is Kind.FOLD]
    (read,) = fold.reads
    reason = why_not_cached(scop, read.array, {fold.name: (tile(0, 4),)})
    assert reason is not None and "lanes" in reason


def opened(source: str, open_sizes: Sequence[str], **sizes: int) -> Scop:
    (c,) = analyse(parse_program(Source(source)))
    general, special = leave_open(c, sizes, open_sizes, {name: name for name in c.sizes})
    return lower_comprehension(general, special, {})


@pytest.mark.parametrize(
    ("source", "sizes", "array", "outer", "wanted"),
    [
        (MATMUL, {"M": 4, "K": 5, "N": 6}, "A", OUTER, (64, 16)),
        (PADDED, {"N": 9}, "x", (tile(0, 64),), (66,)),
        ("def f(float(N) x) -> (y) { y(i) = x(N-1-i) where i in 0:N }", {"N": 9}, "x",
         (tile(0, 64),), (64,)),
    ],
)  # fmt: skip
def test_tiles_of_open_sizes(
    source: str, sizes: dict[str, int], array: str, outer: Outer, wanted: tuple[int, ...]
) -> None:
    scop = opened(source, tuple(sizes), **sizes)
    cached = cached_of(scop, array, ["S0"], outer)
    assert cached.sizes == wanted
    assert through_the_tile(cached, "S0").is_equal(reads_of(scop, "S0", array))
    assert why_not_in_bounds(cached.scop) is None
    tree = tree_of(cached, ["S0"], outer)
    assert why_not(cached.scop, tree) is None
    assert place(cached.scop, [tree])[cached.array].elements() == prod(wanted)


def test_a_box_of_open_size_is_refused() -> None:
    scop = opened(MATMUL, ("K",), M=4, K=5, N=6)
    without_k = {"S0": (tile(0, 64), tile(1, 64))}
    reason = why_not_cached(scop, "A", without_k)
    assert reason is not None and "no constant size" in reason


# --- expressions ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "coordinate",
    [
        Coordinate(1),
        Coordinate(0, 3, 4, 5),
        Coordinate(2, -3, 4),
        AffineCoordinate(()),
        AffineCoordinate(((1, Coordinate(0)), (-2, Coordinate(1, 0, 3))), 1, 2, 7),
    ],
)
def test_a_coordinate_is_its_expression(coordinate: AnyCoordinate, lower: Lower) -> None:
    update = lower(MATMUL, (9, 9), (9, 9)).by_name["S0"]
    expr = coordinate_expression(coordinate, update.indices)
    found = builder_of(update.indices, "S0", {}).affine(expr)
    assert found is not None
    wanted = isl.PwAff.from_aff(coordinate.function(update.domain.get_space()))
    assert found.is_equal(wanted)
    assert coordinate_expression(Coordinate(1), update.indices) == Index("n")
