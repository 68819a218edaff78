"""Which elements of one array end up in an element of another: what rewrites must not lose.

    { t[i] -> x[e] }  =  union over the statements S that write t, and over their reads r:
                         S.write^-1 . (r if r reads x, else r . { r's array -> x })

followed through the arrays that rewrites have made (partial accumulators, copies in registers),
not through the program's own.

``why_not_rescaled`` checks a sum of exponentials that has been cut into chunks
(rewrites/scop/rescaling.py), whatever the rewrites after it were:

    p[e] and q[e] have the same terms           the exponentials of a chunk beside its own maximum
    p[e] reads q[e], mc[e] is q[e]              and beside no other
    no two chunks of a row share a term, all have together those of the program, for s as for m
    who adds p[e] to s[i] reads mc[e], and the m that mc[e] went into
"""

from collections.abc import Collection

import islpy as isl

from tcdsl.poly.scop import Rescaled, Scop, Statement
from tcdsl.records import dataclass

_IN, _OUT = isl.dim_type.in_, isl.dim_type.out


@dataclass(frozen=True, slots=True)
class Provenance:
    """Follows values through the arrays of *scop* that are not *given*."""

    scop: Scop
    given: frozenset[str]

    def of_array(self, array: str, target: str, without: Collection[str] = ()) -> isl.Map | None:
        """Return { array[e] -> target[k] }, None if there is no such pair.

        :arg without: arrays through which nothing is followed.
        """
        found: isl.Map | None = None
        for statement in self.scop.statements:
            for write in statement.writes:
                if write.array != array:
                    continue
                reads = self.of_statement(statement, target, {*without, array})
                if reads is not None:
                    one = write.relation.reverse().apply_range(reads)
                    found = one if found is None else found.union(one)
        return found

    def of_statement(
        self, statement: Statement, target: str, without: Collection[str] = ()
    ) -> isl.Map | None:
        """Return { S[i] -> target[k] }: what an instance reads, or what that was made of."""
        found: isl.Map | None = None
        for read in statement.reads:
            if read.array == target:
                one: isl.Map | None = read.relation
            elif read.array in self.given or read.array in without:
                continue
            else:
                before = self.of_array(read.array, target, without)
                one = None if before is None else read.relation.apply_range(before)
            if one is not None:
                found = one if found is None else found.union(one)
        return found


def why_not_rescaled(scop: Scop) -> str | None:
    """Return what is wrong with the sums of exponentials that were cut into chunks, or None."""
    for rescaled in scop.rescaled:
        values = Provenance(scop, rescaled.given)
        reason = (
            _why_not_chunks(values, rescaled)
            or _why_not_whole(values, rescaled)
            or _why_not_weighed(values, rescaled)
        )
        if reason is not None:
            return f"the chunks of {rescaled.total}: {reason}"
    return None


def _why_not_chunks(values: Provenance, r: Rescaled) -> str | None:
    """Return why p[e] is not a sum beside the maximum q[e] of the same terms, or None."""
    for array in (r.partial, r.published):
        beside = values.of_array(array, r.of_chunk)
        if beside is None or not _is_identity(beside):
            return f"an element of {array} is of another chunk than what is its largest value"
    for terms in r.terms:
        x = terms.of_total.get_tuple_name(_OUT)
        added = values.of_array(r.partial, x, {r.of_chunk})
        compared = values.of_array(r.of_chunk, x)
        if added is None or compared is None:
            return f"no term is of {x}"
        if not added.is_equal(compared.set_tuple_name(_IN, r.partial)):
            return "the largest value is not that of the terms which are added"
    return None


def _why_not_whole(values: Provenance, r: Rescaled) -> str | None:
    """Return why the chunks together are not the program's rows, or None."""
    rows = values.of_array(r.total, r.partial)
    largest = values.of_array(r.largest, r.published)
    if rows is None or largest is None:
        return "nobody adds them up"
    for terms in r.terms:
        x = terms.of_total.get_tuple_name(_OUT)
        added = values.of_array(r.partial, x, {r.of_chunk})
        compared = values.of_array(r.published, x)
        assert added is not None and compared is not None, "they were compared before"
        if not rows.apply_range(added).is_equal(terms.of_total):
            return "they have not the terms of the program"
        if terms.is_distinct and not rows.reverse().range_product(added).is_injective():
            return "two of them share a term"
        if not largest.apply_range(compared).is_equal(terms.of_largest):
            return f"{r.largest} is not the largest of all"
    return None


def _why_not_weighed(values: Provenance, r: Rescaled) -> str | None:
    """Return why a chunk's sum is not rescaled by its own largest value, once, or None."""
    adding = [
        statement
        for statement in values.scop.statements
        if any(read.array == r.largest for read in statement.reads)
        and values.of_statement(statement, r.partial) is not None
    ]
    if len(adding) != 1:
        return f"{len(adding)} statements rescale them"
    (statement,) = adding
    sums = values.of_statement(statement, r.partial)
    chunks = values.of_statement(statement, r.published)
    whole = values.of_statement(statement, r.largest)
    largest = values.of_array(r.largest, r.published)
    assert sums is not None and whole is not None and largest is not None
    if not sums.is_injective():
        return "one is added twice"
    if chunks is None or not chunks.is_equal(sums.set_tuple_name(_OUT, r.published)):
        return "one is rescaled by the largest value of another"
    if not chunks.apply_range(largest.reverse()).is_equal(whole):
        return "one is rescaled to the largest value of another row"
    return None


def _is_identity(relation: isl.Map) -> bool:
    """Return whether *relation* takes every element to that with the same subscripts."""
    if relation.dim(_IN) != relation.dim(_OUT):
        return False
    same = isl.Map.universe(relation.get_space())
    for dim in range(relation.dim(_IN)):
        same = same.equate(_IN, dim, _OUT, dim)
    return bool(relation.is_subset(same))
