"""The convolutions: grouped, strided, dilated, pointwise, depthwise, backward; and WaveNet's block.

Sizes are those of Tensor Comprehensions (TACO 2019) and of DeepCuts (PLDI 2021).  The reference
adds one shifted image a tap of the filter; the peer gathers all taps for one matrix product.
"""

# The formulas' parameters are the programs' own, and these call an image I.
# ruff: noqa: E741

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

import numpy as np

from tcdsl.library.case import ALL_FLOATS, Case, Details, Formula, grid
from tcdsl.library.draws import Array, Draw, Sizes, uniform, weights

_LAYER = grid("N C H W F", (32, 64, 56, 56, 64))
_SMALL_LAYER = grid("N C H W F", (0, 2, 3, 3, 2), (1, 1, 1, 1, 1), (2, 3, 5, 7, 4), (1, 2, 4, 6, 3))
_POINTWISE = grid("N C H W F", (32, 256, 56, 56, 512))


def _case(
    name: str,
    formula: Formula,
    sizes: tuple[Sizes, ...],
    small_sizes: tuple[Sizes, ...],
    multiply_adds: tuple[str, ...],
    draws: Mapping[str, Draw] | None = None,
    **details: Unpack[Details],
) -> Case:
    details.setdefault("dtypes", ALL_FLOATS)
    return Case(
        name=name, family="contraction", file="convolutions", def_name=name, formula=formula,
        sizes=sizes, small_sizes=small_sizes, multiply_adds=multiply_adds,
        draws={"K": weights} if draws is None else draws, **details,
    )  # fmt: skip


# ---- the reference: a sum of shifted images ---------------------------------------------------


def _padded(I: Array, pad: int) -> Array:
    return np.pad(I, [(0, 0)] * (I.ndim - 2) + [(pad, pad)] * 2)


def _convolved(I: Array, K: Array, *, pad: int = 0, stride: int = 1, dilation: int = 1) -> Array:
    """Return the convolution of I: (N, C, H, W) with K: (F, C, KH, KW), one tap at a time."""
    image = _padded(I, pad)
    taps_h, taps_w = K.shape[2:]
    height = max(0, (image.shape[2] - dilation * (taps_h - 1) - 1) // stride + 1)
    width = max(0, (image.shape[3] - dilation * (taps_w - 1) - 1) // stride + 1)
    result = np.zeros((len(I), len(K), height, width), I.dtype)
    for kh, kw in np.ndindex(taps_h, taps_w):
        rows = slice(kh * dilation, kh * dilation + stride * (height - 1) + 1, stride)
        columns = slice(kw * dilation, kw * dilation + stride * (width - 1) + 1, stride)
        shifted = image[:, :, rows, columns][:, :, :height, :width]
        result += np.einsum("nchw,fc->nfhw", shifted, K[:, :, kh, kw], optimize=True)
    return result


def _channel(v: Array) -> Array:
    return v[:, None, None]


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _pooled(x: Array) -> Any:
    """Return the largest of each whole 2x2 of x: (N, F, H, W)."""
    n, f, h, w = x.shape
    whole = x[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, f, h // 2, 2, w // 2, 2)
    return whole.max(axis=(3, 5), initial=-np.inf)


def _channels_first(I: Array) -> Array:
    return I.transpose(0, 3, 1, 2)


def _channels_last(x: Array) -> Array:
    return x.transpose(0, 2, 3, 1)


def _conv_bias_relu(I: Array, K: Array, bias: Array, **geometry: int) -> Array:
    return _relu(_convolved(I, K, **geometry) + _channel(bias))


def _conv_bias_relu_nhwc(I: Array, K: Array, bias: Array) -> Array:
    return _channels_last(_conv_bias_relu(_channels_first(I), _channels_first(K), bias, pad=1))


def _conv_bn_relu(I: Array, K: Array, scale: Array, shift: Array) -> Array:
    return _relu(_convolved(I, K, pad=1) * _channel(scale) + _channel(shift))


def _conv_bn_relu_pool(I: Array, K: Array, scale: Array, shift: Array) -> Any:
    return _pooled(_conv_bn_relu(I, K, scale, shift))


def _conv_bn_relu_pool_nhwc(I: Array, K: Array, scale: Array, shift: Array) -> Array:
    return _channels_last(_conv_bn_relu_pool(_channels_first(I), _channels_first(K), scale, shift))


def _group_convolution(I: Array, K: Array, bias: Array) -> Array:
    groups = [_convolved(I[:, g], K[g]) + _channel(bias[g]) for g in range(I.shape[1])]
    return np.stack(groups, axis=1)


def _conv1x1(I: Array, K: Array, bias: Array) -> Array:
    return _relu(np.einsum("nchw,fc->nfhw", I, K, optimize=True) + _channel(bias))


def _conv1x1_nhwc(I: Array, K: Array, bias: Array) -> Array:
    return _relu(I @ K.T + bias)


def _separable(I: Array, depth: Array, point: Array, bias: Array) -> Array:
    image = _padded(I, 1)
    height, width = I.shape[2:]
    deep = np.zeros_like(I)
    for kh, kw in np.ndindex(3, 3):
        deep += image[:, :, kh : kh + height, kw : kw + width] * _channel(depth[:, kh, kw])
    return _conv1x1(deep, point, bias)


def _backward_data(dO: Array, K: Array) -> Array:
    """Convolve with the taps turned around and the channels swapped: the adjoint."""
    return _convolved(dO, K[:, :, ::-1, ::-1].transpose(1, 0, 2, 3), pad=1)


def _backward_weights(dO: Array, I: Array) -> Array:
    image = _padded(I, 1)
    height, width = I.shape[2:]
    gradient = np.empty((dO.shape[1], I.shape[1], 3, 3), I.dtype)
    for kh, kw in np.ndindex(3, 3):
        shifted = image[:, :, kh : kh + height, kw : kw + width]
        gradient[:, :, kh, kw] = np.einsum("nfhw,nchw->fc", dO, shifted, optimize=True)
    return gradient


# ---- the peer: all taps gathered for one matrix product ---------------------------------------


def _gathered(I: Array, K: Array, *, pad: int = 0, stride: int = 1, dilation: int = 1) -> Array:
    """Return the same as :func:`_convolved`, by "im2col"."""
    image = _padded(I, pad)
    reach = [dilation * (taps - 1) + 1 for taps in K.shape[2:]]
    if min(s - r for s, r in zip(image.shape[2:], reach, strict=True)) < 0:
        return _convolved(I, K, pad=pad, stride=stride, dilation=dilation)
    windows = np.lib.stride_tricks.sliding_window_view(image, reach, (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.ascontiguousarray(
        np.tensordot(windows, K, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    )


def _fast_conv_bias_relu(I: Array, K: Array, bias: Array, **geometry: int) -> Array:
    return _relu(_gathered(I, K, **geometry) + _channel(bias))


# ---- WaveNet ---------------------------------------------------------------------------------


def _two_taps(x: Array, weight: Array, bias: Array, dilation: int) -> Any:
    """Return the causal convolution of x: (B, R, T): *bias*, and taps at t and t - dilation."""
    before = np.zeros_like(x)
    before[:, :, dilation:] = x[:, :, : max(0, x.shape[2] - dilation)]
    return weight[:, :, 1] @ x + weight[:, :, 0] @ before + bias[:, None]


def _wavenet(
    x: Array, filter_weight: Array, filter_bias: Array, gate_weight: Array, gate_bias: Array,
    residual_weight: Array, residual_bias: Array, skip_weight: Array, skip_bias: Array,
    taps: Array,
) -> tuple[Array, ...]:  # fmt: skip
    filtered = _two_taps(x, filter_weight, filter_bias, len(taps))
    gated = _two_taps(x, gate_weight, gate_bias, len(taps))
    z = np.tanh(filtered) / (1 + np.exp(-gated))
    residual = residual_weight @ z + residual_bias[:, None] + x
    return filtered, gated, z, residual, skip_weight @ z + skip_bias[:, None]


_WAVENET = "B R T D S DILATION"
_WAVENET_DRAWS: dict[str, Draw] = {
    "filter_weight": weights,
    "gate_weight": weights,
    "residual_weight": weights,
    "skip_weight": weights,
}
_BN_DRAWS: dict[str, Draw] = {"K": weights, "scale": uniform(0.5, 1.5)}
_TAPS = ("N F C H W 9",)


def _conv(I: Array, K: Array) -> Any:
    return _convolved(I, K)


CASES: tuple[Case, ...] = (
    _case("conv2d", _conv, grid("N C H W F KH KW", (32, 4, 56, 56, 4, 3, 3)),
          grid("N C H W F KH KW", (0, 2, 3, 3, 2, 3, 3), (1, 1, 1, 1, 1, 1, 1),
               (2, 3, 5, 7, 4, 3, 2), (1, 2, 3, 3, 2, 3, 3)),
          ("N F C H W KH KW",), numpy_formula=lambda I, K: _gathered(I, K)),
    _case("group_convolution", _group_convolution,
          grid("N G C H W F KH KW", *((32, 32, c, h, h, c, 3, 3)
                                      for c, h in ((4, 56), (8, 28), (16, 14), (32, 7)))),
          grid("N G C H W F KH KW", (0, 2, 2, 3, 3, 2, 3, 3), (1, 1, 1, 1, 1, 1, 1, 1),
               (2, 3, 2, 5, 7, 4, 3, 3)),
          ("N G F C H W KH KW",)),
    _case("conv3x3_bias_relu", partial(_conv_bias_relu, pad=1), _LAYER, _SMALL_LAYER, _TAPS,
          numpy_formula=partial(_fast_conv_bias_relu, pad=1)),
    _case("conv3x3_bias_relu_nhwc", _conv_bias_relu_nhwc, _LAYER, _SMALL_LAYER, _TAPS),
    _case("conv3x3_bn_relu", _conv_bn_relu, _LAYER, _SMALL_LAYER, _TAPS, draws=_BN_DRAWS),
    _case("conv3x3_bn_relu_pool", _conv_bn_relu_pool, _LAYER, _SMALL_LAYER, _TAPS,
          draws=_BN_DRAWS),
    _case("conv3x3_bn_relu_pool_nhwc", _conv_bn_relu_pool_nhwc, _LAYER, _SMALL_LAYER, _TAPS,
          draws=_BN_DRAWS),
    _case("conv3x3_stride2", partial(_conv_bias_relu, pad=1, stride=2), _LAYER, _SMALL_LAYER,
          ("N F C H W 2.25",), numpy_formula=partial(_fast_conv_bias_relu, pad=1, stride=2)),
    _case("conv3x3_dilation2", partial(_conv_bias_relu, pad=2, dilation=2), _LAYER, _SMALL_LAYER,
          _TAPS, numpy_formula=partial(_fast_conv_bias_relu, pad=2, dilation=2)),
    _case("conv1x1_bias_relu", _conv1x1, _POINTWISE, _SMALL_LAYER, ("N F C H W",)),
    _case("conv1x1_bias_relu_nhwc", _conv1x1_nhwc, _POINTWISE, _SMALL_LAYER, ("N F C H W",)),
    _case("separable_conv", _separable, _LAYER, _SMALL_LAYER, ("N C H W 9", "N F C H W"),
          draws={"depth": weights, "point": weights}),
    _case("conv3x3_backward_data", _backward_data, _LAYER, _SMALL_LAYER, _TAPS),
    _case("conv3x3_backward_weights", _backward_weights, _LAYER, _SMALL_LAYER, _TAPS, draws={}),
    _case("wavenet", _wavenet,
          grid(_WAVENET, (1, 32, 4000, 32, 256, 1), (1, 32, 4000, 32, 256, 32)),
          grid(_WAVENET, (1, 1, 1, 1, 1, 1), (2, 3, 11, 4, 5, 3), (1, 2, 5, 3, 2, 7)),
          ("B D R T 4", "B R D T", "B S D T"), draws=_WAVENET_DRAWS),
)  # fmt: skip
