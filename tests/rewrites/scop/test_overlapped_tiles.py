"""Overlapped tiles: the statements that come of it, and the check that they compute the same."""

from collections.abc import Callable
from dataclasses import replace

import islpy as isl
import pytest

from tcdsl.lang.comprehension import Expr, Index, Load
from tcdsl.lang.rewrite import plus, rewrite
from tcdsl.poly.accesses import builder_of, evaluated, guarded_reads
from tcdsl.poly.overlap import why_not_overlapped
from tcdsl.poly.scop import Scop, Statement
from tcdsl.poly.verify import why_not_in_bounds
from tcdsl.rewrites.scop.overlapped_tiles import with_overlapped_tiles
from tcdsl.rewrites.scop.stencil_chains import chains_of

SOURCE = """
def f(float(N) x) -> (h, y) {
    h(i) = x(i - 1) + x(i + 1)
    y(i) = h(i) - h(i + 2)
}
"""


@pytest.fixture
def tiled(lower: Callable[..., Scop]) -> Scop:
    scop = lower(SOURCE, (22,))
    (chain,) = chains_of(scop)
    return with_overlapped_tiles(scop, chain, (8,))


def changed(scop: Scop, name: str, change: Callable[[Statement], Statement]) -> Scop:
    return scop.with_statements(tuple(change(s) if s.name == name else s for s in scop.statements))


def with_value(scop: Scop, name: str, change: Callable[[Expr], Expr]) -> Scop:
    """Return *scop* with every load of *name* by S1 changed."""

    def moved(statement: Statement) -> Statement:
        assert statement.value is not None
        new = replace(
            statement,
            value=rewrite(
                statement.value,
                lambda n: change(n) if isinstance(n, Load) and n.tensor == name else n,
            ),
        )
        builder = builder_of(new.indices, new.name, scop.sizes)
        reads = guarded_reads(builder, new.domain, evaluated(new), scop.arrays)
        return replace(new, reads=reads)

    return changed(scop, "S1", moved)


def test_instances_of_a_tile_and_its_halo(tiled: Scop) -> None:
    assert [(s.name, s.indices) for s in tiled.statements] == [
        (name, ("i_tile", "i_in")) for name in ("S0", "S0_store", "S1")
    ]
    by_name = {name: s.domain for name, s in tiled.by_name.items()}
    counts = {name: int(str(domain.count_val())) for name, domain in by_name.items()}
    # h runs over 1 to 20, in tiles from 1 on: 8 + 2, 8 + 2 and what is left of the third.
    assert counts == {"S0": 10 + 10 + 4, "S0_store": 20, "S1": 18}
    array = tiled.arrays["h.tile"]
    assert (array.origin, array.shape) == ((0, 0), (3, 10))
    assert str(tiled.by_name["S1"].reads[1].relation.intersect_domain(
        isl.Set("{ S1[0, 3] }")
    )) == "{ S1[i_tile = 0, i_in = 3] -> h.tile[0, 5] }"  # fmt: skip


def test_what_tiles_compute_is_what_the_program_does(tiled: Scop) -> None:
    assert why_not_overlapped(tiled) is None
    assert why_not_in_bounds(tiled) is None


def test_the_check_sees_another_distance(tiled: Scop) -> None:
    def shifted(load: Expr) -> Expr:
        assert isinstance(load, Load)
        if load.subscripts[1] != Index("i_in"):
            return load
        return replace(load, subscripts=(load.subscripts[0], plus(*two(load))))

    def two(load: Load) -> tuple[Expr, Expr]:
        from tcdsl.lang.comprehension import Const
        from tcdsl.lang.types.dtypes import INT32

        return load.subscripts[1], Const(1, INT32)

    wrong = with_value(tiled, "h.tile", shifted)
    assert "the elements of y are made of others of h" in str(why_not_overlapped(wrong))


def test_the_check_sees_a_halo_that_is_too_small(tiled: Scop) -> None:
    def smaller(statement: Statement) -> Statement:
        own = isl.Set("{ S0[i_tile, i_in] : i_in <= 8 }")
        domain = statement.domain.intersect(own)
        write = statement.write
        write = replace(write, relation=write.relation.intersect_domain(domain))
        return replace(statement, domain=domain, write=write)

    wrong = changed(tiled, "S0", smaller)
    assert "reads elements of h that it has not computed" in str(why_not_overlapped(wrong))


def test_the_check_sees_what_is_not_stored(tiled: Scop) -> None:
    def less(statement: Statement) -> Statement:
        domain = statement.domain.intersect(isl.Set("{ S0_store[t, u] : t <= 1 }"))
        write = statement.write
        write = replace(write, relation=write.relation.intersect_domain(domain))
        return replace(statement, domain=domain, write=write)

    wrong = changed(tiled, "S0_store", less)
    assert "store other elements of h" in str(why_not_overlapped(wrong))


def test_the_check_sees_the_store_of_a_neighbour(tiled: Scop) -> None:
    def other(statement: Statement) -> Statement:
        (read,) = statement.reads
        one = isl.Map("{ [t, u] -> [t, u + 1] : u < 3; [t, u] -> [t, u] : u >= 3 }")
        one = one.set_tuple_name(isl.dim_type.in_, read.array)
        one = one.set_tuple_name(isl.dim_type.out, read.array)
        return replace(statement, reads=(replace(read, relation=read.relation.apply_range(one)),))

    wrong = changed(tiled, "S0_store", other)
    assert "what is stored of h is another element" in str(why_not_overlapped(wrong))
