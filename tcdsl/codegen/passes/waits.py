"""Where a kernel waits for those before it, and lets the next one begin (``cuda/overlap.py``).

    i = blockIdx.x;                        i = blockIdx.x;
    if (i < 7) y[i] = x[i];      --->      tc_await_kernels();
                                           tc_begin_next_kernel();
                                           if (i < 7) y[i] = x[i];

What comes before the wait is nothing that touches an array which other kernels may still use.
"""

from collections.abc import Collection, Sequence

from tcdsl.codegen.ast.build import call
from tcdsl.codegen.ast.nodes import Evaluate, Node
from tcdsl.codegen.ast.walk import mentioned
from tcdsl.codegen.cuda.source import Overlap

_WAIT = Evaluate(call("tc_await_kernels"))
_BEGIN = Evaluate(call("tc_begin_next_kernel"))


def with_waits(
    body: Sequence[Node], own: Overlap, next_: Overlap, ordered: Collection[str] | None
) -> list[Node]:
    """Return *body*, the nodes of a kernel, with its wait, as the *next_* kernel begins.

    :arg ordered: the arrays that must not be touched before, None if nothing at all may be.
    """
    begin = [] if next_ is Overlap.ORDERED else [_BEGIN]
    match own:
        case Overlap.ORDERED:
            return [*begin, *body]
        case Overlap.WAITS_LAST:
            return [*begin, *body, _WAIT]
        case Overlap.WAITS_FIRST:
            at = 0 if ordered is None else _first(body, ordered)
            return [*body[:at], _WAIT, *begin, *body[at:]]


def _first(body: Sequence[Node], arrays: Collection[str]) -> int:
    """Return which node of *body* is the first that has one of *arrays* in it."""
    touches = (n for n, node in enumerate(body) if not mentioned([node]).isdisjoint(arrays))
    return next(touches, len(body))
