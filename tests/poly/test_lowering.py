"""Lowering: domains, accesses, initialisations, guards and arrays, as isl objects."""

from collections.abc import Callable

import islpy as isl

from tcdsl.lang.comprehension import Operator
from tcdsl.poly.scop import Kind, Scop, Storage

Lower = Callable[..., Scop]


def test_a_reduction_becomes_an_initialisation_and_updates(lower: Lower) -> None:
    scop = lower("def f(float(N) A) -> (O) { O(i) +=! A(i+k) where k in 0:5 }", (9,))
    assert [(s.name, s.kind) for s in scop.statements] == [
        ("S0_init", Kind.INIT), ("S0", Kind.UPDATE),
    ]  # fmt: skip
    init, update = scop.statements
    assert init.domain.is_equal(isl.Set("{ S0_init[i] : 0 <= i < 5 }"))
    assert update.domain.is_equal(isl.Set("{ S0[i, k] : 0 <= i < 5 and 0 <= k < 5 }"))
    assert init.write.relation.is_equal(isl.Map("{ S0_init[i] -> O[i] : 0 <= i < 5 }"))
    moved = isl.Map("{ S0[i, k] -> A[i + k] : 0 <= i < 5 and 0 <= k < 5 }")
    (read,) = update.reads
    assert read.relation.is_equal(moved)
    assert update.left == ("i",) and update.reduced == ("k",)
    assert update.accumulates and not init.accumulates
    assert update.reduction is not None and update.reduction.operator is Operator.ADD
    assert scop.position("S0") == 1 and scop.by_name["S0"] is update


def test_an_empty_sum_is_initialised_all_the_same(lower: Lower) -> None:
    scop = lower("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (3, 0))
    init, update = scop.statements
    assert update.domain.is_empty()
    assert init.domain.is_equal(isl.Set("{ S0_init[i] : 0 <= i < 3 }"))


def test_updates_without_an_initialisation_stand_alone(lower: Lower) -> None:
    source = "def f(float(N) a, float(N,M) x) -> (a) { a(i) += x(i,j) }"
    (update,) = lower(source, (3,), (3, 4)).statements
    assert update.kind is Kind.UPDATE


def test_arrays_have_boxes_and_owners(lower: Lower) -> None:
    source = "def f(float(N) a) -> (o) { t(i) = a(i-1)\n o(i) = t(i) where i in 3:6 }"
    scop = lower(source, (8,))
    assert scop.arrays["a"].storage is Storage.ARGUMENT and scop.arrays["a"].is_input
    assert scop.arrays["o"].storage is Storage.ARGUMENT and scop.arrays["o"].is_output
    temporary = scop.arrays["t"]
    assert temporary.storage is Storage.SCRATCH
    assert (temporary.origin, temporary.shape) == ((1,), (8,))
    assert (scop.arrays["o"].origin, scop.arrays["o"].shape) == ((3,), (3,))
    assert temporary.size_bytes() == 32 and temporary.rank == 1
    assert scop.statements[0].domain.is_equal(isl.Set("{ S0[i] : 1 <= i < 9 }"))


def test_ranges_may_depend_on_outer_indices(lower: Lower) -> None:
    source = "def f(float(N) a) -> (c) { c(i) +=! a(j) where i in 0:N, j in 0:i+1 }"
    scop = lower(source, (5,))
    triangle = isl.Set("{ S0[i, j] : 0 <= i < 5 and 0 <= j <= i }")
    assert scop.by_name["S0"].domain.is_equal(triangle)


def test_affine_conditions_cut_the_domain_and_others_stay(lower: Lower) -> None:
    source = (
        "def f(float(N,N) a) -> (c) { c(i) +=! a(i,j) where exists j <= i, exists a(i,j) > 0.0 }"
    )
    update = lower(source, (4, 4)).by_name["S0"]
    assert update.domain.is_equal(isl.Set("{ S0[i, j] : 0 <= j <= i < 4 }"))
    assert len(update.conditions) == 1


def test_a_scatter_initialises_the_whole_target(lower: Lower) -> None:
    source = "def f(float(N) x, int32(N) p, float(E) e) -> (g) { g(k) = e(k)\n g(p(n)) +=! x(n) }"
    scop = lower(source, (4,), (4,), (9,), check_gathers=False)
    init = scop.by_name["S1_init"]
    assert init.domain.dim(isl.dim_type.set) == 1
    assert init.write.relation.range().is_equal(isl.Set("{ g[k] : 0 <= k < 9 }"))


def test_an_arg_reduction_keeps_its_best_value_beside_it(lower: Lower) -> None:
    source = "def f(double(N,M) x) -> (y) { y(i) argmax=! x(i,j) where j in 2:M }"
    scop = lower(source, (3, 7))
    init, update = scop.statements
    assert init.companion is not None and update.companion is not None
    best = scop.arrays[update.companion.array]
    assert best.dtype.name == "float64" and best.storage is Storage.SCRATCH
    assert [access.array for access in init.writes] == ["y", best.name]
    assert [access.array for access in update.writes] == ["y", best.name]
    assert update.arg_origin == 2


def test_strides_are_kept(lower: Lower) -> None:
    scop = lower("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (3, 4))
    assert scop.arrays["x"].strides is None
    assert scop.sizes == {"M": 3, "N": 4}
    assert scop.domain.is_equal(
        isl.UnionSet("{ S0_init[i] : 0 <= i < 3; S0[i, j] : 0 <= i < 3 and 0 <= j < 4 }")
    )
