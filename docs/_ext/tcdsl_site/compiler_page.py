"""What the page on the compiler shows: the stages of its one example, and pictures of them.

The program is the page's first block of ``tc``, its sizes are :data:`SIZES`.  Arguments of a mark::

    stage cpu scop              a stage's text, as ``Executable.stages`` has it
    stage cpu dependences       which statements must stay in order, and on which tensor
    picture cpu statements      which statements touch which tensors, and how: a table
    picture emulate schedule    the loops, as text; "emulate" has those of a GPU
    kernels emulate             each kernel's grid, block, memory and bytes: a table

The site shows the pictures drawn (:func:`picture`), the pages hold them as text.
"""

import re
from functools import cache
from math import prod
from unittest.mock import patch

import tcdsl
from tcdsl.costmodel import machine
from tcdsl.costmodel.traffic import traffic_of
from tcdsl.executable import Executable
from tcdsl.poly.dependences import Dependence, dependences_of
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Kind, Scop
from tcdsl_site.pictures import Loop, Touching, nested_boxes, touched

SIZES = (512, 1000)
_PROGRAM = re.compile(r"^```tc\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CODE = {"cpu": "c", "emulate": "cuda"}
_LOOP = re.compile(
    r"(?P<kind>[\w.]+(?:\[\d+\])?) k\d\S+: (?P<value>.*?)(?:  # (?P<trips>\d+) iterations)?$"
)
_THREADS = 4  # of a CPU


def stage(argument: str, page: str) -> str:
    """Return a stage's text as a block of code."""
    target, name = argument.split()
    if name == "dependences":
        text = "\n".join(map(_dependence_text, _dependences(page)))
    elif name == "explain":
        text = "\n".join(_compiled(page, target).explain().split("\n\n")[0].splitlines())
    else:
        text = _compiled(page, target).stages[name].strip("\n")
    language = {"comprehension": "tc", "code": _CODE[target]}.get(name, "text")
    return f"```{language}\n{text}\n```\n"


def kernels(argument: str, page: str) -> str:
    """Return a table of the kernels: blocks, threads, and the bytes that each moves."""
    compiled = _compiled(page, argument)
    plan = compiled.compilation.plan.value
    rows = []
    for told, kernel in zip(compiled.kernels, plan.kernels, strict=True):
        moved = {False: 0, True: 0}
        for each in traffic_of(plan.scop, kernel.tree, plan.placements):
            assert each.once_bytes is not None
            moved[each.is_write] += each.once_bytes
        grid, block = (prod(told[part]) for part in ("grid", "block"))
        cells = f"`{told['name']}`", str(grid), str(block), f"{moved[False]:,}", f"{moved[True]:,}"
        rows.append(f"| {' | '.join(cells)} |")
    head = "| kernel | blocks | threads a block | bytes loaded | bytes stored |"
    return "\n".join([head, "|---|---|---|---|---|", *rows]) + "\n"


def picture_text(argument: str, page: str) -> str:
    """Return what a picture shows, as a table or text."""
    target, name = argument.split()
    if name == "schedule":
        return f"```text\n{_compiled(page, target).schedule.strip()}\n```\n"
    statements = _touching(page)
    names = list(dict.fromkeys(name for s in statements for name in s.tensors))
    head = f"| statement | text | {' | '.join(f'`{name}`' for name in names)} |"
    rows = [
        f"| `{s.name}` | `{s.text}` | {' | '.join(s.tensors.get(name, '') for name in names)} |"
        for s in statements
    ]
    return "\n".join([head, "|" + "---|" * (len(names) + 2), *rows]) + "\n"


def picture(argument: str, page: str) -> str:
    """Return a picture, as HTML that the page holds."""
    target, name = argument.split()
    if name == "statements":
        html = touched(_touching(page))
    else:
        html = nested_boxes(loops_of(_compiled(page, target).schedule))
    return f'```{{raw}} html\n<figure class="tc-figure">{html}</figure>\n```\n'


@cache
def _compiled(page: str, target: str) -> Executable:
    (source, *_) = _PROGRAM.findall(page)
    program = tcdsl.define(source)
    specs = tcdsl.spec(SIZES, "float32")
    options = tcdsl.Options(threads=_THREADS)
    # The same page on every machine: for the CPU of the package's own numbers, not for this one.
    with patch.object(machine, "_instructions", frozenset):
        return program[program.names[-1]].compile(specs, target=target, options=options)


def _scop(page: str) -> Scop:
    executable = _compiled(page, "cpu")
    return lower_comprehension(executable.comprehension, executable.special, {})


def _touching(page: str) -> list[Touching]:
    """Return what each statement does, with its line of the program for a text."""
    (source, *_) = _PROGRAM.findall(page)
    lines = [line.strip() for line in source.splitlines() if re.search(r"(?<![=!<>])=", line)]
    found = []
    for statement in _scop(page).statements:
        number = int(re.sub(r"\D", "", statement.name))
        written = {access.array for access in statement.writes}
        read = {access.array for access in statement.reads}
        kinds = dict.fromkeys(sorted(read), "reads")
        kinds |= dict.fromkeys(written, "updates" if statement.accumulates else "writes")
        is_init = statement.kind is Kind.INIT
        text = f"start of {', '.join(written)}" if is_init else lines[number]
        found.append(Touching(statement.name, text, kinds))
    return found


def _dependences(page: str) -> tuple[Dependence, ...]:
    return dependences_of(_scop(page)).edges


def _dependence_text(edge: Dependence) -> str:
    mark = "not at once" if edge.is_relaxed else "in order"
    relation = str(edge.relation).partition(" : ")[0] + " }"
    return f"{edge.array:<6} {mark:<12} {relation}"


def loops_of(schedule: str) -> tuple[Loop, ...]:
    """Return the printed *schedule* as a tree."""
    root = Loop("", "", "")
    stack = [(-1, root)]
    for line in schedule.splitlines():
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        while stack[-1][0] >= depth:
            stack.pop()
        match = _LOOP.match(text)
        if match:
            loop = Loop(match["kind"], match["value"], match["trips"] or "")
        else:
            loop = Loop("kernel" if text.startswith("kernel ") else "statement", text, "")
        stack[-1][1].inner.append(loop)
        stack.append((depth, loop))
    return tuple(root.inner)
