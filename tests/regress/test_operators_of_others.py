"""A name that another operator has, in another overload, was registered beside it.

``aten::add`` has overloads for numbers and tensors; a default one, of a def, was added to them.
"""

import pytest

import tcdsl

torch = pytest.importorskip("torch")


def test_operators_of_others_are_left_alone() -> None:
    import tcdsl.torch as tct

    f = tcdsl.define("def f(float(N) x, float(N) y) -> (z) { z(n) = x(n) - y(n) }").f
    before = torch.ops.aten.add.overloads()
    with pytest.raises(tcdsl.OptionError, match=r"TC064.*torch.ops.aten.add"):
        tct.op(f, "aten::add")
    assert torch.ops.aten.add.overloads() == before
    library = torch.library.Library("regress_others", "DEF")
    library.define("mine.Tensor(Tensor x) -> Tensor")
    with pytest.raises(tcdsl.OptionError, match=r"torch.ops.regress_others.mine"):
        tct.op(f, "regress_others::mine")
    x = torch.ones(3)
    assert tct.op(f, "regress_others::other")(x, x).tolist() == [0, 0, 0]
