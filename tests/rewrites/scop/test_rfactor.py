"""rfactor: terms go to partial accumulators, and no element gains or loses one."""

from collections.abc import Callable, Sequence

import islpy as isl
import pytest

from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Kind, Scop, Statement, Storage
from tcdsl.poly.verify import why_not_in_bounds
from tcdsl.rewrites.scop.rfactor import Partial, initialisation, rfactor, why_not_rfactored

Lower = Callable[..., Scop]

SUM = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
KEEP = "def f(float(N) a, float(N,M) x) -> (a) { a(i) += x(i,j) }"
LANES = Partial("j", 0, 1, 8, 8, True)


def chunks(size: int, extent: int) -> Partial:
    return Partial("j", 0, size, 0, -(-extent // size), False)


def new_statements(before: Scop, after: Scop) -> list[Statement]:
    return [s for s in after.statements if s.name not in before.by_name]


def composed(scop: Scop) -> isl.Map:
    """Return { S0[i, j] -> y[e] }: where the fold takes each term, through its partial."""
    update = scop.by_name["S0"]
    (fold,) = [
        s for s in scop.statements if any(r.array == update.write.array for r in s.reads)
    ]  # fmt: skip
    (read,) = [r for r in fold.reads if r.array == update.write.array]
    return update.write.relation.apply_range(read.relation.reverse()).apply_range(
        fold.write.relation
    )


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 65])
@pytest.mark.parametrize("kind", ["lanes", "chunks", "own"])
def test_every_term_reaches_its_element_once(n: int, kind: str, lower: Lower) -> None:
    partials: Sequence[Partial] = {"lanes": (LANES,), "chunks": (chunks(4, n),), "own": ()}[kind]
    before = lower(SUM, (3, n))
    after = rfactor(before, "S0", partials).scop
    assert after.by_name["S0"].domain.is_equal(before.by_name["S0"].domain)
    target = isl.Map("{ S0[i, j] -> y[i] }").intersect_domain(before.by_name["S0"].domain)
    assert composed(after).is_equal(target)
    assert after.by_name["S0"].write.relation.is_single_valued()
    assert why_not_in_bounds(after) is None


@pytest.mark.parametrize("n", [1, 8, 9])
def test_every_partial_that_is_folded_was_initialised(n: int, lower: Lower) -> None:
    for partials in ((LANES,), (chunks(4, n),)):
        before = lower(SUM, (3, n))
        after = rfactor(before, "S0", partials).scop
        init, fold = new_statements(before, after)
        (read,) = fold.reads
        assert init.kind is Kind.INIT
        assert read.relation.range().is_subset(init.write.relation.range())
        assert after.by_name["S0"].write.relation.range().is_subset(init.write.relation.range())


def test_folding_lanes_replaces_the_initialisation(lower: Lower) -> None:
    before = lower(SUM, (3, 9))
    after = rfactor(before, "S0", (LANES,)).scop
    assert "S0_init" not in after.by_name
    (fold,) = [s for s in after.statements if s.kind is Kind.FOLD]
    assert fold.lanes == 8 and fold.reduction is not None and fold.reduction.initialise
    assert fold.domain.is_equal(isl.Set(f"{{ {fold.name}[i] : 0 <= i < 3 }}"))


def test_folding_chunks_keeps_the_initialisation(lower: Lower) -> None:
    before = lower(SUM, (3, 9))
    after = rfactor(before, "S0", (chunks(4, 9),)).scop
    assert "S0_init" in after.by_name
    _, fold = new_statements(before, after)
    assert fold.kind is Kind.UPDATE and fold.n_left == 1 and len(fold.indices) == 2


def test_a_kept_target_is_combined_with(lower: Lower) -> None:
    before = lower(KEEP, (3,), (3, 9))
    after, init, fold = rfactor(before, "S0", (LANES,))
    assert [s for s in after.statements if s.kind is Kind.FOLD] == [fold]
    assert init.kind is Kind.INIT and init.write.array != fold.write.array
    assert fold.reduction is not None and not fold.reduction.initialise


def test_lanes_within_chunks(lower: Lower) -> None:
    before = lower("def f(float(M,N) x) -> (s) { s +=! x(i,j) }", (3, 40))
    chunked = rfactor(before, "S0", (chunks(16, 40),)).scop
    after = rfactor(chunked, "S0", (LANES,)).scop
    kinds = [s.kind for s in after.statements]
    assert kinds.count(Kind.FOLD) == 1 and kinds.count(Kind.UPDATE) == 2
    assert why_not_in_bounds(after) is None


def test_partials_are_scratch_in_the_reductions_type(lower: Lower) -> None:
    before = lower("def f(half(M,N) x) -> (y) { y(i) +=! x(i,j) }", (3, 9))
    after = rfactor(before, "S0", ()).scop
    (name,) = after.arrays.keys() - before.arrays.keys()
    part = after.arrays[name]
    assert part.dtype.name == "float32" and part.storage is Storage.SCRATCH
    assert after.by_name["S0"].write.array == name


def test_new_statements_take_their_place_in_textual_order(lower: Lower) -> None:
    after = rfactor(lower(SUM, (3, 9)), "S0", (LANES,)).scop
    for edge in dependences_of(after).strict:
        assert after.position(edge.source) <= after.position(edge.sink)
    assert after.position("S0") == 1


@pytest.mark.parametrize(
    ("source", "shapes", "name", "reason"),
    [
        (SUM, [(3, 4)], "S0", None),
        (SUM, [(3, 4)], "S0_init", "it is no reduction"),
        ("def f(float(N) x) -> (y) { y(i) = x(i) }", [(3,)], "S0", "it is no reduction"),
        ("def f(float(M,N) x) -> (y) { y(i) argmax=! x(i,j) }", [(3, 4)], "S0", "pairs"),
        ("def f(float(N) x, int32(N) p, float(E) e) -> (g) { g(k) = e(k)\n g(p(i)) += x(i) }",
         [(3,), (3,), (4,)], "S1", "scattered"),
        ("def f(float(N,N) x) -> (y) { y(i+j) +=! x(i,j) }", [(3, 3)], "S0", "plain indices"),
    ],
)  # fmt: skip
def test_why_not_rfactored(
    source: str, shapes: list[tuple[int, ...]], name: str, reason: str | None, lower: Lower
) -> None:
    scop = lower(source, *shapes, check_gathers=False)
    found = why_not_rfactored(scop.by_name[name])
    assert found is None if reason is None else found is not None and reason in found


def test_initialisations_are_found_by_their_statement(lower: Lower) -> None:
    source = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j)\n y(i) += x(i,j) }"
    scop = lower(source, (3, 4))
    assert initialisation(scop, scop.by_name["S0"]) is scop.by_name["S0_init"]
    assert initialisation(scop, scop.by_name["S1"]) is None


@pytest.mark.parametrize("j", [0, 3, 17])
def test_a_partials_coordinate_is_its_expression(j: int, lower: Lower) -> None:
    for partial in (LANES, chunks(4, 20), Partial("j", 2, 3, 5, 5, False)):
        after = rfactor(lower(SUM, (2, 20)), "S0", (partial,)).scop
        relation = after.by_name["S0"].write.relation
        (value,) = _images(relation, (1, j))
        expected = (j - partial.shift) // partial.div
        expected = expected % partial.mod if partial.mod else expected
        assert sorted(value) == sorted((1, expected))


def _images(relation: isl.Map, instance: tuple[int, ...]) -> list[tuple[int, ...]]:
    point = isl.Set(f"{{ S0[{', '.join(map(str, instance))}] }}")
    image = point.apply(relation)
    found: list[tuple[int, ...]] = []

    def collect(p: isl.Point) -> None:
        n = image.dim(isl.dim_type.set)
        values = (p.get_coordinate_val(isl.dim_type.set, d) for d in range(n))
        found.append(tuple(v.to_python() for v in values))

    image.foreach_point(collect)
    return found
