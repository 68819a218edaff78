"""Coloured code, and its colours without Pygments."""

import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from tcdsl.display.code import code_block, highlighted_lines, runs_of
from tcdsl.display.html import Anchors
from tcdsl.display.loops import WHAT
from tcdsl.display.style import COLOURS
from tcdsl.poly.loop_tree import LoopKind

TEXT = """// a < b
extern "C" __global__ void k(const float *x)
{
  /* two
     lines */
  const int c1 = threadIdx.x; // last
  y[c1] = tc_exp(x[c1]) < 0.5f ? '\\n' : 1;
}
"""


def plain(lines: list[Any]) -> list[str]:
    return [unescape(re.sub(r"<[^>]*>", "", line)) for line in lines]


@pytest.mark.parametrize("text", [TEXT, "", "\n", "\n\n  x\n\n", "x"])
@pytest.mark.parametrize("language", ["c", "cuda"])
def test_colours_change_no_text(text: str, language: str) -> None:
    assert plain(highlighted_lines(text, language)) == text.split("\n")


def test_words_have_their_colours() -> None:
    lines = highlighted_lines(TEXT, "cuda")
    assert '<span class="ink-thread">threadIdx' in lines[5]
    assert '<span class="ink-call">tc_exp</span>' in lines[6]
    assert all('class="ink-comment"' in lines[n] for n in (0, 3, 4))
    used = {ink for line in lines for ink in re.findall(r"ink-(\w+)", line)}
    assert used <= set(COLOURS)


def test_code_is_plain_without_pygments() -> None:
    program = (
        "import sys; sys.modules['pygments'] = None\n"
        "from tcdsl.display.code import highlighted_lines\n"
        "print(highlighted_lines('if (a < b) {', 'c'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "['if (a &lt; b) {']", done.stderr


def test_lines_are_numbered_and_linked(checked: Callable[[str], Any]) -> None:
    statements, sources = ["", "", "", "S0_init", "S0_init", "S0", "", "S0"], {
        "S0_init": "S0", "S0": "S0"
    }  # fmt: skip
    assert runs_of(statements, sources) == {"S0": [(4, 6), (8, 8)]}
    anchors = Anchors("p-")
    block = code_block(TEXT, "cuda", statements, sources, anchors)
    page = checked(f'<i id="p-source-S0"></i>{block}')
    assert page.ids[1:4] == ["p-code-1", "p-code-2", "p-code-3"]
    assert page.links == ["p-source-S0"] * 4


def test_every_kind_of_loop_has_a_colour_and_a_sentence() -> None:
    assert set(WHAT) == set(LoopKind) <= set(COLOURS)
