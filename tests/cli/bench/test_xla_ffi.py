"""Call frames of XLA's foreign function interface: made here, and XLA's own on this processor."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcdsl.cli.bench import jax_calls, xla_ffi
from tcdsl.cli.bench.xla_ffi import Handler, UnknownInterfaceError, end_of, in_stream
from tcdsl.runtime.c_compiler import find_compiler, why_no_compiler

STREAM, CONTEXT, ERROR, REFUSAL = 0x1230, 0x77, 0x4560, 0x7890


class Xla:
    """XLA's side: a table of functions, and call frames."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, int]] = []
        self.has_stream = True
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        self.functions = function(self.stream_get), function(self.error_create)
        stream_get, error_create = (ctypes.cast(f, ctypes.c_void_p) for f in self.functions)
        self.api = xla_ffi.Api(
            size=200, version=xla_ffi.Version(24, None, 0, 4),
            stream_get=stream_get, error_create=error_create,
        )  # fmt: skip
        self.metadata = xla_ffi.Metadata(size=36, traits=0xFF)

    def stream_get(self, address: int) -> int:
        asked = xla_ffi.StreamGet.from_address(address)
        assert (asked.size, asked.context) == (32, CONTEXT)
        asked.stream = STREAM
        return 0 if self.has_stream else REFUSAL

    def error_create(self, address: int) -> int:
        asked = xla_ffi.ErrorCreate.from_address(address)
        self.messages.append((asked.message, asked.code))
        return ERROR

    def frame(self, extension: Any = None) -> xla_ffi.CallFrame:
        return xla_ffi.CallFrame(168, extension, ctypes.pointer(self.api), CONTEXT, 3)

    def call(self, handler: Handler) -> int | None:
        return handled(handler, self.frame())

    def ask(self, handler: Handler) -> str | None:
        """Ask what the handler is; another extension comes first."""
        last = xla_ffi.MetadataExtension(
            xla_ffi.Extension(32, 1, None), ctypes.pointer(self.metadata)
        )
        first = xla_ffi.Extension(24, 9, ctypes.cast(ctypes.pointer(last), ctypes.c_void_p))
        assert handled(handler, self.frame(ctypes.pointer(first))) is None
        return handler.why_not


def handled(handler: Handler, frame: xla_ffi.CallFrame) -> int | None:
    """Return what *handler* returns for *frame*, called by its address as XLA does."""
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(handler.address)
    return function(ctypes.addressof(frame))  # type: ignore[no-any-return]


def fails(_: int) -> None:
    raise OSError("no event, say")


def test_the_act_is_given_the_stream() -> None:
    streams: list[int] = []
    assert Xla().call(Handler(streams.append)) is None
    assert streams == [STREAM]


def test_xlas_error_is_handed_back() -> None:
    xla, streams = Xla(), list[int]()
    xla.has_stream = False
    assert xla.call(Handler(streams.append)) == REFUSAL
    assert streams == []


def test_what_fails_becomes_an_error_of_xlas() -> None:
    xla = Xla()
    assert xla.call(Handler(fails)) == ERROR
    assert xla.messages == [(b"OSError: no event, say", 13)]


def test_it_says_that_it_is_not_for_graphs_and_knows_the_version() -> None:
    xla = Xla()
    assert xla.ask(Handler(fails)) is None
    assert xla.metadata.traits == 0
    assert (xla.metadata.version.major, xla.metadata.version.minor) == (0, 4)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda xla: setattr(xla.api, "size", 80), "table of functions has 80 bytes"),
        (lambda xla: setattr(xla.api.version, "major", 1), "has version 1.4, not 0"),
        (lambda xla: setattr(xla.metadata, "size", 32), "metadata has 32 bytes"),
        (lambda xla: setattr(xla, "frame", small_frame(xla)), "call frame has 32 bytes"),
    ],
)
def test_another_interface_is_refused(change: Callable[[Xla], None], why: str) -> None:
    xla = Xla()
    change(xla)
    assert why in str(xla.ask(Handler(fails)))
    assert xla.metadata.version.size == 0  # no answer


def small_frame(xla: Xla) -> Callable[..., xla_ffi.CallFrame]:
    def frame(extension: Any) -> xla_ffi.CallFrame:
        made = Xla.frame(xla, extension)
        made.size = 32
        return made

    return frame


def test_a_jax_without_it_or_that_refuses_is_told() -> None:
    with pytest.raises(UnknownInterfaceError, match=r"JAX 0\.4 has no jax\.ffi"):
        in_stream(SimpleNamespace(__version__="0.4"), fails)

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("too old")

    ffi = SimpleNamespace(pycapsule=lambda address: address, register_ffi_target=refuse)
    with pytest.raises(UnknownInterfaceError, match="too old"):
        in_stream(SimpleNamespace(ffi=ffi), fails)


# --- with JAX --------------------------------------------------------------------------------


@pytest.fixture
def jax() -> Any:
    pytest.importorskip("jax")
    found = jax_calls.import_jax()
    if found.default_backend() != "cpu":
        pytest.skip("JAX does not compute on this processor")
    return found


MEMBERS = {
    "XLA_FFI_Api_Version": (xla_ffi.Version, "struct_size extension_start major_version "
                            "minor_version"),
    "XLA_FFI_Api": (xla_ffi.Api, "struct_size extension_start api_version internal_api "
                    "XLA_FFI_Error_Create - XLA_FFI_Error_Destroy XLA_FFI_Handler_Register "
                    "XLA_FFI_Stream_Get"),
    "XLA_FFI_Metadata": (xla_ffi.Metadata, "struct_size api_version traits"),
    "XLA_FFI_Metadata_Extension": (xla_ffi.MetadataExtension, "extension_base metadata"),
    "XLA_FFI_CallFrame": (xla_ffi.CallFrame, "struct_size extension_start api ctx stage"),
    "XLA_FFI_Stream_Get_Args": (xla_ffi.StreamGet, "struct_size extension_start ctx stream"),
    "XLA_FFI_Error_Create_Args": (xla_ffi.ErrorCreate, "struct_size extension_start message errc"),
}  # fmt: skip


@pytest.mark.parametrize("name", MEMBERS)
def test_the_members_lie_where_the_header_has_them(jax: Any, name: str, tmp_path: Path) -> None:
    if why := why_no_compiler():
        pytest.skip(why)
    structure, members = MEMBERS[name]
    own_members = [field[0] for field in structure._fields_]
    pairs = list(zip(own_members, members.split(), strict=True))
    known = [(own, their) for own, their in pairs if their != "-"]  # renamed in version 0.4
    offsets = "".join(f'printf("%zu ", offsetof({name}, {their}));' for _, their in known)
    source = (
        '#include <stdio.h>\n#include "xla/ffi/api/c_api.h"\n'
        f'int main(void) {{ {offsets} printf("%d", {name}_STRUCT_SIZE); }}\n'
    )
    (tmp_path / "offsets.c").write_text(source)
    program = tmp_path / "offsets"
    command = [*find_compiler().command, "-I", jax.ffi.include_dir(), f"{program}.c", "-o", program]
    subprocess.run(command, check=True, capture_output=True)
    *found, size = map(int, subprocess.check_output([program]).split())
    assert found == [getattr(structure, own).offset for own, _ in known]
    assert end_of(structure) <= size


def test_xla_knows_the_error_of_a_stream_that_is_none(jax: Any) -> None:
    with pytest.raises(RuntimeError, match="GPU context is not available"):
        jax.block_until_ready(in_stream(jax, fails, "cpu")(jax.numpy.ones(3)))


def test_it_acts_in_xlas_order(jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_ffi, "stream_of", lambda frame: (STREAM, 0))
    seen: list[Any] = []
    first, last = (in_stream(jax, lambda stream, n=n: seen.append(n), "cpu") for n in "ab")

    def host(x: Any) -> Any:
        seen.append("work")
        return x

    work = jax.jit(lambda x, *after: jax.pure_callback(host, x, x), keep_unused=True)
    x = jax.numpy.asarray(np.ones(1000, "float32"))
    for _ in range(3):
        jax.block_until_ready(last(work(x, first(x))))
    assert seen == ["a", "work", "b"] * 3


def test_its_error_ends_the_program_and_no_later_one(
    jax: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_ffi, "stream_of", lambda frame: (STREAM, 0))
    with pytest.raises(RuntimeError, match="OSError: no event, say"):
        jax.block_until_ready(in_stream(jax, fails, "cpu")())
    seen: list[int] = []
    jax.block_until_ready(in_stream(jax, seen.append, "cpu")())
    assert seen == [STREAM]
