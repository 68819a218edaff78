"""Loop trees that fold: a line a loop, coloured by its kind, with what is mapped and marked.

block.x[128]  m / 8      16 iterations                     k0.m.2
  thread.x[256]  n % 256   256 iterations                  k0.n.1
    S0[m, n]
"""

from collections.abc import Iterable, Mapping

from tcdsl.display.html import Child, Html, badge, code, count, details, join, tag
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, Node, Sequence, loop_head
from tcdsl.poly.scop import Kind, Scop
from tcdsl.schedule.placement import Placement, Space
from tcdsl.schedule.plan import Kernel

WHAT = {
    LoopKind.PARALLEL: "iterations shared among threads",
    LoopKind.SERIAL: "iterations in sequence",
    LoopKind.VECTOR: "iterations in vector lanes",
    LoopKind.UNROLL: "a short loop, unrolled",
    LoopKind.LANES: "adjacent elements of one thread, loaded and stored as a vector",
    LoopKind.BLOCK: "iterations distributed over the blocks of the grid",
    LoopKind.THREAD: "iterations distributed over the threads of a block",
    LoopKind.COLLECTIVE: "iterations run at once by several threads together, as one instruction",
    LoopKind.LAST: "once, by the last block to finish",
}


def as_written(scop: Scop) -> tuple[Kernel, ...]:
    """Return the loops before any is chosen: every statement in its own, in textual order."""
    kernels = []
    for statement in scop.statements:
        tree: Node = Leaf(statement.name)
        for position in reversed(range(len(statement.indices))):
            name = f"{statement.name}.{statement.indices[position]}"
            own = {statement.name: Coordinate(position)}
            tree = Loop(name, own, LoopKind.SERIAL, tree)
        kernels.append(Kernel(statement.name, tree))
    return tuple(kernels)


def kernel_trees(
    scop: Scop,
    kernels: Iterable[Kernel],
    placements: Mapping[str, Placement] | None = None,
    is_open: bool = True,
) -> Html:
    """Return the loops of *kernels*, each under its name.

    :arg placements: local arrays, named at the loops that they live in.
    """
    local: dict[str | None, list[Placement]] = {}
    for placement in (placements or {}).values():
        local.setdefault(placement.loop, []).append(placement)
    return tag(
        "div",
        [
            details(
                ["kernel ", code(kernel.name)],
                tag("ul", tree_items(scop, kernel.tree, local)),
                is_open=is_open,
            )
            for kernel in kernels
        ],
        class_="tree",
    )  # fmt: skip


def tree_items(scop: Scop, node: Node, local: Mapping[str | None, list[Placement]]) -> Html:
    """Return *node* as items of a list, which fold."""
    match node:
        case Leaf(statement=name):
            return _leaf(scop, name)
        case Sequence(children=children):
            return join([tree_items(scop, child, local) for child in children])
        case Loop():
            placed = [[" ", _placed(scop, p)] for p in local.get(node.name, ())]
            summary = join(_loop(scop, node), placed)
            body = tag("ul", tree_items(scop, node.body, local))
            return tag("li", details(summary, body, is_open=True))


def _loop(scop: Scop, loop: Loop) -> Html:
    kind, texts = loop_head(scop, loop)
    paint = str(loop.kind)
    label = tag("span", kind, class_=f"badge ink-{paint}", title=WHAT[loop.kind])
    extent: Child = None
    if loop.extent:  # 0: the folds of lanes have none of their own
        extent = tag("span", count(loop.extent, "iteration"), class_="note iterations")
    mark = tag("span", loop.name, class_="mark note", title="the mark above the band")
    return join(label, " ", code(", ".join(texts)), " ", extent, " ", mark)


def _leaf(scop: Scop, name: str) -> Html:
    statement = scop.by_name[name]
    if statement.kind is Kind.BARRIER:
        what = "barrier of the cluster" if statement.is_wide else "barrier"
        return tag("li", badge(str(statement.event.kind) if statement.event else what, "last"))
    text = f"{name}[{', '.join(statement.indices)}]"
    kind = tag("span", f" {statement.kind}", class_="note")
    atomic = badge("atomic", "last") if statement.is_atomic else None
    source = statement.source_name or None
    return tag("li", code(text), kind, " ", atomic, data_s=source)


def _placed(scop: Scop, placement: Placement) -> Html:
    array = scop.arrays[placement.array]
    paint = "shared" if placement.space is Space.SHARED else "registers"
    shape = f"[{placement.elements()}]" if placement.dims else ""
    text = f"{array.dtype} {array.name}{shape}"
    what = "in shared memory" if paint == "shared" else "of one thread"
    return tag("span", text, class_=f"badge ink-{paint}", title=f"lives here, {what}")
