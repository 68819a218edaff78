"""A Python function that XLA calls when it puts work in its stream.

    op = in_stream(jax, act);  op(x)     --->     a program of XLA's, after the one that makes x:
                                                      act(stream)
                                                      an array of one element

XLA gives its stream, on a GPU the CUstream, only to a handler of its foreign function interface:
a C function of one argument, the call frame, in which there is a table of XLA's functions.  A
ctypes callback is such a function, so no C compiler is needed.

The structures are those of XLA's ``xla/ffi/api/c_api.h``, which jaxlib brings, as far as they are
used.  Within a major version, of which there has been one, they grow only at their ends; so their
sizes and the version are looked at, when XLA asks a new handler what it is, before anything else
is.  Our answer has no traits: what a handler does must not be captured into a CUDA graph.
"""

import ctypes
from collections.abc import Callable
from typing import Any

_SIZE, _ADDRESS, _INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int

_MAJOR = 0
_METADATA = 1  # the extension by which XLA asks what a handler is
_INTERNAL = 13  # the error's code


class UnknownInterfaceError(Exception):
    """XLA's interface is not the one that is written down here."""


class Version(ctypes.Structure):
    """``XLA_FFI_Api_Version``."""

    _fields_ = (("size", _SIZE), ("extension", _ADDRESS), ("major", _INT), ("minor", _INT))


class Api(ctypes.Structure):
    """The front of ``XLA_FFI_Api``: addresses of functions."""

    _fields_ = (
        ("size", _SIZE),
        ("extension", _ADDRESS),
        ("version", Version),
        ("internal", _ADDRESS),
        ("error_create", _ADDRESS),
        ("error_details", _ADDRESS),
        ("error_destroy", _ADDRESS),
        ("handler_register", _ADDRESS),
        ("stream_get", _ADDRESS),
    )


class Extension(ctypes.Structure):
    """``XLA_FFI_InternalExtension``, before version 0.4 ``XLA_FFI_Extension_Base``."""

    _fields_ = (("size", _SIZE), ("type", _INT), ("next", _ADDRESS))


class Metadata(ctypes.Structure):
    """The front of ``XLA_FFI_Metadata``; the other member is for handlers that have a state."""

    _fields_ = (("size", _SIZE), ("version", Version), ("traits", ctypes.c_uint32))


class MetadataExtension(ctypes.Structure):
    """``XLA_FFI_Metadata_Extension``."""

    _fields_ = (("base", Extension), ("metadata", ctypes.POINTER(Metadata)))


class CallFrame(ctypes.Structure):
    """The front of ``XLA_FFI_CallFrame``."""

    _fields_ = (
        ("size", _SIZE),
        ("extension", ctypes.POINTER(Extension)),
        ("api", ctypes.POINTER(Api)),
        ("context", _ADDRESS),
        ("stage", _INT),
    )


class StreamGet(ctypes.Structure):
    """``XLA_FFI_Stream_Get_Args``."""

    _fields_ = (("size", _SIZE), ("extension", _ADDRESS), ("context", _ADDRESS),
                ("stream", _ADDRESS))  # fmt: skip


class ErrorCreate(ctypes.Structure):
    """``XLA_FFI_Error_Create_Args``."""

    _fields_ = (("size", _SIZE), ("extension", _ADDRESS), ("message", ctypes.c_char_p),
                ("code", _INT))  # fmt: skip


# Both return an error, which XLA owns, or null.
_HANDLER = ctypes.CFUNCTYPE(_ADDRESS, ctypes.POINTER(CallFrame))
_FUNCTION = ctypes.CFUNCTYPE(_ADDRESS, _ADDRESS)


def end_of(structure: type[ctypes.Structure]) -> int:
    """Return the size of *structure* as XLA gives it: without the bytes after the last member."""
    last = getattr(structure, structure._fields_[-1][0])
    return int(last.offset + last.size)


def why_not_known(frame: CallFrame) -> str | None:
    """Return why *frame* cannot be read by the structures above, or None if it can."""
    if frame.size < end_of(CallFrame):
        return f"XLA's call frame has {frame.size} bytes, fewer than {end_of(CallFrame)}"
    api = frame.api.contents
    if api.size < end_of(Api):
        return f"XLA's table of functions has {api.size} bytes, fewer than {end_of(Api)}"
    if api.version.major != _MAJOR:
        found = f"{api.version.major}.{api.version.minor}"
        return f"XLA's foreign function interface has version {found}, not {_MAJOR}"
    return None


class Handler:
    """A handler that calls *act* with XLA's stream."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self._act = act
        self._callback = _HANDLER(self._handle)
        self.address = ctypes.cast(self._callback, _ADDRESS).value
        self.why_not: str | None = None  # since XLA has asked

    def _handle(self, reference: Any) -> int | None:
        """Return the error that the call ends with, or None."""
        frame = reference.contents
        if asked := _metadata_of(frame):
            self.why_not = why_not_known(frame) or _answer(asked, frame.api.contents)
            return None
        stream, failed = stream_of(frame)
        if failed:
            return failed
        try:
            self._act(stream)
        except Exception as error:  # whatever it is, it must not end in XLA's C++
            return _error(frame.api.contents, f"{type(error).__name__}: {error}")
        return None


def stream_of(frame: CallFrame) -> tuple[int, int]:
    """Return XLA's stream, and the error, 0 for none, with which it says that it has none."""
    stream = StreamGet(end_of(StreamGet), None, frame.context, None)
    error = _FUNCTION(frame.api.contents.stream_get)(ctypes.addressof(stream))
    return stream.stream or 0, error or 0


def _metadata_of(frame: CallFrame) -> Metadata | None:
    """Return what XLA asks to be filled in, or None where this is a call."""
    extension = frame.extension
    while extension and extension.contents.type != _METADATA:
        extension = ctypes.cast(extension.contents.next, ctypes.POINTER(Extension))
    if not extension:
        return None
    found = ctypes.cast(extension, ctypes.POINTER(MetadataExtension)).contents
    return found.metadata.contents  # type: ignore[no-any-return]


def _answer(metadata: Metadata, api: Api) -> str | None:
    """Tell XLA that its version is known, and that there are no traits, or return why not."""
    if metadata.size < end_of(Metadata):
        return f"XLA's metadata has {metadata.size} bytes, fewer than {end_of(Metadata)}"
    metadata.version, metadata.traits = api.version, 0
    return None


def _error(api: Api, message: str) -> int:
    """Return an error of XLA's."""
    error = ErrorCreate(end_of(ErrorCreate), None, message.encode(), _INTERNAL)
    return int(_FUNCTION(api.error_create)(ctypes.addressof(error)))


_handlers: list[Handler] = []  # XLA keeps their addresses as long as the process lives


def in_stream(
    jax: Any, act: Callable[[int], None], platform: str = "CUDA"
) -> Callable[..., Any]:  # fmt: skip
    """Return a function that puts ``act(stream)`` in XLA's stream, after what makes its arguments.

    It returns an array of one element, with nothing in it, for others to come after it.

    :raises UnknownInterfaceError: XLA's interface is another than this module's.
    """
    if not hasattr(jax, "ffi"):
        raise UnknownInterfaceError(f"JAX {jax.__version__} has no jax.ffi: take a newer one")
    handler = Handler(act)
    name = f"tcdsl_{len(_handlers)}"
    _handlers.append(handler)
    capsule = jax.ffi.pycapsule(handler.address)
    try:
        jax.ffi.register_ffi_target(name, capsule, platform=platform, api_version=1)
    except (RuntimeError, ValueError) as error:  # JAX's, by the status that XLA has returned
        raise UnknownInterfaceError(handler.why_not or str(error)) from error
    if handler.why_not:
        raise UnknownInterfaceError(handler.why_not)
    tick = jax.ShapeDtypeStruct((1,), "int32")
    # With an effect, XLA neither drops the call nor makes one of two.
    call = jax.ffi.ffi_call(name, tick, has_side_effect=True)
    # Without keep_unused the arguments would be no arguments of XLA's program.
    function: Callable[..., Any] = jax.jit(lambda *after: call(), keep_unused=True)
    return function
