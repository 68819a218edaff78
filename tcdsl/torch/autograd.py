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

from tcdsl.torch.family import Form, extended, step

below_autograd = torch._C._AutoDispatchBelowAutograd
_AFTER = torch._C._after_autograd_keyset


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
        by = [i for i in self.form.float_inputs if needed[i]]
        given = [cotangents[i] for i in self.form.float_outputs]
        path = extended(self.path, step("d", by))
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


def has_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a call with *tensors* has to be recorded."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


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
