"""The memory-bound graphs: softmax, normalisations, losses, optimisers, and trials of the planner.

Sizes are those of FusionStitching (2020), AStitch (ASPLOS 2022), Panamera (PACT 2022), DeepCuts
(PLDI 2021) and QuACK.  The formulas are written from the mathematics, not from the programs.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Unpack

import numpy as np

from tcdsl.library.case import COMPUTED, ELEMENT, Case, Details, grid
from tcdsl.library.draws import Array, Draw, Sizes, below, mask, uniform, value

_EPS = value(1e-5)
_POSITIVE = uniform(0.5, 1.5)

_SOFTMAX = grid(
    "M N", (8192, 4096), (32 * 12 * 128, 128), (1024, 36560), (8, 15), (64, 2**20), (2**20, 64)
)
# Those of QuACK's tables, hand-written row kernels; (16384, 4096) of rmsnorm is among the rows.
_QUACK = grid("M N", (32768, 1024), (16384, 4096), (8192, 16384), (4096, 65536), (2048, 131072))
_QUACK_NORM = grid("M N", (32768, 1024), (8192, 16384), (4096, 65536))
_QUACK_LABELLED = grid("B V", (16384, 4096), (4096, 50304), (2048, 131072))
_ATTENTION = grid("B H Q K", (64, 12, 128, 128))
_ROWS = grid("M N", (16384, 4096), (8192, 768), (128, 1024), (2048, 1024))
_WIDE_ROWS = grid("M N", (16384, 4096), (8192, 768))
_IMAGES = grid("N C H W", (32, 256, 56, 56), (32, 64, 56, 56))
_IMAGES_NHWC = grid("N H W C", (32, 7, 7, 256))

_SMALL_ROWS = grid("M N", (0, 5), (1, 1), (3, 7), (17, 131))
_SMALL_ATTENTION = grid("B H Q K", (0, 2, 3, 4), (1, 1, 1, 1), (2, 3, 5, 7))
_SMALL_IMAGES = grid("N C H W", (1, 1, 1, 2), (2, 3, 5, 7), (5, 2, 4, 4))
_SMALL_IMAGES_NHWC = grid("N H W C", (1, 1, 2, 1), (2, 5, 7, 3), (5, 4, 4, 2))
_SMALL_VECTORS = grid("N", (1,), (7,), (1031,))


def _case(
    name: str,
    file: str,
    formula: Callable[..., Any],
    sizes: tuple[Sizes, ...],
    small_sizes: tuple[Sizes, ...],
    draws: Mapping[str, Draw] | None = None,
    **details: Unpack[Details],
) -> Case:
    return Case(
        name=name, family="graph", file=file, def_name=name, formula=formula, sizes=sizes,
        small_sizes=small_sizes, draws=draws or {}, **details,
    )  # fmt: skip


# ---- elementwise -----------------------------------------------------------------------------


def erf(x: Array) -> Array:
    """Return the error function of each element, in its own type."""
    if fast := _scipy_erf():
        return fast(x)
    flat = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return flat.reshape(x.shape).astype(x.dtype)


@cache
def _scipy_erf() -> Callable[[Array], Array] | None:
    """Return SciPy's erf, or None: NumPy has none, and SciPy may not be installed."""
    try:
        function: Callable[[Array], Array] = import_module("scipy.special").erf
    except ImportError:
        return None
    return function


_ROOT_OF_HALF = math.sqrt(0.5)


def _gelu(x: Array) -> Any:
    return 0.5 * x * (1 + erf(x * x.dtype.type(_ROOT_OF_HALF)))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


# ---- softmax ---------------------------------------------------------------------------------


def _softmax(x: Array) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=-1, keepdims=True)


def _log_softmax(x: Array) -> Any:
    shifted = x - x.max(axis=-1, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _masked_softmax(scores: Array, mask: Array, scale: Array) -> Any:
    return _softmax(np.where(mask[:, None], scores * scale, -np.inf))


def _softmax_backward(y: Array, dy: Array) -> Any:
    return y * (dy - (y * dy).sum(axis=-1, keepdims=True))


_SOFTMAXES = (
    _case("softmax", "softmax", _softmax, _SOFTMAX + _QUACK, _SMALL_ROWS),
    _case("log_softmax", "softmax", _log_softmax, _SOFTMAX, _SMALL_ROWS),
    _case("masked_softmax", "softmax", _masked_softmax, _ATTENTION, _SMALL_ATTENTION,
          {"mask": mask, "scale": value(0.125)}),
    _case("softmax_backward", "softmax", _softmax_backward, _ATTENTION, _SMALL_ATTENTION,
          {"y": uniform(0.0, 0.05)}),
)  # fmt: skip

# ---- normalisations --------------------------------------------------------------------------


def _normalised(x: Array, axes: tuple[int, ...], eps: Array) -> tuple[Array, Array, Array]:
    """Return (xhat, mean, rstd) over *axes*, which are kept with extent 1."""
    mean = x.mean(axis=axes, keepdims=True)
    rstd = 1 / np.sqrt(x.var(axis=axes, keepdims=True) + eps)
    return (x - mean) * rstd, mean, rstd


def _layernorm(x: Array, gamma: Array, beta: Array, eps: Array) -> Array:
    return _normalised(x, (1,), eps)[0] * gamma + beta


def _layernorm_backward(
    x: Array, dy: Array, gamma: Array, mean: Array, rstd: Array
) -> tuple[Array, Array, Array]:
    xhat = (x - mean[:, None]) * rstd[:, None]
    g = dy * gamma
    inner = g.mean(axis=1, keepdims=True) + xhat * (g * xhat).mean(axis=1, keepdims=True)
    return rstd[:, None] * (g - inner), (dy * xhat).sum(axis=0), dy.sum(axis=0)


def _rmsnorm(x: Array, gamma: Array, eps: Array) -> Any:
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * gamma


def _bias_gelu_residual_layernorm(
    x: Array, bias: Array, residual: Array, gamma: Array, beta: Array, eps: Array
) -> Array:
    return _layernorm(_gelu(x + bias) + residual, gamma, beta, eps)


def _group_norm(x: Array, gamma: Array, beta: Array, eps: Array) -> Array:
    xhat = _normalised(x, (2, 3, 4), eps)[0]
    return xhat * gamma[:, :, None, None] + beta[:, :, None, None]


def _along_channel(v: Array, rank: int, channel: int) -> Array:
    """Return the vector *v* as an array of *rank* that broadcasts along axis *channel*."""
    return v.reshape([-1 if axis == channel else 1 for axis in range(rank)])


def _batchnorm(channel: int, activation: Callable[[Array], Array] | None) -> Callable[..., Any]:
    """Return batch normalisation; (y, mean, rstd) without an activation, else y alone."""
    axes = tuple(axis for axis in range(4) if axis != channel)

    def formula(x: Array, gamma: Array, beta: Array, eps: Array) -> Any:
        xhat, mean, rstd = _normalised(x, axes, eps)
        y = xhat * _along_channel(gamma, 4, channel) + _along_channel(beta, 4, channel)
        return activation(y) if activation else (y, mean.ravel(), rstd.ravel())

    return formula


def _batchnorm_running(
    x: Array, gamma: Array, beta: Array, running_mean: Array, running_var: Array,
    momentum: Array, eps: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    y, mean, _ = _batchnorm(1, None)(x, gamma, beta, eps)
    var = x.var(axis=(0, 2, 3))
    return (
        y,
        running_mean + momentum * (mean - running_mean),
        running_var + momentum * (var - running_var),
    )


def _batchnorm_backward(channel: int) -> Callable[..., tuple[Array, Array, Array]]:
    axes = tuple(axis for axis in range(4) if axis != channel)

    def formula(
        x: Array, dy: Array, gamma: Array, mean: Array, rstd: Array
    ) -> tuple[Array, Array, Array]:
        xhat = (x - _along_channel(mean, 4, channel)) * _along_channel(rstd, 4, channel)
        inner = dy.mean(axis=axes, keepdims=True)
        inner = inner + xhat * (dy * xhat).mean(axis=axes, keepdims=True)
        dx = _along_channel(gamma * rstd, 4, channel) * (dy - inner)
        return dx, (dy * xhat).sum(axis=axes), dy.sum(axis=axes)

    return formula


_NORM_DRAWS = {"gamma": _POSITIVE, "eps": _EPS}
_BACKWARD_DRAWS = {"gamma": _POSITIVE, "rstd": _POSITIVE}
_NORMS = (
    _case("layernorm", "norms", _layernorm, _ROWS, _SMALL_ROWS, _NORM_DRAWS),
    _case("layernorm_backward", "norms", _layernorm_backward, _ROWS, _SMALL_ROWS, _BACKWARD_DRAWS),
    _case("rmsnorm", "norms", _rmsnorm, _ROWS + _QUACK_NORM, _SMALL_ROWS, _NORM_DRAWS),
    _case("bias_gelu_residual_layernorm", "norms", _bias_gelu_residual_layernorm, _WIDE_ROWS,
          _SMALL_ROWS, _NORM_DRAWS),
    _case("group_norm", "norms", _group_norm,
          grid("N G D H W", (4, 32, 16, 12, 12), (32, 32, 16, 48, 48)),
          grid("N G D H W", (0, 2, 3, 2, 2), (1, 1, 1, 1, 2), (2, 3, 2, 5, 3)), _NORM_DRAWS),
    _case("batchnorm", "norms", _batchnorm(1, None), _IMAGES, _SMALL_IMAGES, _NORM_DRAWS,
          results=(ELEMENT, COMPUTED, COMPUTED)),
    _case("batchnorm_nhwc", "norms", _batchnorm(3, None), _IMAGES_NHWC, _SMALL_IMAGES_NHWC,
          _NORM_DRAWS, results=(ELEMENT, COMPUTED, COMPUTED)),
    _case("batchnorm_running", "norms", _batchnorm_running, _IMAGES, _SMALL_IMAGES,
          _NORM_DRAWS | {"running_var": _POSITIVE, "momentum": value(0.1)}),
    _case("batchnorm_relu", "norms", _batchnorm(1, _relu), _IMAGES, _SMALL_IMAGES, _NORM_DRAWS),
    _case("batchnorm_relu_nhwc", "norms", _batchnorm(3, _relu), _IMAGES_NHWC, _SMALL_IMAGES_NHWC,
          _NORM_DRAWS),
    _case("batchnorm_gelu", "norms", _batchnorm(1, _gelu), _IMAGES, _SMALL_IMAGES, _NORM_DRAWS),
    _case("batchnorm_gelu_nhwc", "norms", _batchnorm(3, _gelu), _IMAGES_NHWC, _SMALL_IMAGES_NHWC,
          _NORM_DRAWS),
    _case("batchnorm_backward", "norms", _batchnorm_backward(1), _IMAGES, _SMALL_IMAGES,
          _BACKWARD_DRAWS),
    _case("batchnorm_backward_nhwc", "norms", _batchnorm_backward(3), _IMAGES_NHWC,
          _SMALL_IMAGES_NHWC, _BACKWARD_DRAWS),
)  # fmt: skip

# ---- losses ----------------------------------------------------------------------------------


def _cross_entropy(logits: Array, labels: Array) -> Any:
    chosen = np.take_along_axis(_log_softmax(logits), labels[:, None], axis=1)
    return -chosen.mean()


def _cross_entropy_backward(logits: Array, labels: Array) -> Any:
    gradient = _softmax(logits)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient / len(labels)


def _mse(x: Array, target: Array) -> Any:
    return np.square(x - target).mean()


def _l2_loss(x: Array) -> Any:
    return np.vdot(x, x) / 2


def _grad_norm(g: Array, limit: Array) -> tuple[Array, Any]:
    norm = np.sqrt(np.vdot(g, g))
    return g * np.minimum(1.0, limit / (norm + 1e-6)), norm


def _gelu_backward(x: Array, bias: Array, dy: Array) -> tuple[Array, Array]:
    h = x + bias
    cdf = 0.5 * (1 + erf(h * h.dtype.type(_ROOT_OF_HALF)))
    pdf = h.dtype.type(0.3989422804014327) * np.exp(-0.5 * h * h)
    dx = dy * (cdf + h * pdf)
    return dx, dx.sum(axis=0)


_LABELLED = grid("B V", (4096, 50257), (320, 21128))
_SMALL_LABELLED = grid("B V", (1, 1), (3, 7), (17, 131))
_LOSSES = (
    _case("cross_entropy", "losses", _cross_entropy, _LABELLED + _QUACK_LABELLED, _SMALL_LABELLED,
          {"labels": below("V")}, results=(COMPUTED,)),
    _case("cross_entropy_backward", "losses", _cross_entropy_backward, _LABELLED, _SMALL_LABELLED,
          {"labels": below("V")}),
    _case("mse", "losses", _mse, grid("N", (640000,), (2**26,)), _SMALL_VECTORS,
          results=(COMPUTED,)),
    _case("l2_loss", "losses", _l2_loss, grid("M N", (8000, 80), (8192, 8192)), _SMALL_ROWS,
          results=(COMPUTED,)),
    _case("grad_norm", "losses", _grad_norm, grid("N", (640000,), (2**26,)), _SMALL_VECTORS,
          {"limit": value(1.0)}, results=(ELEMENT, COMPUTED)),
    _case("gelu_backward", "losses", _gelu_backward, grid("M N", (2048, 3072)), _SMALL_ROWS),
)  # fmt: skip

# ---- optimisers ------------------------------------------------------------------------------


def _moved_moments(g: Array, m: Array, v: Array, beta1: Array, beta2: Array) -> tuple[Array, Array]:
    return beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * np.square(g)


def _adam(
    p: Array, g: Array, m: Array, v: Array, rate: Array, beta1: Array, beta2: Array, eps: Array,
    correction1: Array, correction2: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    m, v = _moved_moments(g, m, v, beta1, beta2)
    return p - rate * (m / correction1) / (np.sqrt(v / correction2) + eps), m, v


def _lamb(
    p: Array, g: Array, m: Array, v: Array, rate: Array, beta1: Array, beta2: Array, eps: Array,
    decay: Array, correction1: Array, correction2: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    m, v = _moved_moments(g, m, v, beta1, beta2)
    u = (m / correction1) / (np.sqrt(v / correction2) + eps) + decay * p
    lengths = float(np.vdot(p, p)) ** 0.5, float(np.vdot(u, u)) ** 0.5
    ratio = lengths[0] / lengths[1] if min(lengths) > 0 else 1.0
    return p - rate * ratio * u, m, v


_ADAM_DRAWS = {
    "v": _POSITIVE, "rate": value(0.01), "beta1": value(0.9), "beta2": value(0.999),
    "eps": value(1e-8), "decay": value(0.01), "correction1": value(1 - 0.9**10),
    "correction2": value(1 - 0.999**10),
}  # fmt: skip
_OPTIMISERS = (
    _case("adam", "optimisers", _adam, grid("N", (21128 * 768,), (2**26,)),
          grid("N", (0,), (1,), (7,), (1031,)), _ADAM_DRAWS),
    _case("lamb", "optimisers", _lamb, grid("M N", (21128, 768), (8192, 8192)), _SMALL_ROWS,
          _ADAM_DRAWS),
)  # fmt: skip

# ---- trials of the planner -------------------------------------------------------------------


def _four_graphs(x0: Array, x1: Array, x2: Array, x3: Array) -> tuple[Array, ...]:
    return _softmax(x0), x1.mean(axis=1), x2.sum(axis=0), x3 * _sigmoid(x3)


def _eight_graphs(
    x0: Array, x1: Array, x2: Array, x3: Array, x4: Array, x5: Array, x6: Array, x7: Array
) -> tuple[Any, ...]:
    return (
        _softmax(x0), x1.mean(axis=1), x2.mean(axis=0), x2.var(axis=0), x3.T.copy(), _relu(x4),
        np.vdot(x5, x5), np.tanh(x6), _softmax(x7),
    )  # fmt: skip


def _power_chain(x: Array) -> Any:
    p = (x / x.sum(axis=1, keepdims=True)) ** 1.5
    return p * p.sum(axis=1, keepdims=True)


def _expensive_fan_out(x: Array) -> tuple[Array, Array]:
    t = np.tanh(x) * np.exp(-x * x)
    return t - t.min(axis=1, keepdims=True, initial=np.inf), t.sum(axis=1)


_FOUR = "M0 N0 M1 N1 M2 N2 K"
_EIGHT = "M0 N0 M1 N1 M2 N2 M3 N3 K4 K5 K6 M7 N7"
_TRIALS = (
    _case("four_graphs", "graphs", _four_graphs,
          grid(_FOUR, (1024, 768, 4096, 128, 512, 1024, 100000)),
          grid(_FOUR, (1, 1, 1, 1, 1, 1, 1), (3, 7, 5, 2, 11, 4, 13))),
    _case("eight_graphs", "graphs", _eight_graphs,
          grid(_EIGHT, (1024, 768, 4096, 128, 512, 1024, 700, 300, 100000, 65536, 3072, 64, 4096)),
          grid(_EIGHT, (1,) * 13, (3, 7, 5, 2, 11, 4, 3, 5, 13, 17, 1, 2, 31)),
          results=(*(ELEMENT,) * 6, COMPUTED, ELEMENT, ELEMENT)),
    _case("power_broadcast", "graphs", lambda x, z: (x**2.5)[:, None] + z,
          grid("A B", (2, 128), (4096, 1024)), grid("A B", (0, 3), (1, 1), (2, 128), (7, 13)),
          {"x": _POSITIVE}),
    _case("power_chain", "graphs", _power_chain, grid("M N", (2, 128), (8192, 1024)),
          _SMALL_ROWS, {"x": _POSITIVE}),
    _case("expensive_fan_out", "graphs", _expensive_fan_out, grid("M N", (2, 128), (8192, 1024)),
          _SMALL_ROWS),
)  # fmt: skip

CASES: tuple[Case, ...] = (*_SOFTMAXES, *_NORMS, *_LOSSES, *_OPTIMISERS, *_TRIALS)
