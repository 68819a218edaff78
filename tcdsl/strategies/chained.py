"""A chain of products as templates see it: what each member has in a block, and who computes it.

    h(b,o) +=! x(b,n) * V(o,n)      column  o: neighbours in what is written      threads x, lanes
    y(b,p) +=! h(b,o) * W(p,o)      row     b: one factor has it, the other columns      threads y
                                    depth   the longest of the others                    threads z
                                    rest    further ones, one value after another

A block has *sizes* values of the axes that all members share.  What is computed of a result at once
(a bias, relu) follows the member that made it: same roles, same threads, no barrier.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from tcdsl.lang.comprehension import Index
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Access, Kind
from tcdsl.rewrites.scop.rfactor import why_not_rfactored
from tcdsl.strategies.problem import Problem, analysis


class Member(NamedTuple):
    """The dimensions of a member in a block by what threads are along, -1: none.

    *extents* are those of a block; members of one *part* have loops in common.
    """

    name: str
    extents: tuple[int, ...]
    column: int
    row: int
    depth: int
    rest: tuple[int, ...]
    reduced: tuple[int, ...]
    part: str

    @property
    def term(self) -> int:
        """The innermost reduced dimension, -1: none."""
        return self.reduced[-1] if self.reduced else -1

    def extent(self, dim: int) -> int:
        return self.extents[dim] if dim >= 0 else 1

    @property
    def results(self) -> int:
        own = (self.column, self.row, self.depth, *self.rest)
        return prod(self.extent(dim) for dim in own)

    @property
    def terms(self) -> int:
        return prod(self.extents[dim] for dim in self.reduced)


@analysis
def why_not_chained(problem: Problem) -> str | None:
    """Return why the members are no chain of products, whatever blocks have, or None."""
    shapes = [problem.shapes[name] for name in problem.group.members]
    if len(shapes) < 2 or not problem.parallel:
        return "it is one statement, or nothing is shared"
    if sum(is_product(problem, name) for name in problem.group.members) < 2:
        return "fewer than two members are products"
    if problem.is_ragged or any(shape.has_open for shape in shapes):
        return "extents are open, or data say them"
    if any(Role.ORDERED in shape.roles for shape in shapes):
        return "it is a recurrence"
    for shape in shapes:
        statement = shape.statement
        if statement.kind not in (Kind.UPDATE, Kind.ASSIGN) or statement.is_atomic:
            return f"{statement.name} is neither a sum nor a value of elements"
        if statement.kind is Kind.UPDATE and (reason := why_not_rfactored(statement)):
            return reason
        if not all(_is_plain(write) for write in statement.writes):
            return f"{statement.name} writes elsewhere than at its indices"
        if any(extent < 1 for extent in shape.extents):
            return "nothing is computed"
    if not any(inside_of(problem).values()):
        return "no member reads what another has computed"
    return None


def _is_plain(access: Access) -> bool:
    """Return whether the elements of *access* are those at some indices."""
    return access.is_exact and all(isinstance(s, Index) for s in access.subscripts)


def is_product(problem: Problem, name: str) -> bool:
    """Return whether *name* sums products of which each factor serves several results."""
    shape = problem.shapes[name]
    reads = shape.strides[len(shape.statement.writes) :]
    own = [d for d, role in enumerate(shape.roles) if role is Role.PARALLEL]
    terms = [d for d, role in enumerate(shape.roles) if role is Role.REDUCED]
    factors = [row for row in reads if any(row[d] for d in terms)]
    return any(
        any(one[d] and not other[d] and shape.extents[d] > 1 for d in own)
        and any(other[d] and not one[d] and shape.extents[d] > 1 for d in own)
        for n, one in enumerate(factors)
        for other in factors[n + 1 :]
    )


@analysis
def inside_of(problem: Problem) -> Mapping[str, bool]:
    """Return the arrays that members write, and whether another member reads them."""
    statements = [problem.shapes[name].statement for name in problem.group.members]
    written = {write.array for s in statements for write in s.writes}
    return {
        array: any(read.array == array for s in statements for read in s.reads)
        for array in sorted(written)
    }


def members_of(problem: Problem, sizes: Sequence[int]) -> Mapping[str, Member]:
    """Return the members of a block that has *sizes* values of the shared axes."""
    found: dict[str, Member] = {}
    for name in problem.group.members:
        found[name] = _member(problem, name, sizes, list(found.values()))
    return found


def _member(problem: Problem, name: str, sizes: Sequence[int], before: Sequence[Member]) -> Member:
    shape = problem.shapes[name]
    extents = list(shape.extents)
    for axis, size in zip(problem.parallel, sizes, strict=True):
        extents[axis[name]] = min(size, extents[axis[name]])
    reduced = [d for d in shape.order if shape.roles[d] is Role.REDUCED]
    term = _term(problem, name, reduced)
    reduced = [*(d for d in reduced if d != term), *([term] if reduced else [])]
    own = [d for d in shape.order if shape.roles[d] is Role.PARALLEL and extents[d] > 1]
    for maker in reversed(before) if not reduced else ():
        if _follows(problem, name, maker):
            followed = _as_made(problem, name, maker, own, extents)
            if followed is not None:
                return followed
            break
    column, row, depth, rest = _roles(problem, name, own, extents)
    return Member(name, tuple(extents), column, row, depth, rest, tuple(reduced), name)


def _as_made(
    problem: Problem, name: str, maker: Member, own: Sequence[int], extents: Sequence[int]
) -> Member | None:
    """Return *name* with the roles that *maker* has, None if it has other dimensions in a block."""
    place = {e: d for d, e in _same(problem, name, maker).items() if d in own}
    theirs = [d for d in (maker.column, maker.row, maker.depth, *maker.rest) if d >= 0]
    if set(place) != set(theirs) or len(place) != len(own):
        return None
    column, row, depth = (place.get(d, -1) for d in (maker.column, maker.row, maker.depth))
    rest = tuple(place[d] for d in maker.rest)
    return Member(name, tuple(extents), column, row, depth, rest, (), maker.part)


def _follows(problem: Problem, name: str, maker: Member) -> bool:
    """Return whether *name* reads, or writes again, what *maker* writes."""
    statement = problem.shapes[name].statement
    (made, *_) = problem.shapes[maker.name].statement.writes
    return any(a.array == made.array and _is_plain(a) for a in statement.reads)


def _same(problem: Problem, name: str, maker: Member) -> dict[int, int]:
    """Return the dimensions of *name*, and those of *maker* at the same place of its result."""
    statement, other = (problem.shapes[n].statement for n in (name, maker.name))
    (made, *_) = other.writes
    read = next(a for a in statement.reads if a.array == made.array and _is_plain(a))
    return {
        statement.indices.index(mine.name): other.indices.index(theirs.name)
        for mine, theirs in zip(read.subscripts, made.subscripts, strict=True)
        if isinstance(mine, Index) and isinstance(theirs, Index)
    }


def _term(problem: Problem, name: str, reduced: Sequence[int]) -> int:
    """Return the reduced dimension along which most factors have neighbours; the longest."""
    shape = problem.shapes[name]
    reads = shape.strides[len(shape.statement.writes) :]
    count = {d: sum(row[d] == 1 for row in reads) for d in reduced}
    return max(
        reduced, key=lambda d: (shape.extents[d] > 1, count[d], shape.extents[d]), default=-1
    )


def _roles(
    problem: Problem, name: str, own: Sequence[int], extents: Sequence[int]
) -> tuple[int, int, int, tuple[int, ...]]:
    """Return the column, the row and the depth of *name* among its dimensions *own*."""
    if not own:
        return -1, -1, -1, ()
    shape = problem.shapes[name]
    n_writes = len(shape.statement.writes)
    column = min(own, key=lambda d: shape.strides[0][d] or 1 << 60)
    reads = shape.strides[n_writes:]
    others = [d for d in own if d != column]
    crossed = [
        d
        for d in others
        if any(r[d] and not r[column] for r in reads) and any(r[column] and not r[d] for r in reads)
    ]
    row = max(crossed or others, key=lambda d: (min(extents[d], 16), d), default=-1)
    left = sorted((d for d in others if d != row), key=lambda d: -extents[d])
    depth = left[0] if left else -1
    return column, row, depth, tuple(left[1:])


@analysis
def run_of(problem: Problem, member: Member) -> tuple[int, bool]:
    """Return how many terms are taken at once, and whether as vectors of some factor."""
    term = member.term
    if term < 0:
        return 1, False
    shape = problem.shapes[member.name]
    accesses = shape.statement.reads
    reads = shape.strides[len(shape.statement.writes) :]
    sizes = [
        problem.scop.arrays[access.array].dtype.size_bytes
        for access, row in zip(accesses, reads, strict=True)
        if row[term] == 1
    ]
    extent = member.extents[term]
    if sizes and problem.options.vectorise and not shape.lower[term]:
        width = min(16 // max(sizes), 8)
        while width > 1 and extent % width:
            width //= 2
        if width > 1:
            return width, True
    return min(4, 1 << (extent.bit_length() - 1)), False


def levels_of(members: Mapping[str, Member]) -> int:
    """Return how many barriers a block meets: between parts, of which one reads another's."""
    parts = list(dict.fromkeys(member.part for member in members.values()))
    return sum(1 for _ in pairwise(parts))
