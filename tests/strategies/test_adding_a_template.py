"""The template of docs/adding_a_template.md, as it stands there."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.strategies import catalogue

PAGE = Path(__file__).parents[2] / "docs" / "adding_a_template.md"
ROWS = "def f(float(M,N) x) -> (y) { y(m) +=! x(m,n) * x(m,n) }"


@pytest.fixture
def row_thread(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's template, at the end of those for a GPU."""
    text = PAGE.read_text(encoding="utf-8")
    module: dict[str, Any] = {"__name__": "row_thread"}
    exec(text.partition("```python\n")[2].partition("```\n")[0], module)
    template = module["TEMPLATE"]
    # A reader who follows the page has it in the catalogue already.
    for name in ("GPU_TEMPLATES", "TEMPLATES"):
        others = [t for t in getattr(catalogue, name) if t.name != template.name]
        monkeypatch.setattr(catalogue, name, (*others, template))
    return template


def asked(threads: int) -> Options:
    kernel = {"kernel": "S0", "template": "row_thread", "threads": threads}
    return Options(choices=json.dumps({
        "format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [kernel],
    }))  # fmt: skip


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.slow
def test_the_page_s_template_makes_right_kernels(
    row_thread: Any, check_emulated: Callable[..., None], cuda_unit: Callable[..., Any]
) -> None:
    (launch,) = cuda_unit(ROWS, (1000, 7), options=asked(64)).done.source.launches
    assert launch.block == (64, 1, 1) and launch.grid == (16, 1, 1)
    for threads in (64, 128):
        shapes = [(1, 1), (1, 64), (1000, 7), (129, 33)]
        check_emulated([(ROWS, [shape]) for shape in shapes], options=asked(threads))


def test_it_is_a_candidate_where_rows_are_short(
    row_thread: Any, cuda_unit: Callable[..., Any]
) -> None:
    for n, is_short in ((7, True), (700, False)):
        (weighed,) = cuda_unit(ROWS, (1000, n)).done.plan.weighed
        own = [c for c in weighed.candidates() if c["template"] == "row_thread"]
        assert [("config" in c) for c in own] == ([True] * 3 if is_short else [False])
        fastest = min(c.get("predicted_us", math.inf) for c in weighed.candidates())
        (chosen,) = (c for c in weighed.candidates() if c.get("is_chosen"))
        assert chosen["predicted_us"] <= catalogue.ALIKE * fastest


def test_it_refuses_columns(row_thread: Any, cuda_unit: Callable[..., Any]) -> None:
    source = "def f(float(M,N) x) -> (y) { y(n) +=! x(m,n) }"
    weighed, *_ = cuda_unit(source, (7, 4096)).done.plan.weighed
    (own,) = [c for c in weighed.candidates() if c["template"] == "row_thread"]
    assert own["why_not"] == "neighbours in memory are along n, which all share"
