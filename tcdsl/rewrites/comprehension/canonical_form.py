"""Which reduction a statement is, once its indices are coalesced.

The axes of what is reduced, in memory order, are kept (K) or reduced (R); neighbours of a kind
count as one, axes of one iteration as none::

    R         all           one result
    K R       row           the reduced axis is innermost
    R K       column        the reduced axis is outermost
    R K R ..  alternation   neither is one axis: they take turns
    K         pointwise     nothing is reduced

What is reduced is the operand that all indices subscript, each for itself.  Where a kept and a
reduced index are in one subscript it is a *window*; where no operand has all indices, or there are
windows and other operands, a *contraction*.  After Panamera (PACT 2022,
doi:10.1145/3559009.3569656), which brings every reduction to one of these.
"""

from collections.abc import Mapping
from itertools import groupby

from tcdsl.lang.comprehension import Comprehension, Expr, Index, Load, Statement, indices_in, walk
from tcdsl.lang.ranges.open_sizes import AnySpecialisation, OpenRange
from tcdsl.lang.syntax.printer import print_statement, untyped_statement
from tcdsl.records import dataclass
from tcdsl.rewrites.comprehension.merging import Coalesced, print_merged

Ranges = Mapping[str, range | OpenRange]


@dataclass(frozen=True, slots=True)
class Axes:
    """Neighbouring axes of an operand that are all reduced, or all kept."""

    indices: tuple[str, ...]
    is_reduced: bool


@dataclass(frozen=True, slots=True)
class CanonicalForm:
    """The form of a statement; *operands* are what is reduced, by their tensors' names."""

    name: str  # pointwise, all, row, column, alternation, window, contraction
    operands: tuple[tuple[str, tuple[Axes, ...]], ...] = ()

    def __str__(self) -> str:
        """Return ``row: x(m kept, n reduced)``."""
        texts = [f"{tensor}({_text(axes)})" for tensor, axes in self.operands]
        return f"{self.name}: {', '.join(texts)}" if texts else self.name


def _text(axes: tuple[Axes, ...]) -> str:
    return ", ".join(
        f"{' '.join(part.indices)} {'reduced' if part.is_reduced else 'kept'}" for part in axes
    )


def canonical_form(statement: Statement, ranges: Ranges) -> CanonicalForm:
    """Return the form of *statement*, whose indices have *ranges*."""
    if statement.reduction is None or not statement.reduced:
        return CanonicalForm("pointwise")
    reduced = {name for name in statement.reduced if _is_long(ranges[name])}
    long = reduced | {name for name in statement.left if _is_long(ranges[name])}
    loads = [node for node in walk(statement.value) if isinstance(node, Load)]
    operands = dict.fromkeys((n.tensor, _axes(n.subscripts, long, reduced)) for n in loads)
    reducing = [operand for operand in operands if any(part.is_reduced for part in operand[1])]
    if any(_is_window(load, reduced, long - reduced) for load in loads):
        return CanonicalForm("window" if len(reducing) == 1 else "contraction", tuple(reducing))
    whole = [operand for operand in operands if _names(operand[1]) == long]
    if not whole and len(reducing) > 1:
        return CanonicalForm("contraction", tuple(reducing))
    if not (whole or reducing):  # a sum of what no index is in
        return CanonicalForm("all")
    best = min(whole or reducing, key=lambda operand: len(operand[1]))
    return CanonicalForm(_name_of(best[1]), (best,))


def _names(axes: tuple[Axes, ...]) -> set[str]:
    return {name for part in axes for name in part.indices}


def _is_window(load: Load, reduced: set[str], kept: set[str]) -> bool:
    """Return whether a kept and a reduced index are in one subscript of *load*."""
    for subscript in load.subscripts:
        names = indices_in(subscript)
        if names & reduced and names & kept:
            return True
    return False


def _is_long(values: range | OpenRange) -> bool:
    return not isinstance(values, range) or len(values) > 1


def _axes(subscripts: tuple[Expr, ...], long: set[str], reduced: set[str]) -> tuple[Axes, ...]:
    """Return the axes in memory order; a subscript of several indices is one axis for each."""
    names: dict[str, None] = {}
    for subscript in subscripts:
        for node in walk(subscript):
            if isinstance(node, Index) and node.name in long:
                names[node.name] = None
    groups = groupby(names, key=lambda name: name in reduced)
    return tuple(Axes(tuple(group), is_reduced) for is_reduced, group in groups)


def _name_of(axes: tuple[Axes, ...]) -> str:
    match [part.is_reduced for part in axes]:
        case [] | [True]:
            return "all"
        case [False, True]:
            return "row"
        case [True, False]:
            return "column"
        case [False]:
            return "pointwise"
        case _:
            return "alternation"


def explain_coalescing(
    c: Comprehension, special: AnySpecialisation, canonical: Coalesced
) -> list[str]:
    """Return lines on *c* before and after coalescing, and on the form of each reduction."""
    lines = []
    for position, statement in enumerate(c.statements):
        new = canonical.comprehension.statements[position]
        chains = canonical.chains[position]
        head, pad = statement.name, " " * len(statement.name)
        before = print_statement(untyped_statement(statement))
        if chains:
            lines.append(f"{head} before  {before}")
            lines.append(f"{pad} after   {print_statement(untyped_statement(new))}")
            merges = merge_texts(chains, special.ranges[position])
            lines += [f"{pad} merged  {text}" for text in merges]
        else:
            lines.append(f"{head}         {before}")
        form = canonical_form(new, canonical.special.ranges[position])
        lines.append(f"{pad} form    {form}")
    return [*lines, *print_merged(canonical.merged), *canonical.notes]


def merge_texts(chains: Mapping[str, tuple[str, ...]], ranges: Ranges) -> list[str]:
    """Return ``h, w -> h_w (16 * 32)`` for each index that was made of others."""
    return [
        f"{', '.join(chain)} -> {name} ({' * '.join(_extent(ranges[old]) for old in chain)})"
        for name, chain in chains.items()
    ]


def _extent(values: range | OpenRange) -> str:
    return str(len(values)) if isinstance(values, range) else "open"
