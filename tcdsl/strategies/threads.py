"""GPU kernels: which axes go to blocks, which to threads, and what each thread keeps.

Shared axes (all dependences between members have distance zero along them) go to blocks, and to
threads where neighbours in memory lie along them::

    flat    z(i,j) = x(i,j) + y(j)     blocks over i and tiles of j, threads along j, 16 bytes each
            C(m,n) +=! A(m,k)*B(k,n)   the same, with k in each thread           (flat_threads.py)
    lanes   y(i) +=! x(i,j)            blocks (or warps) over i, threads along j: partial sums that
            z(i,j) = x(i,j) / y(i)     the block folds; every member's last axis is along threads
                                       (row_threads.py), or the blocks of a cluster (clusters.py)
            y(j) +=! x(i,j)            few j: threads.x along j, threads.y along i
                                       (column_threads.py)
            z(i,j) = x(i,j) / y(j)     and so for what follows, if x is kept (columns.py)

Where that leaves multiprocessors without work, a reduced axis is cut into chunks, one a block: how
many is estimated (shared_sums.py).  The last block folds their partial sums in order (finish.py),
or each adds its own by atomics (after Reddy et al., Panamera, PACT 2022).  Accumulators are
registers of the reduction's own type.  What follows from the choices, loop by loop, is in
``assembly``.
"""

from functools import cached_property

from tcdsl.costmodel.reductions import is_brief
from tcdsl.strategies import block_sizes
from tcdsl.strategies.clusters import ClusterRows, cluster_rows, clustered_sketch
from tcdsl.strategies.column_threads import column_sketch
from tcdsl.strategies.columns import KeptColumns, kept_column_sketch, kept_columns
from tcdsl.strategies.flat_threads import flat_sketch
from tcdsl.strategies.ragged import is_ragged, ragged_sketch
from tcdsl.strategies.row_threads import RowSketcher
from tcdsl.strategies.sketch import Axis, Sketch


class GpuSketcher(RowSketcher):
    """Sketches one group."""

    def sketch(self, may_chunk: bool = True) -> Sketch:
        """Return the sketch of the group; every group has one."""
        if self.is_ragged:
            return ragged_sketch(self)
        if self.flat is None:
            if self.clusters is not None:
                return clustered_sketch(self, self.clusters)
            return self.row_sketch(may_chunk)
        if self.columns is not None:
            return kept_column_sketch(self, self.flat, self.columns)
        vector = self.vector_width(self.flat)
        if self._wants_lanes(vector):
            return column_sketch(self, self.flat, vector, may_chunk)
        return flat_sketch(self, self.flat, vector)

    @cached_property
    def is_ragged(self) -> bool:
        """Whether data say how long rows are: then nothing is kept, and none is the same."""
        return is_ragged(self)

    @cached_property
    def flat(self) -> Axis | None:
        """The shared axis along which the lead's neighbours in memory are, None if they are not."""
        inner = self.innermost(self.lead)
        return next((a for a in self.parallel if a[self.lead] == inner), None)

    @cached_property
    def clusters(self) -> ClusterRows | None:
        """How clusters share the rows of the group, None if they do not: columns are no rows."""
        if self.flat is not None or self.is_ragged:
            return None
        return cluster_rows(self.scop, self.group, self.shapes, self.gpu, self.lane_vector)

    @cached_property
    def columns(self) -> KeptColumns | None:
        """How the columns of the group are kept in registers, None if they are not.

        Where each column may have a thread of its own, one kernel goes over them anyway.
        """
        if self.flat is None or self.is_ragged:
            return None
        vector = self.vector_width(self.flat)
        if not self._wants_lanes(vector):
            return None
        return kept_columns(self.scop, self.group, self.shapes, self.gpu, self.flat, vector)

    @property
    def reads_once(self) -> bool:
        """Whether rows or columns are read once for all members, few of them only if briefly."""
        if self.clusters is not None or self.columns is not None:
            return True
        if self.is_ragged:
            return False
        kept = [self.scop.arrays[name] for name in self.sketch(may_chunk=False).resident]
        return bool(kept) and is_brief(
            self.most_rest * sum(array.dtype.size_bytes for array in kept)
        )

    def _wants_lanes(self, vector: int) -> bool:
        """Return whether threads along the parallel axes alone would leave the chip idle.

        :arg vector: the results of one of them.
        """
        threads = self.results // vector
        return self.most_rest >= 2 * block_sizes.WARP and threads < self.gpu.threads // 4
