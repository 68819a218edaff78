"""What this machine can do at most: bytes moved and operations computed in a second.

Two programs of the language measure it, on the target in question, so that threads, clocks and
launches are the same as of what is judged:

    y(i) = x(i)                          as many bytes as the judged call must move, in and out
    y(i) = ... + (x(i) * a + b) * ...    independent chains of products and sums in registers

A floor from the first one is honest for small arrays too, that never leave a cache.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from tcdsl.api import Function, define
from tcdsl.lang.types.dtypes import FLOAT32, DType
from tcdsl.options import Options
from tcdsl.records import dataclass
from tcdsl.runtime.arrays import describe
from tcdsl.runtime.launch import thread_count
from tcdsl.runtime.timing import Timing, measure, measure_cuda

_LEAST_BYTES = 64  # a copy of nothing has no rate
_MOST_BYTES = 1 << 30  # of a copy: larger ones are not faster
_CHAINS, _STEPS = 6, 24  # operations that do not wait for one another; one after another
_CPU_ELEMENTS, _GPU_ELEMENTS = 1 << 15, 1 << 24  # of a thread, so that they stay in a cache; of all
_SECONDS, _TRIES = 0.01, 5


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates that a program of this machine can reach: GB/s of a copy, and GFLOP/s."""

    copy_gbs: float
    peak_gflops: float

    def floor_us(self, least_bytes: int, operations: int) -> float:
        """Return the time that moving the bytes takes, or the operations, whichever is longer."""
        return max(least_bytes / self.copy_gbs, operations / self.peak_gflops) * 1e-3

    def roof_gflops(self, intensity: float) -> float:
        """Return the highest rate at *intensity*, in operations a byte."""
        return min(self.peak_gflops, intensity * self.copy_gbs)


def ceilings_for(like: Any, target: str, threads: int, moved_bytes: int, dtype: DType) -> Ceilings:
    """Return the ceilings of *target*, with arrays of the library and the device of *like*.

    :arg threads: of the CPU, 0 for all there are.
    :arg moved_bytes: what is read and written together.
    :arg dtype: of the operations; those of integers are judged by float32's.
    """
    spec = describe(like, "the first argument")
    place = _Place(spec.library, spec.device, target, threads)
    moved = min(max(moved_bytes, _LEAST_BYTES), _MOST_BYTES)
    element = "float64" if dtype.name == "float64" else "float32"
    rounded = 1 << math.ceil(math.log2(moved))  # calls of about one size share a measurement
    return Ceilings(_copy_gbs(place, rounded, _Any(like)), _peak_gflops(place, element, _Any(like)))


@dataclass(frozen=True, slots=True)
class _Place:
    """What rates depend on."""

    library: str
    device: str
    target: str
    threads: int


class _Any:
    """An array that counts as equal to all others: results are kept for its place."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Any)

    def __hash__(self) -> int:
        return 0


@cache
def _copy_gbs(place: _Place, moved_bytes: int, like: _Any) -> float:
    n = max(1, moved_bytes // 8)
    text = f"def copy(float({n}) x) -> (float({n}) y) {{ y(i) = x(i) }}"
    return 8 * n / _time_us(define(text).copy, place, _filled(n, "float32", like)) * 1e-3


@cache
def _peak_gflops(place: _Place, element: str, like: _Any) -> float:
    n = _GPU_ELEMENTS if place.target == "cuda" else _CPU_ELEMENTS * thread_count(place.threads)
    x = _filled(n, element, like)
    time_us = _time_us(define(chains_text(element, n)).chains, place, x)
    return n * operations_each() / time_us * 1e-3


def operations_each() -> int:
    """Return the operations for an element of the program of :func:`chains_text`."""
    return _CHAINS * (1 + 2 * _STEPS) + _CHAINS - 1


def chains_text(element: str, n: int) -> str:
    """Return the program of independent chains over *n* elements of type *element*."""
    suffix = "f64" if element == "float64" else ""
    chains = []
    for chain in range(_CHAINS):
        text = f"x(i) + {chain}.0{suffix}"
        for step in range(_STEPS):
            text = f"({text}) * x(i) + {step}.5{suffix}"
        chains.append(text)
    body = " + ".join(f"({chain})" for chain in chains)
    return f"def chains({element}({n}) x) -> ({element}({n}) y) {{ y(i) = {body} }}"


def _filled(n: int, element: str, like: _Any) -> Any:
    """Return *n* elements, in an array of the library and on the device of *like*'s array."""
    spec = describe(like.array, "the first argument")
    dims = f"({', '.join(f'D{axis}' for axis in range(spec.rank))})" if spec.rank else ""
    text = (
        f"def filled({spec.dtype}{dims} like) -> ({element}({n}) x) {{"
        f" x(i) = {element}(0.25) where i in 0:{n} }}"
    )
    return define(text).filled(like.array)


def _time_us(function: Function, place: _Place, x: Any) -> float:
    # A product and a sum in one instruction: no program's operations are faster.
    options = Options(threads=place.threads, fast_math=True)
    executable = function.compile(x, target=place.target, options=options)
    call = executable.bind(x, out=executable(x))
    timer = timer_of(place.target)
    # The best of several: a ceiling is what can be reached, whatever else the machine does now.
    return min(timer(call, _SECONDS).median_us for _ in range(_TRIES))


def timer_of(target: str) -> Callable[..., Timing]:
    """Return what measures a call on *target*: the host's clock, or the GPU's events."""
    return measure_cuda if target == "cuda" else measure


def float_type(dtypes: list[DType]) -> DType:
    """Return the type whose operations bound a program of *dtypes*: the widest float's."""
    floats = [dtype for dtype in dtypes if dtype.is_float] or [FLOAT32]
    return max(floats, key=lambda dtype: dtype.size_bytes)
