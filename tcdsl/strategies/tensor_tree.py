"""The loops of a kernel on tensor cores, before they are opened: blocks, steps, what is around.

for blocks, and the tiles of one:   before
                                    for steps:  inside
                                    after; what the last block of a tile does
"""

from collections.abc import Mapping, Sequence

from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    AnyCoordinate,
    Leaf,
    Loop,
    LoopKind,
    Node,
    sequence,
    statements_of,
)
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.nesting import Nester
from tcdsl.schedule.placement import Requests, copied
from tcdsl.strategies.fragments import Level


@dataclass(frozen=True, eq=False)
class TensorKernel:
    """The loops of tiles before they are opened: the *tree* of a schedule over *scop*."""

    scop: Scop
    name: str  # the contraction's statement: the first of several
    outer: tuple[Mapping[str, Level], ...]  # over blocks, and the tiles of one
    step: Mapping[str, Level]  # around the copies and the product; none: in one step
    before: tuple[tuple[str, ...], ...]  # the accumulators' initialisations, each in one nest
    inside: tuple[str, ...]
    after: tuple[tuple[str, ...], ...]  # in one nest each
    levels: Mapping[str, Sequence[Level]]
    staged: tuple[str, ...]  # tiles that asynchronous copies bring
    buffers: int = 1  # iterations that these have room for at least
    left: tuple[str, ...] = ()  # what is to be done after the kernel: sums over chunks
    last: tuple[tuple[str, ...], ...] = ()  # what the last block of a tile does, each in one nest

    def storage(self) -> Requests:
        """Return where the tiles are to be."""
        return {name: copied(self.buffers) for name in self.staged}

    def tree(self, nester: Nester) -> Node:
        """Return the loops."""
        inside: Node = sequence([self._nest([name], nester) for name in self.inside])
        before, after = (
            [self._nest(names, nester) for names in nests] for nests in (self.before, self.after)
        )
        steps = _loop(self.step, inside, nester) if self.step else inside
        tree = sequence([*before, steps, *after])
        around = self.outer
        if self.last:
            around, chunks = self.outer[:-1], self.outer[-1]
            own = sequence([self._nest(names, nester) for names in self.last])
            tree = sequence([_loop(chunks, tree, nester), _last(own, chunks[self.name], nester)])
        for levels in reversed(around):
            tree = _loop(levels, tree, nester)
        return tree

    def _nest(self, names: Sequence[str], nester: Nester) -> Node:
        """Return the statements *names* in the same loops, which their axes align."""
        node: Node = sequence([Leaf(name) for name in names])
        for depth in reversed(range(len(self.levels[names[0]]))):
            node = _loop({name: self.levels[name][depth] for name in names}, node, nester)
        return node


def _loop(levels: Mapping[str, Level], body: Node, nester: Nester) -> Loop:
    """Return the loop of *levels* around *body*."""
    level = next(iter(levels.values()))
    coordinates: Mapping[str, AnyCoordinate] = {n: own.coordinate for n, own in levels.items()}
    extent = max(own.extent for own in levels.values())
    name = nester.fresh_name(str(level.kind))
    return Loop(
        name, coordinates, level.kind, body, extent, 0, level.axis, level.width, level.cluster,
        runs_on=level.runs_on,
    )  # fmt: skip


def _last(body: Node, chunks: Level, nester: Nester) -> Loop:
    """Return the loop that the last of the blocks of *chunks* runs."""
    nowhere = {name: AffineCoordinate(()) for name in statements_of(body)}
    return Loop(nester.fresh_name("last"), nowhere, LoopKind.LAST, body, 1, width=chunks.width)
