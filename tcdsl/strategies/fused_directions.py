"""Whether one kernel that reduces rows and columns takes less time than kernels of each."""

from collections.abc import Mapping, Sequence

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.row_column import apart_seconds
from tcdsl.options import Options
from tcdsl.poly.scop import Scop
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.templates.row_column import share_of
from tcdsl.strategies.traffic import moved_bytes

WORTH = gpu_thresholds.FUSED_TIME


class Estimates:
    """The estimated times of groups, each as one kernel."""

    def __init__(
        self, scop: Scop, shapes: Mapping[str, Shape], gpu: Chip, options: Options
    ) -> None:
        self.scop = scop
        self.shapes = shapes
        self.gpu = gpu
        self.options = options
        self._known: dict[frozenset[str], float | None] = {}

    def row_column(self, group: Group) -> float | None:
        """Return the seconds of *group* with fused row and column reductions, None if not so."""
        members = frozenset(group.members)
        if members not in self._known:
            share = share_of(Problem(self.scop, group, self.shapes, self.gpu, self.options))
            self._known[members] = share.seconds if share is not None else None
        return self._known[members]

    def is_faster(self, group: Group, parts: Sequence[Group]) -> bool:
        """Return whether *group* is fused row and column reductions, faster than its *parts*."""
        seconds = self.row_column(group)
        if seconds is None:
            return False
        apart = 0.0
        for part in parts:
            moved = moved_bytes(self.scop, part, self.shapes)
            elements = self.shapes[part.lead(self.shapes)].instances
            apart += self.row_column(part) or apart_seconds(self.gpu, moved, elements)
        return seconds < WORTH * apart
