"""What ``tcdsl bench`` times: a case as a call in tcdsl, NumPy, PyTorch, torch.compile and JAX.

Every peer gets the same arrays, already in its own form, and computes as its users would write it;
making and converting arrays is not in the times.  :class:`Host` runs them on this processor;
``device_peers.py`` has the same for a GPU.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

import tcdsl
from tcdsl.cli.bench import jax_calls
from tcdsl.errors import TCError
from tcdsl.library import Case, source_for
from tcdsl.library.peer_calls import Arrays, Call, numpy_call, torch_call
from tcdsl.options import Options
from tcdsl.records import dataclass
from tcdsl.runtime.timing import Comparison, compare
from tcdsl.testing.agreement import disagreement


def why_missing(peer: str) -> str | None:
    """Return why *peer* cannot be timed here, or None if it can."""
    if peer.startswith("torch") and find_spec("torch") is None:
        return "PyTorch is not installed (pip install 'tcdsl[bench]')"
    return jax_calls.why_missing() if peer == "jax" else None


def offers(peer: str, case: Case) -> bool:
    """Return whether *peer* has *case* in all of its types."""
    return peer != "jax" or jax_calls.has_formula(case)


def tcdsl_call(
    case: Case, inputs: Arrays, dtype: str, *, bound: bool, target: str, options: Options | None
) -> Call:
    """Return the case's call in tcdsl; a *bound* one writes into an output made beforehand."""
    function = tcdsl.define(source_for(case, dtype))[case.def_name]
    values = list(inputs.values())
    if not bound:
        return lambda: function(*values, target=target, options=options)
    out = function(*values, target=target, options=options)
    executable = function.compile(*values, target=target, options=options)
    call: Call = executable.bind(*values, out=out)
    return call


def peer_call(peer: str, case: Case, inputs: Arrays) -> Call:
    """Return the case's call in *peer*."""
    if peer == "numpy":
        return numpy_call(case, inputs)
    if peer == "jax":
        return jax_calls.host_call(case, inputs)
    return torch_call(case, inputs, compiled=peer == "torch-compile")


def use_threads(count: int) -> None:
    """Let PyTorch, where it is loaded or will be asked for, use *count* threads."""
    if count and (find_spec("torch") is not None or "torch" in sys.modules):
        import_module("torch").set_num_threads(count)


@dataclass(frozen=True, slots=True)
class Host:
    """Calls on NumPy arrays: *target* is any but "cuda"; *bound* ones have their outputs."""

    target: str
    bound: bool
    peers: ClassVar[tuple[str, ...]] = ("numpy", "torch", "torch-compile", "jax")
    default_peers: ClassVar[str] = "numpy,torch"
    errors: ClassVar[tuple[type[Exception], ...]] = (TCError,)

    def why_missing(self, peer: str) -> str | None:
        """Return why *peer* cannot be timed here, or None if it can."""
        return why_missing(peer)

    def offers(self, peer: str, case: Case, dtype: str) -> bool:
        """Return whether *peer* has *case* in *dtype*."""
        return offers(peer, case)

    def sizes(self, case: Case, dtype: str) -> tuple[Mapping[str, int], ...]:
        """Return the case's sizes that fit this machine, or if none do, the last of the tests."""
        return case.cpu_sizes or case.small_sizes[-1:]

    def inputs(self, case: Case, sizes: Mapping[str, int], dtype: str) -> Arrays:
        """Return random inputs, the same ones every time."""
        return case.make_inputs(sizes, np.random.default_rng(0), dtype)

    def tcdsl_call(
        self, case: Case, inputs: Arrays, dtype: str, options: Options | None = None
    ) -> tuple[Call, None]:
        """Return the case's call; nothing is known of its launches."""
        return tcdsl_call(case, inputs, dtype, bound=self.bound, target=self.target,
                          options=options), None  # fmt: skip

    def peer_call(self, peer: str, case: Case, inputs: Arrays) -> Call:
        """Return the case's call in *peer*."""
        return peer_call(peer, case, inputs)

    def disagreement(self, result: Any, expected: Any, dtype: str) -> str | None:
        """Return how *result* differs from *expected*, or None."""
        return disagreement(result, expected, dtype)

    def compare(self, calls: Mapping[str, Call], min_time_s: float) -> Comparison:
        """Return the times of *calls*."""
        return compare(calls, min_time_s)

    def wait(self) -> None:
        """Do nothing: calls have ended when they return."""

    def settle(self) -> str | None:
        """Return why nothing more can be timed: a processor is never lost."""
        return None
