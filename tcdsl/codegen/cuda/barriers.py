"""Barriers on a GPU: of a block, of a cluster, of all blocks; and what they wait for."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tcdsl.codegen.ast.build import call, template
from tcdsl.codegen.ast.nodes import Call, Evaluate, Name, Node
from tcdsl.codegen.c.statements import Context
from tcdsl.costmodel.chip import WARP
from tcdsl.poly.scop import Statement
from tcdsl.schedule.grid_phases import grid_barriers
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Layout, Placement

_BARRIER = Call("__syncthreads", participants="xyz")
_CLUSTER_BARRIER = Call("tc_cluster_sync", participants="xyzc")


def barrier_nodes(context: Context, mapped: Mapped, statement: Statement) -> list[Node]:
    """Return the barrier *statement* of the kernel *mapped*, after all that it waits for."""
    if statement.is_grid:
        return [Evaluate(_grid_barrier(context, mapped, statement))]
    return [
        *_ends(context, mapped),
        *_arrivals(context, mapped, statement),
        Evaluate(_CLUSTER_BARRIER if statement.is_wide else _BARRIER),
    ]


def _grid_barrier(context: Context, mapped: Mapped, statement: Statement) -> Call:
    """Return the barrier of all blocks: the one of so many."""
    every = [barrier.name for barrier in grid_barriers(mapped)]
    number = every.index(statement.name) + 1
    tickets = context.names.of("ticket", "tickets")
    is_last = "true" if number == len(every) else "false"
    which = (str(number), is_last)
    barrier = template("tc_grid_barrier", which, Name(tickets), prod(mapped.grid))
    return replace(barrier, participants="xyzg")


def _arrivals(context: Context, mapped: Mapped, statement: Statement) -> list[Node]:
    """Return what waits for this thread's asynchronous copies, as many as a barrier needs."""
    own = list(_own_placements(context, mapped))
    if not any(placement.is_staged for placement in own):
        return []
    is_shown = any(placement.layout is Layout.ATOMS for placement in own)
    shown: list[Node] = [Evaluate(call("tc_show_copies"))] if is_shown else []
    if left := statement.groups_left:
        wait = Evaluate(template("tc_copy_wait_but", [left]))
        return [Evaluate(call("tc_copy_end_group")), wait, *shown]
    return [Evaluate(call("tc_copy_wait")), *shown]


def _ends(context: Context, mapped: Mapped) -> list[Node]:
    """Return what waits for products that go on after they were issued."""
    return [Evaluate(call("tc_end_products", one)) for one in sums_in_flight(context, mapped)]


def sums_in_flight(context: Context, mapped: Mapped) -> list[str]:
    """Return the names of the sums that such products add to."""
    sums = dict.fromkeys(
        context.scop.by_name[name].write.array
        for name in mapped.paths
        if mapped.together(name) > WARP
    )
    return [context.names.of("array", one) for one in sums]


def _own_placements(context: Context, mapped: Mapped) -> Iterator[Placement]:
    """Yield the placements of the arrays that this kernel uses."""
    for name in mapped.paths:
        statement = context.scop.by_name[name]
        for access in (*statement.writes, *statement.reads):
            if access.array in context.placements:
                yield context.placements[access.array]
