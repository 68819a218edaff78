"""Where an element lies: its indices and the strides of its array as one offset."""

from collections.abc import Sequence

from tcdsl.codegen.ast.build import ZERO, as_factor, as_term, binary, cast, chain, paren, template
from tcdsl.codegen.ast.nodes import Code, Literal
from tcdsl.poly.scop import AlignmentShift, Interleaved
from tcdsl.schedule.placement import Layout, Placement


def in_layout(placement: Placement, offset: Code, element_bytes: int) -> Code:
    """Return the place of the element that *offset* others come before, row by row."""
    *_, length = placement.extents or (1,)
    match placement.layout:
        case Layout.SWIZZLED:
            sizes = [length] if element_bytes == 2 else [length, element_bytes]
            return template("tc_swizzled", sizes, offset)
        case Layout.ATOMS:
            sizes = [length, placement.rows, *([] if element_bytes == 2 else [element_bytes])]
            return template("tc_in_atoms", sizes, offset)
        case _:
            return offset


def in_atoms(placement: Placement, indices: Sequence[Code], element_bytes: int) -> Code:
    """Return the place of the element of these *indices* of a tile in atoms.

    Of a buffer, a line and a place in it: CUDA's compiler finds no quotients in their sum.
    """
    buffer: Code = ZERO
    lines, extents = list(indices[:-1]), list(placement.extents[:-1])
    if placement.ring is not None:
        buffer = lines.pop(placement.ring.dim)
        del extents[placement.ring.dim]
    sizes = [placement.extents[-1], placement.rows, element_bytes]
    return template("tc_line_in_atoms", sizes, buffer, row_major(lines, extents), indices[-1])


def row_major(indices: Sequence[Code], extents: Sequence[int]) -> Code:
    strides, step = [], 1
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    kept = [
        (index, stride)
        for index, stride, extent in zip(indices, reversed(strides), extents, strict=True)
        if extent > 1
    ]
    return linear([index for index, _ in kept], [stride for _, stride in kept])


def linear(
    indices: Sequence[Code], strides: Sequence[int | Code | Interleaved], index_type: str = "i64"
) -> Code:
    """Return the sum of *indices* times *strides*.

    :arg index_type: of index arithmetic, as a suffix of the device library.
    """
    terms: list[Code] = []
    for at, stride in zip(indices, strides, strict=True):
        if isinstance(stride, Interleaved):
            # A negative dividend there is none, and unsigned quotients are cheaper.
            bits = index_type[1:]
            dividend = cast(f"uint{bits}_t", as_factor(at))
            run = cast(f"int{bits}_t", paren(binary(dividend, "/", Literal(f"{stride.run}u"))))
            terms += _terms((at, run), (stride.step, stride.outer - stride.run * stride.step))
        else:
            terms += _terms((at,), (stride,))
    return chain("+", terms) if terms else ZERO


def row_start(shift: AlignmentShift, indices: Sequence[Code]) -> Code:
    """Return where the row at *indices* begins in its first vector; none of them is negative."""
    unsigned = [cast("unsigned", as_factor(at)) for at in indices[:-1]]  # which may wrap
    factors = [Literal(f"{factor}u") if factor > 1 else factor for factor in shift.factors]
    rows = paren(chain("+", _terms(unsigned, factors)))
    return cast("int", paren(binary(rows, "%", Literal(f"{shift.width}u"))))


def _terms(indices: Sequence[Code], strides: Sequence[int | Code]) -> list[Code]:
    return [
        as_term(at) if stride == 1 else binary(as_factor(at), "*", stride)
        for at, stride in zip(indices, strides, strict=True)
        if stride != 0
    ]
