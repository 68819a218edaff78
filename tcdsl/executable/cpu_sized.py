"""Calls at any sizes on a CPU, of code that leaves sizes open.

    softmax(x[300, 256])    made in full: arguments described, the target chosen, sizes bound,
                            layouts compared
    softmax(x[301, 256])    (301, 256) --> the integers (301,) of the code, the result's shape

That is for dense arrays that differ from those of a known call in their open extents alone.  What
depends on the extents is computed in each call, so that nothing is kept of a size, and the first
call at one is like any other.
"""

import struct
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.size_class import SizeClass
from tcdsl.lang.types.dtypes import DType
from tcdsl.lang.types.head import MAX_OPEN
from tcdsl.runtime.arguments import allocate, as_input
from tcdsl.runtime.arrays import ArraySpec, is_plain_array, row_major
from tcdsl.runtime.cpu_call import Maker, is_plain_tensor, maker_of
from tcdsl.runtime.host_products import require_multiplied
from tcdsl.runtime.launch import Fault, FaultRecord
from tcdsl.runtime.lazy_defs import SizedDef
from tcdsl.runtime.open_extents import Shapes, open_extents, why_not_of_extents
from tcdsl.runtime.selection import selector
from tcdsl.runtime.warm_path import MISSING, address, is_direct

if TYPE_CHECKING:
    from tcdsl.executable.cpu import CpuExecutable

_LEAST = 2  # of an open extent: those of 0 and 1 are of more layouts than one


class CpuSizedCalls:
    """Calls at any values of the open sizes of *code*, which is that of a known call."""

    def __init__(self, code: "CpuExecutable", sized: SizedDef, order: Sequence[int]) -> None:
        """Take the def at the known sizes, and the *order* of the pointers.

        The caller has asked :func:`why_not_sized`.
        """
        program, head = code.program, code.head
        self._code, self._definition = code, sized.definition
        bounds = dict.fromkeys(code.opened, SizeClass(_LEAST, MAX_OPEN))
        self._extents = open_extents(head, bounds, sized.sizes)
        self._at: Callable[[Shapes], Any] | None = None  # made at the first new size: it needs isl
        self._program, self._kernel = program, program.kernel
        self._pack_integers = struct.Struct(f"={len(program.manifest.integers)}q").pack
        self._is_torch = code.results.library == "torch"
        self._numbers = [
            (n, head.tensors[name].dtype, f"argument {name!r}")
            for n, name in enumerate(head.inputs) if code.specs[name].is_number
        ]  # fmt: skip
        maker = maker_of if self._is_torch else _array_maker_of
        self._makers = [maker(dtype, name) for name, _, dtype in code.results.outputs]
        self._addresses = _tensor_addresses if self._is_torch else _array_addresses
        self._stored = [_own_type(dtype, self._is_torch) for _, _, dtype in code.results.outputs]
        self._select = selector(order)
        self._is_given = list(order) == list(range(len(order)))
        self._updated = [
            (head.inputs.index(name), n)
            for n, name in enumerate(head.outputs) if head.tensors[name].is_input
        ]  # fmt: skip

    def run(self, shapes: Shapes, args: Sequence[Any], out: Any) -> Any:
        """Return the results for *args*, dense arrays of these *shapes*.

        MISSING where the code is not for them, or a closer look at the arguments is needed.
        """
        found = (self._at or self._formulas())(shapes)
        if found is None:
            return MISSING
        integers, extents = found
        if self._numbers:
            args = [*args]
            for n, dtype, what in self._numbers:
                args[n] = as_input(args[n], dtype, what)
        if out is None:
            results = [maker(shape)() for maker, shape in zip(self._makers, extents)]  # noqa: B905
        elif self._may_write(out, extents, args):
            results = [out]
        else:
            return MISSING
        for n, position in self._updated:
            np.copyto(results[position], args[n])
        pointers = self._addresses((*args, *results))
        fault = self._launch(pointers, self._pack_integers(*integers))
        if fault is not None:
            self._raise(fault, shapes)
        return results[0] if len(results) == 1 else tuple(results)

    def _formulas(self) -> Callable[[Shapes], Any]:
        integers = [self._extents.steps(n, -dim) for n, dim in self._program.manifest.integers]
        self._at = self._definition.of_extents(self._extents, integers)
        return self._at

    def _launch(self, pointers: Sequence[int], integers: bytes) -> Fault | None:
        """Launch with what *integers* say, on arrays at *pointers*."""
        program, kernel = self._program, self._kernel
        if not self._is_given:
            pointers = self._select(pointers)
        record = FaultRecord()
        size_bytes = program.workspace_bytes_at(integers)
        if not size_bytes:
            is_faulty = kernel.function(kernel.pack_pointers(*pointers), integers, record)
        else:
            workspace = program.memory_of(size_bytes)
            try:
                packed = kernel.pack_pointers(*pointers, workspace.address)
                is_faulty = kernel.function(packed, integers, record)
            finally:
                program.give_back(workspace)
        if program.has_products:
            require_multiplied()
        return Fault(*record) if is_faulty else None

    def _may_write(self, out: Any, extents: Shapes, args: Sequence[Any]) -> bool:
        """Return whether the code may write *out*: one plain array, apart from all of *args*."""
        is_plain = is_plain_tensor if self._is_torch else is_plain_array
        if self._updated or len(extents) != 1 or not is_plain(out):
            return False
        if out.shape != extents[0] or out.dtype != self._stored[0]:
            return False
        start, *starts = self._addresses((out, *args))
        for x, first in zip(args, starts):  # noqa: B905
            if start < first + x.nbytes and first < start + out.nbytes:
                return False
        return True

    def _raise(self, fault: Fault, shapes: Shapes) -> NoReturn:
        """Raise what *fault* means for arrays of these *shapes*."""
        code, head = self._code, self._code.head
        specs = {
            name: _resized(spec, tuple(shape))
            for (name, spec), shape in zip(code.specs.items(), shapes, strict=False)
        }
        last = shapes[len(shapes) - len(head.size_parameters) :]
        given = {name: size for name, (size,) in zip(head.size_parameters, last, strict=True)}
        sizes = bind_sizes(head, {name: spec.shape for name, spec in specs.items()}, given)
        code.at(self._definition.at(sizes), specs).raise_fault(fault)


def why_not_sized(code: "CpuExecutable", args: Sequence[Any], *, is_warm: bool) -> str | None:
    """Return why calls at other sizes are made in full after that on *args*, or None.

    :arg is_warm: whether that call goes the warm path of tensors.
    """
    if code.results.needed:
        return "a result is read before it is written"
    if any(dim >= 0 for _, dim in code.program.manifest.integers):
        return "strides are open"
    if not is_warm:
        both = zip(code.specs.values(), args, strict=True)
        arrays = [x for spec, x in both if not spec.is_number]
        if not all(type(x) is np.ndarray and is_direct(x) for x in arrays):
            return "arguments are not read as they are"
    return why_not_of_extents(code.head)


def _own_type(dtype: DType, is_torch: bool) -> Any:
    """Return *dtype* as the arrays' library knows it."""
    return getattr(sys.modules["torch"], dtype.library_name) if is_torch else dtype.numpy


def _tensor_addresses(tensors: Sequence[Any]) -> list[int]:
    return [x.data_ptr() for x in tensors]


def _array_addresses(arrays: Sequence[Any]) -> list[int]:
    return [address(x) for x in arrays]


def _array_maker_of(dtype: DType, name: str) -> Callable[[tuple[int, ...]], Maker]:
    return lambda shape: partial(allocate, shape, dtype, name)


def _resized(spec: ArraySpec, shape: tuple[int, ...]) -> ArraySpec:
    """Return *spec* of other extents, dense."""
    if spec.is_number:
        return spec
    return ArraySpec(spec.dtype, shape, row_major(shape), spec.device, spec.writable, spec.library)
