"""Loading compiled code and calling it.

The calling convention, which the C printer follows::

    int32_t entry(void *const *pointers, const int64_t *integers, int64_t *fault);

*pointers* are the data pointers of the tensors (and 0-D arrays of the host scalars) and of the
scratch buffers; *integers* are the open sizes and whatever else the plan fixes; both arrays live
only for the call.  The result is 0, or nonzero after writing ``fault[0..4] = {code, site, index,
extent, position}``: the first access that the code found out of range.  Threads may find one at
the same time, so the code claims ``fault[0]`` by compare-and-swap from 0 before it writes the rest.

Three arguments, whatever the rank of the program: ctypes converts each argument separately, 40
pointers in 1.7 us, while packing them with ``struct`` takes 0.3 us and the call itself 0.2 us.
The integers belong to the plan and are packed once.

The call releases the interpreter lock.  Threads: a ``num_threads`` clause must ask for no more
than ``omp_get_max_threads()``, see :func:`_serial_after_fork`.
"""

import ctypes
import hashlib
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import cast

from tcdsl.errors import LOAD_FAILED
from tcdsl.records import dataclass
from tcdsl.settings import settings

FAULT_WORDS = 5
FAULT_GATHER = 1  # fault[0]: a gathered or scattered index out of range

FaultRecord = ctypes.c_int64 * FAULT_WORDS
_Function = Callable[[bytes, bytes, object], int]
WorkspaceFunction = Callable[[bytes], int]  # packed integers -> bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """What the code found: *index* is not in ``[0, extent)`` at the access numbered *site*."""

    code: int
    site: int
    index: int
    extent: int
    position: int = 0  # in memory, of the element that the index comes from; -1: it is not known


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A loaded function; it stays loaded for as long as the process lives."""

    name: str
    n_pointers: int
    n_integers: int
    function: _Function
    pack_pointers: Callable[..., bytes]

    def pack_integers(self, integers: Sequence[int]) -> bytes:
        """Return *integers* as the call takes them, to be kept in the plan."""
        assert len(integers) == self.n_integers, f"{self.name} takes {self.n_integers} integers"
        return struct.pack(f"={self.n_integers}q", *integers)

    def __call__(self, pointers: Sequence[int], integers: bytes) -> Fault | None:
        """Run on *pointers* and packed *integers*; return the fault, or None.

        The caller keeps the memory alive, and has checked that the pointers fit the code.
        """
        record = FaultRecord()
        if self.function(self.pack_pointers(*pointers), integers, record):
            return Fault(*record)
        return None

    def bind(
        self, pointers: Sequence[int], integers: bytes, keep_alive: object = None
    ) -> "BoundKernel":
        """Return the call with its arguments fixed; *keep_alive* owns the memory."""
        return BoundKernel(self.function, self.pack_pointers(*pointers), integers, keep_alive)


class BoundKernel:
    """A call with fixed arguments: only the launch is left."""

    __slots__ = ("_function", "_integers", "_keep_alive", "_pointers")

    def __init__(
        self, function: _Function, pointers: bytes, integers: bytes, keep_alive: object
    ) -> None:
        self._function = function
        self._pointers = pointers
        self._integers = integers
        self._keep_alive = keep_alive

    def __call__(self) -> Fault | None:
        # A record a call: two threads may run the same bound call.
        record = FaultRecord()
        if self._function(self._pointers, self._integers, record):
            return Fault(*record)
        return None


# --- loading -------------------------------------------------------------------------------

_lock = threading.Lock()
# By the code's SHA-256.  Libraries are never unloaded: OpenMP's threads may still be inside.
_libraries: dict[bytes, ctypes.CDLL] = {}


def load(code: bytes, entry: str, n_pointers: int, n_integers: int = 0) -> Kernel:
    """Return the function *entry* of the shared object *code*, loaded once a process.

    :raises CompileError: (TC073) if *code* cannot be loaded here or has no such function.
    """
    library = load_library(code)
    try:
        function = library[entry]  # item access: a new function object, its types are ours alone
    except AttributeError:
        raise LOAD_FAILED(why=f"it has no function {entry!r}") from None
    # bytes objects are passed by the address of their contents, which is a multiple of 8.
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
    function.restype = ctypes.c_int32
    pack = struct.Struct(f"={n_pointers}Q").pack
    return Kernel(entry, n_pointers, n_integers, cast(_Function, function), pack)


def load_workspace(code: bytes) -> WorkspaceFunction:
    """Return ``int64_t tcdsl_workspace(const int64_t *integers)`` of *code*.

    :raises CompileError: (TC073) if *code* cannot be loaded here or has no such function.
    """
    library = load_library(code)
    try:
        function = library["tcdsl_workspace"]
    except AttributeError:
        raise LOAD_FAILED(why="it has no function 'tcdsl_workspace'") from None
    function.argtypes = [ctypes.c_char_p]
    function.restype = ctypes.c_int64
    return cast(WorkspaceFunction, function)


def load_library(code: bytes) -> ctypes.CDLL:
    """Return the shared object *code*, loaded once a process.

    :raises CompileError: (TC073) if *code* cannot be loaded here.
    """
    digest = hashlib.sha256(code).digest()
    with _lock:
        library = _libraries.get(digest)
        if library is None:
            library = _libraries[digest] = _open_library(code)
    return library


def _open_library(code: bytes) -> ctypes.CDLL:
    try:
        return _open_through_file(code)
    except OSError as error:
        first = error
    try:
        # The temporary folder may be full, missing, or mounted without permission to execute.
        return _open_through_memory(code)
    except (OSError, AttributeError):
        raise LOAD_FAILED(why=str(first)) from None


def _open_through_file(code: bytes) -> ctypes.CDLL:
    """Load *code* from a private file, which is removed at once (kept under ``TCDSL_DEBUG``)."""
    # A name of its own each time: dlopen takes a known name for the library it knows.
    handle, path = tempfile.mkstemp(prefix="tcdsl-", suffix=".so")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        return ctypes.CDLL(path)
    finally:
        if not settings().debug:
            os.unlink(path)


def _open_through_memory(code: bytes) -> ctypes.CDLL:
    # The descriptor stays open, so that its number, and with it the name, is never used again.
    handle = os.memfd_create("tcdsl")
    with os.fdopen(handle, "wb", closefd=False) as file:
        file.write(code)
    try:
        return ctypes.CDLL(f"/proc/self/fd/{handle}")
    except OSError:
        os.close(handle)
        raise


# --- threads -------------------------------------------------------------------------------


def thread_count(requested: int = 0) -> int:
    """Return how many threads a call may use: *requested*, else ``TCDSL_THREADS``, else all.

    "All" is what OpenMP takes too: ``OMP_NUM_THREADS``, else the processors of this process.
    """
    wanted = requested or settings().threads
    if wanted:
        return wanted
    environment = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if environment.isdigit() and int(environment) > 0:
        return int(environment)
    return processors()


def processors() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # pragma: no cover - not on Linux


def _serial_after_fork() -> None:
    """In a forked child: make the forking thread's parallel regions run on that thread alone.

    The threads of libgomp's pool did not survive the fork, and a region that waits for them hangs.
    With one thread the pool is not used.  Other threads of the child have pools of their own.
    """
    for library in _libraries.values():
        try:
            library.omp_set_num_threads(1)
        except AttributeError:  # compiled without OpenMP
            continue


# A fork waits for a thread that is loading: its child would find the lock taken, by nobody.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
os.register_at_fork(after_in_child=_serial_after_fork)
