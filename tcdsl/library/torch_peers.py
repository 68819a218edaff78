"""What a PyTorch user would write for each case: a function a case, of tensors by parameter name.

Here are reductions and graphs; contractions and networks have modules of their own.

Imported only when asked for, since PyTorch is optional; ``tcdsl bench`` runs these as they are and
through ``torch.compile``.  A host scalar is a Python number.  In-place cases return what they
would have updated, so that repeated runs time the same work.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

# torch.Tensor.  Any, so that type checking says the same with PyTorch installed and without.
Tensor = Any


def tensors(inputs: Mapping[str, NDArray[Any]], device: str = "cpu") -> dict[str, Any]:
    """Return *inputs* as tensors on *device*, 0-D floats as Python numbers."""
    return {
        name: float(array) if array.ndim == 0 else _tensor(array, device)
        for name, array in inputs.items()
    }


def array(tensor: Tensor) -> NDArray[Any]:
    """Return *tensor* as a NumPy array; bfloat16, which NumPy has not, as float32."""
    host = tensor.detach().cpu()
    result: NDArray[Any] = (host.float() if host.dtype == torch.bfloat16 else host).numpy()
    return result


def _tensor(array: NDArray[Any], device: str) -> Tensor:
    if array.dtype.name == "bfloat16":  # PyTorch does not know ml_dtypes: hand over the bits
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)


# ---- reductions (dtype= keeps PyTorch from widening sums of integers to int64) -----------------


def all_sum(x: Tensor) -> Tensor:
    return x.sum(dtype=x.dtype)


def all_prod(x: Tensor) -> Tensor:
    return x.prod(dtype=x.dtype)


def all_max(x: Tensor) -> Tensor:
    return x.amax()


def all_min(x: Tensor) -> Tensor:
    return x.amin()


def all_and(x: Tensor) -> Tensor:
    return x.all()


def all_or(x: Tensor) -> Tensor:
    return x.any()


def row_sum(x: Tensor) -> Tensor:
    return x.sum(dim=1, dtype=x.dtype)


def row_sum_float32(x: Tensor) -> Tensor:
    return x.sum(dim=1, dtype=torch.float32)


def row_max(x: Tensor) -> Tensor:
    return x.amax(dim=1)


def row_min(x: Tensor) -> Tensor:
    return x.amin(dim=1)


def row_prod(x: Tensor) -> Tensor:
    return x.prod(dim=1, dtype=x.dtype)


def row_and(x: Tensor) -> Tensor:
    return x.all(dim=1)


def row_or(x: Tensor) -> Tensor:
    return x.any(dim=1)


def row_argmax(x: Tensor) -> Tensor:
    return x.argmax(dim=1)


def row_argmin(x: Tensor) -> Tensor:
    return x.argmin(dim=1)


def row_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    var, mean = torch.var_mean(x, dim=1, correction=0)
    return mean, var


def column_sum(x: Tensor) -> Tensor:
    return x.sum(dim=0, dtype=x.dtype)


def column_max(x: Tensor) -> Tensor:
    return x.amax(dim=0)


def column_or(x: Tensor) -> Tensor:
    return x.any(dim=0)


def middle_sum(x: Tensor) -> Tensor:
    return x.sum(dim=1, dtype=x.dtype)


def middle_max(x: Tensor) -> Tensor:
    return x.amax(dim=1)


def channel_sum(x: Tensor) -> Tensor:
    return x.sum(dim=(0, 2, 3), dtype=x.dtype)


def channel_sum_nhwc(x: Tensor) -> Tensor:
    return x.sum(dim=(0, 1, 2), dtype=x.dtype)


def channel_max(x: Tensor) -> Tensor:
    return x.amax(dim=(0, 2, 3))


def dot(a: Tensor, b: Tensor) -> Tensor:
    if a.is_cuda and not a.is_floating_point():  # cuBLAS has none for integers
        return (a * b).sum(dtype=a.dtype)
    return torch.dot(a, b)


def fused_column_sum(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return ((a + b) * c).sum(dim=0)


def fused_sum_first(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return ((a + b) * c).sum(dim=0)


def fused_sum_first_two(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return ((a + b) * c).sum(dim=(0, 1))


def two_branches(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    return (a * b).sum(dim=0), (c - d).sum(dim=0)


def two_branches_shared(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return ((a + b) * c).sum(dim=0), ((a - b) * c).sum(dim=0)


# ---- softmax ---------------------------------------------------------------------------------


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, dim=-1)


def masked_softmax(scores: Tensor, mask: Tensor, scale: float) -> Tensor:
    return torch.softmax((scores * scale).masked_fill(~mask[:, None], float("-inf")), dim=-1)


def softmax_backward(y: Tensor, dy: Tensor) -> Tensor:
    return torch._softmax_backward_data(dy, y, -1, y.dtype)


# ---- normalisations --------------------------------------------------------------------------


def _statistic(v: Tensor) -> Tensor:
    """Return a row's or channel's *v* in the type that CUDA's kernels want it in."""
    return v.float() if v.is_cuda and v.element_size() == 2 else v


def layernorm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[1:], gamma, beta, eps)


def layernorm_backward(
    x: Tensor, dy: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, ...]:
    mean, rstd = _statistic(mean)[:, None], _statistic(rstd)[:, None]
    return tuple(
        torch.ops.aten.native_layer_norm_backward(
            dy, x, x.shape[1:], mean, rstd, gamma, gamma, [True, True, True]
        )
    )


def rmsnorm(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[1:], gamma, eps)


def bias_gelu_residual_layernorm(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, eps: float
) -> Tensor:
    return F.layer_norm(F.gelu(x + bias) + residual, x.shape[1:], gamma, beta, eps)


def group_norm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    flat = F.group_norm(x.flatten(1, 2), x.shape[1], gamma.flatten(), beta.flatten(), eps)
    return flat.view(x.shape)


def batchnorm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> tuple[Tensor, ...]:
    return tuple(torch.native_batch_norm(x, gamma, beta, None, None, True, 0.0, eps))


def _batchnorm(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return F.batch_norm(x, None, None, gamma, beta, True, 0.0, eps)


def _channels_first(x: Tensor) -> Tensor:
    """Return x: (N, H, W, C) as (N, C, H, W), a view in PyTorch's channels-last format."""
    return x.permute(0, 3, 1, 2)


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


def batchnorm_nhwc(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> tuple[Tensor, ...]:
    y, mean, rstd = batchnorm(_channels_first(x), gamma, beta, eps)
    return _channels_last(y), mean, rstd


def batchnorm_running(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
    return (
        _batchnorm(x, gamma, beta, eps),
        torch.lerp(running_mean, mean, momentum),
        torch.lerp(running_var, var, momentum),
    )


def batchnorm_relu(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return F.relu(_batchnorm(x, gamma, beta, eps))


def batchnorm_relu_nhwc(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _channels_last(batchnorm_relu(_channels_first(x), gamma, beta, eps))


def batchnorm_gelu(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return F.gelu(_batchnorm(x, gamma, beta, eps))


def batchnorm_gelu_nhwc(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return _channels_last(batchnorm_gelu(_channels_first(x), gamma, beta, eps))


def batchnorm_backward(
    x: Tensor, dy: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, ...]:
    mean, rstd = _statistic(mean), _statistic(rstd)
    return tuple(
        torch.ops.aten.native_batch_norm_backward(
            dy, x, gamma, None, None, mean, rstd, True, 0.0, [True, True, True]
        )
    )


def batchnorm_backward_nhwc(
    x: Tensor, dy: Tensor, gamma: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, ...]:
    dx, dgamma, dbeta = batchnorm_backward(
        _channels_first(x), _channels_first(dy), gamma, mean, rstd
    )
    return _channels_last(dx), dgamma, dbeta


# ---- losses and optimisers -------------------------------------------------------------------


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels)


def cross_entropy_backward(logits: Tensor, labels: Tensor) -> Tensor:
    chosen = F.one_hot(labels, logits.shape[1]).to(logits.dtype)
    return (torch.softmax(logits, dim=1) - chosen) / len(logits)


def mse(x: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(x, target)


def l2_loss(x: Tensor) -> Tensor:
    return x.square().sum() / 2


def grad_norm(g: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    norm = torch.linalg.vector_norm(g)
    return g * torch.clamp(limit / (norm + 1e-6), max=1.0), norm


def gelu_backward(x: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    dx = torch.ops.aten.gelu_backward(dy, x + bias)
    return dx, dx.sum(dim=0)


def _moved_moments(
    g: Tensor, m: Tensor, v: Tensor, beta1: float, beta2: float
) -> tuple[Tensor, Tensor]:
    return torch.lerp(g, m, beta1), (v * beta2).addcmul(g, g, value=1 - beta2)


def adam(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    correction1: float,
    correction2: float,
) -> tuple[Tensor, ...]:
    m, v = _moved_moments(g, m, v, beta1, beta2)
    return p - (rate / correction1) * m / ((v / correction2).sqrt() + eps), m, v


def lamb(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    correction1: float,
    correction2: float,
) -> tuple[Tensor, ...]:
    m, v = _moved_moments(g, m, v, beta1, beta2)
    u = (m / correction1) / ((v / correction2).sqrt() + eps) + decay * p
    of_layer, of_step = torch.linalg.vector_norm(p), torch.linalg.vector_norm(u)
    ratio = torch.where((of_layer > 0) & (of_step > 0), of_layer / of_step, 1.0)
    return p - rate * ratio * u, m, v


# ---- trials of the planner -------------------------------------------------------------------


def four_graphs(x0: Tensor, x1: Tensor, x2: Tensor, x3: Tensor) -> tuple[Tensor, ...]:
    return torch.softmax(x0, dim=1), x1.mean(dim=1), x2.sum(dim=0), F.silu(x3)


def eight_graphs(
    x0: Tensor,
    x1: Tensor,
    x2: Tensor,
    x3: Tensor,
    x4: Tensor,
    x5: Tensor,
    x6: Tensor,
    x7: Tensor,
) -> tuple[Tensor, ...]:
    var, mean = torch.var_mean(x2, dim=0, correction=0)
    return (
        torch.softmax(x0, dim=1),
        x1.mean(dim=1),
        mean,
        var,
        x3.t().contiguous(),
        F.relu(x4),
        torch.dot(x5, x5),
        torch.tanh(x6),
        torch.softmax(x7, dim=1),
    )


def power_broadcast(x: Tensor, z: Tensor) -> Tensor:
    return (x**2.5)[:, None] + z


def power_chain(x: Tensor) -> Tensor:
    p = (x / x.sum(dim=1, keepdim=True)) ** 1.5
    return p * p.sum(dim=1, keepdim=True)


def expensive_fan_out(x: Tensor) -> tuple[Tensor, Tensor]:
    t = torch.tanh(x) * torch.exp(-x * x)
    return t - t.amin(dim=1, keepdim=True), t.sum(dim=1)
