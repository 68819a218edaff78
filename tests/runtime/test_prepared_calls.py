"""Calls that are objects of C: what is left to another callable, faults, workspaces, lifetimes."""

import ctypes
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.runtime import prepared_calls

if prepared_calls._call_type() is None:
    pytest.skip("Python's headers are not installed", allow_module_level=True)


class Memory:
    """A tensor, as far as a call knows: something with an address."""

    def __init__(self, value: int = 0, offset: int = 0) -> None:
        self.words = (ctypes.c_int64 * 16)(value)
        self.offset = offset

    @property
    def value(self) -> int:
        return self.words[0]

    def address(self) -> int:
        return ctypes.addressof(self.words) + self.offset


ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_int64),
)  # fmt: skip


class Refused(Exception):
    pass


def refused(*record: int) -> None:
    raise Refused(record)


def prepared(
    body: Callable[[Any, Any, Any], int], order: tuple[int, ...] = (0, 1, 2), **changes: Any
) -> tuple[Any, Any]:
    """Return a call of *body* on two inputs and one result, and what must stay alive for it."""
    entry = ENTRY(body)
    call = prepared_calls.prepared_call(lambda *args: ("otherwise", args))
    call.prepare(
        (
            ctypes.cast(entry, ctypes.c_void_p).value, (7).to_bytes(8, "little"),
            changes.get("raise_fault", refused), changes.get("after"),
        ),
        (2, (Memory,), Memory.address, changes.get("misaligned", 7)),
        ((Memory,), order, changes.get("workspace", 0), changes.get("is_bare", True)),
    )  # fmt: skip
    return call, entry


def at(pointer: int) -> Any:
    return ctypes.c_int64.from_address(pointer)


def subtract(pointers: Any, integers: Any, fault: Any) -> int:
    at(pointers[2]).value = at(pointers[0]).value - at(pointers[1]).value + integers[0]
    return 0


def test_a_call_runs_the_code_on_new_results() -> None:
    assert prepared_calls.prepared_call(lambda x: [x])(3) == [3]
    call, _alive = prepared(subtract)
    assert call.is_prepared
    first, second = call(Memory(9), Memory(4)), call(Memory(1), Memory(2))
    assert (first.value, second.value) == (12, 6)
    swapped, _alive_too = prepared(subtract, order=(1, 0, 2), is_bare=False)
    (found,) = swapped(Memory(9), Memory(4))
    assert found.value == 2


def test_other_arguments_are_left_to_the_other_callable() -> None:
    call, _alive = prepared(subtract)

    class Derived(Memory):
        pass

    x = Memory(1)
    for args in ((x,), (x, x, x), (x, Derived()), (x, 5)):
        assert call(*args) == ("otherwise", args)
    with pytest.raises(TypeError, match="unexpected keyword"):
        call(x, other=x)
    misaligned = Memory(offset=4)
    for args in ((misaligned, x), (x, misaligned)):
        assert call(*args) == ("otherwise", args)


def test_a_fault_is_raised_and_nothing_is_kept() -> None:
    def faulty(pointers: Any, integers: Any, fault: Any) -> int:
        for word in range(5):
            fault[word] = 10 + word
        return 1

    call, _alive = prepared(faulty)
    with pytest.raises(Refused) as error:
        call(Memory(), Memory())
    assert error.value.args == ((10, 11, 12, 13, 14),)
    silent, _alive_too = prepared(faulty, raise_fault=lambda *record: None)
    with pytest.raises(SystemError, match="not raised"):
        silent(Memory(), Memory())


def test_what_is_asked_after_a_call_may_raise() -> None:
    def after() -> None:
        raise Refused("after")

    call, _alive = prepared(subtract, after=after)
    with pytest.raises(Refused, match="after"):
        call(Memory(), Memory())


def test_calls_at_the_same_time_have_workspaces_of_their_own() -> None:
    seen: list[int] = []
    both = threading.Barrier(2, timeout=20)

    def body(pointers: Any, integers: Any, fault: Any) -> int:
        seen.append(pointers[3])
        if len(seen) in (2, 3):
            both.wait()
        return 0

    call, _alive = prepared(body, order=(0, 1, 2, 3), workspace=4096)
    call(Memory(), Memory())
    threads = [threading.Thread(target=call, args=(Memory(), Memory())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen[1:])) == 2 and not any(pointer % 64 for pointer in seen)
    assert seen[0] in seen[1:]  # the one that was kept


def test_a_call_is_freed_with_what_it_refers_to() -> None:
    class Other:
        def __call__(self) -> None: ...

    other: Any = Other()
    other.call = prepared_calls.prepared_call(other)
    reference = weakref.ref(other)
    del other
    gc.collect()
    assert reference() is None


def test_arguments_that_make_no_call_are_refused() -> None:
    with pytest.raises(ValueError, match="no such tensor"):
        prepared(subtract, order=(0, 1, 4))
    call = prepared_calls.prepared_call(print)
    with pytest.raises(ValueError, match="not one result"):
        call.prepare((1, b"", None, None), (0, (), None, 0), ((), (), 0, True))
    assert not call.is_prepared


def test_of_very_many_tensors_a_call_stays_as_it_is() -> None:
    call = prepared_calls.prepared_call(lambda *args: len(args))
    makers = (Memory,) * 65
    call.prepare((1, b"", None, None), (0, (), Memory.address, 0), (makers, (), 0, False))
    assert not call.is_prepared and call(1, 2) == 2
