"""Whether tiles compute what the program does: after all rewrites of a chain of stencils.

For an array t with copies t' in tiles, a = { t'[tile, e'] -> t[e] } says of which element one is a
copy (the identity for arrays that no tile has); terms are { t[e] -> x[k] } as the program was
written, found those of the scop as it is (provenance.py)::

    found(t', x') . a_x  =  a_t . terms(t, x)      on the elements of t' that are written
    what is read of t' is written
    (x' for x: also what x is stored from, if a kernel keeps that and reads it again)
    what is stored of t is that of the program, of an element of t'  that is a copy of it
"""

from collections.abc import Sequence

import islpy as isl

from tcdsl.lang.comprehension import Load
from tcdsl.poly.provenance import Provenance
from tcdsl.poly.scop import Access, Overlapped, Scop


def why_not_overlapped(scop: Scop) -> str | None:
    """Return what is wrong with the tiles of chains of stencils, or None."""
    for overlapped in scop.overlapped:
        reason = (
            _why_not_written(scop, overlapped)
            or _why_not_stored(scop, overlapped)
            or _why_not_terms(scop, overlapped)
        )
        if reason is not None:
            return reason
    return None


def _why_not_written(scop: Scop, overlapped: Overlapped) -> str | None:
    """Return why an element of a tile is read that nobody has computed, or None."""
    for array, tiled in overlapped.tiled.items():
        writes = [w for s in scop.statements for w in s.writes if w.array == tiled]
        reads = [r for s in scop.statements for r in s.reads if r.array == tiled]
        if not reads:
            continue
        if not writes or not _union(reads).is_subset(_union(writes)):
            return f"a tile reads elements of {array} that it has not computed"
    return None


def _why_not_stored(scop: Scop, overlapped: Overlapped) -> str | None:
    """Return why what is stored is not that of the program, or None."""
    values = Provenance(scop, overlapped.given | set(overlapped.tiled.values()))
    for array, elements in overlapped.stored.items():
        writes = [w for s in scop.statements for w in s.writes if w.array == array]
        if not writes or not _union(writes).is_equal(elements):
            return f"the tiles store other elements of {array} than the program"
        if array not in overlapped.tiled:
            continue
        copied = values.of_array(array, overlapped.tiled[array])
        same = isl.Map.identity(elements.get_space().map_from_set()).intersect_domain(elements)
        if copied is None or not copied.apply_range(overlapped.elements[array]).is_equal(same):
            return f"what is stored of {array} is another element"
    return None


def _why_not_terms(scop: Scop, overlapped: Overlapped) -> str | None:
    """Return why an element is made of others than as the program was written, or None."""
    values = Provenance(scop, overlapped.given | set(overlapped.tiled.values()))
    for (array, source), terms in overlapped.terms.items():
        tiled = overlapped.tiled.get(array, array)
        target = overlapped.tiled.get(source, source)
        if target not in scop.arrays:
            continue  # a later rewrite computes it where it is read
        writes = [w for s in scop.statements for w in s.writes if w.array == tiled]
        found = _made_of(values, tiled, target)
        expected = terms
        if array in overlapped.tiled:
            expected = overlapped.elements[array].apply_range(terms)
        expected = expected.intersect_domain(_union(writes))
        if source in overlapped.tiled and found is not None:
            found = found.apply_range(overlapped.elements[source])
        if found is None or not found.is_equal(expected):
            return f"the elements of {array} are made of others of {source} than in the program"
    return None


def _made_of(values: Provenance, array: str, target: str) -> isl.Map | None:
    """Return { array[e] -> target[k] }, of *target* or of a copy that it is stored from."""
    found = values.of_array(array, target)
    for statement in values.scop.statements:
        copy = statement.value
        if statement.write.array != target or not isinstance(copy, Load):
            continue
        if copy.tensor in values.given or (kept := values.of_array(array, copy.tensor)) is None:
            continue
        (read,) = statement.reads
        stored = kept.apply_range(read.relation.reverse().apply_range(statement.write.relation))
        found = stored if found is None else found.union(stored)
    return found


def _union(accesses: Sequence[Access]) -> isl.Set:
    """Return the elements that *accesses*, at least one, touch."""
    first, *others = (access.relation.range() for access in accesses)
    for other in others:
        first = first.union(other)
    return first
