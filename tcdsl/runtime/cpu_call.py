"""The warm path of a call on PyTorch's tensors in host memory: new results, pointers, the launch.

    signature known   ->  CpuCall            (the function's dictionary)
    arguments         ->  data_ptr() of each
    results           ->  empty tensors of PyTorch, as its compiled code makes them

Whatever is otherwise goes the long way: other libraries' arrays, numbers, arguments that the code
cannot read as they are, results that are inputs, too, and an ``out=`` that is not dense or shares
memory with what is read.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from operator import itemgetter
from typing import Any, NoReturn, TypeAlias

from tcdsl.lang.types.dtypes import DType
from tcdsl.runtime.arguments import allocate, deliver
from tcdsl.runtime.arrays import WIDEST_ACCESS, row_major
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
        "_function", "_give_back", "_has_products", "_is_single", "_makers", "_order", "_pack",
        "_program", "_raise_fault", "_select", "_slowly", "_spans", "_take", "_values", "_wanted",
    )  # fmt: skip

    def __init__(
        self,
        program: CpuProgram,
        order: Sequence[int],
        outputs: Sequence[tuple[str, tuple[int, ...], DType]],
        raise_fault: Callable[[Fault], NoReturn],
        slowly: Slowly,
    ) -> None:
        """Take the *program*, whose pointers are, in *order*, those of arguments and results.

        *slowly* is what runs on arguments and an ``out=`` of any kind.
        """
        self._program = program
        # Not the kernel's own call, which would be one more frame.
        self._function, self._pack = program.kernel.function, program.kernel.pack_pointers
        self._values = program.integers
        self._makers = [maker_of(dtype, name)(shape) for name, shape, dtype in outputs]
        self._is_single = len(outputs) == 1
        self._order = order
        is_as_given = list(order) == list(range(len(order)))
        # None: they are as they come, which is nearly always so.
        self._select = None if is_as_given or len(order) < 2 else itemgetter(*order)
        self._take = program.take_workspace if program.needs_workspace else None
        self._give_back = program.give_back
        self._has_products = program.has_products
        self._raise_fault, self._slowly = raise_fault, slowly
        torch: Any = sys.modules["torch"]
        # The results as they have to be, and how many bytes arguments extend over.
        self._wanted = [(shape, getattr(torch, dtype.library_name)) for _, shape, dtype in outputs]
        self._spans: list[int] | None = None  # of the first call's, like all of the signature

    def run(self, args: Sequence[Any], out: Any = None, addresses: Any = None) -> Any:
        """Run on *args*, and return the results: new ones, or *out*.

        :arg addresses: those of *args*, in a list that may be changed, if they are known.
        """
        if out is None:
            results = [make() for make in self._makers]
        else:
            results = [out] if self._is_single else out
            if not self._may_write(results, args):
                return self._slowly(args, out)
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

    def _may_write(self, out: Any, args: Sequence[Any]) -> bool:
        """Return whether *out* are plain tensors, apart from each other and from all of *args*."""
        wanted = self._wanted
        if type(out) not in (list, tuple) or len(out) != len(wanted):
            return False
        for x, (shape, kind) in zip(out, wanted):  # noqa: B905
            if not is_plain_tensor(x) or x.shape != shape or x.dtype != kind:
                return False
        if self._spans is None:
            self._spans = [_span_bytes(x) for x in args]
        taken = [(x.data_ptr(), n) for x, n in zip(args, self._spans)]  # noqa: B905
        for x in out:
            start, size = x.data_ptr(), x.nbytes
            for first, n in taken:
                if start < first + n and first < start + size:
                    return False
            taken.append((start, size))
        return True

    def prepare(self, call: Any, count: int, *, is_listed: bool) -> None:
        """Prepare *call* (:mod:`prepared_calls`) for *count* tensors like those of this call.

        Tensors of other types, or that are not aligned, it leaves to what it was made of.

        :arg is_listed: one result is in a tuple, too.
        """
        torch: Any = sys.modules["torch"]
        program = self._program
        after = require_multiplied if self._has_products else None
        function: Any = program.kernel.function
        address = ctypes.cast(function, ctypes.c_void_p).value
        n_tensors = count + len(self._makers)
        order = (*self._order, n_tensors) if program.needs_workspace else tuple(self._order)
        call.prepare(
            (address, self._values, self._raise_record, after),
            (
                count, (torch.Tensor, torch.nn.Parameter), torch.Tensor.data_ptr,
                WIDEST_ACCESS - 1,
            ),
            (
                tuple(self._makers), order, program.workspace_bytes,
                self._is_single and not is_listed,
            ),
        )  # fmt: skip

    def _raise_record(self, *record: int) -> NoReturn:
        self._raise_fault(Fault(*record))


def is_plain_tensor(x: Any) -> bool:
    """Return whether *x* is dense and in host memory, aligned, and records no gradient."""
    torch: Any = sys.modules["torch"]
    if type(x) is not torch.Tensor or not x.is_cpu or x.layout is not torch.strided:
        return False
    if x.requires_grad or not x.is_contiguous():
        return False
    return not x.is_neg() and x.data_ptr() % x.element_size() == 0


def _span_bytes(x: Any) -> int:
    """Return from the first byte of the tensor *x* to behind its last one."""
    last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return (last + 1) * x.element_size() if x.numel() else 0


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
