"""Names: every identifier of a program becomes a C identifier that is nobody else's."""

import re

import pytest

from tcdsl.codegen.names import Names

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HOSTILE = (
    "int", "while", "restrict", "main", "pointers", "integers", "fault", "min", "floord", "y0",
    "threadIdx", "__global__", "x);system(", "é", "a" * 300, "x.part0", "_", "__", "1a", "",
    "tc_add_i32", "tcdsl_entry", "c0", "w_part", "NULL", "omp_x", "a b", "a/*", "*/",
)  # fmt: skip


@pytest.mark.parametrize("name", ["x", "row_sum", "A", "Ab", "x1"])
def test_plain_names_stay(name: str) -> None:
    assert Names().of("array", name) == name


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_become_plain_ones(name: str) -> None:
    given = Names().of("array", name)
    assert given != name and IDENTIFIER.fullmatch(given) and len(given) < 60
    assert not re.match(r"(tc|c\d|w_|omp)", given)


def test_a_name_keeps_its_identifier() -> None:
    names = Names()
    assert names.of("array", "x.part0") == names.of("array", "x.part0")


def test_things_of_two_kinds_never_share_an_identifier() -> None:
    names = Names()
    given = [
        names.of(kind, name) for kind in ("array", "index", "size") for name in (*HOSTILE, "x")
    ]
    assert len(set(given)) == len(given)


def test_names_that_mangle_alike_stay_apart() -> None:
    names = Names()
    given = {names.of("array", name) for name in ("a.b", "a-b", "a b", "u0_a_b", "u1_a_b")}
    assert len(given) == 5
