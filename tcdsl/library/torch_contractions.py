"""What a PyTorch user would write for contractions and sparse sums; see ``torch_peers``."""

# The functions' parameters are the programs' own, and these call an image I.
# ruff: noqa: E741

from typing import Any

import torch
import torch.nn.functional as F

from tcdsl.library.torch_peers import _channels_first, _channels_last

Tensor = Any  # torch.Tensor: see torch_peers


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


# ---- sparse matrices and segments -------------------------------------------------------------


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
