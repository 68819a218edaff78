"""Backward passes of Liger-kernel on tensors: https://github.com/linkedin/Liger-Kernel.

Each builder runs Liger's forward pass, whose statistics its backward pass wants, and returns a call
of that, without autograd around it.  Backward passes that write over their arguments get copies.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

Call = Callable[[], Any]
Inputs = Mapping[str, Any]
_LARGEST = 65536 // 2


def is_installed() -> bool:
    """Return whether Liger-kernel and Triton are."""
    return find_spec("liger_kernel") is not None and find_spec("triton") is not None


def call(name: str, inputs: Inputs, given: Sequence[Any]) -> Call:
    """Return Liger's backward pass of the work *name*."""
    return _BUILDERS[name](inputs, given)


def _ops(name: str) -> Any:
    return import_module(f"liger_kernel.ops.{name}")


def _layernorm(inputs: Inputs, given: Sequence[Any]) -> Call:
    ops, x, gamma, beta = _ops("layer_norm"), inputs["x"], inputs["gamma"], inputs["beta"]
    _, _, mean, rstd, *_ = ops.layer_norm_forward(x, gamma, beta, inputs["eps"])
    return lambda: ops.layer_norm_backward(given[0], x, gamma, beta, mean, rstd)


def _rmsnorm(inputs: Inputs, given: Sequence[Any]) -> Call:
    ops, x, gamma = _ops("rms_norm"), inputs["x"], inputs["gamma"]
    found = ops.rms_norm_forward(x, gamma, inputs["eps"], 0.0, "llama", None)
    _, _, rstd, block, warps, mode = found
    return lambda: ops.rms_norm_backward(
        given[0], x, gamma, rstd, 0.0, mode, block, warps, False, None
    )


def _group_norm(inputs: Inputs, given: Sequence[Any]) -> Call:
    ops, x = _ops("group_norm"), inputs["x"]
    n, groups, depth, *_ = x.shape
    flat, d_y = x.reshape(n, groups * depth, -1), given[0].reshape(n, groups * depth, -1)
    gamma, beta = inputs["gamma"].reshape(-1), inputs["beta"].reshape(-1)
    found = ops.group_norm_forward(flat, groups * depth, groups, gamma, beta, inputs["eps"])
    _, _, mean, rstd, _ = found
    return lambda: ops.group_norm_backward(
        d_y, flat, gamma, beta, mean, rstd, groups * depth, groups
    )


def _swiglu(inputs: Inputs, given: Sequence[Any]) -> Call:
    ops, a, b = _ops("swiglu"), inputs["a"].clone(), inputs["b"].clone()
    return lambda: ops.swiglu_backward(a, b, given[0])


def _rope(inputs: Inputs, given: Sequence[Any]) -> Call:
    ops = _ops("rope")
    d_q, d_k = (g.clone().transpose(1, 2) for g in given)
    cos, sin = inputs["cos"][None], inputs["sin"][None]

    def run() -> Any:
        return tuple(g.transpose(1, 2) for g in ops.rope_backward(d_q, d_k, cos, sin))

    return run


def _cross_entropy(inputs: Inputs, given: Sequence[Any]) -> Call:
    """Return the kernel that writes the gradient over the logits, and the sum of losses.

    (``cross_entropy_forward`` around it asks the GPU for the number of labels, and waits.)
    """
    ops, logits, labels = _ops("cross_entropy"), inputs["logits"].clone(), inputs["labels"]
    rows, columns = logits.shape
    losses = torch.zeros(rows, dtype=logits.dtype, device=logits.device)
    block = min(_LARGEST, 1 << (columns - 1).bit_length())

    def run() -> Any:
        ops.liger_cross_entropy_kernel[(rows,)](
            X_ptr=logits, X_stride=logits.stride(0), Y_ptr=labels, Y_stride=1, weight_ptr=None,
            loss_ptr=losses, z_loss_ptr=None, loss_stride=1, token_accuracy_ptr=None,
            token_accuracy_stride=0, predicted_tokens_ptr=None, predicted_tokens_stride=0,
            n_cols=columns, n_non_ignore=rows, sum_non_ignore_weight=rows, ignore_index=-100,
            weight_sum=0.0, lse_square_scale=0.0, label_smoothing=0.0, reduction="mean",
            softcap=None, RETURN_Z_LOSS=False, RETURN_TOKEN_ACCURACY=False,
            RETURN_PREDICTED_TOKENS=False, BLOCK_SIZE=block, HAS_WEIGHT=False,
            HAS_SOFTCAPPING=False, HAS_GRADIENTS=True, num_warps=32,
        )  # fmt: skip
        return logits, losses.sum()

    return run


_BUILDERS: Mapping[str, Callable[[Inputs, Sequence[Any]], Call]] = {
    "layernorm": _layernorm, "rmsnorm": _rmsnorm, "group_norm": _group_norm, "swiglu": _swiglu,
    "rope": _rope, "cross_entropy+": _cross_entropy,
}  # fmt: skip
