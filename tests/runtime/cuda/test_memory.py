"""Device memory, scalars and staging, on the GPU that is none."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import TICKETS_BYTES
from tcdsl.errors import LaunchError
from tcdsl.runtime.cuda import libcuda, memory
from tcdsl.runtime.cuda.device import Context, primary_context
from tcdsl.runtime.cuda.memory import DevicePool, Scalars, Staging


@pytest.fixture
def context(fake: Any) -> Context:
    found = primary_context()
    fake.contexts.append(found.handle)
    return found


def test_a_block_is_reused_on_its_stream_only(context: Context, fake: Any) -> None:
    pool = DevicePool("cuda:0")
    first = pool.take(1000, 5, "it")
    assert first.address % 256 == 0 and first.size_bytes >= 1000
    pool.give_back(first, 5)
    other = pool.take(1000, 6, "it")
    assert other.address != first.address
    assert pool.take(990, 5, "it") == first
    assert pool.take(990, 5, "it") != first


def test_tickets_are_zero_and_nobody_writes_over_them(
    context: Context, at: Callable[..., Any]
) -> None:
    """Kernels count their blocks in them, from zero, and leave zero behind."""
    pool = DevicePool("cuda:0")
    first = pool.take(TICKETS_BYTES, 5, "it", has_tickets=True)
    assert not at(first.address, "u1", TICKETS_BYTES).any()
    pool.give_back(first, 5)
    assert pool.take(TICKETS_BYTES, 5, "it") != first
    assert pool.take(TICKETS_BYTES, 5, "it", has_tickets=True) == first


def test_sizes_are_few_and_little_larger() -> None:
    sizes = [memory._rounded(n) for n in range(1, 100_000, 7)]
    assert all(n <= size for n, size in zip(range(1, 100_000, 7), sizes, strict=True))
    assert all(size <= 1.13 * n + 512 for n, size in zip(range(1, 100_000, 7), sizes, strict=True))
    assert len(set(sizes)) < 80


def test_too_much_is_not_kept(context: Context, fake: Any) -> None:
    fake.capacity = 4 << 20
    pool = DevicePool("cuda:0")
    pool.give_back(pool.take(2 << 20, 0, "it"), 0)
    assert fake.used() == 0
    pool.give_back(pool.take(1 << 19, 0, "it"), 0)
    assert fake.used() > 0


def test_idle_blocks_go_before_memory_is_said_to_be_full(context: Context, fake: Any) -> None:
    fake.capacity = 4 << 20
    pool = DevicePool("cuda:0")
    pool.give_back(pool.take(1 << 20, 0, "it"), 0)
    block = pool.take(7 << 19, 0, "it")
    with pytest.raises(LaunchError, match=r"the rest needs 1048576 bytes on cuda:0, .* are free"):
        pool.take(1 << 20, 0, "the rest")
    libcuda.free(block.address)
    pool.take(1 << 20, 0, "the rest")


def test_a_held_block_comes_back_by_itself(context: Context, fake: Any) -> None:
    pool = DevicePool("cuda:0")
    hold, other = pool.holder(1000, 5, "it"), pool.holder(1000, 6, "it")
    first, second = hold(), hold()
    address = int(first)
    assert address % 256 == 0 and address != int(second) and first.gpudata == address
    fake.contexts.clear()  # wherever it is dropped: nothing is asked of the driver
    fake.capturing.add(5)
    used = fake.used()
    del first
    third = hold()
    assert int(third) == address and fake.used() == used
    third.free()
    third.free()
    fake.capturing.clear()
    fake.contexts.append(context.handle)
    assert int(other()) != address and int(hold()) == address


@pytest.mark.parametrize("is_captured", [False, True])
def test_too_much_that_was_held_is_freed_in_its_context(
    context: Context, fake: Any, is_captured: bool
) -> None:
    fake.capacity = 4 << 20
    hold = DevicePool("cuda:0").holder(2 << 20, 0, "it")
    memory = hold()
    fake.contexts.clear()
    fake.capturing |= {5} if is_captured else set()
    del memory
    assert fake.used() == 0 and fake.contexts == [] and not fake.relaxed


def test_too_much_that_was_held_in_a_forked_child(context: Context, fake: Any) -> None:
    hold = DevicePool("cuda:0").holder(1 << 29, 0, "it")
    memory = hold()
    fake.is_dead = True
    memory.__del__()  # raises nothing; the parent has the memory
    assert fake.used() > 0


def test_dropped_blocks_go_before_memory_is_said_to_be_full(context: Context, fake: Any) -> None:
    fake.capacity = 4 << 20
    pool = DevicePool("cuda:0")
    hold = pool.holder(1 << 20, 0, "an output")
    memory: list[Any] = [hold(), hold(), hold()]
    memory[0] = memory  # garbage that the collector finds
    del memory
    pool.take(7 << 19, 0, "it")
    with pytest.raises(LaunchError, match=r"an output needs 1048576 bytes on cuda:0"):
        hold()


def test_what_is_said_to_be_needed_is_what_was_asked_for(context: Context, fake: Any) -> None:
    fake.capacity = 1 << 20
    with pytest.raises(LaunchError, match=r"it needs 1048577 bytes"):
        DevicePool("cuda:0").take((1 << 20) + 1, 0, "it")


def test_scalars_are_written_once(
    context: Context, at: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_SLOTS", 3)
    scalars = Scalars(DevicePool("cuda:0"))
    values = [np.float32(n).tobytes() for n in range(5)]
    first = [scalars.address_of(value, 0) for value in values[:3]]
    assert len(set(first)) == 3
    assert [scalars.address_of(value, 0) for value in values[:3]] == first
    assert scalars.address_of(values[3], 0) == first[0]  # the oldest goes
    assert scalars.address_of(values[0], 0) == first[1]
    assert at(first[1], "f4", 1)[0] == 0 and at(first[0], "f4", 1)[0] == 3
    assert scalars.address_of(values[0], 9) not in first  # another stream has its own


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 128, 129, 1000])
def test_arrays_go_over_and_back_in_pieces(
    context: Context, at: Callable[..., Any], n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CHUNK_BYTES", 256)
    staging = Staging()
    values = np.arange(n, dtype="f4")
    address = libcuda.allocate(max(4 * n, 1))
    staging.to_device(address, values, 0)
    np.testing.assert_array_equal(at(address, "f4", n), values)
    back = np.full(n, -1, "f4")
    staging.to_host(back, address, 0)
    np.testing.assert_array_equal(back, values)


def test_a_pinned_buffer_is_filled_again_when_its_copy_has_ended(
    context: Context, at: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here copies begin as late as they may: when somebody waits for them."""
    begun: list[Any] = []
    copy = libcuda.copy_to_device

    def wait(event: int) -> None:
        while begun:
            copy(*begun.pop(0))

    monkeypatch.setattr(memory, "CHUNK_BYTES", 256)
    monkeypatch.setattr(libcuda, "copy_to_device", lambda *args: begun.append(args))
    monkeypatch.setattr(libcuda, "wait", wait)
    values = np.arange(1000, dtype="f4")
    address = libcuda.allocate(values.nbytes)
    Staging().to_device(address, values, 0)
    wait(0)
    np.testing.assert_array_equal(at(address, "f4", values.size), values)


def test_zero_dimensions_have_one_element(context: Context, at: Callable[..., Any]) -> None:
    address = libcuda.allocate(8)
    Staging().to_device(address, np.asarray(2.5), 0)
    assert at(address, "f8", 1)[0] == 2.5
    back = np.zeros(())
    Staging().to_host(back, address, 0)
    assert back == 2.5
