"""Statements into the kernels of a GPU: what may be one kernel, and still leave the chip its work.

    a(i) +=! x(i,j)         one kernel: blocks over i, and x stays in the cache between both
    y(i,j) = x(i,j) / a(i)
    b(j) +=! y(i,j)         another one: of the first, blocks over i would be left for all three

A statement joins a group unless a contraction would lose its tiles, or the group much of the
parallelism that a part of it has alone.  And b would join the first kernel where its sums of
columns stay in registers beside the rows of x (fused_directions).  That is where the search for
plans begins (``plan/``), which merges what takes less time as one kernel: rows for which there are
too few blocks are shared by clusters, or so short that a block is done with one before another
kernel could begin, and columns are kept in registers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.locality import Shape
from tcdsl.options import Options
from tcdsl.poly.dependences import Dependences, dependences_of
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import (
    Group,
    Refused,
    alignment_of,
    alone,
    group_statements,
    recording,
)
from tcdsl.schedule.nesting import Alignment
from tcdsl.schedule.plan import Tried
from tcdsl.schedule.separation import Separation
from tcdsl.schedule.trace import record
from tcdsl.strategies.atomics import freed, with_atomics
from tcdsl.strategies.chunked_rows import ChunkedRows
from tcdsl.strategies.fused_directions import Estimates
from tcdsl.strategies.gpu_shapes import gpu_shapes_of
from tcdsl.strategies.library_kernels import library_of
from tcdsl.strategies.long_groups import with_long_groups
from tcdsl.strategies.operations import is_chunkable, work_of
from tcdsl.strategies.problem import Problem, nameless_analysis
from tcdsl.strategies.templates import tile_implicit, tile_mma, tile_simt, transpose
from tcdsl.strategies.tiled_chains import why_not_beside

ENOUGH = gpu_thresholds.PARALLELISM_KEPT
SMALL_WORK = gpu_thresholds.LAUNCH_OPERATIONS


UNTRIED = "their loops may be one, but the search had ended, or leaves one of them as it is"


@dataclass(frozen=True, slots=True)
class Grouped:
    """A scop and its kernels to be; *chunks*: those of them that blocks share row by row.

    *refused*: why groups did not grow, *tried*: which rewrites were weighed.  *wider*: the groups
    if clusters of blocks share their rows, where blocks alone would leave a part of the chip idle.
    """

    scop: Scop
    dependences: Dependences
    alignment: Alignment
    shapes: Mapping[str, Shape]
    groups: Sequence[Group]
    chunks: Sequence[ChunkedRows] = ()
    refused: tuple[tuple[Group, str, str], ...] = ()
    tried: tuple[Tried, ...] = ()
    wider: Sequence[Group] = ()

    @property
    def separation(self) -> Separation:
        """What says why no two kernels are one."""
        groups, refused = self.groups, self.refused
        return Separation(self.scop, groups, refused, self.alignment, self.shapes, UNTRIED)

    def chunks_of(self, group: Group) -> ChunkedRows | None:
        """Return the chunks that the kernel *group* is over, None if it is over none."""
        return next((c for c in self.chunks if set(c.members) & set(group.members)), None)


def group_for_gpu(
    scop: Scop, options: Options, gpu: Chip, chunks: Sequence[ChunkedRows] = ()
) -> Grouped:
    """Partition the statements of *scop* into kernels, what blocks do with *chunks* apart."""
    known = ungrouped(scop, options)
    scop, shapes = known.scop, known.shapes
    if atomic := [s.name for s in scop.statements if s.is_atomic]:
        record("atomics", scop, notes=atomic)
    refused: Refused = []
    policy = _Policy(scop, shapes, options, gpu, chunks)

    def grouped(refused: Refused) -> list[Group]:
        why_not = recording(policy.why_not, refused)
        return with_long_groups(group_statements(scop, known.alignment, shapes, why_not), shapes)

    groups = grouped(refused)
    wider: list[Group] = []
    if policy.left_idle and gpu.blocks_per_cluster > 1:
        policy.blocks_a_row = gpu.blocks_per_cluster
        wider = grouped([])
    return replace(known, groups=groups, chunks=chunks, refused=tuple(refused), wider=wider)


def ungrouped(scop: Scop, options: Options) -> Grouped:
    """Return what groups of *scop*'s statements depend on, and none yet; atomic where they may."""
    dependences = dependences_of(scop)
    shapes = gpu_shapes_of(scop, dependences)
    scop = with_atomics(scop, shapes, options)
    shapes = {name: freed(shape, scop.by_name[name]) for name, shape in shapes.items()}
    return Grouped(scop, dependences, alignment_of(scop, dependences), shapes, ())


def tiled_members(grouped: Grouped, options: Options, gpu: Chip) -> frozenset[str]:
    """Return the statements of contractions and stencils in tiles, and those of libraries."""
    stencils = frozenset(n for overlapped in grouped.scop.overlapped for n in overlapped.indices)
    libraries = frozenset(s.name for s in grouped.scop.statements if s.library)
    return (
        stencils
        | libraries
        | frozenset(
            name
            for group in grouped.groups
            if _is_in_tiles(Problem(grouped.scop, group, grouped.shapes, gpu, options))
            for name in group.members
        )
    )


def _is_in_tiles(problem: Problem) -> bool:
    return _has_tiles(problem) or transpose.why_not(problem) is None


@nameless_analysis
def _has_tiles(problem: Problem) -> bool:
    """Return whether *problem* looks like a contraction that tiles pay for."""
    tensor = any(t.TEMPLATE.is_wanted(problem) for t in (tile_mma, tile_implicit))
    return tensor or tile_simt.is_tiled(problem)


@nameless_analysis
def _is_on_tensor_cores(problem: Problem) -> bool:
    """Return whether *problem* is products on tensor cores."""
    return tile_mma.TEMPLATE.is_wanted(problem)


class _Policy:
    """Whether a statement joins a group: it must leave the chip its work.

    *blocks_a_row* blocks share a row of a group.  *left_idle*: whether that kept some apart.
    """

    def __init__(
        self,
        scop: Scop,
        shapes: Mapping[str, Shape],
        options: Options,
        gpu: Chip,
        chunks: Sequence[ChunkedRows],
    ) -> None:
        self.scop = scop
        self.shapes = shapes
        self.options = options
        self.gpu = gpu
        self.blocks_a_row = 1
        self.left_idle = False
        self._estimates = Estimates(scop, shapes, gpu, options)
        self._apart = [set(part) for c in chunks for part in (c.members, c.wholes)]
        self._tiled: dict[str, bool] = {}

    def why_not(self, group: Group, grown: Group) -> str | None:
        """Return why *group* should not grow, or None."""
        members = set(grown.members)
        if self.options.fuse == "none":
            return "fusion is off"
        if library := library_of(self.scop, grown.members):
            return f"{library} computes a part of it"
        if reason := why_not_beside(self.scop, grown):
            return reason
        if len({self.scop.by_name[name].is_rare for name in members}) > 1:
            return "hardly any data let a part of it run"
        if any(members <= overlapped.indices.keys() for overlapped in self.scop.overlapped):
            return None
        if any(part & members and members - part for part in self._apart):
            return "blocks share its rows"
        if any(members <= part for part in self._apart):
            return None
        problem = self._problem(grown)
        if any(map(self._is_tiled, grown.members)) and not _has_tiles(problem):
            return "a contraction would lose its tiles"
        if tile_mma.is_extended(problem):
            return "another product, or what is reduced of one, is made with it if that is faster"
        if self._estimates.is_faster(grown, [group, alone(grown.members[-1], self.shapes)]):
            return None
        if self._estimates.row_column(group) is not None:
            return "it would not fit beside rows and sums of columns, or is faster apart"
        # Blocks may share the sums of a product on tensor cores with anything behind these.
        return None if _is_on_tensor_cores(problem) else self._why_idle(group, grown)

    def _why_idle(self, group: Group, grown: Group) -> str | None:
        """Return how much less of the chip would have work, if blocks alone share it, or None."""
        after = self._filled(grown)
        for part in (group, alone(grown.members[-1], self.shapes)):
            least = ENOUGH * min(self._filled(part), 1.0)
            if self._work(part) >= SMALL_WORK and after < least:
                self.left_idle = True
                return f"only {after:.2g} of the chip would have work, not {least:.2g}"
        return None

    def _is_tiled(self, name: str) -> bool:
        """Return whether *name* alone is a contraction in tiles."""
        if name not in self._tiled:
            self._tiled[name] = _has_tiles(self._problem(alone(name, self.shapes)))
        return self._tiled[name]

    def _problem(self, group: Group) -> Problem:
        return Problem(self.scop, group, self.shapes, self.gpu, self.options)

    def _work(self, group: Group) -> int:
        return sum(work_of(self.shapes[name]) for name in group.members)

    def _filled(self, group: Group) -> float:
        """Return the part of the chip that has work when it runs over the shared axes.

        Blocks run over axes that are parallel for all members, and over chunks of one that is
        reduced for some, if threads can share that too.
        """
        lead = group.lead(self.shapes)
        shape = self.shapes[lead]
        inner = next((d for d in reversed(shape.order) if shape.extents[d] > 1), -1)
        is_flat = any(
            axis[lead] == inner and is_chunkable(axis, self.shapes) for axis in group.axes
        )
        parallel = [axis for axis in group.axes if group.has_parallel(axis, self.shapes)]
        chunks = [
            shape.extents[axis[lead]]
            for axis in group.axes
            if axis not in parallel and is_flat and is_chunkable(axis, self.shapes)
        ]
        extent = prod(shape.extents[axis[lead]] for axis in parallel) * max(chunks, default=1)
        full = self.gpu.threads // 4 if is_flat else self.gpu.multiprocessors
        return extent * (1 if is_flat else self.blocks_a_row) / full
