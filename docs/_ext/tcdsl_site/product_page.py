"""What the page on products shows: how its one example is compiled, and which kernels others get.

The program is the page's first block of ``tc``; a mark's argument is the step, one of
:data:`_STEPS`.  classes_of_others and instructions are of the programs of :data:`OTHERS`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any, Literal

import tcdsl
from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.work import Work
from tcdsl.display.candidates_text import config_text, configurations, in_order, varying_in
from tcdsl.display.html import fragment
from tcdsl.display.pipelines import (
    Timeline,
    caption,
    chosen_of,
    drawn_steps,
    pipeline,
    pipeline_rows,
    timelines,
    uses,
)
from tcdsl.driver import Compiled, compile_to_cuda
from tcdsl.executable import Executable
from tcdsl.lang.comprehension import Expr, Index, Operator, walk
from tcdsl.lang.request import Request
from tcdsl.poly.loop_tree import AffineCoordinate
from tcdsl.strategies.catalogue import Candidate
from tcdsl.strategies.fragments import COLUMNS, ROWS, At, lane
from tcdsl.strategies.implicit_kernel import classes_for
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.templates import tile_implicit
from tcdsl.strategies.tensor_operands import axes_of
from tcdsl_site.choice_page import PROGRAM, estimate_table, table, work_table

SIZES = 4096  # M, N, K
FASTEST = 8  # candidates that are shown


@dataclass(frozen=True, slots=True)
class Other:
    """A product of the tables: *what* it shows, its text, its arguments' shapes."""

    what: str
    text: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "bfloat16"
    chip: str = "h200"
    precision: Literal["float32", "ieee", "tf32", "float16x3", "bfloat16", "float8"] = "float32"


NN = "C(m, n) +=! A(m, k) * B(k, n)"
PADDED = (
    "C(b, h, w, n) +=! (1 <= h + r && h + r < 57 && 1 <= w + s && w + s < 57 "
    "? A(b, h + r - 1, w + s - 1, k) : 0) * B(r, s, k, n) where h in 0:56, w in 0:56"
)
SQUARE = ((4096, 4096), (4096, 4096))
OTHERS = (
    Other("", NN, SQUARE),
    Other("both transposed", "C(m, n) +=! A(k, m) * B(n, k)", SQUARE, "half"),
    Other("16 batches of 1,024 x 512 x 1,024", "C(b, m, n) +=! A(b, m, k) * B(b, k, n)",
          ((16, 1024, 512), (16, 512, 1024))),
    Other("32 images of 58 x 58 x 128, 128 filters of 3 x 3",
          "C(b, h, w, n) +=! A(b, h + r, w + s, k) * B(r, s, k, n)",
          ((32, 58, 58, 128), (3, 3, 128, 128))),
    Other("the same, padded by a guard", PADDED, ((32, 56, 56, 128), (3, 3, 128, 128))),
    Other("the same, channels first", "C(b, n, h, w) +=! A(b, k, h + r, w + s) * B(n, k, r, s)",
          ((32, 128, 58, 58), (128, 128, 3, 3))),
    Other("the same, its gradient by weights",
          "C(r, s, k, n) +=! A(b, h + r, w + s, k) * B(b, h, w, n)",
          ((32, 58, 58, 128), (32, 56, 56, 128))),
    Other("rows of 4,100 elements", NN, ((4096, 4100), (4100, 4100))),
    Other("rows of 4,097 elements", NN, ((4096, 4097), (4097, 4097))),
    Other("an A100", NN, SQUARE, chip="a100"),
    Other("", NN, SQUARE, "int8"),
    Other("", NN, SQUARE, "float8_e4m3"),
    Other('precision="float8"', NN, SQUARE, "float8_e4m3", precision="float8"),
    Other("", NN, SQUARE, "float64"),
    Other('precision="tf32"', NN, SQUARE, "float32", precision="tf32"),
    Other("", NN, SQUARE, "float32"),
    Other('precision="float16x3"', NN, SQUARE, "float32", precision="float16x3"),
    Other('precision="bfloat16"', NN, SQUARE, "float32", precision="bfloat16"),
    Other('precision="ieee"', NN, SQUARE, "float32", precision="ieee"),
)  # fmt: skip
BECOMES = {
    "M": "rows of a tile", "N": "columns of a tile", "K": "terms of a step",
    "steps": "steps for each value", "batch": "blocks for each value",
}  # fmt: skip
# What the text of a kernel calls: the instruction that it becomes.
CALLS = {
    "tc_wgmma<": "wgmma",
    "tc_wgmma_promoted<": "wgmma",
    "tc_wgmma_f32<": "wgmma",
    "tc_wgmma_planes<": "wgmma",
    "tc_wgmma_of<": "wgmma",
    "tc_wgmma_of_promoted<": "wgmma",
    "tc_mma<": "mma.sync",
    "tc_mma_of<": "mma.sync",
}


def step(argument: str, page: str) -> str:
    """Return what the step called *argument* gives for the page's program."""
    return _STEPS[argument](page)


def picture(argument: str, page: str) -> str:
    """Return the step as the site shows it: the pipeline drawn, all others as they are."""
    if argument != "pipeline":
        return step(argument, page)
    of = _timeline(page)
    figure = fragment(pipeline(of))
    return f'{caption(of)}.\n\n```{{raw}} html\n<figure class="tc-figure">{figure}</figure>\n```\n'


@cache
def _compiled(page: str) -> Executable:
    (source, *_) = PROGRAM.findall(page)
    specs = [tcdsl.spec((SIZES,) * rank, "bfloat16") for rank in (2, 2, 1)]
    program = tcdsl.define(source)
    return program[program.names[-1]].compile(*specs, target="emulate")


@cache
def _other(one: Other) -> Compiled[CudaSource]:
    names = "AB"
    parameters = ", ".join(
        f"{one.dtype}({', '.join(f'{name}{n}' for n in range(len(shape)))}) {name}"
        for name, shape in zip(names, one.shapes, strict=True)
    )
    sums = {"int8": "int32(A", "float8_e4m3": "float(A"}.get(one.dtype)
    text = re.sub(r"A(\(.*?\)) \*", rf"{sums}\1) *", one.text) if sums else one.text
    f = tcdsl.define(f"def f({parameters}) -> (C) {{ {text} }}").f
    special = f.specialise(*(tcdsl.spec(shape, _numpy(one.dtype)) for shape in one.shapes))
    options = tcdsl.Options(precision=one.precision)
    return compile_to_cuda(Request(f.comprehension, special, {}, options), load_chip(one.chip))


def _numpy(dtype: str) -> str:
    return {"half": "float16"}.get(dtype, dtype)


def _problem(compiled: Compiled[CudaSource] | Executable) -> tuple[Problem, Candidate]:
    """Return the problem of the first kernel that adds up, and what was chosen for it."""
    plan = compiled.compilation.plan.value if isinstance(compiled, Executable) else compiled.plan
    for made in plan.weighed:
        if isinstance(made.candidates, partial):
            problem: Problem = made.candidates.args[0]
            reduction = problem.shapes[problem.lead].statement.reduction
            if reduction is not None and reduction.operator is Operator.ADD:
                return problem, chosen_of(problem, made)
    raise AssertionError("the page's programs are sums")


def _timeline(page: str) -> Timeline:
    (found,) = timelines(_compiled(page).compilation.plan.value)
    return found


# --- steps ---------------------------------------------------------------------------------------


def _classes(problem: Problem, chosen: Candidate) -> Mapping[str, str]:
    """Return the class of each index of the product: M, N, K, steps (along K) or batch."""
    statement, lead = problem.shapes[problem.lead].statement, problem.lead
    if chosen.choice.template is tile_implicit.TEMPLATE:
        merged = classes_for(problem, chosen.choice.config.chunks)
        own = dict.fromkeys(merged.row.indices, "M") | dict.fromkeys(merged.column.indices, "N")
        own |= dict.fromkeys(merged.term.indices, "K")
        return own | dict.fromkeys(merged.steps.indices if merged.steps else (), "steps")
    found = axes_of(problem)
    assert found is not None, "the page's products are on tensor cores"
    row, column, term, steps = found
    classes = {row[lead]: "M", column[lead]: "N", term: "K"} | dict.fromkeys(steps, "steps")
    return {name: classes.get(dim, "batch") for dim, name in enumerate(statement.indices)}


def _classes_table(page: str) -> str:
    problem, chosen = _problem(_compiled(page))
    shape = problem.shapes[problem.lead]
    accesses = [*shape.statement.reads, shape.statement.write]
    classes, rows = _classes(problem, chosen), []
    for name, extent in zip(shape.statement.indices, shape.extents, strict=True):
        there = ("yes" if _mentions(access.subscripts, name) else "" for access in accesses)
        own = classes[name]
        rows.append((f"`{name}`", f"{extent:,}", *there, own, BECOMES[own]))
    arrays = (f"in `{access.array}`" for access in accesses)
    return table(("index", "values", *arrays, "class", "becomes"), rows)


def _mentions(subscripts: Sequence[Expr], name: str) -> bool:
    return any(isinstance(n, Index) and n.name == name for s in subscripts for n in walk(s))


def _classes_of_others(page: str) -> str:
    rows = []
    for one in OTHERS:
        if one.text == NN:
            continue
        problem, chosen = _problem(_other(one))
        classes: dict[str, list[str]] = {}
        for name, own in _classes(problem, chosen).items():
            classes.setdefault(own, []).append(name)
        cells = (", ".join(classes.get(key, ())) for key in ("M", "N", "K", "steps", "batch"))
        rows.append((f"`{one.text}`", chosen.choice.template.name, *cells))
    return table(("product", "template", "M", "N", "K", "steps", "blocks"), rows)


def _kinds_table(page: str) -> str:
    """Return the fastest candidate of each template, and way to copy and multiply."""
    rows = []
    for (template, *_), found in _kinds(page).items():
        first = found[0]
        rows.append((
            "**chosen**" if first["is_chosen"] else "", template, str(len(found)),
            config_text(first["config"], _varying(page, template)),
            f"{first['predicted_us']:,.0f}", first["limiter"],
        ))  # fmt: skip
    head = ("", "template", "candidates", "the fastest of them", "predicted us", "limiter")
    return table(head, rows)


def _space_table(page: str) -> str:
    """Return the candidates that copy and multiply as the chosen one does."""
    (own,) = (found for found in _kinds(page).values() if found[0]["is_chosen"])
    varying = varying_in(own)
    rows = [
        (
            "**chosen**" if c["is_chosen"] else "",
            *(str(value) for name, value in c["config"].items() if name in varying),
            f"{c['predicted_us']:,.1f}",
        )
        for c in own[:FASTEST]
    ]  # fmt: skip
    names = (name for name in own[0]["config"] if name in varying)
    return table(("", *names, "predicted us"), rows)


def _kinds(page: str) -> Mapping[tuple[str, str, int], list[Mapping[str, Any]]]:
    found: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    own = configurations(_compiled(page).candidates)
    for c in in_order([c for c in own if "predicted_us" in c]):
        config = c["config"]
        kind = c["template"], config.get("loader", ""), config.get("together", 1)
        found.setdefault(kind, []).append(c)
    return found


def _varying(page: str, template: str) -> Collection[str]:
    own = (c for c in _compiled(page).candidates if c["template"] == template)
    return varying_in([c for c in own if "predicted_us" in c])


def _work_table(page: str) -> str:
    work = _problem(_compiled(page))[1].work
    assert isinstance(work, Work), "of a GPU"
    return work_table(work)


def _estimate_table(page: str) -> str:
    problem, chosen = _problem(_compiled(page))
    return estimate_table(chosen.estimate, problem.gpu)


def _schedule_text(page: str) -> str:
    return f"```text\n{_compiled(page).schedule.strip()}\n```\n"


def _pipeline_table(page: str) -> str:
    of = _timeline(page)
    head = ("step", "stage", "phase", "copied, ns", "multiplied, ns", "released, ns")
    return f"{caption(of)}.\n\n" + table(head, pipeline_rows(uses(of, drawn_steps(of))))


def _fragment_table(page: str) -> str:
    """Return which thread of a warp holds each result of the first rows of an instruction."""
    coordinate = lane(At(0), At(1)).coordinate
    assert isinstance(coordinate, AffineCoordinate)
    rows = []
    for row in (0, 1, 7, 8, ROWS - 1):
        threads = [coordinate_value(coordinate, (row, column)) for column in range(COLUMNS)]
        rows.append((f"**{row}**", *map(str, threads)))
    return table(("row, column", *map(str, range(COLUMNS))), rows)


def coordinate_value(coordinate: AffineCoordinate, point: tuple[int, int]) -> int:
    """Return the value of *coordinate*, a sum of digits, at *point*."""
    total = 0
    for factor, part in coordinate.terms:
        digit = (point[part.position] - part.shift) // part.div
        total += factor * (digit % part.mod if part.mod else digit)
    return total


def _kernel_text(page: str) -> str:
    return f"```cuda\n{_compiled(page).source.strip()}\n```\n"


def _explain_text(page: str) -> str:
    return "\n".join(
        ["```text", *_compiled(page).explain().split("\n\n")[0].splitlines(), "```", ""]
    )


def _instructions_table(page: str) -> str:
    rows = []
    for one in OTHERS:
        compiled = _other(one)
        _, chosen = _problem(compiled)
        text, config = compiled.source.text, chosen.choice.as_data()
        size_bytes = tcdsl.spec((1,), _numpy(one.dtype)).dtype.size_bytes
        made = [name for call, name in CALLS.items() if call in text] or ["FMA"]
        rows.append(
            (
                one.dtype,
                one.what,
                config["template"],
                _loader(text, size_bytes),
                made[0],
                _tile(config),
            )
        )
    return table(("type", "", "template", "copies", "instruction", "tile"), rows)


def _loader(text: str, size_bytes: int) -> str:
    """Return how operands come to shared memory: boxes, or what a thread copies at once."""
    if "tc_copy_box<" in text:
        return "boxes"
    counts = {int(n) for n in re.findall(r"tc_copy_async\w*<(\d+)>", text)}
    sizes = sorted({n * size_bytes for n in counts}, reverse=True)
    return " and ".join(f"{size} bytes" for size in sizes) or "loads and stores"


def _tile(config: Mapping[str, object]) -> str:
    keys = ("rows", "warp_rows"), ("columns", "warp_columns")
    if "warp_rows" not in config:
        return ""
    return " x ".join(str(prod(int(str(config[key])) for key in pair)) for pair in keys)


_STEPS: Mapping[str, Callable[[str], str]] = {
    "classes": _classes_table,
    "classes_of_others": _classes_of_others,
    "kinds": _kinds_table,
    "space": _space_table,
    "work": _work_table,
    "estimate": _estimate_table,
    "schedule": _schedule_text,
    "pipeline": _pipeline_table,
    "fragment": _fragment_table,
    "kernel": _kernel_text,
    "explain": _explain_text,
    "instructions": _instructions_table,
}
