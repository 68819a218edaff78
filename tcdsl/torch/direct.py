"""Calls of an operator in code that PyTorch's Inductor has made, which knows their shapes.

    buf0 = torch.ops.mylib._f_derived.default([x, w], [], "k0")     --->     buf0 = tcdsl_0(x, w)

A call through PyTorch's dispatcher asks each time what the graph has settled: which of its keys are
on, of which types, shapes and strides the tensors are, which code is for them.  A
:class:`DirectCall` asks at its first call, and from then on only whether the addresses are aligned,
which no guard of PyTorch's is about.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Any

import torch

from tcdsl.errors import NOT_AN_ARRAY
from tcdsl.records import dataclass
from tcdsl.runtime.arrays import WIDEST_ACCESS
from tcdsl.runtime.cpu_call import CpuCall
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.prepared_calls import prepared_call
from tcdsl.torch.family import Form

_MISALIGNED = WIDEST_ACCESS - 1
Layouts = Sequence[tuple[tuple[int, ...], tuple[int, ...]]]  # shapes and strides


_FIRST, _UNTESTED = (2, 11), (2, 14)  # versions of PyTorch whose Inductor is as it is taken to be
_TOLD: set[Any] = set()


def tell_inductor(operator: Any) -> None:
    """Let Inductor, if it is imported, make direct calls of *operator*."""
    if operator in _TOLD or "torch._inductor.lowering" not in sys.modules:
        return
    _TOLD.add(operator)
    version = tuple(map(int, torch.__version__.split(".")[:2]))
    if not _FIRST <= version < _UNTESTED:
        return
    with suppress(ImportError, AttributeError), late_import():
        from tcdsl.torch.inductor import register

        register(operator)


@dataclass(frozen=True, slots=True)
class Known:
    """What a graph knows of a call of the operator *name*, or of one of its derived forms.

    *is_listed*: one result is a list of one, too.
    """

    name: str
    layouts: Layouts  # of the tensors
    results: Layouts
    is_listed: bool


class DirectCall:
    """A call of one form on tensors of certain layouts."""

    __slots__ = ("_form", "_is_listed", "_known", "_prepared", "_run", "_sizes")

    def __init__(self, form: Form, sizes: Sequence[int], known: Known) -> None:
        self._form, self._sizes, self._known = form, sizes, known
        self._is_listed = known.is_listed and len(known.results) == 1
        self._run: Callable[..., Any] | None = None  # what is gone through, once it is known
        self._prepared: Any = None

    def quickly(self) -> Callable[..., Any]:
        """Return this call, which goes without frames of Python once it knows what to run."""
        self._prepared = prepared_call(self)
        return self if self._prepared is None else self._prepared

    @property
    def is_prepared(self) -> bool:
        """Whether it is known what a call goes through."""
        return self._run is not None

    def __call__(self, *tensors: Any) -> Any:
        run = self._run
        return self._checked(tensors) if run is None else run(tensors)

    def _checked(self, tensors: Sequence[Any]) -> Any:
        """Return the results of a call that is checked, and learn what it goes through."""
        self._require_memory(tensors)
        found = self._form.call(tensors, self._sizes)
        results = found if isinstance(found, tuple) else (found,)
        assert _have(results, self._known.results), "the shapes are those in the graph"
        is_aligned = not any(x.data_ptr() & _MISALIGNED for x in tensors)
        is_plain = not any(x.is_neg() for x in tensors)
        if is_aligned and is_plain and _have(tensors, self._known.layouts):
            arguments = self._form.arguments(tensors, self._sizes)
            run = self._form.function.warm_run(*arguments)
            if run is not None:
                self._learn(run, len(tensors))
        return results if self._is_listed else found

    def _require_memory(self, tensors: Sequence[Any]) -> None:
        """Say whether one of *tensors* is a batch, for which Inductor has made no code.

        :raises ShapeError: (TC056) one is.
        """
        for parameter, x in zip(self._form.head.inputs, tensors, strict=True):
            if not _has_memory(x):
                raise NOT_AN_ARRAY(
                    what=f"argument {parameter!r} of {self._known.name}",
                    found="a batch of tensors, in code that torch.compile made for one",
                    advice="take the batch inside torch.compile, as in "
                    "torch.compile(torch.func.jacrev(f)), or of f itself, not compiled",
                )

    def _learn(self, run: Callable[..., Any], count: int) -> None:
        """Go through *run*, of a warm path, with tensors that are aligned; others are checked."""

        def quick(tensors: Sequence[Any]) -> Any:
            try:
                addresses = [x.data_ptr() for x in tensors]
            except RuntimeError:  # PyTorch's, that one has none
                return self._checked(tensors)
            if reduce(or_, addresses, 0) & _MISALIGNED:
                return self._checked(tensors)
            found = run(tensors, None, addresses)
            return (found,) if self._is_listed else found

        self._run = quick
        call = getattr(run, "__self__", None)
        if self._prepared is not None and isinstance(call, CpuCall):
            call.prepare(self._prepared, count, is_listed=self._is_listed)


def _has_memory(tensor: Any) -> bool:
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def _have(tensors: Sequence[Any], layouts: Layouts) -> bool:
    """Return whether *tensors* have these *layouts*: strides of extents of 1 may be any."""
    return all(
        tuple(x.shape) == shape
        and all(
            one == other
            for n, one, other in zip(shape, x.stride(), strides, strict=True)
            if n != 1 and x.numel()
        )
        for x, (shape, strides) in zip(tensors, layouts, strict=True)
    )
