"""Which block and which thread runs an instance: what the mapped loops of a kernel say.

    for b = blockIdx.x, + gridDim.x, ...         BLOCK  b = i / 8:     block  b % gridDim.x
      for r = threadIdx.y, ...           <---      THREAD r = i % 8:   thread r % blockDim.y
        S[i]

A statement that is below no THREAD loop of an axis is *uniform* along it.  It is *replicated* if it
writes nothing but registers: every thread runs it, and has a copy.  Else it is *pinned*: thread 0
runs it.  The updates of a partial accumulator are mapped along axes along which their fold is
uniform: the fold is a *collective* of those axes, in which all threads take part.

Beside x, y and z a thread has a fourth coordinate: the *rank* of its block in a cluster of blocks,
which run at the same time and see each other's shared memory (compute capability 9.0 on).  To all
that reasons about threads it is an axis like the others; shared memory and barriers are a block's::

    THREAD.x[4] j in 0:8          threads  0 1 2 3 | 0 1 2 3
      THREAD.rank[2]   j / 4      rank           0 |       1
"""

from collections.abc import Mapping
from functools import cached_property
from math import prod

import islpy as isl

from tcdsl.costmodel.chip import WARP
from tcdsl.poly.isl_utils import val
from tcdsl.poly.loop_tree import (
    AXES,
    MAPPED,
    RANK,
    Loop,
    LoopKind,
    Node,
    Sequence,
    iterations_of,
    loops_around,
    loops_of,
    statements_of,
)
from tcdsl.poly.scop import Access, Kind, Scop, Statement
from tcdsl.records import dataclass

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Mapped:
    """A kernel's loop tree, seen as a mapping to blocks and threads."""

    scop: Scop
    tree: Node

    @cached_property
    def paths(self) -> Mapping[str, tuple[Loop, ...]]:
        """The loops around each statement, outermost first."""
        return {name: loops_around(self.tree, name) for name in statements_of(self.tree)}

    @cached_property
    def parts(self) -> tuple["Mapped", ...]:
        """The kernels of warps with roles that have blocks of the launch each (packing.py)."""
        children = self.tree.children if isinstance(self.tree, Sequence) else ()
        is_packed = (
            self.has_roles
            and children
            and all(isinstance(child, Loop) and child.kind is LoopKind.BLOCK for child in children)
        )
        return tuple(Mapped(self.scop, child) for child in children) if is_packed else (self,)

    @cached_property
    def grid(self) -> Dim3:
        """How many blocks, or clusters of blocks, there are along x, y, z."""
        x, y, z, _ = self._widths(LoopKind.BLOCK)
        return x, y, z

    @cached_property
    def block(self) -> Dim3:
        x, y, z, _ = self.threads
        return x, y, z

    @cached_property
    def has_roles(self) -> bool:
        """Whether a producer warp fills shared memory for the others."""
        return any(self.scop.by_name[name].role for name in self.paths)

    def launched(self, producers: int = 1) -> Dim3:
        """Return the threads of a block along x, y, z: the warps of a producer after the others."""
        x, y, z = self.block
        return (x, y, z + producers) if self.has_roles else self.block

    @cached_property
    def cluster(self) -> int:
        """How many blocks of a cluster share the iterations of threads: along RANK."""
        return self.threads[RANK]

    @cached_property
    def neighbours(self) -> Dim3:
        """How many neighbouring blocks of the grid are in a cluster, along x, y, z."""
        sizes = [1, 1, 1]
        for loop in loops_of(self.tree):
            if loop.kind is LoopKind.BLOCK:
                sizes[loop.axis] = max(sizes[loop.axis], loop.cluster)
        x, y, z = sizes
        return x, y, z

    @cached_property
    def cluster_dims(self) -> Dim3:
        """How many blocks a cluster has along x, y, z of the grid."""
        return (1, 1, self.cluster) if self.cluster > 1 else self.neighbours

    @cached_property
    def threads(self) -> tuple[int, int, int, int]:
        """How many threads are along each axis."""
        return self._widths(LoopKind.THREAD)

    def _widths(self, kind: LoopKind) -> tuple[int, int, int, int]:
        widths = [1, 1, 1, 1]
        for loop in loops_of(self.tree):
            if loop.kind is kind:
                widths[loop.axis] = max(widths[loop.axis], loop.width)
        x, y, z, rank = widths
        return x, y, z, rank

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """The axes along which there are several threads."""
        return tuple(axis for axis in AXES if self.threads[axis] > 1)

    def thread_loop(self, statement: str, axis: int) -> Loop | None:
        """Return the loop that maps *statement* along *axis*, None if it is uniform."""
        loops = [
            loop
            for loop in self.paths[statement]
            if loop.kind is LoopKind.THREAD and loop.axis == axis
        ]
        return loops[0] if loops else None

    def is_uniform(self, statement: str, axis: int) -> bool:
        return self.thread_loop(statement, axis) is None

    def together(self, statement: str) -> int:
        """Return how many threads run *statement* together, each for all of them; 0 if none do."""
        path = self.paths[statement]
        return max((loop.width for loop in path if loop.kind is LoopKind.COLLECTIVE), default=0)

    def thread(self, statement: str, axis: int) -> isl.PwAff | None:
        """Return the thread's number along *axis* as a function of the instance."""
        loop = self.thread_loop(statement, axis)
        if loop is None:
            return None
        space = self.scop.by_name[statement].domain.get_space()
        coordinate = loop.coordinates[statement].function(space)
        return isl.PwAff.from_aff(coordinate.mod_val(val(loop.width)))

    def fold_axes(self, fold: Statement) -> tuple[int, ...]:
        """Return the axes whose threads hold the partial accumulators that *fold* combines."""
        return tuple(self._strides.get(fold.name, ()))

    def fold_stride(self, fold: Statement) -> int:
        """Return how far apart the threads are whose partial accumulators *fold* combines.

        1 where these are all threads along its axes.  Else the first threads along x have a result
        each, of every so many threads of a warp::

            thread  8 l + j  has p[j, l]         thread j < 8:  s[j] = fold over l of p[j, l]
        """
        return max(self._strides.get(fold.name, {}).values(), default=1)

    @cached_property
    def _strides(self) -> Mapping[str, Mapping[int, int]]:
        """How far apart the threads are that folds combine, by the fold and the axis."""
        found: dict[str, dict[int, int]] = {}
        for name in self.paths:
            fold = self.scop.by_name[name]
            if fold.kind is Kind.FOLD:
                strides = {axis: self._stride(fold, axis) for axis in self.axes}
                found[name] = {axis: stride for axis, stride in strides.items() if stride}
        return found

    def _stride(self, fold: Statement, axis: int) -> int:
        """Return the same along *axis*, 0 if all that *fold* combines is of one thread there."""
        parts = {read.array for read in fold.parts}
        writers = [
            name
            for name in self.paths
            if any(write.array in parts for write in self.scop.by_name[name].writes)
        ]
        loop = self.thread_loop(fold.name, axis)
        if loop is None:
            return int(any(not self.is_uniform(name, axis) for name in writers))
        if axis or loop.width != WARP or loop.extent is None or loop.extent * fold.lanes != WARP:
            return 0
        is_apart = all(self._is_apart(name, fold, loop.extent) for name in writers)
        return loop.extent if is_apart else 0

    def _is_apart(self, writer: str, fold: Statement, stride: int) -> bool:
        """Return whether *fold* is on the first threads along x, and others write what it reads.

        That is those that are a multiple of *stride* behind its own.
        """
        own, other = self.thread(fold.name, 0), self.thread(writer, 0)
        if own is None or other is None:
            return False
        pairs: isl.Map | None = None
        for write in self.scop.by_name[writer].writes:
            for read in (read for read in fold.parts if read.array == write.array):
                one = write.relation.apply_range(read.relation.reverse())
                pairs = one if pairs is None else pairs.union(one)
        if pairs is None:
            return True
        ends = isl.MultiPwAff.from_pw_aff(other), isl.MultiPwAff.from_pw_aff(own)
        behind = isl.MultiPwAff.from_pw_aff(other.mod_val(val(stride)))
        is_behind = pairs.is_subset(behind.eq_map(ends[1]))
        return bool(is_behind and not pairs.is_subset(ends[0].eq_map(ends[1])))

    def is_collective_read(self, statement: Statement, access: Access, axis: int) -> bool:
        """Return whether all threads along *axis* take part in this read, each with its own."""
        if access.array == statement.register_operand:
            return axis == 0
        return (
            statement.kind is Kind.FOLD
            and any(access is read for read in statement.parts)
            and axis in self.fold_axes(statement)
        )


def why_not_mapped(mapped: Mapped) -> str | None:
    """Return why the tree is no kernel, or None.

    Blocks run in no order, so that BLOCK loops must stand around everything; and an axis is mapped
    once on a path.  Below a LAST loop one block runs what others have left; all come to a barrier
    of all blocks.  Clusters lie along z.  A fold over their blocks alone is of one value of each.
    """
    if mapped.has_roles and (mapped.block[:2] != (WARP, 1) or mapped.cluster > 1):
        return "warps with roles are not along z"
    if mapped.cluster > 1 and (mapped.grid[2] > 1 or prod(mapped.neighbours) > 1):
        return "the blocks of a cluster and a loop over blocks are both along z"
    for name, path in mapped.paths.items():
        kinds = [loop.kind for loop in path]
        n_blocks = kinds.count(LoopKind.BLOCK)
        if LoopKind.BLOCK in kinds[n_blocks:]:
            return f"a loop around {name} that is not over blocks is outside one that is"
        for kind, widths in ((LoopKind.BLOCK, mapped.grid), (LoopKind.THREAD, mapped.threads)):
            mine = [loop for loop in path if loop.kind is kind]
            if len({loop.axis for loop in mine}) < len(mine):
                return f"two {kind} loops around {name} are mapped to one axis"
            if any(loop.width != widths[loop.axis] for loop in mine):
                return f"the {kind} loops of an axis are not equally wide"
        for loop in path:
            is_mapped = loop.kind in MAPPED
            if (
                is_mapped
                and loop.has_one_iteration
                and not _has_enough(mapped.scop.by_name[name], loop)
            ):
                return f"{loop.name} has more iterations of {name} than it says"
        statement = mapped.scop.by_name[name]
        is_of_blocks = statement.kind is Kind.FOLD and mapped.fold_axes(statement) == (RANK,)
        if is_of_blocks and not all(mapped.is_uniform(name, axis) for axis in mapped.axes):
            return f"the threads of a block have values of their own in {name}"
        missing = [a for a, n in enumerate(mapped.grid) if n > 1 and not _is_on_blocks(path, a)]
        if missing and LoopKind.LAST not in kinds and not statement.is_grid:
            return f"every block would run {name}"
    return None


def _has_enough(statement: Statement, loop: Loop) -> bool:
    """Return whether a loop of one turn has a block or thread for every iteration."""
    bounds = iterations_of(statement.domain, loop.coordinates[statement.name])
    if bounds is None:
        return bool(statement.domain.is_empty())
    return bounds[0] >= 0 and bounds[1] < loop.width


def _is_on_blocks(path: tuple[Loop, ...], axis: int) -> bool:
    return any(loop.kind is LoopKind.BLOCK and loop.axis == axis for loop in path)
