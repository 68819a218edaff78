"""The polyhedral program: domains with drawings, accesses, dependences."""

from collections.abc import Mapping, Sequence

from tcdsl.display.accesses import access_text, isl_code
from tcdsl.display.domains import Tiling, chosen_dims, draw_domain, tilings_of
from tcdsl.display.html import Child, Html, badge, code, details, join, table, tag
from tcdsl.poly.dependences import Dependence, dependences_of
from tcdsl.poly.isl_utils import QuotaExceededError, bounded
from tcdsl.poly.scop import Access, Kind, Scop, Statement
from tcdsl.schedule.plan import Plan

# Of isl's work on one drawing; what takes more is shown as text only.
DRAWING_OPERATIONS, DRAWING_SECONDS = 3_000_000, 2.0
MAX_VIEWS = 3  # pairs of dimensions drawn of one statement
MAX_STATEMENTS_OPEN = 6  # more statements than these start folded
_KINDS = {Kind.INIT: "muted", Kind.UPDATE: "parallel", Kind.ASSIGN: "block", Kind.FOLD: "vector"}


def scop_section(scop: Scop, plan: Plan) -> Html:
    """Return the statements of *scop* and their dependences; tiles are those of *plan*."""
    try:
        with bounded(10 * DRAWING_OPERATIONS, 5 * DRAWING_SECONDS):
            edges: Sequence[Dependence] = dependences_of(scop).edges
    except QuotaExceededError:
        edges = ()
    is_open = len(scop.statements) <= MAX_STATEMENTS_OPEN
    statements = [
        _statement(scop, statement, edges, _tilings(plan, statement), is_open)
        for statement in scop.statements
    ]
    return join(statements, tag("h3", "Dependences"), _dependences(edges))


def _tilings(plan: Plan, statement: Statement) -> Mapping[int, Tiling]:
    """Return how the plan cuts *statement*, if a rewrite left its indices alone."""
    planned = plan.scop.by_name.get(statement.name)
    if planned is None or planned.indices != statement.indices:
        return {}
    found: dict[int, Tiling] = {}
    for kernel in plan.kernels:
        found |= tilings_of(kernel.tree, statement.name)
    return found


def _statement(
    scop: Scop,
    statement: Statement,
    edges: Sequence[Dependence],
    tilings: Mapping[int, Tiling],
    is_open: bool,
) -> Html:
    own = [edge for edge in edges if edge.source == edge.sink == statement.name]
    head = join(
        code(f"{statement.name}[{', '.join(statement.indices)}]"), " ",
        badge(str(statement.kind), _KINDS.get(statement.kind, "muted")), " ",
        badge("atomic", "last") if statement.is_atomic else None,
    )  # fmt: skip
    facts = [
        _fact("domain", isl_code(statement.domain)),
        *(_access("writes", access.array, access) for access in statement.writes),
        *(_access("reads", access.array, access) for access in statement.reads),
    ]
    if statement.reduction is not None and statement.reduced:
        reduction = statement.reduction
        text = f"{reduction.operator} in {reduction.dtype}"
        facts.append(_fact("reduction", f"{text}, over {', '.join(statement.reduced)}"))
    drawings = _drawings(statement, own, tilings)
    return details(
        head, tag("div", tag("dl", facts), tag("div", drawings, class_="row"), class_="row"),
        is_open=is_open, data_s=statement.source_name or None,
    )  # fmt: skip


def _fact(name: str, *value: Child) -> Html:
    return tag("div", tag("dt", name), tag("dd", *value))


def _access(what: str, array: str, access: Access) -> Html:
    note = None if access.is_exact else badge("gathered", "unroll")
    text = access_text(array, access.subscripts)
    return _fact(what, code(text), " ", note, tag("div", isl_code(access.relation),
                                                  class_="note"))  # fmt: skip


def _drawings(
    statement: Statement, own: Sequence[Dependence], tilings: Mapping[int, Tiling]
) -> list[Html]:
    """Return the views of *statement*, the most telling first."""
    if len(statement.indices) < 2:
        return []
    found: list[Html] = []
    try:
        with bounded(DRAWING_OPERATIONS, DRAWING_SECONDS):
            for dims in chosen_dims(statement, own)[:MAX_VIEWS]:
                drawn = draw_domain(statement, dims, own, tilings)
                if drawn is not None:
                    found.append(drawn)
    except QuotaExceededError:
        found.append(tag("p", "Its domain takes too long to draw.", class_="note"))
    return found


def _dependences(edges: Sequence[Dependence]) -> Html:
    if not edges:
        return tag("p", "None: every instance may run at any time.", class_="note")
    rows = [
        [
            [code(edge.source), " → ", code(edge.sink)],
            code(edge.array),
            _kind_of(edge),
            isl_code(edge.relation),
        ]
        for edge in edges
    ]
    return table(["from, to", "array", "kind", "instances"], rows, "wide")


def _kind_of(edge: Dependence) -> Html:
    if edge.is_relaxed:
        return badge("order is free", "relaxed")
    return badge("flow", "flow") if edge.is_flow else badge("order", "muted")
