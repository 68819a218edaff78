"""A call with its arrays fixed: the launches, and nothing else."""

from collections.abc import Sequence
from typing import Any

from tcdsl.errors import FORKED
from tcdsl.runtime.cuda import device, libcuda
from tcdsl.runtime.cuda.libraries import Library
from tcdsl.runtime.cuda.memory import Block, abandon
from tcdsl.runtime.cuda.module import Loaded
from tcdsl.runtime.cuda.steps import AnyStep, Raw, Values


class BoundCall:
    """Launches with packed parameters, on the stream that is the library's at each call."""

    __slots__ = (
        "_args", "_context_of", "_error", "_handle", "_launches", "_library", "_loaded",
        "_outputs", "_raw", "_records", "_steps", "_stream", "_values", "_workspace",
    )  # fmt: skip

    def __init__(
        self,
        loaded: Loaded,
        library: Library,
        steps: list[AnyStep],
        slots: Sequence[int],
        arrays: tuple[Sequence[Any], list[Any]],
        workspace: Block | None,
    ) -> None:
        """Take the packed values' *slots* and the arguments and outputs, whose memory they are."""
        self._loaded, self._library = loaded, library
        self._context_of = libcuda.library().cuCtxGetCurrent
        self._handle = loaded.context.handle
        # A program that follows no indices leaves other programs' faults to their next call.
        self._records = [] if loaded.record is None else loaded.state.faults.records
        self._error = loaded.driver_error
        self._stream = library.stream_source(loaded.context.ordinal)
        self._steps = steps
        self._values: list[Values] = [step.select(slots) for step in steps]
        self._launches = [
            step.prepared(values) for step, values in zip(steps, self._values, strict=True)
        ]
        self._raw: list[tuple[Raw, Values]] | None = None
        self._args, objects = arrays
        self._outputs: Any = objects[0] if len(objects) == 1 else tuple(objects)
        self._workspace = workspace

    def run(self) -> Any:
        """Launch, and return the outputs, the same arrays every time."""
        if device.in_forked_child:
            raise FORKED()
        try:
            place = libcuda.places.pop()
        except IndexError:
            place = libcuda.new_place()
        is_elsewhere = self._context_of(place[1]) or place[0].value != self._handle
        libcuda.places.append(place)
        if is_elsewhere:
            with self._loaded.context.current():
                return self.run()
        stream = 0 if self._stream is None else self._stream()
        for record in self._records:
            if record.words[0] and not libcuda.is_capturing(stream):
                self._loaded.state.faults.require_none()
        self._launch(stream)
        return self._outputs

    def run_and_wait(self) -> Any:
        """Launch on the arrays' stream, wait, and return the outputs."""
        if device.in_forked_child:
            raise FORKED()
        with self._loaded.context.current():
            stream = self._library.stream(self._loaded.context.ordinal, self._args)
            is_capturing = libcuda.is_capturing(stream)
            if not is_capturing:
                self._loaded.state.faults.require_none()
            self._launch(stream)
            if not is_capturing:
                libcuda.synchronize(stream)
                self._loaded.state.faults.require_none()
            return self._outputs

    def _launch(self, stream: int) -> None:
        if stream:
            for kernel, values in self._raw or self._load_raw():
                kernel.launch(values, stream)
            return
        try:
            for launch, arguments in self._launches:
                launch(*arguments)
        except self._error as error:
            raise device.translated(error, "cuLaunchKernel") from None

    def _load_raw(self) -> list[tuple[Raw, Values]]:
        # Of an empty output there are no steps, whatever there are kernels.
        self._raw = list(zip(self._loaded.raw_kernels(), self._values, strict=False))
        return self._raw

    def __del__(self) -> None:
        if self._workspace is not None:
            abandon(self._handle, self._workspace.address)
