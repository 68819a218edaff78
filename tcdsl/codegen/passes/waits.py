"""Where a kernel waits for those before it, and lets the next one begin (``cuda/overlap.py``).

    i = blockIdx.x;                        i = blockIdx.x;
    if (i < 7) y[i] = x[i];      --->      tc_await_kernels();
                                           tc_begin_next_kernel();
                                           if (i < 7) y[i] = x[i];

What comes before the wait is nothing that touches an array which other kernels may still use.

Where warps have roles and one role alone touches such arrays, its warps wait, before they do so::

    if (producer) copy x;                  if (producer) copy x;
    if (others) { C = A * B;     --->      if (others) { C = A * B;
                  y = C + z; }                           tc_await_kernels();
                                                         y = C + z; }

A kernel ends when all of its threads have: one that waits is enough for those that come later.
So blocks that a call's open sizes leave something to do wait inside their guard, as a role does;
and of two branches, of blocks of other parts of the launch, each waits for itself.
A guard that reads data is none of these: where it holds nowhere, no thread would have waited.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from tcdsl.codegen.ast.build import call
from tcdsl.codegen.ast.nodes import Code, Evaluate, If, Index, Node
from tcdsl.codegen.ast.walk import mentioned, names, walk
from tcdsl.codegen.cuda.source import Overlap

_WAIT = Evaluate(call("tc_await_kernels"))
_BEGIN = Evaluate(call("tc_begin_next_kernel"))


def with_waits(
    body: Sequence[Node],
    own: Overlap,
    next_: Overlap,
    ordered: Collection[str] | None,
    sizes: Collection[str] = (),
) -> list[Node]:
    """Return *body*, the nodes of a kernel, with its wait, as the *next_* kernel begins.

    :arg ordered: the arrays that must not be touched before, None if nothing at all may be.
    :arg sizes: the open sizes, of which none leaves all blocks idle.
    """
    begin = [] if next_ is Overlap.ORDERED else [_BEGIN]
    match own:
        case Overlap.ORDERED:
            return [*begin, *body]
        case Overlap.WAITS_LAST:
            return [*begin, *body, _WAIT]
        case Overlap.WAITS_FIRST:
            own_wait = [_WAIT, *begin]
            if ordered is None:
                return [*own_wait, *body]
            return _placed(own_wait, body, ordered, sizes)


def _placed(
    wait: Sequence[Node], body: Sequence[Node], arrays: Collection[str], sizes: Collection[str]
) -> list[Node]:
    """Return *body* with *wait* before the first of its nodes that has one of *arrays* in it."""
    at = _first(body, arrays)
    role = body[at] if at < len(body) else None
    is_last = mentioned(body[at + 1 :]).isdisjoint(arrays)
    if isinstance(role, If) and is_last and (role.is_role or _is_of_call(role, sizes)):
        then, otherwise = role.then, role.otherwise
        if mentioned(otherwise).isdisjoint(arrays):
            within = tuple(_placed(wait, then, arrays, sizes))
            own = replace(role, then=within, is_short=False)
            return [*body[:at], own, *body[at + 1 :]]
        if mentioned(then).isdisjoint(arrays):
            own = replace(role, otherwise=tuple(_placed(wait, otherwise, arrays, sizes)))
            return [*body[:at], own, *body[at + 1 :]]
    if isinstance(role, If) and is_last and role.otherwise and _is_of_block(role.condition):
        branches = [tuple(_placed(wait, own, arrays, sizes)) for own in (role.then, role.otherwise)]
        own = replace(role, then=branches[0], otherwise=branches[1], is_short=False)
        return [*body[:at], own, *body[at + 1 :]]
    return [*body[:at], *wait, *body[at:]]


def _is_of_call(guard: If, sizes: Collection[str]) -> bool:
    """Return whether *guard* is for what a call's *sizes* leave out, whatever its data are."""
    if guard.otherwise or any(isinstance(code, Index) for code in walk(guard.condition)):
        return False
    return not names(guard.condition).isdisjoint(sizes)


def _is_of_block(condition: Code) -> bool:
    """Return whether *condition* is about the number of a block alone."""
    return names(condition) <= {"blockIdx", "gridDim"}


def _first(body: Sequence[Node], arrays: Collection[str]) -> int:
    """Return which node of *body* is the first that has one of *arrays* in it."""
    touches = (n for n, node in enumerate(body) if not mentioned([node]).isdisjoint(arrays))
    return next(touches, len(body))
