"""Ranges whose bounds are read from tensors, such as the rows of a sparse matrix.

    y(r) +=! val(e) * x(col(e)) where e in ptr(r):ptr(r+1)      (CSR, ragged batches)

The reads in which e stands give e its range [a, b) in the box of instances, ``val(e)`` here; an
instance runs only where ``lower <= e < upper``.  So the domain is known without the data, and all
that is proven of it (dependences, bounds, which elements are written) holds for any data.  The
bounds need not grow with r, and may overlap; but where ``lower < upper``, ``a <= lower`` and
``upper <= b`` must hold, which is checked while running, like a gathered subscript.
"""

from collections.abc import Iterable, Sequence

from tcdsl.lang.comprehension import IndexBounds, Statement
from tcdsl.lang.ranges.reads import index_names
from tcdsl.source import Source


def ordered(ranges: Sequence[IndexBounds]) -> list[IndexBounds]:
    """Return *ranges*, each after those of the indices that its bounds mention.

    Those that need one another, as in ``e in p(f):q(f), f in p(e):q(e)``, are left out.
    """
    done: list[IndexBounds] = []
    waiting = list(ranges)
    while waiting:
        open_ = {bounds.index for bounds in waiting}
        ready = [b for b in waiting if not open_ & set(index_names(b.lower, b.upper))]
        if not ready:
            break
        done += ready
        waiting = [bounds for bounds in waiting if bounds not in ready]
    return done


def checked_with(statement: Statement, bounds: IndexBounds) -> Iterable[IndexBounds]:
    """Return the other ranges of *statement* in which the indices of *bounds* must lie."""
    used = set(index_names(bounds.lower, bounds.upper))
    return [other for other in statement.data_ranges if other.index in used]


def is_scattered(statement: Statement) -> bool:
    """Return whether reduced indices say to which left-hand ones a range belongs."""
    reduced = set(statement.reduced)
    return any(
        bounds.index in statement.left and reduced & set(index_names(bounds.lower, bounds.upper))
        for bounds in statement.data_ranges
    )


def clause_text(source: Source, bounds: IndexBounds) -> str:
    """Return the clause as it is written."""
    text = source.text[bounds.span.start : bounds.span.end]
    return " ".join(text.split()) or f"{bounds.index} in ..."
