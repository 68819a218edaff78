"""The autograd rule of operators whose derivatives are operators.

Registered for the dispatcher's key Autograd, where it runs at each level of ``torch.func.grad``,
too: the inputs there are that level's tensors, and what runs below this key is the next level.
``torch.library.register_autograd`` refuses that (PyTorch 2.13), which is why it is not used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from tcdsl.errors import NOT_DIFFERENTIABLE
from tcdsl.torch.family import Form, extended

below_autograd = torch._C._AutoDispatchBelowAutograd
_AFTER = torch._C._after_autograd_keyset
_BELOW = _AFTER - torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)  # falls through
_KERNELS = (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)
_PLAIN: dict[int, bool] = {}  # by sets of keys, of which there are few


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of *form*, the form *path* of the def whose derived forms are *derived*."""

    form: Form
    derived: Any
    path: str
    sizes: Sequence[int]
    redispatch: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]

    def gradients(
        self, inputs: Sequence[torch.Tensor], cotangents: Sequence[Any], needed: Sequence[bool]
    ) -> list[Any]:
        """Return the gradient of each input, None for those that are not *needed*."""
        by, last = self.form.derivative(tuple(needed))
        given = [cotangents[i] for i in self.form.float_outputs]
        path = extended(self.path, last)
        found = self.derived([*inputs, *given], self.sizes, path)
        gradients: list[Any] = [None] * len(inputs)
        for position, gradient in zip(by, found, strict=True):
            gradients[position] = gradient
        return gradients


class _Node(torch.autograd.Function):
    """The node of the graph; its gradients are operators again."""

    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with below_autograd():
            found = call.redispatch(inputs)
        ctx.call = call
        ctx.save_for_backward(*inputs)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        gradients = ctx.call.gradients(ctx.saved_tensors, cotangents, ctx.needs_input_grad[1:])
        return None, *gradients


# That of autograd.Function itself refuses to run at a level of torch.func; see above.
_apply = super(torch.autograd.Function, _Node).apply


def has_gradient(form: Form, tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a call of *form* with *tensors* has to be recorded.

    :raises SemanticError: (TC093) one has a tangent, which would be lost.
    """
    if forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    ):
        what = "an operator of PyTorch has none in forward mode"
        advice = "use reverse mode: torch.func.vjp or jacrev, torch.autograd.grad"
        raise NOT_DIFFERENTIABLE(name=form.head.name, what=what, advice=advice)
    is_recorded: bool = torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors)
    return is_recorded


def is_plain(keys: Any) -> bool:
    """Return whether a kernel is next: below autograd no mode and no level of torch.func is on.

    Calling it at once saves a third of a small call.
    """
    raw = keys.raw_repr()
    found = _PLAIN.get(raw)
    if found is None:
        found = _PLAIN[raw] = (keys & _BELOW).highestPriorityTypeId() in _KERNELS
    return found


def recorded(call: Call, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return the results of *call*, with a graph."""
    if not torch._C._are_functorch_transforms_active():
        found: tuple[torch.Tensor, ...] = _apply(call, *inputs)
        return found
    with enable_single_level_autograd_function():
        found = _apply(call, *inputs)
    return found


def redispatched(operator: Any, keys: Any, *args: Any) -> Any:
    """Call what *operator* has below autograd, with the dispatcher's *keys* of this call."""
    return operator.redispatch(keys & _AFTER, *args)
