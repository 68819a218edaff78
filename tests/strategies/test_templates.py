"""Templates: every configuration of a space makes a kernel that is right."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.lang.comprehension import Comprehension
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.poly.loop_tree import LoopKind
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.strategies import catalogue
from tcdsl.strategies.gpu_grouping import group_for_gpu
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.template import Choice
from tcdsl.testing.comparison import check
from tests.programs import arrays_for, comprehension_of, specialisation_of

CheckAll = Callable[..., None]
Shapes = list[tuple[int, ...]]

PROGRAMS: dict[str, tuple[str, Shapes]] = {
    "elementwise": (
        "def f(float(M,N) x, float(N) b) -> (y) { y(m,n) = exp(x(m,n)) + b(n) }",
        [(65, 132), (132,)],
    ),
    "row": ("def f(float(M,N) x) -> (y) { y(m) +=! x(m,n) }", [(37, 1000)]),
    "all": ("def f(float(N) x) -> (y) { y +=! x(n) }", [(5000,)]),
    "softmax": (
        "def f(float(M,N) x) -> (y) { m(i) max=! x(i,j)  s(i) +=! exp(x(i,j) - m(i))"
        "  y(i,j) = exp(x(i,j) - m(i)) / s(i) }",
        [(17, 512)],
    ),
    "column": ("def f(float(M,N) x) -> (y) { y(n) +=! x(m,n) }", [(700, 36)]),
    "half rows": (
        "def f(float16(M,N) x) -> (float16(M,N) y) { s(m) +=! float(x(m,n))"
        "  y(m,n) = float16(float(x(m,n)) / s(m)) }",
        [(37, 64)],
    ),
}  # fmt: skip


def problems_of(source: str, shapes: Shapes, options: Options | None = None) -> list[Problem]:
    """Return the problems that a program's groups are, before any rewrite."""
    c: Comprehension = comprehension_of(source)
    scop = lower_comprehension(c, specialisation_of(c, shapes), {}, True)
    options = options or Options()
    grouped = group_for_gpu(scop, options, load_chip("h200"))
    return [
        Problem(grouped.scop, group, grouped.shapes, load_chip("h200"), options)
        for group in grouped.groups
    ]


def choices_of(name: str) -> Iterator[tuple[Problem, Choice]]:
    for problem in problems_of(*PROGRAMS[name]):
        for choice in catalogue.choices(problem):
            yield problem, choice


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_choice_is_another_one_and_plain_data(name: str) -> None:
    for problem in problems_of(*PROGRAMS[name]):
        choices = list(catalogue.choices(problem))
        seconds = {repr(c.choice): c.estimate.seconds for c in catalogue.candidates(problem)}
        fastest = seconds[repr(catalogue.fastest(problem))]
        assert fastest <= catalogue.ALIKE * min(seconds.values()) < math.inf
        assert len(set(map(repr, choices))) == len(choices)
        for choice in choices:
            data = choice.as_data()
            assert data.pop("template") == choice.template.name
            assert choice.template.config(**data) == choice.config
            assert choice.schedule(problem).config == {"template": choice.template.name, **data}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_problem_has_a_template_or_a_reason(name: str) -> None:
    for problem in problems_of(*PROGRAMS[name]):
        applied = {choice.template.name for choice in catalogue.choices(problem)}
        reasons = catalogue.reasons(problem)
        for template in catalogue.GPU_TEMPLATES:
            assert (template.name in applied) != (template.name in reasons)
            assert template.why_not(problem) == reasons.get(template.name)


def test_options_filter_the_space() -> None:
    source, shapes = PROGRAMS["elementwise"]
    for problem in problems_of(source, shapes, Options(vectorise=False)):
        for choice in catalogue.choices(problem):
            assert asdict(choice.config).get("vector", 1) == 1
            pieces = chain.from_iterable(choice.schedule(problem).remaining.values())
            assert all(p.extent == 1 for p in pieces if p.kind is LoopKind.LANES)
    for problem in problems_of(*PROGRAMS["softmax"], Options(tile=(2,))):
        assert "tiles are asked for" in catalogue.reasons(problem).values()


CODES = (
    {"unrolled_bytes": 32},
    {"sum_terms": 8},
    {"is_reversed": True},
)  # other code of what is chosen


def forced(name: str, target: str = "emulate") -> Iterator[Options]:
    """Yield options that ask for each candidate of a program, the chosen ones left out."""
    source, shapes = {**PROGRAMS, **CPU_PROGRAMS}[name]
    (f,) = tcdsl.define(source)
    c = comprehension_of(source)
    types = [c.tensors[name].dtype.name for name in c.inputs]
    specs = [tcdsl.spec(shape, dtype) for shape, dtype in zip(shapes, types, strict=True)]
    exe = tcdsl.define(source)[f].compile(*specs, target=target, options=Options(threads=3))
    for candidate in exe.candidates:
        if "why_not" in candidate or candidate["is_chosen"]:
            continue
        if candidate.get("code_change", CODES[0]) not in CODES:
            continue
        kernel = {"kernel": candidate["kernel"], "template": candidate["template"]}
        code = {"code": candidate["code"]} if "code_change" in candidate else {}
        choices = {**exe.choices, "kernels": [kernel | candidate["config"] | code]}
        yield Options(choices=json.dumps(choices), threads=3 if target == "cpu" else 0)


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_choices_that_are_not_the_likeliest_are_right(check_emulated: CheckAll) -> None:
    for options in list(forced("elementwise"))[::7]:
        check_emulated([PROGRAMS["elementwise"]], options=options)


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_choice_is_right(
    name: str, cuda_unit: Callable[..., Any], emulated: Callable[..., Any]
) -> None:
    source, shapes = PROGRAMS[name]
    every = list(forced(name))
    units = [cuda_unit(source, *shapes, options=options) for options in every]
    inputs = arrays_for(units[0].comprehension, shapes, 0)
    for program, options in zip(emulated(units), every, strict=True):
        check(program, *inputs, options=options)


CPU_PROGRAMS: dict[str, tuple[str, Shapes]] = {
    **{name: PROGRAMS[name] for name in ("elementwise", "softmax", "column")},
    "sum": ("def f(float(M,N) x) -> (y) { y(m) +=! x(m,n) }", [(37, 5000)]),
    "transposed": ("def f(float(M,N) x) -> (y) { y(n,m) = x(m,n) }", [(300, 301)]),
    "product": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        [(50, 33), (33, 70)],
    ),
    "product of rows": (
        "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        [(50, 130), (70, 130)],
    ),
}


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.parametrize("name", CPU_PROGRAMS)
@pytest.mark.slow_but("column", "sum")
def test_every_choice_is_right_on_a_cpu(
    name: str, unit: Callable[..., Any], batch: Callable[..., Any]
) -> None:
    source, shapes = CPU_PROGRAMS[name]
    every = list(forced(name, "cpu"))
    assert every, "there are others"
    units = [unit(source, *shapes, threads=3, options=options) for options in every]
    inputs = arrays_for(units[0].comprehension, shapes, 0)
    for program, options in zip(batch(units), every, strict=True):
        check(program, *inputs, options=options)


KEPT_PROGRAMS: dict[str, tuple[str, Shapes, str]] = {
    "columns": (
        "def f(float(M,N) x) -> (y) { m(j) max=! x(i,j)  s(j) +=! exp(x(i,j) - m(j))"
        "  y(i,j) = exp(x(i,j) - m(j)) / s(j) }",
        [(900, 24)],
        "column_cluster",
    ),
    "rows of clusters": (
        "def f(float(M,N) x) -> (y) { m(i) max=! x(i,j)  s(i) +=! exp(x(i,j) - m(i))"
        "  y(i,j) = exp(x(i,j) - m(i)) / s(i) }",
        [(3, 70000)],
        "row_cluster",
    ),
    "rows and columns": (
        "def f(float(M,N) x) -> (y, d) { s(i) +=! x(i,j)  y(i,j) = x(i,j) * s(i)"
        "  d(j) +=! x(i,j) * y(i,j) }",
        [(4096, 512)],
        "row_column",
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.parametrize("name", KEPT_PROGRAMS)
def test_what_is_kept_has_other_configurations(name: str, cuda_unit: Callable[..., Any]) -> None:
    """Each is verified by isl, and none falls back."""
    source, shapes, template = KEPT_PROGRAMS[name]
    plan = cuda_unit(source, *shapes).done.plan
    (weighed,) = [one for one in plan.weighed if one.choice["template"] == template]
    others = [c for c in weighed.candidates() if c["template"] == template]
    assert len(others) > 5
    for candidate in others[1::4]:
        choice = {"kernel": weighed.kernel, "template": template, **candidate["config"]}
        options = Options(choices=json.dumps({
            "format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [choice],
        }))  # fmt: skip
        done = cuda_unit(source, *shapes, options=options).done
        assert not done.is_fallback
        (found,) = [one.choice for one in done.plan.weighed if one.kernel == weighed.kernel]
        assert candidate["config"].items() <= found.items() and found["template"] == template
