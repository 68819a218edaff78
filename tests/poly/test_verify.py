"""The legality oracle: it accepts what is right, and every kind of defect makes it fail."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import islpy as isl
import pytest

from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    Node,
    Sequence,
    sequence,
    terms_told,
)
from tcdsl.poly.scop import Scop
from tcdsl.poly.verify import (
    are_digits,
    schedule_of,
    violated_dependences,
    why_not_complete,
    why_not_free_of_races,
    why_not_in_bounds,
    why_not_legal,
    why_not_ordered,
)

Lower = Callable[..., Scop]

SUM = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
SCAN = "def f(float(N) a) -> (c) { c(i) = a(i)\n c(i) = c(i-1) + a(i) where i in 1:N }"
# (1, -1): the loops may not be interchanged, and neither of them alone carries everything.
SKEWED = """def f(float(T,N) a) -> (c) {
    c(t,i) = a(t,i)
    c(t,i) = c(t-1,i+1) + a(t,i) where t in 1:T, i in 0:N-1
}"""

_names = iter(range(10**6))


def loop(body: Node, kind: LoopKind = LoopKind.SERIAL, **coordinates: Coordinate) -> Loop:
    return Loop(f"loop{next(_names)}", coordinates, kind, body)


def at(position: int, shift: int = 0, div: int = 1, mod: int = 0) -> Coordinate:
    return Coordinate(position, shift, div, mod)


def sum_tree(kind_i: LoopKind = LoopKind.SERIAL, kind_j: LoopKind = LoopKind.SERIAL) -> Node:
    """for i: { y[i] = 0; for j: y[i] += x[i,j] }"""
    inner = loop(Leaf("S0"), kind_j, S0=at(1))
    body = sequence([Leaf("S0_init"), inner])
    return loop(body, kind_i, S0_init=at(0), S0=at(0))


def scan_tree(kind: LoopKind = LoopKind.SERIAL) -> Node:
    return sequence([loop(Leaf("S0"), S0=at(0)), loop(Leaf("S1"), kind, S1=at(0))])


def why_not(scop: Scop, tree: Node) -> str | None:
    return why_not_legal(scop, dependences_of(scop), tree)


# --- what is right --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (5, 7)])
@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTOR])
def test_rows_may_run_in_any_order(shape: tuple[int, int], kind: LoopKind, lower: Lower) -> None:
    assert why_not(lower(SUM, shape), sum_tree(kind)) is None


def test_a_reduction_may_run_in_any_serial_order(lower: Lower) -> None:
    swapped = loop(loop(Leaf("S0"), S0=at(0)), S0=at(1))
    strided = loop(loop(loop(Leaf("S0"), S0=at(1, 0, 4)), S0=at(0)), S0=at(1, 0, 1, 4))
    for updates in (swapped, strided):
        tree = sequence([loop(Leaf("S0_init"), S0_init=at(0)), updates])
        assert why_not(lower(SUM, (5, 7)), tree) is None


def test_recurrences_run_as_written(lower: Lower) -> None:
    assert why_not(lower(SCAN, (9,)), scan_tree()) is None
    tiled = loop(loop(Leaf("S1"), S1=at(0, 0, 1, 4)), S1=at(0, 0, 4))
    tree = sequence([loop(Leaf("S0"), S0=at(0)), tiled])
    assert why_not(lower(SCAN, (9,)), tree) is None


# --- what is wrong --------------------------------------------------------------------------


def test_an_initialisation_after_its_updates_is_found(lower: Lower) -> None:
    updates = loop(loop(Leaf("S0"), S0=at(1)), S0=at(0))
    tree = sequence([updates, loop(Leaf("S0_init"), S0_init=at(0))])
    scop = lower(SUM, (3, 4))
    reason = why_not_ordered(scop, dependences_of(scop), tree)
    assert reason is not None and "S0_init" in reason and "violated" in reason
    assert why_not(scop, tree) == reason


def test_an_initialisation_inside_the_reduced_loop_is_found(lower: Lower) -> None:
    # for j: for i: { y[i] = 0; y[i] += x[i,j] } with the initialisation at j = its own i.
    inner = loop(sequence([Leaf("S0_init"), Leaf("S0")]), S0_init=at(0), S0=at(0))
    tree = loop(inner, S0_init=at(0), S0=at(1))
    reason = why_not(lower(SUM, (3, 4)), tree)
    assert reason is not None and "violated" in reason


def test_a_reversed_recurrence_is_found(lower: Lower) -> None:
    scop = lower(SCAN, (9,))
    dependences = dependences_of(scop)
    schedule = schedule_of(scop, loop(Leaf("S1"), S1=at(0)))
    band = schedule.get_root().child(0).child(0)
    own = dependences.between("S1", "S1")
    assert violated_dependences(schedule, own, scop).is_empty()
    factor = isl.MultiVal.zero(band.band_get_space()).set_at(
        0, isl.Val.int_from_si(isl.DEFAULT_CONTEXT, -1)
    )
    flipped = band.band_scale(factor).get_schedule()
    assert not violated_dependences(flipped, own, scop).is_empty()


def test_a_recurrence_in_strides_is_found(lower: Lower) -> None:
    scrambled = loop(loop(Leaf("S1"), S1=at(0, 0, 4)), S1=at(0, 0, 1, 4))
    tree = sequence([loop(Leaf("S0"), S0=at(0)), scrambled])
    reason = why_not(lower(SCAN, (9,)), tree)
    assert reason is not None and "violated" in reason


def test_interchanged_loops_of_a_skewed_recurrence_are_found(lower: Lower) -> None:
    scop = lower(SKEWED, (4, 5))
    first = loop(loop(Leaf("S0"), S0=at(1)), S0=at(0))
    written = loop(loop(Leaf("S1"), S1=at(1)), S1=at(0))
    swapped = loop(loop(Leaf("S1"), S1=at(0)), S1=at(1))
    assert why_not(scop, sequence([first, written])) is None
    reason = why_not(scop, sequence([first, swapped]))
    assert reason is not None and "S1" in reason


@pytest.mark.parametrize("kind", [LoopKind.PARALLEL, LoopKind.VECTOR])
def test_a_concurrent_loop_over_updates_of_one_element_is_found(
    kind: LoopKind, lower: Lower
) -> None:
    scop = lower(SUM, (3, 4))
    tree = sum_tree(kind_j=kind)
    reason = why_not_free_of_races(scop, dependences_of(scop), tree)
    assert reason is not None and f"{kind} loop" in reason
    assert why_not(scop, tree) == reason
    # The order alone is right: only the race check can tell.
    assert why_not_ordered(scop, dependences_of(scop), tree) is None


@pytest.mark.parametrize("kind", [LoopKind.PARALLEL, LoopKind.VECTOR])
def test_a_concurrent_recurrence_is_found(kind: LoopKind, lower: Lower) -> None:
    reason = why_not(lower(SCAN, (9,)), scan_tree(kind))
    assert reason is not None and "conflict" in reason


def test_one_value_of_a_concurrent_loop_has_no_race(lower: Lower) -> None:
    assert why_not(lower(SUM, (3, 1)), sum_tree(kind_j=LoopKind.PARALLEL)) is None


def test_repeated_instances_are_found(lower: Lower) -> None:
    # No loop over j: all updates of a row would be one instance.
    tree = loop(sequence([Leaf("S0_init"), Leaf("S0")]), S0_init=at(0), S0=at(0))
    scop = lower(SUM, (3, 4))
    reason = why_not_complete(scop, tree)
    assert reason is not None and "S0 run an instance twice or never" in reason
    assert why_not(scop, tree) == reason


def test_a_tile_without_its_points_and_points_without_their_tile_are_found(lower: Lower) -> None:
    scop = lower(SUM, (3, 8))
    for coordinate in (at(1, 0, 4), at(1, 0, 1, 4)):
        inner = loop(Leaf("S0"), S0=coordinate)
        tree = loop(sequence([Leaf("S0_init"), inner]), S0_init=at(0), S0=at(0))
        reason = why_not_complete(scop, tree)
        assert reason is not None and "twice or never" in reason


def test_digits_tell_all_values_apart() -> None:
    rng, n_digits = random.Random(0), 0
    for _ in range(500):
        digits = [at(0, rng.choice((0, 0, 1)), rng.choice((1, 2, 4, 8)), rng.choice((0, 1, 2, 4)))
                  for _ in range(rng.randint(1, 4))]  # fmt: skip
        if are_digits(digits, 0):
            n_digits += 1
            assert len({tuple(_value(digit, x) for digit in digits) for x in range(-64, 64)}) == 128
    assert n_digits > 50


def test_digits_tell_the_values_of_an_extent_apart() -> None:
    rng, n_digits = random.Random(1), 0
    for _ in range(500):
        digits = [at(0, rng.choice((0, 0, 1)), rng.choice((1, 2, 4)), rng.choice((1, 2, 4)))
                  for _ in range(rng.randint(0, 4))]  # fmt: skip
        extent, low = rng.randint(1, 12), rng.randint(-3, 3)
        if are_digits(digits, 0, extent):
            n_digits += 1
            values = range(low, low + extent)
            assert len({tuple(_value(digit, x) for digit in digits) for x in values}) == extent
    assert n_digits > 50
    assert not are_digits([at(0, 0, 4, 2), at(0, 0, 1, 4)], 0, 9)  # 0 and 8 are alike


def test_a_sum_tells_its_digits() -> None:
    digits = at(0, 0, 1, 8), at(1, 0, 2, 4)
    assert terms_told(AffineCoordinate(((8, digits[1]), (1, digits[0])))) == digits
    assert terms_told(AffineCoordinate(((4, digits[1]), (1, digits[0])))) == ()  # 4 + 0 = 0 + 4
    assert terms_told(AffineCoordinate(((1, at(0)), (1, at(1))))) == ()


def _value(c: Coordinate, x: int) -> int:
    part = (x - c.shift) // c.div
    return part % c.mod if c.mod else part


def test_digits_are_whole_and_of_one_dimension() -> None:
    assert are_digits([at(0, 3, 8), at(1), at(0, 3, 1, 4), at(0, 3, 4, 2)], 0)
    assert not are_digits([at(0, 3, 8), at(0, 3, 1, 4)], 0)  # none for x / 4 % 2
    assert not are_digits([at(0, 3, 4), at(0, 2, 1, 4)], 0)
    assert not are_digits([at(0, 3, 4, 2), at(0, 3, 1, 4)], 0)  # x and x + 8 are alike
    assert not are_digits([at(0)], 1)
    assert are_digits([at(0, 0, 8), at(0, 0, 8, 1), at(0, 0, 1, 8)], 0)  # a loop of one iteration


def test_a_missing_and_a_doubled_statement_are_found(lower: Lower) -> None:
    scop = lower(SUM, (3, 4))
    updates = loop(loop(Leaf("S0"), S0=at(1)), S0=at(0))
    init = loop(Leaf("S0_init"), S0_init=at(0))
    again = loop(Leaf("S0_init"), S0_init=at(0))
    for tree in (updates, sequence([init, again, updates])):
        assert why_not_complete(scop, tree) is not None
        assert why_not(scop, tree) is not None


@pytest.mark.parametrize("array", ["x", "y"])
def test_an_access_out_of_bounds_is_found(array: str, lower: Lower) -> None:
    scop = lower(SUM, (3, 4))
    assert why_not_in_bounds(scop) is None
    old = scop.arrays[array]
    smaller = tuple(extent - 1 for extent in old.shape if isinstance(extent, int))
    moved = tuple(origin + 1 for origin in old.origin if isinstance(origin, int))
    for changed in (replace(old, shape=smaller), replace(old, origin=moved)):
        wrong = replace(scop, arrays={**scop.arrays, array: changed})
        reason = why_not_in_bounds(wrong)
        assert reason is not None and f"leaves {array}" in reason
        assert why_not(wrong, sum_tree()) == reason


# --- two oracles ----------------------------------------------------------------------------


def _random_tree(scop: Scop, rng: random.Random) -> Node:
    """Return random loops around every statement, in a random order, some of them shared."""
    statements = [s for s in scop.statements if not s.domain.is_empty()]
    shared: list[Mapping[str, Coordinate]] = []
    used: dict[str, set[int]] = {s.name: set() for s in statements}
    for _ in range(rng.randint(0, min(len(s.indices) for s in statements))):
        row = {}
        for s in statements:
            position = rng.choice([d for d in range(len(s.indices)) if d not in used[s.name]])
            used[s.name].add(position)
            row[s.name] = Coordinate(position)
        shared.append(row)
    children: list[Node] = []
    for s in statements:
        rest = [
            piece
            for d in range(len(s.indices))
            if d not in used[s.name]
            for piece in rng.choice([[at(d)], [at(d, 0, 2), at(d, 0, 1, 2)]])
        ]
        rng.shuffle(rest)
        node: Node = Leaf(s.name)
        for coordinate in rest:
            node = Loop(f"loop{next(_names)}", {s.name: coordinate}, LoopKind.SERIAL, node)
        children.append(node)
    rng.shuffle(children)
    tree = sequence(children)
    for shared_row in reversed(shared):
        tree = Loop(f"loop{next(_names)}", shared_row, LoopKind.SERIAL, tree)
    return tree


@pytest.mark.parametrize(
    ("source", "shape"),
    [(SUM, (3, 4)), (SCAN, (5,)), (SKEWED, (4, 4))],
    ids=["sum", "scan", "skewed"],
)
def test_both_order_checks_agree_on_random_trees(
    source: str, shape: tuple[int, ...], lower: Lower
) -> None:
    """The check loop by loop, and the one on isl's schedule map, are written independently."""
    scop = lower(source, shape)
    dependences = dependences_of(scop)
    rng, verdicts = random.Random(1), []
    for _ in range(40):
        tree = _random_tree(scop, rng)
        violated = violated_dependences(schedule_of(scop, tree), dependences.strict, scop)
        reason = why_not_ordered(scop, dependences, tree)
        assert (reason is None) == violated.is_empty(), f"{tree}\n{violated}"
        verdicts.append(reason is None)
    assert True in verdicts and False in verdicts


def test_a_sequence_is_an_order(lower: Lower) -> None:
    assert isinstance(scan_tree(), Sequence)
