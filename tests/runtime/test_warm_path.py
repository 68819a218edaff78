"""The warm path: signatures that tell apart what compiles differently, and addresses."""

import sys
from typing import Any

import numpy as np
import pytest

from tcdsl.errors import TCError
from tcdsl.lang.dtypes import FLOAT32
from tcdsl.runtime import warm_path
from tcdsl.runtime.arguments import as_input
from tcdsl.runtime.arrays import (
    describe,
    spec,
)
from tcdsl.runtime.warm_path import address, is_direct, pointers, signature

torch = pytest.importorskip("torch")


class ThroughDLPack:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.array = array
        self.device_pair = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_pair


class OnCuda:
    """What CuPy, Numba or PyCUDA show of memory on a GPU."""

    def __init__(self, shape: tuple[int, ...], typestr: str, strides: Any = None) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (4096, False), "strides": strides,
            "version": 3,
        }  # fmt: skip


def base() -> np.ndarray[Any, Any]:
    return np.arange(24, dtype=np.float32).reshape(4, 6)


def error_of(code: str, call: Any) -> TCError:
    with pytest.raises(TCError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def test_signatures_tell_apart_what_compiles_differently() -> None:
    array = base()
    cases: list[Any] = [
        array, array.T, array[::2], array[:, ::2], array[::-1], array.astype(np.float64), array[0],
        1.0, 1, True, np.float32(1), torch.zeros(4, 6), torch.zeros(6, 4).T,
        torch.zeros(4, 6, dtype=torch.float64), torch.zeros(4, 6, device="meta"),
        ThroughDLPack(array), OnCuda((4, 6), "<f4"), spec((4, 7), "float32"),
    ]  # fmt: skip
    keys = [signature([x]) for x in cases]
    assert len(set(keys)) == len(keys)
    assert signature([array, 2.0]) == signature([array.copy(), 3.0])
    assert signature([torch.zeros(4, 6)]) == signature([torch.ones(4, 6)])


def test_signature_knows_lazy_negation() -> None:
    tensor = torch.complex(torch.ones(2), torch.ones(2)).conj().imag
    assert signature([tensor]) != signature([tensor.resolve_neg()])
    assert not is_direct(tensor)


def test_signature_refuses_what_describe_refuses() -> None:
    error_of("TC056", lambda: signature([base(), [1, 2]]))
    error_of("TC056", lambda: signature([torch.zeros(2, 2).to_sparse()]))


def test_signature_knows_what_is_not_aligned() -> None:
    raw = np.zeros(97, np.uint8)
    aligned, shifted = raw[:96].view(np.float32), raw[1:].view(np.float32)
    assert signature([aligned]) != signature([shifted])
    tensor = torch.frombuffer(bytearray(17), dtype=torch.float32, offset=1)
    assert tensor.data_ptr() % 4
    assert signature([tensor]) != signature([torch.zeros(4)])
    assert not is_direct(shifted) and not is_direct(tensor)


@pytest.mark.parametrize(
    "x",
    [
        base(), base().T, base()[::-1, ::2], np.zeros(97, np.uint8)[1:].view("f4").reshape(4, 6).T,
        np.zeros(5, "f4,i1")["f0"], torch.zeros(4, 6).T, ThroughDLPack(base().T),
        torch.complex(torch.ones(4, 6), torch.ones(4, 6)).conj().T.imag,
        torch.frombuffer(bytearray(97), dtype=torch.float32, offset=1).reshape(4, 6).T,
    ],
)  # fmt: skip
def test_plans_and_calls_agree_on_the_layout(x: Any) -> None:
    """What as_input gives at a call has the strides that describe gave to the plan."""
    found, given = describe(x), as_input(x, FLOAT32)
    assert found.strides == tuple(stride // 4 for stride in given.strides)
    assert found.shape == given.shape
    if is_direct(x):
        assert pointers([x]) == [address(given)]


def test_pointers_are_the_documented_ones() -> None:
    views = [base(), base()[1:, ::-1], base().T, base()[:0], np.zeros(()), np.zeros(3, np.int8)]
    for array in views:
        assert address(array) == array.__array_interface__["data"][0] == array.ctypes.data
    tensor = torch.zeros(5)[2:]
    assert pointers([views[0], tensor]) == [views[0].ctypes.data, tensor.data_ptr()]


def test_what_is_direct() -> None:
    assert is_direct(base()) and is_direct(base().T) and is_direct(torch.zeros(3))
    for x in (1.0, np.float32(1), ThroughDLPack(base()), torch.zeros(2, device="meta")):
        assert not is_direct(x)
    assert not is_direct(base().view(np.recarray))


def test_the_fallback_gives_the_same_address(monkeypatch: pytest.MonkeyPatch) -> None:
    array = base()[1:]
    assert warm_path._address_by_interface(array) == address(array)
    monkeypatch.setattr(sys.implementation, "name", "other")
    assert warm_path._choose_address() is warm_path._address_by_interface
