"""The error for what running code found out of range, in terms of the arrays of the call."""

from collections.abc import Mapping, Sequence

from tcdsl.errors import TCError
from tcdsl.lang.faults import Site, element_text, fault_error
from tcdsl.lang.types.head import Head
from tcdsl.runtime.arrays import ArraySpec
from tcdsl.runtime.launch import Fault


def error_of(
    head: Head, sites: Sequence[Site], fault: Fault, specs: Mapping[str, ArraySpec]
) -> TCError:
    """Return the error for *fault*.

    :arg specs: the inputs, as the code reads them: what *fault* has of memory becomes a position.
    """
    site = sites[fault.site]
    spec = specs.get(site.reads)
    position = None if spec is None else position_of(spec, fault.position)
    element = None if position is None else element_text(site.reads, position)
    return fault_error(head, site, fault.index, fault.extent, element)


def position_of(spec: ArraySpec, offset: int) -> tuple[int, ...] | None:
    """Return the indices of the element at *offset*, in elements, of an array like *spec*.

    None where they are not unique, as in a broadcast array, or where *offset* is outside of it.
    """
    position = [0] * spec.rank
    dims = [dim for dim in range(spec.rank) if spec.shape[dim] > 1]
    if offset < 0 or any(spec.strides[dim] <= 0 for dim in dims):
        return None
    rest = offset
    for dim in sorted(dims, key=lambda dim: -spec.strides[dim]):
        position[dim], rest = divmod(rest, spec.strides[dim])
    is_inside = all(n < extent for n, extent in zip(position, spec.shape, strict=True))
    return tuple(position) if is_inside and rest == 0 else None
