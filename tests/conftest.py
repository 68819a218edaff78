"""What the tests of all layers share: marks, fixtures, golden files.

Programs are compiled by :mod:`tests.cpu_programs` and :mod:`tests.emulated_programs`, many at once.
"""

import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tcdsl.costmodel import machine
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Scop
from tcdsl.runtime import calibrated
from tcdsl.runtime.collector import call_old, collector_paused
from tcdsl.strategies import catalogue
from tests.cpu_programs import batch, check_all, compiled, unit
from tests.emulated_programs import check_emulated, cuda_unit, emulated, small_chip
from tests.programs import comprehension_of, specialisation_of

# Fixtures, which pytest finds here.
__all__ = [
    "batch", "check_all", "check_emulated", "compiled", "cuda_unit", "emulated", "small_chip",
    "unit",
]  # fmt: skip


# Arrays of NumPy go to a GPU where there is one; the tests mean the CPU, in child processes too.
# Whoever sets another target runs them all on that one.
os.environ.setdefault("TCDSL_TARGET", "cpu")


@pytest.fixture(autouse=True)
def default_target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests marked ``gpu`` see the default: the device on which the arrays are."""
    if request.node.get_closest_marker("gpu"):
        monkeypatch.delenv("TCDSL_TARGET", raising=False)


@pytest.fixture(scope="session", autouse=True)
def planned_cpu(pytestconfig: pytest.Config) -> Generator[None, None, None]:
    """Let all plans be for the package's own CPU, whose texts the tests know, on any processor.

    ``pytest --instructions "avx2 fma"``: for a CPU with these.  What this processor is called, by
    which its calibrated numbers are kept, is another name.  Child processes see the processor.
    """
    names = frozenset(pytestconfig.getoption("instructions").split())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "_instructions", lambda: names)
        patch.setattr(calibrated, "cpu_name", lambda: "the CPU of the tests")
        yield


@pytest.fixture
def avx2(planned_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans be for a CPU with AVX2 alone, whose vectors have 32 bytes."""
    monkeypatch.setattr(machine, "_instructions", lambda: frozenset(("avx2", "fma")))


def pytest_runtest_setup() -> None:
    """Let no test see PyTorch's random numbers or compiled code of the one before it.

    Dynamo opens a size at its second value, for a line of code, whichever test ran it first.
    """
    torch = sys.modules.get("torch")
    if hasattr(torch, "manual_seed"):  # some tests put something else in its place
        torch.manual_seed(0)
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let Python's collector leave alone what is there for the whole run: modules, and tests."""
    with collector_paused():
        done = yield
    call_old()
    return done


@pytest.hookimpl(tryfirst=True)  # before -m leaves tests out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``slow_but("a", "b")``: of a parametrised test all but the cases [a] and [b] are ``slow``.

    All tests of a file that asks for PyTorch are marked ``torch``.
    """
    for item in items:
        if _asks_for_torch(item.path):
            item.add_marker(pytest.mark.torch)
        mark = item.get_closest_marker("slow_but")
        if mark is not None and _case_of(item) not in mark.args:
            item.add_marker(pytest.mark.slow)
    _draw_no_constants_of_the_package()


def _draw_no_constants_of_the_package() -> None:
    """Let Hypothesis draw numbers and strings that its seed and its own list give alone.

    It would also draw those that it finds in the package's text, which each process would parse for
    them (7 s); then programs of a seed would depend on that text.  It is imported here, for a test
    may be the first that does so.
    """
    with suppress(ImportError):
        providers: Any = import_module("hypothesis.internal.conjecture.providers")
        if hasattr(providers, "is_local_module_file"):
            providers.is_local_module_file = lambda path: False


@cache
def _asks_for_torch(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return re.search(r'importorskip\("[\w.]*\btorch', text) is not None


def _case_of(item: pytest.Item) -> str:
    return item.name.partition("[")[2][:-1]


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A case that ``slow_but`` names and the test does not have is an error: it would be slow.

    ``one_in(n)``: of a parametrised test one case of n, and those named so, are not ``fuzz``.
    """
    made = yield
    items = [i for i in made if isinstance(i, pytest.Item)] if isinstance(made, list) else []
    marks = (item.get_closest_marker("slow_but") for item in items)
    named = {case for mark in marks if mark is not None for case in mark.args}
    if unknown := named - {_case_of(item) for item in items}:
        test = items[0].name.partition("[")[0]
        raise collector.CollectError(f"slow_but: {test} has no case {sorted(unknown)}")
    for number, item in enumerate(items):
        mark = item.get_closest_marker("one_in")
        if mark is not None and number % mark.args[0] and _case_of(item) not in named:
            item.add_marker(pytest.mark.fuzz)
    return made


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regold", action="store_true", help="write the golden files anew")
    parser.addoption(
        "--instructions", default="", help="plan for a CPU with these, as /proc/cpuinfo has them"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function: the text must be that of ``golden/<name>.txt`` beside the test's module."""
    folder = Path(str(request.node.path)).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / f"{name}.txt"
        if request.config.getoption("--regold"):
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), (
            f"{path.name} is missing: run pytest --regold, and read what it wrote"
        )
        assert text == path.read_text(encoding="utf-8"), "if it is meant so: pytest --regold"

    return compare


@pytest.fixture
def brief_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let products have tiles that are so brief that rows take half of their time."""
    monkeypatch.setattr(catalogue, "BRIEF_SECONDS", 0.0)


@pytest.fixture(scope="session")
def lower() -> Callable[..., Scop]:
    """``lower(source, *shapes)``: the scop of the last def for inputs of these shapes."""

    def lower_(source: str, *shapes: tuple[int, ...], check_gathers: bool = True) -> Scop:
        c = comprehension_of(source)
        return lower_comprehension(c, specialisation_of(c, shapes), {}, check_gathers)

    return lower_
