"""Wrappers of isl: bounded work, options, boxes, relations from functions."""

import islpy as isl
import pytest

from tcdsl.poly.isl_utils import (
    QuotaExceededError,
    bounded,
    constant_bounds,
    isl_options,
    map_from_functions,
    points_of_box,
    rest_of,
    within,
)

SET = isl.dim_type.set


def hard() -> isl.Set:
    return isl.Set("{ [a,b,c,d] : 3a + 5b + 7c + 11d = 101 and 0 <= a, b, c, d <= 30 }")


def test_a_quota_stops_isl_and_leaves_it_usable() -> None:
    values = hard()
    with pytest.raises(QuotaExceededError), bounded(20):
        values.lexmin()
    assert isl.DEFAULT_CONTEXT.get_max_operations() == 0
    assert not hard().is_empty()


def test_work_within_the_quota_is_done() -> None:
    with bounded(10**6):
        assert not isl.Set("{ [i] : 0 <= i < 3 }").is_empty()


def test_other_errors_are_not_quotas() -> None:
    with pytest.raises(ZeroDivisionError), bounded(1000):
        raise ZeroDivisionError
    assert isl.DEFAULT_CONTEXT.get_max_operations() == 0


def test_options_hold_for_the_block_even_if_it_fails() -> None:
    before = isl.DEFAULT_CONTEXT.get_tile_scale_tile_loops()
    with pytest.raises(KeyError), isl_options(tile_scale_tile_loops=1 - before):
        assert isl.DEFAULT_CONTEXT.get_tile_scale_tile_loops() == 1 - before
        raise KeyError
    assert isl.DEFAULT_CONTEXT.get_tile_scale_tile_loops() == before


def test_within_bounds_one_dimension() -> None:
    square = isl.Set("{ S[i, j] : 0 <= i, j < 9 }")
    part = within(square, SET, 1, 2, 4)
    assert part.is_equal(isl.Set("{ S[i, j] : 0 <= i < 9 and 2 <= j <= 4 }"))


def test_constant_bounds() -> None:
    triangle = isl.Set("{ S[i, j] : 0 <= i < 5 and i <= j < 2i }")
    assert constant_bounds(triangle, 0) == (1, 4)
    assert constant_bounds(triangle, 1) == (1, 7)
    assert constant_bounds(isl.Set("{ S[i] : false }"), 0) is None
    assert constant_bounds(isl.Set("{ S[i] : i >= 0 }"), 0) is None


def test_points_of_box() -> None:
    assert points_of_box(isl.Set("{ S[i, j] : 1 <= i <= 4 and i <= j <= 7 }")) == 4 * 7
    assert points_of_box(isl.Set("{ S[] }")) == 1
    assert points_of_box(isl.Set("{ S[i] : false }")) == 0
    assert points_of_box(isl.Set("[n] -> { S[i] : 0 <= i < n }")) is None


def test_a_relation_from_functions_leaves_unknown_dimensions_free() -> None:
    space = isl.Set("{ S[i, j] }").get_space()
    local = isl.LocalSpace.from_space(space)
    i, j = (isl.PwAff.from_aff(isl.Aff.var_on_domain(local, SET, d)) for d in range(2))
    relation = map_from_functions(space, [i.add(j), None, i], "A")
    assert relation.is_equal(isl.Map("{ S[i, j] -> A[i + j, k, i] }"))
    assert map_from_functions(space, [], "s").is_equal(isl.Map("{ S[i, j] -> s[] }"))


@pytest.mark.parametrize(
    ("function", "divisor", "rest"),
    [
        ("8 * q + 3", 8, 3), ("8 * q + 3", 4, 3), ("8 * q + 3", 16, None), ("24 * q", 8, 0),
        ("8 * floor((q + 7) / 8)", 8, 0), ("8 * floor(q / 2) - 1", 8, 7), ("q", 8, None),
        ("floor((8 * q + 3 + 7) / 8)", 8, None), ("q", 1, 0),
    ],
)  # fmt: skip
def test_what_functions_leave_when_divided(function: str, divisor: int, rest: int | None) -> None:
    value = isl.PwAff(f"[q] -> {{ [({function})] : 1 <= q <= 100 }}")
    assert rest_of(value, divisor) == rest
    assert rest_of(19, 8) == 3 and rest_of(-1, 8) == 7


def test_pieces_of_a_function_leave_the_same_when_divided() -> None:
    same = isl.PwAff("[q] -> { [(8 * q + 1)] : q < 5; [(16 * q + 9)] : q >= 5 }")
    assert rest_of(same, 8) == 1
    assert rest_of(isl.PwAff("[q] -> { [(8 * q + 1)] : q < 5; [(8 * q)] : q >= 5 }"), 8) is None
