"""The arguments of compiled code: whether they fit it, and how it can read them.

Code is compiled for certain types, shapes and strides.  An argument of another type or shape is an
error; one of other strides is copied into the layout that the code expects.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from tcdsl.errors import (
    BAD_ARGUMENTS,
    EXTENT_DISAGREES,
    NOT_AN_ARRAY,
    RANK_DISAGREES,
    WRONG_DTYPE,
    WRONG_STRIDES,
    ShapeError,
)
from tcdsl.lang.types.dtypes import DType
from tcdsl.lang.types.head import Head
from tcdsl.runtime.arguments import as_input
from tcdsl.runtime.arrays import ArraySpec, NDArray, describe, require_cpu
from tcdsl.runtime.warm_path import is_direct, remember, signature


class Fit(Enum):
    """What has to be done with arguments that fit."""

    DIRECT = "their own memory is read"
    VIEWS = "they are viewed as NumPy arrays"
    COPIES = "some are copied to the layout that the code reads"


class Fitting:
    """Checks arguments against what one executable was compiled for, once a signature."""

    def __init__(self, head: Head, specs: Mapping[str, ArraySpec]) -> None:
        self.head = head
        self.specs = specs
        self._known: dict[Any, Fit] = {}

    def fitted(self, args: Sequence[Any]) -> Sequence[Any]:
        """Return *args* as the code can read them.

        :raises ShapeError: another number of arguments, another type or shape.
        :raises TargetError: one is in another device's memory.
        """
        key = signature(args)
        fit = self._known.get(key)
        if fit is None:
            fit = remember(self._known, key, self._fit_of(args))
        if fit is Fit.DIRECT:
            return args
        views = self.views(args)
        return views if fit is Fit.VIEWS else self._laid_out(views)

    def views(self, args: Sequence[Any]) -> list[NDArray]:
        """Return *args* as NumPy arrays of the declared types."""
        c = self.head
        return [
            as_input(arg, c.tensors[name].dtype, f"argument {name!r}")
            for name, arg in zip(c.inputs, args, strict=True)
        ]

    def _fit_of(self, args: Sequence[Any]) -> Fit:
        c = self.head
        require_count(c, args)
        has_layout = True
        for name, arg in zip(c.inputs, args, strict=True):
            spec = describe(arg, f"argument {name!r}")
            require_type(c, name, spec)
            require_cpu(spec, f"argument {name!r}")
            require_shape(self.head, name, self.specs[name].shape, spec.shape)
            has_layout &= self._has_layout(name, spec)
        if not has_layout:
            return Fit.COPIES
        return Fit.DIRECT if all(map(is_direct, args)) else Fit.VIEWS

    def _has_layout(self, name: str, spec: ArraySpec) -> bool:
        """Return whether the code finds the elements of *spec* where it looks for them."""
        compiled = self.specs[name]
        # An argument that is also an output is copied first: the code never reads its memory.
        if name in self.head.outputs:
            return True
        if compiled.is_contiguous or spec.is_contiguous:
            return compiled.is_contiguous and spec.is_contiguous
        return compiled.strides == spec.strides

    def _laid_out(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        """Return *inputs*, those of another layout than the code's as copies."""
        return [
            value if self._has_layout(name, describe(value)) else self._copy_of(name, value)
            for name, value in zip(self.head.inputs, inputs, strict=True)
        ]

    def _copy_of(self, name: str, value: NDArray) -> NDArray:
        spec = self.specs[name]
        if spec.is_contiguous:
            return np.ascontiguousarray(value)
        if spec.may_overlap_itself:
            raise WRONG_STRIDES(what=f"argument {name!r}")
        first, end = spec.reach
        memory = np.empty(end - first, value.dtype)
        strides = [stride * value.itemsize for stride in spec.strides]
        copy: NDArray = np.ndarray(
            spec.shape, value.dtype, memory.data, -first * value.itemsize, strides
        )
        np.copyto(copy, value)
        return copy


def layout_of(
    c: Head, name: str, spec: ArraySpec, opened: Collection[str]
) -> tuple[int | None, ...] | None:
    """Return what code for *spec* knows of its strides; None: dense and row-major.

    With open sizes a stride is open too, unless it is 0 or 1, on which vectors depend.  Of an input
    that is also an output the code sees the output, which is dense.
    """
    if spec.is_contiguous or name in c.outputs:
        return None
    if not opened:
        return spec.strides
    return tuple(stride if stride in (0, 1) else None for stride in spec.strides)


def require_count(c: Head, args: Sequence[Any]) -> None:
    """Raise BAD_ARGUMENTS unless there is an argument for each input of *c*."""
    if len(args) != len(c.inputs):
        raise BAD_ARGUMENTS(
            name=c.name, expected=len(c.inputs), got=len(args),
            s="" if len(c.inputs) == 1 else "s", signature=c.signature,
        )  # fmt: skip


def described(c: Head, name: str, arg: object) -> ArraySpec:
    """Return what the argument for the parameter *name* of *c* is.

    :raises ShapeError: it is no array; the hint says what the parameter takes.
    """
    try:
        return describe(arg, f"argument {name!r}")
    except ShapeError as error:
        if error.code != NOT_AN_ARRAY.code:
            raise
        own, dtype = f"of type {type(arg).__name__}", c.tensors[name].dtype
        advice = f"give an array of {dtype}, of NumPy or of any library that speaks DLPack"
        if c.tensors[name].rank == 0:
            example = {"b": "True", "f": "1.0"}.get(dtype.numpy.kind, "1")
            advice = f"{name} is a {dtype}: give a number, {name}={example}, or a 0-D array"
        elif isinstance(arg, (list, tuple, range)):
            advice = f'write numpy.asarray({name}, "{dtype}")'
            if isinstance(arg, tuple):
                advice += f'; for a shape alone, tcdsl.spec({name}, "{dtype}")'
        elif own not in error.message:  # a masked or a sparse array, which says what to call
            raise type(error)(
                error.message, code=error.code, hint=error.hint,
                source=c.source, span=c.tensors[name].span,
            ) from None  # fmt: skip
        raise NOT_AN_ARRAY(
            c.source, c.tensors[name].span, what=f"argument {name!r}", found=own, advice=advice
        ) from None


def require_shape(head: Head, name: str, expected: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Raise a ShapeError unless the argument *name* has the *shape* that code is for."""
    span = head.tensors[name].span
    hint = "compile again, or call the function itself, which compiles for every shape"
    if len(shape) != len(expected):
        raise RANK_DISAGREES(
            head.source, span, tensor=name, declared=len(expected),
            s="" if len(expected) == 1 else "s", got=len(shape), shape=shape, hint=hint,
        )  # fmt: skip
    for dim, (one, other) in enumerate(zip(expected, shape, strict=True)):
        if one != other:
            raise EXTENT_DISAGREES(
                head.source, span, tensor=name, dim=dim, declared=f"{one} in this code",
                got=other, hint=hint,
            )  # fmt: skip


def require_type(c: Head, name: str, spec: ArraySpec) -> None:
    """Raise WRONG_DTYPE unless *spec* has the declared type; numbers are judged by their value."""
    declared = c.tensors[name].dtype
    if not spec.is_number and spec.dtype != declared:
        raise WRONG_DTYPE(
            c.source, c.tensors[name].span,
            what=f"argument {name!r}", declared=declared, found=spec.dtype,
            hint=f"nothing is converted silently: write {_conversion(name, declared, spec)}, or "
            f"declare it as {spec.dtype}{_autocast(declared, spec)}",
        )  # fmt: skip


def _conversion(name: str, dtype: DType, spec: ArraySpec) -> str:
    """Return the expression that makes of the argument *name* one of *dtype*."""
    if spec.library == "torch":
        return f"{name}.to(torch.{dtype})"
    return f'{name}.astype("{dtype}")'


def _autocast(dtype: DType, spec: ArraySpec) -> str:
    """Return what to do where a model in a half type meets a definition in float32."""
    if spec.library == "torch" and spec.dtype.is_half and dtype.name == "float32":
        return "; or run a model of float32 under torch.autocast, which converts for operators"
    return ""
