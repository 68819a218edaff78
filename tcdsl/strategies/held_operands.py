"""Operands in registers: a thread's part of each tile, one value of a step ahead of its products.

    for k / 16:                               for k / 16, (t - 1) / 16:
      for k % 16:  C += A.tile * B.tile  -->    for k % 16, (t - 1) % 16:
                                                  A.held = A.tile; B.held = B.tile
                                                  C += A.held * B.held

The first value of the next step is loaded in this one, so that threads have something to multiply
right after they have waited for one another (rewrites/scop/holding).
"""

from dataclasses import replace

from tcdsl.poly.isl_utils import dim_bounds, minus
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.holding import Held, hold
from tcdsl.schedule.nesting import Piece
from tcdsl.schedule.placement import HELD
from tcdsl.strategies.schedule import OuterLoop, Schedule, Steps


def with_held_operands(scop: Scop, schedule: Schedule, steps: Steps) -> tuple[Scop, Schedule]:
    """Return *scop* and *schedule* with all operands held, as they are where one cannot be."""
    step = steps.loop.pieces[steps.reader].coordinate
    around = [loop.pieces[steps.reader].coordinate for loop in schedule.outer]
    term = Coordinate(step.position, step.shift, 1, step.div * step.mod)
    held: list[Held] = []
    new = scop
    for tile in schedule.storage:
        one = hold(new, steps.reader, tile, around, term, step.div)
        if one is None:
            return scop, schedule
        new = one.scop
        held.append(one)
    for one in held:
        schedule, steps = _with(schedule, steps, one, step)
    reads = schedule.remaining[steps.reader]
    point = replace(step, div=1, mod=step.div)
    own = Piece(point, step.div, Role.REDUCED, LoopKind.UNROLL)
    assert steps.points is not None, "there are operands"
    points = replace(steps.points, pieces={**steps.points.pieces, steps.reader: own})
    rest = tuple(piece for piece in reads if piece.coordinate.position != step.position)
    # The last value of a step needs the next step: whole are those that have one.
    end = dim_bounds(scop.by_name[steps.reader].domain, step.position, scop.context)[1]
    limit = minus(end, step.shift + 1)
    steps = replace(steps, points=points, loop=replace(steps.loop, limit=limit))
    return new, replace(
        schedule, steps=steps, remaining={**schedule.remaining, steps.reader: rest},
        storage={**schedule.storage, **{one.array: HELD for one in held}},
    )  # fmt: skip


def _with(schedule: Schedule, steps: Steps, one: Held, step: Coordinate) -> tuple[Schedule, Steps]:
    """Return *schedule* and *steps* with the loops of what fills the registers."""
    at, kept = len(schedule.outer), len(schedule.outer) + 1  # its last two dimensions
    outer = []
    for number, loop in enumerate(schedule.outer):
        piece = loop.pieces[steps.reader]
        own = Coordinate(number)
        if piece.coordinate.position == one.kept:
            own = replace(piece.coordinate, position=kept)
        mine = replace(piece, coordinate=own, role=Role.PARALLEL)
        outer.append(replace(loop, pieces={**loop.pieces, one.copy: mine}))
    pieces = [
        replace(p, coordinate=replace(p.coordinate, position=kept), role=Role.PARALLEL)
        for p in schedule.remaining[steps.reader]
        if p.coordinate.position == one.kept
    ]
    if pieces[-1].coordinate.div == 1 and pieces[-1].kind is LoopKind.UNROLL:
        pieces[-1] = replace(pieces[-1], kind=LoopKind.LANES)
    whole = steps.loop.pieces[steps.reader]
    ahead = Piece(Coordinate(at, 1, step.div), whole.extent + 1, Role.PARALLEL, LoopKind.SERIAL)
    point = Piece(Coordinate(at, 1, 1, step.div), step.div, Role.PARALLEL, LoopKind.UNROLL)
    loop = replace(steps.loop, pieces={**steps.loop.pieces, one.copy: ahead})
    before = steps.points.pieces if steps.points is not None else {}
    points = OuterLoop({**before, one.copy: point}, LoopKind.UNROLL)
    remaining = {**schedule.remaining, one.copy: tuple(pieces)}
    schedule = replace(schedule, outer=tuple(outer), remaining=remaining)
    return schedule, replace(steps, loop=loop, points=points)
