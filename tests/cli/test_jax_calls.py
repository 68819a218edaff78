"""JAX as a peer: on this processor, and as on a GPU, with tensors that lie here."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcdsl.cli import jax_calls, peers
from tcdsl.cli.jax_calls import QueuedCall
from tcdsl.library import case, cases

Tcdsl = Callable[..., tuple[int, str, str]]

LEAD_US, CALL_US, HOST_US = 300.0, 20.0, 50.0


class Stream:
    """A queue in which leads and calls take a known time, and the host takes its own."""

    def __init__(self) -> None:
        self.lead_us = LEAD_US
        self.calls = 0

    def elapsed_us(self, leads: int, launch: Callable[[], Any]) -> tuple[float, float]:
        self.calls = 0
        launch()
        launched = HOST_US * self.calls
        return launched, max(leads * LEAD_US, launched) + self.calls * CALL_US + 9.0

    def function(self, arrays: Any) -> None:
        self.calls += 1


def queued_call(stream: Stream, monkeypatch: pytest.MonkeyPatch, cold_bytes: int) -> QueuedCall:
    """Return a call of the *stream* on inputs of 160 bytes."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(jax_calls, "queue", lambda: stream)
    monkeypatch.setattr(jax_calls, "jitted", lambda case, inputs: stream.function)
    monkeypatch.setattr(jax_calls, "from_torch", lambda x: x)
    jax = SimpleNamespace(block_until_ready=lambda x: x)
    monkeypatch.setattr(jax_calls, "import_jax", lambda: jax)
    return QueuedCall(case("dot"), {"a": torch.ones(20), "b": torch.ones(20)}, cold_bytes)


def test_the_time_of_a_call_is_without_the_leads_and_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = queued_call(Stream(), monkeypatch, cold_bytes=0)
    assert call.time_us() == pytest.approx(CALL_US)
    assert call.wall_us() == pytest.approx(HOST_US + CALL_US, rel=0.1)
    assert call._calls > 2 and len(call._inputs) == 1


def test_small_inputs_are_another_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    call = queued_call(Stream(), monkeypatch, cold_bytes=161)
    call.time_us()
    addresses = {arrays["a"].data_ptr() for arrays in call._inputs}
    assert len(addresses) == call._calls


def test_it_does_not_fill_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.CALL_US", 0.01)
    monkeypatch.setattr(f"{__name__}.HOST_US", 1e-3)
    call = queued_call(Stream(), monkeypatch, cold_bytes=0)
    call.time_us()
    assert call._calls + call._leads < 32
    monkeypatch.setattr(f"{__name__}.HOST_US", 1e6)
    call = queued_call(Stream(), monkeypatch, cold_bytes=0)
    call.time_us()
    assert (call._calls, call._leads) == (2, jax_calls._MOST_LEADS)


def test_where_jax_is_missing_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_calls, "find_spec", lambda _: None)
    assert "not installed" in str(peers.why_missing("jax"))
    assert "not installed" in str(jax_calls.why_no_gpu())


def test_contractions_are_not_offered() -> None:
    assert all(peers.offers("jax", one) == (one.family != "contraction") for one in cases())
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
@pytest.mark.parametrize("cold_bytes", [0, 1 << 20])
def test_a_queued_call_takes_and_gives_tensors(
    jax: Any, name: str, cold_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_peers = pytest.importorskip("tcdsl.library.torch_peers")
    small = jax_calls.Queue(lead_bytes=1 << 20)
    monkeypatch.setattr(jax_calls, "queue", lambda: small)
    chosen = case(name)
    arrays = chosen.make_inputs(chosen.small_sizes[-1], np.random.default_rng(3), chosen.dtypes[0])
    tensors = torch_peers.tensors(arrays)
    call = QueuedCall(chosen, tensors, cold_bytes)
    found, expected = call(), chosen.torch(tensors)
    assert [(x.dtype, x.shape) for x in found] == [(x.dtype, x.shape) for x in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.double(), other.double(), atol=1e-5)
    assert call.time_us() >= 0 and call.wall_us() > 0
    assert len(call._inputs) == (call._calls if cold_bytes else 1)


def test_a_lead_takes_time_in_the_queue(jax: Any) -> None:
    start = time.perf_counter()
    queue = jax_calls.Queue(lead_bytes=1 << 22)
    most_us = (time.perf_counter() - start) * 1e6
    assert 1.0 < queue.lead_us < most_us
