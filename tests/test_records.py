"""Dataclasses of tcdsl: they behave as those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl import records

DECORATORS: dict[str, Callable[..., Any]] = {
    "standard": dataclasses.dataclass,
    "ours": records.dataclass,
}


def _classes(decorator: Callable[..., Any]) -> dict[str, Any]:
    @decorator(frozen=True, slots=True)
    class Point:
        """Two numbers."""

        x: int
        y: int = 2
        names: list[str] = dataclasses.field(default_factory=list, compare=False, repr=False)
        total: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

    @decorator(frozen=True, slots=True)
    class Deeper(Point):
        """A third."""

        z: int = 3

    @decorator(frozen=True)
    class Wide:
        """One field, and room for others."""

        x: float

    @decorator(frozen=True, eq=False)
    class Node:
        """Equal to itself alone."""

        x: int

    @decorator(frozen=True, slots=True, kw_only=True)
    class Named:
        """By name."""

        x: int = 1
        y: int

    @decorator(slots=True)
    class Open:
        """May be changed."""

        x: int
        y: int = 1

    @decorator(frozen=True, slots=True)
    class Own:
        """Has methods of its own."""

        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    @decorator(frozen=True, slots=True)
    class Empty:
        """No fields."""

    found = locals()
    return {name: value for name, value in found.items() if isinstance(value, type)}


@pytest.fixture(params=DECORATORS)
def classes(request: pytest.FixtureRequest) -> dict[str, Any]:
    return _classes(DECORATORS[request.param])


def test_fields_and_defaults(classes: dict[str, Any]) -> None:
    p = classes["Point"](1)
    assert (p.x, p.y, p.names, p.total) == (1, 2, [], 3)
    assert classes["Point"](1).names is not p.names
    assert [f.name for f in dataclasses.fields(p)] == ["x", "y", "names", "total"]
    assert dataclasses.replace(p, y=5).total == 6
    assert dataclasses.asdict(p) == {"x": 1, "y": 2, "names": [], "total": 3}
    assert classes["Deeper"](1, z=4).z == 4 and classes["Deeper"](1).total == 3
    assert classes["Named"](y=2).x == 1
    assert classes["Point"].__doc__ == "Two numbers."
    with pytest.raises(TypeError):
        classes["Named"](1, 2)
    with pytest.raises(TypeError):
        classes["Point"]()


def test_equality_and_hash(classes: dict[str, Any]) -> None:
    point, deeper = classes["Point"], classes["Deeper"]
    assert point(1) == point(1, 2, ["other"]) and hash(point(1)) == hash(point(1, 2, ["other"]))
    assert point(1) != point(2) and point(1) != deeper(1)
    nan = float("nan")
    assert classes["Wide"](nan) == classes["Wide"](nan)  # the same object, as in tuples
    assert classes["Node"](1) != classes["Node"](1)
    assert classes["Own"](1) == 3 and hash(classes["Own"](1)) == 7
    assert classes["Empty"]() == classes["Empty"]() and len({classes["Empty"]() for _ in "ab"}) == 1
    assert classes["Open"](1) == classes["Open"](1, 1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(classes["Open"](1))


def test_representation_and_patterns(classes: dict[str, Any]) -> None:
    point = classes["Point"]
    assert repr(point(1)).endswith("Point(x=1, y=2, total=3)")
    assert repr(classes["Own"](1)) == "own" and repr(classes["Empty"]()).endswith("Empty()")
    assert point.__match_args__ == ("x", "y", "names")
    assert list(inspect.signature(point).parameters) == ["x", "y", "names"]
    assert list(inspect.signature(classes["Named"]).parameters) == ["x", "y"]


def test_frozen_fields(classes: dict[str, Any]) -> None:
    for value in (classes["Point"](1), classes["Wide"](1.0)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
            value.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
            del value.x
    changed = classes["Open"](1)
    changed.x = 2
    assert changed.x == 2
    assert not hasattr(classes["Point"](1), "__dict__")


@records.dataclass(frozen=True, slots=True)
class Kept:
    """At the top of a module, where pickle finds it."""

    x: int
    y: tuple[int, ...] = ()


def test_copies() -> None:
    kept = Kept(1, (2, 3))
    assert pickle.loads(pickle.dumps(kept)) == copy.copy(kept) == copy.deepcopy(kept) == kept
