"""First calls at new sizes on a CPU, of code that leaves sizes open.

    softmax(x[300, 256])    made in full: arguments described, the target chosen, sizes bound,
                            layouts compared
    softmax(x[301, 256])    the same code at other sizes

That is for dense arrays that differ from those of a known call in their open extents alone.
"""

from typing import TYPE_CHECKING

from tcdsl.errors import TCError
from tcdsl.executable.base import Run
from tcdsl.lang.types.head import MAX_OPEN
from tcdsl.runtime.arrays import ArraySpec, row_major
from tcdsl.runtime.lazy_defs import SizedDef
from tcdsl.runtime.open_extents import OpenExtents, Shapes

if TYPE_CHECKING:
    from tcdsl.executable.cpu import CpuExecutable

_LEAST = 2  # of an open extent: those of 0 and 1 are of more layouts than one


class CpuSizedCalls:
    """Makes calls at any values of the open sizes of *code*, which is that of a known call."""

    def __init__(self, code: "CpuExecutable", sized: SizedDef, *, is_warm: bool) -> None:
        """Take the def at the known sizes, and whether its call is a warm one.

        The caller has asked :func:`~tcdsl.runtime.open_extents.why_not_of_extents`.
        """
        self._code, self._is_warm = code, is_warm
        self._definition = sized.definition
        bounds = dict.fromkeys(code.opened, (_LEAST, MAX_OPEN))
        self._extents = OpenExtents(code.head, bounds, sized.sizes)

    def run_at(self, shapes: Shapes) -> Run | None:
        """Return a call on dense arrays of these *shapes*, or None: it must be made in full."""
        sizes = self._extents.sizes_of(shapes)
        if sizes is None:
            return None
        specs = {
            name: _resized(spec, shape)
            for (name, spec), shape in zip(self._code.specs.items(), shapes, strict=True)
        }
        try:
            code = self._code.at(self._definition.at(sizes), specs)
        except TCError:  # said by the call that is made in full
            return None
        return code.warm_call() if self._is_warm else code.run


def _resized(spec: ArraySpec, shape: tuple[int, ...]) -> ArraySpec:
    """Return *spec* of other extents, dense."""
    return ArraySpec(spec.dtype, shape, row_major(shape), spec.device, spec.writable, spec.library)
