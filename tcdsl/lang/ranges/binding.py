"""Sizes of a call: from array shapes to the values of size symbols."""

from collections.abc import Mapping

from tcdsl.errors import EXTENT_DISAGREES, MISSING_INPUT, RANK_DISAGREES, SIZE_DISAGREES
from tcdsl.lang.types.head import Head, TensorHead, extent_at, factors_of, symbols_of

NOTHING: Mapping[str, int] = {}


def bind_sizes(
    c: Head, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int] = NOTHING
) -> dict[str, int]:
    """Return the value of every size symbol, given the shapes of the inputs and the size arguments.

    :raises ShapeError: an input is missing, has another rank than declared, or two dimensions
        that are declared to be equal are not.
    """
    bound = dict(given)
    bound_by: dict[str, tuple[str, int]] = {}
    for name in c.inputs:
        tensor = c.tensors[name]
        _check_rank(c, tensor, shapes)
        for position, (dim, extent) in enumerate(zip(tensor.dims, shapes[name], strict=True)):
            if isinstance(dim, int) and dim != extent:
                raise EXTENT_DISAGREES(
                    c.source, tensor.span, tensor=name, dim=position, declared=dim, got=extent,
                    hint=f"pass an array whose dimension {position} is {dim}",
                )  # fmt: skip
            if not isinstance(dim, str) or len(factors_of(dim)) > 1:
                continue
            if dim in given and given[dim] != extent:
                raise EXTENT_DISAGREES(
                    c.source, tensor.span, tensor=name, dim=position,
                    declared=f"{dim}, which this call gives as {given[dim]}", got=extent,
                    hint=f"pass {dim}={extent}, or another array",
                )  # fmt: skip
            if dim in bound and bound[dim] != extent:
                one_tensor, one_dim = bound_by[dim]
                raise SIZE_DISAGREES(
                    c.source, tensor.span, size=dim, one=bound[dim], one_dim=one_dim,
                    one_tensor=one_tensor, other=extent, other_dim=position, other_tensor=name,
                )  # fmt: skip
            bound.setdefault(dim, extent)
            bound_by.setdefault(dim, (name, position))
    sizes = {name: bound[name] for name in c.sizes}
    _check_products(c, shapes, sizes)
    return sizes


def _check_products(
    c: Head, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]
) -> None:
    """Raise EXTENT_DISAGREES where an input declared ``float(M*P)`` has another extent."""
    for name in c.inputs:
        tensor = c.tensors[name]
        for position, dim in enumerate(tensor.dims):
            if dim is None or len(factors_of(dim)) == 1:
                continue
            wanted, got = extent_at(dim, sizes), shapes[name][position]
            if wanted != got:
                values = ", ".join(f"{symbol} = {sizes[symbol]}" for symbol in symbols_of(dim))
                raise EXTENT_DISAGREES(
                    c.source, tensor.span, tensor=name, dim=position, declared=f"{dim} = {wanted}",
                    got=got, hint=f"the sizes are {values}",
                )  # fmt: skip


def _check_rank(c: Head, tensor: TensorHead, shapes: Mapping[str, tuple[int, ...]]) -> None:
    if tensor.name not in shapes:
        raise MISSING_INPUT(c.source, tensor.span, tensor=tensor.name, names=", ".join(c.inputs))
    shape = shapes[tensor.name]
    if len(shape) == tensor.rank:
        return
    raise RANK_DISAGREES(
        c.source, tensor.span, tensor=tensor.name, declared=tensor.rank,
        s="" if tensor.rank == 1 else "s", got=len(shape), shape=shape,
        hint=f"declared is {tensor.name}({', '.join(map(str, tensor.dims))})" if tensor.dims
        else "pass a number or an array without dimensions",
    )  # fmt: skip
