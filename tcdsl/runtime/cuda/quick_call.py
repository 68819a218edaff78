"""The warm path of a call on device arrays: nothing to be copied, nothing to wait for.

    signature known   ->  DeviceCall      (the executable's dictionary)
    out's too         ->  pointers, parameters, launches

Whatever is otherwise goes the long way (``DeviceCall.run_slowly``), which also says what is wrong:
another context is current, an ``out=`` is new or shares memory with an input, an earlier call has
reported a fault, a number is out of range, memory is needed while a graph is captured.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tcdsl.errors import FORKED
from tcdsl.lang.types.dtypes import BOOL, DType
from tcdsl.records import dataclass
from tcdsl.runtime.cuda import device, libcuda
from tcdsl.runtime.cuda.libraries import Library
from tcdsl.runtime.cuda.module import Loaded
from tcdsl.runtime.cuda.operands import Operand
from tcdsl.runtime.cuda.outputs import Outputs
from tcdsl.runtime.cuda.steps import Prepared, Raw
from tcdsl.runtime.selection import Select, selector
from tcdsl.runtime.warm_path import MISSING, WarmCall, output_signature
from tcdsl.settings import reader

_FORMATS: Mapping[str, str] = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B",
    "uint16": "H", "uint32": "I", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
_KNOWN = 64  # combinations of addresses that one signature remembers
_debug_setting = reader("TCDSL_DEBUG")


def packer(dtype: DType, found: DType) -> Callable[[Any], bytes] | None:
    """Return what makes bytes of *dtype* of numbers of the type *found*; None: the long way does.

    It raises an error where ``arguments.host_scalar`` refuses the number, and makes the same bytes
    everywhere else.
    """
    text = _FORMATS.get(dtype.name)
    if text is None or (dtype == BOOL) != (found == BOOL):
        return None
    return struct.Struct("=" + text).pack


@dataclass(frozen=True, slots=True)
class Slots:
    """What a launch is given: inputs and outputs in some *order*, then the numbers of *tail*.

    These are the address of the fault record, and the open sizes.
    """

    order: Sequence[int]
    tail: Sequence[int]


class QuickCall(WarmCall):
    """The launches of a :class:`~tcdsl.runtime.cuda.call.DeviceCall` whose arguments are direct.

    It is written for speed: what a call can know before is an attribute, what is only called here
    is no function of its own, and no ``zip`` is given ``strict``, which takes 0.3 us.  What has
    no underscore serves calls at other open sizes, too (``sized_calls.py``).
    """

    def __init__(
        self,
        loaded: Loaded,
        library: Library,
        operands: Sequence[Operand],
        outputs: Outputs,
        slots: Slots,
        slowly: Callable[[Sequence[Any], Any], Any],
    ) -> None:
        manifest = loaded.manifest
        self._loaded = loaded
        self._library = library
        self._slowly = slowly
        self._context_of: Callable[[Any], int] = libcuda.library().cuCtxGetCurrent
        self._handle = loaded.context.handle
        stream = library.stream_source(loaded.context.ordinal)
        assert stream is not None
        self.stream = stream
        self._state = loaded.state
        self._records = loaded.state.faults.records
        self._error = loaded.driver_error
        self.numbers = [
            (n, packer(operand.dtype, operand.spec.dtype))
            for n, operand in enumerate(operands)
            if operand.spec.is_number
        ]
        self.pointers = library.pointers
        arrays = [n for n, o in enumerate(operands) if not o.spec.is_number]
        self._arrays = selector(arrays)
        self.first = arrays[0] if arrays else None
        self.maker_of, self._makers = outputs.maker_of, outputs.makers
        self.fitting = outputs.fitting
        self.may_be_fresh = not outputs.results.needed and not any(o.is_updated for o in operands)
        self._outputs = [
            (output.spec.size_bytes, _reaches(operands, output.name)) for output in outputs.outputs
        ]
        self._workspace_bytes, self._offsets = loaded.workspace_bytes, loaded.offsets
        self._has_tickets = manifest.has_tickets
        self._n_addresses = len(operands) + len(outputs.outputs) + len(self._offsets)
        self._tail, self.fault = tuple(slots.tail), slots.tail[0]
        self.selects = [
            _select(step.positions, slots.order, len(operands), outputs) for step in loaded.steps
        ]
        self._prepares = [(s.prepared, select) for s, select in zip(loaded.steps, self.selects)]  # noqa: B905
        self._raw: list[tuple[Raw, Select]] | None = None
        # By the addresses of inputs and outputs, which are apart (and then of the workspace): the
        # launches with their parameters.  Most programs call on few arrays, again and again.
        self._known: dict[tuple[int, ...], list[Prepared]] = {}

    def run(self, args: Sequence[Any], out: Any = None, addresses: Any = None) -> Any:
        """Launch on *args*, and return the outputs in arrays of their library.

        :arg addresses: those of *args*, all of them arrays, in a list, if they are known.
        """
        if self.has_obstacle():
            return self._slowly(args, out)
        if self.numbers:
            stream = self.stream()
            result = self.with_numbers(args, stream, lambda p: self._run(args, p, out, stream))
        else:
            result = self._run(args, addresses or self.pointers(args), out, self.stream())
        return self._slowly(args, out) if result is MISSING else result

    def has_obstacle(self) -> bool:
        """Return whether a call goes the long way whatever its arguments are."""
        if device.in_forked_child:
            raise FORKED()
        try:
            place = libcuda.places.pop()
        except IndexError:
            place = libcuda.new_place()
        is_elsewhere = self._context_of(place[1]) or place[0].value != self._handle
        libcuda.places.append(place)
        if is_elsewhere or _debug_setting() is not None:
            return True
        for record in self._records:  # noqa: SIM110 (a generator takes longer than its records)
            if record.words[0]:
                return True
        return False

    def with_numbers(
        self, args: Sequence[Any], stream: int, run: Callable[[list[int]], Any]
    ) -> Any:
        """Return what *run* does with all pointers, those of numbers among them."""
        if stream and libcuda.is_capturing(stream):
            return MISSING
        pointers = self.pointers(self._arrays(args))
        scalars = self._state.scalars
        scalars.lock.acquire()  # until the launch: the slots are written anew later
        try:
            for position, pack in self.numbers:
                assert pack is not None
                try:
                    value = pack(args[position])
                except (struct.error, OverflowError, TypeError, ValueError):
                    return MISSING
                pointers.insert(position, scalars.address_of(value, stream))
            return run(pointers)
        finally:
            scalars.lock.release()

    def _run(self, args: Sequence[Any], pointers: list[int], out: Any, stream: int) -> Any:
        """Launch on the inputs at *pointers*, or return MISSING."""
        if out is None:
            if not self.may_be_fresh:
                return MISSING
            like = None if self.first is None else args[self.first]
            objects: Sequence[Any] = [make(like) for make in self._makers]
        else:
            objects = out if type(out) is tuple else (out,)
            fitting = self.fitting
            if len(objects) != len(fitting):
                return MISSING
            for position, x in enumerate(objects):
                if output_signature(x) not in fitting[position]:
                    return MISSING
        addresses = self.pointers(objects)
        arrays = (*pointers, *addresses)
        launches = self._known.get(arrays)
        if launches is None:
            # All signatures are known here, so that only the addresses vary.
            if out is not None and not self._are_apart(pointers, addresses):
                return MISSING
            launches = self._learned(arrays)
        if self._workspace_bytes:
            if stream and libcuda.is_capturing(stream):
                return MISSING
            self._launch_with_workspace(arrays, stream)
        elif stream:
            self._launch_raw((*arrays, *self._tail), stream)
        else:
            self._launch(launches)
        return objects[0] if len(objects) == 1 else tuple(objects)

    def _are_apart(self, pointers: Sequence[int], starts: Sequence[int]) -> bool:
        """Return whether the outputs share no memory with each other, nor with other inputs."""
        spans: list[tuple[int, int]] = []
        for start, (size_bytes, reaches) in zip(starts, self._outputs, strict=True):
            end = start + size_bytes
            for at, (low, high, is_updated) in zip(pointers, reaches, strict=True):
                if is_updated:
                    if at != start:
                        return False  # its contents have to be copied
                elif start < at + high and at + low < end:
                    return False
            for other_start, other_end in spans:
                if start < other_end and other_start < end:
                    return False
            spans.append((start, end))
        return True

    def _learned(self, addresses: tuple[int, ...]) -> list[Prepared]:
        """Return the launches on *addresses*, of arrays that are apart, and remember both.

        They are of all arrays and of the places in the workspace; without the latter, where there
        are any, nothing can be launched yet.
        """
        if len(self._known) >= _KNOWN:
            self._known.clear()  # cheaper than to find the oldest, and as good
        launches: list[Prepared] = []
        if len(addresses) == self._n_addresses:
            slots = (*addresses, *self._tail)
            launches = [prepared(select(slots)) for prepared, select in self._prepares]
        self._known[addresses] = launches
        return launches

    def _launch_with_workspace(self, arrays: Sequence[int], stream: int) -> None:
        pool = self._state.pool
        block = pool.take(
            self._workspace_bytes, stream, "the workspace", has_tickets=self._has_tickets
        )
        try:
            addresses = (*arrays, *[block.address + offset for offset in self._offsets])
            if stream:
                self._launch_raw((*addresses, *self._tail), stream)
            else:
                self._launch(self._known.get(addresses) or self._learned(addresses))
        finally:
            pool.give_back(block, stream)

    def _launch(self, launches: list[Prepared]) -> None:
        """Launch with packed parameters on the default stream."""
        try:
            for launch, arguments in launches:
                launch(*arguments)
        except self._error as error:
            raise device.translated(error, "cuLaunchKernel") from None

    def _launch_raw(self, slots: tuple[int, ...], stream: int) -> None:
        for kernel, select in self._raw or self._load_raw():
            kernel.launch(select(slots), stream)

    def _load_raw(self) -> list[tuple[Raw, Select]]:
        self._raw = list(zip(self._loaded.raw_kernels(), self.selects, strict=True))
        return self._raw


def why_not_quick(operands: Sequence[Operand], outputs: Outputs, library: Library) -> str | None:
    """Return why calls with *operands* always go the long way, or None if they need not."""
    if library.waits or library.makes_immutable:
        return "the host waits for the results"
    if outputs.are_empty:
        return "there is nothing to launch"
    for operand in operands:
        if operand.spec.is_number:
            if operand.is_updated or packer(operand.dtype, operand.spec.dtype) is None:
                return f"{operand.name!r} is a number that is converted"
        elif not operand.is_direct or (operand.is_updated and not operand.spec.is_contiguous):
            return f"{operand.name!r} is copied"
    return None


def _reaches(operands: Sequence[Operand], name: str) -> list[tuple[int, int, bool]]:
    """Return for each input which bytes are read, and whether it is the output *name* before."""
    return [
        (0, 0, False) if o.spec.is_number else (*o.reach_bytes, o.is_updated and o.name == name)
        for o in operands
    ]


def _select(
    positions: Sequence[int], order: Sequence[int], n_inputs: int, outputs: Outputs
) -> Select:
    """Return the selection of a step's parameters from (inputs, outputs, the other slots)."""
    shift = n_inputs + len(outputs.outputs) - len(order)
    return selector([order[p] if p < len(order) else p + shift for p in positions])
