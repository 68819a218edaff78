"""isl's schedules as plain data: bands, what may run in parallel, and that nothing is lost."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import islpy as isl
import pytest

from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.isl_utils import val
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    print_tree,
    schedule_of,
)
from tcdsl.poly.scheduler import (
    Band,
    Instances,
    Parts,
    Scheduled,
    coordinate_of,
    schedule_by_isl,
)
from tcdsl.poly.scop import Scop
from tcdsl.poly.verify import why_not_complete

Lower = Callable[..., Scop]

WAVE = """def f(float(M,N) a, float(M,N) c) -> (c) {
    c(i,j) = c(i-1,j) + c(i,j-1) + a(i,j) where i in 1:M, j in 1:N }"""
STENCIL = """def f(float(T,N) a) -> (a) {
    a(t,i) = a(t-1,i-1) + a(t-1,i) + a(t-1,i+1) where t in 1:T, i in 1:N-1 }"""
DIAGONAL = """def f(float(M,N) c) -> (c) {
    c(i,j) = c(i-1,j-1) * 2.0 where i in 1:M, j in 1:N }"""
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def scheduled(scop: Scop) -> Scheduled:
    return schedule_by_isl(scop, dependences_of(scop), [s.name for s in scop.statements])


def bands(node: Scheduled) -> Iterator[Band]:
    match node:
        case Band(body=body):
            yield node
            yield from bands(body)
        case Parts(children=children):
            for child in children:
                yield from bands(child)


def test_a_contraction_is_one_permutable_band(lower: Lower) -> None:
    (band,) = bands(scheduled(lower(MATMUL, (64, 32), (32, 48))))
    assert band.is_permutable
    assert [member.is_coincident for member in band.members] == [True, True, False]
    assert [m.coordinates["S0"] for m in band.members] == [Coordinate(d) for d in range(3)]
    # The initialisation runs at the first k.
    assert band.members[2].coordinates["S0_init"] == AffineCoordinate(())
    assert band.body == Parts((Instances(("S0_init",)), Instances(("S0",))))


def test_a_recurrence_in_two_directions_is_permutable_and_not_coincident(lower: Lower) -> None:
    (band,) = bands(scheduled(lower(WAVE, (30, 20), (30, 20))))
    assert band.is_permutable and len(band.members) == 2
    assert not any(member.is_coincident for member in band.members)


def test_a_stencil_is_skewed(lower: Lower) -> None:
    (band,) = bands(scheduled(lower(STENCIL, (30, 20))))
    assert band.is_permutable and len(band.members) == 2
    t_plus_i = AffineCoordinate(((1, Coordinate(0)), (1, Coordinate(1))))
    assert [member.coordinates["S0"] for member in band.members] == [Coordinate(0), t_plus_i]


def test_a_parallel_outer_loop_is_preferred_to_a_deep_band(lower: Lower) -> None:
    outer = next(bands(scheduled(lower(DIAGONAL, (30, 20)))))
    assert outer.members[0].is_coincident
    function = outer.members[0].coordinates["S0"]
    assert isinstance(function, AffineCoordinate)
    factors = [factor for factor, _ in function.terms]
    assert factors in ([1, -1], [-1, 1])


def test_relaxed_dependences_only_forbid_parallel_loops(lower: Lower) -> None:
    (band,) = bands(scheduled(lower("def f(float(M,N) x) -> (s) { s +=! x(i,j) }", (8, 9))))
    assert band.is_permutable
    assert not any(member.is_coincident for member in band.members)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_statements_without_instances_are_kept(lower: Lower, shape: tuple[int, int]) -> None:
    scop = lower("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", shape)
    assert sorted(_statements(scheduled(scop))) == ["S0", "S0_init"]


def _statements(node: Scheduled) -> list[str]:
    match node:
        case Band(body=body):
            return _statements(body)
        case Parts(children=children):
            return [name for child in children for name in _statements(child)]
        case Instances(statements=statements):
            return list(statements)


def test_independent_statements_that_isl_leaves_unordered_run_in_textual_order(
    lower: Lower,
) -> None:
    scop = lower("def f(float(N) x) -> (a, b) { a(i) = x(i)  b(i) = x(i) }", (9,))
    assert _statements(scheduled(scop)) == ["S0", "S1"]


def test_only_the_statements_asked_for_are_scheduled(lower: Lower) -> None:
    scop = lower("def f(float(N) x) -> (a, b) { a(i) = x(i)  b(i) = a(i) }", (9,))
    assert _statements(schedule_by_isl(scop, dependences_of(scop), ["S1"])) == ["S1"]


def test_options_of_isl_are_left_as_they_were(lower: Lower) -> None:
    before = isl.DEFAULT_CONTEXT.get_schedule_outer_coincidence()
    scheduled(lower(MATMUL, (4, 4), (4, 4)))
    assert isl.DEFAULT_CONTEXT.get_schedule_outer_coincidence() == before


# --- coordinates -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("{ S[i, j] -> [(i)] }", Coordinate(0)),
        ("{ S[i, j] -> [(j + 3)] }", Coordinate(1, -3)),
        ("{ S[i, j] -> [(7)] }", AffineCoordinate((), -7)),
        ("{ S[i, j] -> [(-i)] }", AffineCoordinate(((-1, Coordinate(0)),))),
        (
            "{ S[i, j] -> [(2i + j - 1)] }",
            AffineCoordinate(((2, Coordinate(0)), (1, Coordinate(1))), 1),
        ),
    ],
)
def test_functions_become_coordinates(function: str, expected: object) -> None:
    pw_aff = isl.PwAff(function)
    coordinate = coordinate_of(pw_aff)
    assert coordinate == expected
    again = isl.PwAff.from_aff(coordinate.function(pw_aff.get_domain_space()))
    assert again.is_equal(pw_aff)


def value_at(coordinate: AffineCoordinate, *point: int) -> int:
    space = isl.Set("{ S[i, j] }").get_space()
    position = isl.Point.zero(space)
    for dim, value in enumerate(point):
        position = position.set_coordinate_val(isl.dim_type.set, dim, val(value))
    return int(coordinate.function(space).eval(position).to_python())


def test_sums_of_tiles_are_coordinates() -> None:
    front = AffineCoordinate(((1, Coordinate(0, 1, 32)), (1, Coordinate(1, 0, 8))))
    assert front.position == -1
    for i, j in [(1, 0), (33, 7), (32, 8), (100, 100)]:
        assert value_at(front, i, j) == (i - 1) // 32 + j // 8
    skewed = AffineCoordinate(((2, Coordinate(0)), (1, Coordinate(1))), 3, 4, 5)
    for i, j in [(0, 0), (7, 5), (100, 3)]:
        assert value_at(skewed, i, j) == (2 * i + j - 3) // 4 % 5


def test_affine_loops_are_scheduled_printed_and_verified(lower: Lower) -> None:
    scop = lower(STENCIL, (30, 20))
    skewed = AffineCoordinate(((1, Coordinate(0)), (1, Coordinate(1))), 2, 4)
    front = AffineCoordinate(((1, Coordinate(0)), (2, skewed)), -1)
    alone = Loop("front", {"S0": front}, LoopKind.SERIAL, Leaf("S0"))
    assert print_tree(alone, scop).splitlines()[0] == (
        "serial front: ((t + 2*(((t + i) - 2) / 4)) + 1)"
    )
    assert why_not_complete(scop, alone) is not None  # many instances on one front
    whole = replace(alone, body=Loop("i", {"S0": Coordinate(1)}, LoopKind.SERIAL, Leaf("S0")))
    assert why_not_complete(scop, whole) is None
    domain = isl.UnionSet.from_set(scop.by_name["S0"].domain)
    when = isl.Map.from_union_map(schedule_of(scop, whole).get_map().intersect_domain(domain))
    expected = "{ S0[t,i] -> [t + 2*floor((t + i - 2)/4) + 1, i] : 1 <= t < 30 and 1 <= i < 19 }"
    assert when.is_equal(isl.Map(expected))
