"""The head of a def as text, with all types and shapes: those that were inferred too.

conv(float32(N) x, float32(K) w) -> (float32(N - K + 1) y)
"""

from tcdsl.lang.comprehension import Comprehension, Tensor
from tcdsl.lang.ranges.size_functions import text


def signature(c: Comprehension) -> str:
    """Return the head of *c*, whose ranges are known."""
    inputs = ", ".join(
        f"size {name}" if name in c.size_parameters else _declared(c.tensors[name])
        for name in c.parameters
    )
    outputs = ", ".join(_declared(c.tensors[name]) for name in c.outputs)
    return f"{c.name}({inputs}) -> ({outputs})"


def shape_texts(tensor: Tensor) -> list[str]:
    """Return the extents of *tensor*, such as ``H - KH + 1``, one a dimension."""
    if len(tensor.extents) < tensor.rank:  # of a deferred def: what is declared
        return ["?" if dim is None else str(dim) for dim in tensor.dims]
    return [text(extent) for extent in tensor.extents]


def _declared(tensor: Tensor) -> str:
    shape = ", ".join(shape_texts(tensor))
    return f"{tensor.dtype}({shape}) {tensor.name}" if shape else f"{tensor.dtype} {tensor.name}"
