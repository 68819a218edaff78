"""Chains of stencils: their reach, and what is none."""

from collections.abc import Callable

import pytest

from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.stencil_chains import Chain, chains_of

Lower = Callable[..., Scop]


def chains(lower: Lower, body: str, *shapes: tuple[int, ...], head: str) -> tuple[Chain, ...]:
    return chains_of(lower(f"def f({head}) {{ {body} }}", *shapes))


def test_the_reach_is_what_all_readers_need(lower: Lower) -> None:
    (chain,) = chains(
        lower,
        "a(i) = x(i)\n b(i) = a(i - 1) + a(i + 1)\n c(i) = b(i - 2) + b(i) + a(i + 2)",
        (50,),
        head="float(N) x) -> (c",
    )
    assert chain.members == ("S0", "S1", "S2")
    assert (chain.inside, chain.stored) == (("a", "b"), ("c",))
    assert {name: along for name, (along,) in chain.reach.items()} == {
        "a": (-3, 2), "b": (-2, 0), "c": (0, 0),
    }  # fmt: skip
    assert (chain.lower, chain.extents) == ((3,), (45,))


def test_what_is_stored_reaches_its_own_tile(lower: Lower) -> None:
    (chain,) = chains(lower, "a(i) = x(i)\n b(i) = a(i + 2)", (50,), head="float(N) x) -> (a, b")
    assert chain.reach["a"] == ((0, 2),) and chain.stored == ("a", "b")
    assert (chain.lower, chain.extents) == ((-2,), (52,))


def test_axes_without_distances_are_not_tiled(lower: Lower) -> None:
    (chain,) = chains(
        lower,
        "a(c, i, j) = x(c, i, j)\n b(c, j, i) = a(c, i, j + 1)",
        (3, 20, 20),
        head="float(C, N, M) x) -> (b",
    )
    assert len(chain.stencil) == 1
    assert (chain.dim("a", 0), chain.dim("b", 0)) == (2, 1)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("a(i) = x(i)\n y(i) = a(i)", "no distance"),
        ("a(i) = x(i)\n y(i) = a(2 * i) + a(i + 1) where i in 0:9", "a stride"),
        ("a(i) = x(i)\n y(i) = a(i + 1) + a(0)", "an element that all read"),
        ("a(i) = x(i)\n s +=! a(i)\n y(i) = a(i + 1) * s", "a sum of all between"),
        ("a(i) = x(i)\n x(i) = a(i)\n y(i) = a(i + 1) + x(i)", "an input that has changed"),
    ],
)
def test_what_is_no_chain(lower: Lower, body: str, why: str) -> None:
    outputs = "x, y" if "x(i) = a" in body else "y"
    assert chains(lower, body, (50,), head=f"float(N) x) -> ({outputs}") == (), why


def test_arrays_kept_in_memory_part_chains(lower: Lower) -> None:
    body = (
        "a(i) = x(i) + x(i+1)\n b(i) = a(i) + a(i+1)\n c(i) = b(i) + b(i+1)\n d(i) = c(i) + c(i+1)"
    )
    scop = lower(f"def f(float(N) x) -> (d) {{ {body} }}", (50,))
    first, second = chains_of(scop, apart={"b"})
    assert (first.members, second.members) == (("S0", "S1"), ("S2", "S3"))
    assert first.stored == ("b",) and second.inside == ("c",)
