"""What ends up where, and planted defects in sums of exponentials that were cut into chunks."""

from collections.abc import Callable
from dataclasses import replace

import islpy as isl
import pytest

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.accesses import access, builder_of, guarded_reads
from tcdsl.poly.provenance import Provenance, why_not_rescaled
from tcdsl.poly.scop import Scop, Statement
from tcdsl.rewrites.scop.exponential_sums import exponential_sums
from tcdsl.rewrites.scop.rescaling import rescaled
from tcdsl.rewrites.scop.rfactor import Partial, rfactor

Lower = Callable[..., Scop]

SOURCE = """def f(float(M,N) x) -> (m, s) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
}"""
L = 64


@pytest.fixture
def cut(lower: Lower) -> Scop:
    scop = lower(SOURCE, (5, 300))
    (sums,) = exponential_sums(scop)
    return rescaled(scop, sums, L).scop


def changed(scop: Scop, name: str, change: Callable[[Expr], Expr], what: str) -> Scop:
    """Return *scop* with *change* applied to the write ("write") or the value of a statement."""
    old = scop.by_name[name]
    write, value = old.write, old.value
    builder = builder_of(old.indices, name, scop.sizes)
    if what == "write":
        subscripts = tuple(rewrite(s, change) for s in write.subscripts)
        write = access(builder, write.array, subscripts, scop.arrays, old.domain)
    else:
        assert value is not None
        value = rewrite(value, change)
    exprs = (*write.subscripts, *(() if value is None else (value,)))
    reads = guarded_reads(builder, old.domain, exprs, scop.arrays)
    new = replace(old, write=write, value=value, reads=reads)
    return with_statement(scop, new)


def with_statement(scop: Scop, new: Statement) -> Scop:
    return scop.with_statements(tuple(new if s.name == new.name else s for s in scop.statements))


def index_as(name: str, other: Expr) -> Callable[[Expr], Expr]:
    return lambda node: other if isinstance(node, Index) and node.name == name else node


def of_array(array: str, change: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """Apply *change* to the subscripts of the loads of *array* alone."""

    def at(node: Expr) -> Expr:
        if isinstance(node, Load) and node.tensor == array:
            return replace(node, subscripts=tuple(rewrite(s, change) for s in node.subscripts))
        return node

    return at


def plus(name: str, number: int) -> Expr:
    return Binary("+", Index(name), Const(number, INT32), INT32)


def test_provenance_goes_through_what_rewrites_made(cut: Scop) -> None:
    (r,) = cut.rescaled
    values = Provenance(cut, r.given)
    rows = values.of_array("s", "x", {"m"})
    assert rows is not None and rows.dim(isl.dim_type.in_) == 1
    assert rows.is_equal(isl.Map("{ s[i] -> x[i, j] : 0 <= i < 5 and 0 <= j < 300 }"))
    assert values.of_array("m", "s") is None


def test_right_chunks_are_right(cut: Scop) -> None:
    assert len(cut.rescaled) == 1 and why_not_rescaled(cut) is None


def test_chunks_in_lanes_are_right(cut: Scop) -> None:
    scop = cut
    for name in ("S0", "S1"):
        scop = rfactor(scop, name, (Partial("j_in", 0, 4, 16, 16, True),)).scop
    for name in ("S0_whole", "S1_whole"):
        scop = rfactor(scop, name, (Partial("j_chunk", 0, 1, 2, 2, True),)).scop
    assert why_not_rescaled(scop) is None


def defect(scop: Scop, name: str) -> Scop:
    (r,) = scop.rescaled
    chunk = Index("j_chunk")
    match name:
        case "a sum beside another chunk's largest":
            first = index_as("j_chunk", Const(0, INT32))
            return changed(scop, "S1", of_array(r.of_chunk, first), "value")
        case "a sum of other terms than the largest is of":
            shifted = index_as("j_in", Binary("%", plus("j_in", 1), Const(32, INT32), INT32))
            return changed(scop, "S1", of_array("x", shifted), "value")
        case "the largest of other rows":
            row = Binary("%", plus("i", 1), Const(5, INT32), INT32)
            return changed(scop, "S0", of_array("x", index_as("i", row)), "value")
        case "the largest of another chunk is published":
            last = index_as("j_chunk", Binary("-", Const(4, INT32), chunk, INT32))
            return changed(scop, "S0_top", of_array(r.of_chunk, last), "value")
        case "weighed by another chunk's largest":
            last = index_as("j_chunk", Binary("-", Const(4, INT32), chunk, INT32))
            return changed(scop, "S1_whole", of_array(r.published, last), "value")
        case "weighed by another row's largest":
            row = Binary("%", plus("i", 1), Const(5, INT32), INT32)
            return changed(scop, "S1_whole", of_array("m", index_as("i", row)), "value")
        case "one chunk is left out" | "the largest leaves one chunk out":
            whole = "S1_whole" if name.startswith("one") else "S0_whole"
            return without(scop, whole, "{ %s[i, c] : c = 2 }")
        case "the last term of every chunk is left out":
            return without(scop, "S1", "{ %s[i, c, j] : j = 63 }")
        case "two chunks in one":
            half = Binary("/", chunk, Const(2, INT32), INT32)
            return changed(
                scop, "S1_whole", of_array(r.partial, index_as("j_chunk", half)), "value"
            )
        case "chunks that overlap":
            for statement in ("S0", "S1"):
                longer = isl.Set(
                    f"{{ {statement}[i, c, j] : 0 <= i < 5 and 0 <= c and 0 <= j <= 68 and"
                    " 64c + j < 300 }"
                )
                old = scop.by_name[statement]
                scop = with_statement(scop, replace(old, domain=longer))
                scop = changed(scop, statement, lambda node: node, "write")
            return scop
    raise AssertionError(name)


def without(scop: Scop, name: str, instances: str) -> Scop:
    """Return *scop* without some of the *instances* of a statement."""
    old = scop.by_name[name]
    gone = isl.Set(instances % name)
    domain = old.domain.subtract(gone)
    reads = tuple(replace(r, relation=r.relation.intersect_domain(domain)) for r in old.reads)
    write = replace(old.write, relation=old.write.relation.intersect_domain(domain))
    return with_statement(scop, replace(old, domain=domain, reads=reads, write=write))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a sum beside another chunk's largest", "of another chunk than what is its largest"),
        ("a sum of other terms than the largest is of", "not that of the terms which are added"),
        ("the largest of other rows", "not that of the terms which are added"),
        ("the largest of another chunk is published", "of another chunk than what is its largest"),
        ("weighed by another chunk's largest", "rescaled by the largest value of another"),
        ("weighed by another row's largest", "rescaled to the largest value of another row"),
        ("one chunk is left out", "have not the terms of the program"),
        ("the largest leaves one chunk out", "m is not the largest of all"),
        ("the last term of every chunk is left out", "not that of the terms which are added"),
        ("two chunks in one", "have not the terms of the program"),
        ("chunks that overlap", "two of them share a term"),
    ],
)
def test_planted_defects_are_found(cut: Scop, name: str, reason: str) -> None:
    found = why_not_rescaled(defect(cut, name))
    assert found is not None and found.startswith("the chunks of s: ") and reason in found


def test_what_is_not_rescaled_at_all(cut: Scop) -> None:
    """A sum of the chunks' sums, as of any other, is none of exponentials."""
    (r,) = cut.rescaled
    old = cut.by_name["S1_whole"]
    load = Load(r.partial, tuple(map(Index, old.indices)), cut.arrays[r.partial].dtype)
    assert {read.array for read in old.reads} == {r.partial, r.published, "m"}
    bare = changed(with_statement(cut, replace(old, value=load)), "S1_whole", lambda e: e, "value")
    assert "0 statements rescale them" in str(why_not_rescaled(bare))
