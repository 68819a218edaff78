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
from typing import Any

import torch

from tcdsl.runtime.arrays import WIDEST_ACCESS
from tcdsl.runtime.imports import late_import
from tcdsl.torch.family import Form

_MISALIGNED = WIDEST_ACCESS - 1
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides


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


class DirectCall:
    """A call of one form on tensors of certain shapes and strides."""

    __slots__ = ("_form", "_is_listed", "_layouts", "_run", "_sizes")

    def __init__(
        self, form: Form, sizes: Sequence[int], layouts: Sequence[Layout], *, is_listed: bool
    ) -> None:
        """Take what a graph knows of the call; *is_listed*: one result is a list of one, too."""
        self._form, self._sizes = form, sizes
        self._layouts = list(layouts)
        self._is_listed = is_listed and len(form.head.outputs) == 1
        self._run: Callable[[Sequence[Any]], Any] | None = None

    def __call__(self, *tensors: Any) -> Any:
        run = self._run
        if run is not None:
            addresses = 0
            for x in tensors:
                addresses |= x.data_ptr()
            if not addresses & _MISALIGNED:
                return (run(tensors),) if self._is_listed else run(tensors)
        found = self._checked(tensors)
        return (found,) if self._is_listed else found

    def _checked(self, tensors: Sequence[Any]) -> Any:
        """Return the results of a call that is checked, and learn what it goes through."""
        found = self._form.call(tensors, self._sizes)
        is_aligned = not any(x.data_ptr() & _MISALIGNED for x in tensors)
        if self._run is None and is_aligned and self._fit(tensors):
            function = self._form.function
            self._run = function.prepared(*self._form.arguments(tensors, self._sizes))
        return found

    def _fit(self, tensors: Sequence[Any]) -> bool:
        """Return whether the tensors are as the graph says: what was guarded stays so."""
        return not any(x.is_neg() for x in tensors) and all(
            tuple(x.shape) == shape and (x.is_contiguous() or tuple(x.stride()) == strides)
            for x, (shape, strides) in zip(tensors, self._layouts, strict=True)
        )
