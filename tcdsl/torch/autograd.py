"""The autograd rule of operators whose derivatives are operators, in both modes.

Registered for the dispatcher's key Autograd, where it runs at each level of ``torch.func.grad``,
too: the inputs there are that level's tensors, and what runs below this key is the next level.
``torch.library.register_autograd`` refuses that (PyTorch 2.13), which is why it is not used.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.pyfunctorch import (
    GradInterpreter,
    retrieve_current_functorch_interpreter,
)
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from tcdsl.errors import NOT_AN_ARRAY, TCError
from tcdsl.records import dataclass
from tcdsl.torch.family import Form, extended, step
from tcdsl.torch.legacy_vmap import nesting
from tcdsl.torch.untraced import untraced

below_autograd = torch._C._AutoDispatchBelowAutograd
_AFTER = torch._C._after_autograd_keyset
_BELOW = _AFTER - torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)  # falls through
_KERNELS = (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)
_PLAIN: dict[int, bool] = {}  # by sets of keys, of which there are few


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of *form*, the form *path* of the def whose derived forms are *derived*.

    *run* computes the results of a form, below autograd: of *form* itself, or one step further.
    *is_plain*: nothing but a kernel is below autograd, see :func:`is_plain`.
    """

    form: Form
    derived: Any
    path: str
    sizes: Sequence[int]
    run: Callable[[Sequence[torch.Tensor], str], Sequence[torch.Tensor]]
    is_plain: bool

    def at_once(self, step: str, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the results of the form that is *step* further, by its kernel."""
        form = self.form.at(step) if step else self.form
        try:
            found = form.call(inputs, self.sizes)
        except TCError as error:
            raise self.of_own_text(step, inputs, error) from None
        return found if type(found) is tuple else (found,)

    def of_own_text(self, step: str, inputs: Sequence[torch.Tensor], error: TCError) -> TCError:
        """Return *error*; if it is of arguments of a forward pass, as it is of the user's def."""
        try:
            if step.startswith("k"):
                if error.code == NOT_AN_ARRAY.code:
                    self.form.require_arrays(inputs)
                self.form.require(inputs, self.sizes)
        except TCError as own:
            return own
        return error

    def then(self, step: str, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return the results of the form that is *step* further, as an operator's."""
        if self.is_plain and _is_kernel_next(inputs):
            return self.at_once(step, inputs)
        found: Sequence[torch.Tensor] = self.derived(inputs, self.sizes, extended(self.path, step))
        return found


class _Node(torch.autograd.Function):
    """The node of the graph; its gradients are operators again.

    Its results are those of the call, then what the derivative keeps, which is a function of the
    inputs like any other: where the derivative is differentiated again, cotangents of what is kept
    come back, and are passed on by the derivative of the first pass.  In forward mode what is kept
    has a tangent, too.
    """

    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        derivative = call.form.derivative(ctx.needs_input_grad[1:])
        ctx.call, ctx.derivative = call, derivative
        ctx.passed = passed = derivative.forward if derivative.kept else ""
        found = call.at_once(passed, inputs) if call.is_plain else _run_below(call, passed, inputs)
        # Of one result alone there is a cotangent, if the engine is here at all.
        ctx.like = [(x.shape, x.dtype, x.device) for x in found] if len(found) > 1 else []
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *[found[position] for position in derivative.kept])
        if _is_forward_mode():
            ctx.save_for_forward(*inputs)
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> tuple[Any, ...]:
        """Return the tangents of the results, those of integers None."""
        call, passed = ctx.call, ctx.passed
        form = call.form.at(passed) if passed else call.form
        moved = [position for position, tangent in enumerate(tangents) if tangent is not None]
        inputs = [_unpacked(x).primal for x in ctx.saved_tensors]
        given = [*inputs, *(tangents[position] for position in moved)]
        found: list[Any] = [None] * len(form.head.outputs)
        if form.float_outputs:
            with forward_ad._set_fwd_grad_enabled(True):  # of an outer level: see _run_below
                results = call.then(extended(passed, step("t", moved)), given)
            for position, tangent in zip(form.float_outputs, results, strict=True):
                found[position] = tangent
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        call, derivative, saved = ctx.call, ctx.derivative, ctx.saved_tensors
        own = call.form.float_outputs
        if all(cotangent is None for cotangent in cotangents):
            return (None,) * len(ctx.needs_input_grad)
        n_inputs, n_results = len(saved) - len(derivative.kept), len(call.form.head.outputs)
        inputs = saved[:n_inputs]

        def given(position: int) -> Any:
            if cotangents[position] is not None:
                return cotangents[position]
            shape, dtype, device = ctx.like[position]
            return torch.zeros(shape, dtype=dtype, device=device)

        if any(cotangent is not None for cotangent in cotangents[n_results:]):
            further = range(n_results, len(cotangents))
            floats = [i for i in further if ctx.like[i][1].is_floating_point]
            path = extended(derivative.forward, derivative.whole)
            found = call.then(path, [*inputs, *map(given, (*own, *floats))])
        else:
            path = derivative.backward if derivative.kept else derivative.whole
            found = call.then(path, [*saved, *map(given, own)])
        gradients: list[Any] = [None] * n_inputs
        for position, gradient in zip(derivative.by, found, strict=True):
            gradients[position] = gradient
        return None, *gradients


for rule in (_Node.forward, _Node.jvp, _Node.backward):
    untraced(rule)


def _run_below(call: Call, step: str, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return the results below autograd, where there are modes or further levels of torch.func.

    A Function's forward pass has no grad modes; the next level of torch.func has its own, and sees
    tangents, of which there are any at most where forward mode is on.
    """
    forward_mode = forward_ad._set_fwd_grad_enabled(True)
    try:
        with below_autograd(), forward_mode, torch.set_grad_enabled(_outer_grad_mode()):
            return call.run(inputs, step)
    except TCError as error:
        raise call.of_own_text(step, inputs, error) from None


def _is_kernel_next(inputs: Sequence[torch.Tensor]) -> bool:
    """Return whether a derivative may call a kernel itself: nobody records, traces or watches.

    The dispatcher would take a fifth of a small backward pass to find this out.
    """
    if torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return False
    if nesting() or has_tangent(inputs):
        return False
    return all(type(x) is torch.Tensor or type(x) is torch.nn.Parameter for x in inputs)


def _outer_grad_mode() -> bool:
    """Return whether the level around this one records gradients."""
    if not torch._C._are_functorch_transforms_active():
        return False
    level = retrieve_current_functorch_interpreter()
    return not isinstance(level, GradInterpreter) or level.prev_grad_mode()


# That of autograd.Function itself refuses to run at a level of torch.func; see above.
_apply = super(torch.autograd.Function, _Node).apply


def has_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a call with *tensors* is recorded, or along a direction."""
    is_recorded: bool = torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors)
    return is_recorded or has_tangent(tensors)


def has_tangent(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether one of *tensors* moves along a direction, in forward mode."""
    return _is_forward_mode() and any(_unpacked(x).tangent is not None for x in tensors)


def _is_forward_mode() -> bool:
    """Return whether tensors may have tangents.

    A graph that dynamo has made of ``torch.func.jvp`` or ``dual_level`` sets no variable of Python.
    """
    if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():
        return True
    return bool(torch._C._len_torch_dispatch_stack()) and _has_dual_level()


def _has_dual_level() -> bool:
    """Return whether there is a level of tangents: a second one cannot be entered."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level)
    return False


def _unpacked(tensor: torch.Tensor) -> Any:
    """Return the primal and the tangent (or None) of *tensor*."""
    return forward_ad.unpack_dual(tensor, level=max(forward_ad._current_level, 0))


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
    """Return the results of *call*, with a graph, or with tangents."""
    n_results = len(call.form.head.outputs)
    if not torch._C._are_functorch_transforms_active():
        found: tuple[torch.Tensor, ...] = _apply(call, *inputs)
        return found[:n_results]
    with enable_single_level_autograd_function():
        found = _apply(call, *inputs)
    return found[:n_results]


def redispatched(operator: Any, keys: Any, *args: Any) -> Any:
    """Call what *operator* has below autograd, with the dispatcher's *keys* of this call."""
    return operator.redispatch(keys & _AFTER, *args)
