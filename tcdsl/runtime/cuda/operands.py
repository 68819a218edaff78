"""The inputs of a call on a device: as they are, or as copies that the kernels can read.

device array                 its own memory
host scalar                  a slot of device memory that holds its value
other strides or alignment   a copy, laid out as the kernels were compiled for
also an output               nothing: its contents are copied to the output first
"""

from collections.abc import Callable, Sequence
from typing import Any

from tcdsl.codegen.cuda.source import TICKETS_BYTES
from tcdsl.errors import WHILE_CAPTURING, WRONG_STRIDES
from tcdsl.lang.types.dtypes import DType
from tcdsl.records import dataclass
from tcdsl.runtime.arguments import host_scalar
from tcdsl.runtime.arrays import ArraySpec, row_major
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.copying import copy_array
from tcdsl.runtime.cuda.device import Context
from tcdsl.runtime.cuda.libraries import Library
from tcdsl.runtime.cuda.memory import Block
from tcdsl.runtime.cuda.state import State


@dataclass(frozen=True, slots=True)
class Operand:
    """How one input reaches the kernels."""

    name: str
    dtype: DType
    spec: ArraySpec  # what the caller gives
    compiled: ArraySpec  # what the kernels read
    pointer: Callable[[Any], int]  # of its library
    is_updated: bool  # the kernels see the output of that name instead
    needs_copy: bool
    is_negated: bool  # torch's lazy negation, to be resolved before anything else

    @property
    def is_direct(self) -> bool:
        """Whether the kernels read the caller's own memory."""
        return not (self.spec.is_number or self.needs_copy or self.is_negated)

    @property
    def reach_bytes(self) -> tuple[int, int]:
        """The half-open range of bytes, relative to the pointer, that the kernels may read."""
        return reach_bytes(self.spec)


def reach_bytes(spec: ArraySpec) -> tuple[int, int]:
    first, end = spec.reach
    return first * spec.dtype.size_bytes, end * spec.dtype.size_bytes


class Temporaries:
    """Device memory of one call, given back when its launches are on the stream."""

    def __init__(self, context: Context, state: State, library: Library, stream: int) -> None:
        self.context = context
        self.stream = stream
        self.is_capturing = libcuda.is_capturing(stream)
        self._library = library
        self._state = state
        self._blocks: list[Block] = []
        self._owners: list[Any] = []  # memory of the library, and arrays that are read

    def keep(self, owner: Any) -> None:
        """Keep *owner* alive until the launches are on the stream."""
        self._owners.append(owner)

    def take(self, size_bytes: int, what: str, advice: str, *, has_tickets: bool = False) -> int:
        """Return the address of new memory.

        While a graph is captured it is the library's, which knows that a graph uses it; *what* and
        *advice* tell the user where the library has none to give.
        """
        size_bytes = max(size_bytes, 1)
        if not self.is_capturing:
            block = self._state.pool.take(size_bytes, self.stream, what, has_tickets=has_tickets)
            self._blocks.append(block)
            return block.address
        memory = self._library.memory(size_bytes, self.context)
        if memory is not None:
            self._owners.append(memory[0])
            if has_tickets:
                libcuda.fill(memory[1], 0, TICKETS_BYTES, self.stream)
            return memory[1]
        # The graph may run again at any time, so it keeps what an earlier call has left.
        idle = self._state.pool.take_idle(size_bytes, self.stream, has_tickets=has_tickets)
        if idle is None:
            raise WHILE_CAPTURING(what=f"allocate {size_bytes} bytes for {what}", advice=advice)
        if has_tickets:  # whatever runs when the graph does
            libcuda.fill(idle.address, 0, TICKETS_BYTES, self.stream)
        return idle.address

    def scalar(self, value: bytes) -> int:
        """Return the address of *value*; the scalars' lock must be held until the launch."""
        if not self.is_capturing:
            return self._state.scalars.address_of(value, self.stream)
        advice = "give a 0-D array on the device instead of the number"
        address = self.take(len(value), "a number", advice)
        libcuda.write_value(address, value, self.stream)
        return address

    def give_back(self) -> None:
        for block in self._blocks:
            self._state.pool.give_back(block, self.stream)
        self._blocks.clear()
        self._owners.clear()


def prepared(
    operands: Sequence[Operand], args: Sequence[Any], temporaries: Temporaries
) -> list[int]:
    """Return pointers that the kernels can read *args* through."""
    return [_prepared(o, arg, temporaries) for o, arg in zip(operands, args, strict=True)]


def _prepared(operand: Operand, arg: Any, temporaries: Temporaries) -> int:
    if operand.spec.is_number:
        if operand.is_updated:
            return 0
        what = f"argument {operand.name!r}"
        return temporaries.scalar(host_scalar(arg, operand.dtype, what).tobytes())
    plain = arg.resolve_neg() if operand.is_negated else arg
    temporaries.keep(plain)
    pointer = operand.pointer(plain)
    if not operand.needs_copy:
        return pointer
    compiled, width = operand.compiled, operand.dtype.size_bytes
    if compiled.may_overlap_itself:
        raise WRONG_STRIDES(what=f"argument {operand.name!r}")
    first, end = compiled.reach
    advice = "give an array of the layout that it was compiled for"
    base = temporaries.take((end - first) * width, f"a copy of {operand.name!r}", advice)
    target = base - first * width
    copy_array(temporaries.context, (pointer, operand.spec.strides), (target, compiled.strides),
               compiled.shape, width, temporaries.stream)  # fmt: skip
    return target


def copy_to_output(
    operand: Operand, arg: Any, pointer: int, address: int, temporaries: Temporaries
) -> None:
    """Copy the contents of an input to the dense output of its name."""
    if operand.spec.is_number:
        value = host_scalar(arg, operand.dtype, f"argument {operand.name!r}")
        libcuda.write_value(address, value.tobytes(), temporaries.stream)
        return
    spec = operand.spec
    if pointer == address and spec.is_contiguous:
        return
    copy_array(temporaries.context, (pointer, spec.strides), (address, row_major(spec.shape)),
               spec.shape, operand.dtype.size_bytes, temporaries.stream)  # fmt: skip
