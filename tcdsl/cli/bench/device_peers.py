"""What ``tcdsl bench --target cuda`` times: a case in tcdsl, PyTorch, JAX, CUB and cuDNN.

All inputs are tensors on the GPU, made before, which all share; tcdsl's calls are bound to outputs
made before.  Times are those of the GPU, between events, JAX's in a stream of its own.
The second-level cache is full of something else, or warm if asked for.  float32 means float32 for
all: tf32 is off.
"""

import gc
import math
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol

import tcdsl
from tcdsl.cli.bench import jax_calls
from tcdsl.cli.bench.device_inputs import device_inputs, fresh_output
from tcdsl.cli.bench.jax_calls import WALL, QueuedCall
from tcdsl.cli.bench.peers import offers
from tcdsl.cli.bench.report import Launches, machine, version_of
from tcdsl.costmodel.lower_bounds import least_bytes
from tcdsl.errors import TCError
from tcdsl.executable import Executable
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.library import Case, cub_peers, cudnn_peers, source_for
from tcdsl.library.cub_peers import CubCall
from tcdsl.library.peer_calls import Call, call_on_tensors
from tcdsl.options import BAD_ARGUMENT, Options
from tcdsl.records import dataclass
from tcdsl.runtime.cuda.device import primary_context
from tcdsl.runtime.timing import Comparison, compare_cuda, measure_cuda
from tcdsl.testing.agreement import tolerance_of

Tensors = Mapping[str, Any]

MOST_INPUT_BYTES = 12_000_000_000
COMPILE_MODE = "max-autotune-no-cudagraphs"  # torch.compile's: the best it has for one call
_TARGET = "cuda"
_SHARE = 8  # of the device's memory, for the inputs: peers make copies of all kinds
_COPY_BYTES = 1 << 30
_TO_COLLECT_BYTES = 1 << 30  # that a case has left: looking for cycles takes 50 ms
_PIECE = 1 << 26  # elements that are compared at once, in float64


class KernelLibrary(Protocol):
    """A module of the library that has the single reductions in a library of kernels."""

    def why_missing(self) -> str | None: ...
    def version_text(self) -> str: ...
    def offers(self, case: Case, dtype: str) -> bool: ...
    def call_on_tensors(self, case: Case, tensors: Tensors) -> Call: ...


_LIBRARIES: Mapping[str, KernelLibrary] = {"cub": cub_peers, "cudnn": cudnn_peers}


@dataclass(frozen=True, slots=True)
class Device:
    """Calls on tensors of the first GPU."""

    memory_bytes: int
    flush: bool = True
    peers: ClassVar[tuple[str, ...]] = ("torch", "torch-compile", "jax", "cub", "cudnn")
    default_peers: ClassVar[str] = "torch"
    # PyTorch's own are RuntimeErrors: out of memory, and a context that is lost.
    errors: ClassVar[tuple[type[Exception], ...]] = (TCError, RuntimeError)

    def why_missing(self, peer: str) -> str | None:
        """Return why *peer* cannot be timed; without PyTorch there would be no device."""
        if peer in _LIBRARIES:
            return _LIBRARIES[peer].why_missing()
        return jax_calls.why_no_gpu() if peer == "jax" else None

    def offers(self, peer: str, case: Case, dtype: str) -> bool:
        """Return whether *peer* has *case* in *dtype*."""
        if peer in _LIBRARIES:
            return _LIBRARIES[peer].offers(case, dtype)
        return offers(peer, case)

    def sizes(self, case: Case, dtype: str) -> tuple[Mapping[str, int], ...]:
        """Return the case's sizes whose inputs fit the device."""
        limit = min(MOST_INPUT_BYTES, self.memory_bytes // _SHARE)
        return tuple(sizes for sizes in case.sizes if input_bytes(case, sizes, dtype) <= limit)

    def inputs(self, case: Case, sizes: Mapping[str, int], dtype: str) -> Tensors:
        """Return random inputs, the same ones every time."""
        return device_inputs(case, sizes, dtype)

    def tcdsl_call(
        self, case: Case, inputs: Tensors, dtype: str, options: Options | None = None
    ) -> tuple[Call, Launches]:
        """Return the case's bound call, and what it launches.

        Tensors that it updates are copies of the inputs: it may run again and again, on what the
        run before has left.
        """
        function = tcdsl.define(source_for(case, dtype))[case.def_name]
        c = function.comprehension
        values = {n: inputs[n].clone() if n in c.outputs else inputs[n] for n in c.inputs}
        executable = function.compile(*values.values(), target=_TARGET, options=options)
        outputs = tuple(
            values[name] if name in values else fresh_output(
                executable.special.shapes[name], c.tensors[name].dtype,
                is_read=c.tensors[name].needs_out,
            )
            for name in c.outputs
        )  # fmt: skip
        return executable.bind(*values.values(), out=outputs), launches_of(executable)

    def peer_call(self, peer: str, case: Case, inputs: Tensors) -> Call:
        """Return the case's call in *peer*."""
        if peer in _LIBRARIES:
            return _LIBRARIES[peer].call_on_tensors(case, inputs)
        if peer == "jax":
            return QueuedCall(case, inputs, self.flush)
        return call_on_tensors(case, inputs, compiled=peer == "torch-compile", mode=COMPILE_MODE)

    def disagreement(self, result: Any, expected: Any, dtype: str) -> str | None:
        """Return how *result* differs from *expected* beyond *dtype*'s rounding, or None."""
        for number, (ours, theirs) in enumerate(
            zip(_as_tuple(result), _as_tuple(expected), strict=True)
        ):
            if ours.shape != theirs.shape:
                return f"output {number} has shape {tuple(ours.shape)}, not {tuple(theirs.shape)}"
            if not (worst := relative_error(ours, theirs)) <= tolerance_of(dtype):  # also if NaN
                return f"output {number} differs by {worst:.2g} of its largest element"
        return None

    def compare(self, calls: Mapping[str, Call], min_time_s: float) -> Comparison:
        """Return the times of *calls*; JAX's also as its user would measure it.

        CUB's also without its copies.
        """
        others: dict[str, Callable[[], float]] = {}
        alone: dict[str, Call] = {}
        for name, call in calls.items():
            if isinstance(call, QueuedCall):
                others |= {name: call.time_us, WALL: call.wall_us}
            elif isinstance(call, CubCall) and call.is_copied:
                alone[cub_peers.ROWS] = call.without_copy
        events = {name: call for name, call in calls.items() if name not in others} | alone
        return compare_cuda(events, min_time_s, flush=self.flush, others=others)

    @property
    def target(self) -> str:
        """The target of tcdsl's calls."""
        return _TARGET

    def wait(self) -> None:
        """Wait for what has been launched."""
        import_module("torch").cuda.synchronize()

    def settle(self) -> str | None:
        """Free what the case before has left; return why nothing more can be timed, or None."""
        torch = import_module("torch")
        try:
            torch.cuda.synchronize()
            if torch.cuda.memory_allocated() > _TO_COLLECT_BYTES:
                gc.collect()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            return str(error).splitlines()[0]
        return None

    def about(self, copy_gbs: float, read_gbs: float = 0.0) -> dict[str, str]:
        """Return what the times depend on; rates in GB/s, 0 where it was not measured."""
        torch = import_module("torch")
        rates = {"copy": copy_gbs, "read": read_gbs}
        return {
            "gpu": torch.cuda.get_device_name(0), "CUDA of torch": str(torch.version.cuda),
            **{name: f"{rate:.0f} GB/s" for name, rate in rates.items() if rate},
            "cache": "cold" if self.flush else "warm", **machine(),
            **{name: version_of(name) for name in ("triton", "jax")},
        }  # fmt: skip


def library_versions(peers: Iterable[str]) -> dict[str, str]:
    """Return the versions of those of *peers* that are libraries of kernels."""
    return {peer: _LIBRARIES[peer].version_text() for peer in peers if peer in _LIBRARIES}


def open_device() -> Device:
    """Return the device.

    :raises TCError: no program can run on a GPU here, or PyTorch cannot.
    """
    primary_context()
    if find_spec("torch") is None:
        raise _no_torch("PyTorch, which makes the arrays, is not installed")
    torch = import_module("torch")
    if not torch.cuda.is_available():
        raise _no_torch("PyTorch, which makes the arrays, sees no GPU")
    float32_proper()
    return Device(torch.cuda.mem_get_info()[1])


def float32_proper() -> None:
    """Let PyTorch compute float32 in float32; torch.compile's cached code depends on it."""
    backends = import_module("torch").backends
    backends.cuda.matmul.allow_tf32 = False
    backends.cudnn.allow_tf32 = False


def _no_torch(why: str) -> TCError:
    return BAD_ARGUMENT(
        argument="--target cuda", what=why, advice="install a PyTorch that is built for CUDA"
    )


def copy_rate_gbs(size_bytes: int = _COPY_BYTES, min_time_s: float = 0.2) -> float:
    """Return what a copy of *size_bytes* moves in a second, read and written, in GB/s."""
    return 2 * size_bytes / measure_cuda(copy_call(size_bytes), min_time_s).median_us * 1e-3


def copy_call(size_bytes: int) -> Call:
    """Return a call that copies *size_bytes* on the GPU."""
    torch = import_module("torch")
    source = torch.randint(0, 256, (size_bytes,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


# --- comparing on the device -----------------------------------------------------------------


def relative_error(ours: Any, theirs: Any) -> float:
    """Return the largest difference over the largest finite element of *theirs*, at least 1.

    Equal infinities and two NaNs differ by 0; a NaN on one side only gives NaN.
    """
    torch = import_module("torch")
    scale, worst = 1.0, 0.0
    pieces = zip(
        ours.reshape(-1).split(_PIECE), theirs.reshape(-1).split(_PIECE), strict=True
    )  # fmt: skip
    for our_piece, their_piece in pieces:
        if not our_piece.numel():
            continue
        a, b = our_piece.double(), their_piece.double()
        size = torch.where(b.isfinite(), b.abs(), 0.0).max().item()
        is_same = (a == b) | (a.isnan() & b.isnan())
        error = torch.where(is_same, 0.0, (a - b).abs()).max().item()
        scale = max(scale, size)
        worst = error if math.isnan(error) or error > worst else worst
        if math.isnan(worst):
            break
    return worst / scale


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


# --- what a call does ------------------------------------------------------------------------


def input_bytes(case: Case, sizes: Mapping[str, int], dtype: str) -> int:
    """Return how many bytes the case's inputs at *sizes* have."""
    shapes = case.input_shapes(sizes)
    return sum(
        math.prod(shapes[param.name]) * BY_NAME[param.dtype_for(dtype)].size_bytes
        for param in case.params
    )


def launches_of(executable: Executable) -> Launches:
    """Return what a call of *executable* launches."""
    kernels = executable.kernels
    first = next((kernel for kernel in kernels if "grid" in kernel), {})
    return Launches(
        least_bytes(executable.comprehension, executable.special), len(kernels),
        tuple(first.get("grid", ())), tuple(first.get("block", ())),
    )  # fmt: skip
