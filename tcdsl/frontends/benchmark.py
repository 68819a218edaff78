"""How long a call takes, beside others, and beside what the machine could do.

    benchmark(matmul, A, B, peers={"mine": lambda: A @ B})   --->   a table, and a roofline

The call is bound: only what computes is timed.  Those that are compared take turns.  Peers that are
found: the NumPy reference, the library's own peers for its programs, and NumPy and PyTorch for an
Einstein sum.  On a GPU times are the GPU's, with a cold cache, and only peers on it take part.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from tcdsl.api import Function
from tcdsl.costmodel.lower_bounds import least_bytes, operations
from tcdsl.errors import TCError
from tcdsl.executable import Executable
from tcdsl.frontends.ceilings import Ceilings, ceilings_for, float_type
from tcdsl.frontends.einsum_peers import einsum_text
from tcdsl.frontends.measurements import Measurement, Measurements
from tcdsl.library import Case, cases, source_for
from tcdsl.library.peer_calls import as_tensor, call_on_tensors, numpy_call
from tcdsl.options import Options
from tcdsl.runtime.arrays import as_numpy, describe
from tcdsl.runtime.size_arguments import without_sizes
from tcdsl.runtime.timing import Timing, compare, compare_cuda
from tcdsl.testing.agreement import disagreement

Call = Callable[[], Any]

OURS, REFERENCE = "tcdsl", "NumPy reference"
SECONDS = 0.2  # for each, unless the caller says otherwise
_TOO_SLOW_S = 0.5  # a call: it is then timed once


def benchmark(  # noqa: PLR0913  # public
    function: Function,
    *args: Any,
    out: Any = None,
    target: str | None = None,
    options: Options | None = None,
    peers: Mapping[str, Call] | None = None,
    title: str | None = None,
    seconds: float | None = None,
) -> Measurements:
    """Return the times of ``function(*args)`` and of its peers.

    :arg peers: calls of your own, by their names.
    :arg seconds: how long each is measured; 0.2 by default.
    """
    executable = function.compile(*args, target=target, options=options)
    result = executable(*args, out=out)
    calls: dict[str, Call] = {}
    notes: list[str] = []
    once: dict[str, Timing] = {}
    found: dict[str, Call] = {OURS: executable.bind(*args, out=result if out is None else out)}
    found |= {**dict(found_peers(function, executable, args, out)), **(peers or {})}
    for name, call in found.items():
        timing, note = _first_call(name, call, result, executable)
        notes += note
        if timing is None:
            continue
        if timing.median_us > _TOO_SLOW_S * 1e6:
            once[name] = timing
        else:
            calls[name] = call
    measured = _compared(executable.target, calls, seconds or SECONDS) if calls else {}
    timings = {name: (once | dict(measured))[name] for name in found if name in {**once, **calls}}
    ceilings = _ceilings(executable, args, notes)
    c, special = executable.comprehension, executable.special
    work = least_bytes(c, special), operations(c, special)
    rows = tuple(Measurement(name, timing) for name, timing in timings.items())
    return Measurements(
        title or function.__name__, executable.target, rows, *work, ceilings, tuple(notes)
    )


def _compared(target: str, calls: Mapping[str, Call], seconds: float) -> Mapping[str, Timing]:
    if target == "cuda":
        return compare_cuda(calls, seconds).timings
    return compare(calls, seconds).timings


def _first_call(
    name: str, call: Call, result: Any, executable: Executable
) -> tuple[Timing | None, list[str]]:
    """Return how long a second call takes, and what is to be said of it.

    A peer that fails is left out: it must not take the others with it.
    """
    try:
        theirs = call()  # loads and compiles what it needs
        start = time.perf_counter()
        call()
        elapsed_us = (time.perf_counter() - start) * 1e6
    except Exception as error:  # of any library
        return None, [f"{name} is left out: {type(error).__name__}: {error}"]
    notes = [f"{name} is timed once"] if elapsed_us > _TOO_SLOW_S * 1e6 else []
    if name != OURS and (why := _difference(result, theirs, executable)):
        notes.append(f"{name} computes something else: {why}")
    return Timing(elapsed_us, 0.0, 1, 1), notes


def _difference(ours: Any, theirs: Any, executable: Executable) -> str | None:
    """Return how results differ, as far as they can be compared, or None."""
    head = executable.head
    dtype = head.tensors[head.outputs[0]].dtype.name
    try:
        return disagreement(_on_host(ours), _on_host(theirs), dtype)
    except Exception:  # other containers, another number of outputs: it is the user's own call
        return "its result cannot be compared"


def _on_host(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return tuple(map(_on_host, result))
    return result.detach().cpu() if hasattr(result, "detach") else result


def _ceilings(executable: Executable, args: tuple[Any, ...], notes: list[str]) -> Ceilings | None:
    """Return what the machine could do, or None where that says nothing."""
    if executable.target not in ("cpu", "cuda"):
        notes.append(f"the target {executable.target!r} is for looking, not for speed")
        return None
    c = executable.comprehension
    inputs = without_sizes(executable.head, args, executable.special.sizes)
    arrays = [a for a in inputs if not describe(a, "an argument").is_number]
    dtype = float_type([tensor.dtype for tensor in c.tensors.values()])
    return ceilings_for(
        arrays[0] if arrays else np.zeros(1, np.float32), executable.target,
        executable.options.threads, least_bytes(c, executable.special), dtype,
    )  # fmt: skip


# --- peers -------------------------------------------------------------------------------------


def found_peers(
    function: Function, executable: Executable, args: tuple[Any, ...], out: Any
) -> Iterator[tuple[str, Call]]:
    """Yield the calls that compute the same, by their names."""
    is_on_gpu = executable.target == "cuda"
    case = case_of(function)
    if not is_on_gpu:
        given = args
        yield REFERENCE, lambda: function.reference(*given, out=out)
    args = tuple(without_sizes(executable.head, args, executable.special.sizes))
    if case is not None:
        yield from _peers_of_case(case, executable, args, is_on_gpu)
        return
    sum_ = einsum_text(executable.comprehension, executable.special)
    if sum_ is not None:
        by_name = dict(zip(executable.head.inputs, args, strict=True))
        yield from _peers_of_sum(sum_[0], [by_name[name] for name in sum_[1]], is_on_gpu)


def case_of(function: Function) -> Case | None:
    """Return the library's case that *function* is, in any element type, or None."""
    c = function.comprehension
    text = c.source.text.strip()
    for case in cases():
        if case.def_name != c.name:
            continue
        texts = [case.source, *(source_for(case, dtype) for dtype in case.dtypes)]
        if text in map(str.strip, texts):
            return case
    return None


def _peers_of_case(
    case: Case, executable: Executable, args: tuple[Any, ...], is_on_gpu: bool
) -> Iterator[tuple[str, Call]]:
    names = executable.head.inputs
    if not is_on_gpu:
        arrays = {n: as_numpy(arg) for n, arg in zip(names, args, strict=True)}
        yield "NumPy", numpy_call(case, arrays)
    tensors = _tensors(args, is_on_gpu)
    if tensors is not None:
        yield (
            "PyTorch",
            call_on_tensors(case, dict(zip(names, tensors, strict=True)), compiled=False),
        )


def _peers_of_sum(
    subscripts: str, operands: list[Any], is_on_gpu: bool
) -> Iterator[tuple[str, Call]]:
    if not is_on_gpu:
        arrays = [as_numpy(operand) for operand in operands]
        yield "NumPy einsum", lambda: np.einsum(subscripts, *arrays, optimize=True)
    tensors = _tensors(operands, is_on_gpu)
    if tensors is not None:
        torch = import_module("torch")
        yield "PyTorch einsum", lambda: torch.einsum(subscripts, *tensors)


def _tensors(args: Any, is_on_gpu: bool) -> list[Any] | None:
    """Return *args* as tensors, where PyTorch is installed and knows their memory."""
    if find_spec("torch") is None:
        return None
    torch = import_module("torch")
    if all(isinstance(arg, torch.Tensor) for arg in args):
        return list(args)
    if is_on_gpu:
        return None  # copies to the device would be timed, or not: neither is fair
    try:
        return [as_tensor(torch, np.ascontiguousarray(as_numpy(arg))) for arg in args]
    except (TypeError, TCError):
        return None
