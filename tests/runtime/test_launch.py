"""Loading code and calling it: the convention, faults, threads, forks, and what a call costs."""

import ctypes
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from tcdsl.errors import CompileError
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.runtime import launch
from tcdsl.runtime.arguments import allocate, deliver
from tcdsl.runtime.c_compiler import compile_shared, find_compiler, why_no_compiler
from tcdsl.runtime.launch import FAULT_GATHER, Fault, Kernel, load, processors, thread_count
from tcdsl.runtime.warm_path import address, pointers, signature

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason="needs a C compiler")

SOURCE = """
#include <stdint.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#define SIGNATURE void *const *pointers, const int64_t *integers, int64_t *fault

int32_t add(SIGNATURE) {
  const float *a = pointers[0], *b = pointers[1];
  float *c = pointers[2];
  for (int64_t i = 0; i < integers[0]; ++i) c[i] = a[i] + b[i];
  return 0;
}
int32_t sum_of_many(SIGNATURE) {
  int64_t sum = 0;
  for (int i = 0; i < 40; ++i) sum += (i + 1) * *(int64_t *)pointers[i];
  for (int i = 0; i < 3; ++i) sum += integers[i];
  *(int64_t *)pointers[40] = sum;
  return 0;
}
int32_t gather(SIGNATURE) {
  const int64_t *index = pointers[0];
  for (int64_t i = 0; i < integers[0]; ++i) {
    if (index[i] >= 0 && index[i] < integers[1]) continue;
    fault[0] = 1; fault[1] = 7; fault[2] = index[i]; fault[3] = integers[1];
    return 1;
  }
  return 0;
}
int32_t team(SIGNATURE) {
  int32_t *count = pointers[0];
#ifdef _OPENMP
  int wanted = (int)integers[0], most = omp_get_max_threads();
#pragma omp parallel num_threads(wanted < most ? wanted : most)
  {
#pragma omp single
    *count = omp_get_num_threads();
  }
#else
  *count = 1;
#endif
  return 0;
}
"""


@pytest.fixture(scope="module")
def code() -> bytes:
    return compile_shared(SOURCE)


@pytest.fixture(scope="module")
def add(code: bytes) -> Kernel:
    return load(code, "add", 3, 1)


def run(kernel: Kernel, tensors: list[np.ndarray[Any, Any]], *integers: int) -> Fault | None:
    return kernel([address(x) for x in tensors], kernel.pack_integers(integers))


def test_a_call(add: Kernel) -> None:
    a, b, c = (np.full(9, value, np.float32) for value in (1, 2, -1))
    assert run(add, [a, b, c], 8) is None
    assert c.tolist() == [3] * 8 + [-1]


def test_many_pointers_and_integers(code: bytes) -> None:
    kernel = load(code, "sum_of_many", 41, 3)
    values = [np.array([v], np.int64) for v in range(40)]
    result = np.zeros(1, np.int64)
    assert run(kernel, [*values, result], -5, 2**62, 1) is None
    assert result[0] == sum((i + 1) * i for i in range(40)) + 2**62 - 4


def test_faults_are_reported(code: bytes) -> None:
    kernel = load(code, "gather", 1, 2)
    assert run(kernel, [np.array([0, 4], np.int64)], 2, 5) is None
    found = run(kernel, [np.array([0, 9, -1], np.int64)], 3, 5)
    assert found == Fault(code=FAULT_GATHER, site=7, index=9, extent=5)
    bound = kernel.bind([address(np.array([-3], np.int64))], kernel.pack_integers([0, 5]))
    assert bound() is None


def test_bound_calls_keep_their_memory(code: bytes, add: Kernel) -> None:
    arrays = [np.full(4, 2, np.float32) for _ in range(3)]
    result = arrays[2]
    bound = add.bind([address(x) for x in arrays], add.pack_integers([4]), tuple(arrays))
    arrays[0][:] = 5
    del arrays
    assert bound() is None and result.tolist() == [7] * 4
    index = np.array([8], np.int64)
    kernel = load(code, "gather", 1, 2)
    assert kernel.bind([address(index)], kernel.pack_integers([1, 5]), index)() == Fault(1, 7, 8, 5)


def test_wrong_numbers_of_arguments_are_our_bug(add: Kernel) -> None:
    with pytest.raises(Exception, match="expected 3"):
        add([0, 0], add.pack_integers([0]))
    with pytest.raises(AssertionError):
        add.pack_integers([1, 2])


def test_the_same_code_is_loaded_once(code: bytes) -> None:
    before = len(launch._libraries)
    first, second = load(code, "add", 3, 1), load(bytes(bytearray(code)), "gather", 1, 2)
    assert len(launch._libraries) == max(before, 1)
    assert first.name == "add" and second.name == "gather"


def test_different_code_under_one_entry_name() -> None:
    kernels = [
        load(
            compile_shared(
                "#include <stdint.h>\nint32_t f(void *const *p, const int64_t *n, int64_t *fault)"
                f"{{ *(int32_t *)p[0] = {value}; return 0; }}"
            ), "f", 1,
        )
        for value in (10, 20)
    ]  # fmt: skip
    result = np.zeros(1, np.int32)
    for kernel, value in zip(kernels * 2, (10, 20) * 2, strict=True):
        run(kernel, [result])
        assert result[0] == value


@pytest.mark.parametrize("bad", [b"", b"not a library", b"\x7fELF" + bytes(200)])
def test_what_is_no_library_is_a_compile_error(bad: bytes) -> None:
    with pytest.raises(CompileError) as caught:
        load(bad, "f", 1)
    assert caught.value.code == "TC073"


def test_a_missing_entry_is_a_compile_error(code: bytes) -> None:
    with pytest.raises(CompileError, match="'nothing'"):
        load(code, "nothing", 1)


def test_no_file_is_left(code: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TCDSL_DEBUG", "off")
    launch._open_through_file(code)
    with pytest.raises(OSError):
        launch._open_through_file(b"bad")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("TCDSL_DEBUG", "on")
    launch._open_through_file(code)
    assert [path.suffix for path in tmp_path.iterdir()] == [".so"]


def test_without_a_usable_temporary_folder(code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_folder(**_: Any) -> Any:
        raise FileNotFoundError("no temporary folder")

    monkeypatch.setattr(tempfile, "mkstemp", no_folder)
    assert isinstance(launch._open_library(code), ctypes.CDLL)
    with pytest.raises(CompileError, match="no temporary folder"):
        launch._open_library(b"bad")


def test_loading_from_many_threads(code: bytes) -> None:
    found: list[Kernel] = []
    threads = [
        threading.Thread(target=lambda: found.append(load(code, "add", 3, 1))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8


def test_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TCDSL_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert thread_count() == processors() >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert thread_count() == 3
    monkeypatch.setenv("TCDSL_THREADS", "5")
    assert thread_count() == 5 and thread_count(2) == 2
    monkeypatch.delenv("TCDSL_THREADS")
    monkeypatch.setenv("OMP_NUM_THREADS", "what")
    assert thread_count() == processors()


def test_a_forked_child_does_not_hang(code: bytes) -> None:
    if not find_compiler().has_openmp:
        pytest.skip("needs OpenMP")
    kernel = load(code, "team", 1, 1)
    count = np.zeros(1, np.int32)
    run(kernel, [count], 4)
    in_parent = int(count[0])
    child = os.fork()
    if child == 0:
        count[0] = 0
        run(kernel, [count], 4)
        os._exit(10 + int(count[0]))
    deadline = threading.Timer(20, os.kill, (child, 9))
    deadline.start()
    status = os.waitpid(child, 0)[1]
    deadline.cancel()
    assert os.waitstatus_to_exitcode(status) == 11  # it ran, on one thread
    run(kernel, [count], 4)
    assert count[0] == in_parent


def processor_us(call: Callable[[], object], calls: int = 1000) -> float:
    """Return the time of *call* on this thread's processor, which others may have meanwhile."""
    times = []
    for _ in range(10):
        start = time.thread_time()
        for _ in range(calls):
            call()
        times.append(time.thread_time() - start)
    return median(times) * 1e6 / calls


def test_what_a_call_costs(add: Kernel) -> None:
    a, b = np.ones(8, np.float32), np.ones(8, np.float32)
    plans = {signature((a, b)): (add, add.pack_integers([8]))}

    def warm(*args: Any) -> Any:
        kernel, integers = plans[signature(args)]
        out = allocate((8,), FLOAT32)
        kernel([*pointers(args), address(out)], integers)
        return deliver(out, "numpy")

    assert warm(a, b).tolist() == [2] * 8
    bound = add.bind([address(a), address(b), address(a.copy())], plans[signature((a, b))][1])
    # About 3 us and 0.5 us on an idle machine; the bounds leave room for a busy one.
    assert processor_us(lambda: warm(a, b)) < 20
    assert processor_us(bound) < 5
