"""PyTorch operators from definitions.  Requires PyTorch, which ``import tcdsl`` does not import.

import tcdsl.torch as tct

op = tct.op(prog.softmax, name="mylib::softmax")    # torch.ops.mylib.softmax
layer = tct.Module(prog.linear, weight=W, bias=b)   # an nn.Module; forward takes the others

batching    a def with one more index: the rule of vmap
legacy_vmap that of the vmap in torch.autograd
sizes       the shapes of results: numbers, or functions of symbolic sizes
family      the derivatives and batched forms of a def, and those of these
ops         what is registered with PyTorch
modules     parameters and buffers by the def's names
"""

from tcdsl.runtime.documented import names_of_module
from tcdsl.torch.modules import Module
from tcdsl.torch.ops import op


def __dir__() -> list[str]:
    return names_of_module(globals())


__all__ = ["Module", "op"]
