"""The warm path of a call on PyTorch's tensors in host memory: new results, pointers, the launch.

    signature known   ->  CpuCall            (the function's dictionary)
    arguments         ->  data_ptr() of each
    results           ->  empty tensors of PyTorch, as its compiled code makes them

Whatever is otherwise goes the long way: an ``out=``, other libraries' arrays, numbers, arguments
that the code cannot read as they are, results that are inputs, too.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from operator import itemgetter
from typing import Any, NoReturn, TypeAlias

from tcdsl.lang.types.dtypes import DType
from tcdsl.runtime.arguments import allocate, deliver
from tcdsl.runtime.arrays import row_major
from tcdsl.runtime.cpu import CpuProgram
from tcdsl.runtime.host_products import require_multiplied
from tcdsl.runtime.launch import Fault, FaultRecord
from tcdsl.runtime.warm_path import WarmCall

Maker: TypeAlias = Callable[[], Any]
Slowly: TypeAlias = Callable[[Sequence[Any], Any], Any]

# Bytes from which NumPy allocates: it asks the system for huge pages, which PyTorch does not.
_NUMPY_FROM = 1 << 20


class CpuCall(WarmCall):
    """Calls of one signature, whose arguments are tensors that the code reads in place."""

    __slots__ = (
        "_function", "_give_back", "_has_products", "_is_single", "_makers", "_pack",
        "_raise_fault", "_select", "_slowly", "_take", "_values",
    )  # fmt: skip

    def __init__(
        self,
        program: CpuProgram,
        order: Sequence[int],
        outputs: Sequence[tuple[str, tuple[int, ...], DType]],
        raise_fault: Callable[[Fault], NoReturn],
        slowly: Slowly,
    ) -> None:
        """Take the *program*, whose pointers are, in *order*, those of arguments and results."""
        # Not the kernel's own call, which would be one more frame.
        self._function, self._pack = program.kernel.function, program.kernel.pack_pointers
        self._values = program.integers
        self._makers = [maker_of(dtype, name)(shape) for name, shape, dtype in outputs]
        self._is_single = len(outputs) == 1
        is_as_given = list(order) == list(range(len(order)))
        # None: they are as they come, which is nearly always so.
        self._select = None if is_as_given or len(order) < 2 else itemgetter(*order)
        self._take = program.take_workspace if program.needs_workspace else None
        self._give_back = program.give_back
        self._has_products = program.has_products
        self._raise_fault, self._slowly = raise_fault, slowly

    def run(self, args: Sequence[Any], out: Any = None, addresses: Any = None) -> Any:
        """Run on *args*, and return new results; into *out* the long way.

        :arg addresses: those of *args*, in a list that may be changed, if they are known.
        """
        if out is not None:
            return self._slowly(args, out)
        results = [make() for make in self._makers]
        pointers = addresses or [x.data_ptr() for x in args]
        for x in results:
            pointers.append(x.data_ptr())
        if self._select is not None:
            pointers = self._select(pointers)
        record = FaultRecord()
        if self._take is None:
            is_faulty = self._function(self._pack(*pointers), self._values, record)
        else:
            workspace = self._take()
            try:
                packed = self._pack(*pointers, workspace.address)
                is_faulty = self._function(packed, self._values, record)
            finally:
                self._give_back(workspace)
        if self._has_products:
            require_multiplied()
        if is_faulty:
            self._raise_fault(Fault(*record))
        return results[0] if self._is_single else tuple(results)


def maker_of(dtype: DType, name: str) -> Callable[[tuple[int, ...]], Maker]:
    """Return { shape -> what makes new dense tensors of it in host memory }."""
    torch: Any = sys.modules["torch"]
    kind = getattr(torch, dtype.library_name)
    large = _NUMPY_FROM // dtype.size_bytes
    # What torch's compiled code allocates by, in a third of the time.
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, "_empty_strided_cpu", None)

    def maker(shape: tuple[int, ...]) -> Maker:
        if prod(shape) >= large:
            return lambda: deliver(allocate(shape, dtype, name), "torch")
        if quick is not None:
            return partial(quick, shape, row_major(shape), kind)
        return partial(torch.empty, shape, dtype=kind, device="cpu")

    return maker
