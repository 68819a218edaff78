"""Definitions as layers."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from tcdsl.api import Function, require_function
from tcdsl.errors import BAD_ARGUMENTS
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.options import BAD_ARGUMENT
from tcdsl.torch.ops import op


class Module(torch.nn.Module):
    """A layer that calls *f*: some parameters of the def are its own, ``forward`` takes the others.

    Floating-point tensors become ``nn.Parameter``, others buffers, under the def's names: so a
    ``state_dict`` of another layer fits if its names do.  It is saved and copied by its source.

    :arg parameters: tensors, or ``nn.Parameter`` to share one, by names of *f*'s parameters.
    :raises OptionError: (TC064) one is no parameter of *f*, or no tensor.
    """

    def __init__(self, f: Function, /, **parameters: torch.Tensor) -> None:
        super().__init__()
        require_function(f, "Module")
        _require_parameters(f, parameters)
        self.function = f
        for name, value in parameters.items():
            self._own(name, value)
        self._given = tuple(n for n in f.comprehension.parameters if n not in parameters)
        self._prepare()

    def _own(self, name: str, value: torch.Tensor) -> None:
        try:
            if isinstance(value, torch.nn.Parameter):
                self.register_parameter(name, value)
            elif value.is_floating_point():
                self.register_parameter(name, torch.nn.Parameter(value))
            else:
                self.register_buffer(name, value)
        except KeyError:
            what = f"{name!r} is an attribute of every nn.Module"
            raise _refused(what, "rename it in the def") from None

    def _prepare(self) -> None:
        head = self.function.comprehension
        self._order = head.parameters
        key = "\n".join((self.function.source, head.name, self.function.options.to_json()))
        digest = hashlib.sha256(key.encode()).hexdigest()[:12]
        self._op = op(self.function, f"tcdsl::{head.name}_{digest}")

    def forward(self, *args: Any, **named: Any) -> Any:
        """Return the results for the parameters that are not the layer's own, in order."""
        if len(args) + len(named) != len(self._given):
            raise BAD_ARGUMENTS(
                name=f"{self.function.__name__} of a layer", expected=len(self._given),
                got=len(args) + len(named), s="" if len(self._given) == 1 else "s",
                signature=self.extra_repr(),
            )  # fmt: skip
        for name in named:
            if name not in self._given:
                advice = did_you_mean(name, self._given) or f"these are: {', '.join(self._given)}"
                raise _refused(f"forward takes no {name!r}", advice)
        unnamed = (name for name in self._given if name not in named)
        values = {**named, **dict(zip(unnamed, args, strict=True))}
        # An own one need not be a parameter any more: weight_norm computes it from others.
        found = [values[n] if n in values else getattr(self, n) for n in self._order]
        return self._op(*found)

    def extra_repr(self) -> str:
        """Return what ``print`` shows: the signature."""
        return self.function.comprehension.signature

    def __getstate__(self) -> Mapping[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_op"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(dict(state))
        self._prepare()


def _require_parameters(f: Function, parameters: Mapping[str, object]) -> None:
    known = f.comprehension.inputs
    for name, value in parameters.items():
        if name not in known:
            advice = did_you_mean(name, known) or f"the parameters are {', '.join(known)}"
            raise _refused(f"{f.__name__!r} has no parameter {name!r}", advice)
        if not isinstance(value, torch.Tensor):
            what = f"{name!r} is a {type(value).__name__}"
            raise _refused(what, f"give a tensor: {name}=torch.ones(...)")


def _refused(what: str, advice: str) -> Exception:
    return BAD_ARGUMENT(argument="Module", what=what, advice=advice)
