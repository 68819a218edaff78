"""What a PyTorch user would write for each piece of a network; see ``torch_peers``."""

from typing import Any

import torch
import torch.nn.functional as F

from tcdsl.library import stencil_formulas

Tensor = Any  # torch.Tensor: see torch_peers


def _computed(x: Tensor) -> Tensor:
    """Return *x* in the type in which its elements are computed."""
    return x if x.dtype == torch.float64 else x.float()


# ---- transformers ----------------------------------------------------------------------------


def _rms(x: Tensor, gamma: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[1:], gamma, eps)


def bert_glue(
    attended: Tensor, bias1: Tensor, residual: Tensor, gamma1: Tensor, beta1: Tensor,
    inner: Tensor, bias2: Tensor, outer: Tensor, bias3: Tensor, gamma2: Tensor, beta2: Tensor,
    scores: Tensor, mask: Tensor, kept: Tensor, scale: float, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    width = residual.shape[1:]
    s = (_computed(scores) * scale).masked_fill(~mask[:, None, None], -torch.inf)
    p = torch.where(kept, F.softmax(s, -1) * 1.25, 0.0).to(scores.dtype)
    h = F.layer_norm(attended + bias1 + residual, width, gamma1, beta1, eps)
    return h, F.gelu(inner + bias2), F.layer_norm(outer + bias3 + h, width, gamma2, beta2, eps), p


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    cosine, sine = cosine[:, None], sine[:, None]
    a, b = x[:, :, :, 0], x[:, :, :, 1]
    return torch.stack([a * cosine - b * sine, b * cosine + a * sine], 3)


def decoder_glue(
    x: Tensor, gamma1: Tensor, q: Tensor, k: Tensor, cosine: Tensor, sine: Tensor,
    attended: Tensor, gamma2: Tensor, gate: Tensor, up: Tensor, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    h = x + attended
    return (
        _rms(x, gamma1, eps), _turned(q, cosine, sine), _turned(k, cosine, sine), h,
        _rms(h, gamma2, eps), F.silu(gate) * up,
    )  # fmt: skip


# ---- recurrent networks ----------------------------------------------------------------------


def lstm_steps(cell: Tensor, **gates: Tensor) -> tuple[Tensor, ...]:
    hidden = []
    for p in gates.values():
        i, f, g, o = p.unbind(1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden.append(torch.sigmoid(o) * torch.tanh(cell))
    return (*hidden, cell)


def dien_gru(
    hidden: Tensor, attention: Tensor, weight: Tensor, clicked: Tensor, **gates: Tensor
) -> tuple[Tensor, Tensor]:
    for a, p in zip(attention, gates.values(), strict=True):
        u = a[:, None] * torch.sigmoid(p[:, 0])
        t = torch.tanh(p[:, 2] + torch.sigmoid(p[:, 1]) * hidden)
        hidden = (1 - u) * hidden + u * t
    logit = (hidden * weight).sum(1)
    return hidden, F.binary_cross_entropy_with_logits(logit, clicked.to(logit.dtype))


# ---- optimisers ------------------------------------------------------------------------------


def lamb_many(rate: float, **tensors: Tensor) -> tuple[Tensor, ...]:
    found: list[Tensor] = []
    for n in range(4):
        p, g, m, v = (tensors[f"{name}{n}"] for name in "pgmv")
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        u = m / (v.sqrt() + 1e-6) + 0.01 * p
        squares = (p * p).sum(), (u * u).sum()
        is_any = (squares[0] > 0) & (squares[1] > 0)
        ratio = torch.where(is_any, (squares[0] / squares[1]).sqrt(), 1.0)
        found += [p - rate * ratio * u, m, v]
    return tuple(found)


def adam_clip(rate: float, limit: float, **tensors: Tensor) -> tuple[Tensor, ...]:
    squares = [(tensors[f"g{n}"] * tensors[f"g{n}"]).sum() for n in range(4)]
    length = (squares[0] + squares[1] + squares[2] + squares[3]).sqrt()
    scale = (limit / (length + 1e-6)).clamp(max=1.0)
    found: list[Tensor] = []
    for n in range(4):
        p, g, m, v = (tensors[f"{name}{n}"] for name in "pgmv")
        m, v = 0.9 * m + 0.1 * (g * scale), 0.999 * v + 0.001 * (g * scale) * (g * scale)
        found += [p - rate * m / (v.sqrt() + 1e-6), m, v]
    return tuple(found)


# ---- images ----------------------------------------------------------------------------------


def _group_block(
    x: Tensor, gamma: Tensor, beta: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> Tensor:
    n, groups, _, pixels = x.shape
    y = F.group_norm(x.reshape(n, -1, pixels), groups, gamma.ravel(), beta.ravel(), eps)
    return F.silu(y.reshape(x.shape) * (1 + scale[..., None]) + shift[..., None])


def unet_norms(
    x: Tensor, z: Tensor, gamma1: Tensor, beta1: Tensor, gamma2: Tensor, beta2: Tensor,
    scale: Tensor, shift: Tensor, eps: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    a = _group_block(x, gamma1, beta1, scale, shift, eps)
    return a, _group_block(a + z, gamma2, beta2, scale, shift, eps) + x


def unet_norms_nhwc(
    x: Tensor, gamma: Tensor, beta: Tensor, scale: Tensor, shift: Tensor, eps: float
) -> Tensor:
    var, mean = torch.var_mean(_computed(x), (1, 3), correction=0, keepdim=True)
    y = (x - mean) * torch.rsqrt(var + eps) * gamma + beta
    return (F.silu(y * (1 + scale[:, None]) + shift[:, None]) + x).to(x.dtype)


def harris(image: Tensor) -> Tensor:
    return stencil_formulas.harris(image)


def unsharp(image: Tensor, weight: float, threshold: float) -> Tensor:
    h, w, _ = image.shape
    five = 1, 4, 6, 4, 1
    across = sum(f * image[:, k : w - 4 + k] for k, f in enumerate(five)) / 16
    blur = sum(f * across[k : h - 4 + k] for k, f in enumerate(five)) / 16
    inner = image[2:-2, 2:-2]
    more = inner * (1 + weight) - blur * weight
    return torch.where((inner - blur).abs() < threshold, inner, more)


def shallow_water(
    u: Tensor, v: Tensor, p: Tensor, dt: float, dx: float, dy: float
) -> tuple[Tensor, Tensor, Tensor]:
    def up(a: Tensor) -> Tensor:
        return a.roll(1, 0)

    def left(a: Tensor) -> Tensor:
        return a.roll(1, 1)

    def down(a: Tensor) -> Tensor:
        return a.roll(-1, 0)

    def right(a: Tensor) -> Tensor:
        return a.roll(-1, 1)

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


def smoothed_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    own = _computed(logits)
    lse = torch.logsumexp(own, 1)
    chosen = own.gather(1, labels[:, None])[:, 0]
    loss = lse - 0.9 * chosen - 0.1 * own.mean(1)
    return loss.mean(), (lse * lse).mean(), (own.argmax(1) == labels).float().mean()


def vae_loss(
    mu: Tensor, logvar: Tensor, noise: Tensor, x: Tensor, made: Tensor
) -> tuple[Tensor, Tensor]:
    sample = mu + torch.exp(0.5 * logvar) * noise
    m, v = _computed(mu), _computed(logvar)
    kl = -0.5 * (1 + v - m**2 - v.exp()).sum(1)
    error = (_computed(made) - _computed(x)) ** 2
    return sample, (error.sum(1) + kl).mean()


def focal_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    own = _computed(logits)
    p = torch.sigmoid(torch.where(labels, own, -own))
    loss = -p.clamp(min=1e-7).log()
    q = 1 - p
    gradient = -q * q * (q + 2 * p * loss)
    return (q * q * loss).mean(), torch.where(labels, gradient, -gradient).to(logits.dtype)


def moe_gate(logits: Tensor) -> tuple[Tensor, ...]:
    tokens, experts = logits.shape
    p = F.softmax(logits, 1)
    best, first = p.max(1)
    rest = p.scatter(1, first[:, None], -1.0)
    next_best, second = rest.max(1)
    count = torch.zeros(experts, dtype=torch.int32, device=p.device)
    count = count.index_add(0, first, torch.ones_like(first, dtype=torch.int32))
    balance = (p.sum(0) * count).sum() * experts / (float(tokens) * float(tokens))
    total = best + next_best
    return first, second, best / total, next_best / total, balance, count


def batch_metrics(x: Tensor) -> tuple[Tensor, ...]:
    var, mean = torch.var_mean(x, 0, correction=0)
    d = x - mean
    skew = (d * d * d).mean(0) / (var * var.sqrt() + 1e-6)
    number = (8 * x + 32).to(torch.int32).clamp(0, 63)
    flat = (number + 64 * torch.arange(x.shape[1], device=x.device, dtype=torch.int32)).ravel()
    bins = torch.zeros(64 * x.shape[1], dtype=torch.int32, device=x.device)
    bins = bins.index_add(0, flat, torch.ones_like(flat))
    return mean, var, skew, x.amin(0), x.amax(0), x.argmax(0), bins.reshape(-1, 64)


def kmeans_step(x: Tensor, products: Tensor, norms: Tensor) -> tuple[Tensor, ...]:
    nearest = (norms - 2 * products).argmin(1)
    count = torch.zeros(len(norms), dtype=torch.int32, device=x.device)
    count = count.index_add(0, nearest, torch.ones_like(nearest, dtype=torch.int32))
    sums = torch.zeros(len(norms), x.shape[1], dtype=x.dtype, device=x.device)
    sums = sums.index_add(0, nearest, x)
    return nearest, count, sums / count.clamp(min=1)[:, None]
