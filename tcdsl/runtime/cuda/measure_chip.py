"""What a GPU's units and latencies are, measured in seconds of work (``tcdsl calibrate``).

Each number is the time of one kernel (:mod:`tcdsl.runtime.cuda.chip_kernels`) over what it does,
the best of some runs and of some shapes: what disturbs a run makes it slower.
"""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any, Protocol

from tcdsl.costmodel.chip import Chip, Feature, Unit
from tcdsl.records import dataclass
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.chip_kernels import (
    ARITHMETIC,
    CHAINS,
    CLUSTER,
    NODE_BYTES,
    UNROLLED,
    kernels_text,
)
from tcdsl.runtime.cuda.device import primary_context
from tcdsl.runtime.cuda.stopwatch import Stopwatch
from tcdsl.runtime.nvrtc import compile_cuda, find_cuda_compiler

MOST_BYTES = 1 << 30
VECTOR_BYTES = 16
RUNS = 5
BUSY = 0.75  # of the rate: where bytes in flight over the rate are the latency of a busy memory
_OUT_BYTES = 1 << 16  # for results
_FLUSH_SHARE = 2  # times the second-level cache: what pushes everything out of it


@dataclass(frozen=True, slots=True)
class Way:
    """How a kernel is timed: *calls* launches in a row, which may overlap if they are early.

    It has run before, so that what fits the cache is there; if *is_cold* nothing is.
    """

    calls: int = 1
    is_early: bool = False
    is_cold: bool = False


ONCE = Way()
COLD = Way(is_cold=True)


class Kernels(Protocol):
    """Kernels that can be timed; *x* and *y* are two arrays of *size_bytes*."""

    x: int
    y: int
    out: int
    size_bytes: int

    def us(self, name: str, grid: int, block: int, *values: int, way: Way = ONCE) -> float:
        """Return the microseconds of a launch."""

    def word(self) -> int:
        """Return the first 8 bytes of *out*."""

    def clusters(self, blocks: int) -> int:
        """Return how many clusters of so many blocks run at once, a multiprocessor each; or 0."""


def chip_numbers(run: Kernels, chip: Chip) -> dict[str, float]:
    """Return the numbers of *chip*, and the rates of its units, that *run*'s kernels measure."""
    parts = (_memory, _latencies, _waiting, _units)
    return {name: value for part in parts for name, value in part(run, chip).items()}


def _memory(run: Kernels, chip: Chip) -> dict[str, float]:
    sms, vectors = chip.multiprocessors, run.size_bytes // VECTOR_BYTES
    shapes = ((2, 1024), (4, 512), (8, 256), (16, 256))

    def best_rate(name: str, moved: int, *values: int) -> float:
        return moved / min(run.us(name, n * sms, t, *values) for n, t in shapes) * 1e6

    read = best_rate("read_many", run.size_bytes, run.x, vectors, vectors, run.out)
    fits = _power_of_two(chip.l2_bytes // 4 // VECTOR_BYTES)
    own = 1 << 22
    blocks, steps = chip.threads_per_multiprocessor // chip.threads_per_block, 4096
    shared_us = run.us("read_shared", blocks * sms, chip.threads_per_block, steps, run.out)
    threads = blocks * sms * chip.threads_per_block
    return {
        "dram_read_bytes_per_s": read,
        "dram_copy_bytes_per_s": best_rate("copy_all", 2 * run.size_bytes, run.y, run.x, vectors),
        "multiprocessor_bytes_per_s": own * VECTOR_BYTES * 1e6
        / run.us("read_many", 1, 1024, run.x, own, own, run.out, way=COLD),
        "l2_bytes_per_s": best_rate(
            "read_many", 32 * fits * VECTOR_BYTES, run.x, fits, 32 * fits, run.out
        ),
        "shared_bytes_per_s": threads * steps * UNROLLED * VECTOR_BYTES / shared_us * 1e6,
        "dram_loaded_latency_s": _loaded_latency(run, chip, read),
    }  # fmt: skip


def _power_of_two(most: int) -> int:
    return 1 << most.bit_length() - 1


def _loaded_latency(run: Kernels, chip: Chip, rate: float) -> float:
    """Return bytes in flight over the rate where that is near BUSY of the chip's."""
    vectors = run.size_bytes // VECTOR_BYTES
    found = []
    for each, threads in product((1, 2, 4, 8), (128, 192, 256)):
        in_flight = each * threads * chip.multiprocessors * VECTOR_BYTES
        us = run.us("read_one", each * chip.multiprocessors, threads, run.x, vectors, run.out)
        reached = run.size_bytes / us * 1e6
        found.append((abs(reached / rate - BUSY), in_flight / reached))
    return min(found)[1]


def _latencies(run: Kernels, chip: Chip) -> dict[str, float]:
    steps = 1 << 14

    def chase(size_bytes: int, way: Way) -> float:
        nodes = _power_of_two(size_bytes // NODE_BYTES)
        return run.us("chase", 1, 1, run.x, nodes, steps, run.out, way=way) / steps * 1e-6

    return {
        "dram_latency_s": chase(run.size_bytes, COLD),
        "l2_latency_s": chase(min(chip.l2_bytes // 8, steps * NODE_BYTES // 2), ONCE),
        "shared_latency_s": run.us("chase_shared", 1, 1, steps, run.out) / steps * 1e-6,
    }


def _waiting(run: Kernels, chip: Chip) -> dict[str, float]:
    sms, steps, launches = chip.multiprocessors, 2000, 50
    each, several = 1e-6 / steps, 4
    found = {
        "block_barrier_s": run.us("block_barriers", 1, 256, steps) * each,
        "grid_barrier_s": run.us("grid_barriers", sms, 256, run.out, steps) * each,
        "atomic_s": run.us("atomics", 1, 1, run.out + 128, steps, run.out) * each,
        "same_atomic_s": run.us("same_atomics", several * sms, 32, run.out, steps) * each
        / (several * sms),
        "launch_s": run.us("nothing", sms, 128, way=Way(launches)) * 1e-6,
    }  # fmt: skip
    if chip.has(Feature.PROGRAMMATIC_LAUNCH):
        early = run.us("nothing", sms, 128, way=Way(launches, is_early=True)) * 1e-6
        found["programmatic_launch_s"] = min(early, found["launch_s"])
    if chip.has(Feature.CLUSTERS):
        found["cluster_barrier_s"] = run.us("cluster_barriers", CLUSTER, 256, steps) * each
        if largest := run.clusters(chip.most_blocks_per_cluster):
            found["largest_clusters"] = largest
    return found


def _units(run: Kernels, chip: Chip) -> dict[str, float]:
    found: dict[str, float] = {}
    blocks, threads = chip.multiprocessors, 1024  # that all run at once
    for name, (_, _, count) in ARITHMETIC.items():
        # As long as a quarter of a millisecond, by what is known of the unit.
        a_step = blocks * threads * UNROLLED * CHAINS * count
        steps = max(1, int(250e-6 * (chip.rate(Unit(name)) or 1e12) / a_step))
        us = run.us(name, blocks, threads, steps, 1, run.out, run.out)
        found[name] = steps * a_step / us * 1e6
        if name == Unit.FMA_F32:  # a block runs from its start to its end
            found["clock_hz"] = run.word() / us * 1e6
    return found


class OnDevice:
    """The kernels, on device *ordinal*; to be used in a ``with`` block."""

    def __init__(self, ordinal: int = 0) -> None:
        self._context = primary_context(ordinal)
        self._ordinal = ordinal
        self._open = ExitStack()

    @property
    def chip(self) -> Chip:
        return self._context.gpu

    def __enter__(self) -> "OnDevice":
        compiler = find_cuda_compiler(libcuda.driver_version()[0])
        code = compile_cuda(kernels_text(), self.chip.arch, compiler=compiler)
        with self._open as stack, self._context.current():
            self._module = libcuda.load_module(code)
            self._functions: dict[str, int] = {}
            free = libcuda.free_memory()[0]
            self.size_bytes = _power_of_two(min(MOST_BYTES, free // 4))
            self.x, self.y, self.out = (
                self._take(stack, size) for size in (self.size_bytes, self.size_bytes, _OUT_BYTES)
            )
            self._watch = stack.enter_context(
                Stopwatch(libcuda.DEFAULT_STREAM, _FLUSH_SHARE, self._ordinal)
            )
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.wait()
        with self._context.current():
            self._open.close()

    @staticmethod
    def _take(stack: ExitStack, size_bytes: int) -> int:
        """Return the address of *size_bytes* zeros."""
        address = libcuda.allocate(size_bytes)
        stack.callback(libcuda.free, address)
        libcuda.fill(address, 0, size_bytes, libcuda.DEFAULT_STREAM)
        return address

    def us(self, name: str, grid: int, block: int, *values: int, way: Way = ONCE) -> float:
        """Return the microseconds of the best of some launches; see :class:`Kernels`."""
        launch = self._launcher(name, grid, block, values, is_early=way.is_early)

        def run() -> None:
            for _ in range(way.calls):
                launch()

        lead, watch = self._watch.lead_for(run), self._watch
        times = []
        for _ in range(RUNS):
            with self._context.current():
                libcuda.fill(self.out, 0, _OUT_BYTES, libcuda.DEFAULT_STREAM)
            us = watch.time_us(run, lead) if way.is_cold else watch.time_warm_us(run, 1, lead)
            times.append(us / way.calls)
        return min(times)

    def word(self) -> int:
        """Return the first 8 bytes of *out*."""
        found = ctypes.c_uint64()
        self._watch.wait()
        with self._context.current():
            libcuda.copy_to_host(ctypes.addressof(found), self.out, 8, libcuda.DEFAULT_STREAM)
        self._watch.wait()
        return found.value

    def clusters(self, blocks: int) -> int:
        """Return how many clusters of so many blocks run at once, a multiprocessor each; or 0."""
        chip = self.chip
        with self._context.current():
            return libcuda.clusters_at_once(
                self._function("nothing"),
                blocks,
                chip.threads_per_warp,
                chip.shared_bytes_per_block,
            )

    def _function(self, name: str) -> int:
        """Return the kernel *name*; its context must be current."""
        if name not in self._functions:
            self._functions[name] = libcuda.function_of(self._module, name)
        return self._functions[name]

    def _launcher(
        self, name: str, grid: int, block: int, values: Sequence[int], *, is_early: bool
    ) -> Callable[[], None]:
        """Return a launch of the kernel *name*, whose arguments are words, or numbers of a type."""
        with self._context.current():
            function = ctypes.c_void_p(self._function(name))
        arguments = [_argument(name, n, value) for n, value in enumerate(values)]
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        attributes = (libcuda.LaunchAttribute * 1)(libcuda.BEGINS_EARLY)
        config = libcuda.LaunchConfig(
            (grid, 1, 1), (block, 1, 1), 0, libcuda.DEFAULT_STREAM,
            ctypes.addressof(attributes), int(is_early),
        )  # fmt: skip

        def launch() -> None:
            assert (arguments and attributes) or not values  # alive as long as the launch
            with self._context.current():
                if is_early:
                    libcuda.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
                else:
                    libcuda.call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None,
                                 pointers, None)  # fmt: skip

        return launch


def _argument(name: str, number: int, value: int) -> Any:
    """Return *value* as the kernel *name* takes its argument *number*."""
    kind = ARITHMETIC[name][0] if name in ARITHMETIC and number == 1 else "word"
    types: dict[str, Any] = {
        "word": ctypes.c_uint64, "unsigned": ctypes.c_uint32, "float": ctypes.c_float,
        "double": ctypes.c_double,
    }  # fmt: skip
    return types[kind](value)
