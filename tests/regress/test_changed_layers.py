"""Layers whose parameters PyTorch replaces by attributes, and arguments by wrong names.

``weight_norm`` and pruning make a parameter a computed attribute: the layer did not find it.  An
argument by a name that ``forward`` does not take was a ValueError of ``zip``.
"""

import copy

import pytest

import tcdsl

torch = pytest.importorskip("torch")
from torch.nn.utils import parametrizations, prune  # noqa: E402

import tcdsl.torch as tct  # noqa: E402

LINEAR = tcdsl.define("""def linear(float(M, K) x, float(N, K) weight, float(N) bias) -> (y) {
    y(m, n) +=! x(m, k) * weight(n, k)
    y(m, n) = y(m, n) + bias(n)
}""").linear


def test_parameters_that_are_computed() -> None:
    x, usual = torch.randn(2, 4), torch.nn.Linear(4, 3)
    own = tct.Module(LINEAR, weight=usual.weight.detach(), bias=usual.bias.detach())
    pruned = [copy.deepcopy(layer) for layer in (own, usual)]
    for layer in pruned:
        prune.l1_unstructured(layer, "weight", amount=0.5)
    torch.testing.assert_close(pruned[0](x), pruned[1](x))
    for layer in (own, usual):
        parametrizations.weight_norm(layer)(x).square().sum().backward()
    torch.testing.assert_close(own(x), usual(x))
    found, wanted = ([p.grad for p in layer.parameters()] for layer in (own, usual))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["y", "weight"])
def test_arguments_by_names_that_forward_does_not_take(name: str) -> None:
    layer = tct.Module(LINEAR, weight=torch.ones(3, 4), bias=torch.ones(3))
    with pytest.raises(tcdsl.OptionError, match=f"takes no '{name}'.*\n.*these are: x"):
        layer(**{name: torch.ones(2, 4)})
