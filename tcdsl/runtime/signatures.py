"""What ``inspect.signature`` shows of a function, and with it ``f?``, ``help`` and completion."""

from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from tcdsl.lang.types.head import Head

if TYPE_CHECKING:
    from inspect import Signature

_OF_A_CALL = ("out", "target", "options")


class SignatureOfCall:
    """The descriptor ``__signature__``, made when it is asked for; a class has none of its own."""

    def __get__(self, function: Any, owner: type) -> "Signature | None":
        return None if function is None else signature_of(function._head)


def signature_of(head: Head) -> "Signature":
    """Return the signature of a call: the parameters by name, then what every call takes.

    (A: 'float32(M, K)', B: 'float32(K, N)', *, out=None, target=None, options=None)
    """
    from inspect import Parameter, Signature  # takes 10 ms, and hardly anybody asks

    # Python's own words, and out, name no argument in a call; those before must be positional too.
    hidden = [n for n, name in enumerate(head.parameters) if iskeyword(name) or name in _OF_A_CALL]
    n_positional = hidden[-1] + 1 if hidden else 0
    parameters = [
        Parameter(
            name,
            Parameter.POSITIONAL_ONLY if n < n_positional else Parameter.POSITIONAL_OR_KEYWORD,
            annotation=_type_text(head, name),
        )
        for n, name in enumerate(head.parameters)
    ]
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None)
        for name in _OF_A_CALL
        if name not in head.parameters
    ]
    results = head.signature.rpartition(" -> ")[2] or Signature.empty
    return Signature(parameters, return_annotation=results)


def _type_text(head: Head, name: str) -> str:
    if name in head.size_parameters:
        return "size"
    tensor = head.tensors[name]
    dims = ", ".join(map(str, tensor.dims))
    return f"{tensor.dtype}({dims})" if dims else str(tensor.dtype)
