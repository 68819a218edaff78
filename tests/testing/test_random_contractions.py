"""Random contractions are of every form, in every type, and no larger than asked."""

import re
from math import prod

import pytest

from tcdsl.testing import contractions
from tcdsl.testing.draft import Extent
from tcdsl.testing.drafted_convolutions import Spatial, _reached
from tcdsl.testing.drafted_products import Axis
from tcdsl.testing.random_contractions import SMALL
from tests.hunts import Program, drawn
from tests.programs import comprehension_of, specialisation_of

pytest.importorskip("hypothesis")

SEEDS, COUNT = range(5, 10), 60  # Hypothesis varies what it has drawn: several seeds vary more

# What some program has, as a pattern of its text.
FORMS = {
    "a transposed operand": r"a0\(k, m\)",
    "a batch": r"t0\(b, \w.*a\d+\(b, ",
    "several reduced indices": r"a0\([^)]*k, l",
    "a slice": r"\((\w, )*\w \+ \d[,)]",
    "a stride": r"\((\w, )*2\*\w \+ \d[,)]",
    "a reversed dimension": r"\w - 1 - \w",
    "gathered rows": r"a\d+\([^)]*i\d+\(\w\)",
    "a scaled operand": r"\* 0\.5 \* a|= 0\.5 \* a",
    "a mask": r"% \d != 0 \? a",
    "a convolution with padding": r"h \+ (2\*)?r - \d >= 0",
    "one of three dimensions": r"t0\([^)]*h[^)]*\).*a0\([^)]*t",
    "a stride and a dilation": r"[23]\*[hwy] \+ 2\*[rst]",
    "a gradient by the data": r"% [23] == 0 \? a0",
    "a scattered convolution": r"t0\([^)]*\bh \+ (2\*)?r",
    "a chain of products": r"t1\(.*\+=! t0\(.*\* a\d|t1\(.*\+=! a\d+\(.*\* t0\(",
    "an operand of two products": r"(?s)t0\(m, n\) \+=! .*a0\(m, k\).*t1\(m, n\) \+=! .*a0\(m, k\)",
    "a sum of two products": r"\+=! .*a0\(.*\) \* .*a\d.*\) [+-] .*a\d+\(.*\) \* |t0\(m, n\) \+= ",
    "three operands": r"\+=! a0\([^)]*\) \* a1\([^)]*\) \* a2",
    "a bias": r"t0\([^)]*\) \+ a\d+\(\w\)",
    "a softmax": r"exp\(t0\([^)]*\) - t1",
    "a place": r"argm(ax|in)=!",
    "a store with a stride": r"t\d\((\w, )*2\*\w[^+]*= t",
    "a converted result": r"-> .*b?float\d*\([^)]*\) t",
}  # fmt: skip


@pytest.mark.slow
def test_every_form_and_type_is_drawn() -> None:
    """Small ones stay small, and some have work enough for tiles."""
    programs = [program for seed in SEEDS for program in drawn(seed, COUNT, contractions())]
    texts = [source for source, _ in programs]
    missing = [name for name, form in FORMS.items() if not any(re.search(form, s) for s in texts)]
    assert missing == []
    types = {str(given.dtype) for _, inputs in programs for given in inputs}
    assert types >= {"float32", "bfloat16", "float16", "float64", "int8", "uint8"}
    most = [most_instances(program) for program in programs]
    assert max(most) <= 4 * SMALL.instances[-1]
    assert sum(instances > 1 << 16 for instances in most) > len(programs) // 20
    assert 0 in most


def most_instances(program: Program) -> int:
    """Return the number of instances of the statement that has the most."""
    source, inputs = program
    c = comprehension_of(source)
    ranges = specialisation_of(c, [given.shape for given in inputs]).ranges
    return max(prod(len(r) for r in one.values()) for one in ranges)


@pytest.mark.parametrize(("results", "elements"), [(0, 0), (1, 3), (4, 9)])
def test_results_reach_elements_if_there_are_some(results: int, elements: int) -> None:
    """What no result adds to was given a range, in which nothing is: seed 5342."""
    at, tap = Axis("h", Extent("H", results)), Axis("r", Extent("R", 3))
    assert _reached("x", Spatial(at, tap, 2, 1, 0)).value == elements
