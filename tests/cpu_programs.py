"""Programs as C, many in one translation unit: ``batch``, ``check_all``.

A test that compiles C costs 0.2 s and more; so hundreds of kernels cost a second or two.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.c.printer import CSource
from tcdsl.codegen.device.c import PARTS, header_text, parts_for
from tcdsl.costmodel.machine import this_cpu
from tcdsl.driver import Compiled, compile_to_c
from tcdsl.errors import CompileError, TCError, TCWarning
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.request import Request
from tcdsl.options import Options
from tcdsl.runtime.c_compiler import c_flags, compile_shared, find_compiler
from tcdsl.runtime.launch import Fault, Kernel, load
from tcdsl.testing.comparison import check
from tests.programs import arrays_for, comprehension_of, specialisation_of

_MARGIN = 256  # elements on both sides of every argument that the code must leave alone
_ENTRY = "tcdsl_entry"


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Compiled]:
    """``compiled(source, *shapes)``: the verified plan, its C and its stages."""

    def compiled_(
        source: str,
        *shapes: tuple[int, ...],
        threads: int = 4,
        options: Options | None = None,
    ) -> Compiled:
        c = comprehension_of(source)
        special = specialisation_of(c, shapes)
        return compile_to_c(Request(c, special, {}, options or Options()), this_cpu(threads))

    return compiled_


@dataclass(frozen=True)
class Unit:
    """One kernel of a batch: a comprehension at its sizes, and the C for it."""

    comprehension: Comprehension
    special: Specialisation
    c: CSource


@dataclass(frozen=True)
class Loaded:
    """A unit that can be called, and so be given to ``tcdsl.testing.check``."""

    unit: Unit
    kernel: Kernel

    @property
    def comprehension(self) -> Comprehension:
        return self.unit.comprehension

    def specialise(self, *inputs: Any) -> Specialisation:
        return specialisation_of(self.comprehension, [np.shape(array) for array in inputs])

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Fault | None:
        """Compute *outputs* in memory of their own, between margins that must stay untouched."""
        c, source = self.comprehension, self.unit.c
        arrays = dict(zip(c.inputs, inputs, strict=True))
        for name, array in zip(c.outputs, outputs, strict=True):
            if name in c.inputs:
                array[...] = arrays[name]
            arrays[name] = array
        rooms = {name: _Room(array) for name, array in arrays.items()}
        # Scratch memory holds what another call left there; NaNs, where read as floats.
        workspace = _Room(np.full(source.workspace_bytes, 0xFF, np.uint8))
        addresses = [(rooms[name] if name else workspace).address for name in source.pointers]
        fault = self.kernel(addresses, self.kernel.pack_integers(()))
        for name, room in (*rooms.items(), ("the workspace", workspace)):
            assert room.is_intact(), f"{c.name} wrote outside of {name}"
        for name, array in zip(c.outputs, outputs, strict=True):
            array[...] = rooms[name].array
        return fault

    def __call__(
        self,
        *inputs: Any,
        out: Any = None,
        target: str | None = None,
        options: Options | None = None,
    ) -> Any:
        outputs = list(out) if isinstance(out, tuple) else [out]
        fault = self.run([np.asarray(array) for array in inputs], outputs)
        assert fault is None, f"{self.comprehension.name}: {fault}"


class _Room:
    """A dense copy of an array, aligned as real ones are, between margins of known bytes."""

    def __init__(self, array: Array) -> None:
        margin = _MARGIN * max(1, array.itemsize)
        size = array.nbytes
        raw = np.full(size + 2 * margin + 64, 0xA5, np.uint8)
        start = margin + -(raw.ctypes.data + margin) % 64
        self._raw, self._start, self._size = raw, start, size
        self.address = raw.ctypes.data + start
        self.array = raw[start : start + size].view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def is_intact(self) -> bool:
        before, after = self._raw[: self._start], self._raw[self._start + self._size :]
        return bool((before == 0xA5).all() and (after == 0xA5).all())


@pytest.fixture(scope="session")
def unit() -> Callable[..., Unit]:
    """``unit(source, *shapes)``: one kernel, to be put into a batch."""

    def unit_(
        source: str,
        *shapes: tuple[int, ...],
        threads: int = 4,
        options: Options | None = None,
    ) -> Unit:
        c = comprehension_of(source)
        special = specialisation_of(c, shapes)
        request = Request(c, special, {}, options or Options())
        return Unit(c, special, compile_to_c(request, this_cpu(threads)).source)

    return unit_


@pytest.fixture(scope="session")
def batch() -> Callable[[Sequence[Unit]], list[Loaded]]:
    """A function that compiles many units as one file, with little optimisation."""
    return compile_batch


def compile_batch(units: Sequence[Unit]) -> list[Loaded]:
    """Return the units as callables; ``-O1`` still vectorises the loops marked ``omp simd``."""
    if not units:
        return []
    compiler = find_compiler()
    bodies = [
        re.sub(rf"\b({_ENTRY}|tcdsl_kernels|tcdsl_thread\d+)\b", rf"\g<1>_{number}", unit.c.body)
        for number, unit in enumerate(units)
    ]
    used = frozenset[str]().union(*(unit.c.functions for unit in units))
    text = "\n".join([header_text(parts_for(used)), _prelude(units[0].c), *bodies])
    flags = (*c_flags(compiler), "-O1", *_poison_flags())
    code = compile_shared(text, flags, compiler=compiler)
    return [
        Loaded(unit, load(code, f"{_ENTRY}_{number}", len(unit.c.pointers)))
        for number, unit in enumerate(units)
    ]


@cache
def _poison_flags() -> tuple[str, ...]:
    """Return the flags that fill local arrays with a pattern, if the compiler has them."""
    flags = ("-ftrivial-auto-var-init=pattern",)
    try:
        compile_shared("int x;", ("-shared", "-fPIC", *flags))
    except CompileError:
        return ()
    return flags


def _prelude(c: CSource) -> str:
    """Return what stands between the device library and the function in *c*."""
    above = c.text.removesuffix(c.body)
    headers = [header_text(parts) for parts in _all_parts()]
    return above[max(len(header) for header in headers if above.startswith(header)) :]


def _all_parts() -> list[frozenset[str]]:
    optional = [part for part in PARTS if part != "core"]
    return [
        frozenset({"core", *(part for bit, part in enumerate(optional) if number >> bit & 1)})
        for number in range(2 ** len(optional))
    ]


@pytest.fixture(scope="session")
def check_all() -> Callable[..., None]:
    """``check_all([(source, inputs), ...])``: every program, in one batch, against the oracle.

    Inputs are arrays, or shapes, for which random values of the declared types are drawn.
    """

    def check_all_(
        cases: Sequence[tuple[str, Sequence[Any]]],
        *,
        threads: int = 4,
        options: Options | None = None,
        out: Mapping[str, Any] | None = None,
    ) -> None:
        units: dict[Any, Unit] = {}  # by what is compiled: inputs of some cases differ in values
        arguments, failures = [], []
        for number, (source, given) in enumerate(cases):
            c = comprehension_of(source)
            inputs = arrays_for(c, given, number)
            shapes = [array.shape for array in inputs]
            key = source, tuple(shapes)
            arguments.append((key, inputs))
            if key in units:
                continue
            special = specialisation_of(c, shapes)
            try:
                done = compile_to_c(
                    Request(c, special, {}, options or Options()), this_cpu(threads)
                )
            except (TCError, TCWarning) as error:
                failures.append(f"{shapes}: {error}\n{source}")
                arguments.pop()
                continue
            units[key] = Unit(c, special, done.source)
        loaded = dict(zip(units, compile_batch([*units.values()]), strict=True))
        for key, inputs in arguments:
            try:
                check(loaded[key], *inputs, out=out, options=options)
            except AssertionError as error:
                failures.append(f"{list(key[1])}: {error}\n{key[0]}")
        assert not failures, "\n".join(failures)

    return check_all_
