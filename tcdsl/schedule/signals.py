"""Where blocks signal and wait for one another: poly/signals.py says when that is right.

    BLOCK p                              BLOCK p
      for tiles:  part = ...               for tiles:  part = ...
                  stored[b] = part  --->               stored[b] = part;  signal p
                  for b:                               for b:  await P - b
                    sum += stored[b]                           sum += stored[b]

A dependence through memory whose ends are in different blocks gets a signal after its source, whose
flag is the block's number, and a wait before its sink, in the loops that no threads share.  The
number of the block that is waited for goes down as the innermost of these goes up.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

import islpy as isl

from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.loop_tree import (
    Leaf,
    Loop,
    LoopKind,
    Node,
    loops_of,
    statements_of,
    values_of,
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import Event, EventKind, Scop, Statement
from tcdsl.poly.signals import signals_of, why_not_signalled
from tcdsl.schedule.events import event_statement, with_event_coordinates
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Placements
from tcdsl.schedule.plan import Kernel

_TOGETHER = (LoopKind.BLOCK, LoopKind.SERIAL)  # the loops that all threads of a block run


def signal_count(scop: Scop, tree: Node) -> int:
    """Return how many flags the blocks of *tree* have, one for each of their warps; 0 if none."""
    if not any(signals_of(scop, tree, EventKind.SIGNAL)):
        return 0
    mapped = Mapped(scop, tree)
    return mapped.grid[0] * warps_of(mapped)


def warps_of(mapped: Mapped) -> int:
    """Return how many warps of a block signal."""
    _, y, z = mapped.block
    return y * z


def with_signals(
    mapped: Mapped, tree: Node, dependences: Dependences, placements: Placements, number: str
) -> tuple[Node, Sequence[Statement]]:
    """Return *tree* with the signals that dependences between blocks need, and these."""
    crossing = [
        edge for edge in _between_blocks(mapped, dependences) if edge.array not in placements
    ]
    if not crossing:
        return tree, ()
    edge = crossing[0]
    from_, to = (
        tuple(takewhile(lambda loop: loop.kind in _TOGETHER, mapped.paths[name]))
        for name in (edge.source, edge.sink)
    )
    block = (*(int(loop.kind is LoopKind.BLOCK) for loop in from_), 0)
    turn = (*(0 for _ in to[:-1]), -1, _sum_of_ends(mapped.scop, edge, from_[0], to[-1]))
    signal = event_statement(
        mapped.scop,
        f"signal{number}",
        [edge.source],
        from_,
        Event(EventKind.SIGNAL, flag=block),
        "",
    )
    wait = event_statement(
        mapped.scop, f"await_signal{number}", [edge.sink], to,
        Event(EventKind.AWAIT_SIGNAL, flag=turn), "",
    )  # fmt: skip
    tree = _put(tree, [loop.name for loop in from_], edge.source, signal, is_after=True)
    return _put(tree, [loop.name for loop in to], edge.sink, wait, is_after=False), (signal, wait)


def is_signalled(mapped: Mapped, dependences: Dependences) -> bool:
    """Return whether a block of *mapped* may wait for another one."""
    return any(_between_blocks(mapped, dependences))


def _between_blocks(mapped: Mapped, dependences: Dependences) -> Iterator[Dependence]:
    return (edge for edge in dependences.edges if _is_between_blocks(mapped, edge))


def _sum_of_ends(scop: Scop, edge: Dependence, block: Loop, turn: Loop) -> int:
    """Return what the source's *block* and the sink's *turn* add up to, of some pair of *edge*."""
    ends = values_of(scop, edge.source, [block]), values_of(scop, edge.sink, [turn])
    values = edge.relation.apply_domain(ends[0]).apply_range(ends[1])
    point = values.wrap().sample_point()
    return sum(int(point.get_coordinate_val(isl.dim_type.set, d).to_python()) for d in range(2))


def _is_between_blocks(mapped: Mapped, edge: Dependence) -> bool:
    """Return whether the ends of *edge* are in one loop over blocks, and in different blocks."""
    if not edge.is_flow or not {edge.source, edge.sink} <= mapped.paths.keys():
        return False
    own, other = (
        [loop for loop in mapped.paths[name] if loop.kind is LoopKind.BLOCK]
        for name in (edge.source, edge.sink)
    )
    if [loop.name for loop in own] != [loop.name for loop in other]:
        return False
    return any(not edge.relation.is_subset(_same(mapped.scop, edge, loop)) for loop in own)


def _same(scop: Scop, edge: Dependence, loop: Loop) -> isl.Map:
    source, sink = (
        isl.MultiPwAff.from_pw_aff(
            isl.PwAff.from_aff(
                loop.coordinates[name].function(scop.by_name[name].domain.get_space())
            )
        )
        for name in (edge.source, edge.sink)
    )
    return source.eq_map(sink)


def _put(node: Node, around: Sequence[str], name: str, event: Statement, *, is_after: bool) -> Node:
    """Return *node* with *event* next to what has *name*, below the loops *around*."""
    if not around:
        own: list[Node] = list(node.children) if isinstance(node, Children) else [node]
        at = next(n for n, child in enumerate(own) if name in statements_of(child))
        own.insert(at + is_after, Leaf(event.name))
        return Children(tuple(own))
    match node:
        case Children(children=children):
            inside = [
                _put(child, around, name, event, is_after=is_after)
                if any(loop.name == around[0] for loop in loops_of(child)) else child
                for child in children
            ]  # fmt: skip
            return Children(tuple(inside))
        case Loop() if node.name == around[0]:
            body = _put(node.body, around[1:], name, event, is_after=is_after)
            return with_event_coordinates(node, body, [event])
        case _:
            return node


def why_not_in_order(scop: Scop, kernel: Kernel) -> str | None:
    """Return why some block of *kernel* may wait for ever, or None."""
    if kernel.code.is_reversed and signal_count(scop, kernel.tree):
        return "blocks that wait for one another start in reversed order"
    return why_not_signalled(scop, kernel.tree)
