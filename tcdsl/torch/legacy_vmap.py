"""The rule of PyTorch's older vmap, which makes many derivatives at once in ``torch.autograd``.

    torch.autograd.grad(y, x, gradients, is_grads_batched=True)
    torch.autograd.functional.jacobian(f, x, vectorize=True)
    torch.autograd.gradcheck(f, x, check_batched_grad=True)

Its batched tensors are not those of ``torch.vmap``: they come to the dispatcher's key Batched,
which asks no rule of ``torch.library.register_vmap``, and whose fallback takes no lists of tensors.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.autograd_function import VmapInfo
from torch.utils import _pytree as pytree


def nesting() -> int:
    """Return how many of these vmaps are around a call."""
    depth: int = torch._C._vmapmode_increment_nesting()
    torch._C._vmapmode_decrement_nesting()
    return depth - 1


def batched(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule for the key Batched of an operator, from that for ``torch.vmap``."""

    def run(*args: Any) -> Any:
        leaves, spec = pytree.tree_flatten(args)
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        level = next(n for n in range(nesting(), 0, -1) if any(_is_batched(x, n) for x in tensors))
        size = next(_front(x, level).shape[0] for x in tensors if _is_batched(x, level))
        is_batched = [isinstance(x, torch.Tensor) and _is_batched(x, level) for x in leaves]
        inner = [_front(x, level) if b else x for x, b in zip(leaves, is_batched, strict=True)]
        dims = pytree.tree_unflatten([0 if b else None for b in is_batched], spec)
        found, out_dims = rule(VmapInfo(size, "error"), dims, *pytree.tree_unflatten(inner, spec))
        if isinstance(found, torch.Tensor):
            return _wrapped(found, out_dims, level)
        return type(found)(_wrapped(x, d, level) for x, d in zip(found, out_dims, strict=True))

    return run


def _front(tensor: torch.Tensor, level: int, otherwise: int = 1) -> torch.Tensor:
    """Return *tensor* with the dimension of *level* first; without one, as often as *otherwise*."""
    found: torch.Tensor = torch._remove_batch_dim(tensor, level, otherwise, 0)
    return found


def _is_batched(tensor: torch.Tensor, level: int) -> bool:
    one, two = (_front(tensor, level, often).shape[0] for often in (1, 2))
    return bool(one == two)


def _wrapped(tensor: torch.Tensor, dim: int | None, level: int) -> torch.Tensor:
    return tensor if dim is None else torch._add_batch_dim(tensor, dim, level)
