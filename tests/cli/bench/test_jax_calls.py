"""JAX as a peer: on this processor, and as on a GPU, with tensors that lie here."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcdsl.cli.bench import jax_calls, peers
from tcdsl.cli.bench.jax_calls import QueuedCall
from tcdsl.cli.bench.xla_ffi import UnknownInterfaceError
from tcdsl.cli.bench.xla_queue import Queue
from tcdsl.library import case, cases

Tcdsl = Callable[..., tuple[int, str, str]]


class Line:
    """A queue that notes what it is asked for; a call takes 20 us and its launching 50."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.tick = "tick"

    def leads_for(self, call: Any, warm_calls: int) -> int:
        assert call(self.tick) == (self.tick,)
        self.asked.append(("leads", 0, warm_calls))
        return 3

    def time_us(self, call: Any, leads: int, warm_calls: int) -> float:
        self.asked.append(("time", leads, warm_calls))
        return 20.0

    def wall_us(self, call: Any, calls: int) -> float:
        self.asked.append(("wall", 0, calls))
        return 70.0


def queued_call(line: Line, monkeypatch: pytest.MonkeyPatch, flush: bool) -> QueuedCall:
    monkeypatch.setattr(jax_calls, "queue", lambda: line)
    monkeypatch.setattr(jax_calls, "jitted", lambda case, inputs: lambda arrays, after: after)
    return QueuedCall(case("dot"), {}, flush)


@pytest.mark.parametrize(("flush", "warm_calls"), [(True, 0), (False, 7)])
def test_the_time_is_of_one_call_or_of_one_in_a_row(
    flush: bool, warm_calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line()
    call = queued_call(line, monkeypatch, flush)
    assert (call.time_us(), call.time_us(), call.wall_us()) == (20.0, 20.0, 70.0)
    planned = [*[("wall", 0, 2)] * 3, ("leads", 0, warm_calls)]
    assert line.asked == [*planned, *[("time", 3, warm_calls)] * 2, ("wall", 0, 7)]


@pytest.mark.parametrize(("wall_us", "calls"), [(0.1, jax_calls.MOST_CALLS), (1e6, 2)])
def test_the_calls_in_a_row_have_bounds(
    wall_us: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line()
    monkeypatch.setattr(line, "wall_us", lambda call, calls: wall_us)
    queued_call(line, monkeypatch, flush=False).time_us()
    assert line.asked[-1] == ("time", 3, calls)


def test_a_stream_that_cannot_be_recorded_in_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def queue() -> Any:
        raise UnknownInterfaceError("version 9.1")

    jax = SimpleNamespace(default_backend=lambda: "gpu")
    monkeypatch.setattr(jax_calls, "find_spec", lambda _: True)
    monkeypatch.setattr(jax_calls, "import_jax", lambda: jax)
    monkeypatch.setattr(jax_calls, "queue", queue)
    assert jax_calls.why_no_gpu() == "version 9.1"
    monkeypatch.setattr(jax_calls, "queue", lambda: None)
    assert jax_calls.why_no_gpu() is None


def test_where_jax_is_missing_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_calls, "find_spec", lambda _: None)
    assert "not installed" in str(peers.why_missing("jax"))
    assert "not installed" in str(jax_calls.why_no_gpu())


def test_contractions_and_sparse_programs_are_not_offered() -> None:
    assert all(
        peers.offers("jax", one) == (one.family in ("reduction", "graph", "network"))
        for one in cases()
    )
    assert peers.offers("torch", case("tmm"))


# --- with JAX --------------------------------------------------------------------------------


@pytest.fixture
def jax() -> Any:
    pytest.importorskip("jax")
    return jax_calls.import_jax()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_jax_is_a_peer(jax: Any, dtype: str) -> None:
    adam = case("adam")
    inputs = adam.make_inputs(adam.small_sizes[-1], np.random.default_rng(0), dtype)
    expected = peers.peer_call("numpy", adam, inputs)()
    assert peers.disagreement(peers.peer_call("jax", adam, inputs)(), expected, dtype) is None


def test_it_stands_in_the_table(jax: Any, tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.Host, "sizes", lambda place, case, dtype: case.small_sizes[-1:])
    code, printed, _ = tcdsl("bench", "softmax", "tmm", "--peers", "jax", "--seconds", "0.001")
    assert code == 0, printed
    assert "| jax" in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("| tmm"))
    assert line.split("|")[4].strip() == "-"


def test_without_a_gpu_it_is_no_peer_there(jax: Any) -> None:
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    assert jax_calls.why_no_gpu() == "JAX sees no GPU, only cpu"


@pytest.mark.parametrize("name", ["row_or", "row_argmax", "masked_softmax", "adam", "layernorm"])
@pytest.mark.parametrize("flush", [True, False])
def test_a_queued_call_takes_and_gives_tensors(host_queue: Queue, name: str, flush: bool) -> None:
    torch_peers = pytest.importorskip("tcdsl.library.torch_peers")
    chosen = case(name)
    arrays = chosen.make_inputs(chosen.small_sizes[-1], np.random.default_rng(3), chosen.dtypes[0])
    tensors = torch_peers.tensors(arrays)
    call = QueuedCall(chosen, tensors, flush)
    found, expected = call(), chosen.torch(tensors)
    assert [(x.dtype, x.shape) for x in found] == [(x.dtype, x.shape) for x in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.double(), other.double(), atol=1e-5)
    assert call.time_us() > 0 and call.wall_us() > 0
