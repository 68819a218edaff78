"""What ``derivatives.py`` times: the text of a forward pass, the same in PyTorch, and five sizes.

Texts of the library are taken as they are; the others are as short as a user would write them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tcdsl import library
from tcdsl.library.case import grid

Tensor = torch.Tensor
Sizes = Mapping[str, int]
EPS = 1e-5

_SWIGLU = """
def swiglu(float(M,N) a, float(M,N) b) -> (float(M,N) y) {
    y(m,n) = float(a(m,n)) * sigmoid(float(a(m,n))) * b(m,n)
}"""
_ROPE = """
def rope(float(B,S,H,D) q, float(B,S,K,D) k, float(S,D) cos, float(S,D) sin)
        -> (float(B,S,H,D) rq, float(B,S,K,D) rk) {
    rq(b,s,h,d) = q(b,s,h,d) * cos(s,d)
            + (d < D / 2 ? -q(b,s,h,d + D / 2) : q(b,s,h,d - D / 2)) * sin(s,d)
    rk(b,s,h,d) = k(b,s,h,d) * cos(s,d)
            + (d < D / 2 ? -k(b,s,h,d + D / 2) : k(b,s,h,d - D / 2)) * sin(s,d)
}"""
_BIAS_GELU = """
def bias_gelu(float(M,N) x, float(N) bias) -> (float(M,N) y) {
    h(m,n) = float(x(m,n)) + bias(n)
    y(m,n) = 0.5 * h(m,n) * (1.0 + erf(h(m,n) * 0.7071067811865476))
}"""
MLP = """
def mlp(float(B,I) x, float(I,H) w1, float(H) b1, float(H,O) w2, float(O) b2) -> (float(B,O) y) {
    h(b,n) +=! x(b,i) * w1(i,n)
    a(b,n) = relu(h(b,n) + b1(n))
    s(b,o) +=! a(b,n) * w2(n,o)
    y(b,o) = s(b,o) + b2(o)
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One def, and what is differentiated by: by default all its tensors of floats."""

    name: str
    source: str  # in float32
    def_name: str
    formula: Callable[..., Any]
    sizes: tuple[Sizes, ...]
    small: Sizes
    without: tuple[str, ...] = ()  # tables: no gradient
    has_liger: bool = False
    is_whole: bool = False  # the results, too
    has_products: bool = False  # of matrices, to which ``Options.precision`` applies


def of_library(program: str, sizes: tuple[Sizes, ...], **more: Any) -> Work:
    """Return the work of the library's *program*."""
    case = library.case(program)
    small = case.small_sizes[-1]
    values = {"name": program, "source": case.source, "def_name": case.def_name,
              "formula": case.torch_formula, "sizes": sizes, "small": small}  # fmt: skip
    return Work(**{**values, **more})


def written(source: str, formula: Callable[..., Any], sizes: tuple[Sizes, ...], small: Sizes,
            **more: Any) -> Work:  # fmt: skip
    """Return the work of a program that stands here, named after its function in PyTorch."""
    name = formula.__name__
    values = {"name": name, "source": source.strip() + "\n", "def_name": name, "formula": formula,
              "sizes": sizes, "small": small}  # fmt: skip
    return Work(**{**values, **more})


def swiglu(a: Tensor, b: Tensor) -> Tensor:
    """Gate *b* by silu(*a*)."""
    return F.silu(a) * b


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate pairs of q and k: (batch, length, heads, dim) by angles of (length, dim)."""

    def rotated(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos[:, None] + torch.cat((-second, first), dim=-1) * sin[:, None]

    return rotated(q), rotated(k)


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Return gelu(x + bias)."""
    return F.gelu(x + bias)


def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Two linear layers with a rectifier between them."""
    return torch.addmm(b2, F.relu(torch.addmm(b1, x, w1)), w2)


_ROWS = grid("M N", (16384, 4096), (32768, 1024), (8192, 8192), (4096, 768), (2048, 16384))
_CHANNELS = grid("N C H W", (32, 256, 56, 56), (32, 64, 112, 112), (64, 512, 14, 14),
                 (32, 512, 28, 28), (8, 128, 28, 28))  # fmt: skip
_GROUPS = grid("N G D H W", (32, 32, 8, 32, 32), (8, 32, 4, 128, 128), (16, 32, 10, 64, 64),
               (32, 32, 40, 8, 8), (4, 32, 16, 32, 32))  # fmt: skip
_IMAGES = grid("N C H W F KH KW", (32, 64, 56, 56, 64, 3, 3), (32, 256, 14, 14, 256, 3, 3))
_LOGITS = grid("B V", (4096, 50257), (8192, 32000), (2048, 131072), (16384, 4096), (32768, 1000))

WORKS: tuple[Work, ...] = (
    of_library("layernorm", _ROWS, has_liger=True),
    of_library("rmsnorm", _ROWS, has_liger=True),
    of_library("group_norm", _GROUPS, has_liger=True),
    of_library("cross_entropy", _LOGITS),
    of_library("cross_entropy", _LOGITS, name="cross_entropy+", is_whole=True, has_liger=True),
    written(_SWIGLU, swiglu,
            grid("M N", (8192, 14336), (16384, 4096), (4096, 11008), (2048, 28672), (1024, 4096)),
            {"M": 5, "N": 24}, has_liger=True),
    written(_ROPE, rope,
            grid("B S H K D", (4, 4096, 32, 8, 128), (8, 2048, 16, 16, 64), (1, 8192, 32, 8, 128),
                 (2, 1024, 12, 12, 64), (16, 512, 40, 8, 128)),
            {"B": 2, "S": 3, "H": 4, "K": 2, "D": 8}, without=("cos", "sin"), has_liger=True),
    written(_BIAS_GELU, bias_gelu, _ROWS, {"M": 5, "N": 24}),
    of_library("batchnorm_relu", _CHANNELS),
    of_library("conv2d", _IMAGES, name="conv2d data", without=("K",),
               has_products=True),
    of_library("conv2d", _IMAGES, name="conv2d weights", without=("I",),
               has_products=True),
    written(MLP, mlp,
            grid("B I H O", (4096, 1024, 4096, 1024), (512, 784, 256, 10)),
            {"B": 5, "I": 6, "H": 7, "O": 3}, has_products=True),
)  # fmt: skip
