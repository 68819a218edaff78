"""Signals: what a block has stored is read by another one, which waits for it.

    block 1, tile 3           block 2, tile 3
      stored[1] = ...           await(1)
      signal(1)                 ... = stored[1]

A signal and what awaits it have a flag, whose number is a sum of the iterations around them, and
one warp of the one block tells the same warp of the other.  They order a dependence between
blocks iff

    source -> its signal -> the flag  =  the flag <- its await <- sink

for all pairs, the signal after the source in the same iteration, the await before the sink.  That
dependences are of one thread of each block is for schedule/cross_thread to see.  And waiting ends:
every flag is signalled once and awaited once (who awaits it clears it for the next launch), by a
block of a greater number than that which signals it.  Blocks start in the order of their numbers,
so that whoever is waited for runs or has ended; the one of the least number waits for nobody.
"""

from collections.abc import Iterator

import islpy as isl

from tcdsl.poly.isl_utils import val
from tcdsl.poly.loop_tree import Loop, LoopKind, Node, loops_around, statements_of, values_of
from tcdsl.poly.scop import EventKind, Scop, Statement


def signals_of(scop: Scop, tree: Node, kind: EventKind) -> Iterator[Statement]:
    """Yield the signals of *tree*, or what awaits them, as *kind* says."""
    for name in statements_of(tree):
        event = scop.by_name[name].event
        if event is not None and event.kind is kind:
            yield scop.by_name[name]


def flag_of(statement: Statement) -> isl.Map:
    """Return { instance -> [its flag] } of a signal, or of what awaits one."""
    assert statement.event is not None
    *factors, constant = statement.event.flag
    aff = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(statement.domain.get_space()))
    aff = aff.add_constant_val(val(constant))
    for dim, factor in enumerate(factors):
        aff = aff.set_coefficient_val(isl.dim_type.in_, dim, val(factor))
    return isl.Map.from_pw_aff(isl.PwAff.from_aff(aff)).intersect_domain(statement.domain)


def is_signalled(scop: Scop, tree: Node, ends: tuple[str, str], pairs: isl.Map) -> bool:
    """Return whether signals order *pairs*, of instances of the statements *ends*."""
    order = list(statements_of(tree))
    source, sink = ends
    for signal in signals_of(scop, tree, EventKind.SIGNAL):
        for wait in signals_of(scop, tree, EventKind.AWAIT_SIGNAL):
            places = map(order.index, (source, signal.name, wait.name, sink))
            before, own, other, after = places
            if before > own or other > after:
                continue
            flags = [_flags(scop, tree, *one) for one in ((source, signal), (sink, wait))]
            if flags[0] is None or flags[1] is None:
                continue
            same = flags[0].apply_range(flags[1].reverse())
            if pairs.is_subset(same):
                return True
    return False


def _flags(scop: Scop, tree: Node, name: str, event: Statement) -> isl.Map | None:
    """Return { instance of *name* -> [the flag of *event* in its iteration] }, None if in none."""
    path, around = loops_around(tree, name), loops_around(tree, event.name)
    if [loop.name for loop in path[: len(around)]] != [loop.name for loop in around]:
        return None
    values = values_of(scop, name, around)
    return values.set_tuple_name(isl.dim_type.out, event.name).apply_range(flag_of(event))


def why_not_signalled(scop: Scop, tree: Node) -> str | None:
    """Return why some block of *tree* may wait for ever, or a flag be left, or None."""
    signals, awaits = (
        list(signals_of(scop, tree, kind)) for kind in (EventKind.SIGNAL, EventKind.AWAIT_SIGNAL)
    )
    if not signals and not awaits:
        return None
    if len(signals) != 1 or len(awaits) != 1:
        return "signals of two kinds have the same flags"
    (signal,), (wait,) = signals, awaits
    own, other = flag_of(signal), flag_of(wait)
    if not own.is_injective() or not other.is_injective():
        return "a flag is signalled or awaited twice"
    if not own.range().is_equal(other.range()):
        return f"{wait.name} awaits other flags than {signal.name} signals"
    blocks = [_block_of(scop, tree, one) for one in (wait, signal)]
    if blocks[0] is None or blocks[1] is None:
        return "blocks that wait for one another are not in one row"
    waiting = own.reverse().apply_range(blocks[1])  # { flag -> block that signals it }
    waiting = blocks[0].reverse().apply_range(other).apply_range(waiting)
    if not waiting.is_subset(_to_lesser(waiting)):
        return f"a block waits at {wait.name} for one that starts later"
    return None


def _block_of(scop: Scop, tree: Node, event: Statement) -> isl.Map | None:
    """Return { instance of *event* -> [its block] }, None where blocks are no single row."""
    loops: list[Loop] = [
        loop for loop in loops_around(tree, event.name) if loop.kind is LoopKind.BLOCK
    ]
    if len(loops) != 1 or loops[0].axis or not loops[0].has_one_iteration:
        return None
    return values_of(scop, event.name, loops)


def _to_lesser(relation: isl.Map) -> isl.Map:
    space = relation.get_space()
    return isl.Map.lex_gt(space.domain())
