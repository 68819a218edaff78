"""What ``tcdsl bench`` times of JAX: a library case through ``jax.jit``, that is XLA.

On a GPU the time is that between two events in XLA's stream (``xla_queue.py``).  The other time,
``jax-wall``, is that of calls by the host's clock, launching included, as a user would measure it.
"""

import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tcdsl.cli.bench.xla_ffi import UnknownInterfaceError
from tcdsl.cli.bench.xla_queue import MOST_CALLS, EventClock, Queue
from tcdsl.library import Case

WALL = "jax-wall"
_SAMPLE_US = 500.0  # of calls in a row


def why_missing() -> str | None:
    """Return why JAX cannot be timed here, or None if it can."""
    return None if find_spec("jax") is not None else "JAX is not installed (pip install jax)"


def why_no_gpu() -> str | None:
    """Return why JAX cannot be timed on a GPU, or None if it can."""
    if why := why_missing():
        return why
    backend = import_jax().default_backend()
    if backend != "gpu":
        return f"JAX sees no GPU, only {backend}"
    try:
        queue()
    except UnknownInterfaceError as error:
        return str(error)
    return None


@cache
def import_jax() -> Any:
    """Return JAX: with 64-bit types, and not with all of a GPU's memory taken."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


def has_formula(case: Case) -> bool:
    """Return whether the library has *case* in JAX: reductions, graphs and networks."""
    return case.family in ("reduction", "graph", "network")


def jitted(case: Case, inputs: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the case as a function of its arrays by name; its numbers are constants.

    Further arguments are not used, but the function's work comes after what makes them.
    """
    jax = import_jax()
    formula = case.jax_formula
    numbers = {name: float(x) for name, x in inputs.items() if not getattr(x, "shape", ())}
    function: Callable[..., Any] = jax.jit(
        lambda arrays, *after: formula(**arrays, **numbers), keep_unused=True
    )
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


@cache
def queue() -> Queue:
    """Return this process's queue.

    :raises UnknownInterfaceError: it cannot record in XLA's stream.
    """
    jax = import_jax()
    return Queue(jax, EventClock(jax))


class QueuedCall:
    """A case's call in JAX on tensors of PyTorch, which it gives back, and which times itself.

    :arg flush: False leaves the cache warm: a time is then that of one of many calls in a row.
    """

    def __init__(self, case: Case, tensors: Mapping[str, Any], flush: bool = True) -> None:
        self._function = jitted(case, tensors)
        self._arrays = {n: from_torch(x) for n, x in tensors.items() if getattr(x, "shape", ())}
        self._flush = flush
        self._calls = 0  # in a row, until planned
        self._leads = 0

    def __call__(self) -> tuple[Any, ...]:
        result = self._launch(queue().tick)
        return tuple(map(to_torch, import_jax().block_until_ready(result)))

    def time_us(self) -> float:
        """Return the GPU's time for a call."""
        self._plan()
        return queue().time_us(self._launch, self._leads, self._warm_calls)

    def wall_us(self) -> float:
        """Return the time of a call, its launching by the host included."""
        self._plan()
        return queue().wall_us(self._launch, self._calls)

    def _launch(self, after: Any) -> tuple[Any, ...]:
        result = self._function(self._arrays, after)
        return result if isinstance(result, tuple) else (result,)

    @property
    def _warm_calls(self) -> int:
        return 0 if self._flush else self._calls

    def _plan(self) -> None:
        """Choose how many calls stand in a row, and how long a lead hides the host; once."""
        if self._calls:
            return
        wall_us = min(queue().wall_us(self._launch, 2) for _ in range(3))
        self._calls = max(2, min(MOST_CALLS, int(_SAMPLE_US / wall_us)))
        self._leads = queue().leads_for(self._launch, self._warm_calls)
