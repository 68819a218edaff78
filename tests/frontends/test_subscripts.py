"""Subscript strings: what they mean, and where they are wrong."""

import numpy as np
import pytest

from tcdsl.errors import ParseError, ShapeError, TCError
from tcdsl.frontends.subscripts import bind, from_sublists, parse


def raised(text: str, *shapes: tuple[int, ...]) -> TCError:
    with pytest.raises(TCError) as caught:
        bind(parse(text), shapes)
    return caught.value


@pytest.mark.parametrize(("text", "canonical"), [
    ("ij,jk->ik", "ij,jk->ik"),
    ("ij,jk", "ij,jk->ik"),
    ("ba", "ba->ab"),
    ("ii", "ii->"),
    ("bA,Ac", "bA,Ac->bc"),
    ("Zb,ba", "Zb,ba->Za"),
    ("...ij,...jk", "...ij,...jk->...ik"),
    (" i j ,\tj k -> i k\n", "ij,jk->ik"),
    ("", "->"),
    (",", ",->"),
    ("->", "->"),
    ("i...->...", "i...->..."),
    ("i->...i", "i->...i"),
])  # fmt: skip
def test_meaning(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical
    assert str(parse(canonical)) == canonical


@pytest.mark.parametrize(("text", "column", "message"), [
    ("ij,jk->ix", 9, "the output's 'x' is a subscript of no operand"),
    ("i->ii", 5, "the output has 'i' twice"),
    ("...->......", 9, "the output has '...' twice"),
    ("i.j", 2, "a '.' that is not part of '...'"),
    ("i....", 5, "a '.' that is not part of '...'"),
    ("ij-jk", 3, "'-' is not part of '->'"),
    ("ij>jk", 3, "'>' is not part of '->'"),
    ("ij=jk", 3, "'=' is not part of '->'"),
    ("i1", 2, "the character '1' cannot be a subscript"),
    ("ij,é", 4, "the character 'é' cannot be a subscript"),
    ("i);system(", 2, "the character ')' cannot be a subscript"),
    ("i\0", 2, "the character '\\x00' cannot be a subscript"),
    ("...i...", 5, "two '...' in one operand"),
    ("ij->ji->ij", 9, "there are two '->'"),
    ("i->i,i", 6, "the output has a comma"),
])  # fmt: skip
def test_errors_of_the_string(text: str, column: int, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert (error.code, error.line, error.column) == ("TC018", 1, column)
    assert error.message == f"einsum: {message}"
    assert error.hint
    assert "^" in str(error)


def test_shapes() -> None:
    bound = bind(parse("...ij,jk"), [(5, 1, 3), (3, 4)])
    assert bound.operands == (("e0", "i", "j"), ("j", "k"))
    assert bound.output == ("e0", "i", "k")
    assert bound.extents == {"e0": 5, "i": 1, "j": 3, "k": 4}


def test_ellipses_are_aligned_at_the_right() -> None:
    bound = bind(parse("a...,...->...a"), [(7, 2, 3), (3,)])
    assert bound.operands == (("a", "e0", "e1"), ("e1",))
    assert bound.output == ("e0", "e1", "a")


def test_an_extent_of_one_is_broadcast() -> None:
    bound = bind(parse("ij,ij,ij"), [(1, 3), (2, 1), (2, 3)])
    assert bound.operands == ((None, "j"), ("i", None), ("i", "j"))
    assert bind(parse("i,i"), [(1,), (0,)]).extents == {"i": 0}
    assert bind(parse("ii,i->i"), [(1, 1), (3,)]).operands == ((None, None), ("i",))


@pytest.mark.parametrize(("text", "shapes", "column", "message"), [
    ("i,i->i", [(3,), (4,)], 3, "the extents of 'i' must be equal"),
    ("ij,jk", [(2, 3), (4, 5)], 4, "the extents of 'j' must be equal"),
    ("ii", [(1, 3)], 2, "the extents of 'i' must be equal"),
    ("ijik->jk", [(2, 3, 4, 5)], 3, "the extents of 'i' must be equal"),
    ("...,...", [(2, 3), (2, 4)], 5, "the extents of '...' must be equal"),
    ("i,i,i", [(1,), (3,), (2,)], 5, "the extents of 'i' must be equal"),
])  # fmt: skip
def test_extents_that_differ(
    text: str, shapes: list[tuple[int, ...]], column: int, message: str
) -> None:
    error = raised(text, *shapes)
    assert isinstance(error, ShapeError)
    assert (error.code, error.line, error.column) == ("TC053", 1, column)
    assert error.message.startswith(message)


@pytest.mark.parametrize(("text", "shapes", "column"), [
    ("ij", [(3,)], 1), ("i", [(3, 4)], 1), ("i,jk", [(3,), (3,)], 3), ("ij...", [(3,)], 1),
    ("i,", [(3,), (3,)], 3),
])  # fmt: skip
def test_ranks_that_differ(text: str, shapes: list[tuple[int, ...]], column: int) -> None:
    error = raised(text, *shapes)
    assert (error.code, error.column) == ("TC051", column)


def test_an_output_without_the_ellipsis() -> None:
    error = raised("...i->i", (2, 3))
    assert (error.code, error.column) == ("TC018", 7)
    assert bind(parse("...i->i"), [(3,)]).output == ("i",)


def test_sublists() -> None:
    a, b = np.zeros(2), np.zeros(3)
    text, operands = from_sublists((a, [0, 27], b, (np.int64(27), Ellipsis), [Ellipsis, 0]))
    assert text == "Ab,b...->...A"
    assert operands[0] is a and operands[1] is b
    assert from_sublists((a, [51, 0]))[0] == "zA"
    assert from_sublists((a, []))[0] == ""


@pytest.mark.parametrize("args", [
    (1, [52]), (1, [-1]), (1, ["a"]), (1, [0.0]), (1, [True]), (1, "ij"), (1, 3), (1, [0], 5),
])  # fmt: skip
def test_wrong_sublists(args: tuple[object, ...]) -> None:
    with pytest.raises(ParseError) as caught:
        from_sublists(args)
    assert caught.value.code == "TC018"


def test_a_sublist_that_is_none_is_told_its_type() -> None:
    with pytest.raises(ParseError, match="the sublist of operand 0 is of type int"):
        from_sublists((1, 3))
