"""The warm path: signatures that tell apart what compiles differently, and addresses."""

import sys
from typing import Any

import numpy as np
import pytest

from tcdsl.errors import TCError
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.runtime import warm_path
from tcdsl.runtime.arguments import as_input
from tcdsl.runtime.arrays import (
    describe,
    spec,
)
from tcdsl.runtime.warm_path import (
    address,
    is_direct,
    output_signature,
    pointers,
    signature,
)

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


def test_parameters_are_tensors_and_other_subclasses_are_described() -> None:
    class Other(torch.Tensor):
        pass

    tensor = torch.ones(4, 6)
    assert signature([torch.nn.Parameter(tensor)]) == signature([tensor])
    assert is_direct(torch.nn.Parameter(tensor))
    other = tensor.as_subclass(Other)
    assert signature([other]) == (describe(other),) and not is_direct(other)


class CudaTensor:
    """What the signature of a torch tensor on a GPU is made of."""

    def __init__(self, **changes: Any) -> None:
        self.is_cuda, self.dtype, self.shape = True, torch.float32, torch.Size([4, 6])
        self.known = {"strides": (6, 1), "device": 0, "is_neg": False, "address": 4096} | changes
        self.dtype = changes.get("dtype", self.dtype)
        self.shape = changes.get("shape", self.shape)

    def stride(self) -> Any:
        return self.known["strides"]

    def is_contiguous(self) -> bool:
        return describe(torch.empty_strided(self.shape, self.stride())).is_contiguous

    def get_device(self) -> Any:
        return self.known["device"]

    def is_neg(self) -> Any:
        return self.known["is_neg"]

    def data_ptr(self) -> Any:
        return self.known["address"]


def test_signatures_of_torch_on_a_gpu() -> None:
    sign = warm_path._torch_signer()
    plain = sign(CudaTensor())
    assert plain == sign(CudaTensor(address=8192)) and plain != sign(torch.zeros(4, 6))
    others = [
        {"strides": (12, 1)}, {"strides": (1, 4)}, {"strides": (6, 2)}, {"device": 1},
        {"is_neg": True}, {"address": 4100}, {"address": 4104}, {"dtype": torch.int32},
        {"shape": torch.Size([4, 5])}, {"shape": torch.Size([24]), "strides": (1,)},
    ]  # fmt: skip
    keys = [plain, *(sign(CudaTensor(**change)) for change in others)]
    assert len(set(keys)) == len(keys)
    # Strides of extents of 1 are never followed.
    column = {"shape": torch.Size([4, 1])}
    assert sign(CudaTensor(strides=(1, 1), **column)) == sign(CudaTensor(strides=(1, 9), **column))


def test_signatures_of_outputs_know_gradients() -> None:
    tensor = torch.ones(4, 6)
    key = output_signature(tensor)
    assert key is not None and key == output_signature(torch.zeros(4, 6))
    assert key != output_signature(torch.ones(4, 6, requires_grad=True))
    assert key != output_signature(torch.nn.Parameter(tensor))
    assert output_signature(OnCuda((4, 6), "<f4")) is None  # to be looked at each time
    assert output_signature(None) is None


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
