"""The plan: kernels, where every array lives, and the bytes that move."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tcdsl.costmodel.traffic import Traffic, traffic_of
from tcdsl.display.comprehension import shape_text
from tcdsl.display.html import (
    Child,
    Html,
    badge,
    code,
    count,
    join,
    size_text,
    table,
    tag,
)
from tcdsl.poly.isl_utils import QuotaExceededError, bounded, constant_bounds
from tcdsl.poly.loop_tree import LoopKind, loops_of, statements_of
from tcdsl.poly.scop import Array, Kind, Scop, Storage
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Placement, Space
from tcdsl.schedule.plan import Kernel, Plan
from tcdsl.strategies.operations import operations_of

TRAFFIC_OPERATIONS, TRAFFIC_SECONDS = 20_000_000, 5.0

_TRAFFIC_NOTE = tag(
    "p",
    tag("em", "Once"), ": each element one time, the least that any cache allows. ",
    tag("em", "By blocks"), ": each element once for each block that accesses it. ",
    tag("em", "All accesses"), ": without reuse. Bounding boxes of accessed elements are counted.",
    class_="note",
)  # fmt: skip


def plan_section(plan: Plan, kernels: Sequence[Mapping[str, Any]]) -> Html:
    """Return the kernels and the arrays of *plan*.

    :arg kernels: as the executable tells them: name, and on a GPU grid and block.
    """
    parts: list[Child] = [
        tag("h3", count(len(plan.kernels), "kernel")),
        [_kernel(plan, kernel, _told(kernels, n)) for n, kernel in enumerate(plan.kernels)],
        tag("h3", "Arrays"),
        _arrays(plan),
    ]
    return join(*parts)


def traffic_section(plan: Plan) -> Html:
    """Return the bytes that each kernel of *plan* moves, array by array."""
    tables = [_traffic_table(plan, kernel, _traffic(plan, kernel)) for kernel in plan.kernels]
    return join(_TRAFFIC_NOTE, tables)


def _told(kernels: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any]:
    return kernels[number] if number < len(kernels) else {}


def _kernel(plan: Plan, kernel: Kernel, told: Mapping[str, Any]) -> Html:
    facts: list[Child] = []
    if "grid" in told:
        grid, block = (" x ".join(map(str, _kept(told[part]))) for part in ("grid", "block"))
        facts.append(f"{grid} blocks of {block} threads")
    if "memset_bytes" in told:
        facts.append(f"a memset of {size_text(told['memset_bytes'])} in its place")
    if "library" in told:
        facts.append(f"a call of {told['library']} in its place")
    cluster = prod(Mapped(plan.scop, kernel.tree).cluster_dims)
    if cluster > 1:
        facts.append(f"in clusters of {cluster}")
    names = list(statements_of(kernel.tree))
    barriers = sum(plan.scop.by_name[name].kind is Kind.BARRIER for name in names)
    if barriers:
        facts.append(count(barriers, "barrier"))
    head = tag("p", tag("strong", code(kernel.name)), [[" · ", fact] for fact in facts])
    return tag("div", head, tag("ul", [tag("li", reason) for reason in kernel.why]))


def _kept(dims: Sequence[int]) -> list[int]:
    kept = list(dims)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return kept


# --- arrays ----------------------------------------------------------------------------------


def _arrays(plan: Plan) -> Html:
    """Return a row an array: where it lives, and the bytes it takes there."""
    used = {a.array for s in plan.scop.statements for a in (*s.writes, *s.reads)}
    rows = []
    for name, array in plan.scop.arrays.items():
        if name not in used:
            continue
        where, size, note = _home(plan, array, plan.placements.get(name))
        rows.append([
            code(name), str(array.dtype), shape_text(array.shape), where,
            tag("span", size, class_="number"), note,
        ])  # fmt: skip
    return table(["array", "type", "shape", "lives in", "bytes", ""], rows)


def _home(plan: Plan, array: Array, placement: Placement | None) -> tuple[Html, str, Child]:
    if placement is None:
        size_bytes = array.size_bytes()
        size = "open" if size_bytes is None else size_text(size_bytes)
        if array.storage is Storage.ARGUMENT:
            roles = [w for w, holds in (
                ("input", array.is_input), ("output", array.is_output)
            ) if holds]  # fmt: skip
            return badge("memory", "argument"), size, " and ".join(roles)
        return badge("memory", "scratch"), size, "scratch of the call"
    size = size_text(placement.elements() * array.dtype.size_bytes)
    loop = f"in each iteration of {placement.loop}" if placement.loop else "in the whole kernel"
    if placement.space is Space.SHARED:
        padded = f", {placement.padding} elements of padding" if placement.padding else ""
        staged = ", filled by asynchronous copies" if placement.is_staged else ""
        return badge("shared memory", "shared"), size, f"{loop}, of a block{padded}{staged}"
    # A CPU's thread has larger arrays on its stack, that is in the first-level cache.
    where = "registers" if _is_for_gpu(plan) else "registers or stack"
    return badge(where, "registers"), size, f"{loop}, of a thread"


def _is_for_gpu(plan: Plan) -> bool:
    kinds = {loop.kind for kernel in plan.kernels for loop in loops_of(kernel.tree)}
    return not kinds.isdisjoint((LoopKind.BLOCK, LoopKind.THREAD))


# --- traffic ---------------------------------------------------------------------------------


def _traffic(plan: Plan, kernel: Kernel) -> list[Traffic] | None:
    """Return the traffic of *kernel*, None if isl takes too long."""
    try:
        with bounded(TRAFFIC_OPERATIONS, TRAFFIC_SECONDS):
            return traffic_of(plan.scop, kernel.tree, plan.placements)
    except QuotaExceededError:
        return None


def _traffic_table(plan: Plan, kernel: Kernel, found: list[Traffic] | None) -> Html:
    if found is None:
        return tag("p", code(kernel.name), " is too large to count.", class_="note")
    has_blocks = any(each.blocks_bytes is not None for each in found)
    largest = max((each.once_bytes or 0 for each in found), default=0)
    rows = []
    for each in found:
        cells: list[Child] = [
            [code(each.array), " ", "stored" if each.is_write else "loaded"],
            _number(each.once_bytes), _bar(each.once_bytes, largest),
        ]  # fmt: skip
        cells += [_number(each.blocks_bytes)] if has_blocks else []
        rows.append([*cells, _number(each.all_bytes)])
    total: list[Child] = [tag("strong", "all arrays"), _number(_sum(found, "once")), None]
    total += [_number(_sum(found, "blocks"))] if has_blocks else []
    rows.append([*total, _number(_sum(found, "all"))])
    head = ["", "once", "", *(["by blocks"] if has_blocks else []), "all accesses"]
    note = _intensity(plan.scop, kernel, _sum(found, "once"))
    return tag("div", tag("h4", code(kernel.name)), table(head, rows), note)


def _number(size_bytes: int | None) -> Html:
    text = "?" if size_bytes is None else size_text(size_bytes)
    return tag("span", text, class_="number")


def _bar(size_bytes: int | None, largest: int) -> Html | None:
    if not size_bytes or not largest:
        return None
    return tag("meter", min=0, max=largest, value=size_bytes, aria_label="share of the largest")


def _sum(found: Sequence[Traffic], which: str) -> int | None:
    values = [
        {"once": t.once_bytes, "blocks": t.blocks_bytes, "all": t.all_bytes}[which] for t in found
    ]
    return None if None in values else sum(value for value in values if value is not None)


def _intensity(scop: Scop, kernel: Kernel, once_bytes: int | None) -> Html | None:
    """Return the kernel's operations, and how many a byte."""
    total = 0
    for name in statements_of(kernel.tree):
        statement = scop.by_name[name]
        if statement.kind not in (Kind.UPDATE, Kind.ASSIGN):
            continue
        instances = 1
        for dim in range(len(statement.indices)):
            bounds = constant_bounds(statement.domain, dim)
            if bounds is None:
                return None
            instances *= bounds[1] - bounds[0] + 1
        total += instances * operations_of(statement)
    if not once_bytes:
        return None
    each = total / once_bytes
    a_byte = f"{each:,.0f}" if each >= 100 else f"{each:.3g}"
    text = f"about {total:,} operations by the cost model's count, {a_byte} a byte"
    return tag("p", text, class_="note")
