"""What the page on choices shows: how the kernel of its one example is chosen, step by step.

The program is the page's first block of ``tc``, its sizes are :data:`SIZES`; a mark's argument is
the step: problem, space, reasons, work, estimate, schedule, choices, explain.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from typing import Any

import tcdsl
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import Estimate, estimate
from tcdsl.costmodel.work import Work
from tcdsl.display.candidates_text import (
    config_text,
    configurations,
    in_order,
    reasons,
    varying_in,
)
from tcdsl.executable import Executable
from tcdsl.strategies.catalogue import fastest
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.work import work_of

SIZES = (8192, 4096)
WHOLE = 1000  # of larger counts the digits behind the point say nothing
PROGRAM = re.compile(r"^```tc\n(.*?)^```", re.DOTALL | re.MULTILINE)


def step(argument: str, page: str) -> str:
    """Return what the step called *argument* gives for the page's program."""
    return _STEPS[argument](page)


@cache
def _compiled(page: str) -> Executable:
    (source, *_) = PROGRAM.findall(page)
    program = tcdsl.define(source)
    return program[program.names[-1]].compile(tcdsl.spec(SIZES, "float32"), target="emulate")


def _problem(page: str) -> tuple[Problem, Schedule]:
    """Return the problem of the one kernel, and the schedule that was chosen."""
    (weighed,) = _compiled(page).compilation.plan.value.weighed
    assert isinstance(weighed.candidates, partial)
    problem, *_ = weighed.candidates.args
    return problem, fastest(problem).schedule(problem)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table of Markdown; *numbers*: which columns are numbers, which end at one line."""
    rules = ["---:" if column in numbers else "---" for column in range(len(head))]
    lines = [head, rules, *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _problem_table(page: str) -> str:
    problem, _ = _problem(page)
    rows = []
    for name in problem.group.members:
        shape = problem.shapes[name]
        names = shape.statement.indices
        extents = ", ".join(f"{i}: {n:,}" for i, n in zip(names, shape.extents, strict=True))
        roles = ", ".join(f"{i} {role}" for i, role in zip(names, shape.roles, strict=True))
        lane = problem.lanes.get(name)
        rows.append((f"`{name}`", extents, roles, names[lane] if lane is not None else ""))
    head = ("statement", "extents", "roles of its indices", "threads may share")
    shared = ", ".join(problem.name_of(axis) for axis in problem.parallel)
    return table(head, rows) + f"\nShared and parallel for all: {shared}.\n"


def _space_table(page: str) -> str:
    own = configurations(_compiled(page).candidates)
    rows = [
        (
            "**chosen**" if c["is_chosen"] else "", c["template"],
            config_text(c["config"], varying_in(own)), f"{c['predicted_us']:.1f}", c["limiter"],
        )
        for c in in_order(own)
    ]  # fmt: skip
    return table(("", "template", "configuration", "predicted us", "limiter"), rows, (3,))


def _reasons_table(page: str) -> str:
    found = reasons(_compiled(page).candidates)
    return table(("template", "why not"), ((", ".join(names), why) for why, names in found))


def _work_table(page: str) -> str:
    return work_table(work_of(*_problem(page)))


def work_table(of: Work) -> str:
    """Return what *of* counts."""
    work = asdict(of)
    chain = {f"chain: {name}": value for name, value in work.pop("chain").items()}
    units = {f"operations: {unit}": count for unit, count in work.pop("operations")}
    numbers: Mapping[str, Any] = {**work, **units, **chain}
    rows = [
        (name, f"{value:,.0f}" if value == int(value) or value > WHOLE else f"{value:,.2f}")
        for name, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value
    ]
    return table(("of the chosen configuration", ""), rows, (1,))


def _estimate_table(page: str) -> str:
    problem, schedule = _problem(page)
    return estimate_table(estimate(work_of(problem, schedule), problem.gpu), problem.gpu)


def estimate_table(found: Estimate, chip: Chip) -> str:
    """Return the terms of an estimate."""
    rows = [(name, f"{1e6 * seconds:.2f}") for name, seconds in found.terms.items() if seconds]
    total = ("**all together**", f"**{1e6 * found.seconds:.2f}**")
    return table((f"on {chip.name}", "us"), [*rows, total], (1,))


def _schedule_text(page: str) -> str:
    return f"```text\n{_compiled(page).schedule.strip()}\n```\n"


def _choices_text(page: str) -> str:
    return f"```json\n{json.dumps(_compiled(page).choices, indent=1)}\n```\n"


def _explain_text(page: str) -> str:
    head = _compiled(page).explain().split("\n\n")[0].splitlines()
    return "\n".join(["```text", *head[head.index("choices") :], "```", ""])


_STEPS: Mapping[str, Callable[[str], str]] = {
    "problem": _problem_table,
    "space": _space_table,
    "reasons": _reasons_table,
    "work": _work_table,
    "estimate": _estimate_table,
    "schedule": _schedule_text,
    "choices": _choices_text,
    "explain": _explain_text,
}
