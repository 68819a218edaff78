"""The boxes of statements, as kernels run them: a sum of nothing is stored, too.

    y(i) +=! x(i,j) where j in 0:i         updates      i in [1, M)
                                           all results  i in [0, M)

The threads of a sum clear an accumulator before it, and store it after it, for all of the box of
results: where isl sees that some have no terms, there are more of them than the updates reach.
"""

from collections.abc import Mapping
from dataclasses import replace

from tcdsl.costmodel.locality import Shape
from tcdsl.poly.dependences import Dependences
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.rfactor import initialisation
from tcdsl.strategies.shapes import shapes_of


def gpu_shapes_of(scop: Scop, dependences: Dependences) -> dict[str, Shape]:
    """Return the box, strides and roles of every statement; that of a sum has all its results."""
    shapes = shapes_of(scop, dependences)
    return {name: _with_results(scop, shapes, shape) for name, shape in shapes.items()}


def _with_results(scop: Scop, shapes: Mapping[str, Shape], shape: Shape) -> Shape:
    statement = shape.statement
    init = initialisation(scop, statement) if statement.kind is Kind.UPDATE else None
    if init is None or statement.indices[: len(init.indices)] != init.indices:
        return shape
    results = shapes[init.name]
    lower, ends = list(shape.lower), [shape.lower[d] + n for d, n in enumerate(shape.extents)]
    for dim, low in enumerate(results.lower):
        lower[dim] = min(lower[dim], low)
        ends[dim] = max(ends[dim], low + results.extents[dim])
    extents = tuple(end - low for low, end in zip(lower, ends, strict=True))
    if extents == shape.extents:
        return shape
    return replace(shape, lower=tuple(lower), extents=extents, ends=tuple(ends))
