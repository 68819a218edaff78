"""Contractions in tiles: when, how large, within which limits, and that they are right."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.poly.loop_tree import LoopKind, loops_of
from tcdsl.poly.scop import Kind
from tcdsl.schedule.placement import Space

pytestmark = pytest.mark.usefixtures("brief_tiles")  # small products

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
FORMS = {
    "nn": (MATMUL, lambda m, n, k: [(m, k), (k, n)]),
    "nt": (
        "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        lambda m, n, k: [(m, k), (n, k)],
    ),
    "tn": (
        "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
        lambda m, n, k: [(k, m), (k, n)],
    ),
    "transposed result": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(n,m) +=! A(m,k) * B(k,n) }",
        lambda m, n, k: [(m, k), (k, n)],
    ),
    "of itself": (
        "def f(float(M,K) A) -> (C) { C(i,j) +=! A(i,k) * A(j,k) }", lambda m, n, k: [(m, k)],
    ),
    "bias": (
        """def f(float(M,K) A, float(K,N) B, float(N) b) -> (C) {
            c(m,n) +=! A(m,k) * B(k,n)
            C(m,n) = fmax(c(m,n) + b(n), 0.0)
        }""",
        lambda m, n, k: [(m, k), (k, n), (n,)],
    ),
    "update": (
        "def f(float(M,N) C, float(M,K) A, float(K,N) B) -> (C) { C(m,n) += A(m,k) * B(k,n) }",
        lambda m, n, k: [(m, n), (m, k), (k, n)],
    ),
    "batched": (
        "def f(float(B,M,K) A, float(B,K,N) W) -> (C) { C(b,m,n) +=! A(b,m,k) * W(b,k,n) }",
        lambda m, n, k: [(3, m, k), (3, k, n)],
    ),
    "tropical": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) max=! A(m,k) + B(k,n) }",
        lambda m, n, k: [(m, k), (k, n)],
    ),
}  # fmt: skip
SIZES = [(1, 1, 1), (0, 5, 3), (5, 3, 0), (3, 2, 7), (17, 13, 19), (16, 16, 16), (33, 40, 8)]
CONVOLUTION = """def f(float(N,C,H,W) I, float(F,C,3,3) K, float(F) b) -> (O) {
    o(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw)
    O(n,f,h,w) = o(n,f,h,w) + b(f)
}"""


def space_of(unit: Any) -> dict[str, Space]:
    return {name: p.space for name, p in unit.done.plan.placements.items()}


def is_tiled(unit: Any) -> bool:
    return any("operands in shared memory" in why for la in unit.source.launches for why in la.why)


# --- right ----------------------------------------------------------------------------------


@pytest.mark.slow_but("tn")
@pytest.mark.parametrize("form", FORMS)
def test_products_on_a_small_chip(form: str, check_emulated: CheckAll, small_chip: Chip) -> None:
    source, shapes = FORMS[form]
    check_emulated([(source, shapes(*sizes)) for sizes in SIZES], gpu=small_chip)


@pytest.mark.slow_but("nn")
@pytest.mark.parametrize("form", FORMS)
def test_products_with_rests(form: str, check_emulated: CheckAll) -> None:
    source, shapes = FORMS[form]
    check_emulated([(source, shapes(*sizes)) for sizes in ((65, 67, 70), (130, 33, 100))])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["double", "half", "bfloat16", "int32", "int8"])
def test_products_in_other_types(dtype: str, check_emulated: CheckAll, small_chip: Chip) -> None:
    cases = [(MATMUL.replace("float", dtype), [(17, 19), (19, 13)])]
    check_emulated(cases, gpu=small_chip)
    check_emulated([(MATMUL.replace("float", dtype), [(65, 70), (70, 67)])])


@pytest.mark.slow
def test_convolutions(check_emulated: CheckAll, small_chip: Chip) -> None:
    cases = [
        (CONVOLUTION, [(2, 3, 7, 9), (5, 3, 3, 3), (5,)]),
        (CONVOLUTION, [(1, 1, 3, 3), (1, 1, 3, 3), (1,)]),
        (CONVOLUTION, [(1, 4, 10, 12), (8, 4, 3, 3), (8,)]),
    ]
    check_emulated(cases)
    check_emulated(cases, gpu=small_chip)


# --- when, and how --------------------------------------------------------------------------


def test_a_product_has_tiles_in_shared_memory_and_results_in_registers(
    cuda_unit: MakeUnit,
) -> None:
    unit = cuda_unit(MATMUL, (256, 256), (256, 256))
    assert is_tiled(unit) and len(unit.source.launches) <= 2
    spaces = space_of(unit)
    assert [s for n, s in spaces.items() if "tile" in n and "held" not in n] == [Space.SHARED] * 2
    assert [s for n, s in spaces.items() if "part" in n][-1] is Space.PRIVATE
    assert "__syncthreads" in unit.source.text


def test_the_next_step_arrives_while_this_one_is_computed(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(MATMUL, (256, 256), (256, 256))
    rings = [p.ring for n, p in unit.done.plan.placements.items() if "tile" in n]
    assert sorted(ring.buffers for ring in rings) == [2, 2, 4, 4]  # registers, shared memory
    statements = unit.done.plan.scop.statements
    assert [s.groups_left for s in statements if s.kind is Kind.BARRIER] == [1]
    assert {"tc_copy_async", "tc_copy_wait_but"} <= unit.source.functions


@pytest.mark.slow
def test_each_kernel_has_buffers_of_its_own(cuda_unit: MakeUnit) -> None:
    source = """def f(float(M,K) A, float(K,N) B, float(N,L) D) -> (C, E) {
        C(m,n) +=! A(m,k) * B(k,n)
        E(m,l) +=! C(m,n) * D(n,l)
    }"""
    unit = cuda_unit(source, (256, 256), (256, 256), (256, 256))
    assert is_tiled(unit) and not unit.done.is_fallback
    loops = {p.ring.loops for p in unit.done.plan.placements.values() if p.ring is not None}
    assert {name.partition(".")[0] for names in loops for name in names} == {"k0", "k1"}


def test_half_words_arrive_in_registers(cuda_unit: MakeUnit) -> None:
    """Asynchronous copies move 4 bytes at least."""
    choice = {"kernel": "S0", "template": "tile_simt", "stages": 1}
    options = Options(choices={"format": "tcdsl choices", "version": 1, "kernels": [choice]})
    unit = cuda_unit(MATMUL.replace("float", "half"), (256, 255), (255, 255), options=options)
    assert is_tiled(unit) and "tc_copy_async" not in unit.source.functions


def test_operands_lie_as_their_readers_walk_them(cuda_unit: MakeUnit) -> None:
    """Both tiles have results as neighbours, whatever the operands' rows are along."""
    for source, shapes in (FORMS[name] for name in ("nn", "nt", "tn")):
        unit = cuda_unit(source, *shapes(256, 256, 240))
        tiles = [p for p in unit.done.plan.placements.values() if p.is_staged]
        assert {p.dims[-2].extent for p in tiles} == {16} and len(tiles) == 2


def test_small_products_have_no_tiles(cuda_unit: MakeUnit) -> None:
    assert not is_tiled(cuda_unit(MATMUL, (16, 16), (16, 16)))
    assert not is_tiled(cuda_unit(MATMUL, (100_000, 3), (3, 2)))


def test_what_is_no_product_has_no_tiles(cuda_unit: MakeUnit) -> None:
    for source, shapes in (
        ("def f(float(M,K) A, float(K) x) -> (y) { y(m) +=! A(m,k) * x(k) }", [(999, 999), (999,)]),
        ("def f(float(M,N,K) A) -> (C) { C(m,n) +=! A(m,n,k) }", [(99, 99, 99)]),
    ):
        assert not is_tiled(cuda_unit(source, *shapes))


def test_large_products_have_large_tiles(cuda_unit: MakeUnit) -> None:
    """A thread has more results where the chip is full nevertheless."""

    def results(n: int) -> int:
        unit = cuda_unit(MATMUL, (n, 64), (64, n))
        (count,) = [
            p.elements() for name, p in unit.done.plan.placements.items() if "part" in name
        ][-1:]
        return int(count)

    assert results(128) < results(1024) <= results(8192)


def test_the_epilogue_is_in_the_same_kernel(cuda_unit: MakeUnit) -> None:
    source, shapes = FORMS["bias"]
    unit = cuda_unit(source, *shapes(1024, 1024, 64))
    assert is_tiled(unit) and len(unit.source.launches) == 1
    assert space_of(unit)["c"] is Space.PRIVATE


@pytest.mark.slow
def test_tiles_stay_within_shared_memory(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    """Where they do not fit, steps get shorter; in the end there are none."""
    for shared_bytes in (48 << 10, 8 << 10, 2 << 10, 256, 0):
        gpu = replace(
            load_chip("h200"),
            static_shared_bytes_per_block=shared_bytes,
            shared_bytes_per_block=shared_bytes,
        )
        unit = cuda_unit(MATMUL, (128, 100), (100, 128), gpu=gpu)
        plan = unit.done.plan
        used = sum(
            p.elements() * plan.scop.arrays[name].dtype.size_bytes
            for name, p in plan.placements.items()
            if p.space is Space.SHARED
        )
        assert used <= shared_bytes
        check_emulated([(MATMUL, [(65, 70), (70, 67)])], gpu=gpu)


def test_copies_are_statements_that_the_verifier_sees(cuda_unit: MakeUnit) -> None:
    plan = cuda_unit(MATMUL, (256, 256), (256, 256)).done.plan
    copies = [s for s in plan.scop.statements if s.name.endswith("S0_copy")]
    assert len(copies) == 2 and {s.kind for s in copies} == {Kind.ASSIGN}
    threads = [
        la
        for kernel in plan.kernels
        for la in loops_of(kernel.tree)
        if la.kind is LoopKind.THREAD and copies[0].name in la.coordinates
    ]
    assert threads
