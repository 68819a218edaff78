"""The warm path of a call on PyTorch's tensors: which ``out=`` it writes into by itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import tcdsl
from tcdsl.executable.cpu import CpuExecutable
from tcdsl.runtime.c_compiler import why_no_compiler

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason="needs a C compiler")


def test_results_into_tensors_have_a_warm_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are not dense, record a gradient, or share memory with what is read."""
    torch = pytest.importorskip("torch")
    source = "def f(float(N) x) -> (y, z) {\n y(i) = x(N - 1 - i)\n z(i) = 2 * x(i)\n }"
    f = tcdsl.define(source).f
    memory = torch.arange(40.0)
    x = memory[:8].clone()
    wanted = f(x)
    into_views: list[object] = []
    slowly = CpuExecutable._run_into

    def counted(self: CpuExecutable, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
        into_views.append(given)
        return slowly(self, inputs, given)

    monkeypatch.setattr(CpuExecutable, "_run_into", counted)
    for y, z, count in [
        (memory[16:24], memory[24:32], 0),
        (memory[:8], memory[8:16], 1),  # y is x
        (memory[4:12], memory[12:20], 1),  # y begins within x
        (memory[16:32:2], memory[32:], 1),  # y has gaps
    ]:
        into_views.clear()
        memory[:8] = x
        found = f(memory[:8], out=(y, z))
        assert found[0] is y and found[1] is z and len(into_views) == count
        assert torch.equal(y, wanted[0]) and torch.equal(z, wanted[1])
    for y, z in [
        (memory[16:24], memory[20:28]),  # they share memory
        (memory[16:23], memory[24:32]),
        (torch.zeros(8, requires_grad=True), memory[24:32]),
        (torch.zeros(8, dtype=torch.float64), memory[24:32]),
    ]:
        with pytest.raises(tcdsl.ShapeError):
            f(memory[:8], out=(y, z))
