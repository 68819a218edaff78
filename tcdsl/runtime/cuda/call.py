"""A call of compiled kernels on device arrays of one signature.

    arguments  ->  pointers                 as they are, or copies            operands.py
    out=       ->  checked, or new arrays   by the library's allocator        outputs.py
    pointers   ->  slots  ->  launches      on the caller's stream, in the caller's context

Where nothing is to be copied or waited for, a call goes through ``quick_call.py``.
Nothing waits for the device, except for libraries that have no notion of a stream, and under
``TCDSL_DEBUG``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tcdsl.errors import FORKED
from tcdsl.lang.types.head import Head
from tcdsl.runtime.arguments import host_scalar
from tcdsl.runtime.arrays import row_major
from tcdsl.runtime.cuda import device, libcuda
from tcdsl.runtime.cuda.bound_call import BoundCall
from tcdsl.runtime.cuda.copying import copy_array
from tcdsl.runtime.cuda.libraries import Library, deliver
from tcdsl.runtime.cuda.module import Loaded
from tcdsl.runtime.cuda.operands import Operand, Temporaries, copy_to_output, prepared
from tcdsl.runtime.cuda.outputs import Outputs, Target
from tcdsl.runtime.cuda.quick_call import QuickCall, Slots, why_not_quick
from tcdsl.runtime.results import Results
from tcdsl.runtime.selection import selector
from tcdsl.settings import reader, settings

_debug_setting = reader("TCDSL_DEBUG")
_WORKSPACE_ADVICE = "call it once on this stream before the capture"
_NUMBER_BYTES = 8  # of a bound call's number in its workspace
_OUT_ADVICE = "give an out= that is dense, aligned, and shares no memory with an input"


class DeviceCall:
    """Calls with arguments of one signature, all arrays of which are on one device."""

    def __init__(
        self,
        head: Head,
        results: Results,
        operands: Sequence[Operand],
        integers: Sequence[int],
        loaded: Loaded,
        libraries: Sequence[tuple[Library, Sequence[int]]],
    ) -> None:
        """Take what the call needs.

        :arg libraries: that of the results first, each with the positions of its arguments.
        """
        (library, _), *others = libraries
        self.context = loaded.context
        self.library = library
        self.loaded = loaded
        self._others = others
        self._results = results
        self._operands = list(operands)
        self._readers = [operand.pointer for operand in operands]
        self._is_direct = all(operand.is_direct for operand in operands)
        self._updated = [
            (position, head.outputs.index(operand.name))
            for position, operand in enumerate(operands)
            if operand.is_updated
        ]
        manifest = loaded.manifest
        self.outputs = Outputs(results, manifest.alignments, library, self.context)
        # Of a tensor that is input and output, the pointer is the output's.
        names = [*head.inputs, *head.outputs]
        last = {name: position for position, name in enumerate(names)}
        order = [last[name] for name in manifest.arrays]
        self._select = selector(order)
        self._tail = (loaded.fault_address, *integers)
        self._faults = loaded.state.faults
        self.run: Callable[[Sequence[Any], Any], Any] = self.run_slowly
        self.quick: QuickCall | None = None
        if not others and why_not_quick(operands, self.outputs, library) is None:
            slots = Slots(order, self._tail)
            self.quick = QuickCall(loaded, library, operands, self.outputs, slots, self.run_slowly)
            self.run = self.quick.run

    def run_slowly(self, args: Sequence[Any], out: Any = None) -> Any:
        """Launch on *args*, and return the outputs in arrays of their library.

        :raises LaunchError: an earlier launch went wrong, there is no memory, or a graph is being
            captured and the call would have to wait or allocate.
        """
        if device.in_forked_child:
            raise FORKED()
        # The rest must not depend on what the caller has current, nor change it.
        if libcuda.current_context() == self.context.handle:
            return self._run(args, out)
        with self.context.current():
            return self._run(args, out)

    def _run(self, args: Sequence[Any], out: Any) -> Any:
        stream = self.library.stream(self.context.ordinal, args)
        if self._faults.records and not libcuda.is_capturing(stream):
            self._faults.require_none()
        if self._others:
            return self._run_among_others(args, out, stream)
        if self._is_direct:
            pointers = [read(x) for read, x in zip(self._readers, args, strict=True)]
            return self._finish(args, pointers, out, stream)
        return self._run_prepared(args, out, stream)

    def _run_among_others(self, args: Sequence[Any], out: Any, stream: int) -> Any:
        """Run after what the other libraries have launched; they go on after this."""
        ordinal = self.context.ordinal
        streams = {
            other.stream(ordinal, [args[position] for position in own])
            for other, own in self._others
        } - {stream}
        for other in streams:
            libcuda.wait_for(stream, other)
        result = self._run_prepared(args, out, stream)
        for other in streams:
            libcuda.wait_for(other, stream)
        return result

    def _run_prepared(self, args: Sequence[Any], out: Any, stream: int) -> Any:
        """Run on copies of what the kernels cannot read as it is."""
        state = self.loaded.state
        temporaries = Temporaries(self.context, state, self.library, stream)
        with state.scalars.lock:
            try:
                pointers = prepared(self._operands, args, temporaries)
                return self._finish(args, pointers, out, stream)
            finally:
                temporaries.give_back()

    def _finish(self, args: Sequence[Any], pointers: list[int], out: Any, stream: int) -> Any:
        """Run on the inputs at *pointers*."""
        if out is not None or self._results.needed:
            return self._run_into(args, pointers, self._results.given(out), stream)
        objects, addresses = self.outputs.fresh(args)
        self._start(args, pointers, addresses, stream)
        if self.library.waits:
            self._wait(stream)
            objects = [deliver(x, self._results.library) for x in objects]
        return objects[0] if len(objects) == 1 else tuple(objects)

    def _run_into(
        self, args: Sequence[Any], pointers: list[int], given: Mapping[str, Any], stream: int
    ) -> Any:
        """Run into the caller's arrays; where the kernels must not write them, through copies."""
        targets = self.outputs.targets(args, given)
        temporaries = Temporaries(self.context, self.loaded.state, self.library, stream)
        try:
            addresses = [self._address(t, pointers, temporaries) for t in targets]
            self._start(args, pointers, addresses, stream)
            for target, address in zip(targets, addresses, strict=True):
                if address != target.address:
                    self._copy((address, row_major(target.output.shape)),
                               (target.address, target.spec.strides), target, stream)  # fmt: skip
        finally:
            temporaries.give_back()
        if self.library.waits:
            self._wait(stream)
        objects = [t.x if t.is_given else deliver(t.x, self._results.library) for t in targets]
        return objects[0] if len(objects) == 1 else tuple(objects)

    def _address(self, target: Target, pointers: list[int], temporaries: Temporaries) -> int:
        """Return where the kernels write: the target itself, or memory that is copied to it."""
        if not target.is_given or self.outputs.may_write(target, self._operands, pointers):
            return target.address
        what = f"a copy of out {target.output.name!r}"
        address = temporaries.take(target.output.spec.size_bytes, what, _OUT_ADVICE)
        if target.output.is_read_first:
            dense = address, row_major(target.output.shape)
            self._copy((target.address, target.spec.strides), dense, target, temporaries.stream)
        return address

    def _copy(
        self,
        source: tuple[int, Sequence[int]],
        target: tuple[int, Sequence[int]],
        of: Target,
        stream: int,
    ) -> None:
        output = of.output
        copy_array(self.context, source, target, output.shape, output.dtype.size_bytes, stream)

    def _start(
        self, args: Sequence[Any], pointers: list[int], addresses: list[int], stream: int
    ) -> None:
        """Launch from the inputs at *pointers* into the outputs at *addresses*."""
        if self.outputs.are_empty:
            return
        loaded = self.loaded
        arrays = self._select([*pointers, *addresses])
        if self._updated or loaded.workspace_bytes:
            self._start_with_memory(args, pointers, addresses, arrays, stream)
        else:
            loaded.launch((*arrays, *self._tail), stream)
        if _debug_setting() is not None and settings().debug:
            self._wait(stream)

    def _start_with_memory(
        self,
        args: Sequence[Any],
        pointers: list[int],
        addresses: list[int],
        arrays: Sequence[int],
        stream: int,
    ) -> None:
        """Fill the outputs that are inputs too, and launch with a workspace."""
        loaded = self.loaded
        temporaries = Temporaries(self.context, loaded.state, self.library, stream)
        try:
            for position, output in self._updated:
                copy_to_output(
                    self._operands[position], args[position], pointers[position],
                    addresses[output], temporaries,
                )  # fmt: skip
            scratch: list[int] = []
            if loaded.workspace_bytes:
                base = temporaries.take(
                    loaded.workspace_bytes, "the workspace", _WORKSPACE_ADVICE,
                    has_tickets=loaded.manifest.has_tickets,
                )  # fmt: skip
                scratch = [base + offset for offset in loaded.offsets]
            loaded.launch((*arrays, *scratch, *self._tail), stream)
        finally:
            temporaries.give_back()

    def _wait(self, stream: int) -> None:
        """Wait for the launches and raise what went wrong; a captured graph has not run yet."""
        if not libcuda.is_capturing(stream):
            libcuda.synchronize(stream)
            self._faults.require_none()

    # --- bound calls ------------------------------------------------------------------------

    def bind(self, args: Sequence[Any], out: Any) -> Callable[[], Any]:
        """Return the call with its arrays fixed."""
        if device.in_forked_child:
            raise FORKED()
        given = self._results.given(out)
        with self.context.current():
            targets = self.outputs.targets(args, given)
            if self._may_be_bound() and (bound := self._bound(args, targets)) is not None:
                return bound
        if self.library.makes_immutable:  # every call returns new arrays
            return lambda: self.run(args, given or None)
        objects = tuple([target.x for target in targets])
        return lambda: self.run(args, objects)

    def _may_be_bound(self) -> bool:
        is_plain = all(o.is_direct or o.spec.is_number for o in self._operands)
        return is_plain and not (self._updated or self._others or self.library.makes_immutable)

    def _bound(self, args: Sequence[Any], targets: Sequence[Target]) -> Callable[[], Any] | None:
        """Return a call of which nothing but the launches is left, or None: it needs copies."""
        numbers = [n for n, operand in enumerate(self._operands) if operand.spec.is_number]
        pointers = [
            0 if n in numbers else read(x)
            for n, (read, x) in enumerate(zip(self._readers, args, strict=True))
        ]
        for target in targets:
            if target.is_given and not self.outputs.may_write(target, self._operands, pointers):
                return None
        loaded, has_tickets = self.loaded, self.loaded.manifest.has_tickets
        block, scratch = None, list[int]()
        size_bytes = loaded.workspace_bytes + _NUMBER_BYTES * len(numbers)
        if size_bytes:
            # Of its own: calls of it on two streams at once would race for the results anyway.
            stream = self.library.stream(self.context.ordinal, args)
            if (numbers or has_tickets) and libcuda.is_capturing(stream):
                return None
            block = loaded.state.pool.new_block(
                size_bytes, stream, "the workspace", has_tickets=has_tickets
            )
            scratch = [block.address + offset for offset in loaded.offsets]
            for place, n in enumerate(numbers):
                operand = self._operands[n]
                value = host_scalar(args[n], operand.dtype, f"argument {operand.name!r}")
                pointers[n] = block.address + loaded.workspace_bytes + _NUMBER_BYTES * place
                libcuda.write_value(pointers[n], value.tobytes(), stream)
            if numbers or has_tickets:
                libcuda.synchronize(stream)  # calls may be on other streams
        arrays = self._select([*pointers, *(target.address for target in targets)])
        objects = [target.x for target in targets]
        steps = [] if self.outputs.are_empty else loaded.steps
        slots = (*arrays, *scratch, *self._tail)
        call = BoundCall(loaded, self.library, steps, slots, (args, objects), block)
        return call.run_and_wait if self.library.waits else call.run
