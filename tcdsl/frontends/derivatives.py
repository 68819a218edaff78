"""Derivatives of functions: ``tcdsl.vjp``."""

from collections.abc import Sequence

from tcdsl.api import Function, define, require_function, shortened
from tcdsl.derivatives.program import vjp_text, with_extents
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.options import BAD_ARGUMENT


def vjp(f: Function, wrt: str | Sequence[str] | None = None) -> Function:
    """Return the vector-Jacobian product of *f*: the derivatives that backpropagation needs.

    Its parameters are those of *f*, then ``d_<result>`` for each floating-point result; its results
    are ``d_<parameter>`` for each of *wrt*.  It is a function like any other: ``source`` is its
    text, and it can be differentiated again.

    :arg wrt: the parameters to differentiate by; default: all floating-point ones.
    :raises SemanticError: (TC093) a statement is not differentiable; the message shows which.
    :raises OptionError: (TC064) *f* is not a definition, or *wrt* names none of its parameters.
    """
    require_function(f, "vjp")
    comprehension = f.comprehension
    floats = [n for n in comprehension.inputs if comprehension.tensors[n].dtype.is_float]
    chosen = floats if wrt is None else [wrt] if isinstance(wrt, str) else wrt
    if not floats:
        what, advice = f"{f.__name__!r} has no floating-point parameter", "declare one as float"
        raise BAD_ARGUMENT(argument="vjp", what=what, advice=advice)
    if not isinstance(chosen, list | tuple) or not chosen:
        advice = f'give names: wrt=("{floats[0]}",)'
        raise BAD_ARGUMENT(argument="wrt", what=f"it is {shortened(wrt)}", advice=advice)
    for name in chosen:
        if name not in floats:
            what = f"{shortened(name)} is no floating-point parameter of {f.__name__!r}"
            advice = did_you_mean(str(name), floats) or f"these are: {', '.join(floats)}"
            raise BAD_ARGUMENT(argument="wrt", what=what, advice=advice)
    derived = vjp_text(comprehension, tuple(dict.fromkeys(chosen)))
    found = define(derived.text, name=f"<vjp of {f.__name__}>")[derived.name]
    checked = with_extents(found.comprehension, comprehension, derived)
    is_same = len(checked.preconditions) == len(found.comprehension.preconditions)
    return found if is_same and not checked.is_deferred else Function(checked)
