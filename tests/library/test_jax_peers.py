"""The JAX peers compute what the references do, in every type."""

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcdsl import library
from tcdsl.library import Case
from tcdsl.library.draws import Sizes

MODULES = {"jax_peers": ("reduction", "graph"), "jax_networks": ("network",)}
CASES = [case for families in MODULES.values() for f in families for case in library.cases(f)]
TOLERANCE = {"float64": 1e-7, "float32": 2e-4, "float16": 4e-3, "bfloat16": 3e-2}


def functions(module: str) -> list[str]:
    """Return the public functions of a module of the library, in order, not importing it."""
    path = Path(inspect.getfile(library)).with_name(f"{module}.py")
    body = ast.parse(path.read_text("utf-8")).body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if not name.startswith("_")]


@pytest.mark.parametrize("module", MODULES)
def test_the_two_forms_of_a_case_stand_in_the_same_order(module: str) -> None:
    names = {case.name for family in MODULES[module] for case in library.cases(family)}
    of_torch = functions(module.replace("jax", "torch"))
    assert functions(module) == [name for name in of_torch if name in names]
    assert set(functions(module)) == names


def is_refused(case: Case, sizes: Sizes) -> bool:
    """JAX refuses to reduce nothing to a largest or smallest element."""
    words = ("max", "min", "fan_out", "cross_entropy", "argm")
    return min(sizes.values()) == 0 and any(word in case.name for word in words)


@pytest.fixture(scope="module")
def jax() -> Any:
    module = pytest.importorskip("jax")
    module.config.update("jax_enable_x64", True)
    return module


def assert_computes_the_reference(jax: Any, case: Case, sizes: Sizes, dtype: str) -> None:
    inputs = case.make_inputs(sizes, np.random.default_rng(11), dtype)
    arrays = {name: jax.numpy.asarray(x) for name, x in inputs.items() if x.ndim}
    numbers = {name: x.item() for name, x in inputs.items() if not x.ndim}
    outputs = jax.jit(lambda arrays: case.jax_formula(**arrays, **numbers))(arrays)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for wanted, found in zip(case.reference(inputs), map(np.asarray, outputs), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        tolerance = TOLERANCE.get(dtype, 0.0)
        wide = wanted.astype(np.float64)
        atol = tolerance * np.abs(wide[np.isfinite(wide)]).max(initial=0.1)
        np.testing.assert_allclose(found.astype(np.float64), wide, rtol=tolerance, atol=atol)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_the_peer_computes_the_reference(jax: Any, case: Case) -> None:
    for sizes in case.small_sizes:
        if not is_refused(case, sizes):
            assert_computes_the_reference(jax, case, sizes, case.dtypes[0])
    for dtype in case.dtypes[1:]:
        assert_computes_the_reference(jax, case, case.small_sizes[-1], dtype)
