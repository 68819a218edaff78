"""The transforms of a compilation in order, each with the program before and after it."""

from collections.abc import Iterator, Sequence

from tcdsl.display.accesses import access_text
from tcdsl.display.html import Html, badge, code, details, join, tag
from tcdsl.display.loops import as_written, kernel_trees
from tcdsl.poly.loop_tree import Node, print_tree, statements_of
from tcdsl.poly.scop import Scop, Statement
from tcdsl.schedule.plan import Kernel
from tcdsl.schedule.trace import Step

# What each step of the planners does, in a sentence.
WHAT = {
    "a sum for each remainder": "A sum with steps is one sum for each remainder, without gaps.",
    "operand packing": "Operands are copied into the order in which the product reads them.",
    "rematerialisation": "Cheap temporaries are computed where they are read, and not stored.",
    "atomics": "Updates that have no other way to run in parallel become atomic.",
    "loop-invariant code motion": "What is the same for all of a row is computed once, where that"
    " is in the row's kernel.",
    "indices from 0 on": "Indices of products are counted from 0 on.",
    "epilogues": "A row's single results are terms of the loops that read them.",
    "alignment shift": "Rows that begin anywhere in memory are read in whole vectors.",
    "shifted exponentials": "A row's exponentials are relative to its maximum.",
    "online softmax": "Chunks of a row have maxima of their own; their sums are rescaled.",
    "conversions where they are read": "Temporaries keep the type from which they are converted.",
    "small factors along results": "Small factors are copied with neighbours where results are.",
    "long rows of data": "Long rows, whose lengths the data decide, get blocks of their own.",
    "overlapped tiles": "Tiles of a stencil chain compute what they need of their neighbours too.",
    "panels": "Operands of a product are packed into panels, which registers' tiles read.",
    "launches": "Kernels share a launch where that is predicted to be faster.",
    "plan search": "Groups are merged, or taken apart, where that is predicted to be faster.",
    "fusion": "Statements are grouped; each group is to be one kernel.",
    "isl's scheduler": "isl finds the loops: recurrences have no parallel loop as written.",
    "rfactor": "A reduction gets partial accumulators, one for each lane or chunk, and a fold.",
    "privatised outputs": "Blocks update copies of results in shared memory, and add them up.",
    "tiles in shared memory": "Operands are copied to shared memory, a tile at a time.",
    "rows on the chip": "Rows that several statements use are loaded once, and kept: in registers,"
    " or in shared memory.",
    "cross-block reductions": "What is left after all chunks is given to the last block"
    " that gets there.",
    "nesting": "The loops of every kernel are opened, and mapped.",
    "scalar loops": "Vector loops become plain ones, as the options ask.",
    "last-block reductions in the same launch": "A kernel's rest is run by its own last blocks.",
    "synchronisation": "Barriers are put where threads exchange data.",
}


def steps_section(scop: Scop, steps: Sequence[Step]) -> Html:
    """Return what each of *steps* made of *scop* and its loops."""
    parts = []
    before_scop, before = scop, as_written(scop)
    for number, step in enumerate(steps, start=1):
        after = step.kernels or as_written(step.scop)
        title = join(
            tag("strong", f"{number}. {step.name}"), " ",
            tag("span", WHAT.get(step.name, ""), class_="note"),
        )  # fmt: skip
        parts.append(details(
            title,
            tag("p", "of ", _names(step.notes)) if step.notes else None,
            _changes(before_scop, step.scop),
            _trees((before_scop, before), (step.scop, after), bool(step.kernels)),
        ))  # fmt: skip
        before_scop, before = step.scop, after
    return tag("div", parts, class_="steps")


def steps_text(scop: Scop, steps: Sequence[Step]) -> str:
    """Return what each of *steps* changed, and the loops after it, as text."""
    lines = []
    before = scop
    for number, step in enumerate(steps, start=1):
        names = f" of {' '.join(step.notes)}" if step.notes else ""
        lines.append(f"{number}. {step.name}{names}")
        lines += [f"  {what} {_text(s)}" for what, _, s in _changed(before, step.scop)]
        for kernel in step.kernels:
            tree = print_tree(kernel.tree, step.scop, 2).rstrip()
            lines += [f"  kernel {kernel.name}", *tree.splitlines()]
        before = step.scop
    return "\n".join([*lines, ""])


def _names(names: Sequence[str]) -> list[Html | str]:
    return [part for name in names for part in (code(name), " ")][:-1]


Loops = tuple[Scop, tuple[Kernel, ...]]


def _trees(earlier: Loops, later: Loops, has_kernels: bool) -> Html:
    """Return the loops before and after, only those kernels that differ.

    Where the loops are still as written, they say little: they are folded.
    """
    (before_scop, before), (after_scop, after) = earlier, later
    known = [_key(before_scop, kernel) for kernel in before]
    made = [_key(after_scop, kernel) for kernel in after]
    old = [kernel for kernel in before if _key(before_scop, kernel) not in made]
    new = [kernel for kernel in after if _key(after_scop, kernel) not in known]
    if not (old or new):
        return tag("p", "The loops are what they were.", class_="note")
    pair = tag(
        "div",
        tag("div", tag("h4", "before"), kernel_trees(before_scop, old)),
        tag("div", tag("h4", "after"), kernel_trees(after_scop, new)),
        class_="pair",
    )
    return pair if has_kernels else details("loops, as written", pair)


def _key(scop: Scop, kernel: Kernel) -> tuple[Node, tuple[str, ...]]:
    return kernel.tree, tuple(_text(scop.by_name[name]) for name in statements_of(kernel.tree))


def _changes(before: Scop, after: Scop) -> Html | None:
    """Return the statements that are new, gone or other than before."""
    items = [
        tag("li", badge(what, paint), " ", code(_text(statement)))
        for what, paint, statement in _changed(before, after)
    ]
    return tag("ul", items, class_="plain") if items else None


def _changed(before: Scop, after: Scop) -> Iterator[tuple[str, str, Statement]]:
    """Yield each such statement, after what it is and the colour of that."""
    for statement in after.statements:
        old = before.by_name.get(statement.name)
        if old is None:
            yield "new", "good", statement
        elif _text(old) != _text(statement):
            yield "changed", "unroll", statement
    for statement in before.statements:
        if statement.name not in after.by_name:
            yield "gone", "bad", statement


def _text(statement: Statement) -> str:
    """Return ``S0[m, n]: writes s[m], reads x[m, n]``."""
    head = f"{statement.name}[{', '.join(statement.indices)}]"
    parts = [f"{head}: {statement.kind}"]
    if statement.writes:
        parts.append("writes " + ", ".join(access_text(a.array, a.subscripts)
                                           for a in statement.writes))  # fmt: skip
    if statement.reads:
        reads = dict.fromkeys(access_text(a.array, a.subscripts) for a in statement.reads)
        parts.append("reads " + ", ".join(reads))
    return " ".join(parts) + (" atomically" if statement.is_atomic else "")
