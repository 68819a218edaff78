"""Braces that nobody needs go, and no name changes its meaning."""

from textwrap import dedent

import pytest

from tcdsl.codegen.tidy import without_idle_braces


def tidied(text: str) -> str:
    lines = dedent(text).strip("\n").splitlines()
    return "\n".join(without_idle_braces(lines, 0))


def lines(text: str) -> str:
    return dedent(text).strip("\n")


def test_a_block_that_declares_nothing_is_dissolved() -> None:
    assert tidied("""
        {
          x[0] = 1;
          {
            y[0] = 2;
          }
        }
        z[0] = 3;
    """) == lines("""
        x[0] = 1;
        y[0] = 2;
        z[0] = 3;
    """)  # fmt: skip


def test_names_that_end_with_their_parents_stay_apart_from_nobody() -> None:
    assert tidied("""
        for (int c0 = 0; c0 <= 3; c0++) {
          {
            const int c1 = c0;
            x[c1] = 1;
          }
        }
    """) == lines("""
        for (int c0 = 0; c0 <= 3; c0++) {
          const int c1 = c0;
          x[c1] = 1;
        }
    """)  # fmt: skip


@pytest.mark.parametrize(
    "declared",
    ["const int c1 = 0;", "float s;", "float s[4];", "tc_vec<float, 4> v;", "const bool w = 1;",
     "int64_t a, b;", "uint8_t u = 0;", "tc_pair<float, int64_t> p = q;", "double d = 1;"],
)  # fmt: skip
def test_a_block_before_others_keeps_its_names_to_itself(declared: str) -> None:
    text = lines(f"""
        {{
          {declared}
        }}
        x[0] = 1;
    """)
    assert tidied(text) == text


def test_a_name_of_the_parents_is_not_declared_twice() -> None:
    text = lines("""
        const int c1 = 0;
        {
          const int c1 = 1;
          x[c1] = 1;
        }
    """)
    assert tidied(text) == text
    several = lines("""
        const int i = 0, j = 1;
        {
          const int k = 2, j = 3;
        }
    """)
    assert tidied(several) == several


def test_loops_conditions_and_else_keep_their_braces() -> None:
    text = lines("""
        if (a) {
          x[0] = 1;
        } else {
          x[0] = 2;
        }
        for (int c0 = 0; c0 < 4; c0++) {
          x[c0] = 3;
        }
    """)
    assert tidied(text) == text


def test_lines_are_indented_anew() -> None:
    assert without_idle_braces(["if (a) {", "      x = 1;", "}"], 2) == [
        "    if (a) {",
        "      x = 1;",
        "    }",
    ]


def test_braces_that_do_not_match_are_noticed() -> None:
    with pytest.raises((AssertionError, IndexError)):
        without_idle_braces(["{", "x = 1;"], 0)
