"""What a JAX user would write for each piece of a network: ``torch_networks.py`` in jax.numpy.

Half types are computed in float32 and rounded where a result is; see ``jax_peers``.
"""

import jax
import jax.numpy as jnp

from tcdsl.library import stencil_formulas
from tcdsl.library.jax_peers import Array, _gelu, _normalised, _wide

# ---- transformers ----------------------------------------------------------------------------


def bert_glue(
    attended: Array, bias1: Array, residual: Array, gamma1: Array, beta1: Array,
    inner: Array, bias2: Array, outer: Array, bias3: Array, gamma2: Array, beta2: Array,
    scores: Array, mask: Array, kept: Array, scale: float, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    s = jnp.where(mask[:, None, None], _wide(scores) * scale, -jnp.inf)
    p = jnp.where(kept, jax.nn.softmax(s, axis=-1) * 1.25, 0.0)
    h = _normalised(_wide(attended) + bias1 + residual, (1,), eps)[0] * gamma1 + beta1
    h = h.astype(attended.dtype)
    y = _normalised(_wide(outer) + bias3 + h, (1,), eps)[0] * gamma2 + beta2
    return tuple(x.astype(attended.dtype) for x in (h, _gelu(_wide(inner) + bias2), y, p))


def _root_norm(x: Array, gamma: Array, eps: float) -> Array:
    wide = _wide(x)
    return wide * jax.lax.rsqrt((wide * wide).mean(axis=1, keepdims=True) + eps) * gamma


def _turned(x: Array, cosine: Array, sine: Array) -> Array:
    cosine, sine = _wide(cosine)[:, None], _wide(sine)[:, None]
    a, b = x[:, :, :, 0], x[:, :, :, 1]
    return jnp.stack([a * cosine - b * sine, b * cosine + a * sine], axis=3)


def decoder_glue(
    x: Array, gamma1: Array, q: Array, k: Array, cosine: Array, sine: Array,
    attended: Array, gamma2: Array, gate: Array, up: Array, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    h = x + attended
    results = (
        _root_norm(x, gamma1, eps), _turned(q, cosine, sine), _turned(k, cosine, sine), h,
        _root_norm(h, gamma2, eps), jax.nn.silu(_wide(gate)) * up,
    )  # fmt: skip
    return tuple(result.astype(x.dtype) for result in results)


# ---- recurrent networks ----------------------------------------------------------------------


def lstm_steps(cell: Array, **gates: Array) -> tuple[Array, ...]:
    dtype, hidden, cell = cell.dtype, [], _wide(cell)
    for p in gates.values():
        i, f, g, o = (_wide(p[:, gate]) for gate in range(4))
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden.append(jax.nn.sigmoid(o) * jnp.tanh(cell))
    return tuple(result.astype(dtype) for result in (*hidden, cell))


def dien_gru(
    hidden: Array, attention: Array, weight: Array, clicked: Array, **gates: Array
) -> tuple[Array, Array]:
    for a, p in zip(attention, gates.values(), strict=True):
        u = a[:, None] * jax.nn.sigmoid(p[:, 0])
        t = jnp.tanh(p[:, 2] + jax.nn.sigmoid(p[:, 1]) * hidden)
        hidden = (1 - u) * hidden + u * t
    logit = (hidden * weight).sum(axis=1)
    loss = jax.nn.softplus(logit) - jnp.where(clicked, logit, 0.0)
    return hidden, loss.mean()


# ---- optimisers ------------------------------------------------------------------------------


def lamb_many(rate: float, **tensors: Array) -> tuple[Array, ...]:
    found: list[Array] = []
    for n in range(4):
        p, g, m, v = (tensors[f"{name}{n}"] for name in "pgmv")
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        u = m / (jnp.sqrt(v) + 1e-6) + 0.01 * p
        squares = (p * p).sum(), (u * u).sum()
        is_any = (squares[0] > 0) & (squares[1] > 0)
        ratio = jnp.where(is_any, jnp.sqrt(squares[0] / squares[1]), 1.0)
        found += [p - rate * ratio * u, m, v]
    return tuple(found)


def adam_clip(rate: float, limit: float, **tensors: Array) -> tuple[Array, ...]:
    squares = [(tensors[f"g{n}"] * tensors[f"g{n}"]).sum() for n in range(4)]
    length = jnp.sqrt(squares[0] + squares[1] + squares[2] + squares[3])
    scale = jnp.minimum(1.0, limit / (length + 1e-6))
    found: list[Array] = []
    for n in range(4):
        p, g, m, v = (tensors[f"{name}{n}"] for name in "pgmv")
        m, v = 0.9 * m + 0.1 * (g * scale), 0.999 * v + 0.001 * (g * scale) * (g * scale)
        found += [p - rate * m / (jnp.sqrt(v) + 1e-6), m, v]
    return tuple(found)


# ---- images ----------------------------------------------------------------------------------


def _group_block(
    x: Array, gamma: Array, beta: Array, scale: Array, shift: Array, eps: float
) -> Array:
    y = _normalised(_wide(x), (2, 3), eps)[0] * gamma[..., None] + beta[..., None]
    return jax.nn.silu(y * (1 + _wide(scale)[..., None]) + shift[..., None]).astype(x.dtype)


def unet_norms(
    x: Array, z: Array, gamma1: Array, beta1: Array, gamma2: Array, beta2: Array,
    scale: Array, shift: Array, eps: float,
) -> tuple[Array, Array]:  # fmt: skip
    a = _group_block(x, gamma1, beta1, scale, shift, eps)
    return a, _group_block(a + z, gamma2, beta2, scale, shift, eps) + x


def unet_norms_nhwc(
    x: Array, gamma: Array, beta: Array, scale: Array, shift: Array, eps: float
) -> Array:
    y = _normalised(_wide(x), (1, 3), eps)[0] * gamma + beta
    return (jax.nn.silu(y * (1 + _wide(scale)[:, None]) + shift[:, None]) + x).astype(x.dtype)


def harris(image: Array) -> Array:
    return stencil_formulas.harris(image)


def unsharp(image: Array, weight: float, threshold: float) -> Array:
    h, w, _ = image.shape
    five = 1, 4, 6, 4, 1
    across = sum(f * image[:, k : w - 4 + k] for k, f in enumerate(five)) / 16
    blur = sum(f * across[k : h - 4 + k] for k, f in enumerate(five)) / 16
    inner = image[2:-2, 2:-2]
    more = inner * (1 + weight) - blur * weight
    return jnp.where(jnp.abs(inner - blur) < threshold, inner, more)


def shallow_water(
    u: Array, v: Array, p: Array, dt: float, dx: float, dy: float
) -> tuple[Array, Array, Array]:
    def up(a: Array) -> Array:
        return jnp.roll(a, 1, 0)

    def left(a: Array) -> Array:
        return jnp.roll(a, 1, 1)

    def down(a: Array) -> Array:
        return jnp.roll(a, -1, 0)

    def right(a: Array) -> Array:
        return jnp.roll(a, -1, 1)

    cu, cv = 0.5 * (p + up(p)) * u, 0.5 * (p + left(p)) * v
    z = 4 * ((v - up(v)) / dx - (u - left(u)) / dy) / (up(left(p)) + left(p) + p + up(p))
    h = p + 0.25 * (down(u) ** 2 + u**2 + right(v) ** 2 + v**2)
    around_v = right(cv) + up(right(cv)) + up(cv) + cv
    around_u = down(cu) + down(left(cu)) + left(cu) + cu
    return (
        u + dt * (0.125 * (right(z) + z) * around_v - (h - up(h)) / dx),
        v - dt * (0.125 * (down(z) + z) * around_u + (h - left(h)) / dy),
        p - dt * ((down(cu) - cu) / dx + (right(cv) - cv) / dy),
    )


# ---- losses, metrics -------------------------------------------------------------------------


def smoothed_loss(logits: Array, labels: Array) -> tuple[Array, Array, Array]:
    own = _wide(logits)
    lse = jax.nn.logsumexp(own, axis=1)
    chosen = _wide(jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0])
    loss = lse - 0.9 * chosen - 0.1 * own.mean(axis=1)
    right = (own.argmax(axis=1) == labels).astype(own.dtype)
    return loss.mean(), (lse * lse).mean(), right.mean()


def vae_loss(mu: Array, logvar: Array, noise: Array, x: Array, made: Array) -> tuple[Array, Array]:
    mean, spread = _wide(mu), _wide(logvar)
    sample = mean + jnp.exp(0.5 * spread) * noise
    kl = -0.5 * (1 + spread - mean * mean - jnp.exp(spread)).sum(axis=1)
    error = jnp.square(_wide(made) - _wide(x))
    return sample.astype(mu.dtype), (error.sum(axis=1) + kl).mean()


def focal_loss(logits: Array, labels: Array) -> tuple[Array, Array]:
    own = _wide(logits)
    p = jax.nn.sigmoid(jnp.where(labels, own, -own))
    loss = -jnp.log(jnp.maximum(p, 1e-7))
    q = 1 - p
    gradient = -q * q * (q + 2 * p * loss)
    return (q * q * loss).mean(), jnp.where(labels, gradient, -gradient).astype(logits.dtype)


def moe_gate(logits: Array) -> tuple[Array, ...]:
    tokens, experts = logits.shape
    p = jax.nn.softmax(logits, axis=1)
    first, best = p.argmax(axis=1), p.max(axis=1)
    rest = jnp.where(jnp.arange(experts) == first[:, None], -1.0, p)
    second, next_best = rest.argmax(axis=1), rest.max(axis=1)
    count = jnp.zeros(experts, jnp.int32).at[first].add(1)
    balance = (p.sum(axis=0) * count).sum() * experts / (float(tokens) * float(tokens))
    total = best + next_best
    return (
        first.astype(jnp.int64), second.astype(jnp.int64), best / total, next_best / total,
        balance.astype(p.dtype), count,
    )  # fmt: skip


def batch_metrics(x: Array) -> tuple[Array, ...]:
    mean, var = x.mean(axis=0), x.var(axis=0)
    skew = ((x - mean) ** 3).mean(axis=0) / (var * jnp.sqrt(var) + 1e-6)
    number = jnp.clip((8 * x + 32).astype(jnp.int32), 0, 63)
    columns = jnp.arange(x.shape[1])
    bins = jnp.zeros((x.shape[1], 64), jnp.int32).at[columns, number].add(1)
    best = x.argmax(axis=0).astype(jnp.int64)
    return mean, var, skew, x.min(axis=0), x.max(axis=0), best, bins


def kmeans_step(x: Array, products: Array, norms: Array) -> tuple[Array, ...]:
    nearest = (norms - 2 * products).argmin(axis=1).astype(jnp.int32)
    count = jnp.zeros(len(norms), jnp.int32).at[nearest].add(1)
    sums = jnp.zeros((len(norms), x.shape[1]), x.dtype).at[nearest].add(x)
    return nearest, count, sums / jnp.maximum(count, 1).astype(x.dtype)[:, None]
