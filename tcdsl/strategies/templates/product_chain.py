"""Chains of small products: a block has some values of what all share, and all that lies between.

    h(b,o) +=! x(b,n) * V(o,n)      blocks over tiles of b
    y(b,p) +=! h(b,o) * W(p,o)      { threads: h, some results each | barrier | threads: y }

What one member hands to the next is shared memory where threads exchange it, else registers
(schedule/promotion finds out).  Threads are along columns, rows and depth of each member's results
(``chained``).  Weights are read through the first-level cache, in vectors along the terms.

Legal as any schedule is: the loops over blocks are along axes that all members share in parallel.
"""

from collections.abc import Iterator
from math import inf

from tcdsl.costmodel.chip import Unit
from tcdsl.costmodel.estimate import estimate, fastest
from tcdsl.costmodel.work import Work
from tcdsl.poly.loop_tree import Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.rewrites.scop.padding import Spans
from tcdsl.schedule.nesting import Piece
from tcdsl.schedule.placement import LARGE
from tcdsl.strategies.alternatives import least_seconds
from tcdsl.strategies.chain_work import (
    UNROLLED,
    ChainConfig,
    between_of,
    block_shapes,
    chain_work,
    factors_of,
    has_room,
    share_of,
    shares,
    tile_of,
)
from tcdsl.strategies.chained import Member, run_of, why_not_chained
from tcdsl.strategies.lowering import Lowering
from tcdsl.strategies.problem import Problem, nameless_analysis
from tcdsl.strategies.schedule import Schedule, Tile
from tcdsl.strategies.template import Template
from tcdsl.strategies.templates import tile_mma

NAME = "product_chain"
ROOM_LEFT = 2048  # bytes, for what is aligned
LISTED = 16  # configurations, the fastest of some hundred


def why_not(problem: Problem) -> str | None:
    """Return why the members are no chain of products, or None."""
    if problem.options.tile or problem.chunks is not None:
        return "tiles are asked for, or blocks share rows"
    if reason := why_not_chained(problem):
        return reason
    return None if has_room(problem) else "what lies between does not fit a block's shared memory"


@nameless_analysis
def is_likely(problem: Problem) -> bool:
    """Return whether products of one tile are not estimated to be faster on tensor cores."""
    if tile_mma.why_not(problem) is not None:
        return True
    others = least_seconds(problem, (tile_mma.TEMPLATE,))
    products = sum(problem.shapes[name].instances for name in problem.group.members)
    if products / problem.gpu.rate(Unit.FMA_F32) > others:  # whatever its threads
        return False
    return least_seconds(problem, (TEMPLATE,)) <= others


def space(problem: Problem) -> Iterator[ChainConfig]:
    """Yield the configurations of the least estimated times, then the best of each other share.

    Those with copied factors come last, for none has been timed.
    """
    first = _first(problem)
    if first is not None:
        yield first
        ranked = _ranked(problem, is_copied=False)
        others = {(config.sizes, config.rows, config.columns): config for config in ranked[::-1]}
        yield from list(dict.fromkeys((*ranked[:LISTED], *others.values())))[1:]
    yield from _ranked(problem, is_copied=True)[:LISTED]


@nameless_analysis
def _first(problem: Problem) -> ChainConfig | None:
    """Return the first of those that :func:`_ranked` returns, most others ruled out by bounds."""
    every = list(_offered(problem, is_copied=False))
    seconds, number = fastest([work for _, work in every], problem.gpu)
    return every[number][0] if seconds < inf else None


def _ranked(problem: Problem, *, is_copied: bool) -> list[ChainConfig]:
    """Return the configurations that fit, the fastest first."""
    timed = [(estimate(work, problem.gpu).seconds, c) for c, work in _offered(problem, is_copied)]
    found = [(seconds, config) for seconds, config in timed if seconds < inf]
    return [config for _, config in sorted(found, key=lambda pair: pair[0])]


def _offered(problem: Problem, is_copied: bool) -> Iterator[tuple[ChainConfig, Work]]:
    """Yield configurations for whose shared memory there is room, and what they cost."""
    room = problem.gpu.shared_bytes_per_block - (ROOM_LEFT if is_copied else 0)
    for share in shares(problem):
        for shape in block_shapes(problem, share):
            shape = shape._replace(is_copied=True) if is_copied else shape
            work = chain_work(problem, share, shape)
            if work.shared_bytes <= room:
                yield ChainConfig(share.sizes, *shape), work


def schedule(problem: Problem, config: ChainConfig) -> Schedule:
    """Return the schedule of a block for some values of what all members share."""
    share, shape = share_of(problem, config.sizes), config.shape
    members = share.members
    tiles = [
        Tile(axis, problem.extent(axis), problem.lower(axis), repeat=size)
        for axis, size in reversed(list(zip(problem.parallel, config.sizes, strict=True)))
    ]
    blocks = Lowering(problem.group, problem.shapes, problem.gpu, tiles).block_loops()
    sizes = " x ".join(map(str, config.sizes))
    names = ", ".join(map(problem.name_of, problem.parallel))
    threads = f"{config.threads_x} x {config.threads_y} x {config.threads_z}"
    is_large = config.is_copied or (share.shared_bytes > problem.gpu.static_shared_bytes_per_block)
    return Schedule(
        problem.group.members,
        tuple(blocks),
        {name: _inside(problem, config, member) for name, member in members.items()},
        {name: () for name, member in members.items() if member.reduced},
        why=(
            f"a block has {sizes} values of {names}, and all that lies between",
            f"{threads} threads, {config.rows} x {config.columns} results of each at once",
        ),
        in_registers=True,
        whole={
            name: spans
            for name, own in members.items()
            if own.reduced and (spans := _whole(problem, own))
        },
        storage=dict.fromkeys(between_of(problem), LARGE) if is_large else {},
        copied=tuple(factors_of(problem)) if config.is_copied else (),
        copiers=(config.threads_x, config.threads_y, config.threads_z),
        work=chain_work(problem, share, shape),
    )


def _whole(problem: Problem, member: Member) -> Spans:
    """Return the ranges of *member*'s own open axes: guards within its sums would part their loads.

    What all members share are blocks, which are there or not.
    """
    shape = problem.shapes[member.name]
    shared = {axis[member.name] for axis in problem.parallel}
    return {
        shape.statement.indices[dim]: (0, extent)
        for dim, extent in enumerate(member.extents)
        if dim not in shared
        and shape.roles[dim] is Role.PARALLEL
        and problem.is_open({member.name: dim})
        and shape.lower[dim] == 0
    }


def _inside(problem: Problem, config: ChainConfig, member: Member) -> tuple[Piece, ...]:
    """Return the loops of *member* in a block: threads, turns, terms, what a thread has at once."""
    rows, columns = tile_of(member, config.shape)
    along = _Along(problem, member)
    threads, turns, at_once = [], [], []
    for dim, axis, width, before, after in (
        (member.depth, 2, config.threads_z, 1, 1),
        (member.row, 1, config.threads_y, 1, rows),
        (member.column, 0, config.threads_x, columns, 1),
    ):
        if dim < 0:
            continue
        digits = along.cut(dim, (before, width, after))
        (lane, thread, repeat, turn) = digits
        if thread is not None:
            threads.append(along.piece(dim, thread, LoopKind.THREAD, axis, width))
        if turn is not None:
            turns.append(along.piece(dim, turn, LoopKind.SERIAL))
        if repeat is not None:
            at_once.append(along.piece(dim, repeat, LoopKind.UNROLL))
        if lane is not None:
            at_once.append(along.piece(dim, lane, LoopKind.LANES))
    turns += [along.whole(dim) for dim in member.rest]
    terms = [along.whole(dim) for dim in member.reduced[:-1]]
    run, is_vector = run_of(problem, member)
    of_run = []
    if member.reduced:
        several = max(1, min(UNROLLED // run, member.extents[member.term] // run))
        several = 1 << (several.bit_length() - 1)
        lane, unrolled, _, steps = along.cut(member.term, (run, several, 1))
        kind = LoopKind.LANES if is_vector else LoopKind.UNROLL
        if steps is not None:
            terms.append(along.piece(member.term, steps, LoopKind.SERIAL))
        if unrolled is not None:
            terms.append(along.piece(member.term, unrolled, LoopKind.UNROLL))
        of_run = [along.piece(member.term, lane, kind)] if lane is not None else []
    return (*threads, *turns, *terms, *at_once, *of_run)


Digit = tuple[int, int, int]  # div, mod (0: the rest), extent


class _Along:
    """The loops along the dimensions of a member, in a block."""

    def __init__(self, problem: Problem, member: Member) -> None:
        self.shape = problem.shapes[member.name]
        self.member = member
        self._lower = list(self.shape.lower)
        self._cut: dict[int, int] = {}
        for axis in problem.parallel:
            dim = axis[member.name]
            self._lower[dim] = problem.lower(axis)
            if member.extents[dim] < problem.extent(axis):
                self._cut[dim] = member.extents[dim]

    def cut(self, dim: int, counts: tuple[int, int, int]) -> list[Digit | None]:
        """Return three digits of *dim* with *counts* values, the least first, and what is left."""
        extent = self.member.extents[dim]
        size = self._cut.get(dim, 0)
        found: list[Digit | None] = []
        div = 1
        for count in counts:
            left = -(-extent // div)
            if count == 1 or left == 1:
                found.append(None)
                continue
            is_last = left <= count
            mod = count if not is_last else (size // div if size else 0)
            found.append((div, mod, min(count, left)))
            div *= count
        left = -(-extent // div)
        found.append((div, size // div if size else 0, left) if left > 1 else None)
        return found

    def piece(self, dim: int, digit: Digit, kind: LoopKind, axis: int = 0, width: int = 0) -> Piece:
        """Return a loop along a digit of *dim*."""
        div, mod, extent = digit
        coordinate = Coordinate(dim, self._lower[dim], div, mod)
        role = self.shape.roles[dim]
        return Piece(coordinate, extent, role, kind, axis, width, self.member.part)

    def whole(self, dim: int) -> Piece:
        """Return the loop along all of *dim*."""
        digit = (1, self._cut.get(dim, 0), self.member.extents[dim])
        return self.piece(dim, digit, LoopKind.SERIAL)


TEMPLATE = Template(NAME, ChainConfig, why_not, space, schedule, is_likely)
