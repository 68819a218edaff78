"""Pieces of networks and pipelines, of 4 to 80 statements: what a search for plans is for.

They are what lies between products of matrices: norms, gates, losses, optimisers, and chains of
stencils.  Sizes are those of the networks.  The formulas are written from the mathematics.
"""

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from tcdsl.library.case import COMPUTED, ELEMENT, Case, Details, Formula, grid
from tcdsl.library.draws import Array, Draw, Sizes, below, mask, uniform, value
from tcdsl.library.graphs import _gelu, _normalised, _rmsnorm, _sigmoid, _softmax

_EPS = value(1e-5)
_RATE = value(0.01)
_POSITIVE = uniform(0.5, 1.5)
_BERT = "R N F B A Q K"
_DECODER = "R N F B S A C D"
_LAMB = "A B C D E F G H"


# ---- transformers ----------------------------------------------------------------------------


def _layer_norm(h: Array, gamma: Array, beta: Array, eps: Array) -> Array:
    return _normalised(h, (1,), eps)[0] * gamma + beta


def _bert_glue(
    attended: Array, bias1: Array, residual: Array, gamma1: Array, beta1: Array, inner: Array,
    bias2: Array, outer: Array, bias3: Array, gamma2: Array, beta2: Array, scores: Array,
    mask: Array, kept: Array, scale: Array, eps: Array,
) -> tuple[Array, ...]:  # fmt: skip
    p = _softmax(np.where(mask[:, None, None], scores * scale, -np.inf))
    h = _layer_norm(attended + bias1 + residual, gamma1, beta1, eps)
    y = _layer_norm(outer + bias3 + h, gamma2, beta2, eps)
    return h, _gelu(inner + bias2), y, np.where(kept, p * 1.25, 0)


def _turned(x: Array, cosine: Array, sine: Array) -> Array:
    cosine, sine = cosine[:, None], sine[:, None]
    a, b = x[:, :, :, 0], x[:, :, :, 1]
    return np.stack([a * cosine - b * sine, b * cosine + a * sine], axis=3)


def _decoder_glue(
    x: Array, gamma1: Array, q: Array, k: Array, cosine: Array, sine: Array, attended: Array,
    gamma2: Array, gate: Array, up: Array, eps: Array,
) -> tuple[Array, ...]:  # fmt: skip
    h = x + attended
    return (
        _rmsnorm(x, gamma1, eps), _turned(q, cosine, sine), _turned(k, cosine, sine), h,
        _rmsnorm(h, gamma2, eps), gate * _sigmoid(gate) * up,
    )  # fmt: skip


# ---- recurrent networks ----------------------------------------------------------------------


def _lstm_steps(cell: Array, **gates: Array) -> tuple[Array, ...]:
    hidden = []
    for p in gates.values():
        i, f, g, o = (p[:, gate] for gate in range(4))
        cell = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
        hidden.append(_sigmoid(o) * np.tanh(cell))
    return (*hidden, cell)


def _dien_gru(
    hidden: Array, attention: Array, weight: Array, clicked: Array, **gates: Array
) -> tuple[Array, Any]:
    for a, p in zip(attention, gates.values(), strict=True):
        u = a[:, None] * _sigmoid(p[:, 0])
        t = np.tanh(p[:, 2] + _sigmoid(p[:, 1]) * hidden)
        hidden = (1 - u) * hidden + u * t
    logit = hidden @ weight
    loss = np.maximum(logit, 0) - np.where(clicked, logit, 0) + np.log1p(np.exp(-np.abs(logit)))
    return hidden, loss.mean()


# ---- optimisers ------------------------------------------------------------------------------


def _lamb_many(rate: Array, **tensors: Array) -> tuple[Array, ...]:
    found: list[Array] = []
    for n in range(4):
        p, g, m, v = (tensors[f"{name}{n}"] for name in "pgmv")
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        u = m / (np.sqrt(v) + 1e-6) + 0.01 * p
        lengths = np.sqrt(np.vdot(p, p)), np.sqrt(np.vdot(u, u))
        ratio = lengths[0] / lengths[1] if min(lengths) > 0 else 1
        found += [p - rate * ratio * u, m, v]
    return tuple(found)


def _adam_clip(rate: Array, limit: Array, **tensors: Array) -> tuple[Array, ...]:
    length = np.sqrt(sum(np.vdot(tensors[f"g{n}"], tensors[f"g{n}"]) for n in range(4)))
    scale = np.minimum(1, limit / (length + 1e-6))
    found: list[Array] = []
    for n in range(4):
        p, g, m, v = (tensors[f"{name}{n}"] for name in "pgmv")
        m, v = 0.9 * m + 0.1 * g * scale, 0.999 * v + 0.001 * (g * scale) ** 2
        found += [p - rate * m / (np.sqrt(v) + 1e-6), m, v]
    return tuple(found)


# ---- images ----------------------------------------------------------------------------------


def _group_block(
    x: Array, gamma: Array, beta: Array, scale: Array, shift: Array, eps: Array
) -> Array:
    y = _normalised(x, (2, 3), eps)[0] * gamma[:, :, None] + beta[:, :, None]
    y = y * (1 + scale[..., None]) + shift[..., None]
    result: Array = y * _sigmoid(y)
    return result


def _unet_norms(
    x: Array, z: Array, gamma1: Array, beta1: Array, gamma2: Array, beta2: Array, scale: Array,
    shift: Array, eps: Array,
) -> tuple[Array, Array]:  # fmt: skip
    a = _group_block(x, gamma1, beta1, scale, shift, eps)
    return a, _group_block(a + z, gamma2, beta2, scale, shift, eps) + x


def _unet_norms_nhwc(
    x: Array, gamma: Array, beta: Array, scale: Array, shift: Array, eps: Array
) -> Any:
    first = np.moveaxis(x, 1, 3)
    return np.moveaxis(_group_block(first, gamma, beta, scale, shift, eps), 3, 1) + x


def _gradients(grey: Array) -> tuple[Array, Array]:
    """Return Sobel's derivatives of *grey* along columns and rows."""
    rows, columns = grey[:-2] + 2 * grey[1:-1] + grey[2:], grey[2:] - grey[:-2]
    dx = (rows[:, 2:] - rows[:, :-2]) / 12
    dy = (columns[:, :-2] + 2 * columns[:, 1:-1] + columns[:, 2:]) / 12
    return dx, dy


def _box(x: Array) -> Array:
    """Return the sums of 3 x 3 windows."""
    rows = x[:-2] + x[1:-1] + x[2:]
    result: Array = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    return result


def _harris(image: Array) -> Array:
    dx, dy = _gradients(image @ np.array([0.299, 0.587, 0.114], image.dtype))
    xx, xy, yy = _box(dx * dx), _box(dx * dy), _box(dy * dy)
    corner: Array = xx * yy - xy * xy - 0.04 * (xx + yy) ** 2
    return corner


def _five(x: Array, axis: int) -> Array:
    """Return binomial means of five neighbours along *axis*."""
    n = x.shape[axis] - 4
    parts = (w * np.take(x, range(k, k + n), axis) for k, w in enumerate((1, 4, 6, 4, 1)))
    return sum(parts, np.zeros((), x.dtype)) / 16


def _unsharp(image: Array, weight: Array, threshold: Array) -> Array:
    blur, inner = _five(_five(image, 1), 0), image[2:-2, 2:-2]
    more = inner * (1 + weight) - blur * weight
    return np.where(np.abs(inner - blur) < threshold, inner, more)


def _shallow_water(
    u: Array, v: Array, p: Array, dt: Array, dx: Array, dy: Array
) -> tuple[Array, Array, Array]:
    def up(a: Array) -> Array:
        return np.roll(a, 1, 0)

    def left(a: Array) -> Array:
        return np.roll(a, 1, 1)

    def down(a: Array) -> Array:
        return np.roll(a, -1, 0)

    def right(a: Array) -> Array:
        return np.roll(a, -1, 1)

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


def _smoothed_loss(logits: Array, labels: Array) -> tuple[Any, Any, Any]:
    peak = logits.max(axis=1)
    lse = np.log(np.exp(logits - peak[:, None]).sum(axis=1)) + peak
    chosen = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    loss = lse - 0.9 * chosen - 0.1 * logits.mean(axis=1)
    return loss.mean(), np.square(lse).mean(), (logits.argmax(axis=1) == labels).mean()


def _vae_loss(mu: Array, logvar: Array, noise: Array, x: Array, made: Array) -> tuple[Array, Any]:
    kl = -0.5 * (1 + logvar - mu * mu - np.exp(logvar)).sum(axis=1)
    loss = np.square(made - x).sum(axis=1) + kl
    return mu + np.exp(0.5 * logvar) * noise, loss.mean()


def _focal_loss(logits: Array, labels: Array) -> tuple[Any, Array]:
    sign = np.where(labels, 1, -1)
    p = _sigmoid(sign * logits)
    loss = -np.log(np.maximum(p, 1e-7))
    gradient = -np.square(1 - p) * ((1 - p) + 2 * p * loss)
    return (np.square(1 - p) * loss).mean(), sign * gradient


def _moe_gate(logits: Array) -> tuple[Array, ...]:
    p = _softmax(logits)
    tokens, experts = p.shape
    first = p.argmax(axis=1)
    rest = p.copy()
    rest[np.arange(tokens), first] = -1
    second = rest.argmax(axis=1)
    best, next_best = p.max(axis=1), rest.max(axis=1)
    count = np.bincount(first, minlength=experts)
    balance = (p.sum(axis=0) * count).sum() * experts / tokens**2
    total = best + next_best
    return first, second, best / total, next_best / total, balance, count


def _batch_metrics(x: Array) -> tuple[Array, ...]:
    mean, var = x.mean(axis=0), x.var(axis=0)
    cubes = ((x - mean) ** 3).mean(axis=0)
    number = np.clip((8 * x + 32).astype(np.int32), 0, 63)
    bins = np.stack([np.bincount(column, minlength=64) for column in number.T])
    return (
        mean, var, cubes / (var * np.sqrt(var) + 1e-6), x.min(axis=0), x.max(axis=0),
        x.argmax(axis=0), bins,
    )  # fmt: skip


def _kmeans_step(x: Array, products: Array, norms: Array) -> tuple[Array, ...]:
    nearest = (norms - 2 * products).argmin(axis=1)
    count = np.bincount(nearest, minlength=len(norms))
    sums = np.zeros((len(norms), x.shape[1]), x.dtype)
    np.add.at(sums, nearest, x)
    return nearest, count, sums / np.maximum(count, 1)[:, None]


def _case(
    name: str,
    formula: Formula,
    sizes: tuple[Sizes, ...],
    small_sizes: tuple[Sizes, ...],
    draws: Mapping[str, Draw] | None = None,
    **details: Unpack[Details],
) -> Case:
    details.setdefault("dtypes", ("float32", "bfloat16"))
    return Case(
        name=name, family="network", file="networks", def_name=name, formula=formula, sizes=sizes,
        small_sizes=small_sizes, draws=draws or {}, **details,
    )  # fmt: skip


_ONLY_FLOAT = ("float32",)
_IMAGES = grid("H W", (4096, 4096), (1531, 2048))
_SMALL_IMAGES = grid("H W", (5, 5), (7, 9), (37, 70))

CASES: tuple[Case, ...] = (
    _case("bert_glue", _bert_glue,
          grid(_BERT, (4096, 768, 3072, 32, 12, 128, 128), (2048, 768, 3072, 4, 12, 512, 512)),
          grid(_BERT, (1, 1, 1, 1, 1, 1, 1), (3, 7, 5, 2, 3, 4, 9)),
          draws={"gamma1": _POSITIVE, "gamma2": _POSITIVE, "eps": _EPS, "mask": mask,
                 "scale": value(0.125)}),
    _case("decoder_glue", _decoder_glue,
          grid(_DECODER, (2048, 4096, 11008, 1, 2048, 32, 8, 64),
               (16384, 4096, 11008, 8, 2048, 32, 8, 64)),
          grid(_DECODER, (1, 1, 1, 1, 1, 1, 1, 1), (3, 7, 5, 2, 3, 4, 2, 3)),
          draws={"gamma1": _POSITIVE, "gamma2": _POSITIVE, "eps": _EPS}),
    _case("lstm_steps", _lstm_steps, grid("B N", (256, 512), (255, 509)),
          grid("B N", (1, 1), (3, 7), (5, 132))),
    _case("dien_gru", _dien_gru, grid("B N", (4096, 36), (4096, 128)),
          grid("B N", (1, 1), (3, 7), (17, 36)), results=(ELEMENT, COMPUTED), dtypes=_ONLY_FLOAT,
          draws={"attention": uniform(0.0, 1.0)}),
    _case("lamb_many", _lamb_many,
          grid(_LAMB, (30522, 768, 3072, 768, 768, 768, 1, 768)),
          grid(_LAMB, (1, 1, 1, 1, 1, 1, 1, 1), (3, 7, 5, 2, 4, 1, 11, 3)), dtypes=_ONLY_FLOAT,
          draws={**{f"v{n}": _POSITIVE for n in range(4)}, "rate": _RATE}),
    _case("adam_clip", _adam_clip, grid("K L M N", (23440896, 2359296, 589824, 768)),
          grid("K L M N", (1, 1, 1, 1), (7, 131, 3, 1031)), dtypes=_ONLY_FLOAT,
          draws={**{f"v{n}": _POSITIVE for n in range(4)}, "rate": _RATE, "limit": value(1.0)}),
    _case("unet_norms", _unet_norms,
          grid("N G D P", (8, 32, 10, 4096), (8, 32, 40, 256), (8, 32, 40, 255)),
          grid("N G D P", (1, 1, 1, 2), (2, 3, 2, 5), (3, 2, 5, 16)),
          draws={"gamma1": _POSITIVE, "gamma2": _POSITIVE, "eps": _EPS}),
    _case("unet_norms_nhwc", _unet_norms_nhwc,
          grid("N P G D", (8, 4096, 32, 10), (8, 256, 32, 40), (8, 255, 32, 40)),
          grid("N P G D", (1, 2, 1, 1), (2, 5, 3, 2), (3, 16, 2, 5)),
          draws={"gamma": _POSITIVE, "eps": _EPS}),
    _case("smoothed_loss", _smoothed_loss, grid("B V", (4096, 50257), (8192, 1024)),
          grid("B V", (1, 2), (3, 7), (17, 131)), results=(COMPUTED, COMPUTED, COMPUTED),
          draws={"labels": below("V")}),
    _case("vae_loss", _vae_loss, grid("B L D", (8192, 64, 1024), (8191, 33, 1023)),
          grid("B L D", (1, 1, 1), (3, 2, 7), (17, 5, 131)), results=(ELEMENT, COMPUTED)),
    _case("focal_loss", _focal_loss, grid("B C", (8192, 1024), (8191, 1023)),
          grid("B C", (1, 1), (3, 7), (17, 131)), results=(COMPUTED, ELEMENT)),
    _case("moe_gate", _moe_gate, grid("T X", (65536, 64), (65537, 8)),
          grid("T X", (1, 2), (5, 2), (17, 9)),
          results=("int64", "int64", ELEMENT, ELEMENT, COMPUTED, "int32"), dtypes=_ONLY_FLOAT),
    _case("harris", _harris, _IMAGES, _SMALL_IMAGES, dtypes=_ONLY_FLOAT,
          draws={"image": uniform(0.0, 1.0)}),
    _case("unsharp", _unsharp, _IMAGES, _SMALL_IMAGES, dtypes=_ONLY_FLOAT,
          draws={"image": uniform(0.0, 1.0), "weight": value(3.0), "threshold": value(0.001)}),
    _case("shallow_water", _shallow_water, grid("H W", (4096, 4096), (1000, 999)),
          grid("H W", (1, 1), (2, 3), (17, 34)), dtypes=_ONLY_FLOAT,
          draws={"p": uniform(2.0, 3.0), "dt": value(0.01), "dx": value(1.0), "dy": value(2.0)}),
    _case("batch_metrics", _batch_metrics, grid("M N", (262144, 96), (16384, 1000)),
          grid("M N", (1, 1), (7, 3), (131, 17)), results=(*(ELEMENT,) * 5, "int64", "int32"),
          dtypes=_ONLY_FLOAT),
    _case("kmeans_step", _kmeans_step, grid("P K D", (1000000, 64, 32), (100003, 17, 3)),
          grid("P K D", (1, 1, 1), (7, 3, 2), (131, 17, 5)), results=("int32", "int32", ELEMENT),
          dtypes=_ONLY_FLOAT),
)  # fmt: skip
