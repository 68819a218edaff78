"""Derivatives of functions: ``tcdsl.vjp`` and ``tcdsl.jvp``."""

from collections.abc import Sequence

from tcdsl.api import Function, define, require_function, shortened
from tcdsl.derivatives.program import Derived, vjp_text, with_extents
from tcdsl.derivatives.tangents import jvp_text
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.options import BAD_ARGUMENT
from tcdsl.records import dataclass


def vjp(f: Function, wrt: str | Sequence[str] | None = None) -> Function:
    """Return the vector-Jacobian product of *f*: the derivatives that backpropagation needs.

    Its parameters are those of *f*, then ``d_<result>`` for each floating-point result; its results
    are ``d_<parameter>`` for each of *wrt*.  It is a function like any other: ``source`` is its
    text, and it can be differentiated again.

    :arg wrt: the parameters to differentiate by; default: all floating-point ones.
    :raises SemanticError: (TC093) a statement is not differentiable; the message shows which.
    :raises OptionError: (TC064) *f* is not a definition, or *wrt* names none of its parameters.
    """
    chosen = _chosen(f, wrt, "vjp")
    return _function(f, vjp_text(f.comprehension, chosen))


@dataclass(frozen=True, slots=True)
class Passes:
    """A forward pass that returns more than the function does, and the vjp that takes it.

    *kept* are the positions of what is kept among the results of *forward*.  The parameters of
    *backward* are those of the function, what is kept, then the cotangents.
    """

    forward: Function
    backward: Function
    kept: tuple[int, ...]


def passes(f: Function, wrt: Sequence[str]) -> Passes | None:
    """Return the two passes of *f* of which the second computes little again.

    None: a vjp needs no value of the forward pass that is worth keeping, or that can be kept.

    :raises SemanticError: (TC093) a statement is not differentiable; the message shows which.
    """
    derived = vjp_text(f.comprehension, wrt, keeps=True)
    if not derived.kept:
        return None
    name, text = derived.forward
    forward = define(text, name=f"<forward pass of {f.__name__}>")[name]
    kept = tuple(map(forward.comprehension.outputs.index, derived.kept))
    backward = _function(f, derived)
    types, wanted = forward.comprehension.tensors, backward.comprehension.tensors
    if any(types[name].dtype != wanted[name].dtype for name in derived.kept):
        return None  # no text has the type: a sum in a narrow type that another def declares
    return Passes(forward, backward, kept)


def _function(f: Function, derived: Derived) -> Function:
    """Return the function of the text *derived* from *f*."""
    found = define(derived.text, name=f"<vjp of {f.__name__}>")[derived.name]
    checked = with_extents(found.comprehension, f.comprehension, derived)
    is_same = len(checked.preconditions) == len(found.comprehension.preconditions)
    return found if is_same and not checked.is_deferred else Function(checked)


def jvp(f: Function, wrt: str | Sequence[str] | None = None) -> Function:
    """Return the Jacobian-vector product of *f*: the derivative along a direction.

    Its parameters are those of *f*, then ``d_<parameter>`` for each of *wrt*: the direction; its
    results are ``d_<result>`` for each floating-point result.  It is a function like any other.

    :arg wrt: the parameters that move; default: all floating-point ones.
    :raises SemanticError: (TC093) a statement is not differentiable; the message shows which.
    :raises OptionError: (TC064) *f* is not a definition, *wrt* names none of its parameters, or no
        result is a float.
    """
    chosen = _chosen(f, wrt, "jvp")
    c = f.comprehension
    if not any(c.tensors[name].dtype.is_float for name in c.outputs):
        what, advice = f"{f.__name__!r} has no floating-point result", "return one"
        raise BAD_ARGUMENT(argument="jvp", what=what, advice=advice)
    name, text = jvp_text(c, chosen)
    return define(text, name=f"<jvp of {f.__name__}>")[name]


def _chosen(f: Function, wrt: str | Sequence[str] | None, caller: str) -> tuple[str, ...]:
    """Return the parameters of *f* that *wrt* names."""
    require_function(f, caller)
    comprehension = f.comprehension
    floats = [n for n in comprehension.inputs if comprehension.tensors[n].dtype.is_float]
    chosen = floats if wrt is None else [wrt] if isinstance(wrt, str) else wrt
    if not floats:
        what, advice = f"{f.__name__!r} has no floating-point parameter", "declare one as float"
        raise BAD_ARGUMENT(argument=caller, what=what, advice=advice)
    if not isinstance(chosen, list | tuple) or not chosen:
        advice = f'give names: wrt=("{floats[0]}",)'
        raise BAD_ARGUMENT(argument="wrt", what=f"it is {shortened(wrt)}", advice=advice)
    for name in chosen:
        if name not in floats:
            what = f"{shortened(name)} is no floating-point parameter of {f.__name__!r}"
            advice = did_you_mean(str(name), floats) or f"these are: {', '.join(floats)}"
            raise BAD_ARGUMENT(argument="wrt", what=what, advice=advice)
    return tuple(dict.fromkeys(chosen))
