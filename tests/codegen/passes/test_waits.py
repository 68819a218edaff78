"""Where a kernel waits for those before it, and where it lets the next one begin."""

import pytest

from tcdsl.codegen.ast.build import call
from tcdsl.codegen.ast.nodes import Binary, Evaluate, If, Index, Name, Node
from tcdsl.codegen.cuda.source import Overlap
from tcdsl.codegen.passes.waits import _BEGIN, _WAIT, with_waits

ORDERED, FIRST, LAST = Overlap.ORDERED, Overlap.WAITS_FIRST, Overlap.WAITS_LAST
OWN, THEIRS, MORE = (Evaluate(call("use", Name(name))) for name in ("x", "a", "a"))
BODY = [OWN, THEIRS, MORE]


@pytest.mark.parametrize(("own", "next_", "expected"), [
    (ORDERED, ORDERED, BODY),
    (ORDERED, FIRST, [_BEGIN, *BODY]),
    (ORDERED, LAST, [_BEGIN, *BODY]),
    (FIRST, ORDERED, [OWN, _WAIT, THEIRS, MORE]),
    (FIRST, LAST, [OWN, _WAIT, _BEGIN, THEIRS, MORE]),
    (LAST, ORDERED, [*BODY, _WAIT]),
    (LAST, FIRST, [_BEGIN, *BODY, _WAIT]),
])  # fmt: skip
def test_before_what_others_touch_and_at_the_end(
    own: Overlap, next_: Overlap, expected: list[Evaluate]
) -> None:
    assert with_waits(BODY, own, next_, {"a"}) == expected


def test_before_everything_where_tickets_are_taken() -> None:
    assert with_waits(BODY, FIRST, LAST, None) == [_WAIT, _BEGIN, *BODY]


def role(*body: Node, otherwise: tuple[Node, ...] = ()) -> If:
    return If(Name("is_own"), body, otherwise, is_role=True)


def test_the_role_that_touches_what_others_do_waits_alone() -> None:
    body = [role(OWN), role(OWN, THEIRS, MORE), OWN]
    expected = [role(OWN), role(OWN, _WAIT, _BEGIN, THEIRS, MORE), OWN]
    assert with_waits(body, FIRST, FIRST, {"a"}) == expected
    nested = [role(role(OWN), otherwise=(OWN, role(THEIRS)))]
    expected = [role(role(OWN), otherwise=(OWN, role(_WAIT, THEIRS)))]
    assert with_waits(nested, FIRST, ORDERED, {"a"}) == expected


def test_before_the_roles_where_several_touch_it_or_what_comes_later_does() -> None:
    for body in (
        [role(OWN, THEIRS), role(MORE)], [role(OWN, THEIRS), MORE],
        [role(THEIRS, otherwise=(MORE,))], [If(Name("is_own"), (OWN, THEIRS))],
    ):  # fmt: skip
        assert with_waits(body, FIRST, ORDERED, {"a"}) == [_WAIT, *body]


def test_the_blocks_that_a_call_leaves_something_to_do_wait_inside() -> None:
    body = [OWN, If(Name("N"), (OWN, If(Name("N"), (OWN, THEIRS)), OWN))]
    expected = [OWN, If(Name("N"), (OWN, If(Name("N"), (OWN, _WAIT, THEIRS)), OWN))]
    assert with_waits(body, FIRST, ORDERED, {"a"}, {"N"}) == expected
    for other in (
        [If(Name("N"), (OWN, THEIRS)), MORE], [If(Name("i"), (OWN, THEIRS))],
        [If(Name("N"), (THEIRS,), (OWN,))],
    ):  # fmt: skip
        assert with_waits(other, FIRST, ORDERED, {"a"}, {"N"}) == [_WAIT, *other]


def test_a_guard_of_data_may_hold_nowhere() -> None:
    of_data = Binary("<", Index(Name("k"), Name("i")), Name("N"))
    body: list[Node] = [If(of_data, (THEIRS,), is_short=True)]
    assert with_waits(body, FIRST, ORDERED, {"a"}, {"N"}) == [_WAIT, *body]


def test_a_guard_with_a_wait_has_braces() -> None:
    short = If(Name("N"), (THEIRS,), is_short=True)
    expected = [If(Name("N"), (_WAIT, THEIRS))]
    assert with_waits([short], FIRST, ORDERED, {"a"}, {"N"}) == expected


def test_at_the_end_where_nothing_is_touched() -> None:
    assert with_waits(BODY, FIRST, ORDERED, {"b"}) == [*BODY, _WAIT]
