"""Programs whose heads are kept: what is known without analysis, and what still finds mistakes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import RangeError, TCError
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.syntax import parser
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.lang.types.head import Head
from tcdsl.lang.types.sema import analyse
from tcdsl.library import cases, source_for
from tcdsl.runtime.cache import default_cache
from tcdsl.runtime.lazy_defs import LazyProgram, analysed_def
from tcdsl.source import Source

TEXT = """
def twice(float(N) x) -> (y) { y(i) = x(i) + x(i) }
def window(float(H) x, float(K) w) -> (o) { o(h) +=! x(h + k) * w(k) }
def pick(float(N) x, int32(M) at, bfloat16 s) -> (int64(M) y, t) { t(i) = x(at(i)) y(i) = at(i) }
def keep(float(N) x, float(N) y) -> (y, z) { y(i) += x(i) z(i) += x(i) where i in 0:N }
"""
X = np.ones(9, "f4")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(folder))
    monkeypatch.setenv("TCDSL_CACHE", "on")
    return folder


@pytest.fixture
def no_parser(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function: from now on nothing can be parsed."""

    def fails(source: Source) -> None:
        raise AssertionError(f"it was parsed: {source.text}")

    def take_away() -> None:
        monkeypatch.setattr(parser, "parse_program", fails)
        monkeypatch.setattr(parser, "parse_statements", fails)

    return take_away


def analysed(source: Source) -> tuple[Comprehension, ...]:
    return analyse(parse_program(source))


def program(text: str = TEXT) -> LazyProgram:
    source = Source(text)
    return LazyProgram(source, lambda: analysed(source), {"kind": "program"})


def facts(head: Head) -> Any:
    tensors = [
        (n, t.name, t.dtype, t.dims, t.rank, t.is_input, t.is_output, t.needs_out, t.span)
        for n, t in head.tensors.items()
    ]
    return head.name, head.sizes, head.inputs, head.outputs, head.span, tensors


@pytest.mark.parametrize("text", [TEXT, *(source_for(case, case.dtypes[0]) for case in cases())])
def test_a_head_survives_json(text: str) -> None:
    source = Source(text)
    for c in analysed(source):
        head = Head.from_json(c.to_json(), source)
        assert type(head) is Head and head.source is source
        assert facts(head) == facts(c)


def test_kept_heads_need_no_analysis(no_parser: Callable[[], None]) -> None:
    first = program()
    assert first.is_analysed
    first.keep()
    no_parser()
    second = program()
    assert not second.is_analysed
    assert [facts(d.head) for d in second.defs] == [facts(d.head) for d in first.defs]
    assert [d.head.name for d in second.defs] == ["twice", "window", "pick", "keep"]


def test_nothing_is_kept_before_there_is_code(cache: Path) -> None:
    program()
    assert not cache.exists() and not program().defs[0].program._is_kept
    program().keep()
    assert default_cache().stats().entries == 1
    stores = default_cache().stats().stores
    program().keep()
    assert default_cache().stats().stores == stores


def test_the_meaning_is_found_out_when_it_is_needed() -> None:
    program().keep()
    kept = program()
    sized = kept.defs[0].at({"N": 9})
    assert not kept.is_analysed and sized.head.inputs == ("x",)
    assert sized.special.shapes["y"] == (9,) and kept.is_analysed
    assert sized.comprehension is kept.comprehensions["twice"]
    assert sized.comprehension.statements[0].target == "y"


def test_preconditions_hold_before_there_is_code() -> None:
    sizes = {"H": 3, "K": 5}
    with pytest.raises(RangeError) as found:
        program().defs[1].at(sizes)
    program().keep()
    late = program().defs[1].at(sizes)
    with pytest.raises(RangeError) as again:
        late.special  # noqa: B018
    assert str(again.value) == str(found.value)


@pytest.mark.parametrize("defect", [{}, {"defs": 3}, {"defs": [{"name": "twice"}]}, {"defs": [[]]}])
def test_a_defect_is_a_miss(defect: dict[str, Any]) -> None:
    first = program()
    assert first._key is not None
    default_cache().put(first._key, b"", defect)
    assert facts(program().defs[0].head) == facts(first.defs[0].head)


def test_another_text_is_another_program() -> None:
    program().keep()
    assert program(TEXT + " ").is_analysed
    with pytest.raises(TCError):
        program(TEXT.replace("x(i)", "z(i)"))


def test_without_a_cache(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    program().keep()
    monkeypatch.setenv("TCDSL_CACHE", "off")
    assert program().is_analysed
    monkeypatch.setenv("TCDSL_CACHE", "maybe")  # compiling says so
    assert program().is_analysed


def test_of_a_comprehension_nothing_is_kept(cache: Path) -> None:
    definition = analysed_def(analysed(Source(TEXT))[0])
    definition.program.keep()
    assert definition.program.is_analysed and not cache.exists()
    assert definition.comprehension.name == "twice"


# --- through the public names ------------------------------------------------------------------


def keep_all(prog: tcdsl.Program) -> None:
    prog["twice"]._definition.program.keep()


def test_what_a_function_shows_of_a_kept_program(no_parser: Callable[[], None]) -> None:
    first = tcdsl.define(TEXT)
    keep_all(first)
    no_parser()
    second = tcdsl.define(TEXT)
    assert second.names == first.names
    for name in first.names:
        assert second[name].__doc__ == first[name].__doc__
        assert repr(second[name]) == repr(first[name])
        assert list(second[name].specs([X] * len(second[name]._head.inputs)))
    with pytest.raises(tcdsl.TCError, match="did you mean 'twice'"):
        second["twise"]
    with pytest.raises(tcdsl.ShapeError, match="twice"):
        second.twice(X, X)


def test_a_kept_program_computes_the_same() -> None:
    first = tcdsl.define(TEXT)
    keep_all(first)
    w = np.arange(4, dtype="f4")
    for prog in (first, tcdsl.define(TEXT)):
        for target in ("reference", "cpu"):
            np.testing.assert_array_equal(prog.twice(X, target=target), 2 * X)
            np.testing.assert_array_equal(prog.window(X, w, target=target), np.full(6, 6, "f4"))
            with pytest.raises(RangeError):
                prog.window(w, X, target=target)
        assert prog.twice.comprehension.statements[0].name == "S0"
        assert prog.window.output_shapes(X, w) == {"o": (6,)}


def test_computed_statements_are_kept_too(no_parser: Callable[[], None]) -> None:
    inputs = {"a": (FLOAT32, 1), "b": (FLOAT32, 2)}
    from tcdsl.api import statements

    first = statements.computed_program("c(i) +=! a(j) * b(i, j)", inputs)
    first.keep()
    with pytest.raises(tcdsl.TCError):
        statements.computed_program("c(i) +=! a(j) * b(i, j)", inputs | {"a-b": (FLOAT32, 0)})
    no_parser()
    second = statements.computed_program("c(i) +=! a(j) * b(i, j)", inputs)
    assert facts(second.defs[0].head) == facts(first.defs[0].head)
    with pytest.raises(AssertionError, match="it was parsed"):
        statements.computed_program("c(i) +=! a(j) * b(i, j)", inputs | {"a": (FLOAT32, 2)})
