"""What ``tcdsl bench`` times of JAX: a library case through ``jax.jit``, that is XLA.

XLA launches on a stream of its own, in which no event can be recorded.  On a GPU the host's clock
therefore measures, twice, with work before that lasts until all calls are in the queue:

    lead, lead, ...,                       wait    -> T0
    lead, lead, ..., call, call, ..., call, wait    -> T1        a call: (T1 - T0) / calls

What the host needs for launching and waiting drops out, and the lead pushes everything else out of
the second-level cache; a small case's calls have an input each, lest they find it there.  The other
time, ``jax-wall``, is that of calls alone, launching included, as a user would measure it.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tcdsl.library import Case

WALL = "jax-wall"
_LEAD_BYTES = 1 << 29  # read and written again: more than any second-level cache, some 0.3 ms
_MOST_LEADS, _MOST_CALLS = 12, 12  # together fewer than the 32 that JAX lets wait
_SAMPLE_US = 500.0
_LEAST_US = 0.1  # noise can make a difference negative
_MARGIN = 1.5  # of the host's time, which varies


def why_missing() -> str | None:
    """Return why JAX cannot be timed here, or None if it can."""
    return None if find_spec("jax") is not None else "JAX is not installed (pip install jax)"


def why_no_gpu() -> str | None:
    """Return why JAX cannot be timed on a GPU, or None if it can."""
    if why := why_missing():
        return why
    backend = import_jax().default_backend()
    return None if backend == "gpu" else f"JAX sees no GPU, only {backend}"


@cache
def import_jax() -> Any:
    """Return JAX: with 64-bit types, and not with all of a GPU's memory taken."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


def has_formula(case: Case) -> bool:
    """Return whether the library has *case* in JAX: reductions and graphs."""
    return case.family != "contraction"


def jitted(case: Case, inputs: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return the case as a function of its arrays by name; its numbers are constants."""
    jax = import_jax()
    formula = getattr(import_module("tcdsl.library.jax_peers"), case.name)
    numbers = {name: float(x) for name, x in inputs.items() if not getattr(x, "shape", ())}
    function: Callable[..., Any] = jax.jit(lambda arrays: formula(**arrays, **numbers))
    return function


def host_call(case: Case, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """Return the case's call on NumPy arrays, waited for."""
    jax = import_jax()
    function = jitted(case, inputs)
    arrays = {name: jax.numpy.asarray(x) for name, x in inputs.items() if x.ndim}
    return lambda: jax.block_until_ready(function(arrays))


# --- on a GPU --------------------------------------------------------------------------------


def from_torch(tensor: Any) -> Any:
    """Return *tensor* as an array of JAX, on the same memory but for bools."""
    jax, torch = import_jax(), import_module("torch")
    if tensor.dtype == torch.bool:  # which not every version's DLPack has
        return jax.dlpack.from_dlpack(tensor.view(torch.uint8)).astype(bool)
    return jax.dlpack.from_dlpack(tensor)


def to_torch(array: Any) -> Any:
    """Return an *array* of JAX as a tensor."""
    torch = import_module("torch")
    if array.dtype == bool:
        return torch.from_dlpack(array.astype("uint8")).view(torch.bool)
    return torch.from_dlpack(array)


class Queue:
    """What is timed on XLA's stream: leads, then calls."""

    def __init__(self, lead_bytes: int = _LEAD_BYTES) -> None:
        self._jax = import_jax()
        self._again = self._jax.jit(lambda x: x + 1, donate_argnums=0)
        self._buffer = self._again(self._jax.numpy.zeros(lead_bytes // 4, "float32"))
        self.elapsed_us(2, _nothing)
        once, many = (min(self.elapsed_us(n, _nothing)[1] for _ in range(3)) for n in (1, 5))
        self.lead_us = max((many - once) / 4, 1.0)

    def elapsed_us(self, leads: int, launch: Callable[[], Any]) -> tuple[float, float]:
        """Return when the host had launched everything, and when the GPU had done it."""
        self._jax.block_until_ready(self._buffer)
        start = time.perf_counter_ns()
        for _ in range(leads):
            self._buffer = self._again(self._buffer)
        last = launch()
        launched = time.perf_counter_ns()
        self._jax.block_until_ready((self._buffer, last))
        done = time.perf_counter_ns()
        return (launched - start) * 1e-3, (done - start) * 1e-3


def _nothing() -> None:
    return None


@cache
def queue() -> Queue:
    """Return this process's queue."""
    return Queue()


class QueuedCall:
    """A case's call in JAX on tensors of PyTorch, which it gives back, and which times itself.

    :arg cold_bytes: inputs of fewer bytes are copied, one copy a call of a sample.  0: the cache
        may be warm.
    """

    def __init__(self, case: Case, tensors: Mapping[str, Any], cold_bytes: int = 0) -> None:
        self._jax = import_jax()
        self._function = jitted(case, tensors)
        self._tensors = {name: x for name, x in tensors.items() if getattr(x, "shape", ())}
        self._cold_bytes = cold_bytes
        self._inputs = [self._arrays(self._tensors)]
        self._leads, self._calls = 0, 0  # until planned

    def __call__(self) -> tuple[Any, ...]:
        result = self._jax.block_until_ready(self._function(self._inputs[0]))
        return tuple(map(to_torch, result if isinstance(result, tuple) else (result,)))

    def time_us(self) -> float:
        """Return the GPU's time for a call, one of a sample's."""
        if not self._calls:
            self._plan()
        _, without = queue().elapsed_us(self._leads, _nothing)
        _, done = queue().elapsed_us(self._leads, self._launch)
        return max(done - without, _LEAST_US) / self._calls

    def wall_us(self) -> float:
        """Return the time of a call, its launching by the host included."""
        if not self._calls:
            self._plan()
        return queue().elapsed_us(0, self._launch)[1] / self._calls

    def _arrays(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {name: from_torch(x) for name, x in tensors.items()}

    def _launch(self) -> Any:
        result = None
        for number in range(self._calls):  # what a call has made is free for the next one
            result = self._function(self._inputs[number % len(self._inputs)])
        return result

    def _plan(self) -> None:
        """Choose the calls of a sample, their inputs, and how long a lead hides the host."""
        self._calls = 2
        launched, done = min(queue().elapsed_us(0, self._launch) for _ in range(3))
        self._calls = max(2, min(_MOST_CALLS, int(2 * _SAMPLE_US / done)))
        host_us = launched / 2 * self._calls
        self._leads = min(_MOST_LEADS, 1 + math.ceil(_MARGIN * host_us / queue().lead_us))
        total_bytes = sum(x.numel() * x.element_size() for x in self._tensors.values())
        if total_bytes < self._cold_bytes:
            for _ in range(self._calls - 1):
                copies = {name: x.clone() for name, x in self._tensors.items()}
                self._inputs.append(self._arrays(copies))
            self._jax.block_until_ready(self._inputs)
        queue().elapsed_us(self._leads, self._launch)
