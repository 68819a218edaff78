"""The table says of every case what its formula does; CUB and cuDNN are called as they want it.

Neither is here: a CuPy of NumPy's and a cuDNN of ctypes' pointers, which see what a GPU's would.
"""

import ctypes
import math
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tcdsl.library import Case, case, cases, cub_peers, cudnn_peers
from tcdsl.library.single_reductions import SINGLE_REDUCTIONS
from tcdsl.testing.agreement import disagreement

SINGLE = [one for one in cases("reduction") if one.name in SINGLE_REDUCTIONS]
UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def full_sizes(chosen: Case) -> Mapping[str, int]:
    """Return the last sizes of the tests, in which no array is empty."""
    return chosen.small_sizes[-1]


def test_the_table_has_every_reduction_of_one_tensor_to_one_result() -> None:
    left_out = {one.name for one in cases("reduction")} - set(SINGLE_REDUCTIONS)
    assert set(SINGLE_REDUCTIONS) == {one.name for one in SINGLE}
    assert {one.name for one in SINGLE if len(one.params) != 1} == set()
    assert {name for name in left_out if len(case(name).params) == 1} == {
        "row_argmax", "row_argmin", "row_moments",
    }  # fmt: skip


@pytest.mark.parametrize("chosen", SINGLE, ids=lambda one: one.name)
def test_operators_and_axes_are_those_of_the_formula(chosen: Case) -> None:
    single, dtype = SINGLE_REDUCTIONS[chosen.name], chosen.dtypes[0]
    inputs = chosen.make_inputs(full_sizes(chosen), np.random.default_rng(0), dtype)
    (x,) = inputs.values()
    (expected,) = chosen.reference(inputs)
    ours = UFUNCS[single.operator].reduce(x.astype("f8"), single.axes)
    np.testing.assert_allclose(ours.astype(expected.dtype), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_no_sum_of_random_inputs_overflows(dtype: str) -> None:
    """What is drawn has a mean of 0: a sum of n of them is rarely beyond 3.5 times their root."""
    spread = {"float16": 1.0, "int32": 100.0 / 3**0.5}[dtype]
    largest = {"float16": 65504.0, "int32": 2.0**31}[dtype]
    for chosen in (*SINGLE, case("dot")):
        if "sum" not in chosen.name and chosen.name != "dot":
            continue
        if dtype not in chosen.dtypes or chosen.results or chosen.draws:
            continue
        single = SINGLE_REDUCTIONS.get(chosen.name)
        for sizes in chosen.sizes:
            shape = next(iter(chosen.input_shapes(sizes).values()))
            n = math.prod(shape[axis] for axis in (single.axes if single else (0,)))
            assert 3.5 * spread ** len(chosen.params) * n**0.5 < largest, (chosen.name, sizes)


# --- calls, on the CPU -------------------------------------------------------------------------


def call_is_right(peer: Any, chosen: Case, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    from tcdsl.library.torch_peers import tensors

    arrays = chosen.make_inputs(full_sizes(chosen), np.random.default_rng(0), dtype)
    (expected,) = chosen.reference(arrays)
    call = peer.call_on_tensors(chosen, tensors(arrays))
    for _ in range(2):  # the second one on what the first has left
        found = call()
        assert found.dtype == getattr(torch, expected.dtype.name)
        assert disagreement(found.double().numpy(), expected.astype("f8"), dtype) is None


def every_type(peer: Any) -> list[tuple[str, str]]:
    return [(one.name, t) for one in SINGLE for t in one.dtypes if peer.offers(one, t)]


class FakeCub(ModuleType):
    """CUB that NumPy computes; segments must be neighbours, and halves it has none."""

    CUPY_CUB_SUM, CUPY_CUB_PROD = np.add, np.multiply
    CUPY_CUB_MAX, CUPY_CUB_MIN = np.maximum, np.minimum

    def device_reduce(self, x: Any, op: Any, reduced: Any, kept: Any) -> Any:
        assert kept == () and reduced == tuple(range(x.ndim))
        assert x.dtype.itemsize != 2 and x.flags.c_contiguous
        return np.asarray(op.reduce(x, axis=None, dtype=x.dtype))

    def device_segmented_reduce(
        self, x: Any, op: Any, reduced: Any, kept: Any, contiguous_size: int
    ) -> Any:
        assert kept + reduced == tuple(range(x.ndim)) and kept and x.flags.c_contiguous
        assert contiguous_size == np.prod([x.shape[axis] for axis in reduced])
        assert x.dtype.itemsize != 2
        return op.reduce(x, axis=reduced, dtype=x.dtype)

    def get_build_version(self) -> int:
        return 300102


@pytest.fixture
def cub(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    cupy.asarray = lambda tensor: tensor.numpy()  # type: ignore[attr-defined]
    for name, module in (
        ("cupy", cupy), ("cupy.cuda", cuda), ("cupy.cuda.cub", FakeCub("cupy.cuda.cub")),
    ):  # fmt: skip
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(("name", "dtype"), every_type(cub_peers))
def test_cub_gets_rows(name: str, dtype: str, cub: None) -> None:
    call_is_right(cub_peers, case(name), dtype)


def test_cub_without_its_copy_reduces_what_was_copied(cub: None) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0).reshape(2, 3)
    row, column = (
        cub_peers.call_on_tensors(case(name), {"x": x}) for name in ("row_sum", "column_sum")
    )
    assert not row.is_copied and column.is_copied
    before = column().tolist()
    x += 1
    assert column.without_copy().tolist() == before != column().tolist()
    assert row().tolist() == row.without_copy().tolist() == [6.0, 15.0]


def test_cubs_version(cub: None) -> None:
    assert cub_peers.version_text() == "3.1.2"


def test_too_many_elements_for_cub_are_refused(cub: None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(cub_peers, "_MOST_ELEMENTS", 5)
    with pytest.raises(ValueError, match="at most 5"):
        cub_peers.call_on_tensors(case("all_sum"), {"x": torch.ones(6)})


def test_a_cupy_that_is_missing_or_broken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cub_peers, "find_spec", lambda _: None)
    assert "CuPy, which brings it, is not installed" in str(cub_peers.why_missing())
    monkeypatch.setattr(cub_peers, "find_spec", lambda _: object())
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "this CuPy is without it" in str(cub_peers.why_missing())


class FakeCudnn:
    """cuDNN that NumPy computes, of descriptors that are Python objects."""

    operators = (np.add, np.multiply, np.minimum, np.maximum)
    types = (np.float32, np.float64, np.float16)

    def __init__(self) -> None:
        self.descriptors: dict[int, Any] = {}
        self.n_made = 0
        self.failing = ""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cudnn"):
            raise AttributeError(name)
        if "Create" in name:
            return self._create
        return self._destroy if "Destroy" in name else lambda *_: 0

    def _create(self, handle: Any) -> int:
        self.n_made += 1
        handle._obj.value = self.n_made
        self.descriptors[self.n_made] = None
        return 0

    def _destroy(self, handle: Any) -> int:
        del self.descriptors[handle.value]
        return 0

    def cudnnSetTensor4dDescriptor(self, handle: Any, order: int, dtype: int, *shape: int) -> int:
        assert order == 0 and len(shape) == 4
        self.descriptors[handle.value] = (self.types[dtype], shape)
        return 0

    def cudnnSetReduceTensorDescriptor(self, handle: Any, operator: int, *words: int) -> int:
        self.descriptors[handle.value] = (self.operators[operator], *words)
        return 0

    def cudnnGetReductionWorkspaceSize(self, *words: Any) -> int:
        words[-1]._obj.value = 100
        return 0

    def cudnnReduceTensor(
        self, handle: Any, reduction: Any, indices: Any, n_indices: Any, workspace: Any, size: Any,
        one: Any, source: Any, x: Any, zero: Any, target: Any, out: Any,
    ) -> int:  # fmt: skip
        if self.failing:
            return 9
        operator, computed, nan, *_ = self.descriptors[reduction.value]
        (read, shape), (written, reduced) = (
            self.descriptors[one.value] for one in (source, target)
        )  # fmt: skip
        is_double = read is np.float64
        assert size.value == 100 and workspace.value and nan == 1 and computed == int(is_double)
        assert isinstance(one._obj, ctypes.c_double if is_double else ctypes.c_float)
        assert (one._obj.value, zero._obj.value) == (1.0, 0.0)
        axes = tuple(axis for axis in range(4) if reduced[axis] == 1 != shape[axis])
        result = operator.reduce(at(x, read, shape).astype("f8"), axes, keepdims=True)
        at(out, written, reduced)[:] = result.astype(written)
        return 0

    def cudnnGetErrorString(self, status: int) -> bytes:
        return self.failing.encode()

    def cudnnGetVersion(self) -> int:
        return 91002


def at(address: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Return the array of *shape* at *address*."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address.value), dtype).reshape(shape)


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCudnn]:
    library = FakeCudnn()
    monkeypatch.setattr(cudnn_peers, "_library", lambda: library)
    cudnn_peers._handle.cache_clear()
    yield library
    cudnn_peers._handle.cache_clear()


@pytest.mark.parametrize(("name", "dtype"), every_type(cudnn_peers))
def test_cudnn_gets_tensors_of_rank_4(name: str, dtype: str, cudnn: FakeCudnn) -> None:
    call_is_right(cudnn_peers, case(name), dtype)


def test_descriptors_are_destroyed_with_their_call(cudnn: FakeCudnn) -> None:
    torch = pytest.importorskip("torch")
    call = cudnn_peers.call_on_tensors(case("all_sum"), {"x": torch.ones(6)})
    assert len(cudnn.descriptors) == 3 + 1  # and the handle
    del call
    assert len(cudnn.descriptors) == 1


def test_what_cudnn_says_of_a_failure_is_the_message(cudnn: FakeCudnn) -> None:
    torch = pytest.importorskip("torch")
    cudnn.failing = "CUDNN_STATUS_NOT_SUPPORTED"
    call = cudnn_peers.call_on_tensors(case("all_sum"), {"x": torch.ones(6)})
    with pytest.raises(cudnn_peers.CudnnError, match="ReduceTensor: CUDNN_STATUS_NOT_SUPPORTED"):
        call()


def test_cudnn_reduces_no_integers(cudnn: FakeCudnn) -> None:
    assert not cudnn_peers.offers(case("all_sum"), "int32")
    assert not cudnn_peers.offers(case("all_sum"), "bfloat16")
    assert not cudnn_peers.offers(case("softmax"), "float32")
    assert cudnn_peers.version_text() == "9.10.2"


def test_a_missing_cudnn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(cudnn_peers.ctypes, "CDLL", fail)
    cudnn_peers._library.cache_clear()
    assert "libcudnn.so.9 is not there" in str(cudnn_peers.why_missing())
