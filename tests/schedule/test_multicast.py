"""What blocks of a cluster copy together, and the kernels in which they may not."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import islpy as isl
import pytest

from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Loop, LoopKind, Node
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import Statement
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.multicast import Share, share_of
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.synchronisation import why_not_synchronised
from tests.strategies.tile_configs import tiles

MATMUL = "def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
A, B = "A.tile0S0_copy", "B.tile1S0_copy"


@pytest.fixture(scope="module", autouse=True)
def _of_any_tiles() -> Iterator[None]:
    """All tiles may have clusters, not only likely ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tcdsl.strategies.templates.tile_mma.CLUSTERED", 10**6)
        yield


@pytest.fixture(scope="module")
def plan(cuda_unit: Callable[..., Any]) -> Plan:
    """Three tiles of rows, of which a cluster has two, along y; four of columns, along x."""
    config = tiles((16, 64, 4, 1), loader="boxes", cluster_rows=2)
    kernel = {"kernel": "S0", "template": "tile_mma", **config}
    choices = {"format": "tcdsl choices", "version": 1, "kernels": [kernel]}
    unit = cuda_unit(MATMUL, (192, 256), (256, 256), options=Options(choices=choices))
    found: Plan = unit.done.plan
    assert reason(found) == ""
    return found


def reason(plan: Plan, tree: Node | None = None) -> str:
    """Return why the threads of *plan* are not ordered, with the loops *tree* if they are given."""
    mapped = Mapped(plan.scop, tree or plan.kernels[0].tree)
    return why_not_synchronised(mapped, dependences_of(plan.scop), plan.placements) or ""


def with_clusters(node: Node, sizes: dict[int, int]) -> Node:
    """Return *node*, whose loops over blocks have clusters of these *sizes*, by axis."""
    match node:
        case Loop(kind=LoopKind.BLOCK, axis=axis, body=body):
            return replace(node, cluster=sizes.get(axis, 1), body=with_clusters(body, sizes))
        case Loop(body=body):
            return replace(node, body=with_clusters(body, sizes))
        case Children(children=children):
            return Children(tuple(with_clusters(child, sizes) for child in children))
    return node


def in_place(statement: Statement, where: str) -> isl.Set:
    """Return the instances of *statement* of which *where* is true: indices are as it has them."""
    names = ", ".join(statement.indices)
    found = isl.Set(f"{{ [{names}] : {where} }}")
    return found.set_tuple_id(statement.domain.get_tuple_id())


def mapped_to(plan: Plan, sizes: dict[int, int]) -> Mapped:
    return Mapped(plan.scop, with_clusters(plan.kernels[0].tree, sizes))


def test_a_cluster_is_along_the_grid(plan: Plan) -> None:
    mapped = Mapped(plan.scop, plan.kernels[0].tree)
    assert mapped.grid == (4, 4, 1) and mapped.cluster_dims == (1, 2, 1)
    assert mapped.cluster == 1, "no threads of several blocks share iterations"


@pytest.mark.parametrize(
    ("sizes", "a", "b"),
    [
        ({1: 2}, Share(), Share(2, 1, 2)),  # blocks along rows: the same columns
        ({0: 2}, Share(2, 1, 2), Share()),
        ({0: 2, 1: 2}, Share(2, 1, 2), Share(2, 2, 2)),
        ({0: 2, 1: 4}, Share(2, 1, 2), Share(4, 2, 4)),
        ({}, Share(), Share()),
    ],
)
def test_what_is_shared(sizes: dict[int, int], a: Share, b: Share, plan: Plan) -> None:
    mapped = mapped_to(plan, sizes)
    assert (share_of(mapped, A), share_of(mapped, B)) == (a, b)


def test_parts_have_whole_atoms(cuda_unit: Callable[..., Any]) -> None:
    """Of 32 lines, which are columns here, four blocks have eight each; eight would have four."""
    config = tiles((16, 32, 4, 1), loader="boxes")
    kernel = {"kernel": "S0", "template": "tile_mma", **config}
    choices = {"format": "tcdsl choices", "version": 1, "kernels": [kernel]}
    source = MATMUL.replace("(K,N) B", "(N,K) B").replace("B(k,n)", "B(n,k)")
    unit = cuda_unit(source, (512, 256), (128, 256), options=Options(choices=choices))
    plan = unit.done.plan
    rows = Mapped(plan.scop, plan.kernels[0].tree).grid.index(8)
    assert share_of(mapped_to(plan, {rows: 4}), B) == Share(4, 1, 4)
    assert share_of(mapped_to(plan, {rows: 8}), B) == Share()


def test_atoms_next_to_one_another_are_dealt(cuda_unit: Callable[..., Any]) -> None:
    """128 columns of bfloat16 are two atoms: each block copies one of them, with all its lines."""
    config = tiles((16, 128, 4, 1), loader="boxes", cluster_rows=2)
    kernel = {"kernel": "S0", "template": "tile_mma", **config}
    choices = {"format": "tcdsl choices", "version": 1, "kernels": [kernel]}
    unit = cuda_unit(MATMUL, (192, 256), (256, 256), options=Options(choices=choices))
    plan = unit.done.plan
    assert share_of(Mapped(plan.scop, plan.kernels[0].tree), B) == Share(2, 1)


def test_what_only_some_blocks_read_is_not_shared(plan: Plan) -> None:
    """A copy that the last block of a cluster does not have: o0 is the tile of rows."""
    copy = plan.scop.by_name[B]
    less = copy.domain.intersect(in_place(copy, "o0 < 3"))
    own = (replace(s, domain=less) if s is copy else s for s in plan.scop.statements)
    scop = plan.scop.with_statements(tuple(own))
    mapped = Mapped(scop, plan.kernels[0].tree)
    assert share_of(mapped, B) == Share()


def test_blocks_of_a_cluster_that_have_other_steps_are_refused(plan: Plan) -> None:
    events = ("acquire0", "await0", "release0")
    statements = tuple(
        replace(s, domain=s.domain.intersect(in_place(s, "o0 < 3 or o2 < 3")))
        if s.name in events
        else s
        for s in plan.scop.statements
    )
    why = reason(replace(plan, scop=plan.scop.with_statements(statements)))
    assert "have different steps" in why


@pytest.mark.parametrize("size", [3, 8])
def test_parts_of_clusters_are_refused(size: int, plan: Plan) -> None:
    tree = with_clusters(plan.kernels[0].tree, {1: size})
    assert "has no whole clusters" in reason(plan, tree)
