"""``tcdsl.vjp`` of every library program beside ``torch.autograd``, in float64."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.library import Case
from tests.derivatives.gradients import cotangents, in_float64, library_cases, sizes_of, tupled

torch = pytest.importorskip("torch")


Axes = tuple[int, ...]


def normalisation_backward(
    x: Any, dy: Any, gamma: Any, mean: Any, rstd: Any, *, reduced: Axes, shared: Axes
) -> tuple[Any, Any, Any]:
    """Return the gradients of a normalisation over *reduced*, whose gamma all of *shared* have.

    (PyTorch's own operators have no derivatives by mean and rstd.)
    """

    def along(v: Any, axes: Axes) -> Any:
        return v.reshape([1 if axis in axes else n for axis, n in enumerate(x.shape)])

    xhat = (x - along(mean, reduced)) * along(rstd, reduced)
    g = dy * along(gamma, shared)
    terms = g - g.mean(reduced, keepdim=True) - xhat * (g * xhat).mean(reduced, keepdim=True)
    return along(rstd, reduced) * terms, (dy * xhat).sum(shared), dy.sum(shared)


def csr_product(val: Any, col: Any, ptr: Any, x: Any) -> Any:
    """Return a matrix in CSR times *x*: (C) or (C, D).

    (PyTorch's sparse gradient has one entry for those that are at one place of the matrix.)
    """
    rows = torch.arange(len(ptr) - 1).repeat_interleave(ptr.diff())
    terms = torch.einsum("e,e...->e...", val, x[col])
    return torch.zeros(len(ptr) - 1, *x.shape[1:], dtype=x.dtype).index_add(0, rows, terms)


FORMULAS: Mapping[str, Callable[..., Any]] = {
    "csr": csr_product,
    "csr_matrix": lambda X, **t: csr_product(**t, x=X),
    "row_sum_float32": lambda x: x.sum(1),  # in doubles, as the program is here
    "layernorm_backward": lambda **t: normalisation_backward(**t, reduced=(1,), shared=(0,)),
    "batchnorm_backward": lambda **t: normalisation_backward(
        **t, reduced=(0, 2, 3), shared=(0, 2, 3)
    ),
    "batchnorm_backward_nhwc": lambda **t: normalisation_backward(
        **t, reduced=(0, 1, 2), shared=(0, 1, 2)
    ),
}


@pytest.mark.slow_but(
    "softmax", "layernorm", "conv2d", "cross_entropy", "mlp3", "csr", "focal_loss"
)
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in library_cases()])
def test_autograd_agrees(case: Case) -> None:
    f = in_float64(case)
    inputs = case.make_inputs(sizes_of(case), np.random.default_rng(4), "float64")
    tensors = {k: torch.tensor(v) if v.ndim else float(v) for k, v in inputs.items()}
    leaves = {k: t.requires_grad_() for k, t in tensors.items()
              if torch.is_tensor(t) and t.is_floating_point()}  # fmt: skip
    formula = FORMULAS.get(case.name)
    results = tupled(formula(**tensors)) if formula else case.torch(tensors)
    c = f.comprehension
    floats = [result for result, name in zip(results, c.outputs, strict=True)
              if c.tensors[name].dtype.is_float]  # fmt: skip
    # Statistics that PyTorch's operators return beside a result have no gradient there.
    given = [
        d if result.requires_grad else np.zeros_like(d)
        for result, d in zip(floats, cotangents(f, list(inputs.values())), strict=True)
    ]
    moved = [(result, torch.tensor(d)) for result, d in zip(floats, given, strict=True)
             if result.requires_grad]  # fmt: skip
    wanted: Any = (None,) * len(leaves)
    if moved:
        wanted = torch.autograd.grad(
            [result for result, _ in moved], list(leaves.values()), [d for _, d in moved],
            allow_unused=True,
        )  # fmt: skip
    found = tupled(tcdsl.vjp(f, tuple(leaves)).reference(*inputs.values(), *given))
    for name, one, other in zip(leaves, found, wanted, strict=True):
        expected = np.zeros(np.shape(one)) if other is None else other.numpy()
        np.testing.assert_allclose(one, expected, rtol=1e-9, atol=1e-11, err_msg=name)
