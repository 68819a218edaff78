"""The boxes of all statements of a scop."""

from tcdsl.costmodel.locality import Shape, shape_of
from tcdsl.poly.dependences import Dependences
from tcdsl.poly.parallelism import roles_of
from tcdsl.poly.scop import Scop


def shapes_of(scop: Scop, dependences: Dependences) -> dict[str, Shape]:
    """Return the box, strides and roles of every statement."""
    return {s.name: shape_of(scop, s, roles_of(s, dependences)) for s in scop.statements}
