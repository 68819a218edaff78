"""Defects planted into plans and into C are caught: by the verifier, or by the oracle.

A mutant of a plan that the verifier accepts must compute what the program means (a loop may run in
another legal order, or a short one in parallel); a mutant of the C must be told from it by a run.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.c.printer import print_plan
from tcdsl.driver import Compiled
from tcdsl.interp.arithmetic import Array
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, Node, Sequence, sequence
from tcdsl.poly.verify import why_not_legal
from tcdsl.schedule.placement import place
from tcdsl.schedule.plan import Plan
from tcdsl.testing import check

Make = Callable[..., Any]
Shapes = list[tuple[int, ...]]

PROGRAMS: dict[str, tuple[str, Shapes]] = {
    "matmul": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        [(33, 17), (17, 70)],
    ),
    "centred": (  # unlike a softmax, which any other minimum would leave as it is
        """def f(float(N,D) x) -> (y) {
            m(i) min=! x(i,j)
            s(i) +=! x(i,j) - m(i)
            y(i,j) = (x(i,j) - m(i)) / s(i)
        }""",
        [(130, 67)],
    ),
    "column": ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(9, 67)]),
    "recurrence": (
        """def f(float(T,N) a) -> (c) {
            c(t,i) = a(t,i)
            c(t,i) = c(t-1,i) * 0.5 + c(t,i) where t in 1:T, i in 0:N
        }""",
        [(7, 19)],
    ),
    "padding": (
        """def f(float(H,W) I, float(3,3) K) -> (O) {
            O(h,w) +=! (h+kh-1 >= 0 && h+kh-1 < H && w+kw-1 >= 0 && w+kw-1 < W
                        ? I(h+kh-1,w+kw-1) : 0.0) * K(kh,kw) where h in 0:H, w in 0:W
        }""",
        [(11, 18), (3, 3)],
    ),
    "triangle": (
        "def f(float(N,N) x) -> (y) { y(i) +=! x(i,j) where i in 0:N, j in 0:i+1 }", [(21, 21)],
    ),
}  # fmt: skip


# --- mutants of plans -----------------------------------------------------------------------


def mutants(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield every tree that differs from *node* by one defect, with the defect's name."""
    match node:
        case Leaf():
            return
        case Loop():
            yield from _loop_mutants(node)
            for what, body in mutants(node.body):
                yield what, replace(node, body=body)
        case Sequence(children=children):
            yield from _sequence_mutants(children)
            for position, child in enumerate(children):
                for what, changed in mutants(child):
                    rest = children[position + 1 :]
                    yield what, sequence([*children[:position], changed, *rest])


def _loop_mutants(loop: Loop) -> Iterator[tuple[str, Node]]:
    yield f"drop loop {loop.name}", loop.body
    if loop.kind in (LoopKind.SERIAL, LoopKind.UNROLL):
        yield f"run {loop.name} in parallel", replace(loop, kind=LoopKind.PARALLEL)
        yield f"run {loop.name} in lanes", replace(loop, kind=LoopKind.VECTOR)
    for statement, old in loop.coordinates.items():
        for what, new in (
            ("divisor", replace(old, div=old.div + 1)),
            ("remainder", replace(old, mod=max(1, old.mod - 1))),
            ("shift", replace(old, shift=old.shift + 1)),
        ):
            changed = {**loop.coordinates, statement: new}
            yield f"{what} of {loop.name} for {statement}", replace(loop, coordinates=changed)


def _sequence_mutants(children: tuple[Node, ...]) -> Iterator[tuple[str, Node]]:
    for position in range(len(children)):
        yield f"drop child {position}", sequence([*children[:position], *children[position + 1 :]])
    for p in range(len(children) - 1):
        swapped = [*children[:p], children[p + 1], children[p], *children[p + 2 :]]
        yield f"swap children {p} and {p + 1}", sequence(swapped)


def planted(plan: Plan) -> Iterator[tuple[str, Plan]]:
    for number, kernel in enumerate(plan.kernels):
        for what, tree in mutants(kernel.tree):
            kernels = list(plan.kernels)
            kernels[number] = replace(kernel, tree=tree)
            places = place(plan.scop, [k.tree for k in kernels])
            yield what, replace(plan, kernels=tuple(kernels), placements=places)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow_but("column", "padding", "triangle")
def test_a_defect_in_a_plan_is_rejected_or_harmless(
    name: str, compiled: Callable[..., Compiled], unit: Make, batch: Make
) -> None:
    source, shapes = PROGRAMS[name]
    plan = compiled(source, *shapes).plan
    dependences = dependences_of(plan.scop)
    original = unit(source, *shapes)
    accepted, rejected = [], 0
    for what, mutant in planted(plan):
        tree = sequence([kernel.tree for kernel in mutant.kernels])
        if why_not_legal(plan.scop, dependences, tree) is None:
            accepted.append((what, replace(original, c=print_plan(mutant, 4))))
        else:
            rejected += 1
    assert rejected > 10, "the mutants are no defects"
    inputs = [_numbers(shape) for shape in shapes]
    for (what, _), loaded in zip(accepted, batch([u for _, u in accepted]), strict=True):
        try:
            check(loaded, *inputs)
        except AssertionError as error:
            raise AssertionError(f"accepted: {what}: {error}") from None


def _numbers(shape: tuple[int, ...]) -> Array:
    """Return random numbers such that every column holds the least of some row."""
    numbers = np.random.default_rng(5).normal(size=shape)
    rows = np.arange(shape[0])
    numbers[rows, rows % shape[1]] -= 10
    return np.asarray(numbers.astype(np.float32))


def test_certain_defects_are_rejected(compiled: Callable[..., Compiled]) -> None:
    """Those that every compiler of reductions must fear."""
    source, shapes = PROGRAMS["centred"]
    plan = compiled(source, *shapes).plan
    dependences = dependences_of(plan.scop)
    verdicts = {
        what: why_not_legal(plan.scop, dependences, sequence([k.tree for k in mutant.kernels]))
        for what, mutant in planted(plan)
    }
    dropped = [why for what, why in verdicts.items() if what.startswith("drop")]
    assert dropped and all(dropped)
    parallel = [why for what, why in verdicts.items() if what.endswith("in parallel")]
    assert any(why is not None and "conflict" in why for why in parallel)


# --- mutants of C ---------------------------------------------------------------------------

_EDITS: dict[str, tuple[str, Callable[[re.Match[str]], str]]] = {
    "a bound moved down": (r"(<= )(\d+)(;)", lambda m: f"{m[1]}{int(m[2]) - 1}{m[3]}"),
    "a start moved up": (r"(int64_t c\d+ = )(\d+)(; c)", lambda m: f"{m[1]}{int(m[2]) + 1}{m[3]}"),
    "a store dropped": (r"(?m)^( *)[a-z]\w*\[[^;]*\] = [^;]*;$", lambda m: f"{m[1]};"),
    "a fold dropped": (r"(?m)^( *)\w+\[[^;]*\] = tc_fold[^;]*;$", lambda m: f"{m[1]};"),
    "a minimum dropped": (r"min\((\d+), [^;]*\);", lambda m: f"{m[1]};"),
    "a guard dropped": (r"\(\(\([^?;]*\) \?", lambda m: "((1 ?"),
}
# Edits of this kind may leave the results as they are.
_HARMLESS = {"a minimum dropped"}


def edited(body: str) -> Iterator[tuple[str, str]]:
    for what, (pattern, edit) in _EDITS.items():
        for match in re.finditer(pattern, body):
            line = body.count("\n", 0, match.start()) + 1
            yield (
                f"{what} in line {line}",
                body[: match.start()] + edit(match) + body[match.end() :],
            )


@pytest.mark.fuzz
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_defect_in_the_c_changes_the_results(name: str, unit: Make, batch: Make) -> None:
    source, shapes = PROGRAMS[name]
    original = unit(source, *shapes, threads=1)
    cases = list(edited(original.c.body))
    loaded = batch([
        replace(original, c=replace(original.c, body=body)) for _, body in cases
    ])  # fmt: skip
    inputs = [_numbers(shape) for shape in shapes]
    unnoticed = []
    for (what, _), mutant in zip(cases, loaded, strict=True):
        try:
            check(mutant, *inputs)
        except AssertionError:
            continue
        if what.partition(" in line")[0] not in _HARMLESS:
            unnoticed.append(what)
    assert len(cases) >= 3
    assert not unnoticed, "\n".join(unnoticed)
    (again,) = batch([original])
    check(again, *inputs)


def test_a_coordinate_that_nobody_changed_is_no_mutant() -> None:
    loop = Loop("i", {"S0": Coordinate(0)}, LoopKind.SERIAL, Leaf("S0"))
    assert loop not in [tree for _, tree in mutants(loop)]
