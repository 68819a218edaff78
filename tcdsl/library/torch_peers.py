"""What a PyTorch user would write for each case: a function a case, of tensors by parameter name.

Imported only when asked for, since PyTorch is optional; ``tcdsl bench`` runs these as they are and
through ``torch.compile``.  A host scalar is a Python number.  In-place cases return what they
would have updated, so that repeated runs time the same work.
"""

# The functions' parameters are the programs' own, and these call an image I.
# ruff: noqa: E741

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


# ---- contractions ----------------------------------------------------------------------------


def matmul(A: Tensor, B: Tensor) -> Tensor:
    return A @ B


def tmm(A: Tensor, B: Tensor) -> Tensor:
    return A @ B.t()


def tmm_int8(A: Tensor, B: Tensor) -> Tensor:
    return torch._int_mm(A, B.t()) if A.is_cuda else A.int() @ B.int().t()


def matmul_tn(A: Tensor, B: Tensor) -> Tensor:
    return A.t() @ B


def matmul_transposed(A: Tensor, B: Tensor) -> Tensor:
    return B.t() @ A.t()


def tbmm(X: Tensor, Y: Tensor) -> Tensor:
    return torch.bmm(X, Y)


def tmv(A: Tensor, x: Tensor) -> Tensor:
    return torch.mv(A, x)


def lut1(table: Tensor, index: Tensor) -> Tensor:
    return F.embedding_bag(index, table, mode="sum")


def lut2(table1: Tensor, index1: Tensor, table2: Tensor, index2: Tensor) -> tuple[Tensor, Tensor]:
    return lut1(table1, index1), lut1(table2, index2)


def c3(I: Tensor, W: Tensor) -> Tensor:
    return F.linear(I, W)


def mlp1(I: Tensor, W: Tensor, bias: Tensor) -> Tensor:
    return F.relu(torch.addmm(bias, I, W))


def mlp3(
    I: Tensor,
    W1: Tensor,
    bias1: Tensor,
    W2: Tensor,
    bias2: Tensor,
    W3: Tensor,
    bias3: Tensor,
) -> Tensor:
    h = F.relu(F.linear(I, W1, bias1))
    h = F.relu(F.linear(h, W2, bias2))
    return F.relu(F.linear(h, W3, bias3))


def kronecker3(W0: Tensor, W1: Tensor, W2: Tensor, X: Tensor) -> Tensor:
    y = torch.tensordot(X, W2, dims=([3], [1]))  # (m, n0, n1, d2)
    y = torch.tensordot(y, W1, dims=([2], [1]))  # (m, n0, d2, d1)
    y = torch.tensordot(y, W0, dims=([1], [1]))  # (m, d2, d1, d0)
    return y.permute(0, 3, 2, 1).contiguous()


def tensordot(I0: Tensor, I1: Tensor) -> Tensor:
    return torch.einsum("nabhw,nbchw->nachw", I0, I1)


# ---- convolutions ----------------------------------------------------------------------------


def conv2d(I: Tensor, K: Tensor) -> Tensor:
    return F.conv2d(I, K)


def group_convolution(I: Tensor, K: Tensor, bias: Tensor) -> Tensor:
    groups = I.shape[1]
    flat = F.conv2d(I.flatten(1, 2), K.flatten(0, 1), bias.flatten(), groups=groups)
    return flat.reshape(len(I), *K.shape[:2], *flat.shape[2:])


def conv3x3_bias_relu(I: Tensor, K: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.conv2d(I, K, bias, padding=1))


def conv3x3_bias_relu_nhwc(I: Tensor, K: Tensor, bias: Tensor) -> Tensor:
    return _channels_last(conv3x3_bias_relu(_channels_first(I), _channels_first(K), bias))


def conv3x3_bn_relu(I: Tensor, K: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    convolved = F.conv2d(I, K, padding=1)
    return F.relu(convolved * scale[:, None, None] + shift[:, None, None])


def conv3x3_bn_relu_pool(I: Tensor, K: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return F.max_pool2d(conv3x3_bn_relu(I, K, scale, shift), 2)


def conv3x3_bn_relu_pool_nhwc(I: Tensor, K: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return _channels_last(
        conv3x3_bn_relu_pool(_channels_first(I), _channels_first(K), scale, shift)
    )


def conv3x3_stride2(I: Tensor, K: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.conv2d(I, K, bias, stride=2, padding=1))


def conv3x3_dilation2(I: Tensor, K: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.conv2d(I, K, bias, padding=2, dilation=2))


def conv1x1_bias_relu(I: Tensor, K: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.conv2d(I, K[:, :, None, None], bias))


def conv1x1_bias_relu_nhwc(I: Tensor, K: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.linear(I, K, bias))


def separable_conv(I: Tensor, depth: Tensor, point: Tensor, bias: Tensor) -> Tensor:
    deep = F.conv2d(I, depth[:, None], padding=1, groups=I.shape[1])
    return conv1x1_bias_relu(deep, point, bias)


def conv3x3_backward_data(dO: Tensor, K: Tensor) -> Tensor:
    return F.conv_transpose2d(dO, K, padding=1)


def conv3x3_backward_weights(dO: Tensor, I: Tensor) -> Tensor:
    like = I.new_empty(dO.shape[1], I.shape[1], 3, 3)
    ones, zeros, wanted = [1, 1], [0, 0], [False, True, False]
    return torch.ops.aten.convolution_backward(
        dO, I, like, None, ones, ones, ones, False, zeros, 1, wanted
    )[1]


def wavenet(
    x: Tensor,
    filter_weight: Tensor,
    filter_bias: Tensor,
    gate_weight: Tensor,
    gate_bias: Tensor,
    residual_weight: Tensor,
    residual_bias: Tensor,
    skip_weight: Tensor,
    skip_bias: Tensor,
    taps: Tensor,
) -> tuple[Tensor, ...]:
    dilation = len(taps)
    causal = F.pad(x, (dilation, 0))
    filtered = F.conv1d(causal, filter_weight, filter_bias, dilation=dilation)
    gated = F.conv1d(causal, gate_weight, gate_bias, dilation=dilation)
    z = torch.tanh(filtered) * torch.sigmoid(gated)
    residual = F.conv1d(z, residual_weight[:, :, None], residual_bias) + x
    return filtered, gated, z, residual, F.conv1d(z, skip_weight[:, :, None], skip_bias)


def csr(val: Tensor, col: Tensor, ptr: Tensor, x: Tensor) -> Tensor:
    matrix = torch.sparse_csr_tensor(ptr, col, val, size=(len(ptr) - 1, len(x)))
    return torch.mv(matrix, x)


def csr_matrix(val: Tensor, col: Tensor, ptr: Tensor, X: Tensor) -> Tensor:
    return torch.mm(torch.sparse_csr_tensor(ptr, col, val, size=(len(ptr) - 1, len(X))), X)


def embedding_bag(table: Tensor, word: Tensor, ptr: Tensor) -> Tensor:
    return F.embedding_bag(word, table, ptr, mode="sum", include_last_offset=True)


def segment_max(x: Tensor, ptr: Tensor) -> Tensor:
    return torch.segment_reduce(x, "max", offsets=ptr.long(), initial=-torch.inf)


def segment_mean(x: Tensor, ptr: Tensor) -> Tensor:
    return torch.segment_reduce(x, "sum", offsets=ptr.long()) / ptr.diff().clamp(min=1)


def segment_softmax(x: Tensor, ptr: Tensor) -> Tensor:
    lengths = ptr.diff()
    power = torch.exp(x - segment_max(x, ptr).repeat_interleave(lengths))
    total = torch.segment_reduce(power, "sum", offsets=ptr.long())
    return power / total.repeat_interleave(lengths)
