"""What a JAX user would write for each reduction and each graph: ``torch_peers.py`` in jax.numpy.

The same names in the same order, so that the two forms of a case are found beside each other.
Imported only when asked for, since JAX is optional; ``tcdsl bench`` runs these through ``jax.jit``,
that is XLA.  A host scalar is a Python number.  Half types are computed in float32, which XLA fuses
with what reads them, as the programs themselves do.
"""

from typing import Any

import jax
import jax.numpy as jnp

# jax.Array.  Any, so that type checking says the same with JAX installed and without.
Array = Any


def _wide(x: Array) -> Array:
    """Return *x* in the type that its element type is computed in."""
    return x.astype(jnp.float32) if x.dtype.itemsize == 2 else x


# ---- reductions (dtype= keeps JAX from widening sums of integers to int64) ---------------------


def all_sum(x: Array) -> Array:
    return x.sum(dtype=x.dtype)


def all_prod(x: Array) -> Array:
    return x.prod(dtype=x.dtype)


def all_max(x: Array) -> Array:
    return x.max()


def all_min(x: Array) -> Array:
    return x.min()


def all_and(x: Array) -> Array:
    return x.all()


def all_or(x: Array) -> Array:
    return x.any()


def row_sum(x: Array) -> Array:
    return x.sum(axis=1, dtype=x.dtype)


def row_sum_float32(x: Array) -> Array:
    return x.sum(axis=1, dtype=jnp.float32)


def row_max(x: Array) -> Array:
    return x.max(axis=1)


def row_min(x: Array) -> Array:
    return x.min(axis=1)


def row_prod(x: Array) -> Array:
    return x.prod(axis=1, dtype=x.dtype)


def row_and(x: Array) -> Array:
    return x.all(axis=1)


def row_or(x: Array) -> Array:
    return x.any(axis=1)


def row_argmax(x: Array) -> Array:
    return x.argmax(axis=1)


def row_argmin(x: Array) -> Array:
    return x.argmin(axis=1)


def row_moments(x: Array) -> tuple[Array, Array]:
    return x.mean(axis=1), x.var(axis=1)


def column_sum(x: Array) -> Array:
    return x.sum(axis=0, dtype=x.dtype)


def column_max(x: Array) -> Array:
    return x.max(axis=0)


def column_or(x: Array) -> Array:
    return x.any(axis=0)


def middle_sum(x: Array) -> Array:
    return x.sum(axis=1, dtype=x.dtype)


def middle_max(x: Array) -> Array:
    return x.max(axis=1)


def channel_sum(x: Array) -> Array:
    return x.sum(axis=(0, 2, 3), dtype=x.dtype)


def channel_sum_nhwc(x: Array) -> Array:
    return x.sum(axis=(0, 1, 2), dtype=x.dtype)


def channel_max(x: Array) -> Array:
    return x.max(axis=(0, 2, 3))


def dot(a: Array, b: Array) -> Array:
    return (_wide(a) * _wide(b)).sum(dtype=_wide(a).dtype).astype(a.dtype)


def _fused(a: Array, b: Array, c: Array) -> Array:
    return (_wide(a) + _wide(b)) * _wide(c)


def fused_column_sum(a: Array, b: Array, c: Array) -> Array:
    return _fused(a, b, c).sum(axis=0).astype(a.dtype)


def fused_sum_first(a: Array, b: Array, c: Array) -> Array:
    return _fused(a, b, c).sum(axis=0).astype(a.dtype)


def fused_sum_first_two(a: Array, b: Array, c: Array) -> Array:
    return _fused(a, b, c).sum(axis=(0, 1)).astype(a.dtype)


def two_branches(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    product, difference = _wide(a) * _wide(b), _wide(c) - _wide(d)
    return product.sum(axis=0).astype(a.dtype), difference.sum(axis=0).astype(a.dtype)


def two_branches_shared(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    return fused_column_sum(a, b, c), fused_column_sum(a, -b, c)


# ---- softmax ---------------------------------------------------------------------------------


def softmax(x: Array) -> Array:
    return jax.nn.softmax(_wide(x), axis=-1).astype(x.dtype)


def log_softmax(x: Array) -> Array:
    return jax.nn.log_softmax(_wide(x), axis=-1).astype(x.dtype)


def masked_softmax(scores: Array, mask: Array, scale: float) -> Array:
    scaled = jnp.where(mask[:, None], _wide(scores) * scale, -jnp.inf)
    return jax.nn.softmax(scaled, axis=-1).astype(scores.dtype)


def softmax_backward(y: Array, dy: Array) -> Array:
    p, g = _wide(y), _wide(dy)
    return (p * (g - (p * g).sum(axis=-1, keepdims=True))).astype(y.dtype)


# ---- normalisations --------------------------------------------------------------------------


def _normalised(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """Return (xhat, mean, rstd) over *axes*, which are kept with extent 1."""
    mean = x.mean(axis=axes, keepdims=True)
    rstd = jax.lax.rsqrt(x.var(axis=axes, keepdims=True) + eps)
    return (x - mean) * rstd, mean, rstd


def layernorm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return (_normalised(_wide(x), (1,), eps)[0] * gamma + beta).astype(x.dtype)


def layernorm_backward(
    x: Array, dy: Array, gamma: Array, mean: Array, rstd: Array
) -> tuple[Array, ...]:
    xhat = (_wide(x) - mean[:, None]) * rstd[:, None]
    upstream = _wide(dy)
    g = upstream * gamma
    inner = g.mean(axis=1, keepdims=True) + xhat * (g * xhat).mean(axis=1, keepdims=True)
    results = rstd[:, None] * (g - inner), (upstream * xhat).sum(axis=0), upstream.sum(axis=0)
    return tuple(result.astype(x.dtype) for result in results)


def rmsnorm(x: Array, gamma: Array, eps: float) -> Array:
    wide = _wide(x)
    rms = jax.lax.rsqrt((wide * wide).mean(axis=1, keepdims=True) + eps)
    return (wide * rms * gamma).astype(x.dtype)


def _gelu(x: Array) -> Array:
    return jax.nn.gelu(x, approximate=False)


def bias_gelu_residual_layernorm(
    x: Array, bias: Array, residual: Array, gamma: Array, beta: Array, eps: float
) -> Array:
    summed = _gelu(_wide(x) + bias) + residual
    return (_normalised(summed, (1,), eps)[0] * gamma + beta).astype(x.dtype)


def group_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    xhat = _normalised(_wide(x), (2, 3, 4), eps)[0]
    return (xhat * gamma[:, :, None, None] + beta[:, :, None, None]).astype(x.dtype)


def _along(v: Array, channel: int) -> Array:
    """Return the vector *v* as an array that broadcasts along axis *channel* of four."""
    return v.reshape([-1 if axis == channel else 1 for axis in range(4)])


def _axes_but(channel: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(4) if axis != channel)


def _batchnorm(
    x: Array, gamma: Array, beta: Array, eps: float, channel: int
) -> tuple[Array, Array, Array]:
    xhat, mean, rstd = _normalised(_wide(x), _axes_but(channel), eps)
    return xhat * _along(gamma, channel) + _along(beta, channel), mean.ravel(), rstd.ravel()


def batchnorm(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, ...]:
    y, mean, rstd = _batchnorm(x, gamma, beta, eps, 1)
    return y.astype(x.dtype), mean, rstd


def batchnorm_nhwc(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, ...]:
    y, mean, rstd = _batchnorm(x, gamma, beta, eps, 3)
    return y.astype(x.dtype), mean, rstd


def batchnorm_running(
    x: Array,
    gamma: Array,
    beta: Array,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> tuple[Array, ...]:
    y, mean, _ = _batchnorm(x, gamma, beta, eps, 1)
    var = _wide(x).var(axis=(0, 2, 3))
    moved = (
        y,
        running_mean + momentum * (mean - running_mean),
        running_var + momentum * (var - running_var),
    )
    return tuple(result.astype(x.dtype) for result in moved)


def batchnorm_relu(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return jax.nn.relu(_batchnorm(x, gamma, beta, eps, 1)[0]).astype(x.dtype)


def batchnorm_relu_nhwc(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return jax.nn.relu(_batchnorm(x, gamma, beta, eps, 3)[0]).astype(x.dtype)


def batchnorm_gelu(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return _gelu(_batchnorm(x, gamma, beta, eps, 1)[0]).astype(x.dtype)


def batchnorm_gelu_nhwc(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return _gelu(_batchnorm(x, gamma, beta, eps, 3)[0]).astype(x.dtype)


def _batchnorm_backward(
    x: Array, dy: Array, gamma: Array, mean: Array, rstd: Array, channel: int
) -> tuple[Array, ...]:
    axes = _axes_but(channel)
    upstream = _wide(dy)
    xhat = (_wide(x) - _along(mean, channel)) * _along(rstd, channel)
    inner = upstream.mean(axis=axes, keepdims=True)
    inner = inner + xhat * (upstream * xhat).mean(axis=axes, keepdims=True)
    results = (
        _along(_wide(gamma) * rstd, channel) * (upstream - inner),
        (upstream * xhat).sum(axis=axes),
        upstream.sum(axis=axes),
    )
    return tuple(result.astype(x.dtype) for result in results)


def batchnorm_backward(
    x: Array, dy: Array, gamma: Array, mean: Array, rstd: Array
) -> tuple[Array, ...]:
    return _batchnorm_backward(x, dy, gamma, mean, rstd, 1)


def batchnorm_backward_nhwc(
    x: Array, dy: Array, gamma: Array, mean: Array, rstd: Array
) -> tuple[Array, ...]:
    return _batchnorm_backward(x, dy, gamma, mean, rstd, 3)


# ---- losses and optimisers -------------------------------------------------------------------


def cross_entropy(logits: Array, labels: Array) -> Array:
    chosen = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return (jax.nn.logsumexp(_wide(logits), axis=1) - chosen).mean()


def cross_entropy_backward(logits: Array, labels: Array) -> Array:
    probabilities = jax.nn.softmax(_wide(logits), axis=1)
    chosen = jax.nn.one_hot(labels, logits.shape[1], dtype=probabilities.dtype)
    return ((probabilities - chosen) / len(logits)).astype(logits.dtype)


def mse(x: Array, target: Array) -> Array:
    return jnp.square(_wide(x) - _wide(target)).mean()


def l2_loss(x: Array) -> Array:
    return jnp.square(_wide(x)).sum() / 2


def grad_norm(g: Array, limit: float) -> tuple[Array, Array]:
    wide = _wide(g)
    norm = jnp.sqrt(jnp.square(wide).sum())
    return (wide * jnp.minimum(1.0, limit / (norm + 1e-6))).astype(g.dtype), norm


def gelu_backward(x: Array, bias: Array, dy: Array) -> tuple[Array, Array]:
    h = _wide(x) + bias
    cdf = 0.5 * (1 + jax.lax.erf(h * 0.7071067811865476))
    pdf = 0.3989422804014327 * jnp.exp(-0.5 * h * h)
    dx = _wide(dy) * (cdf + h * pdf)
    return dx.astype(x.dtype), dx.sum(axis=0).astype(x.dtype)


def _moved_moments(g: Array, m: Array, v: Array, beta1: float, beta2: float) -> tuple[Array, Array]:
    wide = _wide(g)
    return beta1 * _wide(m) + (1 - beta1) * wide, beta2 * _wide(v) + (1 - beta2) * wide * wide


def adam(
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    correction1: float,
    correction2: float,
) -> tuple[Array, ...]:
    moved, spread = _moved_moments(g, m, v, beta1, beta2)
    step = (moved / correction1) / (jnp.sqrt(spread / correction2) + eps)
    return tuple(result.astype(p.dtype) for result in (_wide(p) - rate * step, moved, spread))


def lamb(
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    rate: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    correction1: float,
    correction2: float,
) -> tuple[Array, ...]:
    moved, spread = _moved_moments(g, m, v, beta1, beta2)
    wide = _wide(p)
    u = (moved / correction1) / (jnp.sqrt(spread / correction2) + eps) + decay * wide
    of_layer, of_step = jnp.sqrt(jnp.square(wide).sum()), jnp.sqrt(jnp.square(u).sum())
    ratio = jnp.where((of_layer > 0) & (of_step > 0), of_layer / of_step, 1.0)
    return tuple(result.astype(p.dtype) for result in (wide - rate * ratio * u, moved, spread))


# ---- trials of the planner -------------------------------------------------------------------


def four_graphs(x0: Array, x1: Array, x2: Array, x3: Array) -> tuple[Array, ...]:
    wide = _wide(x3)
    silu = (wide * jax.nn.sigmoid(wide)).astype(x3.dtype)
    return softmax(x0), x1.mean(axis=1), x2.sum(axis=0), silu


def eight_graphs(
    x0: Array, x1: Array, x2: Array, x3: Array, x4: Array, x5: Array, x6: Array, x7: Array
) -> tuple[Array, ...]:
    return (
        softmax(x0),
        x1.mean(axis=1),
        x2.mean(axis=0),
        x2.var(axis=0),
        x3.T,
        jax.nn.relu(x4),
        jnp.square(_wide(x5)).sum(),
        jnp.tanh(_wide(x6)).astype(x6.dtype),
        softmax(x7),
    )


def power_broadcast(x: Array, z: Array) -> Array:
    return ((_wide(x) ** 2.5)[:, None] + z).astype(x.dtype)


def power_chain(x: Array) -> Array:
    wide = _wide(x)
    p = (wide / wide.sum(axis=1, keepdims=True)) ** 1.5
    return (p * p.sum(axis=1, keepdims=True)).astype(x.dtype)


def expensive_fan_out(x: Array) -> tuple[Array, Array]:
    wide = _wide(x)
    t = jnp.tanh(wide) * jnp.exp(-wide * wide)
    return (t - t.min(axis=1, keepdims=True)).astype(x.dtype), t.sum(axis=1).astype(x.dtype)
